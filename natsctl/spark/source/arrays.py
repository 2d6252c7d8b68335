"""Arrow columns made of Python lists and of bytes, without an object of Python for each value.

`pyarrow.array` and `pyarrow.scalar` import pandas where it is installed, to see whether what they are given is pandas';
that is half a second in each process of an executor. Columns made of buffers need it not, and cost a little more.

Bytes are cut between marks or at places. Header blocks become a column of keys and values in their order, repeats
included.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

MAX_BYTES: Final = (1 << 31) - 1
"""Of one column, whose offsets have 32 bits."""


def binary_array(data: Sequence[bytes]) -> pa.BinaryArray:
    """Return bytes as a column."""
    if "pandas" in sys.modules:
        return pa.array(data, pa.binary())
    whole = b"".join(data)
    if len(whole) > MAX_BYTES:
        raise pa.ArrowCapacityError(f"a column of {len(whole)} bytes is too large")
    offsets = struct.pack(f"{len(data) + 1}i", *accumulate(map(len, data), initial=0))
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(whole)])


def int_array(values: Sequence[int]) -> pa.Int64Array:
    """Whole numbers as a column."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(struct.pack(f"{len(values)}q", *values))])


def text_array(data: Sequence[bytes] | pa.Array) -> pa.StringArray:
    """Return bytes as text; what is no UTF-8 has U+FFFD in its place."""
    raw = data if isinstance(data, pa.Array) else binary_array(data)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [(each or b"").decode(errors="replace").encode() for each in raw.to_pylist()]
        return pc.if_else(raw.is_valid(), binary_array(texts).cast(pa.string()), pa.nulls(1, pa.string())[0])


def repeated(text: str, times: int) -> pa.StringArray:
    """Return the same text in every row."""
    first = pa.Array.from_buffers(pa.int32(), times, [None, pa.py_buffer(bytes(4 * times))])
    return binary_array([text.encode()]).cast(pa.string()).take(first)


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


def number(value: int) -> pa.Int64Scalar:
    """Return a number for Arrow to calculate with; `pyarrow.scalar` imports pandas where it is installed."""
    return int_array((value,))[0]


def sliced(data: bytes | pa.Buffer, begins: pa.Int64Array, ends: pa.Int64Array) -> pa.BinaryArray:
    """Return the data from each of `begins` to the `ends` of the same row, in any order.

    Nothing checks that these places are in the data, or below 2 GiB.
    """
    return slices_of(data, spans(begins, ends))


def spans(begins: pa.Int64Array, ends: pa.Int64Array) -> pa.Int64Array:
    """Return the begin and end of slices, both in one number."""
    return pc.bit_wise_or(begins, pc.shift_left(ends, number(32)))


def slices_of(data: bytes | pa.Buffer, spans: pa.Int64Array) -> pa.BinaryArray:
    """Return the slices. As numbers of 32 bits, spans are offsets of values, and every other value is wanted."""
    if not len(spans):
        return pa.Array.from_buffers(pa.binary(), 0, [None, pa.py_buffer(bytes(4)), pa.py_buffer(b"")])
    size = 2 * len(spans) - 1
    wanted = pa.Array.from_buffers(pa.bool_(), size, [None, pa.py_buffer(b"\x55" * ((size + 7) // 8))])
    return pa.Array.from_buffers(pa.binary(), size, [None, spans.buffers()[1], pa.py_buffer(data)]).filter(wanted)


def joined(values: pa.BinaryArray) -> pa.Buffer:
    """Return the values one after the other; they have to begin at the first of their buffer."""
    _, offsets, data = values.buffers()
    end = int.from_bytes(offsets[len(values) * 4 : len(values) * 4 + 4].to_pybytes(), "little")
    return data[:end]


def words(data: bytes | pa.Buffer, begins: pa.Int64Array) -> pa.Int64Array:
    """Return the eight bytes from each of `begins` on, as numbers; little-endian and signed."""
    found = sliced(data, begins, pc.add(begins, number(8)))
    return pa.Array.from_buffers(pa.int64(), len(found), [None, found.buffers()[2]])


def any_sliced(data: bytes | pa.Buffer, begins: pa.Int64Array, ends: pa.Int64Array) -> pa.BinaryArray | list[bytes]:
    """Return the slices; no rows at all where every one is empty."""
    return sliced(data, begins, ends) if pc.any(pc.not_equal(begins, ends)).as_py() else []


LINE_END: Final = b"\r\n"
COLON: Final = b":"


def header_column(blocks: pa.BinaryArray, kind: pa.ListType) -> pa.ListArray:
    """Return one list of (key, value) for each block, null for an empty one and for one without a single header.

    The first line is none, and neither is one without a colon.
    """
    ruler, filled = Ruler(), pc.match_substring(blocks, LINE_END)
    some = blocks.filter(filled)
    lines = pc.split_pattern(ruler.every(pieces(some, LINE_END, most=1), 2, 1, len(some)), LINE_END)
    headers = pc.match_substring(lines.values, COLON)
    before = pa.concat_arrays([same(0, 1), pc.cumulative_sum(headers.cast(pa.int32()))]).take(lines.offsets)
    ends = _spread(before, filled)
    return pa.ListArray.from_arrays(
        ends, _items(lines.values.filter(headers), kind, ruler), type=kind, mask=pc.equal(ends[1:], ends[:-1])
    )


def _spread(before: pa.Int32Array, filled: pa.BooleanArray) -> pa.Int32Array:
    """Return the end of each row's list, behind a first 0, from the ends of those that are filled."""
    rows = pc.cumulative_sum(filled.cast(pa.int32()))
    return before.take(pa.concat_arrays([same(0, 1), rows]))


def _items(lines: pa.BinaryArray, kind: pa.ListType, ruler: Ruler) -> pa.StructArray:
    """Lines cut at their first colon; blanks before a value are not part of it."""
    halves = pieces(lines, COLON, most=1)
    raw = ruler.every(halves, 2, 1, len(lines))
    trimmed = pc.ascii_ltrim(pa.Array.from_buffers(pa.string(), len(raw), raw.buffers()), characters=" \t")
    values = pa.Array.from_buffers(pa.binary(), len(trimmed), trimmed.buffers(), offset=trimmed.offset)
    fields = [kind.value_type.field(at) for at in range(2)]
    keys = text_array(ruler.every(halves, 2, 0, len(lines)))
    return pa.StructArray.from_arrays([keys, values], fields=fields)
