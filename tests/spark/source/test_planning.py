"""Which ranges a batch reads, and how they are split: on both servers, by calling the planner."""

import itertools
import json

import pytest

from natsctl.spark.source import planning
from natsctl.spark.source.errors import DataLossError, OptionError, SequenceResetError, StreamNotFoundError
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.offsets import stream_state
from natsctl.spark.source.planning import StreamPart, Stretch, Wanted, batch_stretches, count, cut, parts
from natsctl.spark.source.read_request import Reading, reading_of
from natsctl.spark.source.source_options import BATCH_READ, Options, moment_ns
from tests.spark.source.streams import add, delete, make, purge

pytestmark = pytest.mark.both


def reading(**options: str) -> Reading:
    return reading_of(Options({"stream": "ORDERS", **options}, BATCH_READ))


def ranges(api: JetStreamApi, wanted: Wanted | None = None, **options: str) -> list[tuple[str, int, int]]:
    stretches = batch_stretches(api, reading(**options), wanted or Wanted())
    return [(each.state.name, each.first, each.last) for each in stretches]


def test_a_batch_reads_from_the_first_to_the_last(api: JetStreamApi) -> None:
    make(api)
    purge(api, 11)
    assert ranges(api) == [("ORDERS", 11, 100)]
    assert ranges(api, startingOffsets="latest") == [("ORDERS", 101, 100)]
    offsets = {"startingOffsets": '{"ORDERS": 20}', "endingOffsets": '{"ORDERS": 30}'}
    assert ranges(api, **offsets) == [("ORDERS", 20, 30)]
    assert ranges(api, startingOffsets='{"ORDERS": -1}', endingOffsets='{"ORDERS": -1}') == [("ORDERS", 101, 100)]
    assert ranges(api, endingOffsets='{"ORDERS": -2}') == [("ORDERS", 11, 10)]


def test_times_are_sequences_and_the_end_is_before_them(api: JetStreamApi) -> None:
    make(api, number=5)
    add(api, "ORDERS", 5)
    moment = api.ask("STREAM.MSG.GET.ORDERS", {"seq": 6})["message"]["time"]
    assert ranges(api, startingTimestamp=moment) == [("ORDERS", 6, 10)]
    assert ranges(api, endingTimestamp=moment) == [("ORDERS", 1, 5)]
    late = {"startingTimestamp": "2100-01-01T00:00:00Z"}
    with pytest.raises(OptionError, match="no message as late as that"):
        ranges(api, **late)
    assert ranges(api, **late, startingOffsetsByTimestampStrategy="latest") == [("ORDERS", 11, 10)]


def test_each_stream_may_begin_and_end_at_a_time_of_its_own(api: JetStreamApi) -> None:
    moments = {}
    for name in ("BILLS", "ORDERS"):
        make(api, name, number=5)
        add(api, name, 5)
        moments[name] = api.ask(f"STREAM.MSG.GET.{name}", {"seq": 6})["message"]["time"]
    streams = {"stream": "BILLS,ORDERS"}
    both = {"startingOffsetsByTimestamp": json.dumps(moments)}
    assert ranges(api, **streams, **both) == [("BILLS", 6, 10), ("ORDERS", 6, 10)]
    one = {"startingOffsetsByTimestamp": json.dumps({"ORDERS": moments["ORDERS"]}), "startingOffsets": '{"BILLS": 3}'}
    assert ranges(api, **streams, **one) == [("BILLS", 3, 10), ("ORDERS", 6, 10)]
    ends = {"endingOffsetsByTimestamp": json.dumps({"BILLS": moments["BILLS"]})}
    assert ranges(api, **streams, **ends) == [("BILLS", 1, 5), ("ORDERS", 1, 10)]
    assert ranges(api, **streams, **both, startingTimestamp="1970-01-01T00:00:00Z")[0] == ("BILLS", 1, 10)
    late = {"startingOffsetsByTimestamp": '{"ORDERS": "2100-01-01T00:00:00Z"}'}
    with pytest.raises(OptionError, match="option startingOffsetsByTimestamp: ORDERS has no message as late"):
        ranges(api, **streams, **late)
    with pytest.raises(OptionError, match="option startingOffsetsByTimestamp: BILLS is not read"):
        ranges(api, stream="ORDERS", **both)


