"""Columns of numbers as a segment keeps them once it takes no more messages: in as few bytes as they need.

A segment that takes messages has 4 bytes for the subject number, the size and the offset of each: `array("I")`. In a
sealed one these usually need less. Sizes and subject numbers take one or two bytes if all of a segment fit; the array
then only has another typecode. If messages follow each other without other frames between, as in a typical segment,
their offsets are sums of sizes, and `AdjacentOffsets` keeps every 16th only; `Offsets` keeps the lower halves of the
others too. A message takes 2.3 to 6 bytes instead of 12. Without the native module columns stay as they are.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import TypeAlias

from natsctl.native import lib

_SHIFT = 4
_LAST = (1 << _SHIFT) - 1

Numbers: TypeAlias = "array[int]"


class Offsets:
    __slots__ = ("_anchors", "_lows")

    def __init__(self, anchors: bytes, lows: bytes) -> None:
        self._anchors = array("I", anchors)
        self._lows = array("H", lows)

    def __len__(self) -> int:
        return len(self._lows)

    def __getitem__(self, position: int) -> int:
        anchor = self._anchors[position >> _SHIFT]
        return anchor + (self._lows[position] - anchor & 0xFFFF)

    def between(self, start: int, stop: int) -> Numbers:
        """Return the offsets at the positions from `start` to below `stop`, quicker than one by one."""
        assert lib is not None
        return array("I", lib.join_offsets(self._anchors, self._lows, start, stop))

    def __iter__(self) -> Iterator[int]:
        return iter(self.between(0, len(self)))


class AdjacentOffsets(Offsets):
    __slots__ = ("_overhead", "_sizes")

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
        return self._anchors[position >> _SHIFT] + sum(self._sizes[position - more : position]) + more * self._overhead

    def between(self, start: int, stop: int) -> Numbers:
        assert lib is not None
        return array("I", lib.sum_offsets(self._anchors, self._sizes, self._overhead, start, stop))


Places: TypeAlias = "array[int] | Offsets"


def narrowed(column: Numbers) -> Numbers:
    """Return a column of as few bytes as its numbers need; it takes no other numbers."""
    found = lib.narrow(column) if lib is not None and column.typecode == "I" and column else None
    if found is None:
        return column
    return array("B" if len(found) == len(column) else "H", found)


def packed(offsets: Places, sizes: Numbers, overhead: int) -> Places:
    """Return offsets in fewer bytes; `sizes` are kept, and a frame is `overhead` bytes longer than its size."""
    if lib is None or not isinstance(offsets, array):
        return offsets
    anchors = lib.anchor_offsets(offsets, sizes, overhead)
    if anchors is not None:
        return AdjacentOffsets(anchors, sizes, overhead)
    parts = lib.split_offsets(offsets)
    return offsets if parts is None else Offsets(*parts)


def widened(column: Places) -> Numbers:
    """Return the numbers of a column in 4 bytes each, so that any number fits."""
    if isinstance(column, Offsets):
        return column.between(0, len(column))
    if column.typecode == "I":
        return column
    if sys.byteorder == "big":
        return array("I", column)
    wide = memoryview(bytearray(4 * len(column)))  # the lower halves, or bytes, by one copy
    (wide if column.typecode == "B" else wide.cast("H"))[:: 4 // column.itemsize] = memoryview(column)
    return array("I", wide.tobytes())
