"""Recovery of one checked stream: repairs first, each safe to repeat after a crash, then the index.

After an unclean stop, bytes that are not proven to be synced may exist in the page cache only, or in pages that a
failed sync marked clean. They are written again at the same offsets and synced before anything reads them. The store
syncs the names in every folder again too, for all streams together.

A refused stream is salvaged only at an operator's request: its readable part becomes a stream again, and the rest is
given up. Every file of the stream is read from end to end, past damage. Messages with valid frames that no
record removes go into a new stream of the same name, with their sequences and times; the journal is taken up to its
first gap. The old folder is moved aside unchanged, so that the attempt loses nothing. A crash leaves the old folder
refused, or both: the new stream served, and the old one refused under its folder's name.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import compress

import msgspec

from natsctl.store import bulk, frame, fsck
from natsctl.store.columns import total, widened
from natsctl.store.disk import Disk
from natsctl.store.file_commit import NO_SPACE, replace_file, write_all
from natsctl.store.fsck import FoundSegment, HighWaterEntry, StreamCheck
from natsctl.store.index import StreamIndex
from natsctl.store.journal import Entry, entry_of, inherited_identity
from natsctl.store.message import StoredMessage
from natsctl.store.packed import open_segment, overwritten
from natsctl.store.segment import Segment
from natsctl.store.segment_file import SegmentFile
from natsctl.store.subject_table import tally_of

BULK_REMOVALS = 100_000
"""Min number of recorded removals to apply them by whole columns."""
TORN_COPY_BYTES = 1024 * 1024
"""Maximum size of a cut tail that is kept in a .torn file."""


def repair(disk: Disk, check: StreamCheck, salt: int) -> list[str]:
    """Make the repairs that `check` found necessary and return notes on them; the stream must not be damaged."""
    notes: list[str] = []
    folder = check.folder
    for name, length in check.cuts:
        notes += _cut(disk, f"{folder}/{name}", length)
    if check.segments[-1].scan.zeros:
        _leave_out_zeros(disk, f"{folder}/{check.segments[-1].name}", check.segments[-1].scan.size)
    if check.headless_base:
        _recreate_segment(disk, check, salt)
    for name, offset, data in check.erasures:
        _overwrite(disk, f"{folder}/{name}", offset, data)
        notes.append(f"{folder}/{name}: an erasure at offset {offset} was finished")
    if not check.clean or not (check.stopped_cleanly or check.fully_synced):
        last = check.segments[-1]
        _rewrite_tail(disk, f"{folder}/{last.name}", check.rewrite_from)
        if check.journal is not None:
            _rewrite_tail(disk, f"{folder}/{check.journal.name}", check.journal_rewrite_from)
    for name in check.leftovers:
        if disk.exists(f"{folder}/{name}"):  # an interrupted repair left it, and this one has used it already
            disk.unlink(f"{folder}/{name}")
            if check.stopped_cleanly and not name.endswith(".tmp"):
                notes.append(f"{folder}/{name} was superseded and is removed: it was put there after the clean stop")
    if check.leftovers:
        disk.fsync_dir(folder)
    return notes


def _overwrite(disk: Disk, path: str, offset: int, data: bytes) -> None:
    """Write `data` over other bytes of a file, or replace the file if it is encrypted."""
    file = disk.open(path)
    try:
        if disk.encrypted:
            replace_file(disk, path, overwritten(file.pread(file.size(), 0), [(offset, data)]))
            return
        write_all(file, data, offset)
        file.sync()
    finally:
        file.close()


def _cut(disk: Disk, path: str, length: int) -> list[str]:
    """Copy the torn tail to a .torn file, then shorten the file to `length` bytes."""
    notes: list[str] = []
    file = disk.open(path)
    try:
        torn = file.pread(TORN_COPY_BYTES, length)
        try:
            replace_file(disk, f"{path}.{length}.torn", torn)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            notes.append(f"{path}: no room to keep a copy of the torn tail")
        file.truncate(length)
        file.sync()
    finally:
        file.close()
    return notes


def _leave_out_zeros(disk: Disk, path: str, length: int) -> None:
    """Cut off the zeros ahead of later messages; a file that was encrypted since then cannot overwrite them."""
    file = disk.open(path)
    try:
        file.truncate(length)
    finally:
        file.close()


def _recreate_segment(disk: Disk, check: StreamCheck, salt: int) -> None:
    """Write a header into the last segment, to replace an unsynced one."""
    found = check.segments[-1]
    path = f"{check.folder}/{found.name}"
    assert check.meta_record is not None
    numbers = (check.meta_record.stream_id, check.headless_base, check.floor, found.generation)
    head = frame.FileHead(salt, *numbers, check.identity, frame.SEGMENT_FILE)
    _cut(disk, path, 0)
    file = disk.open(path)
    try:
        write_all(file, head.encode(), 0)
        file.sync()
    finally:
        file.close()
    found.scan.head, found.scan.end = head, frame.FILE_HEAD_BYTES
    check.segments[-1] = FoundSegment(found.name, found.generation, found.scan)


def _rewrite_tail(disk: Disk, path: str, start: int) -> None:
    """Write the bytes from `start` on once more, and sync them."""
    file = disk.open(path)
    try:
        data = file.pread(file.size() - start, start)
        if data:
            write_all(file, data, start)
        file.sync()
    finally:
        file.close()


def build_index(check: StreamCheck) -> StreamIndex:
    """Return the index of a repaired stream; its subject table is the check's."""
    first = int(check.segments[0].name[:20])
    index = StreamIndex(first)
    index.table = check.table
    index.segments, index.bases = [], []
    for found in check.segments:
        _add_segment(index, check.folder, found)
    index.last_seq = check.last_seq
    index.last_ts_ns = next((segment.last_ts for segment in reversed(index.segments) if segment.last_ts), 0)
    index.first_seq = first
    index.advance(first)
    _apply_removals(index, check)
    if check.floor > index.first_seq:
        index.drop_below(check.floor)
    index.tidy_subjects()
    return index


