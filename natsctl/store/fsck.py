"""The read-only check of one stream's folder: what recovery will do, and why it would refuse. Nothing is written.

The rules (docs/adr/0003): a tail that was never synced may be torn and will be cut; anything missing or altered below
the highest sequence that some surviving frame, or the high-water file, says was synced is damage, and the stream is
refused. Every file is checked by the identity in its header: a file that another stream, another store or an earlier
time left here is refused like damage, or, if the stream does not need it, reported and kept. A frame half overwritten
by an erasure is explained by its ERASE record further on, and finished.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple
from zlib import crc32

import msgspec

from natsctl.store import frame
from natsctl.store.disk import Disk
from natsctl.store.frame import Scan
from natsctl.store.index_file import is_foreign_index, load_index
from natsctl.store.journal import MetaRecord, inherited_identity, parse_meta_record
from natsctl.store.packed import PackedFile, open_segment
from natsctl.store.segment_file import index_name
from natsctl.store.subject_table import SubjectTable

_SEGMENT = r"(\d{20})-(\d{1,9})\.seg"
_INDEX = r"(\d{20})-(\d{1,9})\.idx"
_JOURNAL = r"journal-(\d{1,9})\.log"
_NEVER_IN_SEGMENTS = (frame.JOURNAL, frame.HIGH_WATER)


class SegmentMark(NamedTuple):
    """A segment that was synced; `covers` is the last sequence that belongs to it, 0 for the last segment."""

    base: int
    covers: int
    generation: int
    salt: int


EXACT, FOREIGN, PARTIAL = 1, 2, 4
"""Flags of an entry: the folder was exactly so at a clean stop; it has no place in this store; some of its segments may
not be named."""


class HighWaterEntry(NamedTuple):
    """High-water mark of one stream: its synced state; without an identity it comes from an earlier version."""

    stream_id: int
    synced_seq: int = 0
    base: int = 0
    generation: int = 0
    end: int = 0
    journal_generation: int = 0
    journal_end: int = 0
    journal_salt: int = 0
    meta_version: int = 0
    meta_crc: int = 0
    flags: int = 0
    identity: bytes = frame.NO_IDENTITY
    key: str = ""
    segments: tuple[SegmentMark, ...] = ()

    @property
    def is_marked(self) -> bool:
        return self.identity != frame.NO_IDENTITY

    @property
    def is_exact(self) -> bool:
        """Return whether nothing follows the entry's mark, given that the store was closed."""
        return bool(self.flags & EXACT)


class FoundSegment(NamedTuple):
    name: str
    generation: int
    scan: Scan


class StreamCheck(msgspec.Struct):
    """Findings in one stream's folder: its content, the repairs it needs, and damage that forbids opening it."""

    folder: str
    table: SubjectTable = msgspec.field(default_factory=SubjectTable)
    meta_record: MetaRecord | None = None
    segments: list[FoundSegment] = msgspec.field(default_factory=list)
    journal: FoundSegment | None = None
    damage: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    cuts: list[tuple[str, int]] = msgspec.field(default_factory=list)
    """(file name, length to keep)."""
    headless_base: int = 0
    """Base of the last segment if its header never reached the disk, else 0; the segment is recreated."""
    erasures: list[tuple[str, int, bytes]] = msgspec.field(default_factory=list)
    """(file name, offset, bytes) that finish an erasure that had begun."""
    unerased: list[tuple[str, int, bytes]] = msgspec.field(default_factory=list)
    """The same for erasures that were not synced: the journal may lack the effects of those messages."""
    below_floor: list[FoundSegment] = msgspec.field(default_factory=list)
    """Segments below the floor that still exist; here too the journal may lack effects."""
    indexes: set[str] = msgspec.field(default_factory=set)
    """Names of the index files, trustworthy or not."""
    leftovers: list[str] = msgspec.field(default_factory=list)
    foreign: dict[str, str] = msgspec.field(default_factory=dict)
    """Names of segments that are not this stream's, with the reason."""
    last_seq: int = 0
    proven_seq: int = 0
    floor: int = 0
    rewrite_from: int = 0
    """Offset in the last segment; nothing after it is proven to be synced."""
    journal_rewrite_from: int = 0
    is_foreign: bool = False
    """Whether the folder belongs to no stream of the store."""
    stopped_cleanly: bool = False
    """Whether the last run closed this stream and nothing has to be made durable again."""
    identity: bytes = frame.NO_IDENTITY
    """Identity required in the header of each file, if it has any; empty if unknown."""
    meta_crc: int = 0
    fully_synced: bool = False
    """Whether the high-water file proves that all of the last segment and of the journal was synced."""

    @property
    def stream_id(self) -> int:
        return int(self.folder.rpartition("/s")[2])

    @property
    def clean(self) -> bool:
        """Return whether nothing is damaged and nothing waits to be repaired."""
        return not (self.damage or self.cuts or self.erasures or self.unerased or self.headless_base)


