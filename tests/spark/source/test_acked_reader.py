"""A streaming read through a durable consumer, its calls made as Spark makes them, on both servers."""

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from natsctl.spark.source import durable
from natsctl.spark.source.data_source import JetStreamDataSource
from natsctl.spark.source.errors import ConsumerUnfitError, OptionError
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.link import Link, Message
from natsctl.testing.process import Kind, ServerProcess
from tests.spark.source.queries import ReaderQuery, closed
from tests.spark.source.streams import add, make, until
from tests.support.relay import Relay

__all__ = ["closed"]
QUEUE = {"retention": "workqueue"}
ACK_WAIT_NS = 60_000_000_000


def run_of(api: JetStreamApi | str, **options: str) -> ReaderQuery:
    """A run of a query, on the shared server unless another one is named."""
    given = {"ackMode": "explicit", "consumer": "SPARK", "numRetries": "1", "retryInterval": "10ms", **options}
    return ReaderQuery(api if isinstance(api, str) else api.link.settings.urls[0], **given)


def consumer(api: JetStreamApi, name: str = "SPARK", **config: Any) -> None:
    wanted = {"durable_name": name, "ack_policy": "explicit", "ack_wait": ACK_WAIT_NS, **config}
    api.create_consumer("ORDERS", name, wanted)


def left(api: JetStreamApi) -> tuple[int, int]:
    """How many messages the consumer has delivered without an ack, and how many it has not delivered."""
    info = api.ask("CONSUMER.INFO.ORDERS.SPARK")
    return info["num_ack_pending"], info["num_pending"]


@pytest.mark.both
def test_a_batch_is_acknowledged_when_the_next_one_begins_behind_it(api: JetStreamApi) -> None:
    make(api, number=10, **QUEUE)
    consumer(api)
    query = run_of(api, maxOffsetsPerTrigger="6")
    query.reader.prepareForTriggerAvailableNow()
    add(api, "ORDERS", 5)  # not available at the start of the run
    start = query.begin()
    middle = query.next(start)
    assert sorted(query.seqs(start, middle)) == [1, 2, 3, 4, 5, 6]
    assert query.next(start) == middle
    until(lambda: left(api) == (6, 9))
    end = query.next(middle)
    until(lambda: left(api) == (4, 5))
    assert sorted(query.seqs(middle, end)) == [7, 8, 9, 10]
    query.reader.commit(end)
    until(lambda: left(api) == (0, 5))
    until(lambda: api.stream_info("ORDERS")["state"]["messages"] == 5)
    assert query.next(end) == end
    assert end["acked"]["ORDERS"] | {"created": ""} == {
        "consumer": "SPARK", "taken": 10, "again": 0, "created": "", "acks": "$JS.ACK.ORDERS.SPARK", "held": [[7, 10]],
    }  # fmt: skip


@pytest.mark.both
def test_parts_give_the_same_rows_however_often_they_are_read(api: JetStreamApi) -> None:
    make(api, number=10)
    consumer(api)
    query = run_of(api, minPartitions="4", includeMetadata="true")
    start = query.begin()
    end = query.next(start)
    assert len(query.reader.partitions(start, end)) == 4
    first = query.rows(start, end)
    add(api, "ORDERS", 3)
    assert query.rows(start, end) == first
    assert [(row["seq"], row["subject"], row["value"]) for row in first] == [
        (seq, f"ORDERS.{(seq - 1) % 4}", b"x") for seq in range(1, 11)
    ]
    assert [(row["consumer"], row["delivered"], row["pending"]) for row in first[:2]] == [
        ("SPARK", 1, 9),
        ("SPARK", 1, 8),
    ]
    api.link.send(b"PUB %b 4\r\n+ACK\r\n" % first[0]["reply"].encode())
    until(lambda: left(api)[0] == 9)
    made = run_of(api, createConsumer="true", consumer="MADE", subject="ORDERS.1")
    start = made.begin()
    assert sorted(made.seqs(start, made.next(start))) == [2, 6, 10, 12]
    assert api.ask("CONSUMER.INFO.ORDERS.MADE")["config"]["max_ack_pending"] == 100_000


