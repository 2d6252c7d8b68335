"""Header blocks of messages as a column of keys and values, which keeps their order and repeats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import binary_array, int_array, text_array


def header_column(blocks: Sequence[bytes], kind: pa.ListType) -> pa.ListArray:
    """One list of (key, value) for each block, null for an empty one and for one without a single header."""
    lines = [line for line in b"".join(blocks).split(b"\r\n") if b":" in line]
    counts = [block.count(b"\r\n") - 2 if block else 0 for block in blocks]
    if sum(counts) != len(lines) or -1 in counts:
        per_block = [[line for line in block.split(b"\r\n")[1:] if b":" in line] for block in blocks]
        lines = [line for block in per_block for line in block]
        counts = [len(block) for block in per_block]
    return _lists(lines, counts, kind)


def _lists(lines: list[bytes], counts: list[int], kind: pa.ListType) -> pa.ListArray:
    """The lines cut at their first colon and dealt out."""
    pairs = [line.partition(b":") for line in lines]
    keys = text_array([pair[0] for pair in pairs])
    values = binary_array([pair[2].lstrip(b" \t") for pair in pairs])
    fields = [kind.value_type.field(at) for at in range(2)]
    items = pa.StructArray.from_arrays([keys, values], fields=fields)
    ends = int_array([0, *accumulate(counts)]).cast(pa.int32())
    lists = pa.ListArray.from_arrays(ends, items, type=kind)
    if all(counts):
        return lists
    sizes = int_array(counts)
    return pc.if_else(pc.greater(sizes, int_array([0])[0]), lists, pa.nulls(len(counts), kind))
