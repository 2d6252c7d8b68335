"""Sequences of a stream, packed: the part of a task's report that says which messages stand for its rows.

Sequences are kept by windows of 2^20, so that the driver looks at one window of all tasks at a time. Within a window
they are the differences between neighbours, in as few bytes as the largest needs, and deflated: some bytes in all
where one task writes alone, less than a byte a row where several tasks take turns.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from natsctl.spark.source.columns.arrays import int_array

WINDOW: Final = 1 << 20
_FEW_BYTES: Final = 1 << 14
"""Less is parsed without Arrow's reader, which costs milliseconds to begin."""
_WIDTHS: Final = ("uint8", "uint16", "uint32")
_DEFLATED: Final = 1
"""zlib's quickest level; the next ones save a tenth."""

Packed = dict[int, bytes]
"""Packed sequences by their window."""


def parse_lines(lines: bytes) -> pa.Int64Array:
    """Decimal numbers, one a line, as a sorted column without repeats."""
    if len(lines) < _FEW_BYTES:
        return int_array(sorted(set(map(int, lines.split()))))
    table = csv.read_csv(
        pa.BufferReader(lines),
        read_options=csv.ReadOptions(column_names=["seq"], use_threads=False),
        convert_options=csv.ConvertOptions(column_types={"seq": pa.int64()}),
    )
    found = table.column(0).combine_chunks()
    if not _all_above(found):
        found = found.sort()
        found = found.filter(pc.invert(_repeats(found)))
    return found


def pack(seqs: pa.Int64Array) -> Packed:
    """Pack a sorted column without repeats."""
    packed: Packed = {}
    while len(seqs):
        window = seqs[0].as_py() // WINDOW
        size = _size_below(seqs, (window + 1) * WINDOW)
        packed[window] = _packed(pc.subtract(seqs[:size], int_array([window * WINDOW])[0]))
        seqs = seqs[size:]
    return packed


def unpack(window: int, data: bytes) -> pa.Int64Array:
    """Return the sequences of one window."""
    raw = zlib.decompress(data)
    kind = pa.type_for_alias(_WIDTHS[raw[0]])
    count = (len(raw) - 1) // kind.byte_width
    steps = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(raw[1:])])
    return pc.add(pc.cumulative_sum(steps.cast(pa.int64())), int_array([window * WINDOW])[0])


def repeated(columns: list[pa.Int64Array]) -> list[int]:
    """Return the sequences that are in several columns; one that is in n of them comes n - 1 times."""
    found = pa.concat_arrays(columns).sort()
    return list(found.filter(_repeats(found)).to_pylist())


def windows(reports: list[Packed]) -> Iterator[int]:
    """Yield the windows that several reports have, from the first to the last."""
    seen, shared = set[int](), set[int]()
    for report in reports:
        shared |= seen & report.keys()
        seen |= report.keys()
    yield from sorted(shared)


def _packed(offsets: pa.Int64Array) -> bytes:
    steps = pa.concat_arrays([offsets[:1], pc.subtract(offsets[1:], offsets[:-1])])
    most = pc.max(steps).as_py()
    width = 0 if most < 1 << 8 else 1 if most < 1 << 16 else 2
    data = steps.cast(pa.type_for_alias(_WIDTHS[width])).buffers()[1]
    return zlib.compress(bytes([width]) + data.to_pybytes()[: len(steps) << width], _DEFLATED)


def _size_below(seqs: pa.Int64Array, end: int) -> int:
    """Return how many of sorted sequences are below an end."""
    if seqs[-1].as_py() < end:
        return len(seqs)
    return int(pc.sum(pc.less(seqs[:WINDOW], int_array([end])[0])).as_py())


def _all_above(seqs: pa.Int64Array) -> bool:
    """Return whether each is above the one before it."""
    return len(seqs) < 2 or bool(pc.all(pc.greater(seqs[1:], seqs[:-1])).as_py())


def _repeats(ordered: pa.Int64Array) -> pa.BooleanArray:
    """Return whether a value is the same as the one before it."""
    before = pa.concat_arrays([int_array([-1]), ordered[:-1]]) if len(ordered) else ordered
    return pc.equal(ordered, before)
