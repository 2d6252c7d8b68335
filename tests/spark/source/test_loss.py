"""What is gone is told exactly, or passed over where that is allowed."""

import json
from dataclasses import replace

import pytest

from natsctl.spark.source.errors import DataLossError, OptionError
from natsctl.spark.source.offsets import (
    Position,
    StreamBounds,
    check_begin,
    check_read,
    encode_offsets,
    parse_offsets,
    spans,
    stream_state,
)

CREATED = "2026-11-21T03:38:08Z"
NOW = StreamBounds("ORDERS", CREATED, 151, 300, 150, 9000, "limits", 0, ("max_age 60s",))


@pytest.mark.parametrize(
    ("begin", "end", "limits", "told", "left"),
    [
        (101, 300, NOW.limits, r"ORDERS: sequences 101\.\.150 expired by max_age 60s.*failOnDataLoss=false", 151),
        (150, 300, (), r"sequence 150 were purged or deleted", 151),
        (101, 120, NOW.limits, r"101\.\.120", 121),
    ],
)
def test_a_loss_is_told_with_its_range_or_logged_where_it_is_allowed(
    begin: int, end: int, limits: tuple[str, ...], told: str, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    now = replace(NOW, limits=limits)
    with pytest.raises(DataLossError, match=told):
        check_begin(begin, end, now, fail=True)
    assert check_begin(begin, end, now, fail=False) == left
    assert str(begin) in caplog.text


@pytest.mark.parametrize(
    "by_design",
    [
        {"per_subject": 1},
        {"retention": "workqueue"},
        {"retention": "interest"},
        {"has_own_ends": True, "limits": ()},
        {"has_own_ends": True, "limits": ("the messages' own TTL",)},
    ],
)
def test_messages_that_go_by_design_are_no_loss(by_design: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    now = replace(NOW, **by_design)  # type: ignore[arg-type]  # fields by name
    assert check_begin(101, 300, now, fail=True) == 151
    check_read(101, 300, 5, now, fail=True)
    assert "101..150 went" in caplog.text
    with pytest.raises(DataLossError):
        check_begin(101, 300, replace(NOW, has_own_ends=True), fail=True)  # by max_age or by a TTL: unknown


def test_a_streams_state_is_read_from_the_servers_answer() -> None:
    config = {
        "name": "ORDERS",
        "max_age": 60 * 10**9,
        "max_msgs": 150,
        "max_msgs_per_subject": -1,
        "allow_msg_ttl": True,
    }
    state = {"messages": 150, "bytes": 9000, "first_seq": 151, "last_seq": 300}
    read = stream_state({"config": config, "created": CREATED, "state": state})
    assert read == replace(
        NOW,
        limits=("max_age 60s", "max_msgs 150", "the messages' own TTL"),
        thins_out=True,
        has_own_ends=True,
        deleted=(),
    )
    assert read.whole
    empty = stream_state({"config": {"name": "E"}, "created": CREATED, "state": {"first_seq": 0, "last_seq": 0}})
    assert (empty.first, empty.last, empty.whole) == (1, 0, True)


@pytest.mark.parametrize(
    ("seqs", "told"),
    [
        ([], ""),
        ([7], "7"),
        ([7, 8, 9, 11], "7..9, 11"),
        (list(range(0, 60, 2)), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 20 more"),
        ([*range(0, 20, 2), 30, 31], "0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 2 more"),
    ],
)
def test_deleted_messages_are_told_as_ranges_and_many_cut_short(seqs: list[int], told: str) -> None:
    assert spans(seqs) == told


# Offsets of a checkpoint


def test_offsets_come_back_as_they_were() -> None:
    offsets = {
        "B": Position(5, CREATED, since=2, cuts=(3, 4)),
        "A": Position(0, CREATED, cuts=()),
        "C": Position(1, CREATED),
    }
    assert parse_offsets(json.loads(json.dumps(encode_offsets(offsets)))) == offsets
    assert json.dumps(encode_offsets(offsets)) == json.dumps(encode_offsets(dict(reversed(offsets.items()))))


@pytest.mark.parametrize("said", [{}, {"v": 2, "streams": {}}, {"v": 1}, {"ORDERS": {"0": 23}}])
def test_offsets_of_others_are_refused(said: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="checkpoint"):
        parse_offsets(said)


def test_a_stream_is_known_by_the_moment_it_was_made_however_that_is_spelled() -> None:
    assert Position(1, "2026-11-21T03:38:08.29Z").same_stream("2026-11-21T03:38:08.290000000+00:00")
    assert not Position(1, "2026-11-21T03:38:08.29Z").same_stream("2026-11-21T03:38:08.290000001Z")
