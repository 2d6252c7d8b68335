"""Columns of numbers as a segment keeps them once it takes no more messages: in as few bits as they need.

A segment that takes messages has 4 bytes for the subject number, the size and the offset of each: `array("I")`. In a
sealed one a number has as many bits as the distance from the smallest to the largest of its column needs: a
`PackedColumn` is read like an array. If messages follow each other without other frames between, as in a typical
segment, their offsets are sums of sizes, and `AdjacentOffsets` keeps every 16th only. A message takes 1 to 7 bytes
instead of 12: 1.75 if sizes are alike and there are a thousand subjects. Without the native module columns stay as they
are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TypeAlias

from natsctl.native import lib

_SHIFT = 4
_LAST = (1 << _SHIFT) - 1

Numbers: TypeAlias = "array[int]"


class AdjacentOffsets:
    __slots__ = ("_anchors", "_overhead", "_sizes")

    def __init__(self, anchors: bytes, sizes: Numbers, overhead: int) -> None:
        """`sizes` of the messages are those of the segment; `overhead` is added to each."""
        self._anchors = array("I", anchors)
        self._sizes = sizes
        self._overhead = overhead

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, position: int) -> int:
        position = range(len(self._sizes))[position]
        more = position & _LAST
        return (
            self._anchors[position >> _SHIFT]
            + sum(map(self._sizes.__getitem__, range(position - more, position)))
            + more * self._overhead
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self.between(0, len(self)))

    def between(self, start: int, stop: int) -> Numbers:
        """Return the offsets at the positions from `start` to below `stop`, quicker than one by one."""
        assert lib is not None
        return array("I", lib.sum_offsets(self._anchors, self._sizes, self._overhead, start, stop))


Places: TypeAlias = "array[int] | AdjacentOffsets"


def narrowed(column: Numbers) -> Numbers:
    """Return a column of as few bits as its numbers need; it takes no other numbers."""
    found = lib.pack_column(column) if lib is not None and type(column) is array else None
    return column if found is None else found


def packed(offsets: Places, sizes: Numbers, overhead: int) -> tuple[Places, Numbers]:
    """Return offsets and sizes in less memory; a frame is `overhead` bytes longer than its size."""
    kept = narrowed(sizes)
    if lib is None or isinstance(offsets, AdjacentOffsets) or type(offsets) is not array:
        return offsets, kept
    anchors = lib.anchor_offsets(offsets, sizes, overhead)
    return narrowed(offsets) if anchors is None else AdjacentOffsets(anchors, kept, overhead), kept


def total(column: Numbers) -> int:
    """Return the sum of the numbers."""
    return column.total() if lib is not None and isinstance(column, lib.PackedColumn) else sum(column)


def widened(column: Places) -> Numbers:
    """Return the numbers of a column in 4 bytes each, so that any number fits."""
    if isinstance(column, AdjacentOffsets):
        return column.between(0, len(column))
    return column if type(column) is array else column[:]
