"""One message on its way into a stream, while checks look at it and may rewrite it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.headers import SCHEDULE_TIME_ZONE

if TYPE_CHECKING:
    from natsctl.broker.session import Session

HeaderFields = dict[bytes, bytes]

NO_FIELDS: Final[HeaderFields] = {}
"""The headers of a message that has none of note; never written to."""


class PendingMessage:
    """A message, its JetStream headers, and the results of its checks."""

    __slots__ = (
        "extra",
        "fields",
        "header",
        "msg_id",
        "origin",
        "own",
        "payload",
        "reply",
        "rollup",
        "subject",
        "timed",
        "ttl_ns",
    )  # fmt: skip

    def __init__(
        self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None = None
    ) -> None:
        self.subject = subject
        self.reply = reply
        self.header = header
        self.payload = payload
        self.origin = origin
        self.fields = read_headers(header) if header else NO_FIELDS
        self.msg_id = b""
        """The id for the duplicate window."""
        self.rollup = b""
        """`sub` or `all` once it is known to be permitted."""
        self.ttl_ns = 0
        """Lifetime: 0 by the stream's configuration, -1 for ever."""
        self.timed = False
        """True if it has a TTL or a schedule."""
        self.extra = b""
        """JSON members that follow the sequence in its ack, each with its comma before it."""
        self.own = False
        """True if the server made it: the checks that guard against clients do not apply."""


def read_headers(block: bytes) -> HeaderFields:
    """Return the headers of a block that a stream looks at, first value each.

    One without a value counts as absent, but for the time zone of a schedule, which is wrong then.
    """
    if b"\r\nNats-" not in block and b"\r\nMsg-Id:" not in block:
        return NO_FIELDS
    fields: HeaderFields = {}
    for line in block.split(b"\r\n"):
        if line.startswith((b"Nats-", b"Msg-Id:")):
            key, _, value = line.partition(b":")
            fields.setdefault(key, value.lstrip(b" "))
    if b"" in fields.values():
        fields = {key: value for key, value in fields.items() if value or key == SCHEDULE_TIME_ZONE}
    return fields
