"""The checks of messages with a schedule, and of those that name another message's. Source: nats-server, stream.go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.err_codes import ErrCode
from natsctl.api.subjects import is_literal, is_valid_subject, matches
from natsctl.jetstream.timed.message_ttl import parse_ttl
from natsctl.jetstream.timed.schedule_pattern import ScheduleError, TimeZoneError, first_firing

if TYPE_CHECKING:
    from natsctl.jetstream.publish.pending_message import PendingMessage
    from natsctl.jetstream.stream_context import StreamContext

PURGE: Final = b"purge"
"""The value of `Nats-Schedule-Next` for a schedule that ends."""
SUBJECT_ROLLUP: Final = b"sub"


def check_schedule(stream: StreamContext, message: PendingMessage) -> ApiError | None:
    """Refuse a schedule that cannot be kept; flag a valid one, and make it replace the earlier one."""
    if message.own or not message.fields:
        return None
    try:
        firing = first_firing(message.header, stream.engine.clock.now_ns())
    except ScheduleError as fault:
        return error(
            ErrCode.MESSAGE_SCHEDULES_DISABLED
            if not stream.config.allow_msg_schedules
            else ErrCode.MESSAGE_SCHEDULES_TIME_ZONE_INVALID
            if isinstance(fault, TimeZoneError)
            else ErrCode.MESSAGE_SCHEDULES_PATTERN_INVALID
        )
    if firing is None:
        return None
    if not stream.config.allow_msg_schedules:
        return error(ErrCode.MESSAGE_SCHEDULES_DISABLED)
    refusal = _check_fields(stream, message) or _check_subjects(stream, message)
    if refusal is not None:
        return refusal
    rollup = message.fields.get(headers.ROLLUP)
    if rollup is None:
        message.fields[headers.ROLLUP] = SUBJECT_ROLLUP
        message.header = headers.append(message.header, [(headers.ROLLUP, SUBJECT_ROLLUP)])
    elif rollup.lower() != SUBJECT_ROLLUP:
        return error(ErrCode.MESSAGE_SCHEDULES_ROLLUP_INVALID)
    message.timed = True
    return None


def _check_fields(stream: StreamContext, message: PendingMessage) -> ApiError | None:
    ttl = message.fields.get(headers.SCHEDULE_TTL, b"")
    if parse_ttl(ttl) is None:
        return error(ErrCode.MESSAGE_SCHEDULES_TTL_INVALID)
    if message.fields.get(headers.SCHEDULE_ROLLUP, SUBJECT_ROLLUP) != SUBJECT_ROLLUP:
        return error(ErrCode.MESSAGE_SCHEDULES_ROLLUP_INVALID)
    return error(ErrCode.MESSAGE_TTL_DISABLED) if ttl and not stream.config.allow_msg_ttl else None


def _check_subjects(stream: StreamContext, message: PendingMessage) -> ApiError | None:
    target = message.fields.get(headers.SCHEDULE_TARGET, b"")
    source = message.fields.get(headers.SCHEDULE_SOURCE, b"")
    if not _can_be_published_to(target) or target == message.subject:
        return error(ErrCode.MESSAGE_SCHEDULES_TARGET_INVALID)
    if source and (source in (target, message.subject) or not _can_be_published_to(source)):
        return error(ErrCode.MESSAGE_SCHEDULES_SOURCE_INVALID)
    if not _is_captured(stream, target):
        return error(ErrCode.MESSAGE_SCHEDULES_TARGET_INVALID)
    return error(ErrCode.MESSAGE_SCHEDULES_SOURCE_INVALID) if source and not _is_captured(stream, source) else None


def check_scheduler(stream: StreamContext, message: PendingMessage) -> ApiError | None:
    """Refuse a message that ends a schedule which is none, or claims to come from one."""
    if message.own:
        return None
    scheduler = message.fields.get(headers.SCHEDULER, b"")
    step = message.fields.get(headers.SCHEDULE_NEXT)
    if step is None:
        return error(ErrCode.MESSAGE_SCHEDULES_SCHEDULER_INVALID) if scheduler else None
    if step != PURGE or not _can_be_published_to(scheduler) or scheduler == message.subject:
        return error(ErrCode.MESSAGE_SCHEDULES_SCHEDULER_INVALID)
    if not stream.config.allow_msg_schedules:
        return error(ErrCode.MESSAGE_SCHEDULES_DISABLED)
    last = stream.store.get(stream.store.last_seq_of(scheduler))
    return (
        error(ErrCode.MESSAGE_SCHEDULES_SCHEDULER_INVALID)
        if last is not None and not headers.get(last.header, headers.SCHEDULE)
        else None
    )


def _can_be_published_to(subject: bytes) -> bool:
    return bool(subject) and is_valid_subject(subject) and is_literal(subject)


def _is_captured(stream: StreamContext, subject: bytes) -> bool:
    return any(matches(pattern.encode(), subject) for pattern in stream.config.subjects)
