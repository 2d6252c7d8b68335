"""Arrow columns built from Python lists and from bytes, without a Python object for each value.

`pyarrow.array` and `pyarrow.scalar` import pandas if it is installed, to recognise its types: half a second in each
process of an executor. Columns built from buffers cost a little more and do not import it.

Bytes are split at separators or at offsets. Header blocks become a column of keys and values in their order, repeats
included.

If natsctl is installed, its native module does the same in one loop over the messages.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

MAX_BYTES: Final = (1 << 31) - 1
"""Maximum bytes of one column: its offsets are signed 32-bit integers."""


def native(name: str) -> Callable[..., Any] | None:
    """Return a function of natsctl's native module; None on executors that have no natsctl, or another release.

    It is looked up for each call, because the values of this module travel to executors.
    """
    try:
        from natsctl.native import lib
    except ImportError:
        return None
    return getattr(lib, name, None)


def bytes_column(ends: bytes, data: bytes) -> pa.BinaryArray:
    """Return a column of its offsets and its data."""
    return pa.Array.from_buffers(pa.binary(), len(ends) // 4 - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def int64_column(numbers: bytes) -> pa.Int64Array:
    return pa.Array.from_buffers(pa.int64(), len(numbers) // 8, [None, pa.py_buffer(numbers)])


def binary_array(data: Sequence[bytes]) -> pa.BinaryArray:
    """Return a binary column; raises pa.ArrowCapacityError above MAX_BYTES."""
    if "pandas" in sys.modules:
        return pa.array(data, pa.binary())
    whole = b"".join(data)
    if len(whole) > MAX_BYTES:
        raise pa.ArrowCapacityError(f"a column of {len(whole)} bytes is too large")
    offsets = struct.pack(f"{len(data) + 1}i", *accumulate(map(len, data), initial=0))
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(whole)])


def int_array(values: Sequence[int]) -> pa.Int64Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(struct.pack(f"{len(values)}q", *values))])


def text_array(data: Sequence[bytes] | pa.Array) -> pa.StringArray:
    """Return bytes as text; bytes that are not UTF-8 become U+FFFD."""
    raw = data if isinstance(data, pa.Array) else binary_array(data)
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [(each or b"").decode(errors="replace").encode() for each in raw.to_pylist()]
        return pc.if_else(raw.is_valid(), binary_array(texts).cast(pa.string()), pa.nulls(1, pa.string())[0])


def repeated_text(text: str, times: int) -> pa.StringArray:
    first = pa.Array.from_buffers(pa.int32(), times, [None, pa.py_buffer(bytes(4 * times))])
    return binary_array([text.encode()]).cast(pa.string()).take(first)


def one_row(data: bytes | memoryview) -> pa.BinaryArray:
    """Return bytes as a column of one row, without a copy."""
    return pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(struct.pack("2i", 0, len(data))), pa.py_buffer(data)]
    )


def split_on(rows: pa.BinaryArray, separator: bytes, most: int | None = None) -> pa.BinaryArray:
    """Return the parts of all rows in order; each row is split at most `most` times (None: everywhere)."""
    return pc.split_pattern(rows, separator, max_splits=most).values


def repeated_int(number: int, rows: int) -> pa.Int32Array:
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(struct.pack("i", number) * rows)])


def offsets(rows: pa.BinaryArray) -> pa.Int32Array:
    """Return the offset of each row in the column's data buffer, and the end of the last row."""
    return pa.Array.from_buffers(pa.int32(), len(rows) + 1, [None, rows.buffers()[1]], offset=rows.offset)


def parsed_ints(texts: pa.BinaryArray) -> pa.Int64Array:
    """Return the integers that texts spell in decimal; raises pa.ArrowInvalid for any other text."""
    digits = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers(), offset=texts.offset)
    return digits.cast(pa.int64())


class RowPicker:
    """A selection of rows at equal distances; it keeps their indices for the next column of as many rows."""

    def __init__(self) -> None:
        self._indices: dict[tuple[int, int], pa.Int32Array] = {}

    def indices(self, first: int, step: int, rows: int) -> pa.Int32Array:
        known = self._indices.get((first, step))
        if known is None or len(known) < rows:
            wanted = max(rows + (rows >> 2), 1)
            steps = pa.concat_arrays([repeated_int(first, 1), repeated_int(step, wanted - 1)])
            known = self._indices[first, step] = pc.cumulative_sum(steps)
        return known[:rows]

    def every(self, column: pa.Array, step: int, first: int, rows: int) -> pa.Array:
        return column.take(self.indices(first, step, rows))


_SCALARS: Final[dict[int, pa.Int64Scalar]] = {}


def int_scalar(value: int) -> pa.Int64Scalar:
    """Return a number as Arrow computes with it; it is kept, so `value` is one of the few that the code names."""
    scalar = _SCALARS.get(value)
    if scalar is None:
        scalar = _SCALARS[value] = int_array((value,))[0]
    return scalar


def sliced(data: bytes | pa.Buffer, begins: pa.Int64Array, ends: pa.Int64Array) -> pa.BinaryArray:
    """Return the data from each of `begins` to the end in the same row of `ends`; slices may come in any order.

    Nothing checks that these offsets are inside the data, or below 2 GiB.
    """
    return slices_of(data, spans(begins, ends))


