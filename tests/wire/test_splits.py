"""Blanks between messages, however the bytes come; tests/testing/test_fuzz.py splits conversations anywhere."""

from natsctl.wire.ops import FaultKind, Limits, Op
from natsctl.wire.parser import Parser

SMALL = Limits(max_control_line=64, max_payload=200)


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