def check_stream(
    disk: Disk,
    folder: str,
    high_water: HighWaterEntry | None,
    max_frame_bytes: int,
    clean_stop: bool = False,
    indexes: bool = True,
    store: bytes = frame.NO_IDENTITY,
) -> StreamCheck:
    """Return the state of the stream in `folder` of the store with the identity `store`.

    With `indexes` the messages of a sealed segment are not read if its index file can be trusted; after a
    `clean_stop` this holds for the last segment too. Without, every byte is.
    """
    check = StreamCheck(folder)
    check.stopped_cleanly = clean_stop = clean_stop and high_water is not None and high_water.is_exact
    names = disk.listdir(folder)
    segments, journals = sort_names(names, check)
    _judge_meta(disk, check, names, high_water, store)
    covered = 0
    for index, (base, generation, name) in enumerate(segments):
        index_path, scan = index_name(base, generation), None
        if superseded(base, covered):
            check.leftovers += [name, *check.indexes.intersection([index_path])]
            continue
        if indexes and (index < len(segments) - 1 or clean_stop) and index_path in check.indexes:
            scan = load_index(disk, folder, base, generation, check.table)
            if scan is None:
                _note_foreign_index(disk, check, name, index_path)
        found = FoundSegment(name, generation, scan or scan_file(disk, check, name, max_frame_bytes))
        if reason := _foreign_segment(check, found):  # nothing that it says of floors, seals and erasures counts
            check.foreign[name] = reason
            continue
        check.segments.append(found)
        covered = _seal_of(found.scan) or 0
    _scan_where_erased(disk, check, max_frame_bytes)
    if indexes:
        check.leftovers += _unbelieved(check)
    if journals:
        generation, name = journals[-1]
        check.journal = FoundSegment(name, generation, scan_file(disk, check, name, max_frame_bytes))
    if not check.segments:
        check.damage += [f"{folder}/{name} {reason}" for name, reason in check.foreign.items()]
        check.damage.append(f"{folder} holds no segment")
        return check
    _explain_erasures(check)
    _judge_last(disk, check, high_water)
    _find_floor(check)
    _judge_foreign(check)
    _judge_sealed(check)
    _judge_marks(check, high_water)
    if check.journal is not None:
        _judge_journal(check, check.journal, high_water)
    elif high_water is not None and high_water.journal_end:
        check.damage.append(f"{folder}: the journal is missing")
    _leave_foreign_alone(disk, check)
    check.fully_synced = high_water is not None and _covers_all(high_water, check)
    return check


def _covers_all(high_water: HighWaterEntry, check: StreamCheck) -> bool:
    """Return whether nothing was written after the high-water mark."""
    last, journal = check.segments[-1], check.journal
    if (high_water.base, high_water.generation, high_water.end) != (
        int(last.name[:20]),
        last.generation,
        last.scan.size,
    ):
        return False
    if journal is None:
        return True
    return (high_water.journal_generation, high_water.journal_end) == (journal.generation, journal.scan.size)


