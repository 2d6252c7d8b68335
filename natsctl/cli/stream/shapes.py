"""What stream commands print with `-j` where it is no answer of a server."""

from __future__ import annotations

from msgspec import field

from natsctl.api.model import Model, blank, new_list, zero
from natsctl.api.stream import StreamInfo

Counts = dict[str, int]
"""`stream subjects`: how many messages each subject has."""
Gaps = list[tuple[int, int]]
"""`stream gaps`: first and last sequence of every range that is missing."""


class Totals(Model):
    """Sums over the streams of a report."""

    streams: int = field(default_factory=zero)
    consumers: int = field(default_factory=zero)
    messages: int = field(default_factory=zero)
    bytes: int = field(default_factory=zero)
    lost: int = field(default_factory=zero)
    deleted: int = field(default_factory=zero)


class Led(Model):
    """How many streams a server leads."""

    server: str = field(default_factory=blank)
    cluster: str = field(default_factory=blank)
    streams: int = field(default_factory=zero)


class StreamReport(Model):
    """`stream report`: whole streams in order; `unavailable` says by name why others could not be shown."""

    streams: list[StreamInfo] = field(default_factory=new_list)
    totals: Totals = field(default_factory=Totals)
    leaders: list[Led] = field(default_factory=new_list)
    unavailable: dict[str, str] = field(default_factory=dict)


class Moved(Model):
    """A stream whose leader changed."""

    stream: str = field(default_factory=blank)
    from_: str = field(name="from", default_factory=blank)
    to: str = field(default_factory=blank)


class Balance(Model):
    """`stream cluster balance`: how many streams were looked at, and whose leaders moved."""

    streams: int = field(default_factory=zero)
    moved: list[Moved] = field(default_factory=new_list)


class Removed(Model):
    """A stream or message that was removed, or was not there; `stream` where there were several."""

    success: bool
    stream: str = ""


class Purged(Model):
    """What a purge removed that the server was asked for in several steps; `stream` where there were several."""

    success: bool
    purged: int
    stream: str = ""


class Imported(Model, kw_only=True):
    """How many messages were read, by how many the stream has grown, and how many it had already.

    `left_out` counts, by the name of headers that a server obeys, the messages that were stored without theirs.
    """

    stream: str
    messages: int
    stored: int
    known: int
    left_out: dict[str, int]
