"""Ack subjects (the position of a delivered message) and the payloads of acks."""

from enum import Enum
from typing import Final, NamedTuple

import msgspec

from natsctl.api.units import parse_duration

ACK: Final = b"+ACK"
NAK: Final = b"-NAK"
PROGRESS: Final = b"+WPI"
NEXT: Final = b"+NXT"
TERM: Final = b"+TERM"

_NO_PENDING: Final = 0
_INT64_DIGITS: Final = 19


class AckSubject(NamedTuple):
    """Fields of an ack subject: delivery count, sequences, time of storing, and pending messages."""

    stream: bytes
    consumer: bytes
    delivered: int
    stream_seq: int
    consumer_seq: int
    ts_ns: int
    pending: int
    domain: bytes = b""
    account_hash: bytes = b""


def prefix(stream: bytes, consumer: bytes) -> bytes:
    """Return the part of a v1 ack subject that all messages of a consumer share, with the last dot."""
    return b"$JS.ACK.%b.%b." % (stream, consumer)


def encode(
    stream: bytes, consumer: bytes, delivered: int, stream_seq: int, consumer_seq: int, ts_ns: int, pending: int
) -> bytes:
    """Return the v1 ack subject (nine tokens)."""
    return b"$JS.ACK.%b.%b.%d.%d.%d.%d.%d" % (stream, consumer, delivered, stream_seq, consumer_seq, ts_ns, pending)


def parse(subject: bytes) -> AckSubject | None:
    """Return the fields of an ack subject, or None for any other subject.

    Takes v1 (nine tokens), v2 (eleven or twelve, with domain and account hash) and the forms of 2020 (seven tokens
    without time and pending, eight without pending; missing tokens read as 0).
    """
    tokens = subject.split(b".")
    if len(tokens) < 7 or tokens[0] != b"$JS" or tokens[1] != b"ACK":
        return None
    domain = account_hash = b""
    if len(tokens) in (11, 12):
        domain, account_hash = (b"" if tokens[2] == b"_" else tokens[2]), tokens[3]
        stream, consumer, numbers = tokens[4], tokens[5], tokens[6:11]
    elif len(tokens) <= 9:
        stream, consumer, numbers = tokens[2], tokens[3], tokens[4:]
    else:
        return None
    if not stream or not consumer or not all(n.isdigit() and len(n) <= _INT64_DIGITS + 1 for n in numbers):
        return None
    values = [int(n) for n in numbers] + [_NO_PENDING] * (5 - len(numbers))
    delivered, stream_seq, consumer_seq, ts_ns, pending = values
    return AckSubject(stream, consumer, delivered, stream_seq, consumer_seq, ts_ns, pending, domain, account_hash)


class AckKind(Enum):
    """Kind of an ack payload."""

    ACK = "ack"
    NAK = "nak"
    PROGRESS = "progress"
    NEXT = "next"
    TERM = "term"
    IGNORED = "ignored"


class AckPayload(NamedTuple):
    """A parsed ack: `delay_ns` with NAK (0 = now), `request` (a pull request's body) with NEXT, `reason` with TERM."""

    kind: AckKind
    delay_ns: int = 0
    request: bytes = b""
    reason: str = ""


class _NakOptions(msgspec.Struct):
    """The JSON body of a NAK."""

    delay: int = 0


_PLAIN_ACK: Final = AckPayload(AckKind.ACK)
_PLAIN_NAK: Final = AckPayload(AckKind.NAK)
_IGNORED: Final = AckPayload(AckKind.IGNORED)
_nak_options = msgspec.json.Decoder(_NakOptions)


def parse_ack_payload(payload: bytes) -> AckPayload:
    """Return the kind of an ack: IGNORED for an unknown one; a NAK with an unreadable delay is a plain one."""
    if not payload or payload in (ACK, b"+OK"):
        return _PLAIN_ACK
    if payload.startswith(NAK):
        return _parse_nak(payload[4:].strip())
    if payload == PROGRESS:
        return AckPayload(AckKind.PROGRESS)
    if payload.startswith(NEXT):
        return AckPayload(AckKind.NEXT, request=payload[4:].strip())
    if payload.startswith(TERM):
        return AckPayload(AckKind.TERM, reason=payload[5:].strip().decode("utf-8", "replace"))
    return _IGNORED


def _parse_nak(rest: bytes) -> AckPayload:
    """Return a NAK with the delay of `{"delay": ns}` or of a Go duration."""
    if not rest:
        return _PLAIN_NAK
    try:
        delay = _nak_options.decode(rest).delay if rest.startswith(b"{") else parse_duration(rest.decode())
    except (msgspec.MsgspecError, ValueError):
        return _PLAIN_NAK
    return AckPayload(AckKind.NAK, delay_ns=max(delay, 0))
