"""S2 blocks rewritten as Snappy: S2 is Snappy's format, plus copies that repeat the last offset.

Only repeats differ. The tag of an element gives the distance to the next one, so the rewriting steps from element to
element by two tables and replaces the repeats. Pure, and of the standard library only: it travels to
Spark's executors. Source: the Snappy format description and S2's description of its repeat codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat as times
from typing import Final

MAX_BLOCK_BYTES: Final = 8 << 20
"""Longest block that is decoded; S2 itself allows 4 MiB."""
_LONG_LITERAL: Final = 0xF0
"""Literal tags from this one on are followed by their length in one to four bytes."""
_COPY_BYTES: Final = 64
"""Longest copy of Snappy."""
_GROUP_COPIES: Final = 4096
"""Copies, repeats among them, after which a group ends: half a millisecond."""
_LITERALS: Final = bytes((tag >> 2) + 2 if not tag & 3 and tag < _LONG_LITERAL else 0 for tag in range(256))
"""Length of a literal by its tag, where the tag has it; 0 for all else."""
_COPIES: Final = bytes((0, 2 if tag >= 0x20 else 0, 3, 5)[tag & 3] for tag in range(256))
"""Encoded length of a copy by tag; 0 if it may be a repeat, and for literals."""
_REPEATS: Final = tuple(max(2, (tag >> 2) - 2) if tag < 0x20 and tag & 3 == 1 else 0 for tag in range(256))
"""Encoded length of a repeat by tag; 0 if it is not a repeat."""
_MIN_REPEATED: Final = (4, 5, 6, 7, 8, 8, 260, 65540)
"""Length of a repeat by the length in its tag; for the last three, the following bytes are added."""
_TAGS: Final = tuple(bytes((tag,)) for tag in range(256))
_LONGER: Final = 0x15
"""Tag of repeats followed by a byte with their length minus 8; lower tags contain the length, from 4 on."""
_ONE_COPY: Final = tuple(_TAGS[length - 1 << 2 | 2] for length in range(4, 9))
"""The tags of copies with offsets of two bytes, by the length in the tag of a repeat."""
_ONE_LONGER: Final = tuple(_TAGS[length - 1 << 2 | 2] if length <= _COPY_BYTES else b"" for length in range(8, 264))
"""The same tags by the byte after `_LONGER`; empty if the repeat needs more than one copy."""
_FAR: Final = 3
"""Low bits of the tags of copies with a four-byte offset."""


_near: dict[bytes, bytes] = {}


def _near_offsets() -> dict[bytes, bytes]:
    """Return the two bytes of each offset that is partly in a tag; 2 MB, for blocks left to Python."""
    if not _near:  # executors without natsctl would look for a function of functools.cache by its name
        _near.update({bytes((tag, low)): bytes((low, tag >> 5)) for tag in range(1, 256, 4) for low in range(256)})
    return _near


class S2BlockError(Exception):
    """The block is damaged; the text says how."""


def decoded_size(block: bytes) -> tuple[int, int]:
    """Return the declared decoded size of a block, and the start of its elements. Raises S2BlockError."""
    size = shift = 0
    for at in range(min(len(block), 5)):
        byte = block[at]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            if size > MAX_BLOCK_BYTES:
                raise S2BlockError(f"a block of {size} bytes is over the limit")
            return size, at + 1
        shift += 7
    raise S2BlockError("a block has no length")


def as_snappy(block: bytes) -> Iterator[bytes]:
    """Yield the pieces that together are the block in Snappy's spelling; each costs 2 ms. Raises S2BlockError."""
    size, done = decoded_size(block)
    yield block[:done]
    for places, sources in repeats(block, done, _GROUP_COPIES):
        parts: list[bytes] = []
        for place, source in zip(places, sources, strict=True):
            tag, kind = block[place], block[source] & 3
            spelled = _ONE_COPY[tag >> 2] if tag < _LONGER else _ONE_LONGER[block[place + 2]] if tag == _LONGER else b""
            if spelled and kind != _FAR:
                offset = block[source + 1 : source + 3] if kind == 2 else _near_offsets()[block[source : source + 2]]
                parts += block[done:place], spelled, offset
                done = place + _REPEATS[tag]
                continue
            length, end = repeated(block, place)
            size -= length
            if size < 0:
                raise S2BlockError("a repeat repeats too much")
            parts += block[done:place], copies(offset_of(block, source), length)
            done = end
        yield b"".join(parts)
    yield block[done:]


def repeats(block: bytes, at: int, most: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the positions of repeats in a block with elements from `at` on, and of the copies that they repeat.

    They come in groups, possibly empty, and end after `most` copies or repeats. Raises S2BlockError.
    One loop without calls: they would double its cost.
    """
    literals, copied, repeat_bytes, last = block.translate(_LITERALS), block.translate(_COPIES), _REPEATS, -1
    ended = False
    while not ended:
        places: list[int] = []
        sources: list[int] = []
        try:
            for _ in times(None, most):
                at += literals[at]
                if step := copied[at]:
                    last = at
                    at += step
                    continue
                tag = block[at]
                if step := repeat_bytes[tag]:
                    if block[at + 1]:
                        last = at
                        at += 2
                    else:
                        places.append(at)
                        sources.append(last)
                        at += step
                elif tag == 0xF0:
                    at += block[at + 1] + 3
                elif tag > 0xF0:
                    body = at + (tag >> 2) - 58
                    at = body + int.from_bytes(block[at + 1 : body], "little") + 1
        except IndexError:
            ended = True
        if at > len(block) or (ended and at < len(block)):
            raise S2BlockError("an element ends beyond its block")
        if sources and sources[0] < 0:
            raise S2BlockError("a repeat has nothing to repeat")
        yield places, sources


def repeated(block: bytes, place: int) -> tuple[int, int]:
    """Return the length that the repeat at `place` produces, and its end."""
    tag = block[place]
    end = place + _REPEATS[tag]
    return _MIN_REPEATED[tag >> 2] + int.from_bytes(block[place + 2 : end], "little"), end


def offset_of(block: bytes, source: int) -> bytes:
    """Return the offset of the copy at `source`, in two bytes or in four."""
    tag = block[source]
    if tag & 3 == 1:
        return bytes((block[source + 1], tag >> 5))
    return block[source + 1 : source + _COPIES[tag]]


def copies(offset: bytes, length: int) -> bytes:
    """Return Snappy's copies of `length` bytes from an offset of two bytes or four."""
    kind = 2 if len(offset) == 2 else 3
    if length <= _COPY_BYTES:
        return _TAGS[(length - 1) << 2 | kind] + offset
    count, rest = divmod(length, _COPY_BYTES)
    whole = (_TAGS[(_COPY_BYTES - 1) << 2 | kind] + offset) * count
    return whole + _TAGS[(rest - 1) << 2 | kind] + offset if rest else whole