@pytest.mark.both
def test_what_a_killed_run_held_is_read_by_the_next_and_counted(
    api: JetStreamApi, caplog: pytest.LogCaptureFixture
) -> None:
    make(api, number=10, **QUEUE)
    consumer(api)
    killed = run_of(api, maxOffsetsPerTrigger="6")
    start = killed.begin()
    middle = killed.next(start)
    killed.reader.stop()
    again = run_of(api)
    again.reader.prepareForTriggerAvailableNow()
    with caplog.at_level(logging.WARNING, "pyspark_jetstream"):
        assert again.rows(start, middle) == []
    assert "6 messages that SPARK had delivered when the query ended are delivered again: this batch is empty" in (
        caplog.text
    )
    end, seqs = middle, list[int]()
    # nats-server carries a NAK out some time after it has read it: what was refused last may be in a later batch.
    while len(seqs) < 10:
        after = again.next(end)
        seqs += again.seqs(end, after)
        end = after
    assert sorted(seqs) == list(range(1, 11))
    assert (end["acked"]["ORDERS"]["taken"], end["acked"]["ORDERS"]["again"]) == (16, 6)
    assert again.next(end) == end
    until(lambda: left(api) == (0, 0))


@pytest.mark.both
def test_nothing_is_given_back_to_another_consumer_of_the_name(api: JetStreamApi) -> None:
    make(api, number=6)
    consumer(api)
    killed = run_of(api, maxOffsetsPerTrigger="2")
    start = killed.begin()
    middle = killed.next(start)
    api.delete_consumer("ORDERS", "SPARK")
    consumer(api)
    other = run_of(api)
    taken = other.next(other.begin())
    refused = run_of(api)
    assert refused.rows(start, middle) == []
    assert refused.next(middle) == middle
    assert sorted(other.seqs(other.begin(), taken)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.both
def test_a_batch_at_work_is_kept_in_progress(api: JetStreamApi, monkeypatch: pytest.MonkeyPatch) -> None:
    make(api, number=4, **QUEUE)
    consumer(api, ack_wait=1_000_000_000)
    reported: list[int] = []
    publish_all = durable.publish_all

    def counted(link: Any, subjects: Any, body: bytes) -> None:
        publish_all(link, subjects, body)
        reported.append(len(subjects))

    monkeypatch.setattr(durable, "publish_all", counted)
    query = run_of(api, maxOffsetsPerTrigger="3")
    start = query.begin()
    end = query.next(start)
    until(lambda: reported.count(3) >= 4)  # longer than the wait for an ack
    info = api.ask("CONSUMER.INFO.ORDERS.SPARK")
    assert (info["num_ack_pending"], info["num_redelivered"]) == (3, 0)
    assert sorted(query.seqs(start, end)) == [1, 2, 3]
    query.reader.commit(end)
    until(lambda: left(api) == (0, 1))


@pytest.mark.both
def test_large_batches_are_cut_by_bytes_and_a_message_above_them_is_read(api: JetStreamApi) -> None:
    make(api, number=0)
    add(api, "ORDERS", 6, b"x" * 30_000)
    consumer(api)
    query = run_of(api, maxBytesPerTrigger="70000")
    start = query.begin()
    sizes = []
    while (end := query.next(start)) != start:
        sizes.append(len(query.rows(start, end)))
        start = end
    assert sum(sizes) == 6
    assert max(sizes) <= 3
    tiny = run_of(api, maxBytesPerTrigger="1000")
    add(api, "ORDERS", 2, b"y" * 30_000)
    middle = tiny.next(end)
    assert len(tiny.rows(end, middle)) == 1


@pytest.mark.both
@pytest.mark.parametrize(
    ("status", "delivered", "more"),
    [
        (b"408 Request Timeout", 1, True),
        (b"408 Request Timeout", 0, False),
        (b"404 No Messages", 1, False),
        (b"409 Message Size Exceeds MaxBytes", 1, True),
        (b"", 1, True),
    ],
)
def test_a_pull_that_was_being_served_when_it_ended_has_more_to_come(
    api: JetStreamApi, monkeypatch: pytest.MonkeyPatch, status: bytes, delivered: int, more: bool
) -> None:
    make(api, number=1)
    consumer(api)
    found = [durable.Delivery(seq, b"", False, b"1", b"") for seq in range(delivered)]
    ended = Message(b"", b"", b"", b"NATS/1.0 %b\r\n\r\n" % status, b"") if status else None
    monkeypatch.setattr(durable.Durable, "_answers", lambda *_: (found, ended))
    assert durable.Durable("ORDERS", "SPARK").pull(api, durable.About(), 5, 100) == (found, more)


@pytest.mark.both
def test_a_lost_connection_loses_no_acknowledgement(
    api: JetStreamApi,
    server: ServerProcess,
) -> None:
    make(api, number=10, **QUEUE)
    consumer(api)
    with Relay(server.url) as proxy:
        query = run_of(proxy.url)
        start = query.begin()
        end = query.next(start)
        proxy.cut()
        query.reader.commit(end)
        until(lambda: left(api) == (0, 0))
        assert query.next(end) == end


EXPORTS = """
accounts {
  STORE: {
    users: [ { user: store, password: a } ], jetstream: enabled
    exports: [
      { service: "$JS.API.CONSUMER.MSG.NEXT.ORDERS.SPARK", response: stream }, { service: "$JS.ACK.ORDERS.SPARK.>" }
    ]
  }
  SHOP: {
    users: [ { user: shop, password: b } ]
    imports: [
      { service: { account: STORE, subject: "$JS.API.CONSUMER.MSG.NEXT.ORDERS.SPARK" },
        to: "JS.STORE.API.CONSUMER.MSG.NEXT.ORDERS.SPARK" }
      { service: { account: STORE, subject: "$JS.ACK.ORDERS.SPARK.>" } }
    ]
  }
}
"""


@pytest.mark.parametrize("kind", ["natsctl", pytest.param("reference", marks=pytest.mark.reference)])
def test_an_account_that_exports_a_consumer_alone_is_enough(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "accounts.conf").write_text(EXPORTS)
    with ServerProcess(tmp_path / "server", kind, "-c", str(tmp_path / "accounts.conf")) as process:
        owner = ServerSettings(urls=(process.url,), user="store", password="a")
        with Link.open(owner) as link:
            api = JetStreamApi(link, owner)
            make(api, number=10, **QUEUE)
            consumer(api)
            query = run_of(process.url, user="shop", password="b", apiPrefix="JS.STORE.API")
            start = query.begin()
            end = query.next(start)
            assert sorted(query.seqs(start, end)) == list(range(1, 11))
            assert query.reader.reportLatestOffset() is None
            query.reader.commit(end)
            until(lambda: left(api) == (0, 0))
            query.reader.stop()


@pytest.mark.both
@pytest.mark.parametrize(
    ("config", "options", "text"),
    [
        ({"name": "OTHER"}, {}, "ORDERS has no consumer SPARK"),
        ({"ack_policy": "none"}, {}, "ack policy 'none'"),
        ({"deliver_subject": "there"}, {}, "push consumer"),
        ({"filter_subject": "ORDERS.1"}, {"subject": "ORDERS.2"}, "delivers ORDERS.1, and option subject says"),
    ],
)
def test_a_consumer_that_cannot_be_acknowledged_to_is_refused(
    api: JetStreamApi, config: dict[str, Any], options: dict[str, str], text: str
) -> None:
    make(api, number=1)
    consumer(api, **config)
    with pytest.raises(ConsumerUnfitError, match=text):
        run_of(api, **options).begin()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"consumer": ""}, "needs a consumer"),
        ({"consumer": "a.b"}, "no name of a consumer"),
        ({"startingOffsets": "earliest"}, "startingOffsets has no effect with ackMode"),
        ({"ackMode": "none"}, "option consumer has no effect without ackMode=explicit"),
        ({"stream": "A,B"}, "reads one stream"),
    ],
)
def test_options_that_contradict_ack_mode_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        run_of("nats://127.0.0.1:1", **options).begin()


def test_a_batch_is_not_acknowledged_and_says_what_to_do_instead() -> None:
    source = JetStreamDataSource({"stream": "ORDERS", "ackMode": "explicit", "consumer": "SPARK"})
    with pytest.raises(OptionError, match="availableNow"):
        source.reader(StructType())


def test_offsets_of_another_read_are_refused() -> None:
    query = run_of("nats://127.0.0.1:1")
    ours = {"v": 1, "acked": {"ORDERS": {"consumer": "OTHER", "taken": 1, "again": 0}}}
    for strange in ({"v": 1, "streams": {}}, ours):
        with pytest.raises(OptionError, match="checkpoint of its own"):
            query.reader.partitions(strange, strange)
