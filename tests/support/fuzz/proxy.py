"""PROXY headers that are not quite headers: each is read, refused, or awaited, alike in whichever pieces it comes.

Nothing that `ProxyHeader` holds may grow beyond one header of version 1 or the fixed part of one of version 2.
"""

import random
from typing import Final

from natsctl.server.proxy_protocol import MAX_LINE_BYTES, SIGNATURE, ProxyHeader, ProxyHeaderError

LINES: Final = (
    b"PROXY TCP4 192.0.2.7 192.0.2.1 1111 4222\r\n",
    b"PROXY TCP6 2001:db8::7 ::1 1111 4222\r\n",
    b"PROXY UNKNOWN\r\n",
)
BINARIES: Final = (
    SIGNATURE + b"\x21\x11\x00\x0c" + b"\xc0\x00\x02\x07" * 2 + b"\x04\x57\x10\x7e",
    SIGNATURE + b"\x21\x21\x00\x24" + b"\x20\x01" * 16 + b"\x04\x57\x10\x7e",
    SIGNATURE + b"\x20\x00\x00\x00",
    SIGNATURE + b"\x21\x11\x00\x20" + b"\x01" * 32,
)
HELD_BYTES: Final = max(MAX_LINE_BYTES, 16 + 36)

Outcome = tuple[str, object, bytes]


def make(chance: random.Random) -> bytes:
    """Return a header with a few bytes changed, dropped, doubled or exchanged, and something behind it."""
    data = bytearray(chance.choice(LINES + BINARIES))
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        at = chance.randrange(len(data)) if data else 0
        match chance.randrange(5):
            case 0 if data:
                data[at] = chance.randrange(256)
            case 1:
                data[at : at + chance.randrange(1, 8)] = b""
            case 2:
                data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 60)))
            case 3:
                data[at:at] = data[: chance.randrange(1, 20)]
            case _:
                data[at:at] = chance.choice((b" ", b"\r\n", b"\0", b"\xff", b"::", b"9" * 50))
    return bytes(data) + chance.choice((b"", b'CONNECT {"verbose":false}\r\nPING\r\n', b"\r\n"))


def _outcome(pieces: list[bytes]) -> Outcome:
    header, rest = ProxyHeader(), list(pieces)
    try:
        while rest:
            piece = rest.pop(0)
            if header.feed(piece):
                return "read", header.source, header.rest + b"".join(rest)
            assert len(header.rest) <= HELD_BYTES
    except ProxyHeaderError as fault:
        return "refused", str(fault), b""
    return "awaited", header.broken_off(), b""


def check(data: bytes, chance: random.Random) -> None:
    """Raise AssertionError where a header does not come to the same in one piece, in two and in single bytes."""
    whole = _outcome([data])
    cut = chance.randrange(len(data) + 1)
    assert _outcome([data[:cut], data[cut:]]) == whole
    assert _outcome([data[at : at + 1] for at in range(len(data))]) == whole
    if whole[0] == "read" and whole[1] is not None:
        host, port = whole[1] if isinstance(whole[1], tuple) else ("", -1)
        assert host
        assert 0 <= port <= 65535
