"""Records of archives cut all at once: whatever the bytes, as one by one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from natsctl.api.archive.archive import MessageFields
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2_rewrite import S2BlockError, as_snappy
from natsctl.spark.source.arrays import RowPicker
from natsctl.spark.source.backup_content import Content, DataFile, Mark, respelled
from natsctl.spark.source.backup_records import head_at, run_at
from natsctl.spark.source.errors import BackupError
from natsctl.spark.source.log_blocks import Block, rows_of
from natsctl.spark.source.rows import Rows, RowShape, default_schema, row_shape
from natsctl.spark.source.source_options import BATCH_READ, Options
from tests.api.archive.s2_elements import block_of as s2_block_of
from tests.api.archive.s2_elements import elements
from tests.support import tiers

BEGIN_NS = 1_790_000_000_000_000_000
HEAD = Struct("<IQqH")
HEADER = b"NATS/1.0\r\nA: 1\r\n\r\n"
Found = tuple[int, int, bytes, bytes, bytes]

usual = st.tuples(
    st.just(1),
    st.integers(BEGIN_NS, BEGIN_NS + (1 << 50)),
    st.sampled_from([b"a", b"a.b", b"s" * 127]),
    st.sampled_from([b"", b"", b"", HEADER, HEADER + b"x" * 200, HEADER + b"x" * 9_000]),
    st.one_of(st.binary(max_size=300), st.sampled_from([b"", bytes(127), bytes(128), bytes(16_383)])),
)
odd = st.tuples(
    st.sampled_from([1, 100, 1 << 14, 1 << 30, 1 << 45]),
    st.one_of(st.integers(-(1 << 62), 1 << 62), st.sampled_from([0, 1, 1 << 55, 1 << 56, (1 << 62) - 1])),
    st.sampled_from([b"a", b"s" * 128, b"s" * 200]),
    st.sampled_from([b"", HEADER, HEADER + b"x" * 20_000]),
    st.sampled_from([b"", b"x", bytes(16_384), bytes(70_000)]),
)
messages_of = st.lists(st.one_of(usual, usual, usual, odd), min_size=1, max_size=60)


def everything() -> RowShape:
    said = Options({"backup": "/"}, BATCH_READ)
    return row_shape(default_schema(said), said)


def ascending(drawn: Sequence[MessageFields]) -> list[MessageFields]:
    """Messages whose sequences are the sums of what was drawn."""
    seq, messages = 0, []
    for step, *rest in drawn:
        seq += step
        messages.append((seq, *rest))
    return messages


def cells(rows: Rows) -> list[Found]:
    def column(values: Any) -> list[bytes]:
        listed = values if isinstance(values, list) else values.to_pylist()
        return listed or [b""] * len(rows.seqs)

    times = rows.times_ns.to_pylist()
    columns = (rows.seqs.to_pylist(), times, column(rows.subjects), column(rows.headers), column(rows.values))
    return list(zip(*columns, strict=True))


def one_by_one(data: bytes, at: int, number: int) -> tuple[list[Found], int]:
    found = []
    for _ in range(number):
        head = head_at(data, at)
        assert head.end <= len(data)
        header_at = head.body_at + head.name
        value_at = header_at + head.header
        parts = (data[head.body_at : header_at], data[header_at:value_at], data[value_at : head.end])
        found.append((head.seq, head.ts_ns, *parts))
        at = head.end
    return found, at


def test_records_that_look_as_most_do_are_cut_all_at_once() -> None:
    messages = [(seq, BEGIN_NS + seq, b"a.b", HEADER if seq % 3 == 0 else b"", b"x" * seq) for seq in range(200, 900)]
    data = b"".join(WriterV2().messages(messages))

    found = run_at(data + bytes(50), 0, len(data), 200, everything())

    assert (cells(found[0]), found[1]) == (messages, len(data))


@tiers.examples(300)
@given(drawn=messages_of, changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=3))
@example(drawn=[(1, BEGIN_NS, b"a", b"", b"")] * 4, changes=[(0, 1)])
def test_a_run_has_only_what_its_bytes_say_one_by_one(
    drawn: list[MessageFields], changes: list[tuple[int, int]]
) -> None:
    messages = ascending(drawn)
    changed = bytearray(b"".join(WriterV2().messages(messages)) + bytes(60))
    for at, flip in changes:
        changed[at % len(changed)] ^= flip
    data = bytes(changed)

    found = run_at(data, 0, len(data), messages[0][0], everything())

    if found is not None:
        assert (cells(found[0]), found[1]) == one_by_one(data, 0, len(found[0].seqs))


records_of = st.lists(
    st.tuples(
        st.sampled_from([0, 1 << 62, 1 << 63, 0, 0]),
        st.integers(0, 2**62),
        st.sampled_from([b"", b"a", b"s" * 300]),
        st.sampled_from([b"", HEADER, HEADER + b"x" * 20_000]),
        st.one_of(st.binary(max_size=200), st.just(bytes(70_000))),
    ),
    min_size=1,
    max_size=20,
)


def block_of(records: Sequence[MessageFields]) -> bytes:
    """A block file, with anything for hashes."""
    parts = []
    for seq, (flags, ts_ns, subject, header, value) in enumerate(records, 1):
        told = len(header).to_bytes(4, "little") + header if header else b""
        length = HEAD.size + len(subject) + len(told) + len(value) + 8
        head = HEAD.pack(length | bool(header) << 31, seq | flags, ts_ns, len(subject))
        parts += head, subject, told, value, b"#hash##!"
    return b"".join(parts)


def read_block(path: Path, data: bytes) -> list[Found] | None:
    """What the source makes of a block; None where it finds it damaged."""
    path.write_bytes(data)
    with closing(Content(DataFile(str(path), 0, len(data), raw=True))) as content:
        try:
            return cells(rows_of(content, Block("1.blk", 0, len(data), Mark(), 1), everything()))
        except BackupError:
            return None


def block_one_by_one(data: bytes) -> list[Found] | None:
    """What a block holds, None where it does not add up."""
    found, at = [], 0
    while at + HEAD.size <= len(data):
        flagged, seq, ts_ns, named = HEAD.unpack_from(data, at)
        body, end = at + HEAD.size, at + (flagged & 0x7FFFFFFF)
        if end > len(data) or end - 8 < body + named:
            return None
        subject, header, value = data[body : body + named], b"", data[body + named : end - 8]
        if flagged >> 31:
            size = int.from_bytes(value[:4], "little")
            if size + 4 > len(value):
                return None
            header, value = value[4 : 4 + size], value[4 + size :]
        if 0 < seq < 1 << 62:
            found.append((seq, ts_ns, subject, header, value))
        at = end
    return found if at == len(data) else None


@tiers.examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=records_of, changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=2))
def test_a_block_is_read_or_refused_as_one_by_one(
    drawn: list[MessageFields], changes: list[tuple[int, int]], tmp_path: Path
) -> None:
    changed = bytearray(block_of(drawn))
    for at, flip in changes:
        changed[at % len(changed)] ^= flip
    data = bytes(changed)

    assert read_block(tmp_path / "1.blk", data) == block_one_by_one(data)


# Blocks of S2 as Arrow puts them together


@tiers.examples(200)
@given(elements)
def test_a_block_is_spelled_as_without_arrow_and_decodes_to_its_content(chosen: list[tuple[str, int, int]]) -> None:
    block, content = s2_block_of(chosen)

    found = respelled(block, RowPicker())

    assert bytes(found) == b"".join(as_snappy(block))
    assert pa.Codec("snappy").decompress(found, len(content), asbytes=True) == content


@given(st.binary(max_size=200))
def test_any_bytes_are_spelled_or_refused_as_without_arrow(block: bytes) -> None:
    try:
        expected = b"".join(as_snappy(block))
    except S2BlockError as fault:
        with pytest.raises(S2BlockError, match=str(fault)):
            respelled(block, RowPicker())
    else:
        assert bytes(respelled(block, RowPicker())) == expected


def test_repeats_of_more_than_the_whole_block_are_refused() -> None:
    with pytest.raises(S2BlockError, match="too much"):
        respelled(b"\xff\xff\x7f\x00a\x02\x01\x00" + b"\x1d\x00\xff\xff\xff" * 1000, RowPicker())
