"""Arrow columns out of Python lists.

`pyarrow.array` and `pyarrow.scalar` import pandas where it is installed, to see whether what they are given is pandas';
that is half a second in each process of an executor. Columns made of buffers need it not, and cost a little more.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

MOST_BYTES: Final = (1 << 31) - 1
"""Of one column, whose offsets have 32 bits."""


def binary_array(data: Sequence[bytes]) -> pa.BinaryArray:
    """Return bytes as a column."""
    if "pandas" in sys.modules:
        return pa.array(data, pa.binary())
    whole = b"".join(data)
    if len(whole) > MOST_BYTES:
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
