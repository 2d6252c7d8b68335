"""Header blocks of messages as a column of keys and values, which keeps their order and repeats."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import text_array
from natsctl.spark.source.columns.pieces import Ruler, pieces, same

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
