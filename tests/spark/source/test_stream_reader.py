"""A streaming query's calls, made as Spark makes them, on both servers."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from natsctl.spark.source import planning
from natsctl.spark.source.errors import (
    DataLossError,
    OptionError,
    SequenceResetError,
    StreamNotFoundError,
    StreamRecreatedError,
)
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.planning import StreamPart
from tests.spark.source.queries import Offset, ReaderQuery, closed, stored
from tests.spark.source.streams import add, delete, make, purge, remake

pytestmark = pytest.mark.both

__all__ = ["closed"]


class Query(ReaderQuery):
    """A query of the shared server from the earliest message on."""

    def __init__(self, api: JetStreamApi, **options: str) -> None:
        super().__init__(api.link.settings.urls[0], **{"startingOffsets": "earliest", "numRetries": "0", **options})

    def places(self, start: Offset, end: Offset) -> list[tuple[str, int]]:
        return [(row["stream"], row["seq"]) for row in self.rows(start, end)]

    def run(self, start: Offset, batches: int = 100) -> tuple[list[tuple[str, int]], Offset]:
        """All rows until there is nothing new, and where the query stands then."""
        found = []
        for _ in range(batches):
            end = self.next(start)
            if end == start:
                return found, end
            found += self.places(start, end)
            self.reader.commit(end)
            start = end
        raise AssertionError(f"not at an end after {batches} batches")


def seqs(offset: Offset) -> dict[str, int]:
    return {name: each["seq"] for name, each in offset["streams"].items()}


def orders(first: int, last: int) -> list[tuple[str, int]]:
    return [("ORDERS", seq) for seq in range(first, last + 1)]


def test_a_query_reads_everything_once_and_then_waits(api: JetStreamApi) -> None:
    make(api, number=0)
    query = Query(api)
    begin = query.begin()
    assert seqs(begin) == {"ORDERS": 0}
    assert query.next(begin) == begin
    add(api, "ORDERS", 100)
    rows, end = query.run(begin)
    assert sorted(rows) == orders(1, 100)
    assert query.next(end) == end
    assert query.reader.partitions(end, end) == []
    add(api, "ORDERS", 5)
    assert query.run(end)[0] == orders(101, 105)


def test_a_release_that_says_no_start_is_limited_from_the_second_batch_on(api: JetStreamApi) -> None:
    make(api)
    query = Query(api, maxOffsetsPerTrigger="30")
    first = stored(query.reader.latestOffset())
    start = query.begin()
    assert sorted(query.places(start, first)) == orders(1, 100)
    add(api, "ORDERS", 50)
    second = stored(query.reader.latestOffset())
    assert query.places(first, second) == orders(101, 130)
    assert seqs(query.reader.latestOffset()) == {"ORDERS": 150}
    again = Query(api, maxOffsetsPerTrigger="30")
    assert again.places(second, stored(again.reader.latestOffset())) == orders(131, 150)


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": ""}, 101),
        ({"startingOffsets": "earliest"}, 11),
        ({"startingOffsets": '{"ORDERS": 20}'}, 20),
        ({"startingOffsets": '{"ORDERS": -1}'}, 101),
        ({"startingTimestamp": "0"}, 11),
        ({"startingTimestamp": "2100-01-01T00:00:00Z", "startingOffsetsByTimestampStrategy": "latest"}, 101),
    ],
)
def test_a_new_query_begins_where_it_was_told(api: JetStreamApi, options: dict[str, str], first: int) -> None:
    make(api)
    purge(api, 11)
    assert seqs(Query(api, **options).begin()) == {"ORDERS": first - 1}


def test_no_batch_is_larger_than_the_limit_and_all_is_read(api: JetStreamApi) -> None:
    make(api)
    query = Query(api, maxOffsetsPerTrigger="30")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(30)
    end = query.next(query.begin())
    assert seqs(end) == {"ORDERS": 30}
    assert seqs(query.reader.latestOffset(end, ReadAllAvailable())) == {"ORDERS": 100}
    assert sorted(query.run(query.begin())[0]) == orders(1, 100)


def test_a_limit_counts_messages_where_the_stream_has_gaps_or_is_filtered(api: JetStreamApi) -> None:
    make(api)
    delete(api, *range(2, 50))
    gaps = Query(api, maxOffsetsPerTrigger="10")
    assert len(gaps.places(gaps.begin(), gaps.next(gaps.begin()))) == 10
    filtered = Query(api, maxOffsetsPerTrigger="10", subject="ORDERS.1")
    rows = filtered.places(filtered.begin(), filtered.next(filtered.begin()))
    assert len(rows) == 10
    assert all(seq % 4 == 2 for _, seq in rows)
    none = Query(api, maxOffsetsPerTrigger="10", subject="ORDERS.9")
    assert none.run(none.begin(), batches=2)[0] == [], "nothing is held back where no message fits"
    assert api.stream_info("ORDERS")["state"]["consumer_count"] == 0


def test_a_limit_is_shared_by_what_waits_and_starves_nobody(api: JetStreamApi) -> None:
    make(api, number=90)
    make(api, "BILLS", number=9)
    make(api, "QUIET", number=1)
    query = Query(api, stream="ORDERS,BILLS,QUIET", maxOffsetsPerTrigger="20")
    assert seqs(query.next(query.begin())) == {"ORDERS": 17, "BILLS": 2, "QUIET": 1}


@pytest.mark.parametrize("options", [{}, {"subject": "*.1,*.2"}])
def test_batches_hold_exactly_the_limit_until_the_last(api: JetStreamApi, options: dict[str, str]) -> None:
    for name, number in (("A", 300), ("B", 41), ("C", 3), ("D", 1)):
        make(api, name, number=number)
    delete(api, *range(20, 140, 3), name="A")
    for limit in (2, 7, 100):
        query = Query(api, stream="A,B,C,D", maxOffsetsPerTrigger=str(limit), **options)
        start, sizes, rows = query.begin(), list[int](), list[tuple[str, int]]()
        while (end := query.next(start)) != start:
            rows += query.places(start, end)
            sizes.append(len(rows) - sum(sizes))
            start = end
        everything = Query(api, stream="A,B,C,D", **options)
        assert sorted(rows) == sorted(everything.run(everything.begin())[0])
        assert [size for size in sizes[:-1] if size] == [limit] * len([size for size in sizes[:-1] if size])
        assert sizes[-1] <= limit


def test_a_limit_in_bytes_goes_by_the_average_message(api: JetStreamApi) -> None:
    make(api)
    average = api.stream_info("ORDERS")["state"]["bytes"] / 100
    query = Query(api, maxBytesPerTrigger=str(int(average * 25)))
    assert isinstance(query.reader.getDefaultReadLimit(), ReadMaxBytes)
    assert 24 <= seqs(query.next(query.begin()))["ORDERS"] <= 25


def test_a_batch_waits_for_the_least_until_the_delay_is_over(
    api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(api, number=5)
    query = Query(api, minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    assert query.reader.getDefaultReadLimit() == ReadMinRows(10)
    begin = query.begin()
    assert query.next(begin) == begin
    add(api, "ORDERS", 5)
    end = query.next(begin)
    assert seqs(end) == {"ORDERS": 10}
    add(api, "ORDERS", 1)
    assert query.next(end) == end
    query.reader._last_batch_s -= 60
    assert seqs(query.next(end)) == {"ORDERS": 11}


def test_available_now_ends_with_what_was_there_and_does_not_wait_for_the_least(api: JetStreamApi) -> None:
    make(api)
    query = Query(api, maxOffsetsPerTrigger="30", minOffsetsPerTrigger="1000")
    query.reader.prepareForTriggerAvailableNow()
    add(api, "ORDERS", 50)
    rows, end = query.run(query.begin())
    assert sorted(rows) == orders(1, 100)
    assert seqs(end) == {"ORDERS": 100}


def test_available_now_ends_where_a_stream_is_made_again_meanwhile(api: JetStreamApi) -> None:
    make(api)
    query = Query(api, maxOffsetsPerTrigger="60", failOnDataLoss="false")
    query.reader.prepareForTriggerAvailableNow()
    first = query.next(query.begin())
    remake(api, number=500)
    rows, end = query.run(first)
    assert rows == []
    assert sorted(Query(api, failOnDataLoss="false").run(end)[0]) == orders(1, 500)


def test_streams_made_later_are_read_from_their_beginning_and_again_when_the_batch_is_run_again(
    api: JetStreamApi,
) -> None:
    make(api, number=10)
    query = Query(api, stream="", streamPattern="ORDERS*", startingOffsets="")
    start = query.begin()
    make(api, "ORDERS_EU", number=10)
    purge(api, 4, name="ORDERS_EU")
    end = query.next(start)
    expected = [("ORDERS_EU", seq) for seq in range(4, 11)]
    assert query.places(start, end) == expected
    assert Query(api, stream="", streamPattern="ORDERS*").places(start, end) == expected
    purge(api, 6, name="ORDERS_EU")
    with pytest.raises(DataLossError, match=r"ORDERS_EU: sequences 4\.\.5"):
        query.places(start, end)
    add(api, "ORDERS_EU", 1)
    assert query.run(end)[0] == [("ORDERS_EU", 11)]


def test_a_stream_of_a_pattern_that_vanishes_is_a_loss(api: JetStreamApi, caplog: pytest.LogCaptureFixture) -> None:
    make(api, number=10)
    make(api, "ORDERS_EU", number=10)
    options = {"stream": "", "streamPattern": "ORDERS*"}
    start = Query(api, **options).begin()
    end = Query(api, **options).next(start)
    api.ask("STREAM.DELETE.ORDERS_EU")
    with pytest.raises(DataLossError, match="ORDERS_EU was deleted; it was read up to 10"):
        Query(api, **options).next(end)
    with pytest.raises(DataLossError, match="ORDERS_EU was deleted; it was read up to 0"):
        Query(api, **options).places(start, end)
    allowed = Query(api, **options, failOnDataLoss="false")
    assert allowed.places(start, end) == orders(1, 10)
    assert seqs(allowed.next(end)) == {"ORDERS": 10}
    assert "ORDERS_EU was deleted" in caplog.text


def test_a_stream_that_a_changed_pattern_does_not_fit_is_read_no_longer(
    api: JetStreamApi, caplog: pytest.LogCaptureFixture
) -> None:
    make(api, number=10)
    make(api, "ORDERS_EU", number=10)
    wide = Query(api, stream="", streamPattern="ORDERS*")
    end = wide.run(wide.begin())[1]
    add(api, "ORDERS", 1)
    add(api, "ORDERS_EU", 1)
    narrow = Query(api, stream="", streamPattern="*_EU")
    assert narrow.run(end)[0] == [("ORDERS_EU", 11)]
    assert "ORDERS is no longer read" in caplog.text
    api.ask("STREAM.DELETE.ORDERS")
    assert seqs(narrow.next(end)) == {"ORDERS_EU": 11}


def test_a_stream_by_name_that_vanishes_is_always_an_error(api: JetStreamApi) -> None:
    make(api)
    query = Query(api, failOnDataLoss="false")
    start = query.begin()
    end = query.next(start)
    api.ask("STREAM.DELETE.ORDERS")
    for call in (lambda: query.next(end), lambda: query.places(start, end), query.begin):
        with pytest.raises(StreamNotFoundError, match="ORDERS"):
            call()


def test_purged_messages_are_a_loss_in_the_next_batch_and_in_one_that_is_run_again(api: JetStreamApi) -> None:
    make(api)
    query = Query(api, maxOffsetsPerTrigger="30")
    start = query.next(query.begin())
    end = query.next(start)
    purge(api, 51)
    told = r"ORDERS: sequences 31\.\.50 were purged or deleted"
    with pytest.raises(DataLossError, match=told):
        query.next(start)
    with pytest.raises(DataLossError, match=told):
        query.places(start, end)
    allowed = Query(api, failOnDataLoss="false")
    assert allowed.places(start, end) == orders(51, 60)
    assert allowed.run(end)[0] == orders(61, 100)


def test_nothing_is_lost_by_a_purge_behind_the_query_or_by_what_was_deleted_before(api: JetStreamApi) -> None:
    make(api)
    delete(api, 40, 41, 50)
    query = Query(api, maxOffsetsPerTrigger="30")
    start = query.next(query.begin())
    purge(api, 20)
    left = orders(seqs(start)["ORDERS"] + 1, 100)
    assert sorted(query.run(start)[0]) == [row for row in left if row[1] not in (40, 41, 50)]


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "30"}])
def test_messages_that_are_deleted_before_they_are_read_are_a_loss(api: JetStreamApi, limit: dict[str, str]) -> None:
    make(api)
    query = Query(api, **limit)
    start = query.next(query.begin())
    if not limit:
        add(api, "ORDERS", 20)
    read = start["streams"]["ORDERS"]["seq"]
    delete(api, 5, read + 3, read + 4, read + 9)
    with pytest.raises(
        DataLossError, match=rf"3 messages .* deleted before .* \({read + 3}\.\.{read + 4}, {read + 9}\)"
    ):
        query.next(start)
    allowed = Query(api, failOnDataLoss="false", **limit)
    assert len(allowed.run(start)[0]) == (20 if not limit else 70) - 3


def test_messages_that_are_deleted_more_than_once_are_told_by_number(api: JetStreamApi) -> None:
    make(api)
    delete(api, 40, 50)
    query = Query(api, maxOffsetsPerTrigger="30")
    start = query.next(query.begin())
    delete(api, 60)
    with pytest.raises(DataLossError, match=r"1 message .* \(40, 50, 60, 2 more of them were removed before\)"):
        query.next(start)


def test_no_deleted_message_is_a_loss_where_it_may_not_have_been_wanted(api: JetStreamApi) -> None:
    make(api, allow_rollup_hdrs=True)
    make(api, "OTHER")
    rolled_up, filtered = (
        Query(api, maxOffsetsPerTrigger="30"),
        Query(api, stream="OTHER", subject="OTHER.1"),
    )
    starts = [rolled_up.next(rolled_up.begin()), filtered.begin()]
    delete(api, 60)
    delete(api, 60, name="OTHER")
    assert len(rolled_up.run(starts[0])[0]) == 69
    assert len(filtered.run(starts[1])[0]) == 25


def test_a_stream_made_again_is_an_error_and_begins_anew_where_that_is_allowed(api: JetStreamApi) -> None:
    make(api)
    query = Query(api, maxOffsetsPerTrigger="30")
    start = query.next(query.begin())
    end = query.next(start)
    remake(api, number=20)
    for call in (lambda: query.next(start), lambda: query.places(start, end)):
        with pytest.raises(StreamRecreatedError, match=r"ORDERS was deleted and recreated.*\{\"ORDERS\": 31\}"):
            call()
    allowed = Query(api, failOnDataLoss="false")
    assert allowed.places(start, end) == []
    assert allowed.run(end)[0] == orders(1, 20)


def test_a_stream_restored_from_an_older_backup_is_told(api: JetStreamApi, tmp_path: Path) -> None:
    make(api, number=10)
    start = ["-m", "natsctl", "-s", api.link.settings.urls[0], "stream"]
    backup = str(tmp_path / "backup")
    subprocess.run([sys.executable, *start, "backup", "ORDERS", backup], check=True, capture_output=True)
    add(api, "ORDERS", 2)
    query = Query(api)
    end = query.next(query.begin())
    api.ask("STREAM.DELETE.ORDERS")
    subprocess.run([sys.executable, *start, "restore", backup], check=True, capture_output=True)
    # The reference gives a restored stream another moment of creation, natsctl's server the one that it had.
    with pytest.raises(DataLossError, match="restored"):
        query.next(end)
    ours = {"created": api.stream_info("ORDERS")["created"], "seq": 12}
    end["streams"]["ORDERS"] |= ours
    with pytest.raises(SequenceResetError, match="ends at 10, and sequence 12 was read"):
        query.next(end)
    assert Query(api, failOnDataLoss="false").next(end) == end, "the stream is waited for"
    went_on = Query(api, startingOffsets='{"ORDERS": 11}')
    add(api, "ORDERS", 1)
    assert went_on.run(went_on.begin())[0] == orders(11, 11)


def test_messages_that_go_between_planning_and_reading_are_a_loss(api: JetStreamApi) -> None:
    make(api)
    query, allowed = Query(api), Query(api, failOnDataLoss="false")
    start = query.begin()
    planned, also_planned = (each.reader.partitions(start, each.next(start)) for each in (query, allowed))
    purge(api, 41)
    with pytest.raises(DataLossError, match=r"40 messages of sequences 1\.\.100 went while they were being read"):
        read(query, planned)
    assert len(read(allowed, also_planned)) == 60


def read(query: Query, planned: list[InputPartition]) -> list[int]:
    return [seq for part in planned for batch in query.reader.read(part) for seq in batch["seq"].to_pylist()]


def test_a_batch_that_is_run_again_has_the_same_parts_on_any_number_of_cores(
    api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MESSAGES_PER_TASK", 3)
    for seed in range(4):
        chance = random.Random(seed)
        (remake if seed else make)(api, number=chance.randint(20, 150))
        alive = set(range(1, api.stream_info("ORDERS")["state"]["last_seq"] + 1))
        options = {"failOnDataLoss": "false", "subject": chance.choice(["", "ORDERS.1", "ORDERS.1,ORDERS.2"])}
        options["maxOffsetsPerTrigger"] = chance.choice(["", "40"])
        thin(api, alive, chance)
        on = planned_on(api, monkeypatch, options)
        start = Query(api, **options).begin()
        monkeypatch.setattr(planning, "cores", lambda chance=chance: chance.randint(1, 16))
        end = Query(api, **options).next(start)
        last = seqs(end)["ORDERS"]
        begun, held = on(1, start, end)
        for cores in (16, chance.randint(2, 15)):
            thin(api, alive, chance)
            again, found = on(cores, start, end)
            assert len(again) == len(begun)
            gone = api.stream_info("ORDERS")["state"]["first_seq"] - 1
            assert again == [(max(first, min(gone, last) + 1), end_) for first, end_ in begun], seed
            assert found == [[seq for seq in part if seq in alive] for part in held], seed


def planned_on(
    api: JetStreamApi, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> Callable[[int, Offset, Offset], tuple[list[tuple[int, int]], list[list[int]]]]:
    """A function that plans and reads a batch on so many cores: the parts' ranges, and their sequences."""

    def on(cores: int, start: Offset, end: Offset) -> tuple[list[tuple[int, int]], list[list[int]]]:
        monkeypatch.setattr(planning, "cores", lambda: cores)
        query = Query(api, **options)
        found = [part for part in query.reader.partitions(start, end) if isinstance(part, StreamPart)]
        return [(part.todo.first, part.todo.last) for part in found], [read(query, [part]) for part in found]

    return on


