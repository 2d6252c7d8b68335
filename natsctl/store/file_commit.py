"""One group commit: the data buffered when it began, the disk work, and the state that it settles when it ends.

The disk work of a file stream has the one order that keeps every promise. New folders and files get their names synced
before anything in them counts. A stream's folder is built as `.new`; a start removes such a folder. So nothing of a
provisional stream has to be synced, until the commit that gives the folder its name: it syncs everything first. For
other streams a segment is sealed and synced before the next one exists. Messages and the records about them go out in
one write and one sync; only then are bytes erased, files unlinked or segments rewritten, so that a crash in between
finds a record that explains the files.
No space for the messages: they are taken back, and only the records (deletes, purges) are written, into the reserve if
need be. While a part of the reserve is in use messages are not even tried. No space for the records either: nothing of
the commit is done, and the next one repeats them. Any other failure leaves the stream poisoned; a sync is never tried
twice.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from natsctl.store.compaction import Rewrite
from natsctl.store.disk import Disk, File
from natsctl.store.errors import RecordsKeptError, StoreDamagedError, StoreError, StoreFullError
from natsctl.store.index_file import IndexImage, write_index
from natsctl.store.packed import PackedFile, altered, open_segment, overwritten, pack
from natsctl.store.segment_file import SegmentFile

if TYPE_CHECKING:
    from natsctl.store.reserve import Reserve


Settled = Callable[[StoreError | None], None]
Append = tuple[int, bytes, int, bool]
"""Descriptor, data and offset of a write to the end of a file, and whether a sync follows."""


class Commit:
    """The work of one committable. `run` may be called once, in any thread; it touches only the disk."""

    __slots__ = ("callbacks", "last_seq")

    io = False
    """Whether `run` does disk I/O; False means that it may be called in line."""
    is_small = False
    """Whether `run` does no more than append a little to files that are there, and sync them."""
    syncs = True
    """Whether `run` waits for a sync."""
    creates = removes = False
    """Whether it creates the files of a new stream, or removes the files of a deleted one."""
    only_messages = False
    """Whether `run` does no more than append messages to a file that is there, and sync it."""
    full = False
    """Whether messages found no room."""

    def __init__(self, last_seq: int, callbacks: list[Settled]) -> None:
        self.last_seq = last_seq
        self.callbacks = callbacks

    def take_appends(self) -> tuple[Append, ...]:
        """Return all the work of `run` if it only appends to open files with descriptors, else nothing."""
        return ()

    @property
    def found_no_room(self) -> bool:
        """Return whether a part of it found no room on the disk and was undone."""
        return False

    @property
    def lacks_room(self) -> bool:
        return False

    @property
    def kept(self) -> bool:
        """Return whether messages up to `last_seq` are on disk, even if something else found no room."""
        return True

    def run(self) -> None:
        """Do the disk work; raises OSError, for the caller to pass to finish_commit."""


class Committable(Protocol):
    """Interface of the members of `Store.dirty` for the shell."""

    def begin_commit(self) -> Commit | None:
        """Return the commit of everything buffered; None while one is in flight or without work. Loop thread."""

    def finish_commit(self, commit: Commit, error: OSError | StoreError | None = None) -> None:
        """Apply the outcome of `commit.run`. Loop thread."""


NO_TOMBS: Final = array("Q")
"""The removed sequences of a commit without any; nothing is added to it."""
SMALL_BYTES = 16 * 1024
"""Max size of a small commit: about a hundred messages of 128 bytes."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A full disk, an exceeded quota, and a limit on file sizes (RLIMIT_FSIZE): nothing was written; it may work later."""


class Erasure(NamedTuple):
    """Bytes that replace an erased message."""

    file: SegmentFile
    offset: int
    data: bytes


class JournalWork(msgspec.Struct):
    """Bytes for the journal: appended at `offset` of `path`, or, with `encode`, a whole new file."""

    path: str
    offset: int
    data: bytes
    sync: bool
    replaces: str = ""
    encode: Callable[[], bytes] | None = None
    """Returns the bytes of a whole new file: the disk work makes them, for they may be many."""
    file: File | None = None
    unsynced_bytes: int = 0
    """Bytes of earlier commits that a sync of this one covers too."""


