"""Times and dates in texts, by the rules of Spark's casts or by a pattern of Java's, as whole numbers.

Without a pattern a text is read as `cast` reads it: RFC 3339 with any number of digits behind the point, parts left out
at the end, zones by offset or by name. A pattern may have the letters of `LETTERS`. Years may have more than four
digits, so that Python's `datetime` is of no use here. Source: Spark 4.3, SparkDateTimeUtils and TimestampFormatter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAY_S: Final = 86_400
SECOND_US: Final = 1_000_000
EPOCH_DAY: Final = 719_163
"""1970-01-01 as Python counts days."""
MAX_OFFSET_S: Final = 18 * 3600
BLANKS: Final = "".join(map(chr, range(0x21))) + "\x7f"

CLOCK: Final = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(\D.*)?)?)?"
DAY: Final = r"([+-]?\d{4,%d})(?:-(\d{1,2})(?:-(\d{1,2})%s)?)?"
MOMENT: Final = re.compile(DAY % (6, f"(?:[ T]{CLOCK})?"), re.ASCII | re.DOTALL)
CLOCK_ALONE: Final = re.compile(f"(?:T|(?=\\d\\d?:)){CLOCK}", re.ASCII | re.DOTALL)
DATE: Final = re.compile(DAY % (7, "(?:[ T].*)?"), re.ASCII | re.DOTALL)
RFC_3339: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?(?:Z|([+-]\d\d:\d\d))", re.ASCII)
MICROS: Final = (1_000_000, 100_000, 10_000, 1_000, 100, 10, 1)
"""Microseconds of a 1 in the last of as many fractional digits as the index."""
OFFSET: Final = re.compile(r"([+-])(\d|\d\d(?:[0-5]\d){0,2}|\d\d(?::[0-5]\d){1,2})", re.ASCII)
REGION: Final = re.compile(r"(?!posix|right|localtime$|Factory$)[A-Za-z][A-Za-z0-9~/._+-]+")
WHOLE_NUMBER: Final = re.compile(r"[+-]?\d+")
GREGORIAN_DAY: Final = -141_427
"""The first day of the Gregorian calendar, 1582-10-15."""

ALIASES: Final = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
"""Java's short names of zones."""
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip

LETTERS: Final = {
    "yyyy": r"(?P<{}>-?\d{{4}}|[+-]\d{{5,9}})", "yy": r"(?P<{}>\d\d)",
    "MMMM": f"(?P<{{}}>{'|'.join(MONTHS)})", "MMM": f"(?P<{{}}>{'|'.join(name[:3] for name in MONTHS)})",
    "XXX": r"(?P<{}>Z|[+-]\d\d:\d\d)", "XX": r"(?P<{}>Z|[+-]\d\d\d\d)", "X": r"(?P<{}>Z|[+-]\d\d(?:\d\d)?)",
    "xxx": r"(?P<{}>[+-]\d\d:\d\d)", "xx": r"(?P<{}>[+-]\d\d\d\d)", "x": r"(?P<{}>[+-]\d\d(?:\d\d)?)",
    "Z": r"(?P<{}>[+-]\d\d\d\d)", "ZZ": r"(?P<{}>[+-]\d\d\d\d)", "ZZZ": r"(?P<{}>[+-]\d\d\d\d)",
    "VV": r"(?P<{}>[A-Za-z][A-Za-z0-9~/._+-]*|[+-][\d:]+)", "a": "(?P<{}>AM|PM)",
    **dict.fromkeys("MdHhKkms", r"(?P<{}>\d{{1,19}})"),
    **{letter * 2: r"(?P<{}>\d\d)" for letter in "MdHhKkms"},
    **{"S" * size: rf"(?P<{{}}>\d{{{{1,{size}}}}})" for size in range(1, 10)},
}  # fmt: skip
"""Parts of patterns, each with the regular expression of its texts."""
PATTERN_PART: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)


