"""Cron patterns of six fields, second to day of week, and the next time that a pattern matches.

Implemented here and not by a library, because the syntax and the meaning of edge cases are nats-server's: a field
before the minutes, `?`, steps that reach to the end of a field, Sunday only as 0, a day that must satisfy both of its
fields where one has a star and either of them where none has, and hours that a change of clocks skips or repeats.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

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
    """The pattern is none, or names no moment."""


class Field(NamedTuple):
    """The values that one field of a pattern allows."""

    values: frozenset[int]
    star: bool
    """True for a field without a restriction; matters for days only."""


class Cron(NamedTuple):
    """A pattern that was read."""

    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

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
    """Read a pattern; raises CronError."""
    words = pattern.split()
    if len(words) != len(_FIELDS) or len(pattern) > MAX_PATTERN:
        raise CronError(f"expected {len(_FIELDS)} fields, got {len(words)}")
    return Cron(*(_field(word, bounds) for word, bounds in zip(words, _FIELDS, strict=True)))


def _field(word: str, bounds: _Bounds) -> Field:
    """Return the values of a list of ranges."""
    values: set[int] = set()
    star = False
    for part in word.split(","):
        if part:
            found = _range(part, bounds)
            values |= found.values
            star |= found.star
    return Field(frozenset(values), star)


def _range(part: str, bounds: _Bounds) -> Field:
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
    return Field(frozenset(range(start, end + 1, step)), star)


def _number(text: str, bounds: _Bounds) -> int:
    """Return the number or the name; raises CronError."""
    named = bounds.names.get(text.lower())
    if named is not None:
        return named
    digits = text.removeprefix("+") if text[:1] == "+" else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise CronError(f"{text!r} is no number")
    return int(digits)
