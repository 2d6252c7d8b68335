"""The patterns of the `Nats-Schedule` header: times to produce a message at, once or repeatedly; and their checks.

`@at <RFC 3339>`, `@every <Go duration of a second or more>`, a cron pattern of six fields or one of the short names,
the last two in an optional time zone. Source: nats-server, scheduler.go and stream.go.

Cron is implemented here and not by a library, because the syntax and the meaning of edge cases are nats-server's: a
field before the minutes, `?`, steps that reach to the end of a field, Sunday only as 0, a day that must satisfy both of
its fields if one has a star and either of them if not, and hours that a clock change skips or repeats.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.errors import ErrCode
from natsctl.api.subjects import is_literal, is_valid_subject, matches
from natsctl.api.times import ZERO_NS, format_time, parse_time, time_zone
from natsctl.api.units import SECOND, parse_go_duration, parse_ttl

if TYPE_CHECKING:
    from natsctl.jetstream.streams.pending_message import PendingMessage
    from natsctl.jetstream.streams.stream import Stream


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

YEARS_AHEAD: Final = 5
"""Years that a search covers; a pattern without a time in them is invalid."""
MAX_PATTERN: Final = 1024
"""Bytes of a pattern that is read; longer ones are invalid."""
_MAX_STEPS: Final = 20_000
"""Steps of one search, more than five years need."""


class _Bounds(NamedTuple):
    least: int
    most: int
    names: dict[str, int]


_FIELDS: Final = (
    _Bounds(0, 59, {}),
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Bounds(0, 6, {name: number for number, name in enumerate(_DAYS)}),
)


class CronError(ValueError):
    """The pattern is invalid, or names no moment."""


class CronField(NamedTuple):
    values: frozenset[int]
    star: bool
    """True for a field without a restriction; matters for days only."""


class Cron(NamedTuple):
    second: CronField
    minute: CronField
    hour: CronField
    day: CronField
    month: CronField
    weekday: CronField

    def next_after(self, ts_ns: int, zone: tzinfo = UTC) -> datetime:
        """Return the first whole second after `ts_ns` that the pattern names in `zone`. Raises CronError."""
        moment = datetime.fromtimestamp(ts_ns // 1_000_000_000 + 1, UTC).astimezone(zone)
        last_year = moment.year + YEARS_AHEAD
        for _ in range(_MAX_STEPS):
            if moment.year > last_year:
                break
            if moment.month not in self.month.values:
                first = moment.replace(day=1, hour=0, minute=0, second=0, fold=0)
                moment = _at(first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1))
            elif not self._day_matches(moment):
                moment = _at(moment.replace(hour=0, minute=0, second=0, fold=0) + timedelta(days=1))
            elif moment.hour not in self.hour.values:
                moment = _later(moment, 3600 - moment.minute * 60 - moment.second)
            elif moment.minute not in self.minute.values:
                moment = _later(moment, 60 - moment.second)
            elif moment.second not in self.second.values:
                moment = _later(moment, 1)
            else:
                return moment
        raise CronError("pattern names no moment within five years")

    def _day_matches(self, moment: datetime) -> bool:
        by_day = moment.day in self.day.values
        by_weekday = moment.isoweekday() % 7 in self.weekday.values
        return (by_day and by_weekday) if self.day.star or self.weekday.star else (by_day or by_weekday)


def _later(moment: datetime, seconds: int) -> datetime:
    """Return the moment so many seconds later, whatever clocks do meanwhile."""
    return (moment.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(moment.tzinfo)


def _at(moment: datetime) -> datetime:
    """Return a calendar time; one that a change of clocks skips becomes the one after the gap."""
    return moment.astimezone(UTC).astimezone(moment.tzinfo)


def parse_cron(pattern: str) -> Cron:
    words = pattern.split()
    if len(words) != len(_FIELDS) or len(pattern) > MAX_PATTERN:
        raise CronError(f"expected {len(_FIELDS)} fields, got {len(words)}")
    return Cron(*(_field(word, bounds) for word, bounds in zip(words, _FIELDS, strict=True)))


def _field(word: str, bounds: _Bounds) -> CronField:
    """Return the values of a list of ranges."""
    values: set[int] = set()
    star = False
    for part in word.split(","):
        if part:
            found = _range(part, bounds)
            values |= found.values
            star |= found.star
    return CronField(frozenset(values), star)


def _range(part: str, bounds: _Bounds) -> CronField:
    """Return the values of `*`, `n` or `n-m`, each with or without `/step`; `n/step` reaches to the end."""
    span, *steps = part.split("/")
    ends = span.split("-")
    if len(steps) > 1:
        raise CronError(f"more than one step in {part!r}")
    star = ends[0] in ("*", "?")
    if star:
        start, end = bounds.least, bounds.most
    elif len(ends) <= 2:
        start, end = _number(ends[0], bounds), _number(ends[-1], bounds)
    else:
        raise CronError(f"more than one hyphen in {part!r}")
    step = 1
    if steps:
        step = _number(steps[0], _FIELDS[0])
        end = bounds.most if len(ends) == 1 else end
        star = star and step <= 1
    if not bounds.least <= start <= end <= bounds.most or not step:
        raise CronError(f"{part!r} is not a range of {bounds.least} to {bounds.most}")
    return CronField(frozenset(range(start, end + 1, step)), star)


def _number(text: str, bounds: _Bounds) -> int:
    named = bounds.names.get(text.lower())
    if named is not None:
        return named
    digits = text.removeprefix("+") if text[:1] == "+" else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise CronError(f"{text!r} is no number")
    return int(digits)


MAX_NS: Final = (1 << 63) - 1

SHORT_NAMES: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}

_GO_TIME: Final = (
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{1,2})(:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})"
)


class ScheduleError(ValueError):
    """The pattern cannot be read, or names no moment."""


class TimeZoneError(ScheduleError):
    """The time zone does not exist."""


class Firing(NamedTuple):
    due_ns: int
    text: str
    """The moment in RFC 3339, in the schedule's time zone."""
    repeats: bool


