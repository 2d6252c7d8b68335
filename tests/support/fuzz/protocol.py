"""Fuzzing what clients send: conversations built from the protocol's own words, and then spoilt.

Each input goes to the parser whole and in pieces, which must read the same operations and end in the same fault; and to
a session of a broker beside which another client must go on being served.
"""

import random
from collections.abc import Sequence
from typing import Final

from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.wire.ops import FaultKind, Limits, Op
from natsctl.wire.parser import Parser
from tests.support.clock import VirtualClock

LIMITS: Final = Limits(max_control_line=512, max_payload=2048)
"""Small, so that inputs reach them."""
KEPT_BYTES: Final = LIMITS.max_control_line + LIMITS.max_payload + 64
"""Bytes that a parser may keep of an unfinished operation."""
SESSION_EVERY: Final = 4
"""One of so many inputs goes through a whole session too, which costs four times as much."""

_VERBS: Final = (
    b"PUB", b"HPUB", b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT", b"INFO", b"+OK", b"-ERR", b"pub", b"Sub", b"MSG",
)  # fmt: skip
_WORDS: Final = (
    b"a", b"a.b", b"*", b">", b"a.*.>", b"..", b"$JS.API.INFO", b"$SYS.REQ.USER.INFO", b"_R_.x", b"_INBOX.1", b"0",
    b"1", b"5", b"12", b"2048", b"2049", b"-1", b"999999999", b"9999999999999999999999", b"", b" ", b"\t", b"{}",
    b'{"verbose":true}', b'{"headers":true,"no_responders":true}', b'{"protocol":2}', b"[]", b"null", b"\xff\xfe",
    b"NATS/1.0", b"NATS/1.0 503", b"x" * 600, b"a." * 300, b"'", b'"', b"\x00",
)  # fmt: skip
_ENDS: Final = (b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"", b"\r\r\n", b" \r\n")
_GOOD: Final = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n',
    b"PUB a.b 5\r\nhello\r\n",
    b"PUB a.b _INBOX.1 0\r\n\r\n",
    b"HPUB a 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
    b"SUB a.* 1\r\n",
    b"SUB a.> q 2\r\n",
    b"UNSUB 1 5\r\n",
    b"PING\r\n",
    b"PONG\r\n",
)


def make(chance: random.Random) -> bytes:
    pieces = [_line(chance) if chance.random() < 0.4 else chance.choice(_GOOD) for _ in range(chance.randrange(1, 9))]
    data = b"".join(pieces)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        data = spoilt(data, chance, _WORDS)
    return data


def _line(chance: random.Random) -> bytes:
    words = [chance.choice(_WORDS) for _ in range(chance.randrange(5))]
    blank = chance.choice((b" ", b" ", b" ", b"\t", b"  "))
    return blank.join([chance.choice(_VERBS), *words]) + chance.choice(_ENDS)


def spoilt(data: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    """Return `data` with one thing wrong; it may be that one of `words` stands where it should not."""
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.randrange(1, 20))
    return chance.choice((
        data[:at] + data[end:],
        data[:at] + data[at:end] * chance.randrange(2, 5) + data[end:],
        data[:at] + chance.randbytes(end - at) + data[end:],
        data[:at] + chance.choice(words) + data[at:],
        data[:at],
        data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :],
    ))  # fmt: skip


def check(data: bytes, chance: random.Random) -> None:
    """Read `data` in every way; raises AssertionError, or whatever a fault of ours raises."""
    whole, fault = _read([data])
    parts = pieces(data, chance)
    again, fault_again = _read(parts)
    assert (again, fault_again) == (whole, fault), f"pieces {parts} read otherwise"
    if chance.randrange(SESSION_EVERY) == 0:
        _converse(parts)


def _read(pieces: list[bytes]) -> tuple[list[Op], FaultKind | None]:
    parser = Parser(LIMITS)
    ops = [op for piece in pieces for op in parser.feed(piece)]
    assert parser.buffered_bytes <= KEPT_BYTES, f"{parser.buffered_bytes} bytes are kept"
    return ops, parser.fault.kind if parser.fault is not None else None


def pieces(data: bytes, chance: random.Random) -> list[bytes]:
    """Return `data` cut somewhere, as a network does."""
    cuts = sorted({chance.randrange(len(data) + 1) for _ in range(chance.randrange(1, 12))})
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _converse(pieces: list[bytes]) -> None:
    """Pass the pieces to a session, and check that its neighbour is served and nothing of it stays."""
    broker = Broker(VirtualClock(), random.Random(1), BrokerOptions(limits=LIMITS))
    neighbour, session = broker.connect("neighbour", 1), broker.connect("offender", 2)
    neighbour.receive(b'CONNECT {"verbose":false,"protocol":1}\r\nSUB fuzz.neighbour 1\r\n')
    for piece in pieces:
        session.receive(piece)
        session.take_output()
    neighbour.take_output()
    neighbour.receive(b"PUB fuzz.neighbour 2\r\nhi\r\n")
    heard = b"".join(neighbour.take_output())
    assert heard.endswith(b"MSG fuzz.neighbour 1 2\r\nhi\r\n"), f"the neighbour heard {heard!r}"
    before = broker.subscriptions - len(session.subs)
    session.closed()
    assert broker.subscriptions == before, "subscriptions of a closed session stay"
    assert session.cid not in broker.sessions
