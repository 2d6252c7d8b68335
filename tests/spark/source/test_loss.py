"""What is gone is told exactly, or passed over where that is allowed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from natsctl.spark.source.errors import DataLossError, SequenceResetError, StreamRecreatedError
from natsctl.spark.source.offsets import (
    Position,
    StreamState,
    check_begin,
    check_end,
    check_identity,
    check_read,
    spans,
    stream_state,
)

CREATED = "2026-11-21T03:38:08Z"
NOW = StreamState("ORDERS", CREATED, 151, 300, 150, 9000, "limits", 0, ("max_age 60s",))


def test_what_expired_is_told_with_its_range_and_its_limit() -> None:
    with pytest.raises(
        DataLossError, match=r"ORDERS: sequences 101\.\.150 expired by max_age 60s.*failOnDataLoss=false"
    ):
        check_begin(101, 300, NOW, fail=True)


def test_what_was_purged_is_told_so() -> None:
    with pytest.raises(DataLossError, match=r"sequence 150 were purged or deleted"):
        check_begin(150, 300, replace(NOW, limits=()), fail=True)


def test_a_range_that_is_gone_as_a_whole_is_told_and_empty() -> None:
    with pytest.raises(DataLossError, match=r"101\.\.120"):
        check_begin(101, 120, NOW, fail=True)
    assert check_begin(101, 120, NOW, fail=False) == 121


def test_reading_goes_on_at_the_first_message_where_loss_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    assert check_begin(101, 300, NOW, fail=False) == 151
    assert "101..150 expired" in caplog.text


def test_nothing_is_lost_where_reading_stands_at_the_first_message() -> None:
    assert check_begin(151, 300, NOW, fail=True) == 151
    assert check_begin(301, 300, replace(NOW, first=400), fail=True) == 301


@pytest.mark.parametrize("by_design", [{"per_subject": 1}, {"retention": "workqueue"}, {"retention": "interest"}])
def test_messages_that_go_by_design_are_no_loss(by_design: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    now = replace(NOW, **by_design)  # type: ignore[arg-type]  # fields by name
    assert check_begin(101, 300, now, fail=True) == 151
    check_read(101, 300, 5, now, fail=True)
    assert "101..150 went" in caplog.text


def test_another_stream_of_the_same_name_is_told_with_both_moments() -> None:
    stood = Position(100, "2026-11-20T00:00:00Z")
    with pytest.raises(StreamRecreatedError, match=r"up to 100 are of the.*151\.\.300.*\{\"ORDERS\": 101\}"):
        check_identity(stood, NOW, fail=True)
    assert not check_identity(stood, NOW, fail=False)
    assert check_identity(Position(100, CREATED), NOW, fail=True)


def test_an_older_state_is_told() -> None:
    with pytest.raises(SequenceResetError, match="ends at 300, and sequence 400 was read"):
        check_end(400, NOW, fail=True)
    assert not check_end(400, NOW, fail=False)
    assert check_end(300, NOW, fail=True)


def test_messages_that_went_while_they_were_read_are_counted() -> None:
    with pytest.raises(DataLossError, match=r"7 messages of sequences 101\.\.200.*101\.\.150 expired"):
        check_read(101, 200, 7, NOW, fail=True)


def test_messages_deleted_in_the_middle_while_they_were_read_are_no_loss() -> None:
    check_read(151, 200, 7, NOW, fail=True)


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
        NOW, limits=("max_age 60s", "max_msgs 150", "the messages' own TTL"), thins_out=True, deleted=()
    )
    assert read.whole


def test_an_empty_stream_begins_with_its_first_message_to_come() -> None:
    empty = stream_state({"config": {"name": "E"}, "created": CREATED, "state": {"first_seq": 0, "last_seq": 0}})
    assert (empty.first, empty.last) == (1, 0)
    assert empty.whole


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