def test_what_is_asked_for_and_gone_is_a_loss(api: JetStreamApi) -> None:
    make(api)
    purge(api, 51)
    with pytest.raises(DataLossError, match=r"ORDERS: sequences 1\.\.50 were purged or deleted"):
        ranges(api, startingOffsets='{"ORDERS": 1}')
    assert ranges(api, startingOffsets='{"ORDERS": 1}', failOnDataLoss="false") == [("ORDERS", 51, 100)]
    with pytest.raises(SequenceResetError, match="option endingOffsets: it says 120, and ORDERS ends at 100"):
        ranges(api, endingOffsets='{"ORDERS": 120}')
    with pytest.raises(SequenceResetError, match="option startingOffsets: it says 120, and ORDERS ends at 100"):
        ranges(api, startingOffsets='{"ORDERS": 120}')


def test_streams_are_named_or_found_by_a_pattern(api: JetStreamApi) -> None:
    make(api, number=1)
    make(api, "ORDERS_EU", number=2)
    make(api, "BILLS", number=3)
    assert ranges(api, stream="BILLS,ORDERS") == [("BILLS", 1, 3), ("ORDERS", 1, 1)]
    assert ranges(api, stream="", streamPattern="ORDERS*") == [("ORDERS", 1, 1), ("ORDERS_EU", 1, 2)]
    with pytest.raises(StreamNotFoundError, match=r"no stream has a name like 'X\*'"):
        ranges(api, stream="", streamPattern="X*")
    for name in ("ORDERS*", "OR.DERS", "ORDERS>"):
        with pytest.raises(
            OptionError, match=r"option stream: .* is no name of a stream: it has no blanks, dots or wildcards"
        ):
            ranges(api, stream=name)
    with pytest.raises(StreamNotFoundError, match="NONE"):
        ranges(api, stream="NONE")
    with pytest.raises(OptionError, match="BILLS is not read; read are ORDERS"):
        ranges(api, startingOffsets='{"BILLS": 1}')


def test_what_is_pushed_down_narrows_the_range_and_loses_nothing(api: JetStreamApi) -> None:
    make(api, number=11)
    purge(api, 5)
    add(api, "ORDERS", 1)
    add(api, "ORDERS", 8)
    assert ranges(api, Wanted(first=2, last=9)) == [("ORDERS", 5, 9)]
    assert ranges(api, Wanted(first=9, last=2)) == []
    assert ranges(api, Wanted(streams=("BILLS",))) == []
    moment = api.ask("STREAM.MSG.GET.ORDERS", {"seq": 12})["message"]["time"]
    at = moment_ns(moment)
    assert ranges(api, Wanted(since_ns=at)) == [("ORDERS", 12, 20)]
    assert ranges(api, Wanted(until_ns=at)) == [("ORDERS", 5, 12)]


