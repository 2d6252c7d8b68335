"""Payloads that publishers compressed, as they were before.

A payload is a whole stream of its format. Snappy and S2 come as single blocks (what `snappy.Encode` and `s2.Encode`
make in Go, and Kafka's clients in other languages) or framed; a magic number distinguishes them. With `auto` a
message's header `Content-Encoding` names the format, as in HTTP and in nats-server's own compressed answers, and a
message without it is taken as it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.api.archive.s2_rewrite import S2BlockError, as_snappy, decoded_size
from natsctl.spark.source.arrays import binary_array, int_array, int_scalar
from natsctl.spark.source.errors import JetStreamSourceError

MAX_BYTES: Final = 64 << 20
"""Maximum bytes of a payload: servers accept up to 64 MiB, and a small payload may claim a thousand times its size."""
ENCODING: Final = "content-encoding"
IDENTITY: Final = "identity"

_STREAMED: Final = {"zstd": "zstd", "lz4": "lz4", "brotli": "brotli", "br": "brotli"}
"""Formats that Arrow reads piece by piece, by the names that they have in options and headers."""
_ZLIB_BITS: Final = {"gzip": 31, "zlib": 15, "deflate": 15}
"""zlib's number of a format."""
_MAGIC: Final = (b"\xff\x06\x00\x00sNaPpY", b"\xff\x06\x00\x00S2sTwO")
_BLOCK, _PLAIN, _SKIPPED = 0x00, 0x01, 0x80
_CHECKSUM_BYTES: Final = 4


class DecompressionError(JetStreamSourceError):
    """A payload is not in its declared compression; `row` is its row."""

    code = "JETSTREAM_VALUE"

    def __init__(self, text: str, row: int = 0) -> None:
        super().__init__(text)
        self.row = row

    def __str__(self) -> str:
        return self.text


def decompressed(
    payloads: Sequence[bytes], headers: Sequence[bytes], compression: str, *, strict: bool
) -> pa.BinaryArray:
    """Return the payloads as they were; null for one that is damaged.

    With `strict` that raises DecompressionError instead.

    `headers` are whole blocks, or empty if no message has headers.
    """
    found: list[bytes] = []
    broken: list[int] = []
    for row, payload in enumerate(payloads):
        named = compression if compression != "auto" else encoding_of(headers[row] if len(headers) else b"")
        try:
            found.append(_plain(payload, named))
            broken.append(0)
        except (DecompressionError, S2BlockError, OSError, zlib.error, ValueError) as fault:
            if strict:
                raise DecompressionError(f"its payload is not {named}: {getattr(fault, 'text', fault)}", row) from fault
            found.append(b"")
            broken.append(1)
    values = binary_array(found)
    if not any(broken):
        return values
    return pc.if_else(pc.equal(int_array(broken), int_scalar(1)), pa.nulls(1, pa.binary())[0], values)


def encoding_of(headers: bytes) -> str:
    """Return the format that a header block names, in lower case; `identity` without one."""
    for line in headers.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == ENCODING.encode():
            return value.strip().lower().decode(errors="replace") or IDENTITY
    return IDENTITY


def _plain(payload: bytes, named: str) -> bytes:
    if named == IDENTITY or not payload:  # a message without a payload, such as a marker, has nothing to compress
        return payload
    if named in _ZLIB_BITS:
        return _inflated(payload, _ZLIB_BITS[named])
    if named in ("snappy", "s2"):
        return _snappy(payload)
    if named in _STREAMED:
        return _streamed(payload, _STREAMED[named])
    raise DecompressionError(f"{named!r} is no compression that is known here")


def _inflated(payload: bytes, bits: int) -> bytes:
    found: list[bytes] = []
    left, rest = MAX_BYTES, payload
    while rest:
        machine = zlib.decompressobj(bits)
        part = machine.decompress(rest, left + 1)
        found.append(part)
        left -= len(part)
        _check_size(left)
        if not machine.eof:
            raise DecompressionError("it ends too early")
        rest = machine.unused_data
    return b"".join(found)


def _streamed(payload: bytes, kind: str) -> bytes:
    with pa.input_stream(pa.py_buffer(payload), compression=kind) as stream:
        found = bytes(stream.read(MAX_BYTES + 1))
    _check_size(MAX_BYTES - len(found))
    return found


def _snappy(payload: bytes) -> bytes:
    if not payload.startswith(_MAGIC):
        return _block(payload)
    found, left = list[bytes](), MAX_BYTES
    for kind, body in _chunks(payload):
        if kind in (_BLOCK, _PLAIN):
            content = body[_CHECKSUM_BYTES:]
            found.append(_block(content) if kind == _BLOCK else content)
            left -= len(found[-1])
            _check_size(left)
        elif kind < _SKIPPED:
            raise DecompressionError(f"a frame is of the unknown type 0x{kind:02x}")
    return b"".join(found)


def _chunks(payload: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at + 1 : at + 4], "little")
        if end > len(payload):
            raise DecompressionError("a frame is cut")
        yield payload[at], payload[at + 4 : end]
        at = end


def _block(block: bytes) -> bytes:
    """Return the content of one block, of Snappy or of S2."""
    size = decoded_size(block)[0]
    codec: Callable[..., bytes] = pa.Codec("snappy").decompress
    try:
        return bytes(codec(block, size, asbytes=True))
    except OSError:
        return bytes(codec(b"".join(as_snappy(block)), size, asbytes=True))


def _check_size(left: int) -> None:
    if left < 0:
        raise DecompressionError(f"it is of more than {MAX_BYTES >> 20} MiB")
