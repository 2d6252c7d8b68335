"""Storage of a stream on disk: its log, its metadata and its journal, made durable by one commit at a time.

A segment without messages is unlinked from the front after its record is durable; one that is
mostly dead is rewritten under the next generation, and the old file goes with the commit after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from natsctl.store.disk import Disk
from natsctl.store.errors import RecordsKeptError, StoreError, StoreFullError
from natsctl.store.file_commit import Commit, CommitPlan, FileCommit, MessagesCommit, Settled
from natsctl.store.file_log import FileLog
from natsctl.store.fsck import EXACT, HighWaterEntry, StreamCheck
from natsctl.store.index import StreamIndex
from natsctl.store.journal import Journal, MetaFile, MetaRecord, entry_of
from natsctl.store.segment_file import SegmentCache

if TYPE_CHECKING:
    from natsctl.store.store import Store

NO_ROOM = "no space left on the store's disk"


class FileStream:
    __slots__ = (
        "_disk", "_has_more", "_host", "_index", "_journal", "_meta", "_name", "_sync_forced", "_sync_wanted",
        "_trash_folder", "born", "folder", "identity", "key", "left", "log", "stream_id",
    )  # fmt: skip

    kind: Literal["file", "memory"] = "file"

    def __init__(
        self,
        host: Store,
        disk: Disk,
        cache: SegmentCache,
        record: MetaRecord,
        index: StreamIndex,
        salt: Callable[[], int],
    ) -> None:
        self.stream_id = record.stream_id
        self.key = record.key
        self.identity = record.identity
        self.log = FileLog(host, cache, record.stream_id, index, salt, record.identity, record.key)
        self.folder = self._name = self.log.folder
        self.born = self.left = False
        """Whether the folder has its name, and whether the stream is deleted."""
        self._host = host
        self._disk = disk
        self._journal = Journal(disk, self.folder, record.stream_id, salt(), record.identity)
        self._meta = MetaFile(record)
        self._index = index
        self._sync_wanted = False
        self._sync_forced = False
        self._trash_folder = ""
        self._has_more = True
        """Whether the next commit may have more to do than the log."""

    # -- birth and death

    def create(self, record: MetaRecord, provisional: bool) -> None:
        """Queue the creation of the folder for the first commit, with `record` as its meta file.

        The same commit gives it its name, or with `provisional` the first one after `complete`.
        """
        self._meta.create(record)
        self.log.begin(provisional)
        self._move(f"{self._name}.new")

    def complete(self) -> None:
        """Let a provisional stream become permanent with the next commit."""
        self.log.provisional = False

    def _move(self, folder: str) -> None:
        self.folder = self._journal.folder = folder
        self.log.move(folder)

    def leave(self) -> None:
        """Queue the move of the folder to the trash for the next commit; nothing else is written any more."""
        self._trash_folder, self._has_more = f"{self._name}.gone", True
        self.left = self._meta.unborn

    @property
    def leaving(self) -> bool:
        return bool(self._trash_folder) and not self.left

    def adopt(self, check: StreamCheck) -> bool:
        """Go on from a recovered and repaired folder; return whether that leaves something to the first commit."""
        self.born = True
        assert check.meta_record is not None
        bases = [int(segment.name[:20]) for segment in (*check.segments, *check.below_floor)]
        generation = check.journal.generation if check.journal is not None else -1
        self._meta.adopt(check.meta_record, check.meta_crc, self.identity, (max(bases), generation))
        scan = check.journal.scan if check.journal is not None else None
        if scan is not None and scan.head is not None:
            self._journal.adopt(scan.head, scan.end, [entry_of(record) for record in scan.records])
        return self.log.adopt(check)

    # -- metadata and journal

    @property
    def meta(self) -> bytes:
        return self._meta.content

    def set_meta(self, meta: bytes) -> None:
        self._meta.set(meta)
        self._has_more = True

    def append_record(self, kind: int, body: bytes) -> None:
        self._journal.append(kind, body)
        self._has_more = True

    def records(self) -> list[tuple[int, bytes]]:
        return self._journal.records()

    def rewrite(self, records: Sequence[tuple[int, bytes]]) -> None:
        self._journal.replace(records)
        self._has_more = True

    @property
    def journal_bytes(self) -> int:
        return self._journal.size

    # -- commits

    @property
    def unsynced(self) -> bool:
        return self.log.unsynced or self._journal.unsynced

    @property
    def has_work(self) -> bool:
        return not self.left and self.log.has_work

    def request_sync(self, force: bool) -> None:
        """Request a sync of everything by the next commit, with `force` whatever the policy says."""
        self._sync_wanted = self._has_more = True
        self._sync_forced |= force

    def take(self, callbacks: list[Settled], durable_seq: int, lazy: bool) -> Commit:
        """Return the commit of everything buffered; with `lazy` it may end before its messages are synced."""
        host, disk = self._host, self._disk
        sync = host.syncs_at_once and not lazy
        if not self._has_more and (commit := self.log.take_messages(callbacks, disk, sync)) is not None:
            return commit
        last_seq, plan = self._index.last_seq, CommitPlan(self.folder, sync=sync)
        self._take_more(plan, durable_seq)
        return FileCommit(durable_seq if plan.trash_folder else last_seq, callbacks, disk, plan, host.reserve)

    def _take_more(self, plan: CommitPlan, durable_seq: int) -> None:
        host, log, wanted = self._host, self.log, self._sync_wanted
        plan.provisional = log.provisional
        if log.unnamed and not log.provisional:
            plan.named = self._name
        if self._trash_folder:
            plan.trash_folder, plan.was_born = self._trash_folder, self.born
            self.close_files()
            return
        plan.sync |= self._sync_forced or (wanted and host.options.sync != "never") or bool(plan.named)
        plan.sync = plan.sync and not plan.provisional
        log.take(plan, durable_seq, self._sync_forced)
        if self._meta.waits:
            plan.meta, plan.creates = self._meta.take(host.identity)
        if log.may_rewrite:
            log.plan_rewrite(plan, durable_seq)
        takes_bytes = plan.unlinks or plan.erasures or plan.rewrite is not None
        plan.journal = self._journal.take(bool(wanted or takes_bytes))  # which has the same content
        self._sync_wanted = self._sync_forced = False
        self._has_more = False

    def settle(self, commit: Commit, durable_seq: int) -> StoreError | None:
        """Apply the outcome of a commit that ran; return the argument of the callbacks.

        If its messages found no room, they and all messages appended since are taken back.
        """
        if isinstance(commit, MessagesCommit):
            if not commit.full:
                self.log.settle_messages(commit)
                return None
            assert commit.whole is not None
            commit = commit.whole
        else:
            assert isinstance(commit, FileCommit)
            if commit.plan.trash_folder:
                self.left = True
                return None
            self._settle_files(commit)
        self.log.settle(commit, durable_seq)
        if commit.records_full or commit.journal_full or commit.meta_full:
            return StoreFullError(NO_ROOM)
        return RecordsKeptError(NO_ROOM) if commit.full else None

    def _settle_files(self, commit: FileCommit) -> None:
        """Apply the outcome of a commit for folder, journal and metadata."""
        plan = commit.plan
        if commit.named:
            self.born, self.log.unnamed = True, False
            self._move(self._name)
        if plan.journal is not None:
            self._journal.keep_file(plan.journal)
            self._journal.settle(plan.journal, commit.journal_full)
        if commit.meta_full:
            self._meta.take_back()
        elif plan.meta is not None:
            self._meta.settle(plan.meta, commit.creates)
        self._has_more |= self.log.unnamed or bool(self._trash_folder) or self._meta.waits or self._journal.pending

    # -- marks for the high-water file, and files

    def high_water_entry(self, whole: bool = False) -> HighWaterEntry:
        """Return the known synced state, with every segment or only new ones since the last time."""
        journal, marks = self._journal, self.log.take_marks()
        return HighWaterEntry(
            self.stream_id,
            self.log.synced_seq,
            *self.log.synced_mark,
            journal.head.generation,
            journal.synced_size,
            journal.head.salt if journal.synced_size else 0,
            *self._meta.mark,
            0,
            self.identity,
            self.key,
            tuple(self.log.marks()) if whole else marks,
        )

    def last_entry(self, nothing_waits: bool) -> HighWaterEntry:
        """Return the known synced state at a stop: exactly the content, if nothing failed or waits."""
        entry = self.high_water_entry(whole=True)
        return entry._replace(flags=EXACT) if nothing_waits and self.log.synced_to_the_end else entry

    def write_indexes(self, tail: bool) -> None:
        """Write the missing index files; with `tail` also the index file of a long last segment.

        Nothing may wait for a commit. A failure of the disk only leaves them out.
        """
        self.log.write_indexes(self._disk, tail)

    def keep_files(self, commit: Commit) -> None:
        """Keep the descriptors that a commit has opened, so that `close_files` closes them."""
        if isinstance(commit, FileCommit) and commit.plan.journal is not None:
            self._journal.keep_file(commit.plan.journal)

    def close_idle(self) -> None:
        """Close the descriptors of open logs; nothing may be in flight or wait for a sync."""
        self.log.close_idle(self._disk)
        self._journal.close()

    def close_files(self) -> None:
        self.log.close_files()
        self._journal.close()