class Memo(dict[Any, Any]):
    """Results of a function by its argument. It is sent to other processes empty, where `lru_cache` cannot be sent."""

    def __init__(self, make: Callable[[Any], Any], most: int) -> None:
        super().__init__()
        self._make, self._most = make, most

    def __missing__(self, key: Any) -> Any:
        if len(self) >= self._most:
            self.clear()
        found = self[key] = self._make(key)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Memo, (self._make, self._most)


class Zone(Protocol):
    """An offset of local time, in seconds east of Greenwich."""

    def offset_s(self, local_s: int) -> int:
        """Return the offset at a local time in seconds since 1970."""
        ...


@dataclass(frozen=True)
class Fixed:
    """A zone with one offset at all times."""

    seconds: int

    def offset_s(self, local_s: int) -> int:
        """Return the offset."""
        return self.seconds


@dataclass(frozen=True)
class Region:
    """Offsets of a place. A local time that a clock skips is moved on, one that comes twice is the first."""

    rules: ZoneInfo

    def offset_s(self, local_s: int) -> int:
        """Return the offset at a local time in seconds since 1970; rules repeat after 400 years."""
        cycles = (local_s - 2 * DAY_S) // (146_097 * DAY_S) if local_s > 0 else 0
        local_s = max(local_s - cycles * 146_097 * DAY_S, -719_161 * DAY_S)
        offset = (datetime(1970, 1, 1) + timedelta(seconds=local_s)).replace(tzinfo=self.rules).utcoffset()
        return 0 if offset is None else round(offset.total_seconds())


def zone_of(name: str) -> Zone:
    """Return a zone by an offset or a name, as Java knows them; raise ValueError."""
    zone: Zone = ZONES[name]
    return zone


def _zone(name: str) -> Zone:
    name = re.sub(r"([+-])(\d):", r"\g<1>0\2:", name, count=1)
    name = re.sub(r"([+-]\d\d):(\d)$", r"\1:0\2", name)
    name = ALIASES.get(name, name)
    if name in ("Z", "UTC", "GMT", "UT"):
        return Fixed(0)
    found = OFFSET.fullmatch(re.sub(r"^(UTC|GMT|UT)(?=[+-])", "", name))
    if found:
        digits = found[2].replace(":", "").zfill(2).ljust(6, "0")
        seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:])
        if seconds > MAX_OFFSET_S:
            raise ValueError(f"{name!r} is no offset of a zone")
        return Fixed(-seconds if found[1] == "-" else seconds)
    if not REGION.fullmatch(name):
        raise ValueError(f"{name!r} is no zone")
    try:
        return Region(ZoneInfo(name))
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError(f"{name!r} is no zone") from None


ZONES: Final = Memo(_zone, 1024)


