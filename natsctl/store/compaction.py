"""Compaction: empty segments are unlinked from the front, and mostly dead ones are rewritten without their dead frames.

Segments that are to be compressed are rewritten too, and sealed neighbours that are small together become one, so that
the number of files follows the live bytes: two interior neighbours together hold at least half the capacity of a
segment. A merged file has the base of its first segment and covers all of them, so a start knows that the old files of
the others are superseded. Rewritten segments get the next generation; the old files are unlinked with the commit after
that, and until then an erasure must reach them too.

A file is unlinked for one of three reasons (its segment fell off the front, was rewritten, or was found below the floor
at the start), and only here: such a segment is *retired*, the next commit that removes files takes it, and it is
*leaving* until that commit has ended. Nothing else holds a path to be unlinked; index files go by
`SegmentFile.give_up_index`: it returns the path to one caller only.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, compress
from zlib import crc32

import msgspec

from natsctl.store import frame
from natsctl.store.bulk import count_down
from natsctl.store.columns import widened
from natsctl.store.index import StreamIndex
from natsctl.store.index_file import IndexImage, image_of
from natsctl.store.segment import EarlierRemovals, Segment
from natsctl.store.segment_file import SegmentCache, SegmentFile


class RewritePart(msgspec.Struct):
    """A segment that goes into the new file; `positions` are the messages to keep, `sids` its column as planned."""

    segment: Segment
    file: SegmentFile
    positions: list[int]
    sids: array[int]

    @property
    def is_whole(self) -> bool:
        return len(self.positions) == len(self.sids)

    @property
    def is_one_run(self) -> bool:
        """Return whether every message is kept and nothing lies between them."""
        offsets, sizes = self.segment.offsets, self.segment.sizes
        if not self.is_whole:
            return False
        return offsets[-1] + sizes[-1] - offsets[0] == sum(sizes) + frame.FRAME_OVER_SIZE * (len(sizes) - 1)


class Rewrite(msgspec.Struct):
    parts: list[RewritePart]
    new: SegmentFile
    removals: list[EarlierRemovals]
    """Removals in earlier segments that the old files record; some are no longer needed."""
    covers_seq: int
    names: list[bytes]
    block_bytes: int = 0
    """Length of the blocks that the new file is compressed in; 0 leaves it plain."""
    offsets: array[int] = msgspec.field(default_factory=lambda: array("I"))
    tombs: array[int] = msgspec.field(default_factory=lambda: array("Q"))
    """The removals that earlier segments still need."""
    built: Segment | None = None

    def build(self, read: Callable[[SegmentFile], bytes | None]) -> bytes | None:
        """Return the new file's plain bytes and record the positions of frames; None if an old file is damaged."""
        self.tombs = array("Q", chain.from_iterable(removals.find() for removals in self.removals))
        head = self.new.head
        pieces, size = [head.encode()], frame.FILE_HEAD_BYTES
        for part in self.parts:
            source, offsets, sizes = read(part.file), part.segment.offsets, part.segment.sizes
            salt = part.file.head.salt
            if source is None:
                return None
            if salt == head.salt and part.is_one_run:
                moved = size - offsets[0]
                self.offsets.extend([offset + moved for offset in offsets])
                pieces.append(source[offsets[0] : offsets[-1] + sizes[-1] + frame.FRAME_OVER_SIZE])
                size += len(pieces[-1])
                continue
            for position in part.positions:
                start = offsets[position]
                piece = source[start : start + sizes[position] + frame.FRAME_OVER_SIZE]
                if salt != head.salt:
                    again = _under_another_salt(piece, salt, head.salt)
                    if again is None:
                        return None
                    piece = again
                self.offsets.append(size)
                pieces.append(piece)
                size += len(piece)
        if self.tombs:
            pieces.append(frame.encode(frame.DELETES, self.covers_seq, 0, 0, head.salt, self.tombs.tobytes()))
            size += len(pieces[-1])
        seal = frame.SEAL_BODY.pack(self.covers_seq, size)
        pieces.append(frame.encode(frame.SEAL, self.covers_seq, 0, 0, head.salt, seal))
        return b"".join(pieces)

    def index(self) -> IndexImage:
        """Index the new file as if nothing had been removed meanwhile, and return the content of its index file."""
        file, new = self.new, Segment(self.new.head.base)
        new.seqs, new.sizes, new.sids, new.timed = array("Q"), array("I"), array("I"), array("Q")
        for part in self.parts:
            old, kept = part.segment, set[int]()
            if part.is_whole:
                new.seqs.extend(range(old.base, old.next_seq()) if old.seqs is None else old.seqs)
                new.sizes.extend(widened(old.sizes))
                new.sids.extend(widened(part.sids))
                new.timed.extend(old.timed)
                continue
            new.seqs.extend(map(old.seq_at, part.positions))
            new.sizes.extend(map(old.sizes.__getitem__, part.positions))
            new.sids.extend(map(part.sids.__getitem__, part.positions))
            if old.timed:
                kept.update(map(old.seq_at, part.positions))
            new.timed.extend(seq for seq in old.timed if seq in kept)
        new.offsets, new.live = self.offsets, len(new.seqs)
        if new.live and new.seqs[0] == new.base and new.seqs[-1] == new.base + new.live - 1:
            new.seqs = None
        new.first_ts = next((part.segment.first_ts for part in self.parts if part.segment.first_ts), 0)
        new.last_ts = next((part.segment.last_ts for part in reversed(self.parts) if part.segment.last_ts), 0)
        new.seal()
        new.body = file
        file.created, file.settled, file.tombs = True, file.size, self.tombs
        file.packed = self.block_bytes > 0
        self.built = new
        image = image_of(new, file.size, self.covers_seq, self.names, True)
        new.pack()
        return image

    def result(self) -> Segment:
        """Return the index of the new file; messages removed meanwhile are dead in it."""
        new = self.built
        assert new is not None
        if any(part.segment.sids is not part.sids for part in self.parts):  # renumbered
            new.sids = array("I")
            for part in self.parts:
                new.sids.extend(map(part.segment.sids.__getitem__, part.positions))
            new.seal()
            new.pack()
        dead = bytearray()
        for part in self.parts:
            old, first = part.segment, bisect_left(part.positions, part.segment.head)
            dead += b"\1" * first
            kept = part.positions[first:]
            dead += bytes(len(kept)) if old.dead is None else bytes(map(old.dead.__getitem__, kept))
        if gone := array("I", compress(range(len(dead)), dead)):
            assert new.keys is not None
            new.dead = dead
            new.live -= len(gone)
            count_down(new.keys, new.counts, new.sids, gone)
            self.new.dead_bytes += sum(map(new.sizes.__getitem__, gone)) + len(gone) * frame.FRAME_OVER_SIZE
        return new


