"""Columns out of what stands between marks, cut by Arrow without an object of Python for any row."""

from __future__ import annotations

import struct

import pyarrow as pa
import pyarrow.compute as pc


def whole(data: bytes | memoryview) -> pa.BinaryArray:
    """Return bytes as a column of one row, without a copy."""
    return pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(struct.pack("2i", 0, len(data))), pa.py_buffer(data)]
    )


def pieces(rows: pa.BinaryArray, mark: bytes, most: int | None = None) -> pa.BinaryArray:
    """Return the pieces between the marks of all rows, one after the other; a row is split `most` times."""
    return pc.split_pattern(rows, mark, max_splits=most).values


def same(number: int, rows: int) -> pa.Int32Array:
    """Return the same number in every row."""
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(struct.pack("i", number) * rows)])


def offsets(rows: pa.BinaryArray) -> pa.Int32Array:
    """Return the beginning of each row in the buffer of all, and the end of the last one."""
    return pa.Array.from_buffers(pa.int32(), len(rows) + 1, [None, rows.buffers()[1]], offset=rows.offset)


def numbers(texts: pa.BinaryArray) -> pa.Int64Array:
    """Decimal numbers; raises pa.ArrowInvalid for what is none."""
    digits = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers(), offset=texts.offset)
    return digits.cast(pa.int64())


class Ruler:
    """Takes rows at equal distances; it keeps what it counts with, for the next column of as many rows."""

    def __init__(self) -> None:
        self._counted: dict[tuple[int, int], pa.Int32Array] = {}

    def counted(self, first: int, step: int, rows: int) -> pa.Int32Array:
        """`first`, and so on by steps."""
        marks = self._counted.get((first, step))
        if marks is None or len(marks) < rows:
            wanted = max(rows + (rows >> 2), 1)
            steps = pa.concat_arrays([same(first, 1), same(step, wanted - 1)])
            marks = self._counted[first, step] = pc.cumulative_sum(steps)
        return marks[:rows]

    def every(self, column: pa.Array, step: int, first: int, rows: int) -> pa.Array:
        """So many rows of a column, `step` apart."""
        return column.take(self.counted(first, step, rows))
