"""Blocks of natsctl's log: the same rows as by a consumer, wherever they are offered."""

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest

from natsctl.spark.source.errors import ApiRefusedError, StreamRecreatedError
from natsctl.spark.source.fetch import FrameCutter, read_range
from natsctl.spark.source.fetch_task import FetchLimits, ReadInterruptedError, ReadRange
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.rows import RowShape
from natsctl.store import frame
from natsctl.testing.process import ServerProcess
from tests.spark.source.reads import SEQS, SOME_KIB, fill, sent_by, seqs, shape
from tests.spark.source.streams import add, delete, make, purge, remake, until
from tests.support.relay import Relay

# Cutting

Row = tuple[int, int, bytes, bytes, bytes]


def framed(row: Row) -> bytes:
    seq, ts_ns, subject, header, payload = row
    flags = frame.HAS_HEADER | frame.TIMED if header else frame.MORE
    rest = (frame.HEADER_LENGTH.pack(len(header)) + header if header else b"") + payload
    body = frame.BODY.pack(frame.MSG, flags, len(subject), seq, ts_ns, seq) + subject + rest
    length = len(body) + frame.PREFIX.size
    return frame.PREFIX.pack(frame.MAGIC, length, crc32(body)) + body


def block(rows: list[Row]) -> bytes:
    frames = [framed(row) for row in rows]
    sizes = [len(each) - frame.FRAME_OVER_SIZE for each in frames]
    return struct.pack(f"<{len(rows) + 1}I", len(rows), *sizes) + b"".join(frames)


def texts(column: Any, number: int) -> list[bytes]:
    """Return a column of bytes, which may be empty as a whole."""
    found = column.to_pylist() if isinstance(column, pa.Array) else list(column)
    return found or [b""] * number


@pytest.fixture(params=["by the native module", "by Arrow"])
def cutter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FrameCutter:
    if request.param == "by Arrow":
        monkeypatch.setattr("natsctl.native.lib", None)
    return FrameCutter(shape())


def test_frames_become_columns_whatever_they_hold(cutter: FrameCutter) -> None:
    chance = random.Random(7)
    for number in (0, 1, 2, 50):
        for likely in (0.0, 0.5, 1.0):
            rows = [
                (
                    seq + (1 << 62) * (seq % 3 == 2),
                    chance.randrange(-5, 1 << 62),
                    chance.randbytes(chance.choice((1, 2, 7, 300))),
                    b"NATS/1.0\r\n\r\n" if chance.random() < likely else b"",
                    chance.randbytes(chance.choice((0, 1, 3, 5000))),
                )
                for seq in range(number)
            ]
            found = cutter.rows(block(rows))
            columns = [texts(each, number) for each in (found.subjects, found.headers, found.values)]
            assert found.times_ns is not None
            assert [*zip(found.seqs.to_pylist(), found.times_ns.to_pylist(), *columns, strict=True)] == rows


MAGIC = struct.pack("<I", frame.MAGIC)


