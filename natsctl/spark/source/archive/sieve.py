"""Which messages of an archive a query wants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import pyarrow as pa

from natsctl.spark.source.columns.rows import Rows


@dataclass(frozen=True)
class Sieve:
    """Messages from `first` to `last`, `since_ns` to `until_ns` (all included, None: no bound), on any of `filters`."""

    first: int | None = None
    last: int | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    filters: tuple[str, ...] = ()

    def pattern(self) -> re.Pattern[bytes] | None:
        """What the wanted subjects look like, None for all of them."""
        if not self.filters or ">" in self.filters:
            return None
        return re.compile(b"|".join(map(_spelled, self.filters)), re.DOTALL)

    def sifted(self, rows: Rows, pattern: re.Pattern[bytes] | None, gone: frozenset[int]) -> Rows:
        """The wanted ones of rows whose sequences ascend and that have all columns; `gone` are none any more."""
        if not len(rows.seqs):
            return rows
        seqs: list[int] | None = None
        lowest, highest = rows.seqs[0].as_py(), rows.seqs[-1].as_py()
        keep: list[bool] | None = None
        if (self.first or 0) > lowest or (self.last is not None and self.last < highest):
            first, last = self.first or 0, highest if self.last is None else self.last
            seqs = rows.seqs.to_pylist()
            keep = [first <= seq <= last for seq in seqs]
        if gone:
            seqs = seqs or rows.seqs.to_pylist()
            keep = _both(keep, [seq not in gone for seq in seqs])
        if rows.times_ns is not None and not (self.since_ns is None and self.until_ns is None):
            since, until = self.since_ns or 0, (1 << 63) - 1 if self.until_ns is None else self.until_ns
            keep = _both(keep, [since <= ts_ns <= until for ts_ns in rows.times_ns.to_pylist()])
        if pattern is not None:
            keep = _both(keep, [pattern.fullmatch(subject) is not None for subject in rows.subjects])
        return rows if keep is None or all(keep) else _kept(rows, keep)


def _both(one: list[bool] | None, other: list[bool]) -> list[bool]:
    return other if one is None else [a and b for a, b in zip(one, other, strict=True)]


def _kept(rows: Rows, keep: list[bool]) -> Rows:
    mask = pa.array(keep, pa.bool_())
    times = None if rows.times_ns is None else rows.times_ns.filter(mask)
    return Rows(
        rows.seqs.filter(mask), times, *(_of(keep, each) for each in (rows.subjects, rows.headers, rows.values))
    )


def _of(keep: list[bool], column: Sequence[bytes] | pa.Array) -> list[bytes]:
    """The kept ones of a column, which is empty where nobody wants it."""
    return list(compress(column, keep))


def _spelled(wanted: str) -> bytes:
    """The subjects of one filter as a regular expression."""
    if wanted.endswith(".>"):
        return _spelled(wanted[:-2]) + rb"\..+"
    return rb"\.".join(rb"[^.]+" if token == "*" else re.escape(token.encode()) for token in wanted.split("."))
