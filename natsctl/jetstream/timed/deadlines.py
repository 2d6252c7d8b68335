"""Sequences by the time at which something is to happen to them, 16 bytes each.

Theory of operation. A timing wheel with two levels. `_near` holds buckets of one tick (about a second), for every tick
up to the era that was opened last; `_far` holds one bucket for every later era (4096 ticks, about 73 minutes), which is
distributed to ticks when it begins. A bucket is two arrays, sequences and times, in the order of arrival; it is sorted
once, when its first entry is due. Nothing is removed when a message is removed: the caller checks whether a due
sequence is still stored, and `sweep` drops in small steps what is gone, so that entries do not outnumber messages.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

TICK_BITS: Final = 30
"""A tick is 2**30 ns."""
ERA_BITS: Final = 42
"""An era is 2**42 ns."""
SWEEP_STEP: Final = 4096
"""Entries that one step of a sweep looks at."""
MAX_NS: Final = (1 << 63) - 1
"""Latest time that is kept, ns since the epoch."""


class Bucket:
    """Entries that are due in the same stretch of time."""

    __slots__ = ("dues", "in_order", "lowest", "seqs")

    def __init__(self) -> None:
        self.seqs = array("Q")
        self.dues = array("Q")
        self.lowest = MAX_NS
        self.in_order = False

    def add(self, due_ns: int, seq: int) -> None:
        """Add one entry."""
        self.seqs.append(seq)
        self.dues.append(due_ns)
        self.in_order = False
        if due_ns < self.lowest:
            self.lowest = due_ns

    def take(self, now_ns: int, limit: int) -> list[tuple[int, int]]:
        """Remove and return up to `limit` (sequence, time) pairs due by `now_ns`, the earliest first."""
        if not self.in_order:
            order = sorted(range(len(self.dues)), key=self.dues.__getitem__, reverse=True)
            self.seqs = array("Q", map(self.seqs.__getitem__, order))
            self.dues = array("Q", map(self.dues.__getitem__, order))
            self.in_order = True
        seqs, dues = self.seqs, self.dues
        taken: list[tuple[int, int]] = []
        while dues and dues[-1] <= now_ns and len(taken) < limit:
            taken.append((seqs.pop(), dues.pop()))
        self.lowest = dues[-1] if dues else MAX_NS
        return taken

    def sweep(self, start: int, lives: Callable[[int], bool]) -> int:
        """Drop entries of removed messages among SWEEP_STEP from `start` on and return the number kept."""
        stop = min(start + SWEEP_STEP, len(self.seqs))
        kept = [at for at in range(start, stop) if lives(self.seqs[at])]
        if len(kept) < stop - start:
            for column in (self.seqs, self.dues):
                column[start:stop] = array("Q", [column[at] for at in kept])
        return len(kept)


class Deadlines:
    """The deadlines of one stream's messages."""

    __slots__ = ("_count", "_era", "_eras", "_far", "_near", "_sweep", "_sweep_at", "_ticks")

    def __init__(self) -> None:
        self._near: dict[int, Bucket] = {}
        self._far: dict[int, Bucket] = {}
        self._ticks: list[int] = []
        self._eras: list[int] = []
        self._era = -1
        self._count = 0
        self._sweep: list[Bucket] = []
        self._sweep_at = 0

    def __len__(self) -> int:
        """Return how many entries there are, stale ones included."""
        return self._count

    def add(self, due_ns: int, seq: int) -> None:
        """Add the deadline of `seq`, `due_ns` since the epoch; a past one is due at once."""
        due_ns = min(max(due_ns, 0), MAX_NS)
        era = due_ns >> ERA_BITS
        self._count += 1
        if era <= self._era:
            self._place(self._near, self._ticks, due_ns >> TICK_BITS, due_ns, seq)
        else:
            self._place(self._far, self._eras, era, due_ns, seq)

    @staticmethod
    def _place(rim: dict[int, Bucket], order: list[int], key: int, due_ns: int, seq: int) -> None:
        bucket = rim.get(key)
        if bucket is None:
            bucket = rim[key] = Bucket()
            heappush(order, key)
        bucket.add(due_ns, seq)

    def next_ns(self) -> int | None:
        """Return the earliest deadline, None when there is none."""
        bucket = self._first()
        return bucket.lowest if bucket is not None else None

    def take_due(self, now_ns: int, limit: int) -> list[tuple[int, int]]:
        """Remove and return up to `limit` due (sequence, time) pairs, by sequence."""
        due: list[tuple[int, int]] = []
        while len(due) < limit:
            bucket = self._first()
            if bucket is None or bucket.lowest > now_ns:
                break
            due += bucket.take(now_ns, limit - len(due))
        self._count -= len(due)
        due.sort()
        return due

    def _first(self) -> Bucket | None:
        """Return the bucket with the earliest deadline, having dealt out the next era where none is near."""
        while True:
            while self._ticks:
                bucket = self._near[self._ticks[0]]
                if bucket.seqs:
                    return bucket
                del self._near[heappop(self._ticks)]
            if not self._eras:
                return None
            self._era = heappop(self._eras)
            era = self._far.pop(self._era)
            for due_ns, seq in zip(era.dues, era.seqs, strict=True):
                self._place(self._near, self._ticks, due_ns >> TICK_BITS, due_ns, seq)
            self._sweep = [bucket for bucket in self._sweep if bucket is not era]

    def sweep(self, lives: Callable[[int], bool]) -> bool:
        """Drop stale entries in one step; return whether the sweep continues."""
        if not self._sweep:
            self._sweep, self._sweep_at = [*self._near.values(), *self._far.values()], 0
        while self._sweep and self._sweep_at >= len(self._sweep[-1].seqs):
            self._sweep.pop()
            self._sweep_at = 0
        if self._sweep:
            bucket = self._sweep[-1]
            before = len(bucket.seqs)
            self._sweep_at += bucket.sweep(self._sweep_at, lives)
            self._count -= before - len(bucket.seqs)
        return bool(self._sweep)
