"""Blocks of S2 for tests, element by element, with what they decode to."""

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

KINDS: Final = ("literal", "near", "middle", "far", "repeat")
_LITERALS: Final = (1, 2, 60, 61, 255, 256, 257, 70_000)
_REPEATS: Final = (4, 8, 9, 63, 64, 65, 263, 264, 300, 65_539, 65_540, 66_000)

elements = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 1 << 20), st.integers(0, 1 << 20)), min_size=1, max_size=60
)
"""A kind, and two numbers that choose an offset and a length among those that are possible."""


def block_of(chosen: Sequence[tuple[str, int, int]]) -> tuple[bytes, bytes]:
    """A block and its content; what can not stand where it does is a literal."""
    spelled, content, last = bytearray(), bytearray(), 0
    for kind, one, other in chosen:
        if kind == "repeat" and last and len(content) < 1 << 18:
            length = _REPEATS[other % len(_REPEATS)] if other % 3 == 0 else 4 + other % 60
            spelled += _repeat(length)
            _copy(content, last, length)
        elif kind in KINDS[1:4] and content:
            last, length, more = _copy_of(kind, len(content), one, other)
            spelled += more
            _copy(content, last, length)
        else:
            length = _LITERALS[other % len(_LITERALS)] if other % 5 == 0 else 1 + other % 80
            data = bytes((one + at * 7) & 0xFF for at in range(length))
            spelled += _literal_tag(length) + data
            content += data
    return _varint(len(content)) + spelled, bytes(content)


def _copy_of(kind: str, there: int, one: int, other: int) -> tuple[int, int, bytes]:
    if kind == "near":
        offset, length = 1 + one % min(there, 2047), 4 + other % 8
        return offset, length, bytes((offset >> 8 << 5 | length - 4 << 2 | 1, offset & 0xFF))
    length = 1 + other % 64
    if kind == "far":
        offset = 1 + one % there
        return offset, length, bytes((length - 1 << 2 | 3,)) + offset.to_bytes(4, "little")
    offset = 1 + one % min(there, 65_535)
    return offset, length, bytes((length - 1 << 2 | 2,)) + offset.to_bytes(2, "little")


def _copy(content: bytearray, offset: int, length: int) -> None:
    begun = bytes(content[-offset:])
    content += (begun * (length // offset + 1))[:length]


def _repeat(length: int) -> bytes:
    if length <= 8:
        return bytes((length - 4 << 2 | 1, 0))
    if length < 264:
        return bytes((5 << 2 | 1, 0, length - 8))
    if length < 65_540:
        return bytes((6 << 2 | 1, 0)) + (length - 260).to_bytes(2, "little")
    return bytes((7 << 2 | 1, 0)) + (length - 65_540).to_bytes(3, "little")


def _literal_tag(length: int) -> bytes:
    if length <= 60:
        return bytes((length - 1 << 2,))
    extra = ((length - 1).bit_length() + 7) // 8
    return bytes((59 + extra << 2,)) + (length - 1).to_bytes(extra, "little")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))
