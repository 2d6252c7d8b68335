"""The grammar between servers: what one writes the other reads, and what no server writes is refused."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.wire.leaf import (
    LEAF_MSG,
    LEAF_SUB,
    LEAF_UNSUB,
    LeafParser,
    encode_leaf_msg,
    encode_leaf_sub,
    encode_leaf_unsub,
    leaf_limits,
)
from natsctl.wire.ops import CONNECT, ERR, INFO, PING, PONG, FaultKind, Limits, Op

HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"
LIMITS = leaf_limits(Limits())
word = st.text("abcXYZ.*>_$#09\v\f", min_size=1, max_size=20).map(str.encode)
maybe = st.one_of(st.just(b""), word)
ops = st.one_of(
    st.tuples(st.just(LEAF_SUB), word, st.just(b""), st.just(1)),
    st.tuples(st.just(LEAF_SUB), word, word, st.integers(1, 10**8)),
    st.tuples(st.just(LEAF_UNSUB), word, maybe),
    st.tuples(
        st.just(LEAF_MSG),
        word,
        maybe,
        st.lists(word, max_size=3).map(tuple),
        st.sampled_from([b"", HEADER]),
        st.binary(max_size=300),
    ),
)
ENCODERS: dict[int, Callable[..., bytes]] = {
    LEAF_SUB: encode_leaf_sub,
    LEAF_UNSUB: encode_leaf_unsub,
    LEAF_MSG: encode_leaf_msg,
}


def written(op: Op) -> bytes:
    return ENCODERS[op[0]](*op[1:])


@given(st.lists(ops, max_size=8), st.integers(1, 60))
def test_what_one_server_writes_the_other_reads_in_any_chunks(sent: list[Op], size: int) -> None:
    data = b"".join(written(op) for op in sent)
    parser = LeafParser(LIMITS)
    assert [op for at in range(0, len(data), size) for op in parser.feed(data[at : at + size])] == sent
    assert parser.fault is None


@pytest.mark.parametrize(
    ("line", "op"),
    [
        (b"LMSG foo 1\r\nx\r\n", (LEAF_MSG, b"foo", b"", (), b"", b"x")),
        (b"LMSG foo + 1\r\nx\r\n", (LEAF_MSG, b"foo", b"+", (), b"", b"x")),
        (b"LMSG bar | q 1\r\ny\r\n", (LEAF_MSG, b"bar", b"", (b"q",), b"", b"y")),
        (b"HMSG bar + rep q 18 19\r\n" + HEADER + b"y\r\n", (LEAF_MSG, b"bar", b"rep", (b"q",), HEADER, b"y")),
        (b"LS+ bar q x\r\n", (LEAF_SUB, b"bar", b"q", 1)),
        (b"LS+ bar q 0\r\n", (LEAF_SUB, b"bar", b"q", 1)),
        (b"-ERR 'Authorization Violation'\r\n", (ERR, b"'Authorization Violation'")),
        (b"INFO {} \r\n", (INFO, b"{}")),
        (b"CONNECT {}\r\n", (CONNECT, b"{}")),
        (b"PING\r\n", (PING,)),
        (b"PONG\r\n", (PONG,)),
    ],
)
def test_forms_recorded_between_two_reference_servers_are_read(line: bytes, op: Op) -> None:
    assert LeafParser(LIMITS).feed(line) == [op]


@pytest.mark.parametrize(
    "line",
    [
        b"LMSG 1", b"LMSG", b"LMSG a b c 1", b"LMSG a x", b"HMSG a 9 5", b"HMSG a 5", b"LS+ a q", b"LS+",
        b"LS+ a q 1 2", b"LS- a b c", b"LS-", b"LMSG a 99999999",
    ],
)  # fmt: skip
def test_what_no_server_writes_is_a_fault(line: bytes) -> None:
    parser = LeafParser(LIMITS)
    assert parser.feed(b"PING\r\n" + line + b"\r\n") == [(PING,)]
    assert parser.fault is not None


@pytest.mark.parametrize(
    "line", [b"PUB a 0\r\n\r\n", b"SUB a 1\r\n", b"MSG a 1 0\r\n\r\n", b"RS+ a\r\n", b"GET / HTTP/1.1\r\n"]
)
def test_other_protocols_are_unknown_operations(line: bytes) -> None:
    parser = LeafParser(LIMITS)
    assert parser.feed(line) == []
    assert parser.fault is not None and parser.fault.kind is FaultKind.UNKNOWN_OPERATION


def test_lines_may_be_sixteen_times_as_long_as_those_of_clients_and_no_longer() -> None:
    longest = LIMITS.max_control_line
    assert longest == 16 * 4096
    assert len(LeafParser(LIMITS).feed(b"LS+ " + b"a" * longest + b"\r\n")) == 1
    parser = LeafParser(LIMITS)
    assert parser.feed(b"LS+ " + b"a" * (longest + 1)) == []
    assert parser.fault is not None and parser.fault.kind is FaultKind.MAX_CONTROL_LINE
    assert parser.buffered_bytes == 0
