"""NATS header blocks as bytes: `NATS/1.0[ status[ text]]` CRLF, `Key: Value` CRLF …, CRLF. Keys are case-sensitive."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from natsctl.api.errors import ProtocolError
from natsctl.hints import Final

VERSION: Final = b"NATS/1.0"

# Publishing
MSG_ID: Final = b"Nats-Msg-Id"
LEGACY_MSG_ID: Final = b"Msg-Id"
EXPECTED_STREAM: Final = b"Nats-Expected-Stream"
EXPECTED_LAST_SEQ: Final = b"Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ: Final = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQ_SUBJECT: Final = b"Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_MSG_ID: Final = b"Nats-Expected-Last-Msg-Id"
ROLLUP: Final = b"Nats-Rollup"
TTL: Final = b"Nats-TTL"
INCR: Final = b"Nats-Incr"
COUNTER_SOURCES: Final = b"Nats-Counter-Sources"
BATCH_ID: Final = b"Nats-Batch-Id"
BATCH_SEQUENCE: Final = b"Nats-Batch-Sequence"
BATCH_COMMIT: Final = b"Nats-Batch-Commit"
SCHEDULE: Final = b"Nats-Schedule"
SCHEDULE_TIME_ZONE: Final = b"Nats-Schedule-Time-Zone"
SCHEDULE_TARGET: Final = b"Nats-Schedule-Target"
SCHEDULE_SOURCE: Final = b"Nats-Schedule-Source"
SCHEDULE_TTL: Final = b"Nats-Schedule-TTL"
SCHEDULE_ROLLUP: Final = b"Nats-Schedule-Rollup"
SCHEDULER: Final = b"Nats-Scheduler"
SCHEDULE_NEXT: Final = b"Nats-Schedule-Next"
STREAM_SOURCE: Final = b"Nats-Stream-Source"
STREAM_IDENTITY: Final = b"Nats-Stream-Identity"
"""Distinguishes a stream from one of the same name that was made at another time."""
STREAM_BLOCKS: Final = b"Nats-Stream-Blocks"
"""Asks STREAM.INFO whether STREAM.BLOCKS serves the stream; the answers of both give the format of blocks."""
REQUEST_INFO: Final = b"Nats-Request-Info"
REQUIRED_API_LEVEL: Final = b"Nats-Required-Api-Level"
# Deliveries, direct get and republish
STREAM: Final = b"Nats-Stream"
SUBJECT: Final = b"Nats-Subject"
SEQUENCE: Final = b"Nats-Sequence"
TIME_STAMP: Final = b"Nats-Time-Stamp"
LAST_SEQUENCE: Final = b"Nats-Last-Sequence"
NUM_PENDING: Final = b"Nats-Num-Pending"
UP_TO_SEQUENCE: Final = b"Nats-UpTo-Sequence"
MSG_SIZE: Final = b"Nats-Msg-Size"
PENDING_MESSAGES: Final = b"Nats-Pending-Messages"
LAST_CONSUMER: Final = b"Nats-Last-Consumer"
LAST_STREAM: Final = b"Nats-Last-Stream"
CONSUMER_STALLED: Final = b"Nats-Consumer-Stalled"
PIN_ID: Final = b"Nats-Pin-Id"
MARKER_REASON: Final = b"Nats-Marker-Reason"
KV_OPERATION: Final = b"KV-Operation"


def get(block: bytes, key: bytes) -> bytes | None:
    """Return the first value of `key` without the blanks around it, or None; the block is not parsed as a whole."""
    position = block.find(b"\r\n" + key + b":")
    if position < 0:
        return None
    start = position + len(key) + 3
    end = block.find(b"\r\n", start)
    return block[start : end if end >= 0 else None].strip()


def parse(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return the pairs of a block in order, repeated keys included; none for an empty block. Raises ProtocolError."""
    if not block:
        return []
    _check_block(block)
    pairs = []
    for line in block.split(b"\r\n")[1:-2]:
        key, colon, value = line.partition(b":")
        if not colon or not key.strip():
            raise ProtocolError(f"header line {line[:64]!r} has no key")
        pairs.append((key, value.strip()))
    return pairs


def parse_status(block: bytes) -> tuple[int, str]:
    """Return the status and its text of a block, (0, "") when it carries none. Raises ProtocolError."""
    if not block:
        return 0, ""
    _check_block(block)
    status, _, text = block[len(VERSION) : block.index(b"\r\n")].strip().partition(b" ")
    if not status:
        return 0, ""
    if len(status) != 3 or not status.isdigit():
        raise ProtocolError(f"header status {status[:16]!r} is not three digits")
    return int(status), text.strip().decode("utf-8", "replace")


