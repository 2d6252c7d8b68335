"""Getting space back: empty segments are unlinked from the front, mostly dead ones are rewritten, and so are those that
are to be compressed.

Sealed neighbours that are small together are rewritten as one, so that the number of files follows the live bytes: of
two neighbours in the interior at least half of what a segment takes is kept. What was rewritten stands under the next
generation; the old files are unlinked with the commit after that, and until then an erasure must reach them too.

A file is unlinked for one of three reasons (its segment fell off the front, was rewritten, or was found below the floor
at the start), and only here: such a segment is *retired*, the next commit that removes files takes it, and it is
*leaving* until that commit has ended. Nothing else holds a path to be unlinked; index files go by
`SegmentFile.give_up_index`, which gives the path to one caller only.
"""

from __future__ import annotations

from collections.abc import Iterator

from natsctl.store.index import StreamIndex
from natsctl.store.rewrite import Rewrite, plan_rewrite
from natsctl.store.segment import Segment
from natsctl.store.segment_file import SegmentCache, SegmentFile

GROUP_MAX = 64
"""Segments that are rewritten as one at most."""


def _whole(segment: Segment) -> bool:
    """Return whether a segment is sealed, on disk, and has anything to keep."""
    return segment.keys is not None and segment.body is not None and segment.body.created and segment.live > 0


def _kept(segment: Segment) -> int:
    """Return about how long the file of a segment would be without its dead frames."""
    return segment.body.size - segment.body.dead_bytes if segment.body is not None else 0


def _sparse(segment: Segment) -> bool:
    return segment.body is not None and segment.body.dead_bytes * 2 > segment.body.size


class Compaction:
    """The segments of one stream that wait for it."""

    __slots__ = ("_cache", "_candidates", "_identity", "_leaving", "_retired", "_small_bytes", "block_bytes")

    def __init__(self, cache: SegmentCache, segment_bytes: int, identity: bytes) -> None:
        self._cache = cache
        self._identity = identity
        self._small_bytes = segment_bytes // 2
        self._candidates: dict[SegmentFile, Segment] = {}
        self._retired: list[Segment] = []
        """Unused segments, whose files the next commit that removes files is to unlink."""
        self._leaving: list[Segment] = []
        """Those whose files the commit in flight unlinks, after what it erases."""
        self.block_bytes = 0
        """Length of the blocks that files are compressed in when they are written anew; 0 leaves them plain."""

    def note(self, segment: Segment) -> None:
        """Queue a segment for rewriting if more than half of it is dead, or if it is to be compressed."""
        if _sparse(segment) or self._unpacked(segment):
            assert segment.body is not None
            self._candidates[segment.body] = segment

    def _unpacked(self, segment: Segment) -> bool:
        return self.block_bytes > 0 and segment.body is not None and not segment.body.packed

    def note_all(self, index: StreamIndex) -> None:
        """Check every sealed segment, after a start."""
        for at, segment in enumerate(index.segments[:-1]):
            self.note(segment)
            self._note_small(index, at)

    def _note_small(self, index: StreamIndex, at: int) -> None:
        """Queue a segment if it and the next one are small enough to become one."""
        if 0 <= at < len(index.segments) - 2:
            segment, other = index.segments[at : at + 2]
            if segment.body is not None and segment.live and _kept(segment) + _kept(other) <= self._small_bytes:
                self._candidates[segment.body] = segment

    def retire(self, segments: list[Segment]) -> None:
        """Queue the files of segments that are in no index for the next commit that removes files."""
        for segment in segments:
            assert segment.body is not None
            self._cache.drop(segment.body)
            self._candidates.pop(segment.body, None)
        self._retired += segments

    def waits(self, index: StreamIndex) -> bool:
        """Return whether a commit has something to do here."""
        return bool(self._retired or self._candidates) or (len(index.segments) > 1 and not index.segments[0].live)

    def take_unlinks(self, index: StreamIndex) -> tuple[list[str], bool]:
        """Return the files to unlink, and whether leading segments are among them, so that the floor must be noted."""
        gone = index.drop_leading()
        self.retire(gone)
        self._leaving, self._retired = self._retired, []
        paths: list[str] = []
        for segment in self._leaving:
            if segment.body is not None:
                paths += [segment.body.path, *segment.body.give_up_index()]
        return paths, bool(gone)

    def plan(self, index: StreamIndex, floor: int) -> Rewrite | None:
        """Return the next rewrite, None when there is none to be done."""
        while self._candidates:
            file, segment = next(iter(self._candidates.items()))
            del self._candidates[file]
            at = index.place_of(segment)
            if at < 0 or not _whole(segment):
                continue
            group = self._group(index, at)
            if len(group) > 1 or _sparse(segment) or self._unpacked(segment):
                return plan_rewrite(index, group, floor, self._identity, self.block_bytes)
        return None

    def _group(self, index: StreamIndex, at: int) -> list[Segment]:
        """Return the segment at `at` and the neighbours that fit into one file with it."""
        segments = index.segments
        first, end, size = at, at + 1, _kept(segments[at])
        while end < len(segments) - 1 and _whole(segments[end]) and size + _kept(segments[end]) <= self._small_bytes:
            size += _kept(segments[end])
            end += 1
        while first and _whole(segments[first - 1]) and size + _kept(segments[first - 1]) <= self._small_bytes:
            first -= 1
            size += _kept(segments[first])
        return segments[max(first, end - GROUP_MAX) : end]

    def swap(self, index: StreamIndex, work: Rewrite) -> None:
        """Put the rewritten segment in the place of the old ones; the old files go with the next commit."""
        at = index.replace([part.segment for part in work.parts], work.result())
        self.retire([part.segment for part in work.parts])
        self._note_small(index, at - 1)
        self._note_small(index, at)

    def old_segments(self) -> list[Segment]:
        """Return the segments that are in no index and whose files may still be there."""
        return [*self._leaving, *self._retired]

    def settle(self) -> None:
        """Forget the segments whose files the commit that ended has unlinked."""
        self._leaving = []

    def places(self, index: StreamIndex, seq: int) -> Iterator[tuple[Segment, int, SegmentFile]]:
        """Yield every place on disk where message `seq` lies: (segment, position, file)."""
        old = [(s, s.position_from(seq)) for s in self.old_segments()]
        places = [index.physical(seq), *old]
        for place in places:
            if place is not None:
                segment, position = place
                file = segment.body
                if file is not None and position < len(segment.sids) and segment.seq_at(position) == seq:
                    yield segment, position, file