def days_since_1970(year: int, month: int, day: int) -> int:
    """Return the days to a date of the Gregorian calendar, which is used for all times; raise ValueError."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= (28 + leap if month == 2 else 30 + (month + (month > 7)) % 2):
        raise ValueError(f"there is no {year}-{month}-{day}")
    before = year - (month < 3)
    return (
        before * 365 + before // 4 - before // 100 + before // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 719_469
    )


@dataclass(frozen=True)
class TimestampFormat:
    """Texts of moments. A zone that a text does not have is `zone`."""

    pattern: str = ""
    zone: str = "UTC"

    def micros(self, text: str) -> int:
        """Return microseconds since 1970; raise ValueError."""
        if self.pattern:
            return _micros(*_by_pattern(self.pattern, text), zone_of(self.zone))
        found = RFC_3339.fullmatch(text)
        if found is None:
            return self._cast(text)
        whole, fraction, zone = found.groups()
        try:
            micros: int = SECONDS[whole]
        except ValueError:
            return self._cast(text)
        if fraction:
            micros += int(fraction) * MICROS[len(fraction)]
        return micros if zone is None else micros - zone_of(zone).offset_s(0) * SECOND_US

    def _cast(self, text: str) -> int:
        try:
            return _micros(*_by_cast(text), zone_of(self.zone))
        except ValueError:
            if "GMT" not in text:
                raise
            return _micros(*_by_cast(text.replace("GMT", "", 1)), zone_of(self.zone))


@dataclass(frozen=True)
class LocalFormat:
    """Texts of times without a zone."""

    pattern: str = ""

    def micros(self, text: str) -> int:
        """Return microseconds since 1970 on the local clock; raise ValueError, also for a text with a zone."""
        days, clock_us, zone = _by_pattern(self.pattern, text) if self.pattern else _by_cast(text)
        if zone is not None or days is None:
            raise ValueError(f"{text[:60]!r} is no time without a zone")
        return _micros(days, clock_us, None, Fixed(0))


@dataclass(frozen=True)
class DateFormat:
    """Texts of dates."""

    pattern: str = ""

    def days(self, text: str) -> int:
        """Return days since 1970; a whole number that is no date is that many. Raise ValueError."""
        if self.pattern:
            days = _by_pattern(self.pattern, text)[0]
            return 0 if days is None else _in_32_bits(days, text)
        for each in (text, text.replace("GMT", "", 1)):
            found = DATE.fullmatch(each.strip(BLANKS))
            if found:
                try:
                    return _in_32_bits(days_since_1970(int(found[1]), int(found[2] or 1), int(found[3] or 1)), text)
                except ValueError:
                    continue
        if not WHOLE_NUMBER.fullmatch(text):
            raise ValueError(f"{text[:60]!r} is no date")
        return _from_julian(_in_32_bits(int(text), text))


def _in_32_bits(days: int, text: str) -> int:
    """Return the days of a date; raise ValueError where Spark's date is too small for them."""
    if not -(1 << 31) <= days < 1 << 31:
        raise ValueError(f"{text[:60]!r} is no date")
    return days


def _utc_micros(text: str) -> int:
    """Return microseconds since 1970 of a date and time of full seconds; raise ValueError."""
    moment = datetime.fromisoformat(text)
    day_s = moment.hour * 3600 + moment.minute * 60 + moment.second
    return ((moment.toordinal() - EPOCH_DAY) * DAY_S + day_s) * SECOND_US


SECONDS: Final = Memo(_utc_micros, 4096)


def _by_cast(text: str) -> tuple[int | None, int, Zone | None]:
    """Return the days, None for a time of today, the time of day, and the zone, as `cast` reads them."""
    bare = text.strip(BLANKS)
    found = CLOCK_ALONE.fullmatch(bare)
    if found and (bare[0] != "T" or text[0] == "T"):
        days, clock = None, found.groups()
    else:
        found = MOMENT.fullmatch(bare)
        if found is None:
            raise ValueError(f"{text[:60]!r} is no time")
        days, clock = days_since_1970(int(found[1]), int(found[2] or 1), int(found[3] or 1)), found.groups()[3:]
    hour, minute, second, fraction, zone = clock
    zone_found = None if zone is None else zone_of(zone.strip(BLANKS[:-1]))
    return days, _clock_us(int(hour or 0), int(minute or 0), int(second or 0), fraction or ""), zone_found


def _clock_us(hour: int, minute: int, second: int, fraction: str) -> int:
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"there is no {hour}:{minute}:{second}")
    return (hour * 3600 + minute * 60 + second) * SECOND_US + int(fraction[:6].ljust(6, "0"))


