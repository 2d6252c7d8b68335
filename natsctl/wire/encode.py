"""Writing operations, for both ends. The broker's hot path writes its own message heads (broker/delivery.py)."""

from __future__ import annotations

from natsctl.wire.ops import CONNECT, ERR, INFO, MSG, OK, PING, PONG, PUB, SUB, UNSUB, Op

OK_LINE = b"+OK\r\n"
PING_LINE = b"PING\r\n"
PONG_LINE = b"PONG\r\n"


def encode_err(text: str) -> bytes:
    """Return the `-ERR` line for `text`, without line ends inside."""
    return b"-ERR '%b'\r\n" % text.replace("\r", " ").replace("\n", " ").encode("utf-8", "surrogateescape")


def encode_info(json: bytes) -> bytes:
    """Return the INFO line; the blank before its end is nats-server's."""
    return b"INFO %b \r\n" % json


def encode_pub(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> bytes:
    """Return PUB, or HPUB where there is a header block."""
    target = b"%b %b" % (subject, reply) if reply else subject
    if header:
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (target, len(header), len(header) + len(payload), header, payload)
    return b"PUB %b %d\r\n%b\r\n" % (target, len(payload), payload)


def encode_msg(subject: bytes, sid: bytes, reply: bytes, header: bytes, payload: bytes) -> bytes:
    """Return MSG, or HMSG where there is a header block."""
    target = b"%b %b %b" % (subject, sid, reply) if reply else b"%b %b" % (subject, sid)
    if header:
        return b"HMSG %b %d %d\r\n%b%b\r\n" % (target, len(header), len(header) + len(payload), header, payload)
    return b"MSG %b %d\r\n%b\r\n" % (target, len(payload), payload)


def encode_sub(subject: bytes, queue: bytes, sid: bytes) -> bytes:
    """Return SUB."""
    return b"SUB %b %b %b\r\n" % (subject, queue, sid) if queue else b"SUB %b %b\r\n" % (subject, sid)


def encode_unsub(sid: bytes, most: int) -> bytes:
    """Return UNSUB; 0 means now."""
    return b"UNSUB %b %d\r\n" % (sid, most) if most else b"UNSUB %b\r\n" % sid


def encode(op: Op) -> bytes:
    """Return the bytes of any operation: parsing them gives `op` again."""
    kind = op[0]
    if kind == PUB:
        return encode_pub(*op[1:])
    if kind == MSG:
        return encode_msg(*op[1:])
    if kind == SUB:
        return encode_sub(*op[1:])
    if kind == UNSUB:
        return encode_unsub(*op[1:])
    if kind == CONNECT:
        return b"CONNECT %b\r\n" % op[1]
    if kind == INFO:
        return encode_info(op[1])
    if kind == ERR:
        return b"-ERR '%b'\r\n" % op[1]
    return {PING: PING_LINE, PONG: PONG_LINE, OK: OK_LINE}[kind]
