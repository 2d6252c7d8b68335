"""Ranges are read whole, in order, once, by whatever way, and nothing is left behind."""

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pytest

from natsctl.spark.source.errors import ApiRefusedError, StreamNotFoundError
from natsctl.spark.source.fetch import read_range
from natsctl.spark.source.fetch_task import FetchLimits, ReadRange, Transport
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.rows import DamagedPayloadError
from tests.spark.source.reads import FEW, SEQS, SOME_KIB, TRANSPORTS, consumers, fill, sent_by, seqs, shape
from tests.spark.source.streams import delete, make, purge, until

pytestmark = pytest.mark.both

# What is read


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("limits", [FetchLimits(), FEW])
def test_a_range_is_read_and_nothing_beside_it(api: JetStreamApi, transport: Transport, limits: FetchLimits) -> None:
    make(api, number=100, allow_direct=True)
    assert seqs(api.link.settings, ReadRange("ORDERS", 11, 90, (), transport), limits) == list(range(11, 91))
    assert seqs(api.link.settings, ReadRange("ORDERS", 100, 100, (), transport), limits) == [100]
    assert seqs(api.link.settings, ReadRange("ORDERS", 91, 90, (), transport), limits) == []
    assert seqs(api.link.settings, ReadRange("ORDERS", 1, 500, (), transport), limits) == list(range(1, 101))
    assert seqs(api.link.settings, ReadRange("ORDERS", 101, 500, (), transport), limits) == []
    assert consumers(api) == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_gaps_are_stepped_over(api: JetStreamApi, transport: Transport) -> None:
    make(api, number=100, allow_direct=True)
    purge(api, 20)
    delete(api, 21, 40, 41, 42, 99, 100)
    expected = [seq for seq in range(20, 99) if seq not in (21, 40, 41, 42)]
    assert seqs(api.link.settings, ReadRange("ORDERS", 1, 100, (), transport), FEW) == expected
    assert seqs(api.link.settings, ReadRange("ORDERS", 40, 42, (), transport)) == []
    assert consumers(api) == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("number", "limits"), [(40, FEW), (400, FetchLimits())])
def test_subjects_are_chosen(api: JetStreamApi, transport: Transport, number: int, limits: FetchLimits) -> None:
    make(api, number=number, allow_direct=True)
    for filters, kinds in (
        (("ORDERS.1",), [1]),
        (("ORDERS.1", "ORDERS.2"), [1, 2]),
        (("ORDERS.*",), [0, 1, 2, 3]),
        (("ORDERS.9",), []),
    ):
        expected = [seq for seq in range(3, number - 1) if (seq - 1) % 4 in kinds]
        assert seqs(api.link.settings, ReadRange("ORDERS", 3, number - 2, filters, transport), limits) == expected
    assert consumers(api) == 0


