"""A stream on disk: appends become frames in a buffer, a commit makes them durable, reads come from settled bytes.

One batch (what one commit takes) lies in one segment: a full segment is sealed when the next batch begins. Removals
are recorded at the end of the batch, coalesced: one DELETES and one FLOOR record, whatever their number. A segment
whose messages are all gone is unlinked from the front after the record that says so is durable; one that is mostly
dead is rewritten under the next generation, and the old file goes with the commit after that.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Literal
from zlib import crc32

from natsctl.store import frame
from natsctl.store.commit import Commit, Host, Settled
from natsctl.store.compaction import Compaction
from natsctl.store.disk import Disk
from natsctl.store.envelope import Envelope
from natsctl.store.errors import StoreError, StoreFull, StorePoisoned
from natsctl.store.file_commit import NO_SPACE, FileCommit, Plan
from natsctl.store.fsck import StreamCheck, WitnessEntry
from natsctl.store.index import StreamIndex
from natsctl.store.journal import Journal
from natsctl.store.message import StoredMessage
from natsctl.store.removals import Removals, Spot
from natsctl.store.segment import Segment
from natsctl.store.segment_file import SegmentCache, SegmentFile
from natsctl.store.segment_reader import SegmentReader
from natsctl.store.stream import StreamStore

_pack_body = frame.BODY.pack
_pack_prefix = frame.PREFIX.pack
_pack_length = frame.HEADER_LENGTH.pack
_MAGIC, _MSG, _MASK, _HAS_HEADER = frame.MAGIC, frame.MSG, frame.MASK, frame.HAS_HEADER


class FileStreamStore(StreamStore):
    """A stream that survives."""

    storage: Literal["file", "memory"] = "file"

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
        release_reserve: Callable[[], bool],
    ) -> None:
        super().__init__(host, key, meta, first_seq)
        self.stream_id = stream_id
        self.folder = f"streams/s{stream_id:06d}"
        self.synced_seq = self.durable_seq
        self._disk = disk
        self._cache = cache
        self._reader = SegmentReader(cache, key, host.report_fault)
        self._new_salt = salt
        self._release = release_reserve
        self._parts: list[bytes] = []
        self._taken_end = 0
        self._has_messages = False
        self._removals = Removals()
        self._sealing: SegmentFile | None = None
        self._compaction = Compaction(cache)
        self._journal = Journal(disk, self.folder, stream_id, salt())
        self._sync_wanted = False
        self._sync_forced = False
        self.synced_mark = (0, 0, 0)
        self._meta_pending: bytes | None = None
        self._durable_meta = meta
        self._birth: Envelope | None = None
        self._leaving = ""
        self.born = False
        self.left = False
        self._file = self._start_file(self._index.active, max(first_seq, 1))

    # -- birth and death

    def be_born(self, envelope: Envelope) -> None:
        """Have the first commit make the folder, with `envelope` as its meta file."""
        self._birth = envelope
        self._parts.append(self._file.head.encode())
        self._mark()

    def leave(self, farewell: str) -> None:
        """Have the next commit move the folder to `farewell`; nothing else is written any more."""
        self._leaving = farewell
        self.left = self._birth is not None
        self.fault = "the stream was deleted"
        self._mark()

    def adopt(self, check: StreamCheck, index: StreamIndex) -> None:
        """Go on from a recovered and repaired folder."""
        file = index.active.body
        assert file is not None and check.envelope is not None
        self._index, self._file = index, file
        self._taken_end = file.size
        self.durable_seq = self.synced_seq = index.last_seq
        self.synced_mark = (file.head.base, file.head.generation, file.size)
        self.last_ts_ns = max((segment.last_ts for segment in index.segments), default=0)
        self.born = True
        if index.active.keys is not None:
            self._file = self._start_file(index.open_segment(index.last_seq + 1), index.last_seq + 1)
            self._parts, self._taken_end = [self._file.head.encode()], 0
        for segment in index.segments[:-1]:
            self._compaction.note(segment)
        if check.journal is not None and check.journal.scan.head is not None:
            scan = check.journal.scan
            self._journal.adopt(check.journal.scan.head, scan.end, len(scan.records))
        if index.segments[0].live == 0 and len(index.segments) > 1:
            self._mark()

    def witness_entry(self) -> WitnessEntry:
        """Return what is known to be synced."""
        journal = self._journal
        return WitnessEntry(
            self.stream_id, self.synced_seq, *self.synced_mark, journal.head.generation, journal.synced_size
        )

    def _start_file(self, segment: Segment, base: int) -> SegmentFile:
        head = frame.FileHead(self._new_salt(), self.stream_id, base, self._index.first_seq, 0)
        file = segment.body = SegmentFile(self.folder, head)
        file.size = frame.FILE_HEAD_BYTES
        return file

    # -- appending

    def append(self, subject: bytes, header: bytes, payload: bytes, ts_ns: int) -> int:
        """Buffer one message and return its sequence; it is not durable until a commit ends.

        `ts_ns` is raised to the previous message's if lower. Raises StorePoisoned (nothing changed).
        """
        return self._append(self._index.last_seq + 1, ts_ns, subject, header, payload)

    def append_run(self, subject: bytes, payloads: Sequence[bytes], ts_ns: int) -> int:
        """Buffer messages without headers on one subject and return the first one's sequence."""
        if self.fault is not None:
            raise StorePoisoned(self.fault)
        self.last_ts_ns = ts_ns = max(ts_ns, self.last_ts_ns)
        first_seq = seq = self._index.last_seq + 1
        parts = self._parts
        if not parts:
            self._begin_batch(seq)
        file, subject_size, synced_seq = self._file, len(subject), self.synced_seq
        salt, offset = file.head.salt, file.size
        sizes, offsets = array("I"), array("I")
        for payload in payloads:
            body = b"".join((_pack_body(_MSG, 0, subject_size, seq, ts_ns, synced_seq), subject, payload))
            length = len(body) + 12
            parts.append(_pack_prefix(_MAGIC, length, crc32(body, (salt + length) & _MASK)))
            parts.append(body)
            sizes.append(length - frame.FRAME_OVER_SIZE)
            offsets.append(offset)
            offset += length
            seq += 1
        self._index.add_run(first_seq, subject, sizes, ts_ns, offsets)
        file.size = offset
        self._has_messages = True
        if self._clean:
            self._mark()
        return first_seq

    def append_at(self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes) -> None:
        """Buffer a message under a given sequence above last_seq; what lies between counts as deleted."""
        if seq <= self._index.last_seq:
            raise ValueError(f"sequence {seq} is not above {self._index.last_seq}")
        self._append(seq, ts_ns, subject, header, payload)

    def _append(self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes) -> int:
        if self.fault is not None:
            raise StorePoisoned(self.fault)
        if ts_ns < self.last_ts_ns:
            ts_ns = self.last_ts_ns
        else:
            self.last_ts_ns = ts_ns
        parts = self._parts
        if not parts:
            self._begin_batch(seq)
        file = self._file
        if header:
            body = b"".join(
                (
                    _pack_body(_MSG, _HAS_HEADER, len(subject), seq, ts_ns, self.synced_seq),
                    subject,
                    _pack_length(len(header)),
                    header,
                    payload,
                )
            )
        else:
            body = b"".join((_pack_body(_MSG, 0, len(subject), seq, ts_ns, self.synced_seq), subject, payload))
        length = len(body) + 12
        parts.append(_pack_prefix(_MAGIC, length, crc32(body, (file.head.salt + length) & _MASK)))
        parts.append(body)
        self._index.add(seq, subject, length - 10, ts_ns, file.size)
        file.size += length
        self._has_messages = True
        if self._clean:
            self._mark()
        return seq

    def _begin_batch(self, seq: int) -> None:
        """Roll to a new segment when the active one is full, or large and all dead."""
        limit = self._host.options.segment_bytes
        active = self._index.active
        if self._file.size < limit and (active.live or self._file.size < max(limit // 8, 4096)):
            return
        if not active.sids:
            return
        active.seal()
        self._index.tidy_subjects()
        self._sealing = self._file
        self._compaction.note(active)
        self._file = self._start_file(self._index.open_segment(seq), seq)
        self._parts.append(self._file.head.encode())
        self._taken_end = 0

    @property
    def waiting_bytes(self) -> int:
        """Return how much is buffered for the commit after the one in flight."""
        return self._file.size - self._taken_end if self._parts else 0

    # -- removing

    def _removing(self, segment: Segment, position: int, seq: int, erase: bool) -> None:
        file = segment.body
        assert file is not None
        self._removals.add(seq, erase)
        file.dead_bytes += segment.sizes[position] + frame.FRAME_OVER_SIZE
        if file.dead_bytes * 2 > file.size and segment.keys is not None:
            self._compaction.note(segment)

    def _floor_moved(self, first_seq: int) -> None:
        self._removals.floor_moved = True

    def _purging_below(self, seq: int) -> None:
        self._removals.floor_moved = True

    def _skipped(self, last_seq: int) -> None:
        self._removals.floor_moved = True

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
        return self.synced_seq < self.durable_seq or self._journal.unsynced

    def request_sync(self) -> None:
        """Have the next commit sync everything, the journal too."""
        self._sync_wanted = True
        self._mark()

    def flush(self) -> None:
        """Have the next commit sync everything, whatever the policy says."""
        self._sync_forced = True
        self.request_sync()

    # -- commit

    def begin_commit(self) -> Commit | None:
        """Take everything buffered; None when a commit is in flight or nothing is to do. Loop thread."""
        if self.fault is not None and self._in_flight is None and (self.left or not self._leaving):
            self._host.dirty.pop(self, None)
            waiting, self._callbacks = self._callbacks, []
            for callback in waiting:
                callback(None if self.left else StorePoisoned(self.fault))
            self._clean = True
            return None
        return super().begin_commit()

    def _take(self, callbacks: list[Settled]) -> Commit:
        plan = Plan(self.folder)
        last_seq = self._index.last_seq
        if self._leaving:
            plan.farewell = self._leaving
            self.close_files()
            return FileCommit(self.durable_seq, callbacks, self._disk, plan, self._release)
        policy = self._host.options.sync
        plan.sync = policy == "always" or self._sync_forced or (self._sync_wanted and policy != "never")
        plan.has_messages, self._has_messages = self._has_messages, False
        if self._sealing is None:
            plan.unlinks, leading = self._compaction.take_unlinks(self._index)
            if leading:
                self._removals.floor_moved = plan.sync = True
        self._take_log(plan)
        if self._birth is not None:
            plan.birth, plan.meta = self.folder + ".new", self._birth._replace(meta=self.meta).encode()
            self._birth = None
            self._meta_pending = None
        elif self._meta_pending is not None:
            plan.meta, self._meta_pending = self._envelope(self._meta_pending), None
        plan.journal = self._journal.take(self._sync_wanted)
        self._sync_wanted = self._sync_forced = False
        if plan.sealed is None and not plan.birth:
            plan.rewrite = self._compaction.plan(self._index, min(self._index.first_seq, self.durable_seq + 1))
        return FileCommit(last_seq, callbacks, self._disk, plan, self._release)

    def _envelope(self, meta: bytes) -> bytes:
        return Envelope(self.stream_id, self.key, meta).encode()

    def _take_log(self, plan: Plan) -> None:
        parts, self._parts = self._parts, []
        file, last_seq = self._file, self._index.last_seq
        spots = [self._plan_erasure(plan, seq) for seq in self._removals.erases]
        removals = self._removals.take(spots, self._index.first_seq, self.synced_seq)
        tail = removals.encode(file.head.salt, last_seq)
        file.tombs.extend(removals.deletes)
        file.size += sum(map(len, tail))
        plan.data = b"".join(parts + tail)
        if not plan.data:
            if plan.sync and file.created and self.synced_seq < self.durable_seq:
                plan.target, plan.offset = file, self._taken_end
            return
        durable, sealing = self.durable_seq, self._sealing
        plan.target = file
        plan.offset = self._taken_end if file.created else 0
        plan.fallback = lambda: b"".join(removals.encode((sealing or file).head.salt, durable))
        if sealing is not None:
            plan.sealed, plan.seal_offset = sealing, sealing.size
            covers = file.head.base - 1
            seal = frame.SEAL_BODY.pack(covers, sealing.size)
            plan.seal = frame.encode(frame.SEAL, covers, 0, self.synced_seq, sealing.head.salt, seal)
            self._sealing = None
        self._taken_end = file.size

    def _plan_erasure(self, plan: Plan, seq: int) -> Spot:
        """Plan to overwrite message `seq` wherever its bytes are; return what its record says of the first place."""
        spot = (seq, 0, 0, 0, 0)
        for segment, position, file in self._compaction.places(self._index, seq):
            length = segment.sizes[position] + frame.FRAME_OVER_SIZE
            self._cache.drop(file)
            plan.erasures.append((file, segment.offsets[position], frame.erased(seq, length, file.head.salt)))
            if not spot[1]:
                spot = (seq, file.head.base, file.head.generation, segment.offsets[position], length)
        return spot

    def _settle(self, commit: Commit, error: OSError | StoreError | None) -> StoreError | None:
        assert isinstance(commit, FileCommit)
        plan = commit.plan
        if error is not None:
            return self._poison(commit, error)
        if plan.farewell:
            self.left = True
            return None
        self.born = True
        target = plan.target
        if plan.sealed is not None and target is not plan.sealed:
            plan.sealed.size = plan.sealed.settled = plan.seal_offset + len(plan.seal)
            plan.sealed.close()
        if target is not None:
            target.created = True
            target.settled = commit.settled_end
            if plan.data:
                target.keep(plan.offset, plan.data, True)
                self._cache.touch(target)
        if plan.journal is not None:
            self._journal.settle(plan.journal, commit.journal_full)
        if plan.rewrite is not None and commit.rewritten:
            self._compaction.swap(self._index, plan.rewrite)
        self._compaction.settle()
        if commit.full:
            return self._refuse(commit)
        if target is not None and (plan.sync or not plan.offset):
            self.synced_seq = max(self.synced_seq, commit.last_seq)
            self.synced_mark = (target.head.base, target.head.generation, target.settled)
        if self._compaction.waits(self._index):
            self._clean = False
        if commit.meta_full:
            self.meta = self._durable_meta
        elif plan.meta is not None and self._meta_pending is None:
            self._durable_meta = self.meta
        if commit.meta_full or commit.journal_full:
            return StoreFull("no space left on the store's disk")
        return None

    def _poison(self, commit: FileCommit, error: OSError | StoreError) -> StoreError:
        if commit.plan.birth and isinstance(error, OSError) and error.errno in NO_SPACE:
            self.fault = "the stream could not be created: no space left"
            self._host.stillborn(self)
            return StoreFull(self.fault)
        if commit.plan.birth:
            self._host.stillborn(self)
        if self.fault is None or commit.plan.farewell:
            self.fault = f"stream {self.key}: write or sync failed: {error}"
            self._host.report_fault(self.fault)
        poisoned = StorePoisoned(self.fault)
        self.refused(self.durable_seq, poisoned)
        waiting, self._callbacks = self._callbacks, []
        commit.callbacks.extend(waiting)
        self._clean = True
        return poisoned

    def _refuse(self, commit: FileCommit) -> StoreError:
        """Take back every message that is not durable, buffered ones too: there is no room for them."""
        self._index.rollback(self.durable_seq, lambda s: s.body is not None and s.body.created)
        file = self._index.active.body
        assert file is not None
        self._file = file
        file.size = self._taken_end = file.settled
        self._parts, self._sealing, self._has_messages = [], None, False
        self._removals.forget_above(self.durable_seq)
        full = StoreFull("no space left on the store's disk")
        self.refused(self.durable_seq, full)
        waiting, self._callbacks = self._callbacks, []
        commit.callbacks.extend(waiting)
        return full

    def close_idle(self) -> bool:
        """Give descriptors back unless bytes still wait for a sync; return whether that was done."""
        if self._in_flight is not None or self.unsynced:
            return False
        self._file.close()
        self._journal.close()
        return True

    def close_files(self) -> None:
        for segment in self._index.segments:
            if segment.body is not None:
                segment.body.close()
                self._cache.drop(segment.body)
        self._journal.close()

    # -- reading

    def _message_at(self, segment: Segment, position: int) -> StoredMessage:
        return self._reader.message_at(segment, position)

    def _messages_at(self, segment: Segment, positions: Sequence[int]) -> list[StoredMessage]:
        return self._reader.messages_at(segment, positions)

    def _ts_at(self, segment: Segment, position: int) -> int:
        file = segment.body
        if file is not None and segment.offsets[position] < file.settled:
            return self._reader.ts_at(segment, position)
        return self.last_ts_ns
