"""Writing a sealed segment anew without its dead frames, beside the old one, under the next generation."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from natsctl.store import frame
from natsctl.store.index import StreamIndex
from natsctl.store.index_file import IndexImage, image_of
from natsctl.store.segment import Segment
from natsctl.store.segment_file import SegmentFile


@dataclass(slots=True)
class Rewrite:
    """A sealed segment to be written anew without its dead frames; `positions` are the messages to keep, in order."""

    segment: Segment
    old: SegmentFile
    new: SegmentFile
    positions: list[int]
    tombs: array[int]
    covers_seq: int
    sids: array[int]
    names: list[bytes]
    new_offsets: array[int] = field(default_factory=lambda: array("I"))
    built: Segment | None = None

    def build(self, source: bytes) -> bytes:
        """Return the new file's bytes from the old one's and note where frames came to lie."""
        head = self.new.head
        parts, size = [head.encode()], frame.FILE_HEAD_BYTES
        offsets, sizes = self.segment.offsets, self.segment.sizes
        for position in self.positions:
            start = offsets[position]
            piece = source[start : start + sizes[position] + frame.FRAME_OVER_SIZE]
            self.new_offsets.append(size)
            parts.append(piece)
            size += len(piece)
        if self.tombs:
            parts.append(frame.encode(frame.DELETES, self.covers_seq, 0, 0, head.salt, self.tombs.tobytes()))
            size += len(parts[-1])
        seal = frame.SEAL_BODY.pack(self.covers_seq, size)
        parts.append(frame.encode(frame.SEAL, self.covers_seq, 0, 0, head.salt, seal))
        return b"".join(parts)

    def index(self) -> IndexImage:
        """Index the new file as if nothing had been removed meanwhile, and return what its index file will say."""
        old, new, file = self.segment, Segment(self.segment.base), self.new
        new.seqs, new.offsets = array("Q", map(old.seq_at, self.positions)), self.new_offsets
        new.sizes, new.sids = (array("I", map(c.__getitem__, self.positions)) for c in (old.sizes, self.sids))
        new.timed = array("Q", sorted({*old.timed}.intersection(new.seqs))) if old.timed else old.timed
        new.first_ts, new.last_ts, new.live = old.first_ts, old.last_ts, len(self.positions)
        new.seal()
        new.body = file
        file.created, file.settled, file.tombs = True, file.size, self.tombs
        self.built = new
        return image_of(new, file.size, self.covers_seq, file.head.floor, self.names, True)

    def result(self) -> Segment:
        """Return the index of the new file; what was removed meanwhile is dead in it."""
        old, new = self.segment, self.built
        assert new is not None
        if old.sids is not self.sids:  # renumbered
            new.sids = array("I", map(old.sids.__getitem__, self.positions))
            new.seal()
        if old.live < new.live:
            for at, position in enumerate(self.positions):
                if not old.is_live(position):
                    new.kill(at)
        return new


def plan_rewrite(index: StreamIndex, segment: Segment, file: SegmentFile, floor: int) -> Rewrite:
    """Return how to rewrite `segment`: live messages, and the deletes that earlier segments still need."""
    positions = index.live_positions(segment)
    tombs = array("Q")
    for seq in file.tombs:
        place = index.physical(seq)
        if place is not None and place[0] is not segment and not place[0].is_live(place[1]):
            tombs.append(seq)
    head = file.head._replace(generation=file.head.generation + 1, floor=floor)
    new = SegmentFile(file.folder, head)
    covers = index.bases[index.place_of(segment) + 1] - 1
    return Rewrite(segment, file, new, positions, tombs, covers, segment.sids, index.table.names)