class CommitPlan(msgspec.Struct):
    """Everything one commit has to do; absent parts are skipped."""

    folder: str
    creates: bool = False
    """Whether the folder has to be made."""
    provisional: bool = False
    """Whether nothing of the stream counts yet, so that a later commit syncs it."""
    named: str = ""
    """New name of a folder under construction, once all of this is done."""
    trailing: list[SegmentFile] = msgspec.field(default_factory=list)
    """Sealed segments that earlier commits left to be synced."""
    target: SegmentFile | None = None
    offset: int = 0
    data: bytes = b""
    zeros: int = 0
    """Number of zeros to write after `data`, ahead of later messages."""
    sync: bool = True
    unsynced_bytes: int = 0
    """Bytes of earlier commits in `target` that a sync of this one covers too."""
    sealed: SegmentFile | None = None
    seal_offset: int = 0
    seal: bytes = b""
    fallback: Callable[[SegmentFile], bytes] = lambda file: b""
    """Return only the records for a file, clamped to the remaining messages; called without room for the messages."""
    rolls_alone: bool = False
    """Whether the seal is written even without the messages: nothing in `sealed` is live, so that its file can go."""
    has_messages: bool = False
    last_ts_ns: int = 0
    """The time of the newest message once this commit is done."""
    floor: int = 0
    """Sequence in this commit's FLOOR record, 0 without one; never above the messages that stay."""
    meta: bytes | None = None
    journal: JournalWork | None = None
    erasures: list[Erasure] = msgspec.field(default_factory=list)
    asked: int = 0
    """Number of erasures that a caller waits for; the others are from earlier commits."""
    tombs: array[int] = NO_TOMBS
    """Sequences that this commit records as removed."""
    unlinks: list[str] = msgspec.field(default_factory=list)
    sync_names: bool = False
    """Whether unlinked files, now or before, must not reappear: they could hold erased messages."""
    rewrite: Rewrite | None = None
    image: IndexImage | None = None
    """Content of the index file of the sealed segment."""
    trash_folder: str = ""
    """New name of the folder, for a stream's last commit."""
    was_born: bool = True
    """Whether the folder has its name, so that it is there."""


def no_room() -> OSError:
    return OSError(errno.ENOSPC, "the space that is left is for acks, deletes and purges")


def sync_error(error: OSError) -> OSError:
    return OSError(errno.EIO, f"sync failed: {error}")


