"""Atomic batches: messages that are stored together or not at all.

Theory of operation. The messages of a batch (`Nats-Batch-Id`) are staged in memory in the order of
`Nats-Batch-Sequence`, each answered with an empty message. The one that commits has them all checked, each against the
stream as the ones before it will leave it; only then anything is stored, as one batch of the store. Whatever goes wrong
before that forgets the batch and leaves the stream as it was; what a crash interrupts was never acknowledged. A batch
that is silent for `BatchLimits.timeout_ns` is forgotten, too; batches stand in `_open` in the order of their last
message, so that the first is the next to time out. Source: server/stream.go, ADR-50.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.advisories import BatchAbandoned, BatchAbandonReason
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import go_quote
from natsctl.api.err_codes import ErrCode
from natsctl.api.versions import is_level_met
from natsctl.jetstream.alarm import Alarm
from natsctl.jetstream.publish import publish_checks as checks
from natsctl.jetstream.publish.batch_checks import Ahead, check

if TYPE_CHECKING:
    from natsctl.jetstream.publish.pending_message import PendingMessage
    from natsctl.jetstream.stream_context import StreamContext

MAX_ID_BYTES: Final = 64
"""Longest id of a batch. Source: nats-server, error 10179."""

MESSAGE_COST: Final = 640
"""Memory of a staged message beside its bytes."""

END: Final = b"eob"
"""The commit of a message that is not part of the batch."""


class Batch:
    """One open batch."""

    __slots__ = ("bytes", "due_ns", "messages")

    def __init__(self) -> None:
        self.messages: list[PendingMessage] = []
        self.bytes = 0
        self.due_ns = 0


class AtomicBatches:
    """The open batches of one stream."""

    __slots__ = ("_alarm", "_bytes", "_open", "_stream", "_total")

    def __init__(self, stream: StreamContext) -> None:
        self._stream = stream
        self._open: dict[bytes, Batch] = {}
        self._alarm = Alarm(stream.engine.timers, self._look)
        self._bytes = 0
        self._total = stream.engine.open_batches

    def __len__(self) -> int:
        return len(self._open)

    def configure(self) -> None:
        """Drop the open batches if batches are no longer allowed."""
        if self._open and not self._stream.config.allow_atomic:
            self.stop()

    def stop(self) -> None:
        """Drop every open batch."""
        for batch_id in tuple(self._open):
            self._close(batch_id)
        self._alarm.cancel()

    def take(self, message: PendingMessage) -> None:
        """Take one message of a batch."""
        refusal = self._refuse(message) or self._take(message)
        if refusal is not None:
            self._stream.pipeline.acks.refuse(message.reply, refusal)

    def _refuse(self, message: PendingMessage) -> ApiError | None:
        """Return the error that applies to a message of any batch, or None."""
        stream = self._stream
        for ask in (checks.check_sealed, checks.check_resources, checks.check_account, checks.check_max_size):
            refusal = ask(stream, message)
            if refusal is not None:
                return refusal
        if not stream.config.allow_atomic:
            return error(ErrCode.ATOMIC_PUBLISH_DISABLED)
        if len(message.fields[headers.BATCH_ID]) > MAX_ID_BYTES:
            return error(ErrCode.ATOMIC_PUBLISH_INVALID_BATCH_ID)
        return error(ErrCode.ATOMIC_PUBLISH_MISSING_SEQ) if _sequence(message) < 0 else None

    def _take(self, message: PendingMessage) -> ApiError | None:
        """Stage a message, and commit the batch if it says so."""
        batch_id, seq, commit = message.fields[headers.BATCH_ID], _sequence(message), _commit(message)
        limits, ends = self._total.limits, commit == END
        too_large = (seq - ends) % 2**64 > limits.atomic_size
        batch = self._open.pop(batch_id, None)
        if batch is None:
            if seq != 1:
                return (
                    error(ErrCode.ATOMIC_PUBLISH_TOO_LARGE_BATCH, size=limits.atomic_size)
                    if too_large
                    else error(ErrCode.ATOMIC_PUBLISH_INCOMPLETE_BATCH)
                )
            if len(self._open) >= limits.atomic_of_stream or self._total.atomic >= limits.atomic_of_server:
                return error(ErrCode.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT)
            batch = Batch()
            self._total.atomic += 1
        self._open[batch_id] = batch
        if commit not in (None, b"1", END):
            self._close(batch_id)
            return error(ErrCode.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT)
        level = message.fields.get(headers.REQUIRED_API_LEVEL)
        if level is not None:
            if not is_level_met(level):
                return self._abandon(batch_id, BatchAbandonReason.UNSUPPORTED, error(ErrCode.REQUIRED_API_LEVEL))
            message.header = headers.remove(message.header, headers.REQUIRED_API_LEVEL)
        if len(batch.messages) + 1 != seq or (seq == 1 and ends):
            return self._abandon(
                batch_id, BatchAbandonReason.INCOMPLETE, error(ErrCode.ATOMIC_PUBLISH_INCOMPLETE_BATCH)
            )
        if too_large:
            return self._abandon(
                batch_id,
                BatchAbandonReason.LARGE,
                error(ErrCode.ATOMIC_PUBLISH_TOO_LARGE_BATCH, size=limits.atomic_size),
            )
        if not ends and not self._stage(batch, message):
            return self._abandon(batch_id, BatchAbandonReason.INCOMPLETE, error(ErrCode.INSUFFICIENT_RESOURCES))
        if commit is not None:
            self._close(batch_id)
            return self._store(batch_id, batch, message, ends)
        batch.due_ns = self._stream.engine.clock.monotonic_ns() + limits.timeout_ns
        self._alarm.no_later_than(batch.due_ns)
        self._stream.pipeline.acks.tell(message.reply, b"")
        return None

    def _stage(self, batch: Batch, message: PendingMessage) -> bool:
        """Keep a message until its batch commits; False when there is no memory for it."""
        size = len(message.subject) + len(message.header) + len(message.payload) + MESSAGE_COST
        total, limits = self._total, self._total.limits
        if self._bytes + size > limits.staged_bytes_of_stream:
            return False
        if total.staged_bytes + size > limits.staged_bytes_of_server:
            return False
        batch.messages.append(message)
        batch.bytes += size
        self._bytes += size
        total.staged_bytes += size
        return True

    def _store(self, batch_id: bytes, batch: Batch, last: PendingMessage, ends: bool) -> ApiError | None:
        """Check all messages and store them, or return the reason against it."""
        stream, ahead = self._stream, Ahead()
        for message in batch.messages:
            stream.pipeline.map_subject(message)
            if headers.EXPECTED_LAST_MSG_ID in message.fields:
                return error(
                    ErrCode.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH, header=headers.EXPECTED_LAST_MSG_ID.decode()
                )
            outcome = check(stream, ahead, message)
            if outcome:
                return (
                    outcome
                    if isinstance(outcome, ApiError)
                    else error(ErrCode.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE)
                )
            message.extra = b""
        reply = last.reply
        for message in batch.messages:
            message.reply = b""
        stored = batch.messages[-1]
        if ends:
            stored.header = headers.append(stored.header, ((headers.BATCH_COMMIT, b"1"),))
        stored.reply = reply
        stored.extra = batch_of_ack(batch_id, len(batch.messages))
        stream.pipeline.store_batch(batch.messages)
        return None

    # Batches that end without a commit

    def _abandon(self, batch_id: bytes, reason: BatchAbandonReason, refusal: ApiError) -> ApiError:
        self._close(batch_id)
        self._advise(batch_id, reason)
        return refusal

    def _advise(self, batch_id: bytes, reason: BatchAbandonReason) -> None:
        name = batch_id.decode("utf-8", "replace")
        event = BatchAbandoned(stream=self._stream.name, batch=name, reason=reason)
        self._stream.js.advise(event.subject(), event)

    def _close(self, batch_id: bytes) -> None:
        batch = self._open.pop(batch_id)
        self._bytes -= batch.bytes
        self._total.staged_bytes -= batch.bytes
        self._total.atomic -= 1

    def _look(self) -> None:
        """Abandon batches that were silent for too long."""
        now_ns = self._stream.engine.clock.monotonic_ns()
        for batch_id, batch in tuple(self._open.items()):
            if batch.due_ns > now_ns:
                self._alarm.no_later_than(batch.due_ns)
                return
            self._close(batch_id)
            self._advise(batch_id, BatchAbandonReason.TIMEOUT)


def batch_of_ack(batch_id: bytes, size: int) -> bytes:
    """Return the members of a batch's ack after the sequence."""
    return b',"batch":%b,"count":%d' % (go_quote(batch_id.decode("utf-8", "replace")).encode(), size)


def _sequence(message: PendingMessage) -> int:
    """Return the place of a message in its batch, -1 where the header is no number that can be one."""
    text = message.fields.get(headers.BATCH_SEQUENCE, b"")
    return int(text) if text.isdigit() and len(text.lstrip(b"0")) <= 20 and int(text[-20:]) < 2**64 else -1


def _commit(message: PendingMessage) -> bytes | None:
    """Return how a message wants to commit its batch, None when it does not."""
    wanted = message.fields.get(headers.BATCH_COMMIT)
    if wanted is None and b"\r\n%b:" % headers.BATCH_COMMIT in message.header:
        return b""
    return wanted
