"""What can be read of a refused stream, made into a stream again; what cannot be read is given up, on somebody's word.

Every file of the folder that is the stream's is read from end to end, past damage. Messages whose frames validate and
that no record removes go into a new stream of the same name under their sequences and times; the journal is taken as
far as it is whole. The old folder is moved aside as it is, so that nothing is lost by the attempt. A crash leaves the
old folder refused, or both: the new stream served, and the old one refused under its folder's name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from natsctl.store import frame, fsck
from natsctl.store.disk import Disk
from natsctl.store.envelope import inherited_identity
from natsctl.store.fsck import StreamCheck, WitnessEntry
from natsctl.store.journal import Entry, entry_of
from natsctl.store.message import StoredMessage
from natsctl.store.packed import open_segment

REMAINS = "refused"
"""Folder beside streams/ for what was salvaged."""


class _Source(msgspec.Struct):
    """One segment file that is the stream's."""

    name: str
    data: bytes
    scan: frame.Scan


class Salvage(msgspec.Struct):
    """Result of the salvage of one refused folder."""

    check: StreamCheck
    meta: bytes | None
    """The owner's metadata, None where it cannot be read."""
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
        """Yield the messages that are there and not removed, in order, and whether each has a time of its own."""
        last_seq = 0
        for _, _, name in self._names:
            source = _read(disk, self.check, name, max_frame_bytes)
            if source is None:
                continue
            scan = source.scan
            for seq, offset in zip(scan.seqs, scan.offsets, strict=True):
                if seq > last_seq and seq >= self._floor and seq not in self._removed:
                    last_seq = seq
                    at = bisect_left(scan.timed, seq)
                    timed = at < len(scan.timed) and scan.timed[at] == seq
                    yield frame.parse_message(source.data, offset), timed


def read_remains(disk: Disk, folder: str, entry: WitnessEntry | None, max_frame_bytes: int, store: bytes) -> Salvage:
    """Return what can be read of a refused stream's folder; nothing is written. Raises OSError."""
    check = fsck.check_stream(disk, folder, entry, max_frame_bytes, False, False, store)
    envelope = check.envelope
    if envelope is not None and (envelope.stream_id != check.stream_id or check.identity != _own(check, store)):
        check.envelope = envelope = None  # another stream's
    found = Salvage(check, envelope.meta if envelope is not None else None, entry.synced_seq if entry else 0)
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
    assert check.envelope is not None
    own = check.envelope.identity
    return own if own != frame.NO_IDENTITY else inherited_identity(store, check.stream_id)


def _read(disk: Disk, check: StreamCheck, name: str, max_frame_bytes: int) -> _Source | None:
    """Return a segment's bytes and what is valid in them; None for one that is not the stream's."""
    file = open_segment(disk, f"{check.folder}/{name}")
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    scan = frame.scan(data, max_frame_bytes, check.table)
    if scan.head is None or fsck.stranger_reason(check, scan.head, frame.SEGMENT_FILE):
        return None
    return _Source(name, data, scan)


def _take_records(found: Salvage, scan: frame.Scan) -> None:
    """Note what the records of one segment remove."""
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
    """Return the journal's records up to the first that is missing."""
    if not journals:
        notes.append(f"{check.folder} holds no journal: there are no consumers, or they are lost")
        return []
    name = journals[-1][1]
    scan = fsck.scan_file(disk, check, name, max_frame_bytes)
    if scan.head is None or len(scan.seqs) or fsck.stranger_reason(check, scan.head, frame.JOURNAL_FILE):
        notes.append(f"{check.folder}/{name} is not this stream's, or its header is lost: its consumers are lost")
        return []
    entries: list[Entry] = []
    for number, record in enumerate(scan.records, 1):
        if record.kind != frame.JOURNAL or record.seq != number:
            notes.append(f"{check.folder}/{name}: records from {number} on are lost: consumers are as they were before")
            break
        entries.append(entry_of(record))
    return entries
