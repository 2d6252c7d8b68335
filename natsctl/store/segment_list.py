"""The segments of one stream in sequence order; the last one takes appends."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from natsctl.store.segment import Segment

Place = tuple[Segment, int]
"""A segment and a position in it."""


class SegmentList:
    """Segments and the first sequence of each."""

    __slots__ = ("bases", "segments")

    def __init__(self, first_seq: int) -> None:
        self.segments: list[Segment] = [Segment(first_seq)]
        self.bases: list[int] = [first_seq]

    @property
    def active(self) -> Segment:
        """Return the segment that takes appends."""
        return self.segments[-1]

    def open_segment(self, base: int) -> Segment:
        """Start the next segment at `base` and return it."""
        segment = Segment(base)
        self.segments.append(segment)
        self.bases.append(base)
        return segment

    def locate(self, seq: int) -> Place | None:
        """Return where the live message `seq` is."""
        at = bisect_right(self.bases, seq) - 1
        if at < 0:
            return None
        segment = self.segments[at]
        position = segment.position_of(seq)
        return (segment, position) if position >= 0 else None

    def physical(self, seq: int) -> Place | None:
        """Return where message `seq` lies, live or dead; None when its bytes are gone."""
        at = bisect_right(self.bases, seq) - 1
        if at < 0:
            return None
        segment = self.segments[at]
        position = segment.position_from(seq)
        if position < len(segment.sids) and segment.seq_at(position) == seq:
            return segment, position
        return None

    def place_of(self, segment: Segment) -> int:
        """Return which of the segments this one is, -1 when it is none of them any more."""
        at = bisect_left(self.bases, segment.base)
        return at if at < len(self.segments) and self.segments[at] is segment else -1

    def replace(self, old: Sequence[Segment], new: Segment) -> int:
        """Put `new` where the segments `old`, which stand in a row, were, and return which one it is now."""
        at = self.place_of(old[0])
        self.segments[at : at + len(old)] = [new]
        self.bases[at : at + len(old)] = [new.base]
        return at

    def drop_leading(self) -> list[Segment]:
        """Take the segments without live messages off the front, never the active one; return them."""
        gone: list[Segment] = []
        while len(self.segments) - len(gone) > 1 and not self.segments[len(gone)].live:
            gone.append(self.segments[len(gone)])
        if gone:
            del self.segments[: len(gone)]
            del self.bases[: len(gone)]
        return gone
