"""The index of one stream: its segments in sequence order and its subject table.

Counters (`messages`, `bytes`, `first_seq`, `last_seq`) are exact after every call. Nothing here knows where bytes lie.
Searches skip every segment that cannot hold a match; inside one they look at positions, never at messages.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import chain, islice

from natsctl.store import bulk
from natsctl.store.filters import ALL, Filters
from natsctl.store.message import RemovedMessage
from natsctl.store.segment import Place, Segment, SegmentList
from natsctl.store.steps import STEP, Steps
from natsctl.store.subject_table import SubjectTable
from natsctl.store.view import BULK_MESSAGES, FilterView

VIEWS = 8192
"""Views kept per stream; the oldest is dropped first."""
VIEW_SUBJECTS = 4_000_000
"""Subject numbers that all views of a stream may hold together."""
BULK = 50_000
"""Min number of messages, or subjects, of a stream to process long runs by columns (see bulk.py)."""
BULK_DROP = 4096
"""Min length of a long run of messages."""
FEW = 16
"""Maximum number of subjects of a filter to count messages by subject."""
LOOK_STEP = 1024
"""Subjects that one step of `preparing` matches against a filter."""
QUICK_LOOK_STEP = 16_384
"""The same if a lookup is cheap."""


class StreamIndex(SegmentList):
    __slots__ = ("_view_subjects", "_views", "bytes", "first_seq", "last_seq", "last_ts_ns", "messages", "table")

    def __init__(self, first_seq: int) -> None:
        super().__init__(first_seq)
        self.table = SubjectTable()
        self.messages = 0
        self.bytes = 0
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.last_ts_ns = 0
        """Time of the newest message, removed or not."""
        self._views: dict[Filters, FilterView] = {}
        self._view_subjects = 0

    def view(self, filters: Filters) -> FilterView:
        view = self._views.get(filters)
        if view is None:
            view = self._remember(FilterView(filters, self))
        else:
            view.refresh()
        return view

    def _remember(self, view: FilterView) -> FilterView:
        self._view_subjects += len(view.sids)
        if len(self._views) >= VIEWS or self._view_subjects > VIEW_SUBJECTS:
            self._forget_views(len(view.sids))
        self._views[view.filters] = view
        return view

    def preparing(self, filters: Filters) -> Steps[None]:
        """Update the view of `filters`, in steps if it has many new subjects to match."""
        step = QUICK_LOOK_STEP if filters.quick else LOOK_STEP
        if filters.everything or not filters.wildcards or len(self.table.names) <= step:
            return
        view = self._views.get(filters) or self._remember(FilterView(filters, self, step))
        while view.unseen > step:
            known = len(view.sids)
            view.refresh(step)
            self._view_subjects += len(view.sids) - known
            yield STEP
        if self._views.get(filters) is not view:
            self._remember(view)

    def _forget_views(self, more: int) -> None:
        """Drop the oldest eighth of the views, and more until VIEW_SUBJECTS leaves room for `more` subject numbers."""
        views = self._views
        self._view_subjects = more + sum(len(view.sids) for view in views.values())
        least = len(views) - VIEWS // 8 if len(views) >= VIEWS else len(views)
        for filters in list(views):
            if len(views) <= least and self._view_subjects <= VIEW_SUBJECTS:
                break
            self._view_subjects -= len(views.pop(filters).sids)

    def add(self, seq: int, subject: bytes, size: int, ts_ns: int, offset: int = 0) -> None:
        """Add the next message; `seq` must be above last_seq. `offset` locates its bytes in a file, if any."""
        segment, table = self.segments[-1], self.table
        sid, counts, sids = table.ids.get(subject), table.count, segment.sids
        if sid is None:
            sid = table.intern(subject)
        if segment.seqs is not None or seq != segment.base + len(sids):
            segment.become_sparse()
            assert segment.seqs is not None
            segment.seqs.append(seq)
        sids.append(sid)
        segment.sizes.append(size)
        segment.offsets.append(offset)  # type: ignore[union-attr]  # an array before the segment is sealed
        if segment.dead is not None:
            segment.dead.append(0)
        if not segment.first_ts:
            segment.first_ts = ts_ns
        segment.last_ts = ts_ns
        segment.live += 1
        count = counts[sid]
        if count < 2:
            if not count:
                table.live += 1
                table.first[sid] = seq
            elif sid not in table.stale:
                table.first[sid] = table.last[sid]
        counts[sid] = count + 1
        table.last[sid] = seq
        if table.stale:
            table.stale.discard(sid)
        if not self.messages:
            self.first_seq = seq
        self.messages += 1
        self.bytes += size
        self.last_seq = seq
        self.last_ts_ns = ts_ns

    def add_run(self, first_seq: int, subject: bytes, sizes: array[int], ts_ns: int, offsets: array[int]) -> None:
        """Add consecutive messages on one subject; `first_seq` must be above last_seq."""
        segment, table, count = self.segments[-1], self.table, len(sizes)
        if segment.seqs is not None or first_seq != segment.base + len(segment.sids):
            for at in range(count):
                self.add(first_seq + at, subject, sizes[at], ts_ns, offsets[at])
            return
        self.add(first_seq, subject, sizes[0], ts_ns, offsets[0])
        sid, more = table.ids[subject], count - 1
        segment.sids.extend(array("I", [sid]) * more)
        segment.sizes.extend(sizes[1:])
        segment.offsets.extend(offsets[1:])  # type: ignore[union-attr]  # as in `add`
        if segment.dead is not None:
            segment.dead.extend(bytes(more))
        segment.live += more
        table.count[sid] += more
        self.messages += more
        self.bytes += sum(sizes) - sizes[0]
        self.last_seq = table.last[sid] = first_seq + more

    def add_all(
        self, seqs: list[int], subjects: list[bytes], sizes: array[int], ts_ns: tuple[int, int], offsets: array[int]
    ) -> None:
        """Add at least one message, with ascending sequences above last_seq.

        `ts_ns` has the times of the first and the last.
        """
        segment, table = self.segments[-1], self.table
        self.add(seqs[0], subjects[0], sizes[0], ts_ns[0], offsets[0])
        segment.last_ts = self.last_ts_ns = ts_ns[1]
        if segment.seqs is not None or seqs[-1] - seqs[0] != len(seqs) - 1:
            for at in range(1, len(seqs)):
                self.add(seqs[at], subjects[at], sizes[at], ts_ns[1], offsets[at])
            return
        ids, count, last, stale, seq, sids = table.ids, table.count, table.last, table.stale, seqs[0], array("I")
        for subject in islice(subjects, 1, None):
            seq += 1
            sid = ids.get(subject)
            if sid is None:
                sid = table.intern(subject)
            sids.append(sid)
            times = count[sid]
            if times < 2:
                if not times:
                    table.live += 1
                    table.first[sid] = seq
                elif sid not in stale:
                    table.first[sid] = last[sid]
            count[sid] = times + 1
            last[sid] = seq
            if stale:
                stale.discard(sid)
        segment.sids.extend(sids)
        segment.sizes.extend(sizes[1:])
        segment.offsets.extend(offsets[1:])  # type: ignore[union-attr]  # as in `add`
        if segment.dead is not None:
            segment.dead.extend(bytes(len(sids)))
        segment.live += len(sids)
        self.messages += len(sids)
        self.bytes += sum(sizes) - sizes[0]
        self.last_seq = seq

    def next_place(self, filters: Filters, from_seq: int) -> Place | None:
        if not self.messages or from_seq > self.last_seq:
            return None
        view = None if filters.everything else self.view(filters)
        from_seq = max(from_seq, self.first_seq)
        if view is not None:
            if view.only >= 0:
                if not self.table.count[view.only]:
                    return None
                from_seq = max(from_seq, self.table.first[view.only])
            if view.all:
                view = None
        at = max(bisect_right(self.bases, from_seq) - 1, 0)
        segment = self.segments[at]
        position = segment.position_from(from_seq)
        while True:
            if segment.live:
                position = segment.next_live(position) if view is None else view.next_in(segment, position)
                if position >= 0:
                    return segment, position
            at += 1
            if at == len(self.segments):
                return None
            segment, position = self.segments[at], 0

    def prev_place(self, filters: Filters, to_seq: int) -> Place | None:
        view = self.view(filters) if not filters.everything else None
        at = bisect_right(self.bases, to_seq) - 1
        while at >= 0:
            segment = self.segments[at]
            if segment.live:
                position = segment.position_from(to_seq + 1) - 1
                position = segment.prev_live(position) if view is None else view.prev_in(segment, position)
                if position >= 0:
                    return segment, position
            at -= 1
        return None

    def last_of(self, sid: int) -> int:
        """Return the newest live sequence of a subject number, 0 when none."""
        table = self.table
        if sid in table.stale:
            table.last[sid] = self._last_of_before(sid, table.last[sid])
            table.stale.discard(sid)
        return table.last[sid]

    def last_of_up_to(self, sid: int, to_seq: int) -> int:
        """Return the newest live sequence of a subject number at or below `to_seq`, 0 when none."""
        last = self.last_of(sid)
        return last if last <= to_seq else self._last_of_before(sid, to_seq + 1)

    def _last_of_before(self, sid: int, seq: int) -> int:
        at = bisect_right(self.bases, seq - 1) - 1
        while at >= 0:
            segment = self.segments[at]
            if segment.live:
                position = segment.prev_of(sid, segment.position_from(seq) - 1)
                if position >= 0:
                    return segment.seq_at(position)
            at -= 1
        return 0

    def first_of(self, sid: int) -> int:
        """Return the oldest live sequence of a subject number, 0 when none; the search starts at the last answer."""
        table = self.table
        if table.count[sid] <= 1:
            table.first[sid] = self.last_of(sid) if table.count[sid] else 0
            return table.first[sid]
        from_seq = max(table.first[sid], self.first_seq)
        at = max(bisect_right(self.bases, from_seq) - 1, 0)
        position = self.segments[at].position_from(from_seq)
        while at < len(self.segments):
            segment = self.segments[at]
            position = segment.next_of(sid, position) if segment.live else -1
            if position >= 0:
                table.first[sid] = segment.seq_at(position)
                return table.first[sid]
            at, position = at + 1, 0
        return 0

    def count(self, filters: Filters, from_seq: int, to_seq: int) -> int:
        if not self.messages or to_seq < from_seq or to_seq < self.first_seq or from_seq > self.last_seq:
            return 0
        whole = from_seq <= self.first_seq
        if whole and to_seq >= self.last_seq:
            return self.count_all(filters)
        if not whole and to_seq >= self.last_seq and from_seq - self.first_seq < self.last_seq - from_seq:
            return self.count_all(filters) - self.count(filters, self.first_seq, from_seq - 1)
        view = self.view(filters) if not filters.everything else None
        if view is not None and not view.all and len(view.sids) > FEW and self.messages >= BULK_MESSAGES:
            return bulk.count(self, view, from_seq, to_seq)
        total = 0
        for at in range(max(bisect_right(self.bases, from_seq) - 1, 0), len(self.segments)):
            segment = self.segments[at]
            if segment.base > to_seq:
                break
            if segment.live:
                start, stop = segment.position_from(from_seq), segment.position_from(to_seq + 1)
                total += segment.live_between(start, stop) if view is None else view.count_in(segment, start, stop)
        return total

    def count_all(self, filters: Filters) -> int:
        if filters.everything:
            return self.messages
        view = self.view(filters)
        if view.all:
            return self.messages
        if len(view.sids) >= BULK:
            return bulk.count_all(self, view)
        return sum(map(self.table.count.__getitem__, view.sids))

    def live_subjects(self, filters: Filters) -> array[int]:
        count, view = self.table.count, None if filters.everything else self.view(filters)
        sids = range(len(count)) if view is None else view.sids
        if len(sids) >= BULK:
            return bulk.live_subjects(self, view)
        return array("I", [sid for sid in sids if count[sid]])

    def places(self, filters: Filters, from_seq: int, below_seq: int) -> Iterator[Place]:
        """Yield the places of live matches in [from_seq, below_seq); each may be removed before the next is taken."""
        found = self.next_place(filters, from_seq)
        while found is not None:
            seq = found[0].seq_at(found[1])
            if seq >= below_seq:
                return
            yield found
            found = self.next_place(filters, seq + 1)

    def remove(self, segment: Segment, position: int) -> RemovedMessage:
        seq, sid, size = segment.seq_at(position), segment.sids[position], segment.sizes[position]
        subject = self.table.names[sid]
        segment.kill(position)
        self.table.removed(sid, seq)
        self.messages -= 1
        self.bytes -= size
        if seq == self.first_seq:
            self.advance(seq + 1)
        return RemovedMessage(seq, subject, size)

    def drop_first(self) -> RemovedMessage:
        """Remove the oldest live message; there must be one."""
        at = max(bisect_right(self.bases, self.first_seq) - 1, 0)
        segment = self.segments[at]
        seq = self.first_seq
        position = segment.position_from(seq)
        sid, size = segment.sids[position], segment.sizes[position]
        segment.head = position + 1
        segment.live -= 1
        self.table.removed(sid, seq)
        self.messages -= 1
        self.bytes -= size
        self.advance(seq + 1)
        return RemovedMessage(seq, self.table.names[sid], size)

    def drop_below(self, seq: int) -> None:
        for segment in self.segments:
            if segment.base >= seq:
                break
            position = segment.position_from(seq)
            if segment.live and position - segment.head >= BULK_DROP and self.messages >= BULK:
                bulk.drop_front(self, segment, position)
            else:
                self._drop_front(segment, position)
            segment.head = max(segment.head, position)
        self.advance(max(seq, self.first_seq))

    def _drop_front(self, segment: Segment, stop: int) -> None:
        for gone in range(segment.head, stop) if segment.live else ():
            if segment.is_live(gone):
                self.table.removed(segment.sids[gone], segment.seq_at(gone))
                self.messages -= 1
                self.bytes -= segment.sizes[gone]
                segment.live -= 1

    def oldest(self, messages: int, size: int, most: int) -> array[int]:
        """Return the oldest live sequences: at least `messages` with at least `size` bytes, but at most `most`."""
        if self.messages >= BULK:
            return bulk.oldest(self, messages, size, most)
        found, seq = array("Q"), self.first_seq
        while len(found) < most and (len(found) < messages or size > 0) and (place := self.next_place(ALL, seq)):
            segment, position = place
            seq = segment.seq_at(position)
            found.append(seq)
            size -= segment.sizes[position]
            seq += 1
        return found

    def seq_after(self, seq: int, messages: int) -> int:
        """Return a sequence above `seq` with at most `messages` messages, live or not, between the two.

        It is at most the first of the next segment, or one above the last, so that a step over sparse sequences is
        bounded by the messages that exist.
        """
        at = max(bisect_right(self.bases, seq) - 1, 0)
        segment = self.segments[at]
        position = segment.position_from(seq) + messages
        if position < len(segment.sids):
            return segment.seq_at(position)
        return max(self.bases[at + 1] if at + 1 < len(self.bases) else self.last_seq + 1, seq + 1)

    def seq_from_end(self, keep: int) -> int:
        """Return the sequence of the `keep`-th newest live message, from 1; first_seq when there are fewer."""
        for segment in reversed(self.segments):
            if segment.live < keep:
                keep -= segment.live
                continue
            if keep >= BULK_DROP and self.messages >= BULK:
                return segment.seq_at(bulk.live_positions(segment, None, 0, len(segment.sids))[-keep])
            position = len(segment.sids)
            for _ in range(keep):
                position = segment.prev_live(position - 1)
            return segment.seq_at(position)
        return self.first_seq

    def advance(self, from_seq: int) -> None:
        """Move first_seq to the first live message at or above `from_seq`, or just past the end."""
        if not self.messages:
            self.first_seq = self.last_seq + 1
            return
        at = max(bisect_right(self.bases, from_seq) - 1, 0)
        position = self.segments[at].position_from(from_seq)
        while True:
            segment = self.segments[at]
            position = segment.next_live(position) if segment.live else -1
            if position >= 0:
                self.first_seq = segment.seq_at(position)
                return
            at, position = at + 1, 0

    def skip_to(self, last_seq: int) -> None:
        """Raise last_seq to a sequence without a message."""
        self.last_seq = max(self.last_seq, last_seq)
        if not self.messages:
            self.first_seq = self.last_seq + 1

    def tidy_subjects(self) -> None:
        """Remove subjects without messages from the table once they crowd it."""
        if self.table.crowded():
            moves = self.table.renumber()
            for segment in self.segments:
                segment.renumber(moves)
            self._views.clear()

    def rollback(self, to_seq: int, keeps: Callable[[Segment], bool]) -> None:
        """Remove every message above `to_seq` as if never added, and trailing segments that `keeps` refuses."""
        while True:
            segment = self.segments[-1]
            stop = segment.position_from(to_seq + 1)
            for position in range(stop, len(segment.sids)):
                if segment.is_live(position):
                    self.table.removed(segment.sids[position], segment.seq_at(position))
                    self.messages -= 1
                    self.bytes -= segment.sizes[position]
                    segment.live -= 1
            segment.truncate(stop)
            if len(self.segments) == 1 or keeps(segment):
                break
            self.segments.pop()
            self.bases.pop()
            self.segments[-1].unseal()
        self.last_seq = to_seq
        self._views.clear()
        self.advance(min(self.first_seq, to_seq + 1))

    def live_positions(self, segment: Segment) -> list[int]:
        return bulk.live_positions(segment, None, 0, len(segment.sids)).tolist()

    def deleted(self) -> list[int]:
        """Return the sequences between first_seq and last_seq that have no message, in order."""
        missing: list[int] = []
        if not self.messages:
            return missing
        if self.messages >= BULK_MESSAGES:
            return [*chain.from_iterable(bulk.missing(self))]
        expected = self.first_seq
        for segment in self.segments:
            for seq in segment.live_seqs():
                if seq > expected:
                    missing.extend(range(expected, seq))
                expected = seq + 1
        missing.extend(range(expected, self.last_seq + 1))
        return missing
