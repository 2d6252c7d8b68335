"""Blocks of S2 as Arrow puts them together: the same as without Arrow, and as what they were made of."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.archive.s2_rewrite import S2BlockError, as_snappy
from natsctl.spark.source.arrays import RowPicker
from natsctl.spark.source.backup_content import respelled
from tests.api.archive.s2_elements import block_of, elements
from tests.support import tiers


@tiers.examples(200)
@given(elements)
def test_a_block_is_spelled_as_without_arrow_and_decodes_to_its_content(chosen: list[tuple[str, int, int]]) -> None:
    block, content = block_of(chosen)

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
