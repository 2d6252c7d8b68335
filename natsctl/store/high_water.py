"""The high-water file, `WITNESS`: a small log of the synced state of all streams; it proves that a log was cut short.

An entry is written only after the syncs that it records, at most once a second and at a clean stop; a log that is
shorter than its entry is damaged. If the file itself is damaged its valid part is used; if there is no room for
it, the next attempt rewrites it. It also names each stream and its files, so that a stream without its folder or meta
file keeps its name, and a file that is older than the synced one, or from another stream, is recognised.

The header has the store's identity and the number of the run, a count of the store's starts. Entries are lower bounds
and stay true, so an earlier copy that was put back does no harm: LOCK has the number of the run too, and if it is
higher, the copy's mark of a clean stop and the absence of a stream are ignored. `RecoveryReport` has the findings of a
start.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from natsctl.store import frame
from natsctl.store.disk import Disk, File
from natsctl.store.errors import StoreDamagedError, StoreError
from natsctl.store.file_commit import NO_SPACE, Commit, Committable, replace_file, write_all
from natsctl.store.fsck import EXACT, PARTIAL, HighWaterEntry, SegmentMark
from natsctl.store.subject_table import SubjectTable

if TYPE_CHECKING:
    from natsctl.store.reserve import Reserve

PATH = "WITNESS"
UNMARKED_ENTRY = struct.Struct("<QQQQQQQ")
"""An entry of an earlier version."""
ENTRY = struct.Struct("<QQQQQQQIQIB12sH")
"""The numbers of a HighWaterEntry, the identity, and the length of the key; the key and the segments follow."""
SEGMENT = struct.Struct("<QQII")
"""A SegmentMark."""
COMPACT_BYTES = 1024 * 1024
"""The file is rewritten once it has grown by this much, and to at least twice its size, since its last rewrite."""


class HighWaterMarks(NamedTuple):
    """Content of the file: each stream's newest entry, the highest stream id ever given, and how the last run ended."""

    entries: dict[int, HighWaterEntry]
    highest_id: int = 0
    clean_stop: bool = False
    note: str = ""
    run: int = 0
    """The run that wrote it, 0 for earlier versions."""
    is_complete: bool = False
    """Whether every stream that existed when that run began is in `entries` or `gone`."""
    gone: frozenset[int] = frozenset()
    """Streams that were deleted in that run."""


def read_high_water(disk: Disk, store: bytes) -> HighWaterMarks:
    """Return the content of the high-water file of `store`, or empty marks.

    Raises StoreDamagedError if the file belongs to another store.
    """
    if not disk.exists(PATH):
        missing = "WITNESS is missing: only the streams' own files show their synced state"
        return HighWaterMarks({}, note=missing if disk.listdir("streams") else "")
    file = disk.open_read(PATH)
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    scan = frame.scan(data, len(data), SubjectTable())
    head = scan.head
    if head is not None and head.is_marked and (head.identity, head.role) != (store, frame.HIGH_WATER_FILE):
        whose = f"store {head.identity.hex()}" if head.role == frame.HIGH_WATER_FILE else f"stream {head.stream_id}"
        raise StoreDamagedError(
            f"WITNESS belongs to {whose}, and FORMAT says store {store.hex()}: put the right one back, or move it away "
            "to start without the proof of the synced state"
        )
    found = _Reading()
    for record in scan.records:
        found.take(record)
    whole = bool(head is not None and head.is_marked and found.began_at)
    whole = whole and not (scan.gaps and scan.gaps[0].start < found.began_at)
    note = "" if head is not None and not scan.gaps else "WITNESS is torn or damaged: its valid part is used"
    run = head.generation if head is not None and head.is_marked else 0
    clean = found.clean and not scan.gaps
    entries = found.whole(torn=bool(scan.gaps))
    return HighWaterMarks(entries, found.highest, clean, note, run, whole, frozenset(found.gone))


