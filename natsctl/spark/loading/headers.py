"""What of a message's headers is sent again, and by which id a message is known when it comes again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.spark.loading.columns import HEADERS

if TYPE_CHECKING:
    from natsctl.api.stream import StreamConfig

MSG_ID: Final = "Nats-Msg-Id"
IDS: Final = ("auto", "seq", "own")
"""Which ids messages get: their own unless one occurs twice, else by where they were; that always; their own only."""


class Obeyed(NamedTuple):
    """Headers that a server obeys, or that only a server may set: by the name that a person is told, and a pattern.

    Servers know them in this spelling alone. A stream with the setting `taken_with` takes them in the meaning that they
    had.
    """

    name: str
    pattern: str
    taken_with: str = ""


OBEYED: Final = (
    Obeyed("Nats-Expected-…", "Nats-Expected-.*"),  # conditions of then, to which the copy would be held
    Obeyed("Nats-Batch-…", "Nats-Batch-.*"),  # parts of a batch that is over
    Obeyed("Nats-Rollup", "Nats-Rollup"),  # would remove what is there
    Obeyed("Nats-Incr", "Nats-Incr"),  # would count again
    Obeyed("Nats-Trace-…", "Nats-Trace-(?:Dest|Only|Hop)"),  # would be traced, and with Only not stored
    Obeyed("Nats-Stream-Source", "Nats-Stream-Source"),  # refused: servers say so of what they copy
    Obeyed("Nats-Scheduler", "Nats-Scheduler"),  # refused: servers say so of what they publish by a schedule
    Obeyed("Nats-Schedule-Next", "Nats-Schedule-Next"),  # the same
    Obeyed("Nats-TTL", "Nats-TTL", "allow_msg_ttl"),
    Obeyed("Nats-Schedule", "Nats-Schedule", "allow_msg_schedules"),
)


def left_out(config: StreamConfig) -> tuple[Obeyed, ...]:
    """The headers that a stream must not be sent again."""
    return tuple(one for one in OBEYED if not (one.taken_with and getattr(config, one.taken_with)))


def kept(left: Sequence[Obeyed]) -> str:
    """Return the expression of the headers that are sent: a list, empty where a message has none of them.

    It is never null: for each row Spark (4.3) counts the bytes of its batch of Arrow, and goes through all rows of the
    batch since the last list that was not null: 100 us for each row without headers.
    """
    return f"coalesce(filter(headers, pair -> not rlike(pair.key, '{_any(left)}')), cast(array() as {HEADERS}))"


def _any(some: Sequence[Obeyed]) -> str:
    """A regular expression of the names of all of them."""
    return f"^(?:{'|'.join(one.pattern for one in some)})$"


def has(some: Sequence[Obeyed]) -> str:
    """The expression of 1 for a message that has any of those headers, of 0 for one that has none."""
    return f"if(exists(headers, pair -> rlike(pair.key, '{_any(some)}')), 1, 0)"


OWN_ID = f"cast(try_element_at(filter(headers, pair -> pair.key = '{MSG_ID}'), 1).value as string)"
"""The id that a message has of its own, null where it has none."""
PLACE = "concat(stream, ':', seq)"
"""The id by where a message was before; null where that is not known."""