def _read(disk: Disk, path: str) -> bytes:
    file = disk.open_read(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def _judge_meta(
    disk: Disk, check: StreamCheck, names: list[str], high_water: HighWaterEntry | None, store: bytes
) -> None:
    path, marked = f"{check.folder}/meta", high_water is not None and high_water.is_marked
    if high_water is not None and marked:
        check.identity = high_water.identity
    if "meta" not in names:
        check.damage.append(f"{path} is missing")
        return
    data = _read(disk, path)
    check.meta_crc, check.meta_record = crc32(data), parse_meta_record(data)
    if check.meta_record is None:
        check.damage.append(f"{path} is damaged")
        return
    meta_record, own = check.meta_record, check.meta_record.identity
    if own == frame.NO_IDENTITY and store != frame.NO_IDENTITY:
        own = inherited_identity(store, check.stream_id)
    elif own != frame.NO_IDENTITY and store not in (frame.NO_IDENTITY, meta_record.store):
        check.damage.append(f"{path} belongs to another store ({meta_record.store.hex()})")
    if meta_record.stream_id != check.stream_id:
        check.damage.append(f"{path} belongs to stream {meta_record.stream_id}")
    if high_water is None or not marked:
        check.identity = own
    elif own != high_water.identity:
        check.damage.append(f"{path} belongs to another stream than the one that stood here")
    elif meta_record.version < high_water.meta_version:
        check.damage.append(
            f"{path} is older than its synced state: version {meta_record.version}, not {high_water.meta_version}"
        )
    elif meta_record.version > high_water.meta_version and check.stopped_cleanly:
        check.damage.append(f"{path} is newer than the clean stop of the store")
    elif meta_record.version == high_water.meta_version and check.meta_crc != high_water.meta_crc:
        check.damage.append(f"{path} is not the file that was synced")


def foreign_reason(check: StreamCheck, head: frame.FileHead, role: int) -> str:
    """Return the reason that a file with this header is not one of the stream's, "" if it may be."""
    kind = "segment" if role == frame.SEGMENT_FILE else "journal"
    if head.stream_id != check.stream_id:
        return f"belongs to stream {head.stream_id}"
    if head.is_marked:
        if check.identity not in (frame.NO_IDENTITY, head.identity):
            return "belongs to another stream or another store"
        return "" if head.role == role else f"is no {kind}"
    meta_record = check.meta_record
    if meta_record is None or meta_record.identity == frame.NO_IDENTITY:
        return ""
    place = head.base if role == frame.SEGMENT_FILE else head.generation
    if place > meta_record.unmarked[role != frame.SEGMENT_FILE]:
        return f"has no identity, unlike every {kind} of this stream that is as new"
    return ""


def _foreign_segment(check: StreamCheck, found: FoundSegment) -> str:
    """Return why a file is not the segment of its name, or ""."""
    head = found.scan.head
    if head is None:
        return ""
    if reason := foreign_reason(check, head, frame.SEGMENT_FILE):
        return reason
    if (head.base, head.generation) != (int(found.name[:20]), found.generation):
        return "is a copy of another segment"
    return "is no segment" if any(record.kind in _NEVER_IN_SEGMENTS for record in found.scan.records) else ""


def _judge_foreign(check: StreamCheck) -> None:
    """Refuse the stream for a segment that is not its own, unless it lies where the stream has nothing any more."""
    first = int(check.segments[0].name[:20])
    for name, reason in check.foreign.items():
        if int(name[:20]) < first <= check.floor:
            check.notes.append(f"{check.folder}/{name} {reason}: it is not used and not changed")
        else:
            check.damage.append(f"{check.folder}/{name} {reason}")


def _leave_foreign_alone(disk: Disk, check: StreamCheck) -> None:
    """Keep files that are superseded by name but belong elsewhere from being read or removed."""
    for name in list(check.leftovers):
        segment, journal = re.fullmatch(_SEGMENT, name), re.fullmatch(_JOURNAL, name)
        if segment is None and journal is None:
            continue
        head = _head_of(disk, f"{check.folder}/{name}")
        if head is None:
            continue
        reason = foreign_reason(check, head, frame.SEGMENT_FILE if segment is not None else frame.JOURNAL_FILE)
        if not reason and segment is not None and (head.base, head.generation) != (int(segment[1]), int(segment[2])):
            reason = "is a copy of another segment"
        if not reason and journal is not None and head.generation != int(journal[1]):
            reason = "is a copy of another journal"
        if reason:
            check.notes.append(f"{check.folder}/{name} {reason}: it is not used and not changed")
            check.leftovers = [left for left in check.leftovers if left != name]


def _head_of(disk: Disk, path: str) -> frame.FileHead | None:
    file = open_segment(disk, path)
    try:
        return frame.parse_file_head(file.pread(frame.FILE_HEAD_BYTES, 0))
    finally:
        file.close()


def _note_foreign_index(disk: Disk, check: StreamCheck, segment: str, name: str) -> None:
    """Note that an index file is whole and belongs to another segment, so that it is not used."""
    head = _head_of(disk, f"{check.folder}/{segment}")
    if head is not None and is_foreign_index(_read(disk, f"{check.folder}/{name}"), head):
        check.notes.append(f"{check.folder}/{name} belongs to another segment: it is not used")


def scan_file(disk: Disk, check: StreamCheck, name: str, max_frame_bytes: int) -> Scan:
    file = open_segment(disk, f"{check.folder}/{name}")
    try:
        scan = frame.scan(file.pread(file.size(), 0), max_frame_bytes, check.table)
    finally:
        file.close()
    scan.packed = isinstance(file, PackedFile)
    return scan


def _unbelieved(check: StreamCheck) -> list[str]:
    """Return the index files that were not used: they name subjects, and later nothing would refer to them."""
    unused = {
        index_name(int(segment.name[:20]), segment.generation) for segment in check.segments if not segment.scan.indexed
    }
    return sorted(check.indexes & unused)


def superseded(base: int, covered_seq: int) -> bool:
    """Return whether a segment's predecessor was rewritten to cover it too."""
    return base <= covered_seq


def _scan_where_erased(disk: Disk, check: StreamCheck, max_frame_bytes: int) -> None:
    """Scan segments with an erased message that is not yet in their index file."""
    records = [record for segment in check.segments for record in segment.scan.records if record.kind == frame.ERASE]
    doubtful = {frame.ERASE_BODY.unpack(record.payload)[:3] for record in records}
    for index, segment in enumerate(check.segments):
        scan = segment.scan
        if scan.indexed and any(
            (base, generation) == (int(segment.name[:20]), segment.generation) and scan.is_live(seq)
            for seq, base, generation in doubtful
        ):
            check.segments[index] = segment._replace(scan=scan_file(disk, check, segment.name, max_frame_bytes))


def sort_names(names: list[str], check: StreamCheck) -> tuple[list[tuple[int, int, str]], list[tuple[int, str]]]:
    """Return the newest generation of each segment and all journals, in order; note leftovers."""
    segments: dict[int, tuple[int, int, str]] = {}
    journals: list[tuple[int, str]] = []
    for name in names:
        if match := re.fullmatch(_SEGMENT, name):
            base, generation = int(match[1]), int(match[2])
            older = segments.get(base)
            if older is None or older[1] < generation:
                segments[base] = (base, generation, name)
                if older is not None:
                    check.leftovers.append(older[2])
            else:
                check.leftovers.append(name)
        elif match := re.fullmatch(_INDEX, name):
            check.indexes.add(name)
        elif match := re.fullmatch(_JOURNAL, name):
            journals.append((int(match[1]), name))
        elif name.endswith(".tmp"):
            check.leftovers.append(name)
        elif name != "meta" and not name.endswith(".torn"):
            check.notes.append(f"{check.folder}/{name} is not ours and is not changed")
    journals.sort()
    check.leftovers.extend(name for _, name in journals[:-1])
    current = {index_name(base, generation) for base, generation, _ in segments.values()}
    check.leftovers.extend(sorted(check.indexes - current))
    return [segments[base] for base in sorted(segments)], journals


def _explain_erasures(check: StreamCheck) -> None:
    """Remove gaps that are exactly frames with a recorded erasure, and list every unfinished erasure."""
    intents = _intents(check, check.segments[-1].scan.size)
    last_scan, last_head = check.segments[-1].scan, check.segments[-1].scan.head
    known = intents.get((last_head.base, last_head.generation), {}) if last_head is not None else {}
    torn = [gap for gap in last_scan.gaps if not _covers(known, gap.start, gap.end)]
    if torn:
        intents = _intents(check, torn[0].start)
    for segment in check.segments:
        head = segment.scan.head
        mine = intents.get((head.base, head.generation)) if head is not None else None
        if head is None or not mine or segment.scan.indexed:  # an index file that is believed knows of the erasure
            continue
        if not segment.scan.packed:  # which is replaced as a whole, so that no erasure is half done
            segment.scan.gaps = [gap for gap in segment.scan.gaps if not _covers(mine, gap.start, gap.end)]
        limit = segment.scan.gaps[0].start if segment.scan.gaps else segment.scan.size
        last = max((seq for offset, (seq, _) in mine.items() if offset < limit), default=0)
        segment.scan.last_seq = max(segment.scan.last_seq, last)
        segment.scan.gaps = [gap._replace(last_seq=max(gap.last_seq, last)) for gap in segment.scan.gaps]
        for offset, (seq, length) in sorted(mine.items()):
            if seq not in segment.scan.erased_seqs and (segment.scan.holds(seq) or not segment.scan.packed):
                todo = check.unerased if segment.scan.holds(seq) else check.erasures
                todo.append((segment.name, offset, frame.erased(seq, length, head.salt)))


def _intents(check: StreamCheck, stop: int) -> dict[tuple[int, int], dict[int, tuple[int, int]]]:
    """Return recorded erasures: (base, generation) → offset → (seq, length); in the last file only before `stop`."""
    intents: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
    for segment in check.segments:
        for record in segment.scan.records:
            if record.kind == frame.ERASE and (segment is not check.segments[-1] or record.offset < stop):
                seq, base, generation, offset, length = frame.ERASE_BODY.unpack(record.payload)
                intents.setdefault((base, generation), {})[offset] = (seq, length)
    return intents


def _covers(intents: dict[int, tuple[int, int]], start: int, end: int) -> bool:
    while start < end:
        intent = intents.get(start)
        if intent is None:
            return False
        start += intent[1]
    return start == end


def _seal_of(scan: Scan) -> int | None:
    """Return the last sequence a sealed file covers, None when it is not properly sealed."""
    last = scan.records[-1] if scan.records else None
    if last is None or last.kind != frame.SEAL or last.end != scan.size or last.after != len(scan.seqs):
        return None
    covers, length = frame.SEAL_BODY.unpack(last.payload)
    return int(covers) if length == last.offset else None


def _judge_sealed(check: StreamCheck) -> None:
    expected = None
    for index, segment in enumerate(check.segments):
        name, last = f"{check.folder}/{segment.name}", index == len(check.segments) - 1
        head, base = segment.scan.head, int(segment.name[:20])
        if expected is not None and base != expected:
            check.damage.append(f"{name}: sequences {expected} to {base - 1} are missing with their segment")
        if last:
            continue
        covers = _seal_of(segment.scan)
        if head is None:
            check.damage.append(f"{name}: damaged header of a sealed segment")
        for gap in segment.scan.gaps:
            check.damage.append(f"{name}: damaged bytes {gap.start} to {gap.end} after message {gap.last_seq}")
        if covers is None:
            check.damage.append(f"{name}: no valid seal")
        expected = covers + 1 if covers is not None else None


def _journal_salt(high_water: HighWaterEntry, generation: int) -> int:
    """Return the salt that the recorded journal has in a later generation: each rewrite derives it from the last."""
    salt = high_water.journal_salt
    for later in range(high_water.journal_generation + 1, generation + 1):
        salt = frame.next_salt(salt, later)
    return salt


def _judge_marks(check: StreamCheck, high_water: HighWaterEntry | None) -> None:
    """Hold the segments against those that the high-water file knows: none may be older, or another one."""
    if high_water is None or not high_water.is_marked:
        return
    known = {mark.base: mark for mark in high_water.segments}
    for segment in check.segments:
        head, name = segment.scan.head, f"{check.folder}/{segment.name}"
        if head is None:
            continue
        mark = known.get(head.base)
        if mark is None:
            if head.base <= high_water.base and not high_water.flags & PARTIAL:
                check.damage.append(f"{name} was not among the segments of the stream")
            elif check.stopped_cleanly:
                check.damage.append(f"{name} is newer than the clean stop of the store")
        elif head.generation < mark.generation:
            check.damage.append(f"{name} is older than its synced state: generation {mark.generation} is missing")
        elif head.salt != mark.salt:
            check.damage.append(f"{name} is not the file that was synced")
        elif head.generation > mark.generation and check.stopped_cleanly:
            check.damage.append(f"{name} is newer than the clean stop of the store")


def _judge_last(disk: Disk, check: StreamCheck, high_water: HighWaterEntry | None) -> None:
    """Find where the log ends, and whether something that was synced lies beyond."""
    found = check.segments[-1]
    scan, name = found.scan, f"{check.folder}/{found.name}"
    base = int(found.name[:20])
    proven = max((f.scan.durable_seq for f in check.segments), default=0)
    if high_water is not None:
        proven = max(proven, high_water.synced_seq)
    before = ""
    if scan.packed:  # only what lies before another segment ever is
        check.damage.append(f"{name}: the segment after it is missing")
    if scan.head is None:
        check.headless_base = base
        proven = max(proven, frame.claimed_durable(_read(disk, name), base))
        before = f"{name}: no valid header in {scan.size} bytes"
    elif scan.gaps or scan.batch is not None:
        gap = scan.gaps[0] if scan.gaps else None
        batch = gap.batch if gap is not None else scan.batch
        start = batch.start if batch is not None else scan.gaps[0].start
        before = f"{name}: {scan.size - start} bytes after offset {start} were never synced"
        if batch is not None:
            before += (
                f" ({len(scan.seqs[batch.messages : gap.messages if gap else None])} messages of a batch among them)"
            )
        scan.cut(batch or scan.gaps[0])
        check.cuts.append((found.name, start))
    check.last_seq = max(scan.last_seq, base - 1, *(_floor_body(r)[1] for r in _floors(scan)), _seal_of(scan) or 0)
    check.proven_seq = min(proven, check.last_seq)
    if check.last_seq < proven:
        check.damage.append(f"{name}: messages {check.last_seq + 1} to {proven} were synced and are missing or damaged")
    elif (
        high_water is not None
        and (base, found.generation) == (high_water.base, high_water.generation)
        and scan.end < high_water.end
    ):
        check.damage.append(f"{name}: synced bytes {scan.end} to {high_water.end} are missing or damaged")
    elif (
        high_water is not None
        and high_water.is_marked
        and check.stopped_cleanly
        and (base, found.generation) == (high_water.base, high_water.generation)
        and scan.end > high_water.end
    ):
        check.damage.append(f"{name}: bytes {high_water.end} to {scan.end} are newer than the clean stop of the store")
    elif high_water is not None and high_water.base > base:
        check.damage.append(f"{check.folder}: the segment that begins with {high_water.base} is missing")
    elif before:
        check.notes.append(f"{before}; cut")
    at = bisect_right(scan.seqs, check.proven_seq)
    check.rewrite_from = scan.offsets[at - 1] + scan.sizes[at - 1] + frame.FRAME_OVER_SIZE if at else 0


def _floors(scan: Scan) -> list[frame.FrameRecord]:
    """Return the FLOOR records before the first gap; beyond it nothing was promised."""
    stop = scan.gaps[0].start if scan.gaps else scan.size
    return [record for record in scan.records if record.kind == frame.FLOOR and record.offset < stop]


def _floor_body(record: frame.FrameRecord) -> tuple[int, int]:
    first, last = frame.FLOOR_BODY.unpack(record.payload)
    return int(first), int(last)


def _find_floor(check: StreamCheck) -> None:
    """Note the lowest sequence that can be live, and leave out segments below it.

    Unlinks are not synced one by one, so any subset of the files below the floor may have come back after a crash.
    """
    floors = [segment.scan.head.floor for segment in check.segments if segment.scan.head is not None]
    floors += [_floor_body(record)[0] for segment in check.segments for record in _floors(segment.scan)]
    check.floor = max(floors, default=0)
    bases = [int(segment.name[:20]) for segment in check.segments]
    below = sum(base <= check.floor for base in bases[1:])
    for segment in check.segments[:below]:
        if segment.scan.head is None:
            check.leftovers.append(segment.name)
        else:
            check.below_floor.append(segment)
        check.leftovers.extend(check.indexes & {index_name(int(segment.name[:20]), segment.generation)})
    del check.segments[:below]
    if bases[below] > check.floor and not check.headless_base:
        check.damage.append(f"{check.folder}: segments with messages {check.floor} to {bases[below] - 1} are missing")


def _judge_journal(check: StreamCheck, found: FoundSegment, high_water: HighWaterEntry | None) -> None:
    scan, name = found.scan, f"{check.folder}/{found.name}"
    if scan.head is None or scan.head.generation != found.generation:
        check.damage.append(f"{name}: damaged header")
        return
    if (
        (reason := foreign_reason(check, scan.head, frame.JOURNAL_FILE))
        or (len(scan.seqs) and (reason := "is no journal"))
        or (any(record.kind != frame.JOURNAL for record in scan.records) and (reason := "is no journal"))
    ):
        check.damage.append(f"{name} {reason}")
        return
    proven = scan.durable_seq
    if scan.gaps:
        gap = scan.gaps[0]
        scan.cut(gap)
        check.cuts.append((found.name, gap.start))
        check.notes.append(f"{name}: {scan.size - gap.start} bytes after offset {gap.start} were never synced; cut")
    if [r.seq for r in scan.records] != list(range(1, len(scan.records) + 1)):
        check.damage.append(f"{name}: records are missing")
    if len(scan.records) < proven:
        first = len(scan.records) + 1
        check.damage.append(f"{name}: records {first} to {proven} were synced and are missing or damaged")
    if high_water is not None and (reason := _journal_conflict(check, found, high_water)):
        check.damage.append(f"{name}{reason}")
    check.journal_rewrite_from = scan.records[proven - 1].end if 0 < proven <= len(scan.records) else 0


def _journal_conflict(check: StreamCheck, found: FoundSegment, high_water: HighWaterEntry) -> str:
    """Return the contradiction between the journal and the high-water file, or ""."""
    scan, known = found.scan, (high_water.journal_generation, high_water.journal_end)
    if not high_water.journal_end:
        newer = check.stopped_cleanly and high_water.is_marked
        return " is newer than the clean stop of the store" if newer else ""
    if found.generation < known[0]:
        return f" is older than its synced state: generation {known[0]} is missing"
    same = found.generation == known[0]
    if (
        scan.head is not None
        and high_water.journal_salt
        and scan.head.salt != _journal_salt(high_water, found.generation)
    ):
        return " is not the file that was synced"
    if same and scan.end < known[1]:
        return f": synced bytes {scan.end} to {known[1]} are missing or damaged"
    if check.stopped_cleanly and high_water.is_marked and (not same or scan.end > known[1]):
        return " is newer than the clean stop of the store"
    return ""
