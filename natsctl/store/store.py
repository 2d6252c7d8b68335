"""The store: every stream of one server, in one folder that one process holds.

`open` recovers the existing streams; `create` and `delete` change `streams` immediately and the disk with a commit.
Whatever has work to commit is in `dirty`: streams, and the store's own high-water file and trash, all with begin_commit
/ run / finish_commit. Syncs that a policy postpones, and the high-water file, are due at `next_deadline_ns`:
`run_timers` then queues them. A stream's folder is named by a number that is never used twice; names are only ever file
content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Literal

from natsctl.store import frame
from natsctl.store.disk import Disk, File
from natsctl.store.errors import StoreDamagedError, StoreError, StreamKeyTakenError
from natsctl.store.file_commit import NO_SPACE, Committable
from natsctl.store.file_stream import FileStream
from natsctl.store.fsck import FOREIGN, PARTIAL, HighWaterEntry, StreamCheck, check_stream
from natsctl.store.high_water import (
    HighWaterFile,
    HighWaterMarks,
    RecoveryReport,
    read_high_water,
    refusal,
    unmark_clean_stop,
)
from natsctl.store.index import StreamIndex
from natsctl.store.journal import MetaRecord
from natsctl.store.layout import open_layout
from natsctl.store.memory_stream import MemoryStream
from natsctl.store.options import StoreOptions
from natsctl.store.recovery import REFUSED_FOLDER, Salvage, build_index, read_refused, repair
from natsctl.store.reserve import Reserve
from natsctl.store.segment_file import SegmentCache
from natsctl.store.stream import StreamStore
from natsctl.store.trash import Discard, Trash, remove_tree

if TYPE_CHECKING:
    from natsctl.store.encrypted_disk import EncryptedDisk

__all__ = ["RecoveryReport", "Store", "StoreOptions", "StreamStore"]

RETRY_NS = 1_000_000_000
"""Time between attempts to restore the reserve, and to write what found no room."""
LOOKED_AT = 4
"""Streams that a commit looks at to close one, if too many are open."""
_FOLDER = r"s(\d{6,})"


def _has_no_place(check: StreamCheck, marks: HighWaterMarks, entry: HighWaterEntry | None) -> bool:
    """Return whether a folder does not belong to a stream of the store: it is a deleted one's, or from elsewhere."""
    if entry is not None:
        return bool(entry.flags & FOREIGN)
    if check.stream_id in marks.gone:
        return True
    created_in = check.meta_record.run if check.meta_record is not None else marks.run
    return marks.is_complete and (marks.clean_stop or created_in < marks.run)


