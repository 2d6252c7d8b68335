"""Blocks of S2 as blocks of Snappy, which Arrow decodes: what `as_snappy` gives, put together by Arrow.

A repeat becomes a copy with the offset of the last one. Columns have a row for each repeat; of eight bytes from its
place on, and from that of its source, follows what the copy is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.api.archive.s2_rewrite import S2BlockError, copies, decoded_size, offset_of, repeated, repeats
from natsctl.spark.source.columns.arrays import int_array
from natsctl.spark.source.columns.pieces import Ruler, same
from natsctl.spark.source.columns.slices import joined, number, slices_of, spans, words

_WORD: Final = 8
_LONGER: Final = 0x15
"""Tag of the repeats with a byte for their length behind them; lower ones have none."""
_MOST_LONGER: Final = 56
"""The greatest value of that byte where the repeat is one copy."""


def respelled(block: bytes, ruler: Ruler) -> bytes | pa.Buffer:
    """Return a block in Snappy's spelling; raises S2BlockError."""
    size, start = decoded_size(block)
    places, sources = next(repeats(block, start, len(block) + 1))
    if not places:
        return block
    at, padded = int_array(places), block + bytes(_WORD)
    repeat = words(padded, at)
    tag, more = _byte(repeat, 0), _byte(repeat, 2)
    longer = pc.equal(tag, number(_LONGER))
    spelled, widths = _copies(tag, more, longer, words(padded, int_array(sources)))
    begins = pc.add(ruler.counted(0, _WORD, len(at)).cast(pa.int64()), number(len(padded)))
    columns = [begins, pc.add(begins, widths), pc.add(at, pc.if_else(longer, number(3), number(2)))]
    several = pc.or_(pc.greater(tag, number(_LONGER)), pc.and_(longer, pc.greater(more, number(_MOST_LONGER))))
    extra = b""
    if pc.any(several).as_py():
        rows = pc.indices_nonzero(several).to_pylist()
        base = len(padded) + _WORD * len(at)
        extra, replaced = _long_ones(block, [(places[row], sources[row]) for row in rows], base, size)
        columns = [pc.replace_with_mask(*each) for each in zip(columns, [several] * 3, replaced, strict=True)]
    data = b"".join((padded, spelled.buffers()[1], extra))
    return _put_together(data, at, columns, len(block), ruler)


def _byte(word: pa.Int64Array, at: int) -> pa.Int64Array:
    """Return one byte of each of eight."""
    return pc.bit_wise_and(pc.shift_right(word, number(8 * at)), number(0xFF))


def _copies(
    tag: pa.Int64Array, more: pa.Int64Array, longer: pa.BooleanArray, source: pa.Int64Array
) -> tuple[pa.Int64Array, pa.Int64Array]:
    """Return the copies that stand for repeats of one copy, each in eight bytes, and how many of them it is.

    The offset lies where it lay in the source, but for those that have a part of it in their tag.
    """
    kind = pc.bit_wise_and(source, number(3))
    far = pc.equal(kind, number(3))
    high = pc.shift_left(pc.bit_wise_and(source, number(0xE0)), number(11))
    near = pc.bit_wise_or(pc.bit_wise_and(source, number(0xFF00)), high)
    offset = pc.bit_wise_and(source, pc.if_else(far, number(0xFFFFFFFF00), number(0xFFFF00)))
    offset = pc.if_else(pc.equal(kind, number(1)), near, offset)
    short = pc.add(tag, number((4 - 1 << 2 | 2) - 1))
    long = pc.add(pc.shift_left(more, number(2)), number(8 - 1 << 2 | 2))
    copy = pc.bit_wise_or(pc.if_else(longer, long, short), pc.if_else(far, number(1), number(0)))
    return pc.bit_wise_or(offset, copy), pc.if_else(far, number(5), number(3))


def _long_ones(
    block: bytes, found: Sequence[tuple[int, int]], base: int, size: int
) -> tuple[bytes, list[pa.Int64Array]]:
    """Return the copies that stand for repeats of several, the begin and end of each from `base` on, and the repeat.

    Raises S2BlockError where they are more than the whole block decodes to.
    """
    extra = bytearray()
    begins: list[int] = []
    ends: list[int] = []
    behind: list[int] = []
    for place, source in found:
        length, end = repeated(block, place)
        size -= length
        if size < 0:
            raise S2BlockError("a repeat repeats too much")
        begins.append(base + len(extra))
        extra += copies(offset_of(block, source), length)
        ends.append(base + len(extra))
        behind.append(end)
    return bytes(extra), [int_array(column) for column in (begins, ends, behind)]


def _put_together(
    data: bytes, at: pa.Int64Array, columns: Sequence[pa.Int64Array], end: int, ruler: Ruler
) -> pa.Buffer:
    """Return the bytes between the repeats and those that stand for them, in turns; nothing stands for the end."""
    begins, ends, behind = columns
    last = int_array((end,))
    between = spans(pa.concat_arrays([int_array((0,)), behind]), pa.concat_arrays([at, last]))
    instead = pa.concat_arrays([spans(begins, ends), spans(last, last)])
    return joined(slices_of(data, _in_turns(between, instead, ruler)))


def _in_turns(one: pa.Int64Array, other: pa.Int64Array, ruler: Ruler) -> pa.Int64Array:
    """Return the numbers of two columns of the same length in turns."""
    rows, bit = ruler.counted(0, 1, 2 * len(one)), same(1, 1)[0]
    second = pc.multiply(pc.bit_wise_and(rows, bit), same(len(one), 1)[0])
    return pa.concat_arrays([one, other]).take(pc.add(pc.shift_right(rows, bit), second))
