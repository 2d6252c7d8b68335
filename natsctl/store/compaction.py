"""Getting space back: empty segments are unlinked from the front, mostly dead ones are rewritten, and so are those that
are to be compressed.

Sealed neighbours that are small together are rewritten as one, so that the number of files follows the live bytes: of
two neighbours in the interior at least half of what a segment takes is kept. What was rewritten stands under the next
generation; the old files are unlinked with the commit after that, and until then an erasure must reach them too.
"""

from __future__ import annotations

from collections.abc import Iterator

from natsctl.store.index import StreamIndex
from natsctl.store.rewrite import Rewrite, plan_rewrite
from natsctl.store.segment import Segment
from natsctl.store.segment_file import SegmentCache, SegmentFile


def paths_of(file: SegmentFile) -> list[str]:
    """Return the paths of a segment and of its index file, if it has one."""
    return [file.path, file.index_path] if file.indexed else [file.path]


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

    __slots__ = ("_cache", "_candidates", "_retired", "_small_bytes", "_unlinks", "block_bytes")

    def __init__(self, cache: SegmentCache, segment_bytes: int) -> None:
        self._cache = cache
        self._small_bytes = segment_bytes // 2
        self._candidates: dict[SegmentFile, Segment] = {}
        self._retired: list[Segment] = []
        self._unlinks: list[str] = []
        self.block_bytes = 0
        """Length of the blocks that files are compressed in when they are written anew; 0 leaves them plain."""

    def note(self, segment: Segment) -> None:
        """Have the segment rewritten if more than half of it is dead, or if it is to be compressed."""
        if _sparse(segment) or self._unpacked(segment):
            assert segment.body is not None
            self._candidates[segment.body] = segment

    def _unpacked(self, segment: Segment) -> bool:
        return self.block_bytes > 0 and segment.body is not None and not segment.body.packed

    def note_all(self, index: StreamIndex) -> None:
        """Look at every sealed segment, after a start."""
        for at, segment in enumerate(index.segments[:-1]):
            self.note(segment)
            self._note_small(index, at)

    def _note_small(self, index: StreamIndex, at: int) -> None:
        """Have a segment looked at if it and the next one are small enough to become one."""
        if 0 <= at < len(index.segments) - 2:
            segment, other = index.segments[at : at + 2]
            if segment.body is not None and segment.live and _kept(segment) + _kept(other) <= self._small_bytes:
                self._candidates[segment.body] = segment

    def unlink(self, paths: list[str]) -> None:
        """Have the next commit unlink files."""
        self._unlinks += paths

    def waits(self, index: StreamIndex) -> bool:
        """Return whether a commit has something to do here."""
        return bool(self._unlinks or self._candidates) or (len(index.segments) > 1 and not index.segments[0].live)

    def take_unlinks(self, index: StreamIndex) -> tuple[list[str], bool]:
        """Return the files to unlink, and whether leading segments are among them, so that the floor must be noted."""
        gone = index.drop_leading()
        paths = []
        for segment in gone:
            file = segment.body
            assert file is not None
            self._cache.drop(file)
            self._candidates.pop(file, None)
            paths += paths_of(file)
        paths += self._unlinks
        self._unlinks = []
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
                return plan_rewrite(index, group, floor, self.block_bytes)
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
        for part in work.parts:
            self._cache.drop(part.file)
            self._candidates.pop(part.file, None)
            self._retired.append(part.segment)
            self._unlinks += paths_of(part.file)
        self._note_small(index, at - 1)
        self._note_small(index, at)

    def settle(self) -> None:
        """Forget retired segments whose files are gone."""
        self._retired = [s for s in self._retired if s.body is not None and s.body.path in self._unlinks]

    def places(self, index: StreamIndex, seq: int) -> Iterator[tuple[Segment, int, SegmentFile]]:
        """Yield every place on disk where message `seq` lies: (segment, position, file)."""
        places = [index.physical(seq), *((s, s.position_from(seq)) for s in self._retired)]
        for place in places:
            if place is not None:
                segment, position = place
                file = segment.body
                if file is not None and position < len(segment.sids) and segment.seq_at(position) == seq:
                    yield segment, position, file