def zone_of(header: bytes) -> tzinfo | None:
    """Return the time zone that a header names, None when it names none. Raises TimeZoneError."""
    name = headers.get(header, headers.SCHEDULE_TIME_ZONE)
    if name is None:
        return None
    zone = time_zone(name.decode("utf-8", "replace")) if name else None
    if zone is None:
        raise TimeZoneError(f"no time zone {name!r}")
    return zone


def first_firing(header: bytes, ts_ns: int) -> Firing | None:
    """Return the first moment after `ts_ns` that a header's schedule names; None without a schedule.

    Raises TimeZoneError (checked first) or ScheduleError.
    """
    zone = zone_of(header)
    pattern = (headers.get(header, headers.SCHEDULE) or b"").decode("utf-8", "replace")
    if not pattern:
        return None
    if pattern.startswith("@at "):
        due_ns = _parse_at(pattern[4:], zone)
        return Firing(min(due_ns, MAX_NS), "", False) if due_ns != ZERO_NS else None
    if pattern.startswith("@every "):
        due_ns = _round(ts_ns) + _parse_every(pattern[7:], zone)
        return Firing(due_ns, format_time(due_ns), True)
    try:
        moment = parse_cron(SHORT_NAMES.get(pattern, pattern)).next_after(ts_ns, zone or UTC)
    except (CronError, OverflowError) as fault:
        raise ScheduleError(str(fault)) from fault
    text = moment.isoformat()
    return Firing(int(moment.timestamp()) * SECOND, text.removesuffix("+00:00") + "Z" * text.endswith("+00:00"), True)


def next_firing(header: bytes, ts_ns: int, now_ns: int) -> Firing | None:
    """Return the next firing after `ts_ns`, without those missed by `now_ns`. Raises as `first_firing`."""
    firing = first_firing(header, ts_ns)
    if firing is not None and firing.repeats and firing.due_ns < now_ns:
        return first_firing(header, _round(now_ns))
    return firing


def _parse_at(text: str, zone: tzinfo | None) -> int:
    match = re.fullmatch(_GO_TIME, text)
    if match is None or zone is not None:
        raise ScheduleError(f"no time: {text[:64]!r}")
    date, hour, rest, fraction, offset = match.groups()
    try:
        return parse_time(f"{date}T{hour.zfill(2)}{rest}.{(fraction or '0')[:9]}{offset}")
    except ValueError as fault:
        raise ScheduleError(str(fault)) from fault


def _parse_every(text: str, zone: tzinfo | None) -> int:
    duration_ns = parse_go_duration(text.encode())
    if duration_ns is None or duration_ns < SECOND or zone is not None:
        raise ScheduleError(f"no interval of a second or more: {text[:64]!r}")
    return duration_ns


def _round(ts_ns: int) -> int:
    """Return the nearest whole second, the later one from half a second on."""
    return (ts_ns + SECOND // 2) // SECOND * SECOND


PURGE: Final = b"purge"
"""The value of `Nats-Schedule-Next` for a schedule that ends."""
SUBJECT_ROLLUP: Final = b"sub"


def check_schedule(stream: Stream, message: PendingMessage) -> ApiError | None:
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


def _check_fields(stream: Stream, message: PendingMessage) -> ApiError | None:
    ttl = message.fields.get(headers.SCHEDULE_TTL, b"")
    if parse_ttl(ttl) is None:
        return error(ErrCode.MESSAGE_SCHEDULES_TTL_INVALID)
    if message.fields.get(headers.SCHEDULE_ROLLUP, SUBJECT_ROLLUP) != SUBJECT_ROLLUP:
        return error(ErrCode.MESSAGE_SCHEDULES_ROLLUP_INVALID)
    return error(ErrCode.MESSAGE_TTL_DISABLED) if ttl and not stream.config.allow_msg_ttl else None


def _check_subjects(stream: Stream, message: PendingMessage) -> ApiError | None:
    target = message.fields.get(headers.SCHEDULE_TARGET, b"")
    source = message.fields.get(headers.SCHEDULE_SOURCE, b"")
    if not _can_be_published_to(target) or target == message.subject:
        return error(ErrCode.MESSAGE_SCHEDULES_TARGET_INVALID)
    if source and (source in (target, message.subject) or not _can_be_published_to(source)):
        return error(ErrCode.MESSAGE_SCHEDULES_SOURCE_INVALID)
    if not _is_captured(stream, target):
        return error(ErrCode.MESSAGE_SCHEDULES_TARGET_INVALID)
    return error(ErrCode.MESSAGE_SCHEDULES_SOURCE_INVALID) if source and not _is_captured(stream, source) else None


def check_scheduler(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Refuse a message that ends something other than a schedule, or claims to come from a schedule."""
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


def _is_captured(stream: Stream, subject: bytes) -> bool:
    return any(matches(pattern.encode(), subject) for pattern in stream.config.subjects)