def segment_of(folder: str, found: FoundSegment) -> Segment:
    """Return the segment, with its file, that a scan found; its messages are not counted yet."""
    scan = found.scan
    assert scan.head is not None
    segment = Segment(int(found.name[:20]))
    count = len(scan.seqs)
    if count and (scan.seqs[0] != segment.base or scan.seqs[-1] != segment.base + count - 1):
        assert isinstance(scan.seqs, array)
        segment.seqs = scan.seqs
    segment.offsets, segment.sizes, segment.sids = scan.offsets, scan.sizes, scan.sids
    segment.timed, segment.dead = scan.timed, scan.dead
    segment.first_ts, segment.last_ts = scan.first_ts, scan.last_ts
    file = segment.body = SegmentFile(folder, scan.head)
    file.created, file.size, file.settled, file.indexed = True, scan.end, scan.end, scan.indexed
    file.packed = scan.packed
    file.dead_bytes = scan.erased_bytes
    file.bare_end = 0 if scan.headed else scan.end
    segment.live = count
    return segment


def _add_segment(index: StreamIndex, folder: str, found: FoundSegment) -> None:
    scan, segment = found.scan, segment_of(folder, found)
    file, count = segment.body, segment.live
    assert file is not None
    floors = [frame.FLOOR_BODY.unpack(record.payload)[0] for record in scan.records if record.kind == frame.FLOOR]
    file.floor = max((file.floor, *floors))
    tally = scan.tally if scan.tally is not None else tally_of(scan.sids, scan.seqs)
    index.table.add_tally(tally, segment.base)
    accounted = total(scan.sizes)
    if scan.dead is not None:
        segment.live = count - scan.dead.count(1)
        dead_sizes = sum(compress(widened(scan.sizes), scan.dead))
        file.dead_bytes = dead_sizes + (count - segment.live) * frame.FRAME_OVER_SIZE
        accounted -= dead_sizes
    index.messages += segment.live
    index.bytes += accounted
    if any(record.kind == frame.SEAL for record in scan.records[-1:]):
        before = index.segments[-1].keys if index.segments else None
        segment.keys, segment.counts = before if before == tally.keys else tally.keys, tally.counts
        segment.pack()
    index.segments.append(segment)
    index.bases.append(segment.base)


def _apply_removals(index: StreamIndex, check: StreamCheck) -> None:
    """Apply the removals recorded in all segments to the index; each segment file keeps its own records."""
    removed = array("Q")
    for found, segment in zip(check.segments, index.segments, strict=True):
        assert segment.body is not None
        for record in found.scan.records:
            if record.kind == frame.DELETES:
                segment.body.tombs.extend(frame.deletes_of(record))
            elif record.kind == frame.ERASE:
                segment.body.tombs.append(frame.ERASE_BODY.unpack(record.payload)[0])
        removed.extend(segment.body.tombs)
    if len(removed) >= BULK_REMOVALS:
        bulk.remove_seqs(index, removed)
        return
    for seq in removed:
        place = index.locate(seq)
        if place is not None and place[0].body is not None:
            place[0].body.dead_bytes += place[0].sizes[place[1]] + frame.FRAME_OVER_SIZE
            index.remove(*place)


REFUSED_FOLDER = "refused"
"""Folder next to streams/ for the old folders of salvaged streams."""


class _Source(msgspec.Struct):
    name: str
    data: bytes
    scan: frame.Scan


