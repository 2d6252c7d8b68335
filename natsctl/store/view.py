"""View: the subject numbers that one filter selects in one stream, and its matches in a few segments.

A view is brought up to date before use: only subjects added since the last update are matched. The merged positions
of a filter with several subjects are kept for the last few segments asked, extended as an open segment grows, so that
a consumer that walks forward examines every message at most once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.store import bulk
from natsctl.store.filters import Filters
from natsctl.store.segment import Segment

if TYPE_CHECKING:
    from natsctl.store.index import StreamIndex

PROBE = 32
"""Positions tried one by one before the merged positions are used: most filters match something close."""
CACHED_SEGMENTS = 4
"""Number of segments with merged positions kept by a view."""
FEW_IN_A_ROW = 64
"""Maximum number of messages between two gaps that are processed singly."""
BULK_MESSAGES = 200_000
"""Min number of messages of a stream to process whole columns (see bulk.py)."""


class FilterView:
    __slots__ = (
        "_checked",
        "_index",
        "_literals_seen",
        "_names",
        "_places",
        "all",
        "filters",
        "listed",
        "only",
        "sids",
    )

    def __init__(self, filters: Filters, index: StreamIndex, most: int = 0) -> None:
        """Bind a filter; `most` is the number of subjects to match now, 0: all."""
        self.filters = filters
        self._index = index
        self._names: list[bytes] = index.table.names
        self._begin()
        self.refresh(most)

    def _begin(self) -> None:
        self.sids: set[int] | range = set()
        """A range where the filter selects every subject: a set of a million numbers takes 60 MB."""
        self.listed = array("I")
        """The same numbers, where `sids` is a set."""
        self._literals_seen = 0
        self._checked = 0
        self._places: dict[int, tuple[Segment, array[int], int]] = {}
        self.all = False
        self.only = -1

    @property
    def unseen(self) -> int:
        names = self._index.table.names
        return len(names) - (self._checked if self._names is names else 0)

    def refresh(self, most: int = 0) -> None:
        """Take in the subjects that appeared since the last look, up to `most` of them; 0: all."""
        names, ids = self._index.table.names, self._index.table.ids
        if self._names is not names:  # they have other numbers now
            self._names = names
            self._begin()
        total = len(names)
        if self._checked == total:
            return
        end = min(total, self._checked + most) if most else total
        found = self.filters.numbers_of(names, self._checked, end) if self.filters.wildcards else array("I")
        if literals := self.filters.literals:
            if total - self._literals_seen < len(literals):
                known = {sid for sid in range(self._literals_seen, total) if self.filters.has(names[sid])}
            else:
                known = {ids[s] for s in literals if s in ids}
            self._literals_seen = total
            found = array("I", known.union(found))
            found = array("I", [sid for sid in found if sid not in self.sids])
        if found:
            self._take_in(found, end)
        self._checked = end
        self.all = len(self.sids) == total
        self.only = next(iter(self.sids)) if len(self.sids) == 1 else -1

    def _take_in(self, found: array[int], end: int) -> None:
        """Add new numbers; numbers of literal subjects of the filter may be `end` or above."""
        if len(self.sids) + len(found) == end and (not self.filters.literals or max(found) < end):
            self.sids, self.listed = range(end), array("I")
        elif isinstance(self.sids, range):
            self.listed = array("I", self.sids)
            self.sids = {*self.sids, *found}
            self.listed.extend(found)
        else:
            self.sids.update(found)
            self.listed.extend(found)

    def places(self, segment: Segment) -> array[int]:
        """Return every position of `segment`, live or not, on these subjects."""
        known = self._places.get(id(segment))
        if known is not None and known[0] is segment:
            _, positions, seen = known
            if seen < len(segment.sids):
                positions.extend(self._positions(segment, seen))
                self._places[id(segment)] = (segment, positions, len(segment.sids))
            return positions
        while len(self._places) >= CACHED_SEGMENTS:
            del self._places[next(iter(self._places))]
        positions = self._positions(segment, 0)
        self._places[id(segment)] = (segment, positions, len(segment.sids))
        return positions

    def _positions(self, segment: Segment, start: int) -> array[int]:
        few = segment.positions_of_few(self.sids, start) if isinstance(self.sids, set) else None
        if few is not None:
            return few
        if self._index.messages >= BULK_MESSAGES and len(segment.sids) - start > PROBE:
            return bulk.positions_on(segment.sids, self, self._index, start)
        return segment.positions(self.sids, start)

    def next_in(self, segment: Segment, position: int) -> int:
        """Return the first live matching position from `position` on, or -1."""
        if self.all:
            return segment.next_live(position)
        if not self.sids or not segment.touches(self.sids):
            return -1
        position = max(position, segment.head)
        sids, wanted = segment.sids, self.sids
        for near in range(position, min(position + PROBE, len(sids))):
            if sids[near] in wanted and segment.is_live(near):
                return near
        if position + PROBE >= len(sids):
            return -1
        if self.only >= 0:
            return segment.next_of(self.only, position + PROBE)
        places = self.places(segment)
        for at in range(bisect_left(places, position + PROBE), len(places)):
            if segment.is_live(places[at]):
                return places[at]
        return -1

    def prev_in(self, segment: Segment, position: int) -> int:
        """Return the last live matching position up to and including `position`, or -1."""
        if self.all:
            return segment.prev_live(position)
        if not self.sids or not segment.touches(self.sids):
            return -1
        sids, wanted = segment.sids, self.sids
        for near in range(position, max(position - PROBE, segment.head - 1), -1):
            if sids[near] in wanted and segment.is_live(near):
                return near
        position -= PROBE
        if position < segment.head:
            return -1
        if self.only >= 0:
            return segment.prev_of(self.only, position)
        places = self.places(segment)
        for at in range(bisect_right(places, position) - 1, -1, -1):
            if segment.is_live(places[at]):
                return places[at]
        return -1

    def count_in(self, segment: Segment, start: int, stop: int) -> int:
        """Return how many live matching positions lie in [start, stop)."""
        start, stop = max(start, segment.head), min(stop, len(segment.sids))
        if stop <= start:
            return 0
        if self.all:
            return segment.live_between(start, stop)
        if not self.sids or not segment.touches(self.sids):
            return 0
        if segment.keys is not None and not start and stop == len(segment.sids):
            return segment.count_of(self.sids)
        places = self.places(segment)
        low, high = bisect_left(places, start), bisect_left(places, stop)
        if segment.dead is None:
            return high - low
        dead = segment.dead
        return sum(not dead[place] for place in places[low:high])


def live_run(segment: Segment, view: FilterView | None, start: int, stop: int, limit: int) -> Sequence[int]:
    """Return up to `limit` live matching positions of `segment` from `start` (itself one) to below `stop`.

    Without a view everything matches.
    """
    if (view is None or view.all) and segment.dead is None:
        return range(start, min(stop, start + limit))
    found = [start]
    while len(found) < limit:
        start = segment.next_live(start + 1) if view is None else view.next_in(segment, start + 1)
        if start < 0 or start >= stop:
            break
        found.append(start)
    return found


def fitting(segment: Segment, positions: Sequence[int], max_bytes: int, some: bool) -> tuple[Sequence[int], int]:
    """Return the first positions with messages that fit, and the remaining room (above 0).

    One fits always, unless there are `some` already.
    """
    sizes = segment.sizes
    for number, position in enumerate(positions):
        max_bytes -= sizes[position]
        if max_bytes <= 0 and (number or some):
            return positions[:number], 1
    return positions, max(max_bytes, 1)


def live_span(segment: Segment, start: int, stop: int, limit: int) -> Sequence[int]:
    """Return up to `limit` live positions of `segment` from `start` (itself one) to below `stop`.

    They are consecutive if that gives enough of them.
    """
    stop = min(stop, start + limit)
    gone = -1 if segment.dead is None else segment.dead.find(1, start, stop)
    if gone < 0 or gone - start >= FEW_IN_A_ROW:
        return range(start, stop if gone < 0 else gone)
    return live_run(segment, None, start, stop, FEW_IN_A_ROW)
