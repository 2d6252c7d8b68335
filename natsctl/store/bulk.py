"""Queries and removals over very many messages of a stream, by whole columns.

`StreamIndex`, `Segment` and `FilterView` do the same message by message, and leave it to this module for streams where
that would block the event loop (from `index.BULK` or `view.BULK_MESSAGES` on). The native module works on the columns
as they are; `native` replaces the specifications here (each is one loop in Python) by its functions.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import update_wrapper
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from natsctl.native import lib
from natsctl.store.frame import FRAME_OVER_SIZE
from natsctl.store.steps import BULK_STEP, STEP, Steps, finish
from natsctl.store.subject_table import GONE, SubjectTable

if TYPE_CHECKING:
    from natsctl.store.index import StreamIndex
    from natsctl.store.segment import Segment
    from natsctl.store.view import FilterView

Positions: TypeAlias = "array[int]"
"""Ascending positions of a segment, of 4 bytes each."""
Mask: TypeAlias = bytearray
"""A byte for each subject number: 1 if selected."""

F = TypeVar("F", bound=Callable[..., Any])
_LIVE: Final = re.compile(rb"\0+")
"""A run of messages that are not dead."""


def mask_of(view: FilterView | None, index: StreamIndex) -> Mask | None:
    """Return a mask of the subject numbers that match a view, None when all do."""
    if view is None or view.all:
        return None
    total = len(index.table.names)
    if isinstance(view.sids, range):
        return bytearray([1]) * len(view.sids) + bytes(total - len(view.sids))
    mask = bytearray(total)
    mark(mask, view.listed)
    return mask


def native(name: str, typecode: str = "") -> Callable[[F], F]:
    """Put the native function of that name, if there is one, in the place of its specification.

    With `typecode`, the bytes that it returns are an array of that type. `__wrapped__` is the specification.
    """

    def choose(specification: F) -> F:
        function = None if lib is None else getattr(lib, name)
        if function is None:
            return specification

        def call(*columns: Any) -> Any:
            return array(typecode, function(*columns)) if typecode else function(*columns)

        return cast(F, update_wrapper(call, specification))

    return choose


@native("mark")
def mark(marks: bytearray, numbers: array[int]) -> None:
    for number in numbers:
        marks[number] = 1


def count_all(index: StreamIndex, view: FilterView) -> int:
    return _above(index.table.count, view, 0)[1]


def live_subjects(index: StreamIndex, view: FilterView | None) -> array[int]:
    return _above(index.table.count, view, 0)[0]


def above(counts: array[int], limit: int) -> array[int]:
    """Return the positions of the counts above `limit`: the numbers of subjects, for a column of the subject table."""
    return _above(counts, None, limit)[0]


def _above(counts: array[int], view: FilterView | None, limit: int) -> tuple[array[int], int]:
    """Return the subjects of a view, or of all, with a count above `limit`, and the sum of the counts."""
    listed = None if view is None or isinstance(view.sids, range) else view.listed
    found, total = _above_in(counts, listed, len(counts) if view is None else len(view.sids), limit)
    return array("I", found), total


@native("above")
def _above_in(counts: array[int], listed: array[int] | None, end: int, limit: int) -> tuple[bytes, int]:
    numbers: Sequence[int] = range(end) if listed is None else listed
    chosen: Sequence[int] = counts[:end] if listed is None else [*map(counts.__getitem__, listed)]
    above_limit = array("I", compress(numbers, [count > limit for count in chosen] if limit else chosen))
    return above_limit.tobytes(), sum(chosen)


def count(index: StreamIndex, view: FilterView, from_seq: int, to_seq: int) -> int:
    mask, total = mask_of(view, index), 0
    first = max(bisect_right(index.bases, from_seq) - 1, 0)
    for segment in index.segments[first : bisect_right(index.bases, to_seq)]:
        if segment.live:
            start, stop = segment.position_from(from_seq), segment.position_from(to_seq + 1)
            total += len(live_positions(segment, mask, start, stop))
    return total


def live_positions(segment: Segment, mask: Mask | None, start: int, stop: int) -> Positions:
    start, stop = max(start, segment.head), min(stop, len(segment.sids))
    if start >= stop or not segment.live:
        return array("I")
    return _positions(segment.sids, segment.dead, mask, start, stop)


@native("pick", "I")
def _positions(sids: array[int], dead: bytearray | None, mask: Mask | None, start: int, stop: int) -> Positions:
    if mask is None:
        live = range(start, stop)
        return array("I", live if dead is None else [p for p in live if not dead[p]])
    end = len(mask)  # dead messages may have subject numbers beyond the mask
    found = [p for p, sid in enumerate(sids[start:stop], start) if sid < end and mask[sid]]
    return array("I", found if dead is None else [p for p in found if not dead[p]])


def positions_on(sids: array[int], view: FilterView, index: StreamIndex, start: int) -> array[int]:
    """Return the positions from `start` on, live or dead, with a subject in a view."""
    mask = mask_of(view, index)
    if mask is None:
        mask = bytearray([1]) * len(index.table.names)  # without the number of removed subjects
    return _positions(sids, None, mask, start, len(sids))


def sequences(segment: Segment, positions: Positions) -> array[int]:
    return sequences_at(positions, segment.seqs, segment.base)


@native("sequences", "Q")
def sequences_at(positions: Positions, seqs: array[int] | None, base: int) -> array[int]:
    """Return the sequences at positions of a column; without one they count up from a base."""
    return array("Q", map(base.__add__ if seqs is None else seqs.__getitem__, positions))


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
    """Return the positions (of ascending ones) with messages older than the newest `per_subject` of their subject.

    No live message of these subjects may be older than those at `positions`.
    """
    return _surplus(index.table.count, segment.sids, positions, per_subject)


@native("surplus", "I")
def _surplus(count: array[int], sids: array[int], positions: Positions, per_subject: int) -> Positions:
    """Return the first positions of each subject, as many as are above a limit; counts are the same afterwards."""
    found = array("I")
    for position in positions:
        sid = sids[position]
        if count[sid] > per_subject:
            count[sid] -= 1
            found.append(position)
    for position in found:
        count[sids[position]] += 1
    return found


def drop_front(index: StreamIndex, segment: Segment, stop: int) -> None:
    """Take the live messages before position `stop` of a segment out of the index. The caller moves `segment.head`."""
    positions = live_positions(segment, None, 0, stop)
    index.bytes -= _count_out(index.table, segment, positions, None)
    index.messages -= len(positions)


def oldest(index: StreamIndex, at_least: int, size: int, at_most: int) -> array[int]:
    """Return the oldest live sequences of the first segment that has any.

    They are as many as have `size` accounted bytes, but `at_least` where the segment has so many, and `at_most`.
    """
    for segment, positions in places(index, None, index.first_seq, index.seq_after(index.first_seq, at_most)):
        needed = 0
        while size > 0 and needed < len(positions):
            size -= segment.sizes[positions[needed]]
            needed += 1
        return sequences(segment, positions[: max(needed, at_least)])
    return array("Q")


def remove(index: StreamIndex, segment: Segment, positions: Positions) -> int:
    """Take the live messages at ascending `positions` out of the index and return their accounted size.

    The caller advances `first_seq`.
    """
    if segment.dead is None:
        segment.dead = bytearray(len(segment.sids))
    size = _count_out(index.table, segment, positions, segment.dead)
    if segment.keys is not None:
        count_down(segment.keys, segment.counts, segment.sids, positions)
    index.messages -= len(positions)
    index.bytes -= size
    return size


def _count_out(table: SubjectTable, segment: Segment, positions: Positions, dead: bytearray | None) -> int:
    """Take live messages out of the counts of their subjects and of a segment, and return their accounted size.

    They are marked in `dead` if given.
    """
    segment.live -= len(positions)
    size, *found = take_out(
        table.count, table.last, dead, segment.sids, segment.sizes, positions, segment.seqs, segment.base
    )
    emptied, uncovered = (array("I", numbers) for numbers in found)
    table.live -= len(emptied)
    if table.stale:
        table.stale.difference_update(emptied)
    table.stale.update(uncovered)
    return size


@native("take_out")
def take_out(
    count: array[int], last: array[int], dead: bytearray | None, sids: array[int], sizes: array[int],
    positions: Positions, seqs: array[int] | None, base: int,
) -> tuple[int, bytes, bytes]:  # fmt: skip
    """Subtract messages; return their size, the subjects without any left, and the others that lost their newest."""
    chosen = [*map(sids.__getitem__, positions)]
    newest = dict(zip(chosen, sequences_at(positions, seqs, base), strict=True))
    for sid in chosen:
        count[sid] -= 1
    if dead is not None:
        for position in positions:
            dead[position] = 1
    emptied = array("I", [sid for sid in newest if not count[sid]])
    uncovered = array("I", [sid for sid, seq in newest.items() if last[sid] == seq and count[sid]])
    for sid in emptied:
        last[sid] = 0
    return sum(map(sizes.__getitem__, positions)), emptied.tobytes(), uncovered.tobytes()


@native("count_down")
def count_down(keys: array[int], counts: array[int], sids: array[int], positions: Positions) -> None:
    """Subtract 1 from the count of a subject, among ascending keys, for each of its positions."""
    for sid, number in Counter(map(sids.__getitem__, positions)).items():
        position = bisect_left(keys, sid)
        if position < len(keys) and keys[position] == sid:
            counts[position] -= number


def remove_seqs(index: StreamIndex, removed: array[int]) -> None:
    """Remove the live messages among `removed` from the index, and count their frames as dead bytes of their files."""
    seqs = array("Q", sorted(set(removed)))
    for segment, end in zip(list(index.segments), [*index.bases[1:], index.last_seq + 1], strict=True):
        mine = seqs[bisect_left(seqs, segment.base) : bisect_left(seqs, end)]
        positions = _positions_of(segment, mine)
        if len(positions):
            size = remove(index, segment, positions)
            if segment.body is not None:
                segment.body.dead_bytes += size + len(positions) * FRAME_OVER_SIZE
    index.advance(index.first_seq)


def _positions_of(segment: Segment, seqs: array[int]) -> Positions:
    if not len(seqs) or not segment.live:
        return array("I")
    dead, start, stop = segment.dead, segment.position_from(seqs[0]), segment.position_from(seqs[-1] + 1)
    if segment.seqs is None:
        seqs = seqs[: bisect_left(seqs, segment.base + len(segment.sids))]
        found = array("I", map((-segment.base).__add__, seqs))
    else:
        wanted = set(seqs)
        found = array("I", [number for number, seq in enumerate(segment.seqs[start:stop], start) if seq in wanted])
    found = found[bisect_left(found, segment.head) :]
    return found if dead is None else array("I", [position for position in found if not dead[position]])


def present(index: StreamIndex, seqs: array[int], to_seq: int) -> array[int]:
    """Return the live sequences of ascending `seqs` up to `to_seq`."""
    kept = array("Q")
    for segment, end in zip(index.segments, [*index.bases[1:], index.last_seq + 1], strict=True):
        mine = seqs[bisect_left(seqs, segment.base) : bisect_left(seqs, min(end, to_seq + 1))]
        kept += sequences(segment, _positions_of(segment, mine))
    return kept


def newest_up_to(index: StreamIndex, view: FilterView | None, to_seq: int) -> list[int]:
    """Return the newest live sequence of each matching subject at or below `to_seq`, ascending."""
    if to_seq < index.last_seq:
        return finish(finding_newest(index, view, to_seq)).tolist()
    table = index.table
    for sid in list(table.stale):
        index.last_of(sid)
    return sorted(sequences_at(live_subjects(index, view), table.last, 0))


def finding_newest(index: StreamIndex, view: FilterView | None, to_seq: int, most: int = 0) -> Steps[array[int]]:
    """Return the newest live sequence of each matching subject at or below `to_seq`, ascending, in steps.

    The index must not change between them. Newest messages come first: the first one of a subject is its newest. With
    `most`, the search ends once there are more.
    """
    mask = mask_of(view, index)
    parts: list[array[int]] = []
    count, seen = 0, bytearray(len(index.table.names))
    for segment in reversed(index.segments[: bisect_right(index.bases, to_seq)]):
        for end in range(segment.position_from(to_seq + 1), 0, -BULK_STEP):
            positions = live_positions(segment, mask, max(end - BULK_STEP, 0), end)
            parts.append(sequences(segment, last_of_each(seen, segment.sids, positions)))
            count += len(parts[-1])
            if 0 < most < count:
                return _ascending(parts)
            yield STEP
    return _ascending(parts)


def _ascending(parts: list[array[int]]) -> array[int]:
    found = array("Q")
    for part in reversed(parts):
        found += part
    return found


@native("unseen", "I")
def last_of_each(seen: bytearray, sids: array[int], positions: Positions) -> Positions:
    """Return the last position of each subject that is not marked as seen, and mark it."""
    found = array("I")
    for position in reversed(positions):
        sid = sids[position]
        if not seen[sid]:
            seen[sid] = 1
            found.append(position)
    found.reverse()
    return found


def missing(index: StreamIndex) -> Iterator[range]:
    """Yield the ranges of sequences from the first to the last that no live message has, ascending."""
    if not index.messages:
        return
    expected = index.first_seq
    for segment in tuple(index.segments):
        for first, end in _runs(segment) if segment.live else ():
            if first > expected:
                yield range(expected, first)
            expected = end
    if expected <= index.last_seq:
        yield range(expected, index.last_seq + 1)


def _runs(segment: Segment) -> Iterator[tuple[int, int]]:
    """Yield the first sequence and the end of each run of live messages; costs by the number of runs."""
    seqs, base, end = segment.seqs, segment.base, len(segment.sids)
    spans: Iterable[tuple[int, int]] = ((segment.head, end),)
    if segment.dead is not None:
        spans = (found.span() for found in _LIVE.finditer(segment.dead, segment.head, end))
    for start, stop in spans:
        if seqs is None:
            yield base + start, base + stop
        while seqs is not None and start < stop:
            last = _run_end(seqs, start, stop)
            yield seqs[start], seqs[last] + 1
            start = last + 1


def _run_end(seqs: array[int], start: int, stop: int) -> int:
    """Return the last position below `stop` of the gapless sequences from `start` on."""
    step, ahead = 1, seqs[start] - start
    if start + 1 == stop or seqs[start + 1] - start - 1 != ahead:
        return start
    while start + step < stop and seqs[start + step] - start - step == ahead:
        start, step = start + step, step * 2
    return bisect_right(range(start, min(start + step, stop)), ahead, key=lambda at: seqs[at] - at) + start - 1


@native("order", "I")
def order_of(sids: array[int]) -> array[int]:
    return array("I", sorted(range(len(sids)), key=sids.__getitem__))


@native("renumber", "I")
def renumbered(sids: array[int], moves: array[int]) -> array[int]:
    """Return a column after a renumbering of the subject table; the number of no subject stays."""
    return array("I", [moves[sid] if sid < len(moves) else GONE for sid in sids])
