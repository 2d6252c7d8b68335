"""A stream on disk: what makes its log, its metadata and its journal durable, in one commit at a time.

A segment whose messages are all gone is unlinked from the front after the record that says so is durable; one that is
mostly dead is rewritten under the next generation, and the old file goes with the commit after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

from natsctl.store import frame
from natsctl.store.disk import Disk
from natsctl.store.errors import StoreDamagedError, StoreError, StoreFullError, StorePoisonedError
from natsctl.store.file_commit import NO_SPACE, Commit, Erasure, FileCommit, Host, Plan, Settled
from natsctl.store.file_log import FileLog
from natsctl.store.fsck import EXACT, SegmentMark, StreamCheck, WitnessEntry
from natsctl.store.index import StreamIndex
from natsctl.store.index_file import write_index
from natsctl.store.journal import Journal, MetaRecord, entry_of
from natsctl.store.recovery import segment_of
from natsctl.store.segment_file import SegmentCache, SegmentFile


class FileStreamStore(FileLog):
    """A stream that survives."""

    def __init__(
        self,
        host: Host,
        disk: Disk,
        cache: SegmentCache,
        stream_id: int,
        key: str,
        meta: bytes,
        first_seq: int,
        salt: Callable[[], int],
        identity: bytes,
        release_reserve: Callable[[], bool],
    ) -> None:
        super().__init__(host, cache, stream_id, key, meta, first_seq, salt, identity)
        self._disk = disk
        self._release = release_reserve
        self._journal = Journal(disk, self.folder, stream_id, salt(), identity)
        self._sync_wanted = False
        self._sync_forced = False
        self._postponed = False
        """Whether erasures wait for a commit that has more to do than take messages."""
        self._names_loose = False
        """Whether a file that was unlinked could still come back."""
        self._durable_ts_ns = 0
        self._meta_pending: bytes | None = None
        self._durable_meta = meta
        self._birth: MetaRecord | None = None
        self._meta_record = MetaRecord(stream_id, key, meta, identity=identity)
        """Content of the meta file, as if the commit in flight had ended."""
        self._meta_mark = (0, 0)
        """Version and checksum of the meta file."""
        self._unwitnessed: list[SegmentMark] = []
        """Segments that were made durable since the last entry for the witness."""
        self._leaving = ""
        self.born = False
        self.left = False

    # -- birth and death

    def create_folder(self, meta_record: MetaRecord) -> None:
        """Queue the creation of the folder for the first commit, with `meta_record` as its meta file."""
        self._birth = self._meta_record = meta_record
        self._parts.append(self._file.head.encode())
        self._mark()

    def leave(self, trash_folder: str) -> None:
        """Queue the move of the folder to `trash_folder` for the next commit; nothing else is written any more."""
        self._leaving = trash_folder
        self.left = self._birth is not None
        self.fault = "the stream was deleted"
        self._mark()

    def adopt(self, check: StreamCheck, index: StreamIndex) -> None:
        """Go on from a recovered and repaired folder."""
        file = index.active.body
        assert file is not None and check.meta_record is not None
        self._index, self._file = index, file
        self._taken_end = file.size
        self.durable_seq = self.synced_seq = index.last_seq
        self.synced_mark = (file.head.base, file.head.generation, file.size)
        self.last_ts_ns = next((segment.last_ts for segment in reversed(index.segments) if segment.last_ts), 0)
        self._durable_ts_ns = self.last_ts_ns
        self.born = True
        self._adopt_meta_record(check)
        if index.active.keys is not None:
            self._file = self._start_file(index.open_segment(index.last_seq + 1), index.last_seq + 1)
            self._parts, self._taken_end = [self._file.head.encode()], 0
        self._compaction.note_all(index)
        self._adopt_remains(check)
        scan = check.journal.scan if check.journal is not None else None
        if scan is not None and scan.head is not None:
            self._journal.adopt(scan.head, scan.end, [entry_of(record) for record in scan.records])
        if index.segments[0].live == 0 and len(index.segments) > 1:
            self._mark()

    def _adopt_meta_record(self, check: StreamCheck) -> None:
        """Continue from the meta file; where it has no identity, note which files cannot have one either."""
        assert check.meta_record is not None
        self._meta_mark = (check.meta_record.version, check.meta_crc)
        self._meta_record = check.meta_record._replace(replaces=0)
        if check.meta_record.identity == frame.NO_IDENTITY:
            bases = [int(found.name[:20]) for found in (*check.segments, *check.below_floor)]
            generation = check.journal.generation if check.journal is not None else -1
            self._meta_record = self._meta_record._replace(identity=self.identity, unmarked=(max(bases), generation))

    def _adopt_remains(self, check: StreamCheck) -> None:
        """Leave to the first commit what takes bytes away that the owner may want to look at before."""
        self._below_floor = [segment_of(self.folder, found) for found in check.below_floor]
        for segment in self._below_floor:
            segment.head, segment.live = len(segment.sids), 0
        files = [segment.body for segment in self._remaining() if segment.body is not None]
        for file in (segment.body for segment in self._below_floor):
            assert file is not None
            file.indexed = False  # the repair has taken it away
        self._compaction.retire(self._below_floor)
        by_path = {file.path: file for file in files}
        self._unerased = [Erasure(by_path[f"{self.folder}/{name}"], at, data) for name, at, data in check.unerased]
        if self._below_floor or self._unerased:
            self._mark()

    def witness_entry(self, whole: bool = False) -> WitnessEntry:
        """Return what is known to be synced, with every segment or with those that are new since the last time."""
        journal = self._journal
        marks, self._unwitnessed = self._unwitnessed, []
        return WitnessEntry(
            self.stream_id,
            self.synced_seq,
            *self.synced_mark,
            journal.head.generation,
            journal.synced_size,
            journal.head.salt if journal.synced_size else 0,
            *self._meta_mark,
            0,
            self.identity,
            self.key,
            tuple(self._marks() if whole else marks),
        )

    def _marks(self) -> Iterator[SegmentMark]:
        """Yield what is there of segments: first those that go, as the record that lets them go may not be synced."""
        for segment in self._compaction.old_segments():
            if segment.body is not None:
                head = segment.body.head
                yield SegmentMark(head.base, 0, head.generation, head.salt)
        ends = [base - 1 for base in self._index.bases[1:]] + [0]
        for segment, covers in zip(self._index.segments, ends, strict=True):
            if segment.body is not None and segment.body.created:
                head = segment.body.head
                yield SegmentMark(head.base, covers, head.generation, head.salt)

    def last_entry(self) -> WitnessEntry:
        """Return what is known to be synced at a stop: exactly what is there, if nothing failed."""
        entry = self.witness_entry(whole=True)
        file = self._last_file()
        exact = (
            self.fault is None
            and self._clean
            and not self.unsynced
            and (file is None or self.synced_mark == (file.head.base, file.head.generation, file.settled))
        )
        return entry._replace(flags=EXACT) if exact else entry

    def _last_file(self) -> SegmentFile | None:
        """Return the segment that the next message goes to, if it is there, else the one before."""
        made = [segment.body for segment in self._index.segments[-2:] if segment.body is not None]
        return next((file for file in reversed(made) if file.created), None)

    # -- metadata and journal

    def set_meta(self, meta: bytes) -> None:
        """Replace the metadata with the next commit."""
        self._check_writable()
        self.meta = self._meta_pending = meta
        self._mark()

    def append_record(self, kind: int, body: bytes) -> None:
        """Buffer one journal record."""
        self._check_writable()
        self._journal.append(kind, body)
        self._mark()

    def records(self) -> list[tuple[int, bytes]]:
        """Return the journal as (kind, body) in order, buffered ones included."""
        return self._journal.records()

    def rewrite(self, records: Sequence[tuple[int, bytes]]) -> None:
        """Replace the whole journal with the next commit."""
        self._check_writable()
        self._journal.replace(records)
        self._mark()

    @property
    def journal_bytes(self) -> int:
        """Return the journal file's length."""
        return self._journal.size

    @property
    def unsynced(self) -> bool:
        """Return whether something written waits for a sync that a policy postponed."""
        return self.synced_seq < self.durable_seq or self._log_unsynced or self._journal.unsynced

    @property
    def all_durable(self) -> bool:
        """Return whether nothing is buffered, being committed or left for a later sync."""
        return super().all_durable and not self.unsynced

    def request_sync(self) -> None:
        """Request a sync of everything, the journal too, by the next commit."""
        self._sync_wanted = True
        self._mark()

    def flush(self) -> None:
        """Request a sync of everything by the next commit, whatever the policy says."""
        self._sync_forced = True
        self.request_sync()

    # -- commit

    def begin_commit(self) -> Commit | None:
        """Take everything buffered; None when a commit is in flight or nothing is to do. Loop thread."""
        if self.fault is not None and self._in_flight is None and (self.left or not self._leaving):
            self._host.dirty.pop(self, None)
            waiting, self._callbacks = self._callbacks, []
            for callback in waiting:
                callback(None if self.left else StorePoisonedError(self.fault))
            self._clean = True
            return None
        return super().begin_commit()

    def _take(self, callbacks: list[Settled]) -> Commit:
        plan = Plan(self.folder)
        last_seq = self._index.last_seq
        if self._leaving:
            plan.trash_folder, plan.was_born = self._leaving, self.born
            self.close_files()
            return FileCommit(self.durable_seq, callbacks, self._disk, plan, self._release)
        policy = self._host.options.sync
        at_once = policy == "always" and not self.lazy
        plan.sync = at_once or self._sync_forced or (self._sync_wanted and policy != "never")
        plan.has_messages, self._has_messages, plan.last_ts_ns = self._has_messages, False, self.last_ts_ns
        if self._sealing is None:
            plan.unlinks, leading = self._compaction.take_unlinks(self._index)
            if leading:
                self._removals.floor_moved = plan.sync = True
        self._take_log(plan)
        plan.asked = len(plan.erasures)
        self._below_floor = []
        if not self._postponed or plan.erasures or plan.sealed is not None or self._sync_forced:
            for erasure in self._unerased:
                self._cache.drop(erasure.file)
            plan.erasures += self._unerased
            self._unerased = []
        self._names_loose |= bool(plan.unlinks)
        if plan.erasures and self._names_loose:
            plan.sync_names, self._names_loose = True, False
        if self._birth is not None:
            plan.birth, plan.meta = self.folder + ".new", self._birth._replace(meta=self.meta).encode()
            self._birth = None
            self._meta_pending = None
        elif self._meta_pending is not None:
            plan.meta, self._meta_pending = self._next_meta_record(self._meta_pending).encode(), None
        if plan.sealed is None and not plan.birth:
            plan.rewrite = self._compaction.plan(self._index, min(self._index.first_seq, self.durable_seq + 1))
        takes_bytes = bool(plan.unlinks or plan.erasures) or plan.rewrite is not None
        plan.journal = self._journal.take(self._sync_wanted or takes_bytes)  # which has the same content
        self._sync_wanted = self._sync_forced = False
        return FileCommit(last_seq, callbacks, self._disk, plan, self._release)

    def _next_meta_record(self, meta: bytes) -> MetaRecord:
        version = self._meta_mark[0] + 1
        return self._meta_record._replace(store=self._host.identity, meta=meta, replaces=0, version=version)

    def _settle(self, commit: Commit, error: OSError | StoreError | None) -> StoreError | None:
        assert isinstance(commit, FileCommit)
        plan = commit.plan
        if plan.journal is not None:
            self._journal.keep_file(plan.journal)
        if error is not None:
            return self._poison(commit, error)
        if plan.trash_folder:
            self.left = True
            return None
        self.born = True
        target = plan.target
        if plan.sealed is not None and target is not plan.sealed:
            plan.sealed.size = plan.sealed.settled = plan.seal_offset + len(plan.seal)
            plan.sealed.close()
        if target is not None:
            kept_seq = self.durable_seq if commit.full else commit.last_seq
            target.floor = max(target.floor, min(plan.floor, kept_seq + 1))
            target.tombs.extend([seq for seq in plan.tombs if seq <= kept_seq] if commit.full else plan.tombs)
            if not target.created:
                self._unwitnessed.append(SegmentMark(target.head.base, 0, target.head.generation, target.head.salt))
            target.created = True
            target.settled = commit.settled_end
            if plan.data:
                target.keep(plan.offset, plan.data, True)
                self._cache.touch(target)
        if plan.journal is not None:
            self._journal.settle(plan.journal, commit.journal_full)
        if plan.rewrite is not None and commit.rewritten:
            new = plan.rewrite.new.head
            self._unwitnessed.append(SegmentMark(new.base, plan.rewrite.covers_seq, new.generation, new.salt))
            self._compaction.swap(self._index, plan.rewrite)
        self._compaction.settle()
        if plan.erasures:
            self._settle_erasures(commit)
        self.full = commit.full or commit.meta_full or commit.journal_full
        if commit.full:
            return self._refuse(commit)
        self._durable_ts_ns = plan.last_ts_ns
        if target is not None and (plan.sync or not plan.offset):
            self.synced_seq = max(self.synced_seq, commit.last_seq)
            self.synced_mark = (target.head.base, target.head.generation, target.settled)
        if self._compaction.waits(self._index):
            self._clean = False
        if plan.meta is not None and not commit.meta_full:
            self._meta_mark = (self._meta_mark[0] + (not plan.birth), crc32(plan.meta))
        if commit.meta_full:
            self.meta = self._durable_meta
        elif plan.meta is not None and self._meta_pending is None:
            self._durable_meta = self.meta
        if commit.meta_full or commit.journal_full:
            return StoreFullError("no space left on the store's disk")
        return None

    def _settle_erasures(self, commit: FileCommit) -> None:
        """Leave the failed erasures to a later commit, and report them to their callers."""
        erasures = commit.plan.erasures
        for file in {erasure.file for erasure in erasures}:
            self._cache.drop(file)  # what was read meanwhile, or written by this commit, holds what was erased
        self._postponed = bool(commit.unerased)
        self._unerased += commit.unerased
        for error in commit.unerased.values():
            if isinstance(error, StoreDamagedError):
                self._host.report_fault(str(error))
        asked = [commit.unerased[spot] for spot in erasures[: commit.plan.asked] if spot in commit.unerased]
        if asked:
            waiting, commit.callbacks = commit.callbacks, []
            for callback in waiting:
                callback(asked[0])

    def _poison(self, commit: FileCommit, error: OSError | StoreError) -> StoreError:
        if commit.plan.birth:
            self.close_files()
            self._host.creation_failed(self.key, self)
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                self.fault = "the stream could not be created: no space left"
                return StoreFullError(self.fault)
        if self.fault is None or commit.plan.trash_folder:
            self.fault = f"stream {self.key}: write or sync failed: {error}"
            self._host.report_fault(self.fault)
        poisoned = StorePoisonedError(self.fault)
        self.refused(self.durable_seq, poisoned)
        if self._leaving and not commit.plan.trash_folder:
            return poisoned  # the deletion was asked for meanwhile, and comes next
        waiting, self._callbacks = self._callbacks, []
        commit.callbacks.extend(waiting)
        self._clean = True
        return poisoned

    def _refuse(self, commit: FileCommit) -> StoreError:
        """Take back every message that is not durable, buffered ones too: there is no room for them."""
        self._index.rollback(self.durable_seq, lambda s: s.body is not None and s.body.created)
        active, file = self._index.active, self._index.active.body
        assert file is not None
        self._file, self.last_ts_ns = file, self._durable_ts_ns
        active.last_ts = self.last_ts_ns if active.sids else 0
        file.size = self._taken_end = file.settled
        self._parts, self._sealing, self._has_messages = [], None, False
        self._removals.forget_above(self.durable_seq)
        full = StoreFullError("no space left on the store's disk")
        self.refused(self.durable_seq, full)
        waiting, self._callbacks = self._callbacks, []
        commit.callbacks.extend(waiting)
        return full

    def write_indexes(self, tail: bool) -> None:
        """Write the index files that are missing, with `tail` that of a long last segment too.

        Nothing may wait for a commit. A failure of the disk only leaves them out.
        """
        index, long = self._index, self._host.options.tail_index_bytes
        unerased = {erasure.file for erasure in self._unerased}  # the next start must find what is still to be done
        for at, segment in enumerate(index.segments):
            file, last = segment.body, at == len(index.segments) - 1
            if file is None or not file.created or file in unerased or (last and not (tail and file.size >= long)):
                continue
            if last or not file.indexed:
                covers = index.last_seq if last else index.bases[at + 1] - 1
                image = self._image(segment, file.size, covers, sealed=segment.keys is not None)
                file.indexed = write_index(self._disk, self.folder, image)

    def close_idle(self) -> bool:
        """Give descriptors back unless bytes still wait for a sync; return whether that was done."""
        if self._in_flight is not None or self.unsynced:
            return False
        self._file.close()
        self._journal.close()
        return True

    def close_files(self) -> None:
        """Give every descriptor back, also those of files that a failed commit was to unlink."""
        for segment in [*self._index.segments, *self._compaction.old_segments()]:
            if segment.body is not None:
                segment.body.close()
                self._cache.drop(segment.body)
        self._journal.close()