def write_all(file: File, data: bytes, offset: int) -> None:
    done = file.pwrite(data, offset)
    if done == len(data):
        return
    view = memoryview(data)
    while done < len(data):
        wrote = file.pwrite(view[done:], offset + done)
        if not wrote:
            raise OSError(errno.ENOSPC, "write took no bytes")
        done += wrote


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Put `data` at `path` in one step, durable when this returns."""
    temporary = path + ".tmp"
    if disk.exists(temporary):
        disk.unlink(temporary)
    file = disk.open(temporary, create=True)
    try:
        write_all(file, data, 0)
        file.sync()
    except OSError:
        file.close()
        disk.unlink(temporary)
        raise
    file.close()
    try:
        disk.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            disk.unlink(temporary)
        raise
    try:
        disk.fsync_dir(path.rpartition("/")[0])
    except OSError as error:  # the file is replaced: not even a lack of space leaves everything unchanged
        raise sync_error(error) from error


class FileCommit(Commit):
    """One group commit of a file stream. After `run` without error, `full` and `meta_full` say what had no room."""

    io = True
    journal_full = meta_full = rewritten = False
    named = False
    """Whether the folder got its name."""
    records_full = False
    """Whether not even the records found room: the next commit has to do all of the work."""

    def __init__(self, last_seq: int, callbacks: list[Settled], disk: Disk, plan: CommitPlan, reserve: Reserve) -> None:
        self.last_seq = last_seq
        self.callbacks = callbacks
        self._disk = disk
        self._reserve = reserve
        self.plan = plan
        size = len(plan.data)
        self.settled_end = plan.offset + size
        self.unerased: dict[Erasure, StoreError] = {}
        """Erasures in compressed or encrypted segments that could not be done, and why; their records are on disk."""
        self.creates, self.removes = plan.creates, bool(plan.trash_folder)
        journal = plan.journal
        self.syncs = (plan.sync and plan.target is not None) or (journal is not None and journal.sync)
        only_appends = self._finds_only_appends()
        if journal is not None:
            size += len(journal.data) + (journal.unsynced_bytes if journal.sync else 0)
        self._only_appends = only_appends
        if plan.zeros and (not only_appends or disk.encrypted):
            plan.zeros = 0
        self.is_small = only_appends and size + plan.zeros + plan.unsynced_bytes <= SMALL_BYTES

    def _finds_only_appends(self) -> bool:
        """Return whether `run` does no more than append to files that are open, and sync them."""
        plan = self.plan
        if plan.sealed is not None or plan.unlinks or plan.erasures or plan.meta or plan.rewrite or plan.trash_folder:
            return False
        if plan.named or plan.trailing:
            return False
        journal, target = plan.journal, plan.target
        if target is not None and (target.writer is None or not plan.offset):
            return False
        if journal is not None and (journal.encode is not None or journal.file is None):
            return False
        return self._reserve.intact or not plan.has_messages

    def take_appends(self) -> tuple[Append, ...]:
        if not self._only_appends:
            return ()
        plan = self.plan
        target, journal = plan.target, plan.journal
        appends: tuple[Append, ...] = ()
        if target is not None and (writer := target.writer) is not None:
            data = plan.data + bytes(plan.zeros) if plan.zeros else plan.data
            fd, data, offset = writer.placed(data, plan.offset)
            appends = ((fd, data, offset, plan.sync),) if fd >= 0 else ()
        if journal is not None and journal.file is not None:
            append = (*journal.file.placed(journal.data, journal.offset), journal.sync)
            appends = (*appends, append) if append[0] >= 0 and (appends or target is None) else ()
        return appends

    @property
    def found_no_room(self) -> bool:
        """Return whether messages, metadata or journal records found no room and were taken back."""
        return self.full or self.meta_full or self.journal_full

    @property
    def lacks_room(self) -> bool:
        if self.records_full or self.journal_full:
            return True
        return bool(self.unerased) and any(isinstance(fault, StoreFullError) for fault in self.unerased.values())

    @property
    def kept(self) -> bool:
        """Return whether the messages are on disk, even if metadata or journal records found no room."""
        return not self.full

    def run(self) -> None:
        """Do the disk work; raises OSError when the stream must be fenced off."""
        plan = self.plan
        if plan.trash_folder:
            self._leave()
            return
        refused = (plan.has_messages or plan.creates) and not (self._reserve.intact or self._reserve.restore())
        if plan.creates:
            if refused:
                raise no_room()
            self._begin_folder()
        if plan.target is not None:
            try:
                if refused:
                    raise no_room()
                self._write_log()
            except OSError as error:
                if error.errno not in NO_SPACE or plan.creates:
                    raise
                self._write_records_only()
                if self.records_full:
                    self.journal_full, self.meta_full = plan.journal is not None, plan.meta is not None
                    return
        if plan.journal is not None:
            self._write_journal(plan.journal)
        for segment in plan.trailing:
            self._sync(self._writer(segment, create=False))
        if plan.meta is not None and not plan.creates:
            self._write_meta(plan.meta, refused)
        if plan.erasures:
            self._erase()
        for path in plan.unlinks:
            self._disk.unlink(path)
        if plan.sync_names:
            self._disk.fsync_dir(plan.folder)
        if plan.rewrite is not None:
            self._rewrite(plan.rewrite)
        if plan.image is not None and plan.sealed is not None and not self.full:
            plan.sealed.indexed = write_index(self._disk, plan.folder, plan.image)
        if plan.named and not self.found_no_room:
            self._disk.fsync_dir(plan.folder)
            self._disk.rename(plan.folder, plan.named)
            self._disk.fsync_dir("streams")
            self.named = True

    def _begin_folder(self) -> None:
        plan, disk = self.plan, self._disk
        disk.mkdir(plan.folder)
        file = disk.open(f"{plan.folder}/meta", create=True)
        try:
            write_all(file, plan.meta or b"", 0)
            file.sync()
        finally:
            file.close()

    def _writer(self, segment: SegmentFile, create: bool) -> File:
        if segment.writer is None:
            segment.writer = self._disk.open(segment.path, create=create)
        return segment.writer

    def _write_log(self) -> None:
        plan = self.plan
        assert plan.target is not None
        if plan.sealed is not None:
            sealed = self._writer(plan.sealed, create=False)
            write_all(sealed, plan.seal, plan.seal_offset)
            if plan.sealed.zeros_end > (end := plan.seal_offset + len(plan.seal)):
                self._cut(plan.sealed, end)
            if plan.provisional:
                sealed.start_writeback()
            else:
                self._sync(sealed)
        create = not plan.offset
        file = self._writer(plan.target, create)
        self._write_data(file, plan.target)
        if plan.sync or (create and not plan.provisional):
            self._sync(file)
        if create and not (plan.provisional or plan.named):
            self._disk.fsync_dir(plan.folder)

    def _write_data(self, file: File, target: SegmentFile) -> None:
        """Write the messages, and zeros after them if there is room for both."""
        plan = self.plan
        try:
            write_all(file, plan.data + bytes(plan.zeros) if plan.zeros else plan.data, plan.offset)
        except OSError as error:
            if error.errno not in NO_SPACE or not plan.zeros:
                raise
            self._cut(target, plan.offset)
            write_all(file, plan.data, plan.offset)

    def _cut(self, segment: SegmentFile, end: int) -> None:
        """Shorten a segment to `end`, and by the zeros ahead of its messages."""
        self._writer(segment, create=False).truncate(end)
        self.plan.zeros = segment.zeros_end = 0

    def _sync(self, file: File) -> None:
        """Sync once; a failure is final even if reported as lack of space."""
        try:
            file.sync()
        except OSError as error:
            raise sync_error(error) from error

    def _write_records_only(self) -> None:
        """Revert the messages of this commit, erased ones too, and write the rest of it."""
        plan = self.plan
        if not plan.has_messages and self._spent(self._write_log):
            return
        self.full = True
        target = plan.target
        assert target is not None
        asked = [e for e in plan.erasures[: plan.asked] if e.file is not target or e.offset < plan.offset]
        plan.erasures, plan.asked = asked + plan.erasures[plan.asked :], len(asked)
        plan.sync = True
        if (plan.sealed is None or plan.rolls_alone) and self._put_records(target):
            return
        self._take_back(target)
        if plan.sealed is not None:
            self._cut(plan.sealed, plan.seal_offset)
            target, plan.target = plan.sealed, plan.sealed
            plan.offset = plan.seal_offset
            plan.sealed = None
            if self._put_records(target):
                return
            self._take_back(target)
        self.records_full = True
        plan.data = b""
        self.settled_end = plan.offset

    def _put_records(self, target: SegmentFile) -> bool:
        """Write the commit without the messages; return False, with nothing written, if there is no room for that."""
        plan = self.plan
        plan.data = (b"" if plan.offset else target.head.encode()) + plan.fallback(target)
        self.settled_end = plan.offset + len(plan.data)
        return self._spent(self._write_log)

    def _take_back(self, target: SegmentFile) -> None:
        """Remove what this commit has written of the segment that it writes to."""
        plan = self.plan
        if plan.offset:
            self._cut(target, plan.offset)
            return
        target.close()
        if self._disk.exists(target.path):
            self._disk.unlink(target.path)
            self._disk.fsync_dir(plan.folder)  # or it could reappear after a segment without its seal

    def _spent(self, write: Callable[[], None]) -> bool:
        """Write with the reserve if need be; return False, with nothing written, if even that does not suffice."""
        target = self.plan.target
        assert target is not None

        def attempt() -> None:
            self._take_back(target)
            write()

        try:
            self._reserve.spend(attempt)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return False
        return True

    def _write_journal(self, work: JournalWork) -> None:
        def attempt() -> None:
            try:
                self._put_journal(work)
            except OSError:
                if work.file is not None:
                    work.file.truncate(work.offset)
                raise

        try:
            self._reserve.spend(attempt)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self.journal_full = True
            return
        if work.sync and work.file is not None:
            self._sync(work.file)

    def _put_journal(self, work: JournalWork) -> None:
        if work.encode is not None:
            work.data = work.encode()
            replace_file(self._disk, work.path, work.data)
            if work.replaces and work.replaces != work.path:
                self._disk.unlink(work.replaces)
            return
        if work.file is None:
            work.file = self._disk.open(work.path)
        write_all(work.file, work.data, work.offset)

    def _write_meta(self, meta: bytes, refused: bool) -> None:
        """Replace the metadata; the rest of a used reserve is not for them."""
        try:
            if refused or not (self._reserve.intact or self._reserve.restore()):
                raise no_room()
            replace_file(self._disk, f"{self.plan.folder}/meta", meta)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self.meta_full = True

    def _erase(self) -> None:
        """Overwrite erased frames; their ERASE records are durable, so a torn overwrite can be finished later."""
        for segment, group in _by_segment(self.plan.erasures).items():
            if not self._disk.exists(segment.path):  # unlinked since a commit had no room to erase in it
                continue
            if segment.packed or self._disk.encrypted:
                self._erase_in_copy(segment, group)
                continue
            if segment is self.plan.target:
                file, own = self._writer(segment, create=False), False
            else:
                file, own = self._disk.open(segment.path), True
            try:
                for offset, data in group:
                    write_all(file, data, offset)
                self._sync(file)
            except OSError as error:  # a file system that does not overwrite in place has no room for it
                if error.errno not in NO_SPACE:
                    raise
                self._postpone(segment, group)
            finally:
                if own:
                    file.close()

    def _erase_in_copy(self, segment: SegmentFile, group: Sequence[tuple[int, bytes]]) -> None:
        """Replace a compressed or encrypted segment by one without the erased bytes.

        `unerased` keeps what could not be done.
        """
        if not self._reserve.has_room_for(segment.size):
            self._postpone(segment, group)
            return
        file = open_segment(self._disk, segment.path)
        try:
            if isinstance(file, PackedFile):
                data = altered(file, group)
            else:
                data = overwritten(file.pread(file.size(), 0), group)
        finally:
            file.close()
        if data is None:
            damaged = StoreDamagedError(f"{segment.path}: the message to erase is in a damaged block")
            self.unerased.update((Erasure(segment, *spot), damaged) for spot in group)
            return
        try:
            replace_file(self._disk, segment.path, data)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._postpone(segment, group)
            return
        segment.close()

    def _postpone(self, segment: SegmentFile, group: Sequence[tuple[int, bytes]]) -> None:
        """Leave erasures to a later commit: there is no room for them."""
        full = RecordsKeptError("no space left on the store's disk")
        self.unerased.update((Erasure(segment, *spot), full) for spot in group)

    def _rewrite(self, work: Rewrite) -> None:
        """Write segments without their dead frames next to the old ones; lack of space only postpones it."""
        data = work.build(self._read)
        if data is None or not self._reserve.has_room_for(len(data)):
            return
        try:
            replace_file(self._disk, work.new.path, pack(data, work.block_bytes) if work.block_bytes else data)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return
        work.new.size = len(data)
        work.new.indexed = write_index(self._disk, self.plan.folder, work.index())
        self.rewritten = True

    def _read(self, segment: SegmentFile) -> bytes | None:
        """Return the plain bytes of a segment, or None if some are unreadable."""
        file = open_segment(self._disk, segment.path)
        try:
            data = file.pread(segment.size, 0)
            return None if isinstance(file, PackedFile) and file.damaged else data
        finally:
            file.close()

    def _leave(self) -> None:
        """Rename the folder: from here on the stream is deleted, as is one with a failed creation."""
        plan = self.plan
        for folder in (plan.folder, plan.named):
            if folder and (plan.was_born or self._disk.exists(folder)):
                self._reserve.spend(partial(self._disk.rename, folder, plan.trash_folder))
                break
        self._disk.fsync_dir("streams")


def _by_segment(erasures: Sequence[Erasure]) -> dict[SegmentFile, list[tuple[int, bytes]]]:
    groups: dict[SegmentFile, list[tuple[int, bytes]]] = {}
    for segment, offset, data in erasures:
        groups.setdefault(segment, []).append((offset, data))
    return groups


class MessagesCommit(Commit):
    """A commit that appends messages to a file that is there, and does nothing else, as most do.

    `run` serves disks without descriptors, and repeats writes that failed natively, through a `FileCommit`.
    """

    __slots__ = (
        "_disk", "_only_appends", "_reserve", "data", "full", "is_small", "last_ts_ns", "offset", "settled_end",
        "syncs", "target", "unsynced_bytes", "whole", "zeros",
    )  # fmt: skip

    io = only_messages = True

    def __init__(
        self,
        last_seq: int,
        callbacks: list[Settled],
        disk: Disk,
        reserve: Reserve,
        target: SegmentFile,
        offset: int,
        data: bytes,
        last_ts_ns: int,
        syncs: bool,
    ) -> None:
        self.last_seq = last_seq
        self.callbacks = callbacks
        self._disk = disk
        self._reserve = reserve
        self.target = target
        self.offset = offset
        self.data = data
        self.settled_end = offset + len(data)
        self.last_ts_ns = last_ts_ns
        self.syncs = syncs
        self.unsynced_bytes = self.zeros = 0
        self.whole: FileCommit | None = None
        """The commit that `run` has made of it."""
        self.full = False
        self._only_appends = reserve.intact
        self.is_small = self._only_appends and len(data) <= SMALL_BYTES

    def wait_for_sync(self, unsynced_bytes: int, zeros: int) -> None:
        """Sync these earlier bytes too, and write these zeros after the messages."""
        self.unsynced_bytes = unsynced_bytes
        self.zeros = 0 if self._disk.encrypted or not self._only_appends else zeros
        self.is_small = self._only_appends and len(self.data) + self.zeros + unsynced_bytes <= SMALL_BYTES

    def take_appends(self) -> tuple[Append, ...]:
        if not self._only_appends or (writer := self.target.writer) is None:
            return ()
        fd, data, offset = writer.placed(self.data + bytes(self.zeros) if self.zeros else self.data, self.offset)
        return ((fd, data, offset, self.syncs),) if fd >= 0 else ()

    @property
    def found_no_room(self) -> bool:
        return self.full

    @property
    def lacks_room(self) -> bool:
        return self.whole is not None and self.whole.lacks_room

    @property
    def kept(self) -> bool:
        return not self.full

    def run(self) -> None:
        """Do the disk work; raises OSError when the stream must be fenced off."""
        plan = CommitPlan(
            self.target.folder,
            target=self.target,
            offset=self.offset,
            data=self.data,
            sync=self.syncs,
            unsynced_bytes=self.unsynced_bytes,
            has_messages=True,
            last_ts_ns=self.last_ts_ns,
        )
        self.whole = FileCommit(self.last_seq, self.callbacks, self._disk, plan, self._reserve)
        plan.zeros = self.zeros  # a native write may have left some, whatever room there is now
        self.whole.run()
        self.full, self.zeros = self.whole.full, plan.zeros
