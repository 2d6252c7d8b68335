"""The index file of a segment: the result of a scan of the segment and of later removals, so that a start need not
read the messages.

It is next to its segment under the same name (`.idx`), is written when the segment is sealed or rewritten, and is
never synced: a checksum covers all of it, and it names the identity of the stream, and salt, generation and length of
the segment that it describes. A file that is missing, torn, damaged or of another segment is ignored: the
segment is scanned.
Removals are in it only once their records are on disk; later removals are applied on top, and one
that is in it already is no harm. Subjects of dead messages are left out. Source: docs/adr/0009.
"""

from __future__ import annotations

import struct
from array import array
from contextlib import suppress
from typing import Any
from zlib import crc32

import msgspec

from natsctl.store import frame
from natsctl.store.columns import Places, narrowed, packed, widened
from natsctl.store.disk import Disk
from natsctl.store.frame import FileHead, Scan
from natsctl.store.packed import PackedFile, Readable, open_segment
from natsctl.store.segment import Segment
from natsctl.store.segment_file import index_name, segment_name
from natsctl.store.subject_table import GONE, SubjectTable, Tally, tally_of

MAGIC = b"natsidx\x02"
HEAD = struct.Struct("<8sI12sIQQQQQQQQIIIII")
"""magic, crc, identity of the stream, salt, stream id, base, generation, end, covers, floor, first_ts, last_ts; how
many messages, subjects, tombs and timed messages; flags."""
UNMARKED_MAGIC = b"natsidx\x01"
UNMARKED_HEAD = struct.Struct("<8sIIQQQQQQQQIIIII")
"""HEAD without the identity, for segments without one."""
CRC_FROM = 12
SPARSE, DEAD, SEALED = 1, 2, 4
SEAL_BYTES = frame.HEAD_BYTES + frame.SEAL_BODY.size
"""Length of a whole SEAL frame."""


class IndexImage(msgspec.Struct, frozen=True):
    """Content of an index file; the columns are never changed after this was made."""

    head: FileHead
    end: int
    covers: int
    floor: int
    seqs: array[int] | None
    offsets: Places
    sizes: array[int]
    sids: array[int]
    dead: bytes
    timed: array[int]
    tombs: array[int]
    first_ts: int
    last_ts: int
    names: list[bytes]
    sealed: bool

    @property
    def name(self) -> str:
        return index_name(self.head.base, self.head.generation)

    def encode(self) -> bytes:
        """Return the file's bytes; nothing if a subject contains the separator byte."""
        sids, seqs, base = widened(self.sids), self.seqs, self.head.base
        if self.dead:
            sids = array("I", [GONE if gone else sid for sid, gone in zip(sids, self.dead, strict=True)])
        tally = tally_of(sids, seqs if seqs is not None else range(base, base + len(sids)))
        names = b"\n".join([self.names[sid] for sid in tally.keys])
        if tally.keys and names.count(b"\n") != len(tally.keys) - 1:
            return b""
        flags = (SPARSE if seqs is not None else 0) | (DEAD if self.dead else 0) | (SEALED if self.sealed else 0)
        numbers = (len(sids), len(tally.keys), len(self.tombs), len(self.timed), flags)
        span = (self.end, self.covers, self.floor, self.first_ts, self.last_ts)
        whose = (self.head.identity, self.head.salt, self.head.stream_id, base, self.head.generation)
        head = HEAD.pack(MAGIC, 0, *whose, *span, *numbers)
        parts = [head[CRC_FROM:], widened(self.offsets).tobytes(), widened(self.sizes).tobytes(), sids.tobytes()]
        parts += [tally.keys.tobytes(), tally.counts.tobytes(), tally.lasts.tobytes()]
        parts += [seqs.tobytes() if seqs is not None else b"", self.timed.tobytes(), self.tombs.tobytes(), self.dead]
        body = b"".join([*parts, names])
        return MAGIC + crc32(body).to_bytes(4, "little") + body


def image_of(segment: Segment, end: int, covers: int, names: list[bytes], sealed: bool) -> IndexImage:
    """Return the content of `segment`'s index file; every removal up to now must be on disk when it is written."""
    file = segment.body
    assert file is not None
    dead = b""
    if segment.dead is not None or segment.head:
        dead = b"\1" * segment.head + bytes(segment.dead or bytes(len(segment.sids)))[segment.head :]
    columns = (segment.seqs, segment.offsets, segment.sizes, segment.sids, dead, segment.timed, file.tombs)
    times = (segment.first_ts, segment.last_ts)
    return IndexImage(file.head, end, covers, file.floor, *columns, *times, names, sealed)


def write_index(disk: Disk, folder: str, image: IndexImage) -> bool:
    """Write an index file and return whether it exists; after a disk failure it is just missing."""
    data, path = image.encode(), f"{folder}/{image.name}"
    with suppress(OSError):
        if disk.exists(path):
            disk.unlink(path)
        if data:
            file = disk.open(path, create=True)
            try:
                if file.pwrite(data, 0) == len(data):
                    return True
            finally:
                file.close()
    with suppress(OSError):  # a part of one names subjects, and no erasure would look for it
        if disk.exists(path):
            disk.unlink(path)
    return False


