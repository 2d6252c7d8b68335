"""Writing a sealed segment anew without its dead frames, beside the old one, under the next generation."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from natsctl.store import frame
from natsctl.store.index import StreamIndex
from natsctl.store.index_file import IndexImage
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

    def image(self) -> IndexImage:
        """Return what the index file of the new file will say; in the thread that built it."""
        old, file, positions = self.segment, self.new, self.positions
        seqs, offsets = array("Q", map(old.seq_at, positions)), self.new_offsets
        sizes, sids = (array("I", map(column.__getitem__, positions)) for column in (old.sizes, self.sids))
        times = (old.first_ts, old.last_ts)
        timed = array("Q", sorted({*old.timed}.intersection(seqs))) if old.timed else array("Q")
        ends = (file.size, self.covers_seq, file.head.floor)
        return IndexImage(
            file.head, *ends, seqs, offsets, sizes, sids, b"", timed, self.tombs, *times, self.names, True
        )

    def result(self) -> Segment:
        """Return the index of the new file; what was removed meanwhile is dead in it."""
        old, new = self.segment, Segment(self.segment.base)
        new.seqs = array("Q", [old.seq_at(p) for p in self.positions])
        new.offsets = self.new_offsets
        new.sizes = array("I", [old.sizes[p] for p in self.positions])
        new.sids = array("I", [old.sids[p] for p in self.positions])
        new.timed = array("Q", old.live_timed())
        new.first_ts, new.last_ts, new.live = old.first_ts, old.last_ts, old.live
        dead = bytearray(not old.is_live(p) for p in self.positions)
        new.dead = dead if any(dead) else None
        new.seal()
        file = new.body = self.new
        file.created, file.settled, file.tombs = True, file.size, self.tombs
        return new


def plan_rewrite(index: StreamIndex, segment: Segment, file: SegmentFile, floor: int) -> Rewrite:
    """Return how to rewrite `segment`: live messages, and the deletes that earlier segments still need."""
    positions = [p for p in range(segment.head, len(segment.sids)) if segment.is_live(p)]
    tombs = array("Q")
    for seq in file.tombs:
        place = index.physical(seq)
        if place is not None and place[0] is not segment and not place[0].is_live(place[1]):
            tombs.append(seq)
    head = file.head._replace(generation=file.head.generation + 1, floor=floor)
    new = SegmentFile(file.folder, head)
    covers = index.bases[index.segments.index(segment) + 1] - 1
    return Rewrite(segment, file, new, positions, tombs, covers, segment.sids, index.table.names)
