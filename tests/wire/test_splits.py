"""Any split of the bytes gives the same operations; tests/support/fuzz spoils conversations of thousands."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from natsctl.wire.ops import FaultKind, Limits, Op
from natsctl.wire.parser import Parser
from tests.support import tiers

SMALL = Limits(max_control_line=64, max_payload=200)
SEEDS = [
    b'CONNECT {"verbose":false}\r\n',
    b"PING\r\n",
    b"PONG\n",
    b"SUB foo.* q 1\r\n",
    b"SUB foo.> 2\r\n",
    b"UNSUB 1 5\r\n",
    b"UNSUB 2\n",
    b"PUB foo.bar _INBOX.abc.def 11\r\nhello\r\nworl\r\n",
    b"PUB foo 0\r\n\r\n",
    b"PUB foo 5\n\r\n\r\n\r\r\n",
    b"HPUB foo r 23 28\r\nNATS/1.0\r\nA: bcdefg\r\n\r\nhello\r\n",
    b"HPUB foo 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
    b"PUB foo 150\r\n" + b"0123456789" * 15 + b"\r\n",
    b"INFO {}\r\n",
    b"+OK\r\n",
]
BYTES = [b" ", b"\t", b"\r\n", b"\n", b"\r", b"\x00", b"\xff", b"'"]
TOKENS = [b"PUB", b"HPUB", b"SUB", *BYTES, b"0", b"5", b"-1", b"999999999", b"foo", b">", b"*"]


def whole(data: bytes) -> tuple[list[Op], FaultKind | None]:
    parser = Parser(SMALL)
    ops = parser.feed(data)
    return ops, parser.fault.kind if parser.fault else None


def in_chunks(data: bytes, cuts: list[int]) -> tuple[list[Op], FaultKind | None]:
    parser = Parser(SMALL)
    ops: list[Op] = []
    start = 0
    for cut in [*sorted(cuts), len(data)]:
        ops += parser.feed(data[start:cut])
        start = cut
        assert parser.buffered_bytes <= SMALL.max_payload + 2 + 16
    return ops, parser.fault.kind if parser.fault else None


def test_a_blank_between_two_messages_is_a_fault_however_the_bytes_come() -> None:
    for verb in (b"HPUB foo r 23 28\r\nNATS/1.0\r\nA: bcdefg\r\n\r\nhello\r\n", b"PUB foo 0\r\n\r\n", b"SUB foo 1\r\n"):
        data = verb + b" " + verb
        ops, fault = whole(data)
        assert (len(ops), fault) == (1, FaultKind.UNKNOWN_OPERATION)
        assert in_chunks(data, [len(verb)]) == in_chunks(data, list(range(len(data)))) == (ops, fault)


@tiers.examples(300)
@given(
    st.lists(st.one_of(st.sampled_from(SEEDS), st.sampled_from(TOKENS), st.binary(max_size=12)), max_size=8).map(
        b"".join
    ),
    st.data(),
)
def test_any_split_gives_the_same_operations(data: bytes, draw: st.DataObject) -> None:
    cuts = draw.draw(st.lists(st.integers(0, len(data)), max_size=6))
    assert in_chunks(data, cuts) == whole(data)
