"""Blocks of S2 spelled as Snappy: S2 is Snappy's format, plus copies that repeat the last offset.

Only repeats differ, and everything between two of them is passed over by one match of a regular expression that spells
what an element may be, at four times the speed of a loop over elements. Pure, and of the standard library only: it
travels to Spark's executors. Source: the Snappy format description and S2's description of its repeat codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

MAX_BLOCK_BYTES: Final = 8 << 20
"""Longest block that is decoded; S2 itself allows 4 MiB."""
_LITERAL_TAGS: Final = 60
"""Lengths of literals that the tag itself tells; longer ones are met one by one."""
_COPY_BYTES: Final = 64
_WIDE: Final = 1 << 16
"""Offset from which on a copy needs four bytes for it."""
_RUN: Final = 256
"""Elements of one match: the engine keeps 100 bytes for each of them."""
_TAGS: Final = tuple(bytes((tag,)) for tag in range(256))


class BlockFault(Exception):
    """The block is damaged; the text says how."""


def _one_of(tags: Iterable[int]) -> bytes:
    return b"[%b]" % b"".join(b"\\x%02x" % tag for tag in tags)


def _literal(tag: int) -> bytes:
    return b"\\x%02x.{%d}" % (tag, (tag >> 2) + 1)


_COPIES: Final = b"|".join(
    (
        _one_of(range(2, 256, 4)) + b".{2}",
        _one_of(range(0x21, 256, 4)) + b".",
        _one_of(range(1, 0x21, 4)) + b"[^\\x00]",
        _one_of(range(3, 256, 4)) + b".{4}",
    )
)
_PLAIN: Final = re.compile(
    b"(?:(%b)|%b){1,%d}" % (_COPIES, b"|".join(_literal(length << 2) for length in range(_LITERAL_TAGS)), _RUN),
    re.DOTALL,
)
"""A run of elements that mean the same in Snappy; the group is the last copy among them."""


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


def as_snappy(block: bytes) -> Iterator[bytes]:
    """Yield the pieces that together are the block in Snappy's spelling. Raises BlockFault."""
    size, at = decoded_size(block)
    yield block[:at]
    try:
        yield from _elements(block, at, size)
    except IndexError as fault:
        raise BlockFault("a block ends inside an element") from fault


def _elements(block: bytes, at: int, size: int) -> Iterator[bytes]:
    """Yield the elements from `at` on; `size` bounds what repeats may add up to."""
    offset, match, end = 0, _PLAIN.match, len(block)
    while at < end:
        run = match(block, at)
        if run is not None:
            yield run[0]
            at = run.end()
            if copy := run[1]:
                offset = _offset(copy)
        elif block[at] & 3:
            at, length = _repeat(block, at)
            size -= length
            if not offset or size < 0:
                raise BlockFault("a repeat has nothing to repeat, or too much")
            yield _copies(offset, length)
        else:
            stop = _end_of_literal(block, at)
            yield block[at:stop]
            at = stop


def _offset(copy: bytes) -> int:
    """Return how far back a copy goes."""
    tag = copy[0]
    return (tag & 0xE0) << 3 | copy[1] if tag & 3 == 1 else int.from_bytes(copy[1:], "little")


def _end_of_literal(block: bytes, at: int) -> int:
    """Return where a literal ends whose length stands after its tag."""
    extra = (block[at] >> 2) - (_LITERAL_TAGS - 1)
    start = at + 1 + extra
    if extra < 1 or start > len(block):
        raise BlockFault("a literal ends beyond its block")
    end = start + int.from_bytes(block[at + 1 : start], "little") + 1
    if end > len(block):
        raise BlockFault("a literal ends beyond its block")
    return end


def _repeat(block: bytes, at: int) -> tuple[int, int]:
    """Return where a repeat ends, and how many bytes it repeats."""
    if block[at] & 3 != 1 or block[at + 1]:
        raise BlockFault("a copy ends beyond its block")
    length = block[at] >> 2 & 7
    if length < 5:
        return at + 2, length + 4
    extra = length - 4
    base = {1: 4, 2: 1 << 8, 3: 1 << 16}[extra]
    end = at + 2 + extra
    if end > len(block):
        raise BlockFault("a repeat ends beyond its block")
    return end, int.from_bytes(block[at + 2 : end], "little") + base + 4


def _copies(offset: int, length: int) -> bytes:
    """Return Snappy's copies of `length` bytes from `offset` bytes back."""
    width, kind = (2, 2) if offset < _WIDE else (4, 3)
    back = offset.to_bytes(width, "little")
    if length <= _COPY_BYTES:
        return _TAGS[(length - 1) << 2 | kind] + back
    count, rest = divmod(length, _COPY_BYTES)
    whole = (_TAGS[(_COPY_BYTES - 1) << 2 | kind] + back) * count
    return whole + _TAGS[(rest - 1) << 2 | kind] + back if rest else whole
