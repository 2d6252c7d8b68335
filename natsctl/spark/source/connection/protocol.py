"""The operations that a server sends, one at a time: messages, and the lines between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from natsctl.spark.source.errors import ServerUnreachableError
from natsctl.wire.server_frames import LINE_END, BrokenFrameError, frames

REPLY_AT: Final = {b"MSG": 5, b"HMSG": 6}
"""The number of words that a message's line has with a reply subject, by verb."""


LONGEST_REPLY: Final = 11
"""Words of a reply subject with domain and account; a word more is a token behind the place."""
PLACES: Final = 4
"""Numbers that end a reply subject: sequence, delivery, time, pending."""


class Message(NamedTuple):
    """One delivered message; `headers` is the whole header block, empty without one."""

    subject: bytes
    sid: bytes
    reply: bytes
    headers: bytes
    body: bytes


class Place(NamedTuple):
    """The place of a delivered message in its stream and in its consumer's deliveries, and how many are to come."""

    seq: int
    delivery: int
    time_ns: int
    pending: int


def read_frames(data: bytes, at: int = 0) -> Iterator[tuple[int, Message | bytes]]:
    """Yield the messages, and the lines between them, that are whole in `data` from `at` on, each behind its end.

    Raises ServerUnreachableError for bytes that no server sends.
    """
    try:
        for end, sid, subject, reply, headers, body in frames(data, at):
            yield end, Message(subject, sid, reply, headers, body) if sid else subject
    except BrokenFrameError as failure:
        raise ServerUnreachableError(f"the other side does not speak the NATS protocol: {failure}") from failure


def status_of(headers: bytes) -> int:
    """Return the status in the first line of a header block (503, 408, …); 0 without one."""
    words = headers[: headers.find(LINE_END)].split(None, 2) if headers else []
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def description_of(headers: bytes) -> str:
    """Return the words after the status in the first line of a header block."""
    words = headers[: headers.find(LINE_END)].split(None, 2) if headers else []
    return words[2].decode(errors="replace").strip() if len(words) > 2 else ""


def place_of(reply: bytes) -> Place:
    """Parse a delivery's reply subject: $JS.ACK.[domain.account.]stream.consumer.tries.seq.delivery.time.pending.

    Raises ServerUnreachableError for any other subject.
    """
    words = reply.split(b".")
    try:
        last = len(words) - 1 if len(words) > LONGEST_REPLY else len(words)
        return Place(*map(int, words[last - PLACES : last]))
    except (ValueError, TypeError) as failure:
        raise ServerUnreachableError(
            f"the server delivers with {reply[:200]!r} as the place to acknowledge"
        ) from failure


def ack_prefix(reply: bytes) -> bytes:
    """Return the beginning of a consumer's acknowledgement subjects, up to its name."""
    return b".".join(reply.split(b".")[: _before_places(reply)])


def deliveries_of(reply: bytes) -> int:
    """Return how often a message has been delivered, by the subject that acknowledges it."""
    return int(reply.split(b".")[_before_places(reply)])


def delivered(reply: bytes) -> tuple[int, bool]:
    """Return a message's sequence in its stream and whether it was delivered before, by the subject to acknowledge.

    Raises ServerUnreachableError for any other subject.
    """
    words = reply.split(b".")
    at = len(words) - (1 if len(words) > LONGEST_REPLY else 0) - PLACES
    try:
        return int(words[at]), words[at - 1] != b"1"
    except (ValueError, IndexError) as failure:
        raise ServerUnreachableError(
            f"the server delivers with {reply[:200]!r} as the place to acknowledge"
        ) from failure


def _before_places(reply: bytes) -> int:
    """Return how many words stand before the count of deliveries, which the four numbers of a place follow."""
    words = reply.count(b".") + 1
    return words - PLACES - (2 if words > LONGEST_REPLY else 1)