class _Reading:
    """The records of the file, in order."""

    def __init__(self) -> None:
        self.entries: dict[int, HighWaterEntry] = {}
        self.segments: dict[int, dict[int, SegmentMark]] = {}
        self.gone: set[int] = set()
        self.clean, self.highest, self.began_at = False, 0, 0

    def take(self, record: frame.FrameRecord) -> None:
        self.highest = max(self.highest, record.seq)
        self.clean = record.kind == frame.CLEAN
        if record.kind in (frame.OPENED, frame.CLEAN):
            self.began_at = self.began_at or record.offset
        elif record.kind == frame.HIGH_WATER:
            entry = _entry_of(record.payload)
            self.entries[entry.stream_id] = entry
            marks = self.segments.setdefault(entry.stream_id, {})
            for mark in entry.segments:
                for base in [base for base in marks if mark.base < base <= mark.covers] if mark.generation else ():
                    del marks[base]
                marks[mark.base] = mark
        elif record.kind == frame.GONE_STREAM:
            self.gone.add(record.seq)
            self.entries.pop(record.seq, None)

    def whole(self, torn: bool) -> dict[int, HighWaterEntry]:
        """Return the entries with all of their segments; of a `torn` file some may be missing."""
        return {
            stream_id: entry._replace(
                segments=tuple(self.segments[stream_id].values()), flags=entry.flags | (PARTIAL if torn else 0)
            )
            for stream_id, entry in self.entries.items()
        }


def _entry_of(payload: bytes) -> HighWaterEntry:
    if len(payload) == UNMARKED_ENTRY.size:
        return HighWaterEntry(*UNMARKED_ENTRY.unpack(payload))._replace(flags=EXACT)
    *fields, key_length = ENTRY.unpack_from(payload)
    end = ENTRY.size + key_length
    marks = map(SegmentMark._make, SEGMENT.iter_unpack(payload[end:]))
    return HighWaterEntry._make((*fields, payload[ENTRY.size : end].decode(), tuple(marks)))


def _encode(entry: HighWaterEntry, salt: int) -> bytes:
    key = entry.key.encode()
    numbers = ENTRY.pack(*entry[: HighWaterEntry._fields.index("key")], len(key))
    marks = b"".join(SEGMENT.pack(*mark) for mark in entry.segments)
    return frame.encode(frame.HIGH_WATER, entry.stream_id, 0, 0, salt, numbers + key + marks)


def unmark_clean_stop(disk: Disk) -> None:
    """Cut the mark of a clean stop off the end of the file; this works on a full disk. Raises OSError."""
    file = disk.open(PATH)
    try:
        file.truncate(file.size() - len(frame.encode(frame.CLEAN, 0, 0, 0, 1, b"")))
        file.sync()
    finally:
        file.close()


class HighWaterCommit(Commit):
    """Bytes to append to the high-water file, or its whole new content (`anew`)."""

    __slots__ = ("_disk", "_reserve", "anew", "data", "file", "offset")

    io = True

    def __init__(
        self, disk: Disk, file: File | None, data: bytes, offset: int, anew: bool, reserve: Reserve | None
    ) -> None:
        super().__init__(0, [])
        self._disk = disk
        self._reserve = reserve
        self.file = file
        self.data = data
        self.offset = offset
        self.anew = anew

    def run(self) -> None:
        """Write and sync, with the reserve if the commit may use it; raises OSError."""
        if self._reserve is not None and len(self.data) <= self._reserve.size // 2:
            self._reserve.spend(self._write)
        else:
            self._write()

    def _write(self) -> None:
        if self.anew:
            replace_file(self._disk, PATH, self.data)
            return
        if self.file is None:
            self.file = self._disk.open(PATH)
        try:
            write_all(self.file, self.data, self.offset)
        except OSError as error:
            if error.errno in NO_SPACE:
                self.file.truncate(self.offset)
            raise
        self.file.sync()