def _check_block(block: bytes) -> None:
    """Raise ProtocolError unless the frame of the block is right."""
    if not block.startswith(VERSION) or not block.endswith(b"\r\n\r\n") or block[8:9] not in (b" ", b"\r"):
        raise ProtocolError("header block does not start with NATS/1.0 or does not end with an empty line")


def encode(pairs: Iterable[tuple[bytes, bytes]], status: bytes = b"", description: bytes = b"") -> bytes:
    """Return a header block; raises ValueError for a key or value that would break its lines."""
    first = VERSION
    if status:
        first = b"NATS/1.0 %b %b" % (status, description) if description else b"NATS/1.0 %b" % status
    return b"%b\r\n%b\r\n" % (first, _lines(pairs))


def append(block: bytes, pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return `block` with `pairs` added at its end; an empty block becomes a new one."""
    return b"%b%b\r\n" % (block[:-2] if block else b"NATS/1.0\r\n", _lines(pairs))


def remove(block: bytes, key: bytes) -> bytes:
    """Return `block` without any line of `key`; a block left without lines becomes empty."""
    needle = b"\r\n" + key + b":"
    if needle not in block:
        return block
    before, *parts = block.split(needle)  # each begins with a value, and ends there if the next line has the key, too
    block = before + b"".join([part[part.find(b"\r\n") :] for part in parts if b"\r\n" in part])
    return b"" if block == b"NATS/1.0\r\n\r\n" else block


def replace(block: bytes, key: bytes, value: bytes) -> bytes:
    """Return `block` with `value` as the first value of `key`; a missing key is added at the end."""
    position = block.find(b"\r\n" + key + b":")
    if position < 0:
        return append(block, ((key, value),))
    start = position + len(key) + 3
    end = block.find(b"\r\n", start)
    gap = b" " if block[start : start + 1] == b" " else b""
    return b"%b%b%b%b" % (block[:start], gap, value, block[end:])


ACCEPT_ENCODING: Final = b"Accept-Encoding"
CONTENT_ENCODING: Final = b"Content-Encoding"


COMPRESS_STEP: Final = 64 << 10
"""Bytes that one step compresses: 2 ms with gzip."""
COMPRESS_COST: Final = 256
GZIP_BITS: Final = 31
"""Window bits of zlib for gzip's format."""


def compressing(body: bytes, request_header: bytes) -> Generator[int, None, tuple[bytes, bytes]]:
    """Return the header block and the body of an answer to a request with `request_header`, in steps.

    The accepted encodings are looked for anywhere in the header: snappy (or s2) first, then gzip. An encoding that is
    requested and not known is answered with `identity`.
    """
    accepted = (get(request_header, ACCEPT_ENCODING) or b"").lower() if request_header else b""
    if not accepted or not body:
        return b"", body
    if b"snappy" in accepted or b"s2" in accepted:
        from natsctl.api.archive.s2 import FrameWriter

        name, frames = b"snappy", FrameWriter()
        write: Callable[[bytes], bytes] = frames.write
        end = frames.finish
    elif b"gzip" in accepted:
        import zlib

        name, deflate = b"gzip", zlib.compressobj(wbits=GZIP_BITS)
        write, end = deflate.compress, deflate.flush
    else:
        return encode(((CONTENT_ENCODING, b"identity"),)), body
    pieces = []
    for at in range(0, len(body), COMPRESS_STEP):
        pieces.append(write(body[at : at + COMPRESS_STEP]))
        yield COMPRESS_COST
    return encode(((CONTENT_ENCODING, name),)), b"".join((*pieces, end()))


def status_line(status: int, description: str = "", *pairs: tuple[bytes, bytes]) -> bytes:
    """Return the block of a status message such as `404 No Messages`."""
    return encode(pairs, b"%d" % status, description.encode())


def _lines(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    lines = []
    for key, value in pairs:
        if not key or b":" in key or b"\r" in key or b"\n" in key or b"\r" in value or b"\n" in value:
            raise ValueError(f"header {key!r} cannot be written: a key has no ':', neither has line breaks")
        lines.append(b"%b: %b\r\n" % (key, value))
    return b"".join(lines)
