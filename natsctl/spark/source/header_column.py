"""Header blocks of messages as a column of keys and values, which keeps their order and repeats."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


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
    keys = pa.array([pair[0] for pair in pairs], pa.binary())
    values = pa.array([pair[2].lstrip(b" \t") for pair in pairs], pa.binary())
    fields = [kind.value_type.field(at) for at in range(2)]
    items = pa.StructArray.from_arrays([_as_text(keys), values], fields=fields)
    offsets: list[int | None] = []
    end = 0
    for count in counts:
        offsets.append(end if count else None)
        end += count
    offsets.append(end)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=kind)


def _as_text(data: pa.BinaryArray) -> pa.StringArray:
    """Bytes as text; what is no UTF-8 has a mark in its place, as Spark shows it."""
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([each.decode(errors="replace") for each in data.to_pylist()], pa.string())
