"""Atomic batches: messages that are stored together or not at all, and the checks of messages in batches.

Theory of operation. The messages of a batch (`Nats-Batch-Id`) are staged in memory in the order of
`Nats-Batch-Sequence`, each answered with an empty message. The one that commits has them all checked, in steps that
later messages wait for, each against the stream as the ones before it will leave it; only then anything is stored, as
one batch of the store. Whatever goes wrong before that forgets the batch and leaves the stream as it was; a batch
interrupted by a crash was never acknowledged. A batch that is silent for `BatchLimits.timeout_ns` is forgotten, too;
`_open` has batches in the order of their last message, so that the first is the next to time out. Source:
server/stream.go, ADR-50.

The order of checks differs from single messages (publish_checks.py), and some headers mean less inside a batch. Fast
batches use the same checks, each message with an `Ahead` of its own. Source: server/jetstream_batching.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.advisories import BatchAbandoned, BatchAbandonReason
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import go_quote
from natsctl.api.errors import ErrCode
from natsctl.api.stream import DiscardPolicy
from natsctl.api.versions import is_level_met
from natsctl.jetstream.streams import counters
from natsctl.jetstream.streams import publish_checks as checks
from natsctl.jetstream.streams.counters import Total
from natsctl.jetstream.streams.message_ttl import check_batch_ttl
from natsctl.jetstream.streams.publish_checks import Check
from natsctl.jetstream.streams.schedule_pattern import PURGE, check_schedule, check_scheduler
from natsctl.jetstream.timers import Alarm
from natsctl.store.filters import Filters
from natsctl.store.message import file_size, memory_size
from natsctl.store.steps import STEP

if TYPE_CHECKING:
    from natsctl.jetstream.streams.pending_message import PendingMessage
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.steps import Steps


Outcome = ApiError | int
"""An error; the sequence that a message is a duplicate of; or 0: it may be stored."""

FIRST: Final[tuple[Check, ...]] = (
    checks.check_record,
    checks.check_header,
    counters.check_increment,
    checks.check_expected_stream,
    check_batch_ttl,
    checks.read_message_id,
)


class Ahead:
    __slots__ = ("bytes", "count", "expected", "ids", "schedules", "subjects", "totals")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.ids: set[bytes] = set()
        self.subjects: dict[bytes, int] = {}
        """Messages by subject."""
        self.schedules: dict[bytes, bool] = {}
        """True for subjects with a schedule as their last message."""
        self.totals: dict[bytes, Total] = {}
        self.expected: dict[bytes, int] = {}
        """Last sequences that were looked up, by subject."""


def check(stream: Stream, ahead: Ahead, message: PendingMessage) -> Outcome:
    """Check the next message of a batch; if it passes, `ahead` counts it."""
    for first in FIRST:
        refusal = first(stream, message)
        if refusal is not None:
            return refusal
    if message.msg_id:
        known = stream.dedupe.find(message.msg_id)
        if known or message.msg_id in ahead.ids:
            return known or error(ErrCode.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE)
    refusal = (
        checks.check_foreign_source(stream, message)
        or _count(stream, ahead, message)
        or _check_seq(stream, ahead, message)
        or _check_subject_seq(stream, ahead, message)
        or check_schedule(stream, message)
        or _check_scheduler(stream, ahead, message)
        or checks.check_rollup(stream, message)
        or _check_rollup_place(ahead, message)
    )
    if refusal is not None:
        return refusal
    return _check_room(stream, ahead, message) or 0


def _count(stream: Stream, ahead: Ahead, message: PendingMessage) -> ApiError | None:
    """Add to a counter, going on from where the batch's earlier messages left it."""
    if not stream.config.allow_msg_counter:
        return None
    if headers.INCR not in message.fields:
        return error(ErrCode.MESSAGE_INCR_MISSING)
    total = ahead.totals.get(message.subject) or counters.last_total(stream, message.subject)
    if total is None:
        return error(ErrCode.MESSAGE_COUNTER_BROKEN)
    refusal = counters.add(stream, message, total) or checks.check_size(stream, message)
    if refusal is None:
        ahead.totals[message.subject] = total
    return refusal


