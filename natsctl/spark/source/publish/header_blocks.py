"""Headers of many rows as the text that goes over the wire, made column by column."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import binary_array, int_array
from natsctl.spark.source.errors import PublishError

MSG_ID_HEADER = "Nats-Msg-Id"
_LEFT_OUT = f"^(?:{MSG_ID_HEADER}|Nats-Expected-.*)$"
_ENTRIES = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class HeaderBlocks(NamedTuple):
    """Lines of headers per row, without the first and the last; and the message ids that were among them."""

    blocks: pa.BinaryArray
    ids: pa.BinaryArray | None
    """Null where the row has none; None if no row has one."""


def binary(array: pa.Array) -> pa.BinaryArray:
    """Return a text or binary column as binary with 32-bit offsets."""
    if pa.types.is_large_string(array.type):
        array = array.cast(pa.string())
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def constant(data: bytes) -> pa.BinaryScalar:
    """Return bytes as a constant of Arrow; made anew each time, since unpickling one imports pandas."""
    return binary_array([data])[0]


def joined(*parts: Any) -> pa.BinaryArray:
    """Columns and constants behind each other, row by row; constants are bytes."""
    columns = [constant(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*columns, constant(b""))


def header_blocks(column: pa.Array) -> HeaderBlocks:
    """Return the blocks of a column of headers: lists or maps of key and value.

    Message ids are separated from other headers. Expectations of an earlier publish (`Nats-Expected-…`) are left out:
    a server keeps them with the message, and would hold the copy to them. Servers know both in this spelling alone.
    Raises PublishError for an entry that cannot be a header.
    """
    column = column.cast(_ENTRIES)
    entries = column.flatten()
    keys, values = pc.struct_field(entries, [0]), pc.struct_field(entries, [1]).fill_null(constant(b""))
    _check(keys, values)
    lines = joined(keys.cast(pa.binary()), b": ", values, b"\r\n")
    left_out = pc.match_substring_regex(keys, _LEFT_OUT)
    ids = None
    if pc.any(left_out).as_py():
        lines = pc.if_else(left_out, constant(b""), lines)
        ids = _ids(column, keys, values)
    start = int_array([0]).cast(pa.int32())
    ends = pc.cumulative_sum(pc.list_value_length(column).fill_null(start[0]))
    lists = pa.ListArray.from_arrays(pa.concat_arrays([start, ends]), lines)
    return HeaderBlocks(pc.binary_join(lists, constant(b"")), ids)


def _ids(column: pa.Array, keys: pa.Array, values: pa.Array) -> pa.BinaryArray | None:
    """Return the message id of each row, the first one where there are several."""
    named = pc.equal(keys.cast(pa.binary()), constant(MSG_ID_HEADER.encode()))
    found: dict[int, bytes] = {}
    rows, texts = pc.list_parent_indices(column).filter(named), values.filter(named)
    for row, text in zip(rows.to_pylist(), texts.to_pylist(), strict=True):
        if text.strip():
            found.setdefault(row, text.strip())
    if not found:
        return None
    ids = binary_array([found.get(row, b"") for row in range(len(column))])
    return pc.if_else(pc.equal(ids, constant(b"")), pa.nulls(1, pa.binary())[0], ids)


def _check(keys: pa.Array, values: pa.Array) -> None:
    names = keys.cast(pa.binary()).fill_null(constant(b""))
    unfit = pc.match_substring_regex(names, r"[\r\n:]|^$")
    if pc.any(unfit).as_py():
        wrong = keys.filter(unfit)
        raise PublishError(
            f"a header cannot have the name {wrong[0].as_py()!r}: it is empty, or has a colon or line end"
        )
    broken = pc.match_substring_regex(values, r"[\r\n]")
    if pc.any(broken).as_py():
        raise PublishError(f"header {keys.filter(broken)[0].as_py()} has a line end in its value")
