"""Writing sealed segments anew without their dead frames, beside the old files, under the next generation.

Neighbours that became small go into one file. It stands under the base of the first and covers all of them, which is
how a start knows that the old files of the others are superseded.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from zlib import crc32

import msgspec

from natsctl.store import frame
from natsctl.store.index import StreamIndex
from natsctl.store.index_file import IndexImage, image_of
from natsctl.store.segment import Segment
from natsctl.store.segment_file import SegmentFile


class Part(msgspec.Struct):
    """A segment that goes into the new file; `positions` are the messages to keep, `sids` its column as planned."""

    segment: Segment
    file: SegmentFile
    positions: list[int]
    sids: array[int]

    @property
    def is_whole(self) -> bool:
        """Return whether every message is kept."""
        return len(self.positions) == len(self.sids)

    @property
    def is_one_run(self) -> bool:
        """Return whether every message is kept and nothing lies between them."""
        offsets, sizes = self.segment.offsets, self.segment.sizes
        if not self.is_whole:
            return False
        return offsets[-1] + sizes[-1] - offsets[0] == sum(sizes) + frame.FRAME_OVER_SIZE * (len(sizes) - 1)


class Rewrite(msgspec.Struct):
    """Sealed segments in a row to be written anew as one."""

    parts: list[Part]
    new: SegmentFile
    tombs: array[int]
    covers_seq: int
    names: list[bytes]
    block_bytes: int = 0
    """Length of the blocks that the new file is compressed in; 0 leaves it plain."""
    offsets: array[int] = msgspec.field(default_factory=lambda: array("I"))
    built: Segment | None = None

    def build(self, read: Callable[[SegmentFile], bytes | None]) -> bytes | None:
        """Return the new file's plain bytes and note where frames came to lie; None where an old one is damaged."""
        head = self.new.head
        pieces, size = [head.encode()], frame.FILE_HEAD_BYTES
        for part in self.parts:
            source, offsets, sizes = read(part.file), part.segment.offsets, part.segment.sizes
            salt = part.file.head.salt
            if source is None:
                return None
            if salt == head.salt and part.is_one_run:
                self.offsets.extend(offset - offsets[0] + size for offset in offsets)
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
        """Index the new file as if nothing had been removed meanwhile, and return what its index file will say."""
        file, new = self.new, Segment(self.new.head.base)
        new.seqs, new.sizes, new.sids, new.timed = array("Q"), array("I"), array("I"), array("Q")
        for part in self.parts:
            old, kept = part.segment, set[int]()
            if part.is_whole:
                new.seqs.extend(range(old.base, old.next_seq()) if old.seqs is None else old.seqs)
                new.sizes.extend(old.sizes)
                new.sids.extend(part.sids)
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
        return image_of(new, file.size, self.covers_seq, self.names, True)

    def result(self) -> Segment:
        """Return the index of the new file; what was removed meanwhile is dead in it."""
        new = self.built
        assert new is not None
        if any(part.segment.sids is not part.sids for part in self.parts):  # renumbered
            new.sids = array("I")
            for part in self.parts:
                new.sids.extend(map(part.segment.sids.__getitem__, part.positions))
            new.seal()
        at = 0
        for part in self.parts:
            if part.segment.live < len(part.positions):
                for number, position in enumerate(part.positions, at):
                    if not part.segment.is_live(position):
                        new.kill(number)
                        self.new.dead_bytes += new.sizes[number] + frame.FRAME_OVER_SIZE
            at += len(part.positions)
        return new


def _under_another_salt(piece: bytes, old: int, new: int) -> bytes | None:
    """Return a frame with its checksum for another file, None where it is damaged."""
    body, length = piece[frame.PREFIX.size :], len(piece)
    if frame.PREFIX.unpack_from(piece) != (frame.MAGIC, length, crc32(body, (old + length) & frame.MASK)):
        return None
    return frame.PREFIX.pack(frame.MAGIC, length, crc32(body, (new + length) & frame.MASK)) + body


def plan_rewrite(
    index: StreamIndex, segments: Sequence[Segment], floor: int, identity: bytes, block_bytes: int = 0
) -> Rewrite:
    """Return how to rewrite segments in a row: live messages, and the deletes that earlier segments still need."""
    parts, tombs = [], array("Q")
    for segment in segments:
        assert segment.body is not None
        parts.append(Part(segment, segment.body, index.live_positions(segment), segment.sids))
        for seq in segment.body.tombs:
            place = index.physical(seq)
            if place is not None and place[0].base < segments[0].base and not place[0].is_live(place[1]):
                tombs.append(seq)
    first = parts[0].file
    generation = first.head.generation + 1
    head = first.head._replace(generation=generation, floor=floor, identity=identity, role=frame.SEGMENT_FILE)
    covers = index.bases[index.place_of(segments[-1]) + 1] - 1
    return Rewrite(parts, SegmentFile(first.folder, head), tombs, covers, index.table.names, block_bytes)
