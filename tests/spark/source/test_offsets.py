"""The offsets of a checkpoint."""

from __future__ import annotations

import json

import pytest

from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.offsets import Position, encode_offsets, parse_offsets

CREATED = "2026-11-21T03:38:08.293843492Z"


def test_offsets_come_back_as_they_were() -> None:
    offsets = {
        "B": Position(5, CREATED, since=2, cuts=(3, 4)),
        "A": Position(0, CREATED, cuts=()),
        "C": Position(1, CREATED),
    }
    assert parse_offsets(json.loads(json.dumps(encode_offsets(offsets)))) == offsets


def test_equal_offsets_give_equal_texts() -> None:
    one = encode_offsets({"B": Position(5, CREATED), "A": Position(0, CREATED)})
    other = encode_offsets({"A": Position(0, CREATED), "B": Position(5, CREATED)})
    assert json.dumps(one) == json.dumps(other)


@pytest.mark.parametrize("said", [{}, {"v": 2, "streams": {}}, {"v": 1}, {"ORDERS": {"0": 23}}])
def test_offsets_of_others_are_refused(said: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="checkpoint"):
        parse_offsets(said)


def test_a_stream_is_known_by_the_moment_it_was_made_however_that_is_spelled() -> None:
    assert Position(1, "2026-11-21T03:38:08.29Z").same_stream("2026-11-21T03:38:08.290000000+00:00")
    assert not Position(1, "2026-11-21T03:38:08.29Z").same_stream("2026-11-21T03:38:08.290000001Z")
