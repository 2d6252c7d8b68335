"""The outer layer of an archive: framed Snappy, readable by every S2 reader, and S2 frames as nats-server writes them.

A frame is a type byte, a length of three bytes, and (types 0x00 compressed and 0x01 plain) a masked CRC-32C of its
content. cramjam writes, and does the arithmetic of checks and plain Snappy blocks; blocks with S2's own codes are
rewritten as plain Snappy first (s2_rewrite.py).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import lru_cache
from typing import Final

import cramjam

from natsctl.api.archive.s2_rewrite import S2BlockError, as_snappy, decoded_size
from natsctl.native import lib


def decode_steps(block: bytes) -> Generator[bytes, None, bytes]:
    """Return the content of one block, and yield b"" between pieces of long work. Raises S2BlockError."""
    parts: list[bytes] = []
    for part in as_snappy(block):
        parts.append(part)
        yield b""
    try:
        return bytes(cramjam.snappy.decompress_raw(b"".join(parts)))
    except cramjam.DecompressionError as fault:
        raise S2BlockError(f"a block is damaged: {fault}") from fault


_STREAM_ID: Final = 0xFF
_MAGICS: Final = (b"S2sTwO", b"sNaPpY")
_COMPRESSED: Final = 0x00
_PLAIN: Final = 0x01
_SKIPPED: Final = (0xFE, 0x99)
"""Padding and an index. Other frames that the format lets readers skip never come from a server, and one flipped bit
would make a frame of content one of them."""
_CHECKED_BYTES: Final = 65536
"""Bytes that cramjam puts into one frame, and so covers with one checksum."""
_HEAD_BYTES: Final = 4
_AT_ONCE_BYTES: Final = 256 << 10
"""Content of frames that are decoded together: less than a millisecond."""
_POLYNOMIAL: Final = 0x82F63B78
_MASK_DELTA: Final = 0xA282EAD8
_M32: Final = 0xFFFFFFFF


class S2FrameError(Exception):
    """The layer is damaged; the text says how."""


class FrameWriter:
    """A compressor of bytes that come piece by piece."""

    def __init__(self) -> None:
        self._compressor = cramjam.snappy.Compressor()

    def write(self, data: bytes) -> bytes:
        """Return frames that hold everything given so far; nothing is kept back."""
        self._compressor.compress(data)
        return bytes(self._compressor.flush())

    def finish(self) -> bytes:
        """Return the rest."""
        return bytes(self._compressor.finish())


class FrameReader:
    """A decoder of frames as they arrive; it keeps less than one of them."""

    def __init__(self) -> None:
        self._rest = bytearray()
        """A frame that has begun."""
        self._started = False
        self.content_only = False
        """Reject empty frames from here on; no writer emits one after the last content frame."""

    def read(self, data: bytes) -> Iterator[bytes]:
        """Yield the content of the frames that `data` completes, and b"" between pieces of long work.

        Raises S2FrameError.
        """
        at = 0
        if self._rest:
            at = self._completed(data)
            if len(self._rest) < _HEAD_BYTES or len(self._rest) < _frame_end(self._rest, 0):
                return
            frame, self._rest = bytes(self._rest), bytearray()
            yield from self._frames(frame, 0)
        at = yield from self._frames(data, at)
        self._rest += data[at:]

    def _completed(self, data: bytes) -> int:
        """Add the bytes of `data` that the frame that has begun lacks, and return how many."""
        rest = self._rest
        taken = max(_HEAD_BYTES - len(rest), 0)
        rest += data[:taken]
        if len(rest) >= _HEAD_BYTES:
            lacking = _frame_end(rest, 0) - len(rest)
            rest += data[taken : taken + lacking]
            taken += lacking
        return min(taken, len(data))

    def _frames(self, data: bytes, at: int) -> Generator[bytes, None, int]:
        """Yield the content of the complete frames from `at` on, and return their end."""
        if at < len(data) and not self._started and data[at] != _STREAM_ID:
            raise S2FrameError("this is not an S2 or Snappy stream")
        while len(data) - at >= _HEAD_BYTES:
            if lib is not None and self._started:
                content, end = lib.unframe(data, at, _AT_ONCE_BYTES)
                if end > at:
                    at = end
                    yield content
                    continue
            end = _frame_end(data, at)
            if end > len(data):
                break
            content = yield from self._frame(data[at], data[at + _HEAD_BYTES : end])
            at = end
            yield content
        return at

    @property
    def started(self) -> bool:
        """Return whether anything was read."""
        return self._started

    @property
    def between_frames(self) -> bool:
        """Return whether the bytes so far end with a whole frame."""
        return self._started and not self._rest

    def _frame(self, kind: int, body: bytes) -> Generator[bytes, None, bytes]:
        if self.content_only and (kind == _STREAM_ID or kind in _SKIPPED):
            raise S2FrameError("a frame without content follows the end")
        if kind == _STREAM_ID:
            if body not in _MAGICS:
                raise S2FrameError("this is not an S2 or Snappy stream")
            self._started = True
            return b""
        if not self._started:
            raise S2FrameError("this is not an S2 or Snappy stream")
        if kind in _SKIPPED:
            return b""
        if kind not in (_COMPRESSED, _PLAIN) or len(body) < 4:
            raise S2FrameError(f"a frame is of unknown type 0x{kind:02x}")
        content = body[4:] if kind == _PLAIN else (yield from _decompressed(body[4:]))
        if mask(crc32c(content)) != int.from_bytes(body[:4], "little"):
            raise S2FrameError("s2: corrupt input, crc mismatch")
        return content


def _frame_end(data: bytes | bytearray, at: int) -> int:
    """Return where the frame at `at` ends, by its head."""
    return at + _HEAD_BYTES + int.from_bytes(data[at + 1 : at + _HEAD_BYTES], "little")


def _decompressed(block: bytes) -> Generator[bytes, None, bytes]:
    """Return the content of a block, by cramjam if it is plain Snappy; yield b"" between pieces of long work."""
    try:
        decoded_size(block)
        try:
            return bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError:
            return (yield from decode_steps(block))
    except S2BlockError as fault:
        raise S2FrameError(str(fault)) from fault


def mask(crc: int) -> int:
    """Return a check as frames carry it."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _M32


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of `data`; the arithmetic over bytes is cramjam's, as part of its own frames."""
    total, left = 0, len(data)
    for check in _checks(bytes(cramjam.snappy.compress(data))):
        size = min(left, _CHECKED_BYTES)
        total = _product(_factor(size), total) ^ check if total else check
        left -= size
    return total


def _checks(frames: bytes) -> Iterator[int]:
    """Yield the unmasked check of each frame with content."""
    at = 0
    while at < len(frames):
        if frames[at] != _STREAM_ID:
            masked = (int.from_bytes(frames[at + 4 : at + 8], "little") - _MASK_DELTA) & _M32
            yield (masked >> 17 | masked << 15) & _M32
        at += 4 + int.from_bytes(frames[at + 1 : at + 4], "little")


@lru_cache(8)
def _factor(size: int) -> int:
    """Return x to the power of so many bytes, modulo the CRC's polynomial."""
    factor, power, bits = 1 << 31, 1 << 30, size * 8
    while bits:
        if bits & 1:
            factor = _product(factor, power)
        power = _product(power, power)
        bits >>= 1
    return factor


def _product(a: int, b: int) -> int:
    """Return a times b modulo the CRC's polynomial; bits are reflected."""
    result, bit = 0, 1 << 31
    while bit:
        if a & bit:
            result ^= b
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
        bit >>= 1
    return result
