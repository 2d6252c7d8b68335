"""Columns of numbers as a segment keeps them once it takes no more messages: in as few bytes as they need.

A segment that takes messages has 4 bytes for the subject number, the size and the offset of each: `array("I")`. In a
sealed one these usually need less. Sizes and subject numbers take one or two bytes if all of a segment fit; the array
then only has another typecode. Offsets ascend in small steps: `Offsets` keeps the lower halves, and every 16th whole. A
message takes 5 or 6 bytes instead of 12. Without the native module columns stay as they are.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import TypeAlias

from natsctl.native import lib

_SHIFT = 4

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
        return iter(self.between(0, len(self._lows)))


Places: TypeAlias = "array[int] | Offsets"


def narrowed(column: Numbers) -> Numbers:
    """Return a column of as few bytes as its numbers need; it takes no other numbers."""
    found = lib.narrow(column) if lib is not None and column.typecode == "I" and column else None
    if found is None:
        return column
    return array("B" if len(found) == len(column) else "H", found)


def packed(offsets: Places) -> Places:
    found = lib.split_offsets(offsets) if lib is not None and isinstance(offsets, array) else None
    return offsets if found is None else Offsets(*found)


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
