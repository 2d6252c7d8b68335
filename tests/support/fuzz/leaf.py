"""Fuzzing what another server sends over a leaf node connection: the protocol's words, spoilt.

Each input goes to the parser whole and in pieces, which must read the same; and to a link of a broker beside which a
client must go on being served.
"""

import random
from typing import Final

from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.leaf.handshake import LeafOptions, RemoteOptions
from natsctl.broker.leaf.leaf_nodes import LeafLinks
from natsctl.broker.leaf.link import LeafLink
from natsctl.wire.leaf import LINE_FACTOR, LeafParser, leaf_limits
from natsctl.wire.ops import FaultKind, Op
from tests.support.clock import VirtualClock
from tests.support.fuzz.protocol import KEPT_BYTES, LIMITS, pieces, spoilt
from tests.support.leaf_servers import Lines

LINK_EVERY: Final = 4
"""One of so many inputs goes through a whole link too, which costs several times as much."""

_VERBS: Final = (
    b"LS+",
    b"LS-",
    b"LMSG",
    b"HMSG",
    b"PING",
    b"PONG",
    b"INFO",
    b"CONNECT",
    b"+OK",
    b"-ERR",
    b"MSG",
    b"SUB",
)
_WORDS: Final = (
    b"a", b"a.b", b"*", b">", b"..", b"$LDS.x", b"$JS.API.INFO", b"$JS.ACK.S.C.1.1.1.1.0", b"_R_.x.y", b"_GR_.a.b",
    b"$SYS.REQ.SERVER.PING", b"+", b"|", b"q", b"0", b"1", b"5", b"12", b"2048", b"2049", b"-1", b"9" * 22, b"", b" ",
    b"{}", b"[]", b"null", b'{"name":1}', b'{"server_id":"x","import":{"allow":["a b"]},"export":{"deny":[""]}}',
    b'{"nonce":"x","client_id":1,"headers":true,"max_payload":1,"info_on_connect":true}', b"'Loop detected'",
    b"NATS/1.0", b"\xff\xfe", b"\x00", b"x" * 600, b"a." * 300, b"\r\n",
)  # fmt: skip
_ENDS: Final = (b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"")
_GOOD: Final = (
    b"LS+ a.*\r\n", b"LS+ a.> q 3\r\n", b"LS- a.*\r\n", b"LS- a.> q\r\n", b"LMSG a.b 5\r\nhello\r\n",
    b"LMSG a.b _INBOX.1 0\r\n\r\n", b"LMSG a.b | q 1\r\nx\r\n", b"LMSG a.b + r q p 1\r\nx\r\n",
    b"HMSG a 12 17\r\nNATS/1.0\r\n\r\nhello\r\n", b"PING\r\n", b"PONG\r\n", b"+OK\r\n",
)  # fmt: skip
_HELLO: Final = {
    "accepted": b'CONNECT {"name":"x","server_id":"NX","headers":true,"version":"2.15.2","protocol":1}\r\n',
    "solicited": b'INFO {"server_id":"NX","server_name":"x","headers":true,"max_payload":1048576,"client_id":5}\r\n'
    b'INFO {"server_id":"NX","server_name":"x","headers":true,"max_payload":1048576,"connect_info":true}\r\n',
}


def make(chance: random.Random) -> bytes:
    parts = [_line(chance) if chance.random() < 0.4 else chance.choice(_GOOD) for _ in range(chance.randrange(1, 9))]
    data = b"".join(parts)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        data = spoilt(data, chance, _WORDS)
    return data


def _line(chance: random.Random) -> bytes:
    words = [chance.choice(_WORDS) for _ in range(chance.randrange(5))]
    return b" ".join([chance.choice(_VERBS), *words]) + chance.choice(_ENDS)


def check(data: bytes, chance: random.Random) -> None:
    """Read `data` in every way; raises AssertionError, or whatever a fault of ours raises."""
    whole = _read([data])
    parts = pieces(data, chance)
    assert _read(parts) == whole, f"pieces {parts} read otherwise"
    if chance.randrange(LINK_EVERY) == 0:
        _converse(parts, chance)


def _read(parts: list[bytes]) -> tuple[list[Op], FaultKind | None]:
    parser = LeafParser(leaf_limits(LIMITS))
    ops = [op for part in parts for op in parser.feed(part)]
    assert parser.buffered_bytes <= LINE_FACTOR * KEPT_BYTES, f"{parser.buffered_bytes} bytes are kept"
    return ops, parser.fault.kind if parser.fault is not None else None


def _converse(parts: list[bytes], chance: random.Random) -> None:
    """Pass the pieces to a link, and check that a client is served and nothing of the link stays."""
    broker = Broker(VirtualClock(), random.Random(1), BrokerOptions(limits=LIMITS))
    leafs = LeafLinks(broker, LeafOptions(host="127.0.0.1", port=7422), Lines())
    client = broker.connect("client", 1)
    client.receive(b'CONNECT {"verbose":false,"protocol":1}\r\nSUB fuzz.client 1\r\n')
    before = broker.subscriptions
    stage = chance.choice(("accepted", "solicited"))
    link: LeafLink = leafs.accept("h", 1) if stage == "accepted" else leafs.solicit(RemoteOptions(), "h", 1)
    if chance.random() < 0.8:
        link.receive(_HELLO[stage])
    for part in parts:
        link.receive(part)
        link.take_output()
    client.take_output()
    client.receive(b"PUB fuzz.client 2\r\nhi\r\n")
    heard = b"".join(client.take_output())
    assert heard.endswith(b"MSG fuzz.client 1 2\r\nhi\r\n"), f"the client heard {heard!r}"
    link.closed()
    assert not broker.leafs, "the link stays"
    assert broker.subscriptions == before, "subscriptions of a link that has ended stay"