def spans(begins: pa.Int64Array, ends: pa.Int64Array) -> pa.Int64Array:
    """Return begin and end of each slice in one number: the begin in its low 32 bits, the end in its high 32."""
    return pc.bit_wise_or(begins, pc.shift_left(ends, int_scalar(32)))


def slices_of(data: bytes | pa.Buffer, spans: pa.Int64Array) -> pa.BinaryArray:
    """Return the slices. As 32-bit numbers, spans are the offsets of a column; every other row of it is a slice."""
    if not len(spans):
        return pa.Array.from_buffers(pa.binary(), 0, [None, pa.py_buffer(bytes(4)), pa.py_buffer(b"")])
    size = 2 * len(spans) - 1
    wanted = pa.Array.from_buffers(pa.bool_(), size, [None, pa.py_buffer(b"\x55" * ((size + 7) // 8))])
    return pa.Array.from_buffers(pa.binary(), size, [None, spans.buffers()[1], pa.py_buffer(data)]).filter(wanted)


def joined(values: pa.BinaryArray) -> pa.Buffer:
    """Return the values in order; the column must begin at the start of its buffer."""
    _, offsets, data = values.buffers()
    end = int.from_bytes(offsets[len(values) * 4 : len(values) * 4 + 4].to_pybytes(), "little")
    return data[:end]


def int64_at(data: bytes | pa.Buffer, begins: pa.Int64Array) -> pa.Int64Array:
    """Return the eight bytes at each of `begins` as signed little-endian integers."""
    found = sliced(data, begins, pc.add(begins, int_scalar(8)))
    return pa.Array.from_buffers(pa.int64(), len(found), [None, found.buffers()[2]])


def any_sliced(data: bytes | pa.Buffer, begins: pa.Int64Array, ends: pa.Int64Array) -> pa.BinaryArray | list[bytes]:
    """Return the slices, or an empty list where every one is empty."""
    return sliced(data, begins, ends) if pc.any(pc.not_equal(begins, ends)).as_py() else []


LINE_END: Final = b"\r\n"
COLON: Final = b":"


def header_column(blocks: pa.BinaryArray, kind: pa.ListType) -> pa.ListArray:
    """Return one list of (key, value) for each block; null for a block that is empty or has no header.

    The first line is the version or status, and lines without a colon are ignored.
    """
    quick = _native_headers(blocks, kind)
    return _headers(blocks, kind) if quick is None else quick


def _native_headers(blocks: pa.BinaryArray, kind: pa.ListType) -> pa.ListArray | None:
    lists, (_, ends, data) = native("header_lists"), blocks.buffers()
    parts = lists(ends, data or b"", blocks.offset, len(blocks)) if lists and ends else None
    if parts is None:
        return None
    valid, list_ends, key_ends, keys, value_ends, values = parts
    fields = [kind.value_type.field(at) for at in range(2)]
    columns = [text_array(bytes_column(key_ends, keys)), bytes_column(value_ends, values)]
    items = pa.StructArray.from_arrays(columns, fields=fields)
    return pa.Array.from_buffers(kind, len(blocks), [pa.py_buffer(valid), pa.py_buffer(list_ends)], children=[items])


def _headers(blocks: pa.BinaryArray, kind: pa.ListType) -> pa.ListArray:
    picker, filled = RowPicker(), pc.match_substring(blocks, LINE_END)
    some = blocks.filter(filled)
    lines = pc.split_pattern(picker.every(split_on(some, LINE_END, most=1), 2, 1, len(some)), LINE_END)
    headers = pc.match_substring(lines.values, COLON)
    before = pa.concat_arrays([repeated_int(0, 1), pc.cumulative_sum(headers.cast(pa.int32()))]).take(lines.offsets)
    ends = _spread(before, filled)
    return pa.ListArray.from_arrays(
        ends, _items(lines.values.filter(headers), kind, picker), type=kind, mask=pc.equal(ends[1:], ends[:-1])
    )


def _spread(before: pa.Int32Array, filled: pa.BooleanArray) -> pa.Int32Array:
    """Return list offsets for all rows, 0 first, from those of the rows that are filled."""
    rows = pc.cumulative_sum(filled.cast(pa.int32()))
    return before.take(pa.concat_arrays([repeated_int(0, 1), rows]))


def _items(lines: pa.BinaryArray, kind: pa.ListType, picker: RowPicker) -> pa.StructArray:
    """Return lines as (key, value), split at the first colon; blanks before a value are removed."""
    halves = split_on(lines, COLON, most=1)
    raw = picker.every(halves, 2, 1, len(lines))
    trimmed = pc.ascii_ltrim(pa.Array.from_buffers(pa.string(), len(raw), raw.buffers()), characters=" \t")
    values = pa.Array.from_buffers(pa.binary(), len(trimmed), trimmed.buffers(), offset=trimmed.offset)
    fields = [kind.value_type.field(at) for at in range(2)]
    keys = text_array(picker.every(halves, 2, 0, len(lines)))
    return pa.StructArray.from_arrays([keys, values], fields=fields)
