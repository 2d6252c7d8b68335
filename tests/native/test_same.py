"""Each native function does what its specification in Python does, on any arguments."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from natsctl.broker import subscription
from natsctl.broker.publishing import one_by_one
from natsctl.jetstream.consumers.delivery_budget import _first_deliveries
from natsctl.native import lib
from natsctl.store import frame
from natsctl.store.message import StoredMessage
from natsctl.wire import parser as parser_module
from natsctl.wire.ops import Limits
from natsctl.wire.parser import Parser

native = pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")
pytestmark = native

sequences = st.integers(0, 2**64 - 1)
salts = st.integers(1, 2**32 - 1)
blobs = st.binary(max_size=300) | st.binary(min_size=4090, max_size=4100)
subjects = st.binary(min_size=1, max_size=40)
offsets = st.integers(64, 2**31)


@given(salts, sequences, sequences, sequences, st.sampled_from([0, 2, 4, 6]), subjects, blobs, blobs)
def test_a_frame(
    salt: int, synced: int, seq: int, ts_ns: int, flags: int, subject: bytes, header: bytes, payload: bytes
) -> None:
    assert lib is not None
    words = (salt, synced, seq, ts_ns, flags, subject, header, payload)
    assert lib.frame(*words) == frame._message(*words)


@given(salts, sequences, st.integers(1, 2**40), sequences, offsets, subjects, st.lists(blobs, min_size=1, max_size=20))
def test_a_run_of_frames(
    salt: int, synced: int, seq: int, ts_ns: int, offset: int, subject: bytes, payloads: list[bytes]
) -> None:
    assert lib is not None
    words = (salt, synced, seq, ts_ns, offset, subject, payloads)
    assert lib.frame_run(*words) == frame._run(*words)
    assert lib.frame_run(*words[:-1], tuple(payloads)) == frame._run(*words)


copies = st.tuples(st.integers(1, 2**40), st.integers(0, 2**62), subjects, blobs, blobs)


@given(salts, sequences, st.integers(0, 2**62), offsets, st.lists(copies, min_size=1, max_size=20))
def test_frames_of_copies(salt: int, synced: int, last_ns: int, offset: int, messages: list[Any]) -> None:
    assert lib is not None
    words = (salt, synced, last_ns, offset, messages)
    assert lib.frame_copies(*words) == frame._copies(*words)


WORDS = [b"PUB", b"HPUB", b"SUB", b"UNSUB", b"PING", b"pub", b"PONG", b"CONNECT {}", b"a.b", b"_INBOX.x.1", b"q"]
NUMBERS = [b"0", b"1", b"3", b"4", b"04", b"12", b"999999999", b"9999999999", b"-1", b"3x"]
BLANKS = [b" ", b" ", b" ", b"  ", b"\t", b"\v", b"\f", b"\r"]
ENDS = [b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b""]
pieces = st.sampled_from([*WORDS, *NUMBERS, *BLANKS, *ENDS, b"NATS/1.0\r\n\r\n", b"abc\r\n", b"\0"])
plain = st.builds(
    lambda subject, reply, header, payload: (
        b"HPUB %b%b %d %d\r\n%b%b\r\n" % (subject, reply, len(header), len(header) + len(payload), header, payload)
        if header
        else b"PUB %b%b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    ),
    st.sampled_from([b"a", b"a.b"]),
    st.sampled_from([b"", b" _INBOX.1.2", b" $JS.ACK.x"]),
    st.sampled_from([b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"]),
    st.binary(max_size=40),
)
texts = st.lists(pieces | plain, max_size=30).map(b"".join)


def _read(chunks: list[bytes], limits: Limits, runs: bool = False) -> tuple[list[Any], Any, int]:
    reader, ops = Parser(limits, runs=runs), list[Any]()
    for chunk in chunks:
        ops += one_by_one(reader.feed(chunk))
    fault = reader.fault
    return ops, fault and (fault.kind, fault.unread), reader.buffered_bytes


@given(texts, st.lists(st.integers(0, 400), max_size=3), st.sampled_from([16, 4096]), st.sampled_from([8, 1 << 20]))
@example(b"PUB a.b 3\r\nabc\r\nPUB a.b 3\r\nabcd\r\n", [], 4096, 1 << 20)
@example(b"PUB a.b 9\r\nabcabcabc\r\n", [], 4096, 8)
@example(b"PUB a\rb 3\r\nabc\r\n", [], 4096, 1 << 20)
def test_operations_of_a_chunk(text: bytes, cuts: list[int], max_line: int, max_payload: int) -> None:
    places = sorted({0, *cuts, len(text)})
    chunks = [text[start:end] for start, end in pairwise(places)]
    limits = Limits(max_line, max_payload)
    with pytest.MonkeyPatch.context() as patch:
        found = _read(chunks, limits)
        assert found == _read(chunks, limits, runs=True)
        patch.setattr(parser_module, "lib", None)
        assert found == _read(chunks, limits)


entries = st.lists(
    st.tuples(sequences, st.sampled_from([b"", b"a"]), st.sampled_from([b"", b"_INBOX.a.1", b"_INBOX.a.2", b"x.y.z"])),
    max_size=12,
)


@given(entries, st.binary(max_size=30))
def test_frames_of_acks(stored: list[Any], opening: bytes) -> None:
    assert lib is not None
    bodies = [(reply, b"%b%d}" % (opening, seq)) for seq, _, reply in stored if reply]
    frames = b"".join([b"MSG %b 7 %d\r\n%b\r\n" % (reply, len(body), body) for reply, body in bodies])
    expected = (frames, sum(len(body) for _, body in bodies), len(bodies))
    assert lib.ack_frames(stored, opening, b" 7 ", 0, len(stored)) == expected


deliveries = st.tuples(
    subjects, st.sampled_from([b"", b"_INBOX.1"]), st.sampled_from([b"", b"NATS/1.0\r\n\r\n"]), blobs
)


@given(st.lists(deliveries, max_size=12), st.booleans(), st.booleans(), st.integers(-5, 9000))
def test_frames_of_messages(messages: list[Any], headers: bool, ops: bool, room: int) -> None:
    assert lib is not None
    given = [(0, *message) for message in messages] if ops else messages
    frames, body, done = subscription._message_frames(given, int(ops), b" 7 ", headers, room)
    found = lib.message_frames(given, int(ops), b" 7 ", headers, room)
    assert found == (b"".join(frames), body, done)


@given(salts, st.lists(copies, min_size=1, max_size=12), st.booleans(), st.data())
def test_messages_of_frames(salt: int, messages: list[Any], checked: bool, data: st.DataObject) -> None:
    assert lib is not None
    written, _, places, _ = frame._copies(salt, 1, 0, 64, messages)
    blob = bytearray(written)
    if checked:
        for at in data.draw(st.lists(st.integers(0, len(blob) - 1), max_size=2)):
            blob[at] ^= 0x41
    start = data.draw(st.integers(0, 80))
    first = data.draw(st.integers(0, len(messages)))
    given = (bytes(blob[start:]), 64 + start, places.tolist(), first, salt if checked else 0)
    found: tuple[list[Any], list[Any]] = [], []
    ends = lib.read_frames(*given, StoredMessage, found[0]), frame._read_frames(*given, StoredMessage, found[1])
    assert ends[0] == ends[1]
    assert found[0] == found[1]
    assert {type(message) for message in found[0]} <= {StoredMessage}


stored_messages = st.builds(StoredMessage, sequences, sequences, subjects, blobs, blobs)


@given(st.lists(stored_messages, max_size=9), st.binary(max_size=700), st.integers(0, 2**60), st.integers(-20, 2**60))
def test_first_deliveries(messages: list[Any], prefix: bytes, cseq: int, left: int) -> None:
    assert lib is not None
    assert lib.first_deliveries(messages, prefix, cseq, left) == _first_deliveries(messages, prefix, cseq, left)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("frame", (1, 2)),
        ("frame", (1, 2, 3, -4, 0, b"a", b"", b"")),
        ("frame", (1, 2, 3, 4, 0, "a", b"", b"")),
        ("frame_run", (1, 2, 3, 4, 5, b"a", [b"x", "y"])),
        ("frame_run", (1, 2, 3, 4, 5, b"a", 7)),
        ("frame_copies", (1, 2, 3, 4, [(1, 2, b"a", b"")])),
        ("frame_copies", (1, 2, 3, 4, [(1, 2, b"a", b"", None)])),
        ("read_ops", ("PUB", 1, 2, [], True)),
        ("read_ops", (b"PUB a 0\r\n\r\n", 100, 100, (), False)),
        ("read_ops", (b"PUB a 0\r\n\r\n" * 9, 100, 100, (), True)),
        ("ack_frames", ([(1, b"")], b"", b"", 0, 1)),
        ("ack_frames", ([(-1, b"", b"r")], b"", b"", 0, 1)),
        ("ack_frames", ([], b"", b"", 0, 1)),
        ("message_frames", ([(b"a", b"", b"")], 0, b" 7 ", True, 99)),
        ("message_frames", ([(b"a", b"", b"", 7)], 0, b" 7 ", True, 99)),
        ("message_frames", ([7], 0, b" 7 ", True, 99)),
        ("message_frames", ([(b"a", b"", b"", b"")], -1, b" 7 ", True, 99)),
        ("read_frames", (b"x" * 80, 0, [0], 0, 0, int, [])),
        ("read_frames", (b"x" * 80, 0, [-1], 0, 0, StoredMessage, [])),
        ("read_frames", (b"x" * 80, 0, (), 0, 0, StoredMessage, [])),
        ("first_deliveries", ([(1, 2, b"a", b"")], b"", 0, 0)),
        ("first_deliveries", ([(-1, 2, b"a", b"", b"")], b"", 0, 0)),
        ("first_deliveries", (7, b"", 0, 0)),
        ("one_inbox", ([(1, b"", "r")], 0, b"a")),
    ],
)
def test_wrong_arguments_raise(name: str, words: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, OverflowError, IndexError, SystemError)):
        getattr(lib, name)(*words)


class Index:
    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("frame", (1, 2, "3", 4, Index(), b"a", b"", b"")),
        ("read_frames", ("blob", 0, [0], 0, Index(), StoredMessage, [])),
        ("first_deliveries", ([], "prefix", 0, Index())),
        ("write_v2", ([("1", Index(), b"", b"", b"")],)),
    ],
)
def test_python_is_not_called_while_an_exception_is_set(name: str, words: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        getattr(lib, name)(*words)


def test_a_place_before_the_blob_is_not_read() -> None:
    assert lib is not None
    blob, found = bytearray(80), list[Any]()
    blob[3] = 40  # the length of a frame that begins one byte before
    assert lib.read_frames(bytes(blob), 0, [2**64 - 1], 0, 0, StoredMessage, found) == 0
    assert found == []


def test_a_list_that_a_number_empties_is_not_read_further() -> None:
    class Emptying:
        def __index__(self) -> int:
            messages.clear()
            return 1

    assert lib is not None
    messages: list[Any] = [(1, Emptying(), b"a" * 99, b"", b"b" * 99), (2, 2, b"a", b"", b"")]
    with pytest.raises(IndexError):
        lib.write_v2(messages)
