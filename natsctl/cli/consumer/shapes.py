"""What commands about consumers print as data where it is no answer of the server."""

from __future__ import annotations

from msgspec import field

from natsctl.api.consumer import ConsumerInfo
from natsctl.api.model import Model


class Leader(Model):
    """A server of the cluster, and how many of the consumers it leads."""

    server: str
    cluster: str
    consumers: int


class Report(Model):
    """The consumers of a stream, with `leaders` where those were asked for; `messages` are the stream's."""

    stream: str
    messages: int
    consumers: list[ConsumerInfo]
    missing: list[str] = field(default_factory=list)
    """Consumers whose leaders do not answer."""
    leaders: list[Leader] = field(default_factory=list)


class Moved(Model):
    """A consumer whose leader changed."""

    consumer: str
    from_: str = field(name="from")
    to: str


class Balance(Model):
    """How many consumers were looked at, and whose leaders moved."""

    stream: str
    consumers: int
    moved: list[Moved]


class Removed(Model):
    """What became of several consumers, or of one that was absent."""

    success: bool
    removed: list[str]
    missing: list[str]


class Delivered(Model):
    """A message that a consumer delivered: `data` in base64, `text` where it is UTF-8, times in RFC 3339."""

    subject: str
    data: str
    received: str
    reply: str = ""
    headers: dict[str, list[str]] = field(default_factory=dict)
    text: str | None = None
    stream: str = ""
    consumer: str = ""
    stream_seq: int = 0
    consumer_seq: int = 0
    deliveries: int = 0
    pending: int = 0
    time: str | None = None