def _check_seq(stream: Stream, ahead: Ahead, message: PendingMessage) -> ApiError | None:
    expected = message.fields.get(headers.EXPECTED_LAST_SEQ)
    if expected is None:
        return None
    last = stream.store.last_seq + ahead.count
    if checks.read_seq(expected) != last:
        return error(ErrCode.STREAM_WRONG_LAST_SEQUENCE, seq=last)
    return error(ErrCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT) if ahead.count else None


def _check_subject_seq(stream: Stream, ahead: Ahead, message: PendingMessage) -> ApiError | None:
    fields = message.fields
    expected, of = fields.get(headers.EXPECTED_LAST_SUBJECT_SEQ), fields.get(headers.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT)
    if expected is None:
        return error(ErrCode.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID) if of is not None else None
    subject = of or message.subject
    if subject in ahead.subjects:
        return error(ErrCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
    last = ahead.expected.get(subject)
    if last is None:
        last = stream.store.last_match(Filters((of,))) if of else stream.store.last_seq_of(subject)
    if checks.read_seq(expected) != last:
        return error(ErrCode.STREAM_WRONG_LAST_SEQUENCE, seq=last)
    ahead.expected[subject] = last
    return None


def _check_scheduler(stream: Stream, ahead: Ahead, message: PendingMessage) -> ApiError | None:
    """Refuse the end of a message that is not a schedule; the batch itself may have stored or replaced one."""
    scheduler, step = message.fields.get(headers.SCHEDULER, b""), message.fields.get(headers.SCHEDULE_NEXT)
    if step is None or scheduler not in ahead.schedules:
        return check_scheduler(stream, message)
    if step != PURGE or scheduler == message.subject:
        return error(ErrCode.MESSAGE_SCHEDULES_SCHEDULER_INVALID)
    if not stream.config.allow_msg_schedules:
        return error(ErrCode.MESSAGE_SCHEDULES_DISABLED)
    return None if ahead.schedules[scheduler] else error(ErrCode.MESSAGE_SCHEDULES_SCHEDULER_INVALID)


def _check_rollup_place(ahead: Ahead, message: PendingMessage) -> ApiError | None:
    """Refuse a rollup that would remove messages of the batch itself."""
    if message.rollup == b"sub" and message.subject in ahead.subjects:
        return error(ErrCode.STREAM_ROLLUP_FAILED, err="batch rollup sub invalid")
    return (
        error(ErrCode.STREAM_ROLLUP_FAILED, err="batch rollup all invalid")
        if message.rollup == b"all" and ahead.count
        else None
    )


def _check_room(stream: Stream, ahead: Ahead, message: PendingMessage) -> ApiError | None:
    """Refuse a message that discard new would refuse; count it if it fits."""
    config, store, subject = stream.config, stream.store, message.subject
    measure = file_size if store.storage == "file" else memory_size
    size = ahead.bytes + measure(len(subject), len(message.header), len(message.payload))
    on_subject = ahead.subjects.get(subject, 0) + 1
    if config.discard is DiscardPolicy.NEW:
        if 0 < config.max_msgs < store.messages + ahead.count + 1:
            return error(ErrCode.STREAM_STORE_FAILED, err="maximum messages exceeded")
        if 0 < config.max_bytes < store.bytes + size:
            return error(ErrCode.STREAM_STORE_FAILED, err="maximum bytes exceeded")
        alone = config.discard_new_per_subject and not message.rollup
        if alone and 0 < config.max_msgs_per_subject < store.count_of(subject) + on_subject:
            return error(ErrCode.STREAM_STORE_FAILED, err="maximum messages per subject exceeded")
    ahead.count += 1
    ahead.bytes = size
    ahead.subjects[subject] = on_subject
    ahead.schedules[subject] = headers.SCHEDULE in message.fields
    if message.msg_id:
        ahead.ids.add(message.msg_id)
    return None


MAX_ID_BYTES: Final = 64
"""Longest id of a batch. Source: nats-server, error 10179."""

MESSAGE_COST: Final = 640
"""Memory of a staged message in addition to its bytes."""

END: Final = b"eob"
"""The commit of a message that is not part of the batch."""


class AtomicBatch:
    __slots__ = ("bytes", "due_ns", "messages")

    def __init__(self) -> None:
        self.messages: list[PendingMessage] = []
        self.bytes = 0
        self.due_ns = 0


class AtomicBatches:
    __slots__ = ("_alarm", "_bytes", "_open", "_stream", "_total")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._open: dict[bytes, AtomicBatch] = {}
        self._alarm = Alarm(stream.engine.timers, self._look)
        self._bytes = 0
        self._total = stream.engine.open_batches

    def __len__(self) -> int:
        return len(self._open)

    def configure(self) -> None:
        if self._open and not self._stream.config.allow_atomic:
            self.stop()

    def stop(self) -> None:
        for batch_id in tuple(self._open):
            self._close(batch_id)
        self._alarm.cancel()

    def take(self, message: PendingMessage) -> None:
        refusal = self._refuse(message) or self._take(message)
        if refusal is not None:
            self._stream.pipeline.acks.refuse(message.reply, refusal)

    def _refuse(self, message: PendingMessage) -> ApiError | None:
        stream = self._stream
        if (refusal := checks.check_batched(stream, message)) is not None:
            return refusal
        if not stream.config.allow_atomic:
            return error(ErrCode.ATOMIC_PUBLISH_DISABLED)
        if len(message.fields[headers.BATCH_ID]) > MAX_ID_BYTES:
            return error(ErrCode.ATOMIC_PUBLISH_INVALID_BATCH_ID)
        return error(ErrCode.ATOMIC_PUBLISH_MISSING_SEQ) if _sequence(message) < 0 else None

    def _take(self, message: PendingMessage) -> ApiError | None:
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
            batch = AtomicBatch()
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
            self._stream.work.begin_in_order(self._storing(batch_id, batch, message.reply, ends))
            return None
        batch.due_ns = self._stream.engine.clock.monotonic_ns() + limits.timeout_ns
        self._alarm.no_later_than(batch.due_ns)
        self._stream.pipeline.acks.answer(message.reply, b"")
        return None

    def _stage(self, batch: AtomicBatch, message: PendingMessage) -> bool:
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

    def _storing(self, batch_id: bytes, batch: AtomicBatch, reply: bytes, ends: bool) -> Steps[None]:
        """Check all messages and store them, or answer the reason against it."""
        pipeline, messages = self._stream.pipeline, batch.messages
        refusal = yield from self._checking(messages)
        if refusal is not None:
            pipeline.acks.refuse(reply, refusal)
            return
        for message in messages:
            message.reply = b""
        stored = messages[-1]
        if ends:
            stored.header = headers.append(stored.header, ((headers.BATCH_COMMIT, b"1"),))
        stored.reply = reply
        stored.extra = batch_of_ack(batch_id, len(messages))
        pipeline.store_batch(messages)

    def _checking(self, messages: list[PendingMessage]) -> Steps[ApiError | None]:
        stream, ahead, cost = self._stream, Ahead(), 0
        for message in messages:
            stream.pipeline.map_subject(message)
            if headers.EXPECTED_LAST_MSG_ID in message.fields:
                return error(
                    ErrCode.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH, header=headers.EXPECTED_LAST_MSG_ID.decode()
                )
            yield from checks.preparing(stream, message)
            outcome = check(stream, ahead, message)
            if isinstance(outcome, ApiError):
                return outcome
            if outcome:
                return error(ErrCode.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE)
            message.extra = b""
            cost += stream.pipeline.cost_of(message)
            if cost >= STEP:
                yield cost
                cost = 0
        return None

    # Batches that end without a commit

    def _abandon(self, batch_id: bytes, reason: BatchAbandonReason, refusal: ApiError) -> ApiError:
        self._close(batch_id)
        self._advise(batch_id, reason)
        return refusal

    def _advise(self, batch_id: bytes, reason: BatchAbandonReason) -> None:
        name = batch_id.decode("utf-8", "replace")
        event = BatchAbandoned(stream=self._stream.name, batch=name, reason=reason)
        self._stream.js.advise(event)

    def _close(self, batch_id: bytes) -> None:
        batch = self._open.pop(batch_id)
        self._bytes -= batch.bytes
        self._total.staged_bytes -= batch.bytes
        self._total.atomic -= 1

    def _look(self) -> None:
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
    """Return how a message commits its batch, None when it does not."""
    wanted = message.fields.get(headers.BATCH_COMMIT)
    if wanted is None and b"\r\n%b:" % headers.BATCH_COMMIT in message.header:
        return b""
    return wanted