def _under_another_salt(piece: bytes, old: int, new: int) -> bytes | None:
    """Return a frame with its checksum for another file, or None if it is damaged."""
    body, length = piece[frame.PREFIX.size :], len(piece)
    if frame.PREFIX.unpack_from(piece) != (frame.MAGIC, length, crc32(body, (old + length) & frame.MASK)):
        return None
    return frame.PREFIX.pack(frame.MAGIC, length, crc32(body, (new + length) & frame.MASK)) + body


def plan_rewrite(
    index: StreamIndex, segments: Sequence[Segment], floor: int, identity: bytes, block_bytes: int = 0
) -> Rewrite:
    """Return how to rewrite segments in a row: live messages, and the deletes that earlier segments still need."""
    parts, tombs = list[RewritePart](), list[int]()
    for segment in segments:
        assert segment.body is not None
        parts.append(RewritePart(segment, segment.body, index.live_positions(segment), segment.sids))
        tombs += [seq for seq in segment.body.tombs if seq < segments[0].base]
    tombs.sort()
    first = parts[0].file
    generation = first.head.generation + 1
    head = first.head._replace(generation=generation, floor=floor, identity=identity, role=frame.SEGMENT_FILE)
    covers = index.bases[index.place_of(segments[-1]) + 1] - 1
    removals = index.removals_among(tombs)
    return Rewrite(parts, SegmentFile(first.folder, head), removals, covers, index.table.names, block_bytes)


GROUP_MAX = 64
"""Segments that are rewritten as one at most."""


def _whole(segment: Segment) -> bool:
    return segment.keys is not None and segment.body is not None and segment.body.created and segment.live > 0


def _kept(segment: Segment) -> int:
    """Return about how long the file of a segment would be without its dead frames."""
    return segment.body.size - segment.body.dead_bytes if segment.body is not None else 0


def _sparse(segment: Segment) -> bool:
    return segment.body is not None and segment.body.dead_bytes * 2 > segment.body.size


class Compaction:
    __slots__ = ("_cache", "_candidates", "_identity", "_leaving", "_retired", "_small_bytes", "block_bytes")

    def __init__(self, cache: SegmentCache, segment_bytes: int, identity: bytes) -> None:
        self._cache = cache
        self._identity = identity
        self._small_bytes = segment_bytes // 2
        self._candidates: dict[SegmentFile, Segment] = {}
        self._retired: list[Segment] = []
        """Unused segments; the next commit that removes files unlinks theirs."""
        self._leaving: list[Segment] = []
        """Segments with files that the commit in flight unlinks, after its erasures."""
        self.block_bytes = 0
        """Block length for compressing rewritten files; 0 leaves them plain."""

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

    @property
    def has_candidates(self) -> bool:
        """Return whether a segment may have to be rewritten."""
        return bool(self._candidates)

    def waits(self, index: StreamIndex) -> bool:
        if self._retired or self._candidates:
            return True
        return not index.segments[0].live and len(index.segments) > 1

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
        return [*self._leaving, *self._retired]

    def postpone(self) -> None:
        """Leave the files of the commit that ended to the next one: they were not unlinked."""
        self._leaving, self._retired = [], self._leaving + self._retired

    def settle(self) -> None:
        """Forget the segments with files that the finished commit has unlinked."""
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
