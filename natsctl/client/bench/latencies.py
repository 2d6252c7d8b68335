"""Histogram of durations: counts by value, to within one part in 128.

Values up to 255 ns are exact. There are at most some 7,000 different values, however many are added, so that a run of
hours needs no more memory, and histograms of several processes are merged by adding counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

_KEPT_BITS = 8


class Spread(msgspec.Struct):
    """Distribution of durations, in nanoseconds."""

    min_ns: int
    avg_ns: int
    stddev_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int


class Latencies:
    """Counts of lengths of time."""

    __slots__ = ("counts", "longest_ns", "number", "shortest_ns", "squares", "sum_ns")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.number = 0
        self.sum_ns = 0
        self.squares = 0
        self.shortest_ns = 0
        self.longest_ns = 0

    def add(self, ns: int) -> None:
        """Count one more."""
        shift = max(0, ns.bit_length() - _KEPT_BITS)
        key = ns >> shift << shift
        self.counts[key] = self.counts.get(key, 0) + 1
        if not self.number or ns < self.shortest_ns:
            self.shortest_ns = ns
        self.longest_ns = max(self.longest_ns, ns)
        self.number += 1
        self.sum_ns += ns
        self.squares += ns * ns

    def merge(self, other: Latencies) -> None:
        """Count what the other has counted."""
        if not other.number:
            return
        for key, count in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        self.shortest_ns = min(self.shortest_ns, other.shortest_ns) if self.number else other.shortest_ns
        self.longest_ns = max(self.longest_ns, other.longest_ns)
        self.number += other.number
        self.sum_ns += other.sum_ns
        self.squares += other.squares

    def percentile(self, percent: float) -> int:
        """Return the length that so many percent do not exceed; 0 when none was added."""
        wanted, seen = math.ceil(self.number * percent / 100), 0
        for key in sorted(self.counts):
            seen += self.counts[key]
            if seen >= wanted:
                return min(max(key, self.shortest_ns), self.longest_ns)
        return self.longest_ns

    def spread(self) -> Spread | None:
        """Return all of it in a few numbers, None when none was added."""
        if not self.number:
            return None
        mean = self.sum_ns / self.number
        return Spread(
            min_ns=self.shortest_ns,
            avg_ns=round(mean),
            stddev_ns=round(math.sqrt(max(0.0, self.squares / self.number - mean * mean))),
            p50_ns=self.percentile(50),
            p90_ns=self.percentile(90),
            p99_ns=self.percentile(99),
            p999_ns=self.percentile(99.9),
            max_ns=self.longest_ns,
        )

    def bins(self) -> list[tuple[int, int]]:
        """Upper ends in nanoseconds, two for each doubling, and how many lie below that and above the last."""
        if not self.number:
            return []
        first, last = _step(self.shortest_ns), _step(self.longest_ns)
        found = dict.fromkeys(range(first, last + 1), 0)
        for key, count in self.counts.items():
            found[min(max(_step(key), first), last)] += count
        return [(_end(step), count) for step, count in found.items()]

    def encode(self) -> list[object]:
        """Return all values as JSON."""
        pairs = [list(pair) for pair in self.counts.items()]
        return [self.number, self.sum_ns, self.squares, self.shortest_ns, self.longest_ns, pairs]

    @classmethod
    def decode(cls, encoded: Iterable[object]) -> Latencies:
        """Return the durations that `encode` wrote."""
        made = cls()
        number, sum_ns, squares, shortest_ns, longest_ns, pairs = msgspec.convert(
            encoded, tuple[int, int, int, int, int, list[tuple[int, int]]]
        )
        made.number, made.sum_ns, made.squares = number, sum_ns, squares
        made.shortest_ns, made.longest_ns, made.counts = shortest_ns, longest_ns, dict(pairs)
        return made


def _step(ns: int) -> int:
    """Return the number of the bin: two for each power of two, whose second half begins half-way to the next."""
    ns = max(ns, 2)
    bits = ns.bit_length()
    return 2 * bits + (ns >> (bits - 2) & 1)


def _end(step: int) -> int:
    """Return the upper end of a bin."""
    bits, upper = divmod(step, 2)
    return 1 << bits if upper else 3 << (bits - 2)
