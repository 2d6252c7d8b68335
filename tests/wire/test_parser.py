"""The client grammar, case by case; expectations were seen on the reference server with raw sockets."""

import pytest

from natsctl.wire.ops import CONNECT, HPUB, INFO, OK, PING, PONG, PUB, SUB, UNSUB, FaultKind, Limits, Op
from natsctl.wire.parser import Parser

A4094 = b"a" * 4094


def parse(data: bytes, limits: Limits | None = None) -> tuple[list[Op], FaultKind | None]:
    parser = Parser(limits)
    ops = parser.feed(data)
    return ops, parser.fault.kind if parser.fault else None


@pytest.mark.parametrize(
    ("data", "ops"),
    [
        (b"PUB a 2\r\nhi\r\n", [(PUB, b"a", b"", b"", b"hi")]),
        (b"PUB a r 2\r\nhi\r\n", [(PUB, b"a", b"r", b"", b"hi")]),
        (b"pub\ta   r\t2 \r\nhi\r\n", [(PUB, b"a", b"r", b"", b"hi")]),
        (b"PUB a 0\r\n\r\nPING\r\n", [(PUB, b"a", b"", b"", b""), (PING,)]),
        (b"PUB a 02\r\nhi\r\n", [(PUB, b"a", b"", b"", b"hi")]),
        (b"PUB a 6\r\n\r\nhi\r\n\r\n", [(PUB, b"a", b"", b"", b"\r\nhi\r\n")]),
        (b"PUB a 2\r\n\r\n\r\n", [(PUB, b"a", b"", b"", b"\r\n")]),
        (b"PUB a 1\r\n\r\r\n", [(PUB, b"a", b"", b"", b"\r")]),
        (b"PUB a 1\r\n\n\r\n", [(PUB, b"a", b"", b"", b"\n")]),
        (b"PUB a 2\n11\r\nPING\n", [(PUB, b"a", b"", b"", b"11"), (PING,)]),
        (b"PUB a 9000\r\n" + b"x" * 9000 + b"\r\n", [(PUB, b"a", b"", b"", b"x" * 9000)]),
        (b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", [(PUB, b"a", b"", b"NATS/1.0\r\n\r\n", b"hi")]),
        (b"HPUB a r 12 12\r\nNATS/1.0\r\n\r\n\r\n", [(PUB, b"a", b"r", b"NATS/1.0\r\n\r\n", b"")]),
        (b"HPUB a 4 6\r\njunkhi\r\n", [(PUB, b"a", b"", b"junk", b"hi")]),
        (b"HPUB a 0 2\r\nhi\r\n", [(HPUB, b"a", b"", b"", b"hi")]),
        (b"SUB a 1\r\n", [(SUB, b"a", b"", b"1")]),
        (b"SUB a q s#1\r\n", [(SUB, b"a", b"q", b"s#1")]),
        (b"SUB " + b" " * 5000 + b"a 1\r\n", [(SUB, b"a", b"", b"1")]),
        (b"SUB " + A4094 + b" 1\r\n", [(SUB, A4094, b"", b"1")]),
        (b"UNSUB 1\r\nUNSUB 1 5\r\n", [(UNSUB, b"1", 0), (UNSUB, b"1", 5)]),
        (b"UNSUB 1 x\r\nUNSUB 1 -5\r\n", [(UNSUB, b"1", 0), (UNSUB, b"1", 0)]),
        (b'CONNECT {"a":1}\r\nconnect{}\r\n', [(CONNECT, b'{"a":1}'), (CONNECT, b"{}")]),
        (b"CONNECT\r\n", [(CONNECT, b"")]),
        (b"PING\nPONG\n", [(PING,), (PONG,)]),
        (b"Ping of life\r\nPONGzzz\r\n", [(PING,), (PONG,)]),
        (b"PING" + b"a" * 9000 + b"\r\n", [(PING,)]),
        (b'+OK\r\nINFO {"a":1}\r\nPING\r\n', [(OK,), (INFO, b'{"a":1}'), (PING,)]),
        (b"SUB foo 1\r2\r\n", [(SUB, b"foo", b"1", b"2")]),
        (b"PUB a\vb\f 2\r\nhi\r\nPING\r\n", [(PUB, b"a\vb\f", b"", b"", b"hi"), (PING,)]),
        (b"PUB a \vr\f 2\r\nhi\r\nPING\r\n", [(PUB, b"a", b"\vr\f", b"", b"hi"), (PING,)]),
        (b"PUB a 2\r\n\v\f\r\nPING\r\n", [(PUB, b"a", b"", b"", b"\v\f"), (PING,)]),
        (
            b"HPUB a\v 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\n",
            [(PUB, b"a\v", b"", b"NATS/1.0\r\n\r\n", b"hi"), (PING,)],
        ),
        (b"SUB a\vb q\f 1\r\n", [(SUB, b"a\vb", b"q\f", b"1")]),
    ],
)
def test_accepted(data: bytes, ops: list[Op]) -> None:
    assert parse(data) == (ops, None)


UNKNOWN, SILENT = FaultKind.UNKNOWN_OPERATION, FaultKind.MALFORMED
PAYLOAD, LINE = FaultKind.MAX_PAYLOAD, FaultKind.MAX_CONTROL_LINE


REFUSED = [
    (b"\r\n", UNKNOWN), (b" PING\r\n", UNKNOWN), (b" PUB a 2\r\nhi\r\n", UNKNOWN), (b"X", UNKNOWN),
    (b"GET / HTTP/1.1\r\n", UNKNOWN), (b"\x16\x03\x01", UNKNOWN), (b"PUBX", UNKNOWN), (b"PUB\r\n", UNKNOWN),
    (b"UNSUB\r\n", UNKNOWN), (b"MSG a 1 2\r\nhi\r\n", UNKNOWN), (b"PUB a 1\r\nxy", UNKNOWN),
    (b"PUB a 1\r\nx\rz", UNKNOWN), (b"PUB a 1\r\nx\n", UNKNOWN), (b"PUB a 2\r\nx\r\n.", UNKNOWN),
    (b"HPUB a 4 5\r\njunkhi\r\nPING\r\n", UNKNOWN), (b"PUB \r\n", SILENT), (b"PUB a\r\n", SILENT),
    (b"PUB a b c 1\r\nx\r\n", SILENT), (b"PUB a -1\r\n", SILENT), (b"PUB a +1\r\nx\r\n", SILENT),
    (b"PUB a 1_0\r\n", SILENT), (b"PUB a 0000000001\r\nx\r\n", SILENT), (b"PUB a 99999999999999999999\r\n", SILENT),
    (b"HPUB a 5\r\n", SILENT), (b"HPUB a 10 5\r\n", SILENT), (b"HPUB a -1 5\r\n", SILENT), (b"SUB a\r\n", SILENT),
    (b"SUB a b c 1\r\n", SILENT), (b"UNSUB 1 2 3\r\n", SILENT), (b"-ERR 'x'\r\n", SILENT),
    (b"PUB a 1048577\r\n", PAYLOAD), (b"HPUB a 10 1048577\r\n", PAYLOAD), (b"SUB " + A4094 + b"a 1\r\n", LINE),
    (b"SUB " + b"a" * 4200, LINE), (b"CONNECT " + b"a" * 4097 + b"\r\n", LINE),
]  # fmt: skip


@pytest.mark.parametrize(("data", "fault"), REFUSED)
def test_refused(data: bytes, fault: FaultKind) -> None:
    assert parse(b"PING\r\n" + data) == ([(PING,)], fault)


def test_a_fault_is_final() -> None:
    parser = Parser()
    parser.feed(b"X")
    assert parser.feed(b"PING\r\n") == []


def test_a_small_max_payload_holds_for_sizes_that_are_looked_up() -> None:
    limits = Limits(max_payload=4)
    assert parse(b"PUB a 4\r\nabcd\r\n", limits) == ([(PUB, b"a", b"", b"", b"abcd")], None)
    assert parse(b"PUB a 5\r\nabcde\r\n", limits) == ([], PAYLOAD)
    assert parse(b"HPUB a 2 5\r\nabcde\r\n", limits) == ([], PAYLOAD)


def test_too_large_a_payload_is_refused_before_any_of_it_arrives() -> None:
    parser = Parser()
    assert parser.feed(b"PUB a 99999999\r\n") == []
    assert parser.fault is not None and parser.fault.kind is PAYLOAD
    assert parser.buffered_bytes == 0


@pytest.mark.parametrize("endless", [b"SUB ", b"PING", b"PING ", b"SUB a", b"PUB\r", b"PUB \r", b"CONNECT ", b"\t"])
@pytest.mark.parametrize("more", [b" ", b"a", b"\r", b"\t"])
def test_a_line_that_never_ends_keeps_little(endless: bytes, more: bytes) -> None:
    parser = Parser()
    parser.feed(endless)
    for _ in range(300):
        parser.feed(more * 100)
        assert parser.buffered_bytes <= 4096 + 16