@pytest.mark.parametrize("transport", TRANSPORTS[:3])
@pytest.mark.parametrize("filters", [("ORDERS.1",), ("ORDERS.1", "ORDERS.2")])
def test_a_range_that_ends_with_other_subjects_is_not_looked_for_in_the_rest_of_the_stream(
    api: JetStreamApi,
    transport: Transport,
    filters: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(api, number=4000, allow_direct=True)
    sent = sent_by(monkeypatch)
    expected = [seq for seq in range(1, 101) if (seq - 1) % 4 in range(1, 1 + len(filters))]
    assert seqs(api.link.settings, ReadRange("ORDERS", 1, 100, filters, transport)) == expected
    assert sum(b".MSG.NEXT." in each or b".DIRECT.GET." in each for each in sent) <= 3


def together(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows as one batch: a server that is slow makes several of few messages."""
    (batch,) = pa.Table.from_batches(list(batches)).combine_chunks().to_batches()
    return batch


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_row_is_the_message(api: JetStreamApi, transport: Transport) -> None:
    make(api, number=0, allow_direct=True)
    block = b"NATS/1.0\r\nA: b\r\nA: c\r\n\r\n"
    api.link.request("ORDERS.a", b"\r\nMSG x 1 0\r\n\r\n", headers=block)
    api.link.request("ORDERS.b", b"")
    api.link.request("ORDERS.c", b"", headers=b"NATS/1.0\r\nNats-Stream: other\r\n\r\n")
    batch = together(read_range(api.link.settings, ReadRange("ORDERS", 1, 3, (), transport), FetchLimits(), shape()))
    batch.validate(full=True)
    pairs = [{"key": "A", "value": b"b"}, {"key": "A", "value": b"c"}]
    assert batch.column("headers").to_pylist() == [pairs, None, [{"key": "Nats-Stream", "value": b"other"}]]
    assert batch.column("subject").to_pylist() == ["ORDERS.a", "ORDERS.b", "ORDERS.c"]
    assert batch.column("value").to_pylist() == [b"\r\nMSG x 1 0\r\n\r\n", b"", b""]
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert [found.time_ns // 1000 for seq in (1, 2, 3) if (found := api.message("ORDERS", {"seq": seq}))] == times


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_subjects_are_read_as_they_are(api: JetStreamApi, transport: Transport) -> None:
    make(api, number=0, allow_direct=True)
    names = ["ORDERS.\v.b\f", "ORDERS.\x01\x1f", "ORDERS.\x85\xa0", "ORDERS.ü漢", "ORDERS.a>*"]
    for name in names:
        api.link.request(name, b"x")
    assert [
        subject
        for batch in read_range(
            api.link.settings, ReadRange("ORDERS", 1, len(names), (), transport), FetchLimits(), shape()
        )
        for subject in batch.column("subject").to_pylist()
    ] == names


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_headers_are_read_without_payloads_in_large_windows_too(api: JetStreamApi, transport: Transport) -> None:
    make(api, number=0, allow_direct=True)
    block = b"NATS/1.0\r\nA: b\r\n\r\n"
    frames = [b"HPUB ORDERS.a %d %d\r\n%b\r\n" % (len(block), len(block), block), b"PUB ORDERS.b 1\r\ny\r\n"]
    api.link.send(b"".join(frames) * 200)
    until(lambda: bool(api.stream_info("ORDERS")["state"]["last_seq"] == 400))
    wanted = shape("headers array<struct<key: string, value: binary>>")
    batches = read_range(api.link.settings, ReadRange("ORDERS", 1, 400, (), transport), FetchLimits(), wanted)
    found = [row for batch in batches for row in batch.column("headers").to_pylist()]
    assert found == [[{"key": "A", "value": b"b"}], None] * 200


@pytest.mark.parametrize("transport", TRANSPORTS[:3])
def test_large_windows_are_read(api: JetStreamApi, transport: Transport) -> None:
    fill(api, 3000)
    limits = FetchLimits(messages=1000, bytes=1 << 19)
    assert seqs(api.link.settings, ReadRange("ORDERS", 1, 3000, (), transport), limits) == list(range(1, 3001))
    assert seqs(api.link.settings, ReadRange("ORDERS", 1, 3000, (), transport), wanted=shape("seq bigint")) == list(
        range(1, 3001)
    )


@pytest.mark.parametrize("transport", TRANSPORTS[:3])
def test_messages_larger_than_a_request_are_read(api: JetStreamApi, transport: Transport) -> None:
    make(api, number=10, allow_direct=True)
    for _ in range(3):
        api.link.request("ORDERS.large", SOME_KIB)
    api.link.request("ORDERS.small", b"x")
    found = seqs(api.link.settings, ReadRange("ORDERS", 1, 14, (), transport), FetchLimits(messages=5, bytes=500))
    assert found == list(range(1, 15))


# Which way


def test_a_stream_that_lives_by_acknowledgements_is_read_without_a_consumer(api: JetStreamApi) -> None:
    for direct in (True, False):
        make(api, number=100, retention="workqueue", allow_direct=direct)
        assert seqs(api.link.settings, ReadRange("ORDERS", 1, 100)) == list(range(1, 101))
        assert api.stream_info("ORDERS")["state"]["messages"] == 100
        with pytest.raises(ApiRefusedError):
            seqs(api.link.settings, ReadRange("ORDERS", 1, 100, (), "consumer"))
        api.ask("STREAM.DELETE.ORDERS")
    make(api, number=0, retention="interest", allow_direct=True)
    api.create_consumer("ORDERS", "other", {"durable_name": "other", "ack_policy": "explicit"})
    for _ in range(20):
        api.link.request("ORDERS.1", b"x")
    assert seqs(api.link.settings, ReadRange("ORDERS", 1, 20)) == list(range(1, 21))
    assert api.stream_info("ORDERS")["state"]["messages"] == 20


def test_a_stream_with_all_its_consumers_is_read_directly(api: JetStreamApi) -> None:
    make(api, number=6000, allow_direct=True, max_consumers=1)
    api.create_consumer("ORDERS", "other", {"durable_name": "other", "ack_policy": "explicit"})
    assert seqs(api.link.settings, ReadRange("ORDERS", 1, 6000)) == list(range(1, 6001))
    with pytest.raises(ApiRefusedError, match="maximum consumers"):
        seqs(api.link.settings, ReadRange("ORDERS", 1, 6000, (), "consumer"))


def test_direct_gets_that_are_not_allowed_and_a_stream_that_is_not_there_are_told(api: JetStreamApi) -> None:
    make(api, number=5)
    with pytest.raises(ApiRefusedError, match="set allow_direct"):
        seqs(api.link.settings, ReadRange("ORDERS", 1, 5, (), "direct"))
    assert seqs(api.link.settings, ReadRange("ORDERS", 1, 5)) == [1, 2, 3, 4, 5]
    for transport in ("auto", "consumer", "get"):
        with pytest.raises(StreamNotFoundError):
            seqs(api.link.settings, ReadRange("NOTHING", 1, 5, (), transport))


def test_mirrors_that_answer_for_a_stream_are_not_taken_for_it(api: JetStreamApi) -> None:
    make(api, number=40, allow_direct=True)
    for kind in (0, 1):
        mirror = {"mirror": {"name": "ORDERS", "filter_subject": f"ORDERS.{kind}"}, "mirror_direct": True}
        api.ask(f"STREAM.CREATE.M{kind}", {"name": f"M{kind}", **mirror})
        until(lambda: bool(api.stream_info(f"M{kind}")["state"]["messages"] == 10))  # noqa: B023  # waited for here
    for _ in range(20):
        assert seqs(api.link.settings, ReadRange("ORDERS", 1, 40)) == list(range(1, 41))
        assert api.counted("ORDERS", 11) == 30
        assert api.counted("ORDERS", 39) == 2
    for kind in (0, 1):
        api.ask(f"STREAM.DELETE.M{kind}")


# No trace


def test_a_read_that_is_given_up_leaves_no_consumer(api: JetStreamApi) -> None:
    fill(api, 3000)
    batches = read_range(api.link.settings, ReadRange("ORDERS", 1, 3000, (), "consumer"), FetchLimits(), SEQS)
    assert next(iter(batches)).num_rows < 3000
    assert consumers(api) == 1
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert consumers(api) == 0


def test_a_read_that_fails_leaves_no_consumer(api: JetStreamApi) -> None:
    make(api, number=10)
    wanted = replace(shape(valueMode="failfast"), compression="gzip")
    with pytest.raises(DamagedPayloadError, match="message ORDERS 1: "):
        list(read_range(api.link.settings, ReadRange("ORDERS", 1, 10), FetchLimits(), wanted))
    assert consumers(api) == 0