class Store:
    def __init__(
        self,
        disk: Disk,
        options: StoreOptions,
        rng_salt: Callable[[], int],
        monotonic_ns: Callable[[], int],
        log: Callable[[str], None],
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        """Prepare the store of a folder; a `lock` is needed where commits run in threads of their own."""
        self.options = options
        self.streams: dict[str, StreamStore] = {}
        self.dirty: dict[Committable, None] = {}
        self.faults: list[str] = []
        self.damaged: dict[str, str] = {}
        self._disk = disk
        self._rng_salt = rng_salt
        self._monotonic_ns = monotonic_ns
        self._log = log
        self._cache = SegmentCache(disk, options.cache_bytes)
        self.reserve = Reserve(disk, options.reserve_bytes, self.dirty, lock or nullcontext())
        self._high_water = HighWaterFile(
            disk, self.reserve, self._salt, log, self._entries, self.dirty, self._high_water_written
        )
        self._trash = Trash(disk, self.dirty, log)
        self._lock: File | None = None
        self._next_id = 1
        self._refused: dict[int, HighWaterEntry] = {}
        self._refused_ids: dict[str, list[int]] = {}
        self._deleting_ids: dict[str, int] = {}
        self._deleting: dict[int, StreamStore] = {}
        """Streams with an uncommitted deletion: the high-water file still has their entries."""
        self.identity = frame.NO_IDENTITY
        self._run = 0
        self._unsynced: dict[StreamStore, int] = {}
        """Streams with bytes that a sync was postponed for, and since when: the oldest first."""
        self.syncs_at_once = options.sync == "always"
        self._patience_ns = options.sync if isinstance(options.sync, int) else options.journal_sync_ns
        self._open: dict[StreamStore, None] = {}
        self.stopped_cleanly = False
        """Whether what `open` found was closed."""
        self._high_water_due_ns = 0
        self._short: dict[StreamStore, None] = {}
        """Streams with records or erasures that wait for room."""
        self._retry_due_ns = 0

    @property
    def healthy(self) -> bool:
        """Return whether no stream is fenced off; `faults` has the reasons."""
        return not self.faults

    @property
    def has_room(self) -> bool:
        """Return whether the disk has room for messages and for as much as is held back for records."""
        return self._disk.free_bytes() >= max(self.options.reserve_bytes * (1 if self.reserve.intact else 2), 1)

    def _salt(self) -> int:
        return self._rng_salt() & frame.MASK or 1

    def _draw_identity(self) -> bytes:
        return b"".join(self._salt().to_bytes(4, "little") for _ in range(frame.IDENTITY_BYTES // 4))

    # -- opening

    def open(self) -> RecoveryReport:
        """Lock the folder and recover every stream; damaged ones are reported, refused and left untouched.

        Raises StoreLockedError, StoreKeyError, StoreFormatError, StoreDamagedError (the folder had a store and its
        files are missing), OSError.
        """
        self._take_folder()
        report = RecoveryReport()
        marks = self._read_marks(report)
        known, report.clean_stop = marks.entries, marks.clean_stop
        gone = [name for name in self._disk.listdir("streams") if name.endswith(".gone")]
        trashed = {int(m[1]) for name in gone if (m := re.match(_FOLDER, name))}
        checks = self._check_all(marks, trashed, report)
        self._next_id = 1 + max((marks.highest_id, *trashed, *checks))
        self._sync_names(checks.values())
        replaced = {c.meta_record.replaces for c in checks.values() if c.meta_record is not None and not c.damage}
        for stream_id, check in checks.items():
            if stream_id in replaced:
                self._disk.rename(check.folder, f"{check.folder}.gone")
                gone.append(f"s{stream_id:06d}.gone")
                report.notes.append(f"{check.folder}: its deletion was finished")
            elif not check.damage:
                self._recover(stream_id, check, report)
        refused = {
            stream_id: check for stream_id, check in checks.items() if check.damage and stream_id not in replaced
        }
        for stream_id, entry in known.items():
            if stream_id not in checks and stream_id not in trashed and not entry.flags & FOREIGN:
                check = refused[stream_id] = StreamCheck(f"streams/s{stream_id:06d}")
                check.damage.append(f"{check.folder} is missing")
        for stream_id, check in sorted(refused.items(), key=lambda item: item[1].is_foreign):
            self._refuse(stream_id, check, known.get(stream_id), report)
        if not report.clean_stop:
            self._disk.fsync_dir("streams")
        self._high_water_start(marks, report)
        self._trash.add(gone)
        self.reserve.open()
        self.damaged, self.stopped_cleanly = report.damaged, report.clean_stop
        for line in report.notes:
            self._log(line)
        for key, reason in report.damaged.items():
            self.report_fault(refusal(key, reason))
        return report

    def _take_folder(self) -> None:
        """Lock the folder, read its keys if it is encrypted, and create missing parts."""
        lock, encrypted = self._disk.lock("LOCK"), self._encrypted
        try:
            if encrypted is not None:
                encrypted.unlock()
            self.identity = open_layout(self._disk, self._draw_identity, self.reserve)
            if encrypted is not None:
                encrypted.convert()
        except (StoreError, OSError):
            lock.close()
            raise
        self._lock = lock

    @property
    def _encrypted(self) -> EncryptedDisk | None:
        if not self._disk.encrypted:
            return None
        from natsctl.store.encrypted_disk import EncryptedDisk  # brings a library that takes 30 ms

        return self._disk if isinstance(self._disk, EncryptedDisk) else None

    def _read_marks(self, report: RecoveryReport) -> HighWaterMarks:
        """Return the high-water file's content from the last run, and begin the next run."""
        marks = read_high_water(self._disk, self.identity)
        run = self._run_in_lock()
        if run > marks.run and self._disk.exists("WITNESS"):
            marks = marks._replace(clean_stop=False, is_complete=False)
            marks = marks._replace(
                note=f"WITNESS is older than the store's last run ({marks.run}, not {run}): it was put back from an "
                "earlier time, and its entry of each stream counts as a lower bound"
            )
        if marks.note:
            report.notes.append(marks.note)
        self._run = max(run, marks.run) + 1
        self._high_water.begin(self.identity, self._run)
        return marks

    def _run_in_lock(self) -> int:
        """Return the number of the last run that wrote its high-water file, 0 where LOCK does not say so."""
        assert self._lock is not None
        try:
            store, run = self._lock.pread(64, 0).split()
            return int(run) if store.decode() == self.identity.hex() else 0
        except ValueError:
            return 0

    def _note_run_in_lock(self) -> None:
        """Write the number of this run into LOCK, to recognise an older high-water file; it is not synced."""
        assert self._lock is not None
        with suppress(OSError):
            self._lock.pwrite(b"%s %020d\n" % (self.identity.hex().encode(), self._run), 0)

    def _high_water_start(self, marks: HighWaterMarks, report: RecoveryReport) -> None:
        """Write the high-water file; on a full disk into the reserve, else keep the old one without its clean stop."""
        commit = self._high_water.anew(self._next_id - 1)
        try:
            commit.run()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            if marks.clean_stop:
                unmark_clean_stop(self._disk)
            self._high_water.finish_commit(commit, error)
            report.notes.append("no space left on the store's disk: reads are served, publishes are refused")
            return
        self._high_water.finish_commit(commit)
        self._note_run_in_lock()

    def _check_all(
        self, marks: HighWaterMarks, trashed: Collection[int], report: RecoveryReport
    ) -> dict[int, StreamCheck]:
        checks: dict[int, StreamCheck] = {}
        for name in self._disk.listdir("streams"):
            match = re.fullmatch(_FOLDER, name)
            unborn = re.fullmatch(_FOLDER, name.removesuffix(".new"))
            if name.endswith(".new") and unborn is not None and int(unborn[1]) in marks.entries:
                report.notes.append(f"streams/{name} is not an unfinished creation, and is not changed")
            elif name.endswith(".new"):
                remove_tree(self._disk, f"streams/{name}")
                report.notes.append(f"streams/{name}: a creation that never ended was removed")
            elif match is None and not name.endswith(".gone"):
                report.notes.append(f"streams/{name} is not ours and is not changed")
            elif match is not None:
                stream_id = int(match[1])
                entry = marks.entries.get(stream_id)
                check = checks[stream_id] = self._check(name, entry, report.clean_stop)
                if stream_id in trashed or _has_no_place(check, marks, entry):
                    check.is_foreign = True
                    check.damage.append(f"{check.folder} belongs to no stream of this store: it was put there later")
        return checks

    def _sync_names(self, checks: Iterable[StreamCheck]) -> None:
        """Make the found content of the streams' folders durable."""
        doubtful = {check.folder: check for check in checks if not (check.damage or check.stopped_cleanly)}
        for folder, error in self._disk.fsync_dirs(list(doubtful)).items():
            doubtful[folder].damage.append(f"{folder} can not be synced: {error}")

    def _check(self, name: str, entry: HighWaterEntry | None, clean_stop: bool) -> StreamCheck:
        limit = self.options.max_frame_bytes
        try:
            return check_stream(self._disk, f"streams/{name}", entry, limit, clean_stop, True, self.identity)
        except OSError as error:
            check = StreamCheck(f"streams/{name}")
            check.damage.append(f"streams/{name} cannot be read: {error}")
            return check

    def _refuse(self, stream_id: int, check: StreamCheck, entry: HighWaterEntry | None, report: RecoveryReport) -> None:
        """Keep the folder as it is and its name taken, by the folder's own where another holds it."""
        named = entry.key if entry is not None else ""
        if not named and check.meta_record is not None:
            named = check.meta_record.key
        folder = check.folder.rpartition("/")[2]
        key = named if named and named not in self.streams and named not in report.damaged else folder
        report.damaged[key] = "; ".join(check.damage)
        self._refused_ids.setdefault(key, []).append(stream_id)
        kept = entry or HighWaterEntry(stream_id)
        flags = kept.flags & PARTIAL | (FOREIGN if check.is_foreign else 0)
        self._refused[stream_id] = kept._replace(key=named, flags=flags)

    def _recover(self, stream_id: int, check: StreamCheck, report: RecoveryReport) -> None:
        meta_record = check.meta_record
        assert meta_record is not None
        if meta_record.key in self.streams:
            check.damage.append(f"{check.folder}: another folder holds {meta_record.key} too")
            return
        try:
            notes = self.reserve.spend(lambda: repair(self._disk, check, self._salt()))
            if (encrypted := self._encrypted) is not None:
                for found in filter(None, (check.segments[-1], check.journal)):
                    encrypted.renew(f"{check.folder}/{found.name}")
        except OSError as error:
            check.damage.append(f"{check.folder} can not be repaired: {error}")
            return
        index = build_index(check)
        files = self._files_of(meta_record._replace(identity=check.identity), index)
        waits = files.adopt(check)
        files.write_indexes(tail=False)
        stream = self.streams[meta_record.key] = StreamStore(self, meta_record.key, index, files)
        if waits:
            stream.mark_dirty()
        report.streams += 1
        report.messages += stream.messages
        report.notes += check.notes + notes

    def _files_of(self, record: MetaRecord, index: StreamIndex) -> FileStream:
        return FileStream(self, self._disk, self._cache, record, index, self._salt)

    def _make(self, key: str, meta: bytes, first_seq: int, replaces: int = 0, provisional: bool = False) -> StreamStore:
        """Create a stream; the first commit creates its folder."""
        index = StreamIndex(max(first_seq, 1))
        identity = self._draw_identity()
        record = MetaRecord(self._next_id, key, meta, replaces, self.identity, identity, self._run)
        self._next_id += 1
        files = self._files_of(record, index)
        files.create(record, provisional)
        stream = self.streams[key] = StreamStore(self, key, index, files)
        stream.mark_dirty()
        return stream

    # -- closing

    def close(self) -> None:
        """Commit and sync everything, mark the stop as clean, release the folder. No commit may be in flight."""
        if self._lock is None:
            return
        for stream in self.streams.values():
            stream.flush()
        self._commit_all()
        if self.healthy or self.faults == [refusal(key, reason) for key, reason in self.damaged.items()]:
            for stream in self.streams.values():
                if isinstance(stream.backing, FileStream) and stream.backing.born:
                    stream.backing.write_indexes(tail=True)
            self._high_water_stop()
        for stream in self.streams.values():
            stream.backing.close_files()
        self._cache.close()
        self._high_water.close()
        self._lock.close()
        self._lock = None

    def _commit_all(self) -> None:
        """Commit in line until nothing is left to do; no commit may be in flight."""
        while self.dirty:
            task = next(iter(self.dirty))
            commit = task.begin_commit()
            if commit is None:
                self.dirty.pop(task, None)
                continue
            error: OSError | None = None
            try:
                commit.run()
            except OSError as caught:
                error = caught
            task.finish_commit(commit, error)

    def _high_water_stop(self) -> None:
        commit = self._high_water.final(self._next_id - 1)
        try:
            commit.run()
        except OSError as error:
            self._high_water.finish_commit(commit, error)
            return
        self._high_water.finish_commit(commit)

    # -- streams

    def create(
        self,
        key: str,
        meta: bytes,
        storage: Literal["file", "memory"] = "file",
        first_seq: int = 1,
        *,
        provisional: bool = False,
    ) -> StreamStore:
        """Make a stream; it is durable when its first commit ends (on_durable).

        With `provisional` nothing of it survives a restart before its `complete`.
        Raises ConflictError, StoreDamagedError.
        """
        if key in self.streams:
            raise StreamKeyTakenError(key)
        if key in self.damaged:
            raise StoreDamagedError(self.damaged[key])
        if storage == "memory":
            index = StreamIndex(max(first_seq, 1))
            memory = self.streams[key] = StreamStore(self, key, index, MemoryStream(index, meta))
            memory.request_sync()
            return memory
        return self._make(key, meta, first_seq, self._deleting_ids.get(key, 0), provisional)

    def delete(self, key: str) -> StreamStore:
        """Remove a stream from `streams` and return it: its on_durable is called once the deletion is durable."""
        stream, files = self.streams[key], self.streams[key].backing
        del self.streams[key]
        if isinstance(files, FileStream):
            files.leave()
            stream.delete()
            if not files.left:
                self._deleting_ids[key] = files.stream_id
                self._deleting[files.stream_id] = stream
        else:
            stream.request_sync()
        return stream

    def discard(self, key: str) -> Discard:
        """Delete a stream of `damaged` for good; its on_durable is called once it is removed and the key free again."""
        ids = self._refused_ids[key]

        folders = [f"streams/s{stream_id:06d}" for stream_id in ids]
        return Discard(self._disk, self.dirty, folders, lambda: self._unrefuse(key, ids))

    def salvage(self, key: str, meta: bytes | None = None) -> Salvage:
        """Make a stream of the readable part of a `damaged` one, durable on return; return the old one's report.

        `meta` replaces unreadable metadata. The old folder is moved aside unchanged, below refused/. For
        a store that no server runs: commits run in line. Raises StoreDamagedError (nothing to go by), OSError.
        """
        ids = self._refused_ids[key]
        folder = f"streams/s{ids[0]:06d}"
        entry = self._refused[ids[0]]
        if not self._disk.exists(folder):
            raise StoreDamagedError(
                f"{folder} is missing: there is nothing to read, {key} can only be put back or removed"
            )
        if entry.flags & FOREIGN or key != entry.key:
            raise StoreDamagedError(f"{folder} is not the folder of a stream of this store: it can only be removed")
        limit = self.options.max_frame_bytes
        found = read_refused(self._disk, folder, entry, limit, self.identity)
        found.meta = meta if found.meta is None else found.meta
        if found.meta is None:
            raise StoreDamagedError(f"{folder}/meta cannot be read: the configuration of {key} has to be given")
        stream = self._make(key, found.meta, 1)
        for message, timed in found.messages(self._disk, limit):
            stream.append_copies((message,), (message.seq,) if timed else ())
            if stream.waiting_bytes > self.options.segment_bytes:
                self._commit_all()
        stream.skip_to(found.last_seq)
        stream.rewrite(found.records)
        stream.flush()
        self._commit_all()
        if stream.fault is not None or stream.durable_seq < found.last_seq:
            raise StoreDamagedError(
                f"{key} could not be written: {stream.fault or 'no space left'}; nothing was removed"
            )
        self._move_aside(key, ids)
        found.remains = f"{REFUSED_FOLDER}/s{ids[0]:06d}"
        return found

    def _move_aside(self, key: str, ids: list[int]) -> None:
        """Move refused folders out of streams/, so that the next start does not meet them."""
        if not self._disk.exists(REFUSED_FOLDER):
            self._disk.mkdir(REFUSED_FOLDER)
            self._disk.fsync_dir("")
        for stream_id in ids:
            self._disk.rename(f"streams/s{stream_id:06d}", f"{REFUSED_FOLDER}/s{stream_id:06d}")
        self._disk.fsync_dir(REFUSED_FOLDER)
        self._disk.fsync_dir("streams")
        self._unrefuse(key, ids)

    def _unrefuse(self, key: str, ids: list[int]) -> None:
        """Forget refused folders that are not there any more."""
        reason = self.damaged.pop(key, "")
        del self._refused_ids[key]
        self.faults[:] = [text for text in self.faults if text != refusal(key, reason)]
        for stream_id in ids:
            self._refused.pop(stream_id, None)
            self._high_water.gone[stream_id] = None
        self._high_water_when_due()

    # -- callbacks of streams

    def committed(self, stream: StreamStore, *, waits: bool = False) -> None:
        """Note the end of a commit of `stream`; it `waits` for a sync if that is known."""
        if waits and stream.awaits_sync:
            return  # nothing else is new; nor does a stream that waits have to be the newest among the open ones
        files, streams = stream.backing, self._open
        if not isinstance(files, FileStream):
            return
        if files.left:
            self._forget(stream, files.stream_id)
            return
        unsynced = files.unsynced
        was_open = streams.pop(stream, False) is None
        streams[stream] = None
        if len(streams) > self.options.max_open_streams and not (was_open and unsynced):
            self._close_idle()  # else nothing has become idle
        if not files.born:
            return
        if not unsynced or self.options.sync == "never":
            self._unsynced.pop(stream, None)
        elif stream not in self._unsynced:
            self._unsynced[stream] = self._monotonic_ns()
        stream.awaits_sync = stream in self._unsynced
        changed = self._high_water.changed
        if files.stream_id not in changed:
            changed[files.stream_id] = files.high_water_entry
            self._high_water_when_due()

    def _forget(self, stream: StreamStore, stream_id: int) -> None:
        if self._deleting_ids.get(stream.key) == stream_id:
            del self._deleting_ids[stream.key]
        self._deleting.pop(stream_id, None)
        self._unsynced.pop(stream, None)
        self._short.pop(stream, None)
        self._open.pop(stream, None)
        self._high_water.changed.pop(stream_id, None)
        self._high_water.gone[stream_id] = None
        self._high_water_when_due()

    def creation_failed(self, key: str, stream: Committable) -> None:
        if self.streams.get(key) is stream:
            del self.streams[key]

    def _close_idle(self) -> None:
        """Look at a few of too many open streams, oldest first; one that is not idle comes later again."""
        for stream in [*islice(self._open, LOOKED_AT)]:
            del self._open[stream]
            if stream.idle and isinstance(stream.backing, FileStream):
                stream.backing.close_idle()
            else:
                self._open[stream] = None

    def report_fault(self, text: str) -> None:
        if text not in self.faults:
            self.faults.append(text)
            self._log(text)

    # -- time

    def next_deadline_ns(self) -> int | None:
        """Return the monotonic time of the next `run_timers`, None when nothing waits."""
        due = self._high_water_due_ns if self._high_water.pending else None
        if self._unsynced:
            sync_ns = next(iter(self._unsynced.values())) + self._patience_ns
            due = sync_ns if due is None else min(due, sync_ns)
        if self._short or not self.reserve.intact:
            due = self._retry_due_ns if due is None else min(due, self._retry_due_ns)
        return due

    def run_timers(self) -> None:
        """Queue due work (high-water file, postponed syncs, streams waiting for room) in `dirty`."""
        now = self._monotonic_ns()
        due = list(takewhile(lambda stream: self._unsynced[stream] + self._patience_ns <= now, self._unsynced))
        for stream in due:
            del self._unsynced[stream]
            stream.awaits_sync = False
            stream.request_sync()
        self._high_water_when_due()
        self._retry_when_due()

    def _high_water_when_due(self) -> None:
        now = self._monotonic_ns()
        if self._high_water.pending and now >= self._high_water_due_ns:
            self._high_water_due_ns = now + self.options.high_water_interval_ns
            self.dirty[self._high_water] = None

    def _entries(self, last: bool) -> Iterable[HighWaterEntry]:
        """Yield the entries of all streams; in the `last` commit of a run exact ones are marked as such."""
        yield from self._refused.values()
        for stream in (*self._deleting.values(), *self.streams.values()):
            files = stream.backing
            if isinstance(files, FileStream) and files.born and not files.left:
                exact = last and stream.healthy and stream.all_durable
                yield files.last_entry(exact) if last else files.high_water_entry(whole=True)

    def _high_water_written(self, gone: list[int]) -> None:
        if gone:
            self._trash.add([f"s{stream_id:06d}.gone" for stream_id in gone])

    # -- space

    def lacks_room(self, stream: Committable) -> None:
        """Have `stream` try again until there is room."""
        if isinstance(stream, StreamStore) and stream not in self._short:
            self._short[stream] = None
            self._retry_due_ns = self._monotonic_ns() + RETRY_NS

    def _retry_when_due(self) -> None:
        """Restore the reserve, and let the streams try again that have something to write without room for it."""
        now = self._monotonic_ns()
        if (self.reserve.intact and not self._short) or now < self._retry_due_ns:
            return
        self._retry_due_ns = now + RETRY_NS
        self.dirty[self.reserve] = None
        short, self._short = self._short, {}
        for stream in short:
            stream.flush()
