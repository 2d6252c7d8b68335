"""Each native function does what its specification in Python does, on any arguments."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from natsctl.broker.session import one_by_one
from natsctl.native import lib
from natsctl.store.message import StoredMessage
from natsctl.wire import parser as parser_module
from natsctl.wire.ops import Limits
from natsctl.wire.parser import Parser

native = pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")
pytestmark = native


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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("frame", (1, 2)),
        ("frame", (1, 2, 3, -4, 0, b"a", b"", b"")),
        ("frame", (1, 2, 3, 4, 0, "a", b"", b"")),
        ("frame_copies", (1, 2, 3, 4, [(1, 2, b"a", b"")])),
        ("frame_copies", (1, 2, 3, 4, [(1, 2, b"a", b"", None)])),
        ("read_ops", ("PUB", 1, 2, [], True)),
        ("read_ops", (b"PUB a 0\r\n\r\n", 100, 100, (), False)),
        ("read_ops", (b"PUB a 0\r\n\r\n" * 9, 100, 100, (), True)),
        ("ack_frames", ([(1, b"a")], 0, 0, b"", b"", b" 7 ")),
        ("ack_frames", ([(1, b"a", "r")], 0, 0, b"", b"", b" 7 ")),
        ("ack_frames", ([(-1, b"a", b"r")], 0, 0, b"", b"", b" 7 ")),
        ("ack_frames", ([(1, b"a", b"r")], 0, -(2**62), b"", b"", b" 7 ")),
        ("ack_frames", ([(1, b"a", b"r")], -2, 0, b"", b"", b" 7 ")),
        ("ack_frames", ([(1, b"a", b"r")], 0, 0, b"", "", b" 7 ")),
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
