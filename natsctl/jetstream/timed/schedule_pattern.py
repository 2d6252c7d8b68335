"""The patterns of the `Nats-Schedule` header: times at which a message is produced, once or repeatedly.

`@at <RFC 3339>`, `@every <Go duration of a second or more>`, a cron pattern of six fields or one of the short names,
the last two in a time zone where one is given. Source: nats-server, scheduler.go.
"""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from typing import Final, NamedTuple

from natsctl.api import headers
from natsctl.api.times import ZERO_NS, format_time, parse_time
from natsctl.jetstream.timed.cron import CronError, parse_cron
from natsctl.jetstream.timed.message_ttl import parse_go_duration

SECOND_NS: Final = 1_000_000_000
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
    """The time zone is none."""


class Firing(NamedTuple):
    """The next firing of a schedule."""

    due_ns: int
    text: str
    """The moment in RFC 3339, in the schedule's time zone."""
    repeats: bool


def zone_of(header: bytes) -> tzinfo | None:
    """Return the time zone that a header names, None when it names none. Raises TimeZoneError."""
    name = headers.get(header, headers.SCHEDULE_TIME_ZONE)
    if name is None:
        return None
    from zoneinfo import ZoneInfo  # few schedules name a zone

    try:
        return ZoneInfo(name.decode()) if name else _no_zone()
    except (ValueError, OSError, KeyError) as fault:
        raise TimeZoneError(f"no time zone {name!r}") from fault


def _no_zone() -> tzinfo:
    raise TimeZoneError("an empty time zone")


def first_firing(header: bytes, ts_ns: int) -> Firing | None:
    """Return the first moment after `ts_ns` that a header's schedule names; None without a schedule.

    Raises TimeZoneError, which is looked for first, or ScheduleError.
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
    return Firing(
        int(moment.timestamp()) * SECOND_NS, text.removesuffix("+00:00") + "Z" * text.endswith("+00:00"), True
    )


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
    if duration_ns is None or duration_ns < SECOND_NS or zone is not None:
        raise ScheduleError(f"no interval of a second or more: {text[:64]!r}")
    return duration_ns


def _round(ts_ns: int) -> int:
    """Return the nearest whole second, the later one from half a second on."""
    return (ts_ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS
