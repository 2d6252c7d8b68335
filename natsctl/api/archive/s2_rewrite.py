"""Blocks of S2 spelled as Snappy: S2 is Snappy's format, plus copies that repeat the last offset.

Only repeats differ, and everything up to and with the next one is found by one match of a regular expression that
spells what an element may be, at ten times the speed of a loop over elements. Pure, and of the standard library only:
it travels to Spark's executors. Source: the Snappy format description and S2's description of its repeat codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

MAX_BLOCK_BYTES: Final = 8 << 20
"""Longest block that is decoded; S2 itself allows 4 MiB."""
_LITERAL_TAGS: Final = 60
"""Lengths of literals that the tag itself tells."""
_COPY_BYTES: Final = 64
_RUN_ELEMENTS: Final = 256
"""Elements of one match: the engine keeps 100 bytes for each of them."""
_TAGS: Final = tuple(bytes((tag,)) for tag in range(256))


class BlockFault(Exception):
    """The block is damaged; the text says how."""


def _one_of(tags: Iterable[int]) -> bytes:
    return b"[%b]" % b"".join(b"\\x%02x" % tag for tag in tags)


def _literals(lengths: Iterable[int]) -> bytes:
    """Literals whose tag tells how long they are."""
    return b"|".join(b"\\x%02x.{%d}" % (length - 1 << 2, length) for length in lengths)


_FEW: Final = 8
"""Literals up to that length are the most frequent elements, and so are tried first."""
_LONGER: Final = b"\\xf0(?:%b)" % b"|".join(
    b"\\x%02x.{%d}" % (size - 1, size) for size in range(_LITERAL_TAGS + 1, 257)
)
"""Literals whose length is a byte behind the tag; those that are longer still are met one by one."""
_COPY: Final = b"|".join(
    (
        _one_of(range(2, 256, 4)) + b".{2}",
        _one_of(range(0x21, 256, 4)) + b".",
        _one_of(range(1, 0x21, 4)) + b"[^\\x00]",
        _one_of(range(3, 256, 4)) + b".{4}",
    )
)
_REPEAT: Final = rb"[\x01\x05\x09\x0d\x11]\x00|\x15\x00.|\x19\x00.{2}|\x1d\x00.{3}"
_RUN: Final = re.compile(
    b"((?:%b|(%b)|%b|%b){0,%d})(%b)?"
    % (
        _literals(range(1, _FEW + 1)),
        _COPY,
        _literals(range(_FEW + 1, _LITERAL_TAGS + 1)),
        _LONGER,
        _RUN_ELEMENTS,
        _REPEAT,
    ),
    re.DOTALL,
)
"""A run of elements that mean the same in Snappy, of which the last copy is a group, and a repeat behind it."""
_NEAR: Final = {bytes((tag, low)): bytes((low, tag >> 5)) for tag in range(1, 256, 4) for low in range(256)}
"""The offsets of copies that have a part of it in their tag, in two bytes."""
_SHORT: Final = {bytes((length - 4 << 2 | 1, 0)): _TAGS[length - 1 << 2 | 2] for length in range(4, 9)} | {
    bytes((0x15, 0, length - 8)): _TAGS[length - 1 << 2 | 2] for length in range(8, _COPY_BYTES + 1)
}
"""The tags of copies with offsets of two bytes, by the repeats that are one copy."""


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
    back = b""
    while at < len(block):
        for found in iter(_RUN.scanner(block, at).match, None):  # type: ignore[attr-defined]  # typeshed lacks it
            run, copy, repeat = found.groups()
            at = found.end()
            if copy:
                back = _NEAR[copy] if copy in _NEAR else copy[1:]
            if repeat in _SHORT and len(back) == 2:
                yield run + _SHORT[repeat] + back
            elif repeat:
                length = _repeated(repeat)
                size -= length
                if not back or size < 0:
                    raise BlockFault("a repeat has nothing to repeat, or too much")
                yield run + _copies(back, length)
            elif run:
                yield run
            else:
                break
        if at < len(block):
            stop = _end_of_literal(block, at)
            yield block[at:stop]
            at = stop


def _end_of_literal(block: bytes, at: int) -> int:
    """Return where a literal ends whose length stands after its tag; other elements are whole, or matched a run."""
    if block[at] & 3:
        raise BlockFault("a copy ends beyond its block")
    extra = (block[at] >> 2) - (_LITERAL_TAGS - 1)
    start = at + 1 + extra
    if extra < 1 or start > len(block):
        raise BlockFault("a literal ends beyond its block")
    end = start + int.from_bytes(block[at + 1 : start], "little") + 1
    if end > len(block):
        raise BlockFault("a literal ends beyond its block")
    return end


def _repeated(repeat: bytes) -> int:
    """Return how many bytes a repeat repeats."""
    length = repeat[0] >> 2
    if length < 5:
        return length + 4
    return int.from_bytes(repeat[2:], "little") + {5: 4, 6: 1 << 8, 7: 1 << 16}[length] + 4


def _copies(back: bytes, length: int) -> bytes:
    """Return Snappy's copies of `length` bytes from an offset, spelled as they spell it."""
    kind = 2 if len(back) == 2 else 3
    count, rest = divmod(length, _COPY_BYTES)
    whole = (_TAGS[(_COPY_BYTES - 1) << 2 | kind] + back) * count
    return whole + _TAGS[(rest - 1) << 2 | kind] + back if rest else whole
