"""The checks of a batch's messages, against the stream as it will be once the earlier messages are stored.

The order differs from that of single messages (publish_checks.py), and some wishes mean less inside a batch. Fast
batches ask the same checks, each message with an `Ahead` of its own. Source: server/jetstream_batching.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.err_codes import ErrCode
from natsctl.api.stream import DiscardPolicy
from natsctl.jetstream.publish import counters
from natsctl.jetstream.publish import publish_checks as checks
from natsctl.jetstream.publish.counters import Total
from natsctl.jetstream.publish.publish_checks import Check
from natsctl.jetstream.timed.message_ttl import check_batch_ttl
from natsctl.jetstream.timed.schedule_checks import PURGE, check_schedule, check_scheduler
from natsctl.store.filters import Filters
from natsctl.store.message import file_size, memory_size

if TYPE_CHECKING:
    from natsctl.jetstream.publish.pending_message import PendingMessage
    from natsctl.jetstream.stream_context import StreamContext

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
"""The checks before duplicates are recognised."""


class Ahead:
    """The effects of the earlier messages of a batch."""

    __slots__ = ("bytes", "count", "expected", "ids", "schedules", "subjects", "totals")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.ids: set[bytes] = set()
        self.subjects: dict[bytes, int] = {}
        """Messages by subject."""
        self.schedules: dict[bytes, bool] = {}
        """True for subjects whose last message is a schedule."""
        self.totals: dict[bytes, Total] = {}
        self.expected: dict[bytes, int] = {}
        """Last sequences that were asked about, by subject."""


def check(stream: StreamContext, ahead: Ahead, message: PendingMessage) -> Outcome:
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


def _count(stream: StreamContext, ahead: Ahead, message: PendingMessage) -> ApiError | None:
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


def _check_seq(stream: StreamContext, ahead: Ahead, message: PendingMessage) -> ApiError | None:
    expected = message.fields.get(headers.EXPECTED_LAST_SEQ)
    if expected is None:
        return None
    last = stream.store.last_seq + ahead.count
    if checks.read_seq(expected) != last:
        return error(ErrCode.STREAM_WRONG_LAST_SEQUENCE, seq=last)
    return error(ErrCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT) if ahead.count else None


def _check_subject_seq(stream: StreamContext, ahead: Ahead, message: PendingMessage) -> ApiError | None:
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


def _check_scheduler(stream: StreamContext, ahead: Ahead, message: PendingMessage) -> ApiError | None:
    """Refuse the end of a schedule that is none; the batch itself may have stored one, or something in its place."""
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


def _check_room(stream: StreamContext, ahead: Ahead, message: PendingMessage) -> ApiError | None:
    """Refuse a message that discard new would refuse, and count it where it fits."""
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