class Salvage(msgspec.Struct):
    check: StreamCheck
    meta: bytes | None
    """The owner's metadata, or None if unreadable."""
    last_seq: int
    """The highest sequence that is known to have been given out."""
    notes: list[str] = msgspec.field(default_factory=list)
    remains: str = ""
    """New place of the old folder."""
    records: list[Entry] = msgspec.field(default_factory=list)
    _names: list[tuple[int, int, str]] = msgspec.field(default_factory=list)
    _floor: int = 0
    _removed: set[int] = msgspec.field(default_factory=set)

    def messages(self, disk: Disk, max_frame_bytes: int) -> Iterator[tuple[StoredMessage, bool]]:
        """Yield the readable messages that are not removed, in order, and whether each has a TTL or a schedule."""
        last_seq = 0
        for _, _, name in self._names:
            source = _read(disk, self.check, name, max_frame_bytes)
            if source is None:
                continue
            scan = source.scan
            for seq, offset in zip(scan.seqs, scan.offsets, strict=True):
                if seq > last_seq and seq >= self._floor and seq not in self._removed:
                    last_seq = seq
                    position = bisect_left(scan.timed, seq)
                    timed = position < len(scan.timed) and scan.timed[position] == seq
                    yield frame.parse_message(source.data, offset), timed


def read_refused(disk: Disk, folder: str, entry: HighWaterEntry | None, max_frame_bytes: int, store: bytes) -> Salvage:
    """Return the readable content of a refused stream's folder; nothing is written. Raises OSError."""
    check = fsck.check_stream(disk, folder, entry, max_frame_bytes, False, False, store)
    meta_record = check.meta_record
    if meta_record is not None and (meta_record.stream_id != check.stream_id or check.identity != _own(check, store)):
        check.meta_record = meta_record = None  # another stream's
    found = Salvage(check, meta_record.meta if meta_record is not None else None, entry.synced_seq if entry else 0)
    segments, journals = fsck.sort_names(disk.listdir(folder), StreamCheck(folder))
    found._names = segments
    for _, _, name in segments:
        source = _read(disk, check, name, max_frame_bytes)
        if source is None:
            found.notes.append(f"{folder}/{name} is not this stream's, or its header is lost: nothing of it is taken")
            continue
        _take_records(found, source.scan)
        found.last_seq = max(found.last_seq, source.scan.last_seq)
        for gap in source.scan.gaps:
            found.notes.append(f"{folder}/{name}: bytes {gap.start} to {gap.end} after message {gap.last_seq} are lost")
    found.records = _records(disk, check, journals, max_frame_bytes, found.notes)
    return found


def _own(check: StreamCheck, store: bytes) -> bytes:
    """Return the identity that the stream's meta file gives it."""
    assert check.meta_record is not None
    own = check.meta_record.identity
    return own if own != frame.NO_IDENTITY else inherited_identity(store, check.stream_id)


def _read(disk: Disk, check: StreamCheck, name: str, max_frame_bytes: int) -> _Source | None:
    """Return a segment's bytes and the scan of them; None for a segment that is not the stream's."""
    file = open_segment(disk, f"{check.folder}/{name}")
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    scan = frame.scan(data, max_frame_bytes, check.table)
    if scan.head is None or fsck.foreign_reason(check, scan.head, frame.SEGMENT_FILE):
        return None
    return _Source(name, data, scan)


def _take_records(found: Salvage, scan: frame.Scan) -> None:
    assert scan.head is not None
    found._floor = max(found._floor, scan.head.floor)
    for record in scan.records:
        if record.kind == frame.DELETES:
            found._removed.update(frame.deletes_of(record))
        elif record.kind == frame.ERASE:
            found._removed.add(frame.ERASE_BODY.unpack(record.payload)[0])
        elif record.kind == frame.FLOOR:
            first, last = frame.FLOOR_BODY.unpack(record.payload)
            found._floor = max(found._floor, first)
            found.last_seq = max(found.last_seq, last)


def _records(
    disk: Disk, check: StreamCheck, journals: list[tuple[int, str]], max_frame_bytes: int, notes: list[str]
) -> list[Entry]:
    if not journals:
        notes.append(f"{check.folder} holds no journal: there are no consumers, or they are lost")
        return []
    name = journals[-1][1]
    scan = fsck.scan_file(disk, check, name, max_frame_bytes)
    if scan.head is None or len(scan.seqs) or fsck.foreign_reason(check, scan.head, frame.JOURNAL_FILE):
        notes.append(f"{check.folder}/{name} is not this stream's, or its header is lost: its consumers are lost")
        return []
    entries: list[Entry] = []
    for number, record in enumerate(scan.records, 1):
        if record.kind != frame.JOURNAL or record.seq != number:
            notes.append(f"{check.folder}/{name}: records from {number} on are lost: consumers are as they were before")
            break
        entries.append(entry_of(record))
    return entries
