"""The part of a query's WHERE that the server can do: a range of sequences, a range of time, subjects, streams.

Sequences are done exactly. Times and subjects only leave out what cannot fit: Spark looks at those rows once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from natsctl.spark.source.options.values import check_subject, meet
from natsctl.spark.source.spark_api import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

_NEVER_NULL = ("stream", "seq", "subject", "timestamp")


@dataclass(frozen=True)
class Wanted:
    """The messages that a query can use: bounds include their end, None stands for all."""

    first: int | None = None
    last: int | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    subjects: tuple[str, ...] | None = None
    streams: tuple[str, ...] | None = None

    @property
    def nothing(self) -> bool:
        """Whether no message can fit."""
        empty = self.first is not None and self.last is not None and self.first > self.last
        backwards = self.since_ns is not None and self.until_ns is not None and self.since_ns > self.until_ns
        return empty or backwards or self.subjects == () or self.streams == ()


def push(filters: Iterable[Filter], wanted: Wanted) -> tuple[Wanted, list[Filter]]:
    """Return what is wanted with the filters added, and those that Spark has to look at as well."""
    left: list[Filter] = []
    for each in filters:
        wanted, done = _pushed(each, wanted)
        if not done:
            left.append(each)
    return wanted, left


def _pushed(each: Filter, wanted: Wanted) -> tuple[Wanted, bool]:
    """Return what is wanted with one filter, and whether nothing of it is left to do."""
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    column = attribute[0] if len(attribute) == 1 else ""
    if isinstance(each, IsNotNull):
        return wanted, column in _NEVER_NULL
    values = _values(each)
    if column == "seq" and values and all(_is_whole(value) for value in values):
        return _by_sequence(each, values, wanted)
    if column == "timestamp" and values and all(isinstance(value, datetime) for value in values):
        return _by_time(each, values, wanted), False
    if column == "subject" and values and all(isinstance(value, str) for value in values):
        return _by_subject(each, values, wanted), False
    if column == "stream" and isinstance(each, EqualTo | EqualNullSafe | In):
        names = tuple(value for value in values if wanted.streams is None or value in wanted.streams)
        return replace(wanted, streams=names), False
    return wanted, False


def _values(each: Filter) -> tuple[Any, ...]:
    """Return what a filter compares with; nothing for one that is not understood, or that compares with null."""
    if isinstance(each, In):
        return tuple(value for value in each.value if value is not None)
    value = getattr(each, "value", None)
    return () if value is None else (value,)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _bounds(each: Filter, values: tuple[int, ...]) -> tuple[int | None, int | None] | None:
    """Return the least and the greatest value that fit, None for no bound; None in all for a filter of another kind."""
    if isinstance(each, EqualTo | EqualNullSafe | In):
        return min(values), max(values)
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return (values[0] if isinstance(each, GreaterThanOrEqual) else values[0] + 1), None
    if isinstance(each, LessThan | LessThanOrEqual):
        return None, (values[0] if isinstance(each, LessThanOrEqual) else values[0] - 1)
    return None


def _by_sequence(each: Filter, values: tuple[int, ...], wanted: Wanted) -> tuple[Wanted, bool]:
    bounds = _bounds(each, values)
    if bounds is None:
        return wanted, False
    whole = len(set(values)) == max(values) - min(values) + 1 if isinstance(each, In) else True
    first, last = _narrower((wanted.first, wanted.last), bounds)
    return replace(wanted, first=first, last=last), whole


def _by_time(each: Filter, values: tuple[datetime, ...], wanted: Wanted) -> Wanted:
    """Return the range of time; a column's microsecond stands for the thousand nanoseconds that were cut to it."""
    bounds = _bounds(each, tuple(map(_micros, values)))
    if bounds is None:
        return wanted
    since = None if bounds[0] is None else bounds[0] * 1000
    until = None if bounds[1] is None else bounds[1] * 1000 + 999
    since, until = _narrower((wanted.since_ns, wanted.until_ns), (since, until))
    return replace(wanted, since_ns=since, until_ns=until)


def _micros(moment: datetime) -> int:
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _narrower(
    one: tuple[int | None, int | None], other: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    """Return what two ranges have in common."""
    firsts = [first for first in (one[0], other[0]) if first is not None]
    lasts = [last for last in (one[1], other[1]) if last is not None]
    return max(firsts, default=None), min(lasts, default=None)


def _by_subject(each: Filter, values: tuple[str, ...], wanted: Wanted) -> Wanted:
    """Narrower subjects; what the server's filters cannot say, or not without overlap, stays with Spark."""
    if isinstance(each, StringStartsWith):
        filters = _beginning_with(values[0])
    elif isinstance(each, EqualTo | EqualNullSafe | In):
        filters = values if all(_is_literal(value) for value in values) else ()
    else:
        return wanted
    if not filters:
        return wanted
    common = {both for mine in wanted.subjects or (">",) for yours in filters if (both := meet(mine, yours))}
    kept = tuple(sorted(one for one in common if not any(one != wide and meet(one, wide) == one for wide in common)))
    overlap = any(meet(one, other) for at, one in enumerate(kept) for other in kept[at + 1 :])
    return wanted if overlap else replace(wanted, subjects=kept)


def _is_literal(subject: str) -> bool:
    """Return whether a text is a subject that the server takes as it stands, without wildcards."""
    try:
        check_subject(subject)
    except ValueError:
        return False
    return not {"*", ">"} & set(subject.split("."))


def _beginning_with(text: str) -> tuple[str, ...]:
    """Return the filter for all subjects that begin with a text, by its whole tokens; nothing where it has none."""
    tokens = text.split(".")[:-1]
    return (".".join([*tokens, ">"]),) if tokens and _is_literal(".".join(tokens)) else ()
