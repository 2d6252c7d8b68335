"""Delete markers: messages that replace the last message of a subject when it expires by age or TTL.

A marker is an empty message with `Nats-Marker-Reason: MaxAge`; its own TTL is the stream's subject_delete_marker_ttl,
so that it expires too, without another marker. It is stored before the message is removed: a crash between the two
leaves a message that expires again, and is no longer the last of its subject then. Deletes, purges and limits leave no
marker. Source: nats-server, filestore.go and sdm.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.units import format_duration
from natsctl.jetstream.publish.pending_message import PendingMessage
from natsctl.store.errors import StoreDamagedError, StoreError

if TYPE_CHECKING:
    from natsctl.jetstream.stream_context import StreamContext

_KV_PURGE: Final = b"PURGE"
_SECOND_NS: Final = 1_000_000_000


class DeleteMarkers:
    """Removal of expired messages, with markers where the stream wants them."""

    __slots__ = ("_header", "_stream", "ttl_ns")

    def __init__(self, stream: StreamContext) -> None:
        self._stream = stream
        self._header = b""
        self.ttl_ns = 0
        """Lifetime of a marker; 0: the stream leaves none."""

    def configure(self) -> None:
        """Read the lifetime of markers from the configuration, in whole seconds."""
        self.ttl_ns = max(self._stream.config.subject_delete_marker_ttl, 0) // _SECOND_NS * _SECOND_NS
        self._header = headers.encode(
            [
                (headers.MARKER_REASON, b"MaxAge"),
                (headers.TTL, format_duration(self.ttl_ns).encode()),
                (headers.ROLLUP, b"sub"),
            ]
        )

    def expire(self, seq: int, reason: str) -> None:
        """Remove one expired durable message, if it is still there; `reason` goes into consumers' advisories."""
        stream, store = self._stream, self._stream.store
        subject = store.subject_of(seq)
        if subject is None:
            return
        if self.ttl_ns and store.count_of(subject) == 1 and not self._is_marker(seq) and not self._leave(subject):
            return
        gone = store.drop_first() if seq == store.first_seq else store.remove(seq)
        if gone is not None:
            stream.removed(gone, reason)

    def _is_marker(self, seq: int) -> bool:
        """Return whether a message is a marker itself, or a KV client's marker of a purged key."""
        try:
            message = self._stream.store.get(seq)
        except StoreDamagedError:
            return False
        if message is None or not message.header:
            return False
        operation = headers.get(message.header, headers.KV_OPERATION)
        return bool(headers.get(message.header, headers.MARKER_REASON)) or operation == _KV_PURGE

    def _leave(self, subject: bytes) -> bool:
        """Store a marker; False when the store refuses it, so that the message has to wait.

        No limit refuses it: it takes the place of a message.
        """
        stream = self._stream
        if stream.config.sealed:
            return False
        if stream.retention.refuses(subject):
            return True
        message = PendingMessage(subject, b"", self._header, b"")
        message.own = message.timed = True
        message.ttl_ns = self.ttl_ns
        try:
            stream.pipeline.store_own(message)
        except StoreError:
            return False
        return True
