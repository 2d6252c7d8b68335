"""Getting space back: empty segments are unlinked from the front, mostly dead ones are rewritten.

A rewritten segment stands under the next generation; the old file is unlinked with the commit after that, and until
then an erasure must reach it too.
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


class Compaction:
    """The segments of one stream that wait for it."""

    __slots__ = ("_cache", "_retired", "_sparse", "_unlinks")

    def __init__(self, cache: SegmentCache) -> None:
        self._cache = cache
        self._sparse: dict[SegmentFile, Segment] = {}
        self._retired: list[Segment] = []
        self._unlinks: list[str] = []

    def note(self, segment: Segment) -> None:
        """Have the segment rewritten if more than half of it is dead."""
        file = segment.body
        assert file is not None
        if file.dead_bytes * 2 > file.size:
            self._sparse[file] = segment

    def waits(self, index: StreamIndex) -> bool:
        """Return whether a commit has something to do here."""
        return bool(self._unlinks or self._sparse) or (len(index.segments) > 1 and not index.segments[0].live)

    def take_unlinks(self, index: StreamIndex) -> tuple[list[str], bool]:
        """Return the files to unlink, and whether leading segments are among them, so that the floor must be noted."""
        gone = index.drop_leading()
        paths = []
        for segment in gone:
            file = segment.body
            assert file is not None
            self._cache.drop(file)
            self._sparse.pop(file, None)
            paths += paths_of(file)
        paths += self._unlinks
        self._unlinks = []
        return paths, bool(gone)

    def plan(self, index: StreamIndex, floor: int) -> Rewrite | None:
        """Return the rewrite of one waiting segment, None when there is none to be done."""
        if not self._sparse:
            return None
        file, segment = next(iter(self._sparse.items()))
        del self._sparse[file]
        if segment.keys is None or index.place_of(segment) < 0 or not file.created:
            return None
        return plan_rewrite(index, segment, file, floor)

    def swap(self, index: StreamIndex, work: Rewrite) -> None:
        """Put the rewritten segment in the place of the old one; the old file goes with the next commit."""
        old, new = work.segment, work.result()
        index.replace(old, new)
        self._cache.drop(work.old)
        self._sparse.pop(work.old, None)
        self._retired.append(old)
        self._unlinks += paths_of(work.old)

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
