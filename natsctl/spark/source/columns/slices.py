"""Arrow columns out of places in bytes, without an object of Python for each."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import int_array


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