class HighWaterFile:
    """The file, open for appending; its commits are made like a stream's."""

    def __init__(
        self,
        disk: Disk,
        reserve: Reserve,
        salt: Callable[[], int],
        log: Callable[[str], None],
        everything: Callable[[bool], Iterable[HighWaterEntry]],
        dirty: dict[Committable, None],
        finished: Callable[[list[int]], None],
    ) -> None:
        self._disk = disk
        self._reserve = reserve
        self._salt = salt
        self._log = log
        self._everything = everything
        self._dirty = dirty
        self._finished = finished
        self._head = frame.FileHead(salt(), 0, 0, 0, 0)
        self._file: File | None = None
        self._size = 0
        self._compact_at = 0
        self._highest = 0
        self._in_flight = False
        self._failed = False
        self.changed: dict[int, Callable[[], HighWaterEntry]] = {}
        self.gone: dict[int, None] = {}
        self._taken_gone: list[int] = []

    def begin(self, store: bytes, run: int) -> None:
        """Set the store's identity and the number of the run for the header, before anything is written."""
        self._head = frame.FileHead(self._head.salt, 0, 0, 0, run, store, frame.HIGH_WATER_FILE)

    @property
    def pending(self) -> bool:
        return not self._failed and bool(self.changed or self.gone)

    def begin_commit(self) -> HighWaterCommit | None:
        """Return the commit of what changed, None while one is in flight or if nothing has changed."""
        if self._in_flight:
            return None
        self._dirty.pop(self, None)
        if not self.pending:
            return None
        self._in_flight = True
        return self._take(b"")

    def final(self, highest_id: int) -> HighWaterCommit:
        """Return the commit of everything and the mark of a clean stop."""
        self._begin_anew()
        self._highest = highest_id
        return self._take(frame.encode(frame.CLEAN, highest_id, 0, 0, self._head.salt, b""), exact=True)

    def anew(self, highest_id: int) -> HighWaterCommit:
        self._begin_anew()
        self._highest = highest_id
        return self._take(frame.encode(frame.OPENED, highest_id, 0, 0, self._head.salt, b""))

    def _begin_anew(self) -> None:
        """Queue a rewrite of the whole file under a new salt: old blocks that a crash leaves in it do not validate."""
        self._compact_at = 0
        self._head = self._head._replace(salt=self._salt())

    def _take(self, tail: bytes, exact: bool = False) -> HighWaterCommit:
        anew = self._size >= self._compact_at
        reserve = self._reserve if tail or self.gone else None  # starts, stops, and what lets folders be removed
        self._highest = max((self._highest, *self.changed, *self.gone))
        if anew and not tail:
            self._begin_anew()
            tail = frame.encode(frame.OPENED, self._highest, 0, 0, self._head.salt, b"")
        salt = self._head.salt
        entries = self._everything(exact) if anew else [entry() for entry in self.changed.values()]
        data = b"".join(_encode(entry, salt) for entry in entries)
        if not anew:
            data += b"".join(frame.encode(frame.GONE_STREAM, gone, 0, 0, salt, b"") for gone in self.gone)
        self._taken_gone = list(self.gone)
        self.changed, self.gone = {}, {}
        if anew:
            return HighWaterCommit(self._disk, None, self._head.encode() + data + tail, 0, True, reserve)
        return HighWaterCommit(self._disk, self._file, data + tail, self._size, False, reserve)

    def finish_commit(self, commit: Commit, error: OSError | StoreError | None = None) -> None:
        """Record the outcome; after a failure other than a full disk nothing more is written until the next start."""
        assert isinstance(commit, HighWaterCommit)
        self._in_flight = False
        self._file = commit.file or self._file
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            self._compact_at = 0
            self.gone.update(dict.fromkeys(self._taken_gone))
            return
        if error is not None:
            self._failed = True
            self._log(f"WITNESS cannot be written and is out of date: {error}")
            return
        if commit.anew:
            self.close()
            self._size = len(commit.data)
            self._compact_at = self._size + max(COMPACT_BYTES, self._size)
        else:
            self._size += len(commit.data)
        self._finished(self._taken_gone)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def refusal(key: str, reason: str) -> str:
    return f"stream {key} is damaged and refused: {reason}"


class RecoveryReport(msgspec.Struct):
    """Findings of `Store.open`: notes for the log, and the reasons why streams (by key, or folder) were refused."""

    streams: int = 0
    messages: int = 0
    clean_stop: bool = False
    notes: list[str] = msgspec.field(default_factory=list)
    damaged: dict[str, str] = msgspec.field(default_factory=dict)
