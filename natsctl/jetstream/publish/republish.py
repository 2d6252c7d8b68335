"""Republish: stored messages are published again under another subject, for subscribers without a consumer.

Theory of operation. When a message is stored and its republish subject has a subscriber, it is kept in `_waiting` with
its time and the sequence before it on its subject, because both may be gone when the commit ends. Messages that have
become durable are published then, before the acks, in the order of the sequences. Source:
docs/compatibility.md#republishing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.subject_transform import SubjectMapping
from natsctl.api.subjects import is_literal, is_valid_subject
from natsctl.api.times import format_time

if TYPE_CHECKING:
    from natsctl.jetstream.stream_context import StreamContext

Waiting = tuple[int, bytes, bytes, bytes]
"""(sequence, subject to publish on, header, payload)"""


class Republish:
    """The republishing of one stream."""

    __slots__ = ("_headers_only", "_mapping", "_stream", "_waiting", "active")

    def __init__(self, stream: StreamContext) -> None:
        self._stream = stream
        self._mapping: SubjectMapping | None = None
        self._headers_only = False
        self._waiting: list[Waiting] = []
        self.active = False
        """True if the stream republishes."""

    def configure(self) -> None:
        """Read subjects and form from the configuration."""
        wanted = self._stream.config.republish
        self._mapping, self.active = None, wanted is not None and bool(wanted.dest)
        if wanted is not None and wanted.dest:
            self._mapping = SubjectMapping.compile(wanted.src, wanted.dest, draw=self._stream.engine.rng.getrandbits)
            self._headers_only = wanted.headers_only

    def stored(self, seq: int, previous_seq: int, subject: bytes, header: bytes, payload: bytes) -> None:
        """Keep a message that was stored just now; `previous_seq` is the one before it on its subject, 0: none."""
        to = self._mapping.apply(subject) if self._mapping is not None else None
        if to is None or not self._stream.account.has_interest(to):
            return
        if not (is_valid_subject(to) and is_literal(to)):
            return  # as in nats-server, a message for an invalid subject is dropped
        lines = b"Nats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n" % (
            self._stream.name.encode(),
            subject,
            seq,
            format_time(self._stream.store.last_ts_ns).encode(),
        )
        lines += b"Nats-Last-Sequence: %d\r\n" % previous_seq
        if self._headers_only:
            lines += b"Nats-Msg-Size: %d\r\n" % len(payload)
            payload = b""
        block = b"%b%b\r\n" % (header[:-2] if header else b"NATS/1.0\r\n", lines)
        self._waiting.append((seq, to, block, payload))

    def committed(self, durable_seq: int) -> None:
        """Publish messages that became durable."""
        waiting, self._waiting = self._waiting, []
        account = self._stream.account
        for message in waiting:
            if message[0] <= durable_seq:
                account.publish(message[1], b"", message[2], message[3])
            else:
                self._waiting.append(message)

    def forget_above(self, seq: int) -> None:
        """Drop messages that were not kept."""
        self._waiting = [message for message in self._waiting if message[0] <= seq]
