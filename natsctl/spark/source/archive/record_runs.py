"""Runs of version 2's records that look as most do, cut by Arrow.

Such a record has a name below 128 bytes, a time between 1972 and 2116, a sequence as long as the first one's, and sizes
below 16 KiB. One loop adds up how long records are as if all were such; then columns of them show where that ended.
"""

from __future__ import annotations

from functools import reduce
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.columns.arrays import int_array
from natsctl.spark.source.columns.rows import Rows, RowShape
from natsctl.spark.source.columns.slices import any_sliced, number, sliced, words

MOST_HEAD_BYTES: Final = 5 * 10
"""Five numbers of 64 bits."""
_SEQ_AT: Final = 10
"""Behind one byte for the length of the name, and nine of the time."""
_MOST_SEQ_BYTES: Final = 6
_GOES_ON: Final = 0x80
"""The bit of a byte that says that the number has more."""
_SEVEN: Final = 0x7F


class _Columns(NamedTuple):
    """Numbers of each record, and where in the data it goes on behind them."""

    named: pa.Int64Array
    times: pa.Int64Array
    seqs: pa.Int64Array
    header: pa.Int64Array
    body: pa.Int64Array
    fits: pa.BooleanArray
    """Whether the record is such a one; nothing else counts where it is not."""


def run_at(data: bytes, at: int, stop: int, seq: int, shape: RowShape) -> tuple[Rows, int] | None:
    """Return the whole records from `at` on, the first of which has that sequence, and where the run of them ends.

    None where the first record is not such a one. The last one begins before `stop`.
    """
    seq_bytes = (seq.bit_length() + 6) // 7
    if not 0 < seq_bytes <= _MOST_SEQ_BYTES:
        return None
    found = _starts(data, at, min(stop, len(data) - MOST_HEAD_BYTES), _SEQ_AT + seq_bytes)
    if found[-1] > len(data):
        found.pop()
    if len(found) < 2:
        return None
    places = int_array(found)
    columns = _columns(data, places[:-1], seq_bytes)
    size = _fitting(columns.fits)
    if not size:
        return None
    return _rows(data, _Columns(*(column[:size] for column in columns)), places[1 : size + 1], shape), found[size]


def _starts(data: bytes, at: int, safe: int, sizes_at: int) -> list[int]:
    """Return the begins of records up to the first behind `safe`; a header's length is `sizes_at` bytes behind each."""
    starts: list[int] = []
    while at < safe:
        starts.append(at)
        place = at + sizes_at
        size = data[place]
        if size > 127:
            place += 1
            size += data[place] * 128 - 128
        payload = data[place + 1]
        if payload < 128:
            at = place + 2 + data[at] + size + payload
        else:
            more = data[place + 2]
            if more > 127:
                break
            at = place + 3 + data[at] + size + payload - 128 + more * 128
    else:
        starts.append(at)
    return starts


def _columns(data: bytes, places: pa.Int64Array, seq_bytes: int) -> _Columns:
    """Return the fields of the heads of records."""
    first, second = words(data, places), words(data, pc.add(places, number(8)))
    sizes_at = pc.add(places, number(_SEQ_AT + seq_bytes))
    sizes = words(data, sizes_at)
    header, header_bytes, header_fits = _size(sizes)
    _, payload_bytes, payload_fits = _size(
        pc.if_else(pc.equal(header_bytes, number(1)), _from(sizes, 1), _from(sizes, 2))
    )
    named = pc.bit_wise_and(first, number(0xFF))
    low = pc.bit_wise_or(pc.bit_wise_and(_from(first, 1), number((1 << 56) - 1)), pc.shift_left(second, number(56)))
    top = pc.bit_wise_and(_from(second, 1), number(_SEVEN))
    spelled = pc.bit_wise_or(_sevens(low), pc.shift_left(top, number(56)))
    seqs = _sevens(pc.bit_wise_and(_from(second, 2), number((1 << 8 * seq_bytes) - 1)))
    fits = (
        _goes_on(first, b"\0" + b"\x80" * 7),
        _goes_on(second, b"\x80\0" + b"\x80" * (seq_bytes - 1) + b"\0"),
        header_fits,
        payload_fits,
        pc.greater(named, number(0)),
        pc.greater(seqs, number(0)),
    )
    times = pc.bit_wise_xor(pc.shift_right(spelled, number(1)), pc.negate(pc.bit_wise_and(spelled, number(1))))
    body = pc.add(sizes_at, pc.add(header_bytes, payload_bytes))
    return _Columns(named, times, seqs, header, body, reduce(pc.and_, fits))


def _size(spelled: pa.Int64Array) -> tuple[pa.Int64Array, pa.Int64Array, pa.BooleanArray]:
    """Return the number that begins there, how many bytes it has, and whether it has no more than two."""
    low, high = pc.bit_wise_and(spelled, number(0xFF)), pc.bit_wise_and(_from(spelled, 1), number(0xFF))
    long = pc.greater_equal(low, number(_GOES_ON))
    value = pc.add(pc.subtract(low, number(_GOES_ON)), pc.shift_left(high, number(7)))
    fits = pc.or_(pc.invert(long), pc.less(high, number(_GOES_ON)))
    return pc.if_else(long, value, low), pc.if_else(long, number(2), number(1)), fits


def _from(word: pa.Int64Array, at: int) -> pa.Int64Array:
    """Eight bytes without their first ones; what comes in behind them is not defined."""
    return pc.shift_right(word, number(8 * at))


def _goes_on(word: pa.Int64Array, wanted: bytes) -> pa.BooleanArray:
    """Return whether the bytes have the bits that say whether a number has more where `wanted` has them."""
    mask = int.from_bytes(bytes((_GOES_ON,)) * len(wanted), "little", signed=len(wanted) == 8)
    bits = int.from_bytes(wanted, "little", signed=len(wanted) == 8)
    return pc.equal(pc.bit_wise_and(word, number(mask)), number(bits))


def _sevens(word: pa.Int64Array) -> pa.Int64Array:
    """Numbers out of varints of up to eight bytes: of each byte seven bits, pushed together in three steps."""
    value = pc.bit_wise_and(word, number(0x7F7F7F7F7F7F7F7F))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    ):
        pushed = pc.shift_right(pc.bit_wise_and(value, number(high)), number(shift))
        value = pc.bit_wise_or(pc.bit_wise_and(value, number(low)), pushed)
    return value


def _fitting(fits: pa.BooleanArray) -> int:
    """Return the number of the first rows that fit."""
    if pc.all(fits).as_py():
        return len(fits)
    others: int = pc.indices_nonzero(pc.invert(fits))[0].as_py()
    return others


def _rows(data: bytes, columns: _Columns, ends: pa.Int64Array, shape: RowShape) -> Rows:
    """Return the columns of messages, of which payloads and headers are only where they are wanted."""
    subject_end = pc.add(columns.body, columns.named)
    header_end = pc.add(subject_end, columns.header)
    headers = any_sliced(data, subject_end, header_end) if shape.wants_headers else []
    values = sliced(data, header_end, ends) if shape.wants_value else []
    return Rows(columns.seqs, columns.times, sliced(data, columns.body, subject_end), headers, values)
