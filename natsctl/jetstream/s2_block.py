"""One block of S2: Snappy's format, plus copies that repeat the last offset.

Source: the Snappy format description and S2's description of its repeat codes. Blocks that are plain Snappy never come
here; cramjam decodes those.
"""

from __future__ import annotations

from typing import Final

MAX_BLOCK_BYTES: Final = 8 << 20
"""Longest block that is decoded; S2 itself allows 4 MiB."""


class BlockFault(Exception):
    """The block is damaged; the text says how."""


def decoded_size(block: bytes) -> tuple[int, int]:
    """Return the size a block claims to decode to, and where its elements start. Raises BlockFault."""
    size = shift = 0
    for at in range(min(len(block), 5)):
        byte = block[at]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            if size > MAX_BLOCK_BYTES:
                raise BlockFault(f"a block of {size} bytes is over the limit")
            return size, at + 1
        shift += 7
    raise BlockFault("a block has no length")


def decode_block(block: bytes) -> bytes:
    """Return the content of one block. Raises BlockFault."""
    size, at = decoded_size(block)
    out = bytearray()
    offset = 0
    try:
        while at < len(block):
            tag = block[at]
            kind = tag & 3
            if kind == 0:
                at, end = _literal(block, at, tag >> 2)
                out += block[at:end]
                at = end
            else:
                at, offset, length = _copy(block, at, tag, kind, offset)
                _repeat(out, offset, length)
            if len(out) > size:
                raise BlockFault("a block holds more than it claims")
    except IndexError as fault:
        raise BlockFault("a block ends inside an element") from fault
    if len(out) != size:
        raise BlockFault("a block holds less than it claims")
    return bytes(out)


def _literal(block: bytes, at: int, value: int) -> tuple[int, int]:
    """Return where a literal starts and ends."""
    if value < 60:
        start, length = at + 1, value + 1
    else:
        start = at + value - 58
        length = int.from_bytes(block[at + 1 : start], "little") + 1
    if start + length > len(block):
        raise BlockFault("a literal ends beyond its block")
    return start, start + length


def _copy(block: bytes, at: int, tag: int, kind: int, offset: int) -> tuple[int, int, int]:
    """Return where the next element starts, and offset and length of a copy."""
    if kind == 2:
        return at + 3, block[at + 1] | block[at + 2] << 8, (tag >> 2) + 1
    if kind == 3:
        return at + 5, int.from_bytes(block[at + 1 : at + 5], "little"), (tag >> 2) + 1
    given = (tag & 0xE0) << 3 | block[at + 1]
    length = tag >> 2 & 7
    if given:
        return at + 2, given, length + 4
    if length < 5:
        return at + 2, offset, length + 4
    extra = length - 4
    base = {1: 4, 2: 1 << 8, 3: 1 << 16}[extra]
    if at + 2 + extra > len(block):
        raise BlockFault("a repeat ends beyond its block")
    return at + 2 + extra, offset, int.from_bytes(block[at + 2 : at + 2 + extra], "little") + base + 4


def _repeat(out: bytearray, offset: int, length: int) -> None:
    """Append `length` bytes from `offset` bytes back, which may overlap what is appended."""
    if not 0 < offset <= len(out) or length > MAX_BLOCK_BYTES:
        raise BlockFault("a copy points outside its block")
    start = len(out) - offset
    if offset >= length:
        out += out[start : start + length]
        return
    pattern = bytes(out[start:])
    out += (pattern * (length // offset + 1))[:length]
