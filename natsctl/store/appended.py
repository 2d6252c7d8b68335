"""Appended view of a stream: counters and ends, and questions about subjects and times.

It changes at once with every append and removal, durable or not; only the index is used, and no message is read
but for its time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from natsctl.store import bulk
from natsctl.store.filters import ALL, Filters
from natsctl.store.index import BULK, StreamIndex
from natsctl.store.segment import Segment
from natsctl.store.steps import STEP, Steps, pieces
from natsctl.store.view import BULK_MESSAGES

if TYPE_CHECKING:
    from natsctl.store.file_log import FileLog
    from natsctl.store.memory_stream import MemoryLog


Blob = bytes
"""bytes, where the property of that name hides the type."""
MAX_TS_NS = 1 << 64
"""Placeholder for the time of a segment without messages."""
BULK_SUBJECTS = 4096
"""Min number of subjects in an answer to scan whole columns."""
FEW_SUBJECTS = 256
"""The same for an answer that later messages are left out of."""


PAGE_STEP = 1024
"""Subjects that one step puts in their place."""
BUCKET_SUBJECTS = 2048
"""Subjects that are sorted in one step."""


def _in_buckets(sids: array[int], names: Sequence[Blob]) -> Steps[list[list[int]]]:
    """Return subject numbers in buckets of about that many, all names of one before those of the next."""
    every = max(len(sids) // (len(sids) // BUCKET_SUBJECTS * 8 or 1), 1)
    samples = sorted(names[sid] for sid in sids[::every])
    ends = samples[8::8] if len(sids) > BUCKET_SUBJECTS else []
    buckets: list[list[int]] = [[] for _ in range(len(ends) + 1)]
    for piece in pieces(sids, PAGE_STEP):
        for sid in piece:
            buckets[bisect_right(ends, names[sid])].append(sid)
        yield STEP
    return buckets


class AppendedView:
    __slots__ = ("_index", "_ts_at", "durable_seq")

    def __init__(self, index: StreamIndex, log: FileLog | MemoryLog) -> None:
        self._index = index
        self._ts_at = log.ts_at
        self.durable_seq = index.last_seq

    @property
    def last_seq(self) -> int:
        """Return the newest sequence given out."""
        return self._index.last_seq

    @property
    def first_seq(self) -> int:
        """Return the oldest live sequence; last_seq + 1 when empty, 0 when the stream was never used."""
        return self._index.first_seq if self._index.messages or self._index.last_seq else 0

    @property
    def last_ts_ns(self) -> int:
        """Return the time of the newest message, removed or not; 0 if the stream was never used."""
        return self._index.last_ts_ns

    @property
    def messages(self) -> int:
        return self._index.messages

    @property
    def bytes(self) -> int:
        return self._index.bytes

    @property
    def num_deleted(self) -> int:
        index = self._index
        return index.last_seq - index.first_seq + 1 - index.messages if index.messages else 0

    @property
    def num_subjects(self) -> int:
        return self._index.table.live

    @property
    def first_ts_ns(self) -> int:
        place = self._index.locate(self._index.first_seq) if self._index.messages else None
        return self._ts_at(*place) if place else 0

    def deleted(self) -> list[int]:
        """Return the sequences missing between the first and the last, in order."""
        return self._index.deleted()

    def gaps(self) -> Steps[list[int]]:
        if self._index.messages < BULK:
            return self.deleted()
        found: list[int] = []
        for run in bulk.missing(self._index):
            found += run
            if len(found) % PAGE_STEP < len(run):
                yield STEP
        return found

    def timed_seqs(self) -> Iterator[int]:
        """Yield the live messages that were appended as timed, in order (appended view); costs by their number."""
        for segment in self._index.segments:
            yield from segment.live_timed()

    def holds(self, seq: int) -> bool:
        """Return whether message `seq` is live (appended view)."""
        return self._index.locate(seq) is not None

    def subject_of(self, seq: int) -> Blob | None:
        """Return the subject of message `seq` without reading it, or None if it was removed (appended view)."""
        place = self._index.locate(seq)
        return self._index.table.names[place[0].sids[place[1]]] if place else None

    def size_of(self, seq: int) -> int:
        """Return the accounted size of message `seq`, 0 if it was removed (appended view)."""
        place = self._index.locate(seq)
        return place[0].sizes[place[1]] if place else 0

    def ts_of(self, seq: int) -> int:
        """Return the time of message `seq`, 0 if it was removed (appended view)."""
        place = self._index.locate(seq)
        return self._ts_at(*place) if place else 0

    # -- questions about subjects

    def last_seq_of(self, subject: Blob) -> int:
        """Return the newest live sequence on a literal subject, 0 when none (appended view)."""
        sid = self._index.table.ids.get(subject)
        return 0 if sid is None else self._index.last_of(sid)

    def first_seq_of(self, subject: Blob) -> int:
        """Return the oldest live sequence on a literal subject, 0 when none (appended view)."""
        sid = self._index.table.ids.get(subject)
        return 0 if sid is None else self._index.first_of(sid)

    def count_of(self, subject: Blob) -> int:
        """Return how many live messages a literal subject has (appended view); one look-up."""
        sid = self._index.table.ids.get(subject)
        return 0 if sid is None else self._index.table.count[sid]

    def first_match(self, filters: Filters, from_seq: int = 0) -> int:
        """Return the oldest live sequence at or above `from_seq` that matches, 0 when none (appended view)."""
        place = self._index.next_place(filters, from_seq)
        return place[0].seq_at(place[1]) if place else 0

    def last_match(self, filters: Filters) -> int:
        """Return the newest live sequence that matches, 0 when none (appended view)."""
        place = self._index.prev_place(filters, self._index.last_seq)
        return place[0].seq_at(place[1]) if place else 0

    def last_per_subject(self, filters: Filters, up_to_seq: int = 0) -> list[int]:
        """Return the newest live sequence of each matching subject at or below `up_to_seq` (0: durable_seq), sorted."""
        index = self._index
        limit = min(up_to_seq or self.durable_seq, self.durable_seq)
        count = index.table.count
        view = None if filters.everything else index.view(filters)
        sids = range(len(index.table.names)) if view is None else view.sids
        if index.messages >= BULK_MESSAGES and len(sids) >= (
            BULK_SUBJECTS if limit >= index.last_seq else FEW_SUBJECTS
        ):
            return bulk.newest_up_to(index, view, limit)
        found = [index.last_of_up_to(sid, limit) for sid in sids if count[sid]]
        return sorted(seq for seq in found if seq)

    def finding_few_last(self, filters: Filters, up_to_seq: int, most: int) -> Steps[list[int] | None]:
        """Return what `last_per_subject` does, or None if that is more than `most` sequences, in steps.

        Nothing may change between them.
        """
        index, limit = self._index, min(up_to_seq or self.durable_seq, self.durable_seq)
        view = None if filters.everything else index.view(filters)
        sids = range(len(index.table.names)) if view is None else view.sids
        if limit < index.last_seq and len(sids) >= FEW_SUBJECTS:
            newest = yield from bulk.finding_newest(index, view, limit, most)
            return newest.tolist() if len(newest) <= most else None
        found, rest, count = list[int](), iter(sids), index.table.count
        while piece := [*islice(rest, PAGE_STEP)]:
            found += [seq for sid in piece if count[sid] and (seq := index.last_of_up_to(sid, limit))]
            if len(found) > most:
                return None
            if len(piece) == PAGE_STEP:
                yield STEP
        return sorted(found)

    def finding_last_per_subject(self, filters: Filters, up_to_seq: int) -> Steps[array[int]]:
        """Return what `last_per_subject` does, in steps; nothing may change between them."""
        if self._index.messages < BULK:
            return array("Q", self.last_per_subject(filters, up_to_seq))
        view = None if filters.everything else self._index.view(filters)
        return (yield from bulk.finding_newest(self._index, view, up_to_seq))

    def count(self, filters: Filters, from_seq: int = 0, to_seq: int | None = None) -> int:
        """Return how many live messages match in [from_seq, to_seq], both included (appended view)."""
        return self._index.count(filters, from_seq, self._index.last_seq if to_seq is None else to_seq)

    def subjects(self, filters: Filters = ALL) -> dict[Blob, int]:
        """Return live message counts by matching subject, in no promised order (appended view)."""
        table = self._index.table
        sids = range(len(table.names)) if filters.everything else self._index.view(filters).sids
        return {table.names[sid]: table.count[sid] for sid in sids if table.count[sid]}

    def subjects_page(self, filters: Filters, offset: int, limit: int) -> Steps[tuple[int, dict[Blob, int]]]:
        """Return how many subjects match, and of those from `offset` on, in order, `limit` with their message counts.

        In steps; the answer is of the moment when the first step begins, once `preparing` is done.
        """
        table = self._index.table
        names, counts, sids = table.names, table.count[:], self._index.live_subjects(filters)
        page: list[int] = []
        passed, end = 0, offset + limit
        for bucket in (yield from _in_buckets(sids, names)):
            if passed < end and passed + len(bucket) > offset:
                bucket.sort(key=names.__getitem__)
                page += bucket[max(offset - passed, 0) : end - passed]
                yield STEP
            passed += len(bucket)
        found: dict[Blob, int] = {}
        for piece in pieces(page, PAGE_STEP):
            found.update((names[sid], counts[sid]) for sid in piece)
            yield STEP
        return len(sids), found

    def first_seq_at(self, ts_ns: int) -> int:
        """Return the oldest live sequence stored at or after `ts_ns`; last_seq + 1 when none (appended view)."""
        index = self._index
        first = bisect_left(index.segments, ts_ns, key=lambda segment: segment.last_ts or MAX_TS_NS)
        for segment in islice(index.segments, first, None):
            if segment.live and segment.last_ts >= ts_ns:
                position = self._live_position_at(segment, ts_ns)
                if position >= 0:
                    return segment.seq_at(position)
        return index.last_seq + 1

    def _live_position_at(self, segment: Segment, ts_ns: int) -> int:
        """Return the first position with a live message of `ts_ns` or later, or -1.

        The times of removed messages are not looked at: damage to those goes unnoticed.
        """
        low, high = segment.head, len(segment.sids)
        while low < high:
            middle = (low + high) // 2
            at = segment.next_live(middle)
            if 0 <= at < high and self._ts_at(segment, at) < ts_ns:
                low = at + 1
            else:
                high = middle
        return segment.next_live(low)

    def _position_at(self, segment: Segment, low: int, ts_ns: int) -> int:
        """Return the first position from `low` on with a message of `ts_ns` or later, or the length."""
        high = len(segment.sids)
        while low < high:
            middle = at = (low + high) // 2
            while at < high and not (found_ns := self._ts_at(segment, at)):
                at += 1
            if at < high and found_ns < ts_ns:
                low = at + 1
            else:
                high = middle
        return low