def thin(api: JetStreamApi, alive: set[int], chance: random.Random) -> None:
    """Delete some messages, and perhaps those at the beginning."""
    gone = set(chance.sample(sorted(alive), min(chance.choice([0, 1, 20]), len(alive))))
    delete(api, *gone)
    below = chance.choice([1, 1, min(alive - gone, default=1) + chance.randint(0, 30)])
    purge(api, below)
    alive -= gone | set(range(1, below))


def test_a_batch_of_an_earlier_version_is_planned_anew(api: JetStreamApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MESSAGES_PER_TASK", 10)
    make(api)
    query = Query(api, minPartitions="4")
    start = query.begin()
    end = query.next(start)
    assert end["streams"]["ORDERS"].pop("cuts") == [25, 50, 75]
    assert len(query.reader.partitions(start, end)) == 4
    assert len(Query(api, minPartitions="2").reader.partitions(start, end)) == 2


def test_lag_is_reported_in_sequences_messages_and_bytes(api: JetStreamApi) -> None:
    make(api)
    query = Query(api, maxOffsetsPerTrigger="5", subject="ORDERS.1")
    query.next(query.begin())
    report = query.reader.reportLatestOffset()
    said = report["streams"]["ORDERS"]
    assert said["seq"] == 100
    behind = said["behind"]
    assert behind["messages"] == 20
    assert behind["sequences"] >= 80
    assert behind["bytes"] == round(20 * api.stream_info("ORDERS")["state"]["bytes"] / 100)


def test_a_durable_follows_the_query_and_shows_its_lag(api: JetStreamApi) -> None:
    make(api)
    query = Query(api, maxOffsetsPerTrigger="10", subject="ORDERS.1", commitConsumer="spark")
    start = query.begin()
    for batches in (1, 2):
        start = query.next(start)
        query.reader.commit(start)
        info = api.ask("CONSUMER.INFO.ORDERS.spark")
        assert info["num_pending"] == 25 - 10 * batches
        assert info["ack_floor"]["stream_seq"] == info["delivered"]["stream_seq"] == seqs(start)["ORDERS"]
        assert info["num_ack_pending"] == 0
    end = query.next(start)
    query.next(end)  # the last batch of a run is never committed
    assert api.ask("CONSUMER.INFO.ORDERS.spark")["num_pending"] == 0


def test_a_consumer_of_others_is_left_alone(api: JetStreamApi) -> None:
    make(api)
    api.create_consumer("ORDERS", "spark", {"durable_name": "spark", "ack_policy": "explicit"})
    query = Query(api, commitConsumer="spark")
    with pytest.raises(OptionError, match="not of this source"):
        query.next(query.begin())
    assert api.ask("CONSUMER.INFO.ORDERS.spark")["num_pending"] == 100
    make(api, "KEPT", retention="interest", number=0)
    query = Query(api, stream="KEPT", commitConsumer="spark")
    with pytest.raises(OptionError, match="retention 'interest'"):
        query.next(query.begin())


def test_offsets_of_another_source_are_told(api: JetStreamApi) -> None:
    make(api, number=1)
    with pytest.raises(OptionError, match="checkpoint"):
        Query(api).next({"ORDERS": {"0": 23}})
