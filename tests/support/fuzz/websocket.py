"""Fuzzing the frames of WebSocket clients: good ones, spoilt; read whole and in pieces, they say the same.

What a message becomes when it is inflated keeps its limit, and a close frame is answered or refused.
"""

import random
import zlib
from typing import Final, NamedTuple

from wsproto.frame_protocol import Opcode

from natsctl.server.websocket.protocol import (
    COMPRESSED,
    FINAL,
    SYNC_MARK,
    FrameError,
    WebSocketReader,
    close_answer,
    frame,
)
from tests.support.fuzz.protocol import pieces, spoilt

LIMIT: Final = 4096
"""Limit of a decompressed message; small, so that inputs reach it."""
_MASK: Final = b"\x11\x22\x33\x44"
_WORDS: Final = (
    b"\x81", b"\x82", b"\x02", b"\x00", b"\x80", b"\xc2", b"\x88", b"\x89", b"\x8a", b"\xf2", b"\x83", b"\xfe\xff\xff",
    b"\xff" + b"\xff" * 8, b"\xff" + b"\x7f" + b"\xff" * 7, b"\x7e\x00\x01", b"\x80\x00\x00\x00\x00", SYNC_MARK,
)  # fmt: skip
_BODIES: Final = (
    b"", b"P", b"PING\r\n", b"PUB a 5\r\nhello\r\n", b"\xff\xfe", b"x" * 126, b"x" * 70_000, b"\x03\xe8",
    b"\x03\xe8bye", b"\x03\xed", b"\x00", b"\x03\xe8\xff", b"y" * 5000,
)  # fmt: skip


class Heard(NamedTuple):
    events: list[tuple[bool, bytes]]
    """Control or not, and the payload; data in a row is one piece."""
    fault: str


def make(chance: random.Random) -> bytes:
    data = b"".join(_frame(chance) for _ in range(chance.randrange(1, 6)))
    for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
        data = spoilt(data, chance, _WORDS)
    return data


def _frame(chance: random.Random) -> bytes:
    head = chance.choice((Opcode.TEXT, Opcode.BINARY, Opcode.CONTINUATION, Opcode.PING, Opcode.PONG, Opcode.CLOSE))
    body = chance.choice(_BODIES)
    first = head | (FINAL if chance.random() < 0.7 else 0)
    if chance.random() < 0.4:
        packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        body, first = (packer.compress(body) + packer.flush(zlib.Z_SYNC_FLUSH))[: -len(SYNC_MARK)], first | COMPRESSED
    plain = frame(first, bytes(len(body)))
    start = plain[: len(plain) - len(body)]
    mask = (_MASK * (len(body) // 4 + 1))[: len(body)]
    coded = (int.from_bytes(body, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(body), "big")
    return bytes([start[0], start[1] | 0x80]) + start[2:] + _MASK + coded


def check(data: bytes, chance: random.Random) -> None:
    """Read `data` whole and in pieces; raises AssertionError, or whatever a fault of ours raises."""
    compressed = chance.random() < 0.8
    whole, parts = _read([data], compressed), pieces(data, chance)
    again = _read(parts, compressed)
    assert again.fault == whole.fault, f"pieces {parts} end otherwise: {again.fault} instead of {whole.fault}"
    if whole.fault:  # what came before it may not have been handed on
        shorter, longer = sorted((_flat(whole), _flat(again)), key=len)
        assert longer.startswith(shorter), f"pieces {parts} say something else"
    else:
        assert again == whole, f"pieces {parts} say something else"


def _flat(heard: Heard) -> bytes:
    return b"".join(payload for _, payload in heard.events)


def _read(parts: list[bytes], compressed: bool) -> Heard:
    reader = WebSocketReader(compressed=compressed, masked=True, limit=LIMIT)
    events: list[tuple[bool, bytes]] = []
    try:
        for part in parts:
            for opcode, payload in reader.feed(part):
                if opcode is Opcode.CLOSE:
                    _answer(payload)
                if opcode.iscontrol():
                    events.append((True, payload))
                elif events and not events[-1][0]:
                    events[-1] = (False, events[-1][1] + payload)
                elif payload:
                    events.append((False, payload))
    except FrameError as fault:
        assert str(fault), "a fault has a text"
        return Heard(events, str(fault))
    return Heard(events, "")


def _answer(payload: bytes) -> None:
    """See that a close frame has an answer that fits, or is refused."""
    try:
        answer = close_answer(payload)
    except FrameError:
        return
    assert len(answer) <= 127, "the answer to a close frame is a control frame"
