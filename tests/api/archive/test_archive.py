"""Archives of both formats: what is written is read, however it arrives, and what is damaged is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.archive import consumer_file, tar
from natsctl.api.archive.archive import (
    ArchivedConsumer,
    ArchivedMessage,
    ArchivedStream,
    ArchiveError,
    Gone,
    Item,
    Progress,
    uvarint,
)
from natsctl.api.archive.archive_reader import ArchiveReader
from natsctl.api.archive.archive_v1 import LARGE_BLOCK_BYTES, WriterV1, hasher_of
from natsctl.api.archive.archive_v2 import MAGIC, WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.consumer import AckPolicy, ConsumerConfig
from natsctl.api.stream import StreamConfig, StreamState
from natsctl.api.subject_index import finish
from tests.support import tiers

DATA = Path(__file__).parents[2] / "jetstream" / "data"
SECOND = 1_000_000_000
WRITERS: list[Callable[[], WriterV1 | WriterV2]] = [WriterV1, WriterV2]
HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"
CONSUMER = ArchivedConsumer(
    "C",
    ConsumerConfig(durable_name="C", name="C", ack_policy=AckPolicy.EXPLICIT),
    Progress(10, 12, 4, 6, {7: (5, 3 * SECOND), 9: (7, 8 * SECOND)}, {9: 2}),
    5 * SECOND,
)
MESSAGES = [
    ArchivedMessage(3, 10, b"a.b", b"", b"one"),
    ArchivedMessage(4, 11, b"a.c", HEADER, b""),
    ArchivedMessage(9, 12, "é".encode(), HEADER, b"two" * 100),
]


def written(
    writer: WriterV1 | WriterV2,
    messages: list[ArchivedMessage],
    consumers: Iterable[ArchivedConsumer] = (),
    last: tuple[int, int] | None = None,
) -> bytes:
    consumers = list(consumers)
    end = last or ((messages[-1].seq, messages[-1].ts_ns) if messages else (0, 0))
    first_seq = messages[0].seq if messages else end[0] + 1 if end[0] else 0
    state = StreamState(messages=len(messages), first_seq=first_seq, last_seq=end[0])
    head = ArchivedStream(StreamConfig(name="S", subjects=["a.>"]), 7 * SECOND, state)
    frames = FrameWriter()
    pieces = (piece for message in messages for piece in writer.messages([message]))
    parts = [*writer.beginning(head, consumers), *pieces, *writer.end(*end)]
    return b"".join(frames.write(part) for part in parts if part)


def read(data: bytes, step: int = 1 << 20) -> list[Item | ArchivedMessage]:
    reader = ArchiveReader()
    items: list[Item | ArchivedMessage] = []
    for at in range(0, len(data), step):
        for item in reader.read(data[at : at + step]):
            items.extend(item if isinstance(item, Sequence) else [item])
    reader.finish()
    return items


def plain(content: bytes) -> bytes:
    return FrameWriter().write(content)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_everything_comes_back_in_pieces_of_any_size(writer: Callable[[], WriterV1 | WriterV2], step: int) -> None:
    items = read(written(writer(), MESSAGES, [CONSUMER]), step)
    assert [item for item in items if isinstance(item, ArchivedMessage)] == MESSAGES
    (consumer,) = (item for item in items if isinstance(item, ArchivedConsumer))
    assert consumer == CONSUMER


def test_version_one_keeps_configuration_and_creation() -> None:
    (head, *_) = read(written(WriterV1(), MESSAGES))
    assert head == ArchivedStream(StreamConfig(name="S", subjects=["a.>"]), 7 * SECOND)


def test_version_two_keeps_the_state() -> None:
    (head, *_) = read(written(WriterV2(), MESSAGES, [CONSUMER]))
    assert isinstance(head, ArchivedStream)
    assert head.state == StreamState(messages=3, first_seq=3, last_seq=9, consumer_count=1)


@pytest.mark.parametrize("messages", [[], MESSAGES])
def test_version_one_tells_a_last_sequence_that_holds_nothing(messages: list[ArchivedMessage]) -> None:
    assert read(written(WriterV1(), messages, last=(20, 5)))[-1] == Gone(20, 5)


def test_version_one_closes_blocks_and_holds_no_more() -> None:
    writer = WriterV1()
    b"".join(writer.beginning(ArchivedStream(StreamConfig(name="S")), []))
    big = [ArchivedMessage(seq, seq, b"a", b"", bytes(LARGE_BLOCK_BYTES // 32)) for seq in range(1, 35)]
    sizes = [sum(map(len, writer.messages([message]))) for message in big]
    assert [bool(size) for size in sizes] == [False] * 31 + [True, False, False]
    small = [ArchivedMessage(seq, seq, b"a", b"", bytes(4000)) for seq in range(40, 240)]
    assert [sum(map(len, writer.messages([message]))) > 0 for message in small].count(True) == 1


MESSAGE = st.tuples(
    st.integers(0, 2**62),
    st.binary(min_size=1, max_size=20),
    st.sampled_from([b"", HEADER]),
    st.binary(max_size=50),
)


@tiers.examples(40)
@given(st.sampled_from(WRITERS), st.lists(MESSAGE, max_size=8), st.lists(st.integers(1, 2**40)), st.integers(1, 600))
def test_any_messages_come_back(
    writer: Callable[[], WriterV1 | WriterV2],
    contents: list[tuple[int, bytes, bytes, bytes]],
    gaps: list[int],
    step: int,
) -> None:
    messages, seq = [], 0
    for index, content in enumerate(contents):
        seq += gaps[index % len(gaps)] if gaps else 1
        messages.append(ArchivedMessage(seq, *content))
    assert [item for item in read(written(writer(), messages), step) if isinstance(item, ArchivedMessage)] == messages


PAIRS = st.dictionaries(st.integers(1, 1000), st.integers(1, 1000), max_size=10)


@given(PAIRS, PAIRS, st.integers(0, 2**50))
def test_a_consumer_file_reads_back_in_seconds(
    pending: dict[int, int], redelivered: dict[int, int], base_s: int
) -> None:
    entries = {50 + sseq: (20 + cseq, (base_s + cseq) * SECOND) for sseq, cseq in pending.items()}
    again = {50 + sseq: count for sseq, count in redelivered.items()}
    progress = Progress(5000, 6000, 20, 50, entries, again)
    assert consumer_file.read(finish(consumer_file.writing(progress))) == progress


@given(st.binary(max_size=60))
def test_any_consumer_file_is_read_or_refused(body: bytes) -> None:
    for raw in (body, b"\x16\x02" + body):
        try:
            consumer_file.read(raw)
        except ArchiveError:
            continue


# What the reference wrote


def test_an_archive_of_the_reference_of_version_two_is_read() -> None:
    items = read((DATA / "reference_v2.s2").read_bytes(), 1000)
    messages = [item for item in items if isinstance(item, ArchivedMessage)]
    assert [message.seq for message in messages] == [seq for seq in range(1, 301) if seq not in (5, 6)]
    assert messages[0].header == b"NATS/1.0\r\nX: y\r\n\r\n"
    assert (messages[1].subject, messages[1].payload) == (b"s.1", b"hello 1")
    (consumer,) = (item for item in items if isinstance(item, ArchivedConsumer))
    assert (consumer.progress.delivered_sseq, consumer.progress.floor_sseq) == (12, 6)
    assert sorted(consumer.progress.pending) == [7, 8, 10, 11, 12]


# Damage


@pytest.mark.parametrize("writer", WRITERS)
def test_an_archive_cut_anywhere_is_refused(writer: Callable[[], WriterV1 | WriterV2]) -> None:
    whole = written(writer(), MESSAGES, [CONSUMER])
    assert read(whole)
    for cut in range(len(whole)):
        with pytest.raises(ArchiveError):
            read(whole[:cut])


@pytest.mark.parametrize("writer", WRITERS)
def test_an_archive_whose_content_ends_early_is_refused(writer: Callable[[], WriterV1 | WriterV2]) -> None:
    content = bytearray()
    head = ArchivedStream(StreamConfig(name="S"), 0, StreamState(first_seq=3, last_seq=9))
    made = writer()
    content += b"".join((*made.beginning(head, [CONSUMER]), *made.messages(MESSAGES)))
    with pytest.raises(ArchiveError):
        read(plain(bytes(content)))


def v2(*records: bytes) -> bytes:
    return plain(MAGIC + b"".join(records))


def record(name: bytes, seq: int, body: bytes = b"", sizes: tuple[int, int, int] | None = None) -> bytes:
    names, headers, payloads = sizes or (len(name), 0, len(body))
    return b"".join(map(uvarint, (names, 2, seq, headers, payloads))) + name + body


STATE = record(b"state.json", 0, b'{"messages":1,"first_seq":1,"last_seq":1,"consumer_count":0}')
END = bytes(5)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (v2(END), "before its consumers"),
        (v2(record(b"x", 1), END), "expected state.json first"),
        (v2(record(b"state.json", 0, b'{"consumer_count":-1}'), END), "negative consumer count"),
        (v2(record(b"state.json", 0, b'{"messages":1}'), END), "inconsistent message count"),
        (v2(record(b"state.json", 0, b'{"first_seq":9,"last_seq":7}'), END), "inconsistent message count"),
        (v2(record(b"state.json", 0, b'{"messages":4,"first_seq":5,"last_seq":7}'), END), "exceeds sequence range"),
        (v2(record(b"state.json", 0, b"{")), "state.json cannot be read"),
        (v2(record(b"state.json", 0, b'{"consumer_count":1}'), END), "before its consumers"),
        (v2(record(b"state.json", 0, b'{"consumer_count":1}'), record(b"x", 1)), "consumer of the state is missing"),
        (v2(record(b"state.json", 0, b'{"consumer_count":1}'), record(b"consumers/x", 0, b"[")), "x cannot be read"),
        (v2(STATE, record(b"x", 0), END), "expected message sequence"),
        (v2(STATE, record(b"x", 1, sizes=(1, 0, 1 << 40))), "over the limit"),
        (v2(b"\xff" * 11), "longer than 64 bits"),
        (v2(b"\xff" * 9 + b"\x7f"), "longer than 64 bits"),
        (v2(STATE, END) + plain(b"more"), "follows the end"),
        (v2(STATE, END)[:-1], "incomplete"),
        (plain(b"x" * 512), "tar header"),
        (plain(tar.END), "no stream"),
        (plain(tar.entry("msgs/1.blk", b"", 0) + tar.END), "begin with its configuration"),
        (plain(tar.entry("meta.inf", b"{}", 0) + tar.entry("meta.sum", b"00", 0)), "checksum of meta.inf"),
        (plain(tar.entry("meta.inf", b"[]", 0) + tar.entry("meta.sum", b"00", 0)), "meta.inf cannot be read"),
        (plain(tar.entry("obs/C/o.dat", b"", 0)), "without its metadata"),
    ],
)
def test_a_damaged_archive_is_refused_with_a_reason(data: bytes, text: str) -> None:
    with pytest.raises(ArchiveError, match=text):
        read(data)


def v1(block: bytes) -> bytes:
    writer = WriterV1()
    head = b"".join(writer.beginning(ArchivedStream(StreamConfig(name="S")), []))
    return plain(head + tar.entry("msgs/1.blk", block, 0) + tar.END)


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (bytes(5), "ends too early"),
        ((10).to_bytes(4, "little") + bytes(40), "too short"),
        ((1 << 30).to_bytes(4, "little") + bytes(40), "ends too early"),
        (b"cmp\x01" + bytes(40), "compressed by itself"),
        (
            (34 | 1 << 31).to_bytes(4, "little")
            + (1).to_bytes(8, "little")
            + bytes(10)
            + b"\xff\xff\xff\xff"
            + bytes(8),
            "longer than its record",
        ),
    ],
)
def test_a_damaged_block_is_refused_with_a_reason(block: bytes, text: str) -> None:
    with pytest.raises(ArchiveError, match=text):
        read(v1(block))


def test_erased_and_removed_records_are_told_as_gone() -> None:
    hasher = hasher_of("S-1")

    def empty(seq: int) -> bytes:
        hashed = seq.to_bytes(8, "little") + bytes(8)
        return (30).to_bytes(4, "little") + hashed + bytes(2) + hasher.digest(hashed)

    items = read(v1(empty(5 | 1 << 63) + empty(7 | 1 << 62) + empty(0)))
    assert items[1:] == [Gone(5), Gone(7)]


def test_long_names_and_unknown_files_of_a_tar_are_no_trouble() -> None:
    name = "n" * 200
    consumer = ArchivedConsumer(name, ConsumerConfig(name=name), Progress())
    assert read(written(WriterV1(), MESSAGES, [consumer]))[-1] == consumer
    writer = WriterV1()
    head = b"".join(writer.beginning(ArchivedStream(StreamConfig(name="S")), []))
    assert len(read(plain(head + tar.entry("msgs/index.db", bytes(700), 0) + tar.END))) == 1


@tiers.examples(30)
@given(st.binary(max_size=300))
def test_any_content_is_read_or_refused(content: bytes) -> None:
    for prefix in (b"", MAGIC, MAGIC + STATE):
        try:
            read(plain(prefix + content))
        except ArchiveError as fault:
            assert str(fault)