def changed(data: bytes, offset: int, new: bytes) -> bytes:
    """The data with other bytes in the body of its first frame."""
    at = data.index(MAGIC) + frame.PREFIX.size + offset
    return data[:at] + new + data[at + len(new) :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[:-1],
    "cut in the sizes": lambda data: data[:9],
    "lengthened": lambda data: data + b"x",
    "of another kind": lambda data: changed(data, 0, bytes([frame.ERASED])),
    "subject too long": lambda data: changed(data, 2, b"\xff\xff"),
    "header too long": lambda data: data.replace(struct.pack("<I", 12) + b"NATS", b"\xff\xff\xff\xffNATS"),
    "without magic": lambda data: data.replace(MAGIC, b"none", 1),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_no_frame_is_not_cut(name: str, cutter: FrameCutter) -> None:
    data = block([(seq, seq, b"s", b"NATS/1.0\r\n\r\n", b"x") for seq in range(1, 4)])
    assert DAMAGES[name](data) != data
    with pytest.raises(ReadInterruptedError):
        cutter.rows(DAMAGES[name](data))


# Reading


def ways(sent: list[bytes]) -> set[str]:
    verbs = {"blocks": b".STREAM.BLOCKS.", "consumer": b".CONSUMER.CREATE.", "direct": b".DIRECT.GET."}
    return {way for way, verb in verbs.items() if any(verb in data for data in sent)}


@pytest.mark.both
def test_blocks_are_read_where_they_are_offered(
    api: JetStreamApi,
    server: ServerProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = server.kind == "natsctl"
    for name, config, otherwise in (
        ("A", {"allow_direct": True}, "direct"),
        ("B", {"retention": "workqueue", "allow_direct": True}, "direct"),
        ("C", {}, "consumer"),
    ):
        make(api, name, 20, **config)
        sent = sent_by(monkeypatch)
        assert seqs(api.link.settings, ReadRange(name, 1, 20)) == list(range(1, 21))
        assert ways(sent) == {"blocks" if ours else otherwise}
        if not ours:
            with pytest.raises(ApiRefusedError, match="only natsctl's server"):
                seqs(api.link.settings, ReadRange(name, 1, 20, (), "blocks"))
    make(api, "M", 20, storage="memory")
    sent = sent_by(monkeypatch)
    assert seqs(api.link.settings, ReadRange("M", 1, 20)) == list(range(1, 21))
    assert ways(sent) == {"consumer"}
    with pytest.raises(ApiRefusedError, match="no blocks to read"):
        seqs(api.link.settings, ReadRange("M", 1, 20, (), "blocks"))
    for name in "ABCM":
        api.ask(f"STREAM.DELETE.{name}")


def table(settings: ServerSettings, todo: ReadRange, wanted: RowShape, limits: FetchLimits) -> pa.Table:
    batches = list(read_range(settings, todo, limits, wanted))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, wanted.arrow_schema)


@pytest.mark.parametrize("compression", ["none", "s2"])
def test_rows_are_those_of_a_consumer(api: JetStreamApi, compression: str) -> None:
    chance = random.Random(compression)
    limits = {"allow_rollup_hdrs": True, "allow_msg_ttl": True, "max_msgs_per_subject": 150}
    make(api, number=0, compression=compression, **limits)
    frames = []
    for _ in range(1500):
        head = chance.choice((b"", b"", b"A: b\r\n", b"A: b\r\nC: d\r\n", b"Nats-TTL: never\r\n"))
        if chance.random() < 0.003:
            head = b"Nats-Rollup: sub\r\n"
        head = b"NATS/1.0\r\n%b\r\n" % head if head else b""
        body = chance.randbytes(chance.choice((0, 1, 128, 128, 5000)))
        sizes = b"%d %d" % (len(head), len(head) + len(body)) if head else b"%d" % len(body)
        verb = b"HPUB" if head else b"PUB"
        frames.append(b"%b ORDERS.%d %b\r\n%b%b\r\n" % (verb, chance.randrange(9), sizes, head, body))
    api.link.send(b"".join(frames))
    until(lambda: bool(api.stream_info("ORDERS")["state"]["last_seq"] == 1500))
    there = seqs(api.link.settings, ReadRange("ORDERS", 1, 1500, (), "consumer"))
    assert len(there) > 500
    delete(api, *chance.sample(there, 20))
    purge(api, 100)
    api.ask("STREAM.PURGE.ORDERS", {"filter": "ORDERS.4", "keep": 5})
    wanted = [
        shape(),
        shape("seq bigint, value binary"),
        shape("subject string, headers array<struct<key:string,value:binary>>"),
    ]
    for number, filters in enumerate(((), ("ORDERS.1",), ("ORDERS.2", "ORDERS.4"), ("ORDERS.*",), ("OTHER.>",))):
        first, last = (150 * number, 1600) if number % 2 else (1, 1100)
        for most in (8 << 20, 20_000):
            todo, columns = ReadRange("ORDERS", first, last, filters), wanted[number % 3]
            one = table(api.link.settings, replace(todo, transport="blocks"), columns, FetchLimits(bytes=most))
            assert one.equals(table(api.link.settings, replace(todo, transport="consumer"), columns, FetchLimits()))
            assert one.num_rows or filters == ("OTHER.>",)


def test_payloads_that_nobody_wants_are_left_out_by_a_consumer_where_they_are_large(
    api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(api, number=6)
    for body, way in ((b"x", "blocks"), (SOME_KIB * 20, "consumer")):
        add(api, "ORDERS", 6, body)
        last = api.stream_info("ORDERS")["state"]["last_seq"]
        sent = sent_by(monkeypatch)
        assert seqs(api.link.settings, ReadRange("ORDERS", 1, last), wanted=shape("seq bigint")) == list(
            range(1, last + 1)
        )
        assert ways(sent) == {way}


def test_a_stream_made_again_meanwhile_is_not_taken_for_the_first(api: JetStreamApi) -> None:
    fill(api, 2000)
    created = api.stream_info("ORDERS")["created"]

    def look(answer: dict[str, Any]) -> None:
        if answer["created"] != created:
            raise StreamRecreatedError("another one")

    for known in (look, None):
        todo = ReadRange("ORDERS", 1, 2000, (), "blocks")
        batches = read_range(api.link.settings, todo, FetchLimits(bytes=100_000), SEQS, known)
        found = [next(batches).column("seq")[0].as_py()]
        remake(api, number=2000)
        if known:
            with pytest.raises(StreamRecreatedError):
                list(batches)
            created = api.stream_info("ORDERS")["created"]
        else:
            found += [seq for batch in batches for seq in batch.column("seq").to_pylist()]
            assert found[-1] == 2000


def test_blocks_that_do_not_come_through_give_way_to_a_consumer(api: JetStreamApi) -> None:
    make(api, number=50)
    with Relay(api.link.settings.urls[0]) as proxy:
        proxy.to_server = lambda data: b"" if b"STREAM.BLOCKS" in data else data
        beside = replace(api.link.settings, urls=(proxy.url,), retries=0)
        assert seqs(beside, ReadRange("ORDERS", 1, 50), FetchLimits(timeout_s=0.5)) == list(range(1, 51))


def test_messages_larger_than_a_block_come_alone(api: JetStreamApi) -> None:
    make(api, number=3)
    add(api, "ORDERS", 3, SOME_KIB * 500)
    batches = list(
        read_range(api.link.settings, ReadRange("ORDERS", 1, 6, (), "blocks"), FetchLimits(bytes=500_000), SEQS)
    )
    assert [batch.column("seq").to_pylist() for batch in batches] == [[1, 2, 3], [4], [5], [6]]
    assert all(len(value) == 1_000_000 for batch in batches[1:] for value in batch.column("value").to_pylist())
