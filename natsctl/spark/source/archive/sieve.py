"""The messages of an archive that a query wants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import binary_array, int_array
from natsctl.spark.source.columns.rows import Rows
from natsctl.spark.source.columns.slices import number


@dataclass(frozen=True)
class Sieve:
    """Messages from `first` to `last`, `since_ns` to `until_ns` (all included, None: no bound), on any of `filters`."""

    first: int | None = None
    last: int | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    filters: tuple[str, ...] = ()

    def pattern(self) -> re.Pattern[bytes] | None:
        """Return the pattern of the wanted subjects, None for all of them."""
        if not self.filters or ">" in self.filters:
            return None
        return re.compile(b"|".join(map(_spelled, self.filters)), re.DOTALL)

    def sifted(self, rows: Rows, pattern: re.Pattern[bytes] | None, gone: pa.Int64Array) -> Rows:
        """Return the wanted ones of rows whose sequences ascend and that have all columns; `gone` are none any more."""
        if not len(rows.seqs):
            return rows
        lowest, highest = rows.seqs[0].as_py(), rows.seqs[-1].as_py()
        tests: list[pa.BooleanArray] = []
        if (self.first or 0) > lowest or (self.last is not None and self.last < highest):
            tests += _between(rows.seqs, self.first, self.last)
        missing = gone.filter(reduce(pc.and_, _between(gone, lowest, highest)))
        if len(missing):
            tests.append(pc.invert(pc.is_in(rows.seqs, value_set=missing)))
        if rows.times_ns is not None:
            tests += _between(rows.times_ns, self.since_ns, self.until_ns)
        if pattern is not None:
            tests.append(_matching(rows.subjects, pattern))
        if not tests:
            return rows
        keep = reduce(pc.and_, tests)
        return rows if pc.all(keep).as_py() else _kept(rows, keep)

    def ends_with(self, rows: Rows) -> bool:
        """Return whether nothing behind these rows is wanted: sequences ascend."""
        return self.last is not None and bool(len(rows.seqs)) and rows.seqs[-1].as_py() >= self.last


def _between(numbers: pa.Int64Array, least: int | None, most: int | None) -> list[pa.BooleanArray]:
    """Return a mask of the numbers within the bounds that there are."""
    bounds = ((pc.greater_equal, least), (pc.less_equal, most))
    return [test(numbers, number(bound)) for test, bound in bounds if bound is not None]


def _matching(subjects: Sequence[bytes] | pa.Array, pattern: re.Pattern[bytes]) -> pa.BooleanArray:
    """Return a mask of the subjects that the pattern matches; it is asked once for each that there is."""
    column = subjects if isinstance(subjects, pa.Array) else binary_array(subjects)
    coded = column.dictionary_encode()
    matches = [pattern.fullmatch(subject) is not None for subject in coded.dictionary.to_pylist()]
    return pc.equal(int_array(matches), number(1)).take(coded.indices)


def _kept(rows: Rows, keep: pa.BooleanArray) -> Rows:
    times = None if rows.times_ns is None else rows.times_ns.filter(keep)
    return Rows(
        rows.seqs.filter(keep), times, *(_of(keep, each) for each in (rows.subjects, rows.headers, rows.values))
    )


def _of(keep: pa.BooleanArray, column: Sequence[bytes] | pa.Array) -> Any:
    """Return the kept ones of a column, which is empty where it is not wanted."""
    if isinstance(column, pa.Array):
        return column.filter(keep)
    return [*compress(column, keep.to_pylist())] if column else []


def _spelled(wanted: str) -> bytes:
    """Return the subjects of one filter as a regular expression."""
    if wanted.endswith(".>"):
        return _spelled(wanted[:-2]) + rb"\..+"
    return rb"\.".join(rb"[^.]+" if token == "*" else re.escape(token.encode()) for token in wanted.split("."))