def _micros(days: int | None, clock_us: int, zone: Zone | None, otherwise: Zone) -> int:
    zone = zone or otherwise
    if days is None:
        now_s = int(datetime.now(UTC).timestamp())
        days = (now_s + zone.offset_s(now_s)) // DAY_S
    local_us = days * DAY_S * SECOND_US + clock_us
    micros = local_us - zone.offset_s(local_us // SECOND_US) * SECOND_US
    if not -(1 << 63) <= micros < 1 << 63:
        raise ValueError("a time is more than 292,000 years from 1970")
    return micros


def _from_julian(days: int) -> int:
    """Return the day that has the same date as one of the Julian calendar, where that was in use."""
    if days >= GREGORIAN_DAY:
        return days
    shifted = 4 * (days + 719_470) + 3
    year, day = shifted // 1461, shifted % 1461 // 4
    month = (5 * day + 2) // 153
    first = days_since_1970(year + (month > 9), month + 3 if month < 10 else month - 9, 1)
    return first + day - (153 * month + 2) // 5


# Patterns


def check_pattern(pattern: str) -> str:
    """Return the pattern; raise ValueError for one that has parts not read here."""
    _compiled(pattern)
    return pattern


def _compiled(pattern: str) -> tuple[re.Pattern[str], Mapping[str, str]]:
    """Return the regular expression of a pattern, and the part of it by the name of the group."""
    parts: list[str] = []
    groups: dict[str, str] = {}
    end = 0
    for found in PATTERN_PART.finditer(pattern):
        if found.start() != end:
            break
        end = found.end()
        literal, letter, other = found.groups()
        if letter:
            if found[0] not in LETTERS:
                raise ValueError(f"{found[0]!r} is not read here; read `value` as text and use from_json")
            name = f"g{len(groups)}"
            groups[name] = found[0]
            parts.append(LETTERS[found[0]].format(name))
        elif literal is not None:
            parts.append(re.escape(literal.replace("''", "'") or "'"))
        else:
            if other in "{}#":
                raise ValueError(f"{other} is reserved in patterns; write it in single quotes")
            parts.append({"[": "(?:", "]": ")?"}.get(other, re.escape(other)))
    try:
        return re.compile("".join(parts), re.IGNORECASE | re.ASCII), groups
    except re.error as failure:
        raise ValueError(f"{pattern!r} is no pattern: {failure}") from None


PATTERNS: Final = Memo(_compiled, 64)


def _by_pattern(pattern: str, text: str) -> tuple[int | None, int, Zone | None]:
    """Return the days, 1970-01-01 where a text has none, the time of day, and the zone; raise ValueError."""
    expression, groups = PATTERNS[pattern]
    found = expression.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:60]!r} is not like {pattern!r}")
    parts = {groups[name]: said for name, said in found.groupdict().items() if said is not None}
    said = {part[0]: each for part, each in parts.items()}
    year = int(said.get("y", "1970")) + (2000 if "yy" in parts else 0)
    names = [name[:3].lower() for name in MONTHS]
    month = said.get("M", "1")
    number = int(month) if month.isdigit() else names.index(month[:3].lower()) + 1
    days = days_since_1970(year, number, int(said.get("d", "1")))
    zone = next((said[letter] for letter in "XxZV" if letter in said), None)
    clock_us = _clock_us(_hour(said), int(said.get("m", "0")), int(said.get("s", "0")), said.get("S", ""))
    return days, clock_us, None if zone is None else zone_of(zone.upper() if len(zone) == 1 else zone)


def _hour(said: Mapping[str, str]) -> int:
    """Return the hour of the day by whichever letters there are; raise ValueError."""
    ranges: tuple[tuple[str, int, int, Callable[[int], int]], ...] = (
        ("H", 0, 23, lambda hour: hour),
        ("k", 1, 24, lambda hour: hour % 24),
        ("h", 1, 12, lambda hour: hour % 12),
        ("K", 0, 11, lambda hour: hour),
    )
    for letter, least, most, convert in ranges:
        if letter in said:
            if not least <= int(said[letter]) <= most:
                raise ValueError(f"there is no hour {said[letter]} from {least} to {most}")
            late = letter in "hK" and said.get("a", "").lower() == "pm"
            return convert(int(said[letter])) + (12 if late else 0)
    return 12 if said.get("a", "").lower() == "pm" else 0
