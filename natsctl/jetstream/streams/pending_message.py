"""One message on its way into a stream, while checks look at it and may rewrite it, and the answer to its publisher.

Theory of operation of answers. Acks of stored messages are made from the publish path's list when a commit ends; their
members beyond the sequence (a counter's value, a batch's size) wait in `_extras` under the sequence. The answer to a
duplicate of a message that is not durable yet waits in `_late`. A refusal goes out at once. A stream with `no_ack`
sends nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode
from natsctl.api.errors import ErrCode
from natsctl.api.headers import SCHEDULE_TIME_ZONE
from natsctl.api.requests import PubAck
from natsctl.store.errors import StoreError, StoreFullError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Entry, RunEntry
    from natsctl.jetstream.streams.stream import Stream


HeaderFields = dict[bytes, bytes]

NO_FIELDS: Final[HeaderFields] = {}
"""The headers of a message without any that a stream reads; never written to."""


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
        """Lifetime: 0 for the stream's default, -1 for no limit."""
        self.timed = False
        """True if it has a TTL or a schedule."""
        self.extra = b""
        """JSON members that follow the sequence in its ack, each with its comma before it."""
        self.own = False
        """True if the server made it: the checks that guard against clients do not apply."""


def read_headers(block: bytes) -> HeaderFields:
    """Return the headers of a block that a stream reads, first value each.

    A header without a value counts as absent, except that an empty time zone of a schedule is invalid.
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


def expanded(waiting: Sequence[Entry | RunEntry]) -> list[Entry]:
    found: list[Entry] = []
    for entry in waiting:
        if isinstance(entry[1], bytes):
            found.append(entry)
        else:
            found += entry[1].entries(entry[2])
    return found


class PublishAcks:
    __slots__ = ("_account", "_extras", "_late", "_no_ack", "_stream", "opening")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._account = stream.account
        self._late: list[tuple[int, bytes, bytes]] = []
        self._extras: dict[int, bytes] = {}
        self._no_ack = False
        self.opening = b""
        """The part of an ack before the sequence."""

    def configure(self) -> None:
        stream = self._stream
        self.opening = encode(PubAck(stream=stream.name, domain=stream.engine.options.domain))[:-2]
        self._no_ack = stream.config.no_ack

    def add_to_ack(self, seq: int, extra: bytes) -> None:
        self._extras[seq] = extra

    def answer(self, reply: bytes, body: bytes) -> None:
        if reply and not self._no_ack:
            self._account.publish(reply, b"", b"", body)

    def refuse(self, reply: bytes, refusal: ApiError) -> None:
        if (traced := self._account.broker.storing) is not None:
            traced["error"] = refusal.description
        if reply and not self._no_ack:
            self._account.publish(reply, b"", b"", encode(PubAck(error=refusal, stream=self._stream.name)))

    def answer_duplicate(self, reply: bytes, seq: int, extra: bytes = b"") -> None:
        """Answer that this is a duplicate of message `seq`, not before that message is durable."""
        if not reply or self._no_ack:
            return
        body = b'%b%d,"duplicate": true%b}' % (self.opening, seq, extra)
        if seq <= self._stream.store.durable_seq:
            self._account.publish(reply, b"", b"", body)
        else:
            self._late.append((seq, reply, body))

    def stored(self, waiting: list[Entry | RunEntry], durable_seq: int) -> None:
        if not self._no_ack:
            ack, extras = self.opening, self._extras
            if extras:
                entries = expanded(waiting)
                answers = [(reply, b"%b%d%b}" % (ack, seq, extras.pop(seq, b""))) for seq, _, reply in entries if reply]
                self._account.answer_all(answers)
            else:
                self._account.ack(waiting, ack)
        if self._late:
            self._send_late(durable_seq)

    def _send_late(self, durable_seq: int) -> None:
        late, self._late = self._late, []
        for entry in late:
            if entry[0] <= durable_seq:
                self._account.publish(entry[1], b"", b"", entry[2])
            else:
                self._late.append(entry)

    def lost(self, waiting: Sequence[Entry], durable_seq: int, fault: StoreError) -> None:
        """Answer the publishers of messages above `durable_seq` that they were not kept."""
        self._extras = {seq: extra for seq, extra in self._extras.items() if seq <= durable_seq}
        late = [entry for entry in self._late if entry[0] > durable_seq]
        self._late = [entry for entry in self._late if entry[0] <= durable_seq]
        for _, _, reply in waiting:
            self.refuse(reply, storage_fault(fault))
        for _, reply, _ in late:
            self.refuse(reply, storage_fault(fault))


def storage_fault(fault: StoreError) -> ApiError:
    return (
        error(ErrCode.STORAGE_RESOURCES_EXCEEDED)
        if isinstance(fault, StoreFullError)
        else error(ErrCode.STREAM_STORE_FAILED, err=str(fault))
    )
