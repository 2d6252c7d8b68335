"""Queries and removals over very many messages of a stream, as numpy operations on whole columns.

`StreamIndex`, `Segment` and `View` do the same message by message, and import this module for streams where that would
block the event loop (from `index.BULK` or `view.BULK_MESSAGES` on), so that a small server never imports numpy.
Arrays made of a column live no longer than a call: an `array` whose buffer is exported cannot grow.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from natsctl.store.frame import FRAME_OVER_SIZE
from natsctl.store.steps import STEP, Steps
from natsctl.store.subject_table import GONE

if TYPE_CHECKING:
    from natsctl.store.index import StreamIndex
    from natsctl.store.segment import Segment
    from natsctl.store.view import View

Positions = NDArray[np.intp]
Mask = NDArray[np.bool_]


def _u32(column: array[int]) -> NDArray[np.uint32]:
    """Return a column, or a copy of one that is narrower (columns.py)."""
    if column.typecode != "I":
        return np.frombuffer(column, dtype=column.typecode).astype(np.uint32)
    return np.frombuffer(column, dtype=np.uint32)


def _u64(column: array[int]) -> NDArray[np.uint64]:
    return np.frombuffer(column, dtype=np.uint64)


def to_array(typecode: str, numbers: NDArray[np.generic]) -> array[int]:
    """Return numbers as a column of the index."""
    column = array(typecode)
    column.frombytes(numbers.astype(np.dtype(typecode), copy=False).tobytes())
    return column


def mask_of(view: View | None, index: StreamIndex) -> Mask | None:
    """Return a mask of the subject numbers that match a view, None when all do."""
    if view is None or view.all:
        return None
    mask = np.zeros(len(index.table.names), dtype=np.bool_)
    if isinstance(view.sids, range):
        mask[: len(view.sids)] = True
    elif len(view.listed):
        mask[_u32(view.listed)] = True
    return mask


def count_all(index: StreamIndex, view: View) -> int:
    """Return the number of live messages on the subjects of a view."""
    counts = _u64(index.table.count)
    return int((counts[: len(view.sids)] if isinstance(view.sids, range) else counts[_u32(view.listed)]).sum())


def live_subjects(index: StreamIndex, view: View | None) -> array[int]:
    """Return the numbers of the subjects of a view, or of all, that have messages."""
    counts = _u64(index.table.count)
    if view is None or isinstance(view.sids, range):
        return to_array("I", np.flatnonzero(counts if view is None else counts[: len(view.sids)]))
    listed = _u32(view.listed)
    return to_array("I", listed[counts[listed] > 0])


def count(index: StreamIndex, view: View, from_seq: int, to_seq: int) -> int:
    """Return the number of live messages of a view in [from_seq, to_seq]."""
    mask, total = mask_of(view, index), 0
    first = max(bisect_right(index.bases, from_seq) - 1, 0)
    for segment in index.segments[first : bisect_right(index.bases, to_seq)]:
        if segment.live:
            start, stop = segment.position_from(from_seq), segment.position_from(to_seq + 1)
            total += len(live_positions(segment, mask, start, stop))
    return total


def live_positions(segment: Segment, mask: Mask | None, start: int, stop: int) -> Positions:
    """Return the live positions of a segment in [start, stop) on the subjects of a mask, ascending."""
    start, stop = max(start, segment.head), min(stop, len(segment.sids))
    if start >= stop or not segment.live:
        return np.empty(0, dtype=np.intp)
    found: Mask | None = None
    if segment.dead is not None:
        found = np.frombuffer(segment.dead, dtype=np.uint8)[start:stop] == 0
    if mask is not None:
        sids = _u32(segment.sids)[start:stop]
        if found is None:
            found = mask[sids]
        else:
            found[found] = mask[sids[found]]  # dead messages may have subject numbers beyond the mask
    if found is None:
        return np.arange(start, stop)
    return np.flatnonzero(found) + start


def sequences(segment: Segment, positions: Positions) -> NDArray[np.uint64]:
    """Return the sequences at `positions`."""
    if segment.seqs is None:
        return positions.astype(np.uint64) + np.uint64(segment.base)
    return _u64(segment.seqs)[positions]


def places(index: StreamIndex, mask: Mask | None, from_seq: int, below_seq: int) -> Iterator[tuple[Segment, Positions]]:
    """Yield the positions of the live matches in [from_seq, below_seq), segment by segment.

    The caller may remove the messages at positions that were yielded. The segments are those at the call; one that goes
    before its turn may be yielded or not.
    """
    first = max(bisect_right(index.bases, from_seq) - 1, 0)
    for segment in index.segments[first : bisect_left(index.bases, below_seq)]:
        if segment.live:
            start, stop = segment.position_from(from_seq), segment.position_from(below_seq)
            positions = live_positions(segment, mask, start, stop)
            if len(positions):
                yield segment, positions


def surplus(index: StreamIndex, segment: Segment, positions: Positions, per_subject: int) -> Positions:
    """Return those of ascending positions whose messages are older than the newest `per_subject` of their subject.

    No live message of these subjects may be older than those at `positions`.
    """
    sids = _u32(segment.sids)[positions]
    over = _u64(index.table.count)[sids].astype(np.int64) - per_subject
    positions, sids, over = positions[over > 0], sids[over > 0], over[over > 0]
    if not len(positions):
        return positions
    order = np.argsort(sids, kind="stable")
    grouped = sids[order]
    starts = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1]))
    sizes = np.diff(np.append(starts, len(grouped)))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    found: Positions = positions[rank < over]
    return found


def above(counts: array[int], limit: int) -> list[int]:
    """Return the positions of the counts above `limit`: the numbers of subjects, for a column of the subject table."""
    found: list[int] = np.flatnonzero(_u64(counts) > limit).tolist()
    return found


def drop_front(index: StreamIndex, segment: Segment, stop: int) -> None:
    """Take the live messages before position `stop` of a segment out of the index. The caller moves `segment.head`."""
    positions = live_positions(segment, None, 0, stop)
    if not len(positions):
        return
    sids, seqs = _u32(segment.sids)[positions], sequences(segment, positions)
    gone, counts = np.unique(sids, return_counts=True)
    newest = np.zeros(len(gone), dtype=np.uint64)
    newest[np.searchsorted(gone, sids)] = seqs
    _count_out(index, gone, counts, newest)
    segment.live -= len(positions)
    index.messages -= len(positions)
    index.bytes -= int(_u32(segment.sizes)[positions].sum(dtype=np.uint64))


def oldest(index: StreamIndex, at_least: int, size: int, at_most: int) -> array[int]:
    """Return the oldest live sequences of the first segment that has any.

    They are as many as have `size` accounted bytes, but `at_least` where the segment has so many, and `at_most`.
    """
    for segment, positions in places(index, None, index.first_seq, index.seq_after(index.first_seq, at_most)):
        needed = at_least
        if size > 0:
            sizes = np.cumsum(_u32(segment.sizes)[positions], dtype=np.uint64)
            needed = max(needed, int(np.searchsorted(sizes, size)) + 1)
        return to_array("Q", sequences(segment, positions[:needed]))
    return array("Q")


def remove(index: StreamIndex, segment: Segment, positions: Positions) -> int:
    """Take the live messages at ascending `positions` out of the index and return their accounted size.

    The caller advances `first_seq`.
    """
    if segment.dead is None:
        segment.dead = bytearray(len(segment.sids))
    np.frombuffer(segment.dead, dtype=np.uint8)[positions] = 1
    segment.live -= len(positions)
    sids, seqs = _u32(segment.sids)[positions], sequences(segment, positions)
    size = int(_u32(segment.sizes)[positions].sum(dtype=np.uint64))
    gone, counts = np.unique(sids, return_counts=True)
    newest = np.zeros(len(gone), dtype=np.uint64)
    newest[np.searchsorted(gone, sids)] = seqs  # of a subject with several, the last assignment is the newest
    _count_out(index, gone, counts, newest)
    if segment.keys is not None:
        at = np.searchsorted(_u32(segment.keys), gone)
        _u32(segment.counts)[at] -= counts.astype(np.uint32)
    index.messages -= len(positions)
    index.bytes -= size
    return size


def renumber(segment: Segment, moves: array[int]) -> None:
    """Renumber the subjects of a sealed segment, as `Segment.renumber` does."""
    assert segment.keys is not None
    to = np.append(_u32(moves), np.uint32(GONE))
    segment.sids = to_array("I", to[np.minimum(_u32(segment.sids), len(moves))])
    keys, counts = to[_u32(segment.keys)], _u32(segment.counts)
    order = np.argsort(keys)
    order = order[: np.searchsorted(keys[order], GONE)]
    segment.keys, segment.counts = to_array("I", keys[order]), to_array("I", counts[order])
    segment.order, segment.asked = None, 0
    segment.pack()


def remove_seqs(index: StreamIndex, removed: array[int]) -> None:
    """Take those of `removed` that are live out of the index, and count their frames as dead bytes of their files."""
    seqs = np.unique(_u64(removed))
    for segment, end in zip(list(index.segments), [*index.bases[1:], index.last_seq + 1], strict=True):
        mine = seqs[np.searchsorted(seqs, segment.base) : np.searchsorted(seqs, end)]
        if not len(mine) or not segment.live:
            continue
        if segment.seqs is None:
            at = (mine - np.uint64(segment.base)).astype(np.intp)
            at = at[at < len(segment.sids)]
        else:
            listed = _u64(segment.seqs)
            at = np.searchsorted(listed, mine)
            at = at[at < len(listed)]
            at = at[np.isin(listed[at], mine)]
        positions = np.intersect1d(at, live_positions(segment, None, 0, len(segment.sids)), assume_unique=False)
        if len(positions):
            size = remove(index, segment, positions)
            if segment.body is not None:
                segment.body.dead_bytes += size + len(positions) * FRAME_OVER_SIZE
    index.advance(index.first_seq)


def _count_out(
    index: StreamIndex, sids: NDArray[np.uint32], counts: NDArray[np.intp], newest: NDArray[np.uint64]
) -> None:
    """Subtract removed messages from the counts of their subjects; `newest` is the newest removed sequence of each."""
    table = index.table
    left, last = _u64(table.count), _u64(table.last)
    left[sids] -= counts.astype(np.uint64)
    empty = left[sids] == 0
    table.live -= int(empty.sum())
    uncovered = sids[~empty & (last[sids] == newest)]
    last[sids[empty]] = 0
    if table.stale:
        table.stale.difference_update(sids[empty].tolist())
    table.stale.update(uncovered.tolist())


def newest_up_to(index: StreamIndex, view: View | None, to_seq: int, most: int) -> list[int]:
    """Return the newest live sequence of each matching subject at or below `to_seq`, ascending, at most `most`."""
    mask, table = mask_of(view, index), index.table
    if to_seq >= index.last_seq:
        for sid in list(table.stale):
            index.last_of(sid)
        wanted = _u64(table.count) > 0 if mask is None else mask & (_u64(table.count) > 0)
        return sorted_seqs(_u64(table.last)[wanted], most)
    newest = np.zeros(len(table.names), dtype=np.uint64)
    for segment in index.segments:
        if segment.base > to_seq:
            break
        positions = live_positions(segment, mask, 0, segment.position_from(to_seq + 1))
        newest[_u32(segment.sids)[positions]] = sequences(segment, positions)
    return sorted_seqs(newest[newest > 0], most)


def finding_newest(index: StreamIndex, view: View | None, to_seq: int) -> Steps[array[int]]:
    """Return the newest live sequence of each matching subject at or below `to_seq`, ascending, in steps.

    The index must not change between them.
    """
    mask, found = mask_of(view, index), array("Q")
    newest = np.zeros(len(index.table.names), dtype=np.uint64)
    segments = [segment for segment in index.segments if segment.base <= to_seq]
    for segment in segments:
        positions = live_positions(segment, mask, 0, segment.position_from(to_seq + 1))
        newest[_u32(segment.sids)[positions]] = sequences(segment, positions)
        yield STEP
    for segment in segments:
        positions = live_positions(segment, mask, 0, segment.position_from(to_seq + 1))
        seqs = sequences(segment, positions)
        found.frombytes(seqs[newest[_u32(segment.sids)[positions]] == seqs].tobytes())
        yield STEP
    return found


def present(index: StreamIndex, seqs: array[int], to_seq: int) -> array[int]:
    """Return those of ascending `seqs` that are live and not above `to_seq`."""
    asked = _u64(seqs)
    asked = asked[: np.searchsorted(asked, to_seq, side="right")]
    kept = array("Q")
    for segment, end in zip(index.segments, [*index.bases[1:], index.last_seq + 1], strict=True):
        mine = asked[np.searchsorted(asked, segment.base) : np.searchsorted(asked, end)]
        if len(mine) and segment.live:
            live = sequences(segment, live_positions(segment, None, 0, len(segment.sids)))
            kept.frombytes(mine[np.isin(mine, live, assume_unique=True)].tobytes())
    return kept


def sorted_seqs(seqs: NDArray[np.uint64], most: int) -> list[int]:
    """Return the `most` lowest of `seqs`, ascending, as Python integers."""
    found: list[int] = np.sort(seqs)[:most].tolist()
    return found


def missing(index: StreamIndex) -> Iterator[range]:
    """Yield the ranges of sequences from the first to the last that no live message has, ascending."""
    expected = index.first_seq
    for segment in tuple(index.segments) if index.messages else ():
        seqs = sequences(segment, live_positions(segment, None, 0, len(segment.sids))).astype(np.int64)
        if len(seqs):
            before = np.concatenate((np.array([expected - 1], dtype=np.int64), seqs[:-1]))
            at = np.flatnonzero(seqs - before > 1)
            for start, end in zip((before[at] + 1).tolist(), seqs[at].tolist(), strict=True):
                yield range(start, end)
            expected = int(seqs[-1]) + 1
    if index.messages and expected <= index.last_seq:
        yield range(expected, index.last_seq + 1)


def positions_on(sids: array[int], view: View, index: StreamIndex, start: int) -> array[int]:
    """Return the positions from `start` on, live or dead, whose subject matches a view."""
    total = len(index.table.names)
    numbers = np.minimum(_u32(sids)[start:], total)  # numbers of removed subjects (GONE) become one beyond the mask
    mask = mask_of(view, index)
    found = numbers < total if mask is None else np.append(mask, False)[numbers]
    return to_array("I", np.flatnonzero(found) + start)


def order_of(sids: array[int]) -> array[int]:
    """Return the positions sorted by subject number, then by position."""
    return to_array("I", np.argsort(_u32(sids), kind="stable"))


def tally(segment: Segment) -> tuple[array[int], array[int]]:
    """Return the subject numbers of a segment, ascending, and the number of live messages of each."""
    keys, places = np.unique(_u32(segment.sids), return_inverse=True)
    counts = np.bincount(places[live_positions(segment, None, 0, len(segment.sids))], minlength=len(keys))
    if len(keys) and keys[-1] == GONE:
        keys, counts = keys[:-1], counts[:-1]
    return to_array("I", keys), to_array("I", counts)