def load_index(disk: Disk, folder: str, base: int, generation: int, table: SubjectTable) -> Scan | None:
    """Return the content of the index file, its subjects as numbers of `table`; None if it cannot be trusted.

    The head, the length and the seal of the segment are looked at; its messages are checked when they are read.
    """
    try:
        index = disk.open_read(f"{folder}/{index_name(base, generation)}")
    except OSError:
        return None
    try:
        data = index.pread(index.size(), 0)
    except OSError:
        return None
    finally:
        index.close()
    if not _is_whole(data):
        return None
    segment = open_segment(disk, f"{folder}/{segment_name(base, generation)}")
    try:
        return _parse(data, segment, base, generation, table)
    finally:
        segment.close()


def _is_whole(data: bytes) -> bool:
    if len(data) < HEAD.size or data[:8] not in (MAGIC, UNMARKED_MAGIC):
        return False
    return crc32(memoryview(data)[CRC_FROM:]) == int.from_bytes(data[8:12], "little")


def _fields(data: bytes) -> tuple[int, tuple[Any, ...]]:
    """Return the length of an index file's head, and its fields from the identity on."""
    if data[:8] == MAGIC:
        return HEAD.size, HEAD.unpack_from(data)[2:]
    return UNMARKED_HEAD.size, (frame.NO_IDENTITY, *UNMARKED_HEAD.unpack_from(data)[2:])


def _whose(head: FileHead) -> tuple[bytes, int, int, int, int]:
    return head.identity, head.salt, head.stream_id, head.base, head.generation


def is_foreign_index(data: bytes, head: FileHead) -> bool:
    """Return whether this is an index file as it was written, and of another segment than the one with `head`."""
    return _is_whole(data) and _fields(data)[1][:5] != _whose(head)


def _parse(data: bytes, segment: Readable, base: int, generation: int, table: SubjectTable) -> Scan | None:
    head = frame.parse_file_head(segment.pread(frame.FILE_HEAD_BYTES, 0))
    if head is None or (head.base, head.generation) != (base, generation) or not _speaks_of(segment, head, data):
        return None
    start, (*_, end, covers, floor, first_ts, last_ts, count, subjects, tombs, timed, flags) = _fields(data)
    columns = _Columns(data, start)
    scan = Scan(head, end, end, indexed=True, first_ts=first_ts, last_ts=last_ts, durable_seq=covers, last_seq=covers)
    scan.headed = True
    scan.packed = isinstance(segment, PackedFile)
    scan.offsets, scan.sizes, scan.sids = (columns.take("I", count) for _ in range(3))
    scan.tally = Tally(columns.take("I", subjects), columns.take("I", subjects), columns.take("Q", subjects))
    scan.seqs = columns.take("Q", count) if flags & SPARSE else range(base, base + count)
    scan.timed = columns.take("Q", timed)
    dead_seqs = columns.take("Q", tombs)
    scan.dead = columns.raw(count) if flags & DEAD else None
    names = columns.rest().split(b"\n") if subjects else []
    _renumber(scan, table.intern_all(names))
    scan.records = [
        frame.FrameRecord(frame.DELETES, covers, dead_seqs.tobytes(), 0, end, count),
        frame.FrameRecord(frame.FLOOR, covers, frame.FLOOR_BODY.pack(floor, covers), 0, end, count),
    ]
    if flags & SEALED:
        seal = frame.SEAL_BODY.pack(covers, end - SEAL_BYTES)
        scan.records.append(frame.FrameRecord(frame.SEAL, covers, seal, end - SEAL_BYTES, end, count))
        scan.sids = narrowed(scan.sids)
        scan.offsets, scan.sizes = packed(scan.offsets, scan.sizes, frame.FRAME_OVER_SIZE)
    return scan


def _speaks_of(segment: Readable, head: FileHead, data: bytes) -> bool:
    """Return whether an index file is of exactly this segment, and its seal, if it should have one, is valid."""
    _, (*whose, end, covers, _, _, _, _, _, _, _, flags) = _fields(data)
    if tuple(whose) != _whose(head) or segment.size() != end:
        return False
    if not flags & SEALED:
        return True
    seal = frame.SEAL_BODY.pack(covers, end - SEAL_BYTES)
    found = segment.pread(SEAL_BYTES, end - SEAL_BYTES)
    if len(found) < SEAL_BYTES:
        return False
    synced = frame.HEAD.unpack_from(found)[8]
    return found == frame.encode(frame.SEAL, covers, 0, synced, head.salt, seal)


def _renumber(scan: Scan, sids: array[int]) -> None:
    """Put the numbers `sids` of a table in the place of those that the file's writer had."""
    assert scan.tally is not None
    keys, counts, lasts = scan.tally
    if keys == sids:
        return
    moves = dict(zip(keys, sids, strict=True))
    moves[GONE] = GONE
    scan.sids = array("I", map(moves.__getitem__, scan.sids))
    order = sorted(range(len(sids)), key=sids.__getitem__)
    scan.tally = Tally(*(array(c.typecode, map(c.__getitem__, order)) for c in (sids, counts, lasts)))


class _Columns:
    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._at = start

    def raw(self, size: int) -> bytearray:
        self._at += size
        return bytearray(self._data[self._at - size : self._at])

    def take(self, typecode: str, count: int) -> array[int]:
        column = array(typecode)
        column.frombytes(memoryview(self._data)[self._at : self._at + count * column.itemsize])
        self._at += count * column.itemsize
        return column

    def rest(self) -> bytes:
        return self._data[self._at :]