def test_a_range_without_gaps_is_split_evenly_and_counted_without_asking(
    api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(api)
    monkeypatch.setattr(JetStreamApi, "counted", None)
    assert len(split(api, minPartitions="8")) == 1, "few messages are one task"
    monkeypatch.setattr(planning, "MESSAGES_PER_TASK", 10)
    found = split(api, minPartitions="4")
    assert [(each.todo.first, each.todo.last, each.expected) for each in found] == [
        (1, 25, 25),
        (26, 50, 25),
        (51, 75, 25),
        (76, 100, 25),
    ]


def split(api: JetStreamApi, **options: str) -> list[StreamPart]:
    chosen = reading(**options)
    return parts(api, batch_stretches(api, chosen, Wanted()), chosen, chosen.filters)


def test_a_range_with_gaps_is_split_by_its_messages(api: JetStreamApi, monkeypatch: pytest.MonkeyPatch) -> None:
    make(api)
    delete(api, *range(11, 91))
    monkeypatch.setattr(planning, "MESSAGES_PER_TASK", 5)
    found = split(api, minPartitions="2")
    assert [each.expected for each in found] == [10, 10]
    assert (found[0].todo.first, found[-1].todo.last) == (1, 100)
    assert 10 <= found[0].todo.last < 91


def test_filtered_messages_are_counted(api: JetStreamApi, monkeypatch: pytest.MonkeyPatch) -> None:
    make(api)
    monkeypatch.setattr(planning, "MESSAGES_PER_TASK", 5)
    found = split(api, minPartitions="2", subject="ORDERS.1,ORDERS.2", endingOffsets='{"ORDERS": 40}')
    assert sum(each.expected or 0 for each in found) == 20
    assert all(each.todo.filters == ("ORDERS.1", "ORDERS.2") for each in found)
    assert api.stream_info("ORDERS")["state"]["consumer_count"] == 0


def test_a_count_of_none_is_not_believed_since_a_lagging_replica_may_have_counted(api: JetStreamApi) -> None:
    make(api)
    found = split(api, subject="ORDERS.9")
    assert [(each.todo.first, each.todo.last, each.expected) for each in found] == [(1, 100, None)]


def test_parts_follow_each_other_and_tasks_are_shared_by_size(
    api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(api, number=90)
    make(api, "BILLS", number=30)
    monkeypatch.setattr(planning, "MESSAGES_PER_TASK", 5)
    found = split(api, stream="ORDERS,BILLS", minPartitions="4")
    by_stream = {name: list(each) for name, each in itertools.groupby(found, lambda part: part.todo.stream)}
    assert {name: len(each) for name, each in by_stream.items()} == {"ORDERS": 3, "BILLS": 1}
    for one, other in itertools.pairwise(by_stream["ORDERS"]):
        assert other.todo.first == one.todo.last + 1


@pytest.mark.parametrize("wanted", [1, 7, 20])
def test_a_cut_by_count_takes_no_more_than_asked_and_nearly_as_much(api: JetStreamApi, wanted: int) -> None:
    make(api)
    stretch = Stretch(stream_state(api.stream_info("ORDERS")), 3, 98)
    filters = ("ORDERS.1",)
    total = count(api, stretch, filters)
    assert total == 24
    last, held = cut(api, stretch, filters, wanted, total)
    assert held is not None
    assert wanted * planning.CLOSE_ENOUGH <= held <= wanted
    assert count(api, Stretch(stretch.state, 3, last), filters) == held
    assert cut(api, stretch, filters, 50, total) == (98, 24)


def test_where_no_consumer_may_be_made_sequences_stand_for_messages(
    api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(api, retention="workqueue", max_consumers=1)
    api.create_consumer("ORDERS", "worker", {"durable_name": "worker", "ack_policy": "explicit"})
    monkeypatch.setattr(planning, "MESSAGES_PER_TASK", 10)
    found = split(api, subject="ORDERS.1", minPartitions="2")
    assert [(each.todo.first, each.todo.last, each.expected) for each in found] == [(1, 50, None), (51, 100, None)]


def test_no_part_has_more_messages_than_is_allowed(api: JetStreamApi) -> None:
    make(api)
    found = split(api, maxRecordsPerPartition="30")
    assert [(each.todo.first, each.todo.last) for each in found] == [(1, 25), (26, 50), (51, 75), (76, 100)]
    delete(api, *range(20, 60))
    held = [each.expected or 0 for each in split(api, maxRecordsPerPartition="7", minPartitions="2")]
    assert sum(held) == 60
    assert max(held) <= 7


def test_large_reads_are_split_further_than_the_driver_has_cores(
    api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(api)
    monkeypatch.setattr(planning, "MESSAGES_PER_TASK", 5)
    monkeypatch.setattr(planning, "MESSAGES_PER_PART", 10)
    monkeypatch.setattr(planning, "cores", lambda: 2)
    assert len(split(api)) == 10
    monkeypatch.setattr(planning, "cores", lambda: 16)
    assert len(split(api)) == 16
    monkeypatch.setattr(planning, "MAX_PARTS", 3)
    monkeypatch.setattr(planning, "cores", lambda: 2)
    assert len(split(api)) == 3
    assert len(split(api, minPartitions="8")) == 8
