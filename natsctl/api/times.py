"""RFC 3339 times with nanoseconds, as Go writes them, and the clock that every sans-I/O room is given.

Models carry times as wire text; here they become ns since the epoch and back.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache

from natsctl.api.units import SECOND
from natsctl.hints import Final, Protocol

ZERO_TIME: Final = "0001-01-01T00:00:00Z"
"""Go's zero time."""
ZERO_NS: Final = -62_135_596_800 * 1_000_000_000
"""Go's zero time, 0001-01-01T00:00:00Z, in ns since the epoch."""

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_S: Final = 86_400
KNOWN_SECONDS: Final = 256
"""Number of seconds with cached text; messages read together were mostly stored together."""
_TIME: Final = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,18}))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)


def parse_time(text: str) -> int:
    """Return ns since the Unix epoch; raises ValueError with a reason for a person. Digits past the ninth are cut."""
    match = re.fullmatch(_TIME, text)
    if match is None:
        raise ValueError(f"expected a time such as 2026-01-31T12:00:00Z, got {text!r}")
    hour, minute, second = int(match[4]), int(match[5]), int(match[6])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"time {text!r} is not a time of day")
    try:
        days = date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _EPOCH_DAY
    except ValueError as error:
        raise ValueError(f"time {text!r} is not a day of the calendar") from error
    seconds = days * _DAY_S + hour * 3600 + minute * 60 + second
    if match[8]:
        offset = int(match[9]) * 3600 + int(match[10]) * 60
        seconds += -offset if match[8] == "+" else offset
    return seconds * SECOND + int((match[7] or "").ljust(9, "0")[:9])


def format_time(ns: int) -> str:
    """Return the UTC text of `ns` since the epoch, up to nine digits without trailing zeros: 2026-01-31T12:00:00.5Z."""
    seconds, fraction = divmod(ns, SECOND)
    text = _format_second(seconds)
    return f"{text}.{f'{fraction:09d}'.rstrip('0')}Z" if fraction else text + "Z"


@lru_cache(KNOWN_SECONDS)
def _format_second(seconds: int) -> str:
    days, rest = divmod(seconds, _DAY_S)
    day = date.fromordinal(days + _EPOCH_DAY)
    return f"{day.year:04d}-{day.month:02d}-{day.day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def canonical_time(text: str) -> str:
    """Return a time that `parse_time` reads as Go writes it: its offset kept, its fraction without trailing zeros."""
    match = re.fullmatch(_TIME, text)
    if match is None:
        return text
    fraction = (match[7] or "")[:9].rstrip("0")
    here = f"{match[1]}-{match[2]}-{match[3]}T{match[4]}:{match[5]}:{match[6]}" + ("." + fraction if fraction else "")
    offset = f"{match[8]}{match[9]}:{match[10]}" if match[8] else ""
    return here + ("Z" if offset in ("", "+00:00", "-00:00") else offset)


def is_zero(text: str | None) -> bool:
    """Return whether `text` is absent or the zero time."""
    return not text or text == ZERO_TIME


class _LocalZone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def fromutc(self, moment: datetime) -> datetime:
        known = moment.replace(tzinfo=UTC).astimezone()
        found = known.replace(tzinfo=self)
        return found if found.utcoffset() == known.utcoffset() else found.replace(fold=1)


def time_zone(name: str) -> tzinfo | None:
    """Return the time zone of that name, None if this machine does not know it. Source: Go, time.LoadLocation."""
    from zoneinfo import ZoneInfo

    if name in ("UTC", "Local"):
        return UTC if name == "UTC" else _LocalZone()
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: names of folders
        return None


class Clock(Protocol):
    """Two readings of time in nanoseconds."""

    def now_ns(self) -> int:
        """Return the wall clock, ns since the Unix epoch; it may jump."""

    def monotonic_ns(self) -> int:
        """Return a clock that never goes back, ns since an arbitrary start."""
