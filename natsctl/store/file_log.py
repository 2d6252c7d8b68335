"""Messages of a stream on disk: appends become frames in a buffer, reads come from settled bytes.

One batch (the content of one commit) lies in one segment: a full segment is sealed when the next batch begins. Removals
are recorded at the end of the batch, coalesced: whatever their number, one batch ends with DELETES, ERASE and at most
one FLOOR record.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, repeat
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from natsctl.store import frame
from natsctl.store.compaction import Compaction
from natsctl.store.disk import Disk
from natsctl.store.errors import StoreDamagedError
from natsctl.store.file_commit import SMALL_BYTES, CommitPlan, Erasure, FileCommit, MessagesCommit, Settled
from natsctl.store.filters import Filters
from natsctl.store.fsck import SegmentMark, StreamCheck
from natsctl.store.index import StreamIndex
from natsctl.store.index_file import IndexImage, image_of, write_index
from natsctl.store.message import Copy, MessageRun, StoredMessage
from natsctl.store.recovery import segment_of
from natsctl.store.segment import Segment, SegmentReader
from natsctl.store.segment_file import SegmentCache, SegmentFile
from natsctl.store.steps import STEP, Steps
from natsctl.store.view import live_run, live_span

if TYPE_CHECKING:
    from natsctl.store.store import Store

DELETES_PER_RECORD = 65536

Spot = tuple[int, int, int, int, int]
"""An erased message: sequence, base and generation of its segment, offset and length of its frame."""


class RemovalRecords(NamedTuple):
    """The removals of one batch, to be encoded for the segment that the batch goes to."""

    deletes: array[int]
    spots: list[Spot]
    floor: bool
    first_seq: int
    synced_seq: int

    def tombs(self) -> array[int]:
        return self.deletes + array("Q", [spot[0] for spot in self.spots])

    def encode(self, salt: int, limit: int) -> list[bytes]:
        synced = self.synced_seq
        kept = array("Q", [seq for seq in self.deletes if seq <= limit])
        out = [
            frame.encode(frame.DELETES, limit, 0, synced, salt, kept[at : at + DELETES_PER_RECORD].tobytes())
            for at in range(0, len(kept), DELETES_PER_RECORD)
        ]
        out += [
            frame.encode(frame.ERASE, limit, 0, synced, salt, frame.ERASE_BODY.pack(*spot))
            for spot in self.spots
            if spot[0] <= limit
        ]
        if self.floor:
            body = frame.FLOOR_BODY.pack(min(self.first_seq, limit + 1), limit)
            out.append(frame.encode(frame.FLOOR, limit, 0, synced, salt, body))
        return out


class Removals:
    """Removals that no commit has taken yet."""

    __slots__ = ("deletes", "erases", "floor_moved", "waiting")

    def __init__(self) -> None:
        self.deletes = array("Q")
        self.erases: list[int] = []
        self.floor_moved = False
        self.waiting = False
        """Whether there are any."""

    def move_floor(self) -> None:
        self.floor_moved = self.waiting = True

    def add(self, seq: int, erase: bool) -> None:
        """Note that message `seq` was taken out, its bytes to be overwritten if `erase`."""
        self.waiting = True
        if erase:
            self.erases.append(seq)
        else:
            self.deletes.append(seq)

    def add_all(self, seqs: array[int]) -> None:
        self.deletes.extend(seqs)
        self.waiting = True

    def take(self, spots: list[Spot], first_seq: int, synced_seq: int) -> RemovalRecords:
        """Return everything recorded, with `spots` for the erasures, and start over."""
        taken = RemovalRecords(self.deletes, spots, self.floor_moved, first_seq, synced_seq)
        self.deletes, self.erases, self.floor_moved, self.waiting = array("Q"), [], False, False
        return taken

    def put_back(self, taken: RemovalRecords) -> None:
        """Record again the changes that a commit had no room for."""
        self.deletes = taken.deletes + self.deletes
        self.erases = [spot[0] for spot in taken.spots] + self.erases
        self.floor_moved |= taken.floor
        self.waiting = True

    def forget_above(self, seq: int) -> None:
        self.deletes = array("Q", [delete for delete in self.deletes if delete <= seq])
        self.erases = [found for found in self.erases if found <= seq]
        self.waiting = self.floor_moved or bool(self.deletes or self.erases)


_encode_message = frame.encode_message
_OVER_SIZE, _TIMED = frame.FRAME_OVER_SIZE, frame.TIMED


MAX_ZEROS = 128 * 1024
"""Maximum number of zeros that one commit writes ahead."""
ZEROS_SHARE = 8
"""A segment has one byte of zeros for this many bytes of content at most."""


def zeros_ahead(end: int, zeros_end: int, page: int) -> int:
    """Return the number of zeros for a small commit that ends at `end` to write after its data.

    A sync of bytes that replace others has no new length of the file to record (docs/adr/0002).
    """
    room = min(MAX_ZEROS, end // ZEROS_SHARE)
    return (end + room) // page * page - end if end > zeros_end and room >= page else 0


FRAMES_STEP = 2048
"""Consecutive frames that one step copies."""


TRAILING_SEGMENTS = 16
"""Sealed segments of a provisional stream that may wait to be synced; the disk writes them meanwhile."""

_SIZE_BYTES = array("I").itemsize
_BESIDE_BYTES = frame.FRAME_OVER_SIZE + _SIZE_BYTES
"""Bytes of a frame and its size in addition to the accounted size."""


class FrameRun(NamedTuple):
    """The frames of all matches up to a sequence, in pieces, and the accounted size of each."""

    last_seq: int
    sizes: array[int]
    pieces: list[memoryview]


class FileLog:
    """Appends, removals and reads of a stream on disk, and its share of each commit."""

    __slots__ = (
        "_below_floor", "_cache", "_compaction", "_durable_ts_ns", "_has_messages", "_has_more", "_host", "_index",
        "_index_unlinks", "_names_loose", "_new_salt", "_parts", "_postponed", "_reader", "_removals", "_sealing",
        "_segment_bytes", "_small_segment", "_taken_end", "_taken_removals", "_trailing", "_unerased", "_unmarked",
        "file", "folder", "identity", "provisional", "stream_id", "synced_mark", "synced_seq", "unnamed",
    )  # fmt: skip

    def __init__(
        self,
        host: Store,
        cache: SegmentCache,
        stream_id: int,
        index: StreamIndex,
        salt: Callable[[], int],
        identity: bytes,
        key: str,
    ) -> None:
        self.provisional = False
        """Whether nothing of the stream counts yet: it is synced later, and written data does not stay in memory."""
        self.unnamed = False
        """Whether the folder is under construction."""
        self._trailing: list[SegmentFile] = []
        """Sealed segments of a provisional stream that were not synced, the oldest first."""
        self.stream_id = stream_id
        self.identity = identity
        self.folder = f"streams/s{stream_id:06d}"
        self.synced_seq = index.last_seq
        self.synced_mark = (0, 0, 0)
        """Base, generation and length of the last segment as it was synced."""
        self._host = host
        self._segment_bytes = host.options.segment_bytes
        self._small_segment = min(self._segment_bytes, max(self._segment_bytes // 8, 4096))
        """Size below which a segment is not replaced, even if all its messages are dead."""
        self._index = index
        self._cache = cache
        self._reader = SegmentReader(cache, key, host.report_fault)
        self._new_salt = salt
        self._parts: list[bytes] = []
        self._taken_end = 0
        self._has_messages = False
        self._has_more = True
        """Whether the next commit may have more to do than append messages and record removals."""
        self._durable_ts_ns = 0
        self._removals = Removals()
        self._taken_removals: RemovalRecords | None = None
        """Those of the commit in flight."""
        self._index_unlinks: list[str] = []
        """Index files that a commit without room has left to the next one."""
        self._sealing: SegmentFile | None = None
        self._below_floor: list[Segment] = []
        """Segments below the floor that a start found: `remnants` reads them until the first commit unlinks them."""
        self._unerased: list[Erasure] = []
        """Erasures on record that had not begun: the first commit does them."""
        self._postponed = False
        """Whether erasures wait for a commit that has more to do than take messages."""
        self._names_loose = False
        """Whether a file that was unlinked could still come back."""
        self._unmarked: list[SegmentMark] = []
        """Segments that were made durable since the last entry for the high-water file."""
        self._compaction = Compaction(cache, host.options.segment_bytes, identity)
        self.file = index.active.body or self._start_file(index.active, index.active.base)
        """The file that the next message goes to, unless it is full."""

    def begin(self, provisional: bool) -> None:
        """Queue the first segment's header for the commit that creates the stream."""
        self.provisional, self.unnamed = provisional, True
        self._parts.append(self.file.head.encode())

    def move(self, folder: str) -> None:
        """Note that all files lie in another folder."""
        self.folder = folder
        for segment in self._index.segments:
            if segment.body is not None:
                segment.body.folder = folder

    def adopt(self, check: StreamCheck) -> bool:
        """Go on from a recovered and repaired folder; return whether that leaves something to the first commit."""
        index, file = self._index, self.file
        self._taken_end = file.size
        self.synced_mark = (file.head.base, file.head.generation, file.size)
        self._durable_ts_ns = index.last_ts_ns
        if index.active.keys is not None:
            self.file = self._start_file(index.open_segment(index.last_seq + 1), index.last_seq + 1)
            self._parts, self._taken_end = [self.file.head.encode()], 0
        self._compaction.note_all(index)
        self._adopt_remains(check)
        empty_front = index.segments[0].live == 0 and len(index.segments) > 1
        return bool(self._below_floor or self._unerased) or empty_front

    def _adopt_remains(self, check: StreamCheck) -> None:
        """Leave to the first commit what takes bytes away that the owner may want to look at before."""
        self._below_floor = [segment_of(self.folder, found) for found in check.below_floor]
        for segment in self._below_floor:
            segment.head, segment.live = len(segment.sids), 0
        files = [segment.body for segment in self.remaining() if segment.body is not None]
        for file in (segment.body for segment in self._below_floor):
            assert file is not None
            file.indexed = False  # the repair has taken it away
        self._compaction.retire(self._below_floor)
        by_path = {file.path: file for file in files}
        self._unerased = [Erasure(by_path[f"{self.folder}/{name}"], at, data) for name, at, data in check.unerased]

    def _start_file(self, segment: Segment, base: int) -> SegmentFile:
        numbers = (self.stream_id, base, self._index.first_seq, 0)
        head = frame.FileHead(self._new_salt(), *numbers, self.identity, frame.SEGMENT_FILE)
        file = segment.body = SegmentFile(self.folder, head)
        file.size = frame.FILE_HEAD_BYTES
        return file

    # -- appending

    def append(self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes, flags: int) -> None:
        """Buffer one message and enter it into the index; `flags` are TIMED and MORE."""
        parts = self._parts
        if not parts and self.file.size >= self._small_segment:
            self._begin_batch(seq)
            parts = self._parts
        file = self.file
        data = _encode_message(file.head.salt, self.synced_seq, seq, ts_ns, flags, subject, header, payload)
        parts.append(data)
        length, offset = len(data), file.size
        self._index.add(seq, subject, length - _OVER_SIZE, ts_ns, offset)
        if flags & _TIMED:
            self._index.active.note_timed(seq)
        file.size = offset + length
        self._has_messages = True

    def append_copies(self, messages: Sequence[Copy]) -> None:
        """Buffer messages under their own sequences and times; a time below an earlier one is raised to it."""
        last_ts_ns = self._index.last_ts_ns
        first_ts_ns = max(messages[0][1], last_ts_ns)
        if not self._parts:
            self._begin_batch(messages[0][0])
        file = self.file
        run = frame.encode_copies(file.head.salt, self.synced_seq, last_ts_ns, file.size, messages)
        seqs, subjects = [copy[0] for copy in messages], [copy[2] for copy in messages]
        self._index.add_all(seqs, subjects, run[1], (first_ts_ns, run[3]), run[2])
        self._take_run(run)

    def append_run(self, run: MessageRun, first_seq: int, ts_ns: int, subject: bytes) -> None:
        """Buffer a run of messages of one time; `subject` is b"" if they are on several."""
        if not self._parts:
            self._begin_batch(first_seq)
        file = self.file
        frames = frame.encode_run(run, file.head.salt, self.synced_seq, first_seq, ts_ns, file.size)
        if subject:
            self._index.add_run(first_seq, subject, frames[1], ts_ns, frames[2])
        else:
            seqs = list(range(first_seq, first_seq + len(run)))
            self._index.add_all(seqs, run.subjects(), frames[1], (ts_ns, ts_ns), frames[2])
        self._take_run(frames)

    def _take_run(self, run: frame.FrameColumns) -> None:
        """Buffer the frames of messages that are in the index."""
        self._parts.append(run[0])
        self.file.size += len(run[0])
        self._has_messages = True

    def _begin_batch(self, seq: int) -> None:
        """Roll to a new segment when the active one is full, or large and all dead."""
        limit, active, size = self._segment_bytes, self._index.segments[-1], self.file.size
        if size < limit and (active.live or size < self._small_segment):
            return
        if not active.sids:
            return
        active.seal()
        self._index.tidy_subjects()
        self._sealing = self.file
        self._compaction.note(active)
        self.file = self._start_file(self._index.open_segment(seq), seq)
        self._parts.append(self.file.head.encode())
        self._taken_end = 0

    def compress(self, on: bool) -> None:
        """Switch compression of segments once they are sealed; old ones follow as they are rewritten."""
        self._compaction.block_bytes = self._host.options.block_bytes if on else 0
        self._has_more = True
        if on and len(self._index.segments) > 1:  # a stop may have come between its seal and its compression
            self._compaction.note(self._index.segments[-2])

    @property
    def buffered_bytes(self) -> int:
        return self.file.size - self._taken_end if self._parts else 0

    # -- removing

    def removing(self, segment: Segment, position: int, seq: int, erase: bool) -> None:
        file = segment.body
        assert file is not None
        self._removals.add(seq, erase)
        file.dead_bytes += segment.sizes[position] + frame.FRAME_OVER_SIZE
        if file.dead_bytes * 2 > file.size and segment.keys is not None:
            self._compaction.note(segment)

    def removing_many(self, segment: Segment, positions: array[int], seqs: array[int], size: int) -> None:
        file = segment.body
        assert file is not None
        self._removals.add_all(seqs)
        file.dead_bytes += size + len(seqs) * frame.FRAME_OVER_SIZE
        if file.dead_bytes * 2 > file.size and segment.keys is not None:
            self._compaction.note(segment)

    def dropping_first(self, seq: int) -> None:
        self._removals.move_floor()

    def dropping_below(self, seq: int) -> None:
        self._removals.move_floor()

    def skipping(self) -> None:
        self._removals.move_floor()

    def emptied(self, next_seq: int) -> None:
        """Put a FLOOR record in front of the batch's next message, unless earlier commits say that nothing is left.

        The removals of a batch are recorded at its end. A crash that left the message and not them would bring back
        older messages of later times.
        """
        removals, last_seq = self._removals, self._index.last_seq
        if not removals.waiting:
            return
        if not self._parts:
            self._begin_batch(next_seq)
        body = frame.FLOOR_BODY.pack(last_seq + 1, last_seq)
        record = frame.encode(frame.FLOOR, last_seq, 0, self.synced_seq, self.file.head.salt, body)
        self._parts.append(record)
        self.file.size += len(record)
        removals.floor_moved = True

    # -- commits

    @property
    def unsynced(self) -> bool:
        """Return whether the last segment has bytes, removals among them, that were written and not synced."""
        file, mark = self.file, self.synced_mark
        return file.created and (file.settled != mark[2] or (file.head.base, file.head.generation) != mark[:2])

    @property
    def has_work(self) -> bool:
        return not self.unnamed and self._compaction.waits(self._index)

    @property
    def may_rewrite(self) -> bool:
        """Return whether a segment may be due for a rewrite."""
        return not self.unnamed and self._compaction.has_candidates

    def take(self, plan: CommitPlan, durable_seq: int, force: bool) -> None:
        """Put everything buffered into `plan`, with the erasures and unlinks; `force` includes postponed ones."""
        plan.has_messages, self._has_messages, plan.last_ts_ns = self._has_messages, False, self._index.last_ts_ns
        self._taken_removals = None
        if not self._parts and self._removals.waiting and not self._index.active.live:
            self._begin_batch(self._index.last_seq + 1)  # a purge frees the space of the last segment too
        plan.trailing = self._trailing[:-TRAILING_SEGMENTS] if self.provisional else self._trailing
        if self._sealing is None and self.has_work:
            plan.unlinks, leading = self._compaction.take_unlinks(self._index)
            if leading:
                self._removals.move_floor()
                plan.sync = True
        self._take_frames(plan, durable_seq)
        if self._index_unlinks:
            plan.unlinks += self._index_unlinks
            self._index_unlinks = []
        plan.asked = len(plan.erasures)
        self._below_floor = []
        if self._unerased and (not self._postponed or plan.erasures or plan.sealed is not None or force):
            for erasure in self._unerased:
                self._cache.drop(erasure.file)
            plan.erasures += self._unerased
            self._unerased = []
        if plan.unlinks:
            self._names_loose = True
        if plan.erasures and self._names_loose:
            plan.sync_names, self._names_loose = True, False

    def plan_rewrite(self, plan: CommitPlan, durable_seq: int) -> None:
        """Put the rewrite of one segment into `plan`, if one is due and the plan seals none."""
        if plan.sealed is None:
            plan.rewrite = self._compaction.plan(self._index, min(self._index.first_seq, durable_seq + 1))

    def take_messages(self, callbacks: list[Settled], disk: Disk, sync: bool) -> MessagesCommit | None:
        """Return a commit of the buffered messages if all that waits are messages for a file that was created."""
        file = self.file
        if not (self._has_messages and file.created) or self._removals.waiting:
            return None
        if self._has_more and self._finds_more():
            return None
        index, parts, offset = self._index, self._parts, self._taken_end
        self._has_messages, self._parts, self._taken_removals = False, [], None
        self._taken_end = file.size
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        written = (file, offset, data, index.last_ts_ns, sync)
        commit = MessagesCommit(index.last_seq, callbacks, disk, self._host.reserve, *written)
        if sync:
            unsynced = self._unsynced_bytes() if self.unsynced else 0
            commit.wait_for_sync(unsynced, self._zeros(file, data, unsynced))
        return commit

    def _finds_more(self) -> bool:
        """Return whether something other than messages and removals waits for a commit."""
        self._has_more = bool(
            self._sealing is not None
            or (self._trailing or self._below_floor or self._unerased or self._index_unlinks)
            or self._compaction.waits(self._index)
        )
        return self._has_more

    def _unsynced_bytes(self) -> int:
        """Return the number of bytes that earlier commits have left unsynced in the file of the next message."""
        file = self.file
        same = self.synced_mark[:2] == (file.head.base, file.head.generation)
        return file.settled - (self.synced_mark[2] if same else 0)

    def _zeros(self, file: SegmentFile, data: bytes, unsynced_bytes: int) -> int:
        """Return the number of zeros to write after data that goes to the end of a file and is synced."""
        if unsynced_bytes or not file.head.role or len(data) > SMALL_BYTES:
            return 0
        return zeros_ahead(file.size, file.zeros_end, self._host.options.page_bytes)

    def _take_frames(self, plan: CommitPlan, durable_seq: int) -> None:
        file, last_seq = self.file, self._index.last_seq
        if self._removals.waiting:
            spots = [self._plan_erasure(plan, seq) for seq in self._removals.erases]
            removals = self._removals.take(spots, self._index.first_seq, self.synced_seq)
            self._taken_removals = removals
            tail = removals.encode(file.head.salt, last_seq)
            plan.floor = removals.first_seq if removals.floor else 0
            plan.tombs = removals.tombs()
            file.size += sum(map(len, tail))
            self._parts += tail
            plan.fallback = lambda to: b"".join(removals.encode(to.head.salt, durable_seq))
        self._take_data(plan, durable_seq)

    def _take_data(self, plan: CommitPlan, durable_seq: int) -> None:
        """Put the buffered frames into `plan`, and the seal of the segment before if they begin another."""
        parts, self._parts = self._parts, []
        file = self.file
        data = plan.data = parts[0] if len(parts) == 1 else b"".join(parts)
        if plan.sync and self.unsynced:
            plan.unsynced_bytes = self._unsynced_bytes()
            if not data:
                plan.target, plan.offset = file, self._taken_end
        if not data:
            return
        plan.target = file
        plan.offset = self._taken_end if file.created else 0
        if self._sealing is not None:
            self._take_seal(plan, self._sealing, durable_seq)
        elif plan.sync and file.created:
            plan.zeros = self._zeros(file, data, plan.unsynced_bytes)
        self._taken_end = file.size

    def _take_seal(self, plan: CommitPlan, sealing: SegmentFile, durable_seq: int) -> None:
        plan.sealed, plan.seal_offset = sealing, sealing.size
        covers = self.file.head.base - 1
        seal = frame.SEAL_BODY.pack(covers, sealing.size)
        plan.seal = frame.encode(frame.SEAL, covers, 0, self.synced_seq, sealing.head.salt, seal)
        segment = self._index.segments[-2]
        plan.rolls_alone = not segment.live and covers == durable_seq
        plan.image = self._image(segment, sealing.size + len(plan.seal), covers, sealed=True)
        segment.pack()
        self._sealing = None

    def _image(self, segment: Segment, end: int, covers: int, sealed: bool) -> IndexImage:
        """Return the content of `segment`'s index file once everything accepted so far is on disk."""
        return image_of(segment, end, covers, self._index.table.names, sealed)

    def _plan_erasure(self, plan: CommitPlan, seq: int) -> Spot:
        """Plan to overwrite message `seq` wherever its bytes are; return its record's fields about the first place."""
        spot = (seq, 0, 0, 0, 0)
        for segment, position, file in self._compaction.places(self._index, seq):
            length = segment.sizes[position] + frame.FRAME_OVER_SIZE
            self._cache.drop(file)
            plan.unlinks += file.give_up_index()  # it may name the subject, and say that the message is there
            plan.erasures.append(Erasure(file, segment.offsets[position], frame.erased(seq, length, file.head.salt)))
            if not spot[1]:
                spot = (seq, file.head.base, file.head.generation, segment.offsets[position], length)
        return spot

    def settle(self, commit: FileCommit, durable_seq: int) -> None:
        """Apply a commit's changes to the segments; `durable_seq` is the newest message before it."""
        plan, self._has_more = commit.plan, True
        target, sealed = plan.target, plan.sealed
        if commit.records_full:
            self._put_back(plan)
            self._take_back(durable_seq, target)
            return
        if sealed is not None and target is not sealed:
            sealed.size = sealed.settled = plan.seal_offset + len(plan.seal)
            if plan.provisional:
                self._trailing.append(sealed)
            else:
                sealed.close()
        for file in plan.trailing:
            file.close()
        self._trailing = self._trailing[len(plan.trailing) :]
        if target is not None:
            self._settle_target(commit, target, durable_seq if commit.full else commit.last_seq)
        if plan.rewrite is not None and commit.rewritten:
            new = plan.rewrite.new.head
            self._unmarked.append(SegmentMark(new.base, plan.rewrite.covers_seq, new.generation, new.salt))
            self._compaction.swap(self._index, plan.rewrite)
        if plan.unlinks:
            self._compaction.settle()
        if plan.erasures:
            self._settle_erasures(commit)
        if commit.full:
            self._take_back(durable_seq)
            return
        self._durable_ts_ns = plan.last_ts_ns
        if target is not None and (plan.sync or not (plan.offset or plan.provisional)):
            self._note_sync(target, commit.last_seq)

    def settle_messages(self, commit: MessagesCommit) -> None:
        """Apply a commit of `take_messages` that found room."""
        target = commit.target
        self._durable_ts_ns = commit.last_ts_ns
        self._settle_data(target, commit.offset, commit.data, commit.settled_end, commit.zeros)
        if commit.syncs:
            self._note_sync(target, commit.last_seq)

    def _note_sync(self, target: SegmentFile, last_seq: int) -> None:
        self.synced_seq = max(self.synced_seq, last_seq)
        self.synced_mark = (target.head.base, target.head.generation, target.settled)

    def _settle_target(self, commit: FileCommit, target: SegmentFile, kept_seq: int) -> None:
        """Record the written segment's content, with messages up to `kept_seq`."""
        plan = commit.plan
        if plan.floor:
            target.floor = max(target.floor, min(plan.floor, kept_seq + 1))
        if plan.tombs:
            target.tombs.extend([seq for seq in plan.tombs if seq <= kept_seq] if commit.full else plan.tombs)
        if not target.created:
            target.created = True
            self._unmarked.append(SegmentMark(target.head.base, 0, target.head.generation, target.head.salt))
        kept = b"" if plan.provisional else plan.data
        self._settle_data(target, plan.offset, kept, commit.settled_end, plan.zeros)

    def _settle_data(self, target: SegmentFile, offset: int, kept: bytes, end: int, zeros: int) -> None:
        target.settled = end
        if zeros:
            target.zeros_end = end + zeros
        if kept:
            target.keep(offset, kept, end)
            self._cache.touch(target)

    def _settle_erasures(self, commit: FileCommit) -> None:
        """Leave the failed erasures to a later commit, and report them to their callers."""
        erasures = commit.plan.erasures
        for file in {erasure.file for erasure in erasures}:
            self._cache.drop(file)  # data read meanwhile, or written by this commit, has the erased bytes
        self._postponed = bool(commit.unerased)
        self._unerased += commit.unerased
        for error in commit.unerased.values():
            if isinstance(error, StoreDamagedError):
                self._host.report_fault(str(error))
        asked = [commit.unerased[spot] for spot in erasures[: commit.plan.asked] if spot in commit.unerased]
        if asked:
            outcome = next((error for error in asked if isinstance(error, StoreDamagedError)), asked[0])
            waiting, commit.callbacks = commit.callbacks, []
            for callback in waiting:
                callback(outcome)

    def _put_back(self, plan: CommitPlan) -> None:
        """Leave the removals, erasures and unlinks of a commit without room for its records to the next one."""
        if self._taken_removals is not None:
            self._removals.put_back(self._taken_removals)
        for erasure in plan.erasures:
            self._cache.drop(erasure.file)
        self._unerased = plan.erasures[plan.asked :] + self._unerased
        files = {segment.body.path for segment in self._compaction.old_segments() if segment.body is not None}
        self._index_unlinks += [path for path in plan.unlinks if path not in files]
        self._names_loose |= plan.sync_names
        self._compaction.postpone()

    def _take_back(self, durable_seq: int, first: SegmentFile | None = None) -> None:
        """Take back every message that is not durable, buffered ones too: there is no room for them.

        `first` is kept without being there: the file that follows a sealed one.
        """
        self._index.rollback(durable_seq, lambda s: s.body is not None and (s.body.created or s.body is first))
        active, file = self._index.active, self._index.active.body
        assert file is not None
        self.file, self._index.last_ts_ns = file, self._durable_ts_ns
        active.last_ts = self._durable_ts_ns if active.sids else 0
        file.size = self._taken_end = file.settled
        self._parts, self._sealing, self._has_messages = [], None, False
        if not file.created:
            self._parts, file.size = [file.head.encode()], frame.FILE_HEAD_BYTES
        self._removals.forget_above(durable_seq)

    # -- marks for the high-water file, and files

    def take_marks(self) -> tuple[SegmentMark, ...]:
        """Return the segments that were made durable since the last time."""
        marks, self._unmarked = self._unmarked, []
        return tuple(marks)

    def marks(self) -> Iterator[SegmentMark]:
        """Yield every segment: removed ones first, because the record of their removal may not be synced."""
        for segment in self._compaction.old_segments():
            if segment.body is not None:
                head = segment.body.head
                yield SegmentMark(head.base, 0, head.generation, head.salt)
        ends = [base - 1 for base in self._index.bases[1:]] + [0]
        for segment, covers in zip(self._index.segments, ends, strict=True):
            if segment.body is not None and segment.body.created:
                head = segment.body.head
                yield SegmentMark(head.base, covers, head.generation, head.salt)

    @property
    def synced_to_the_end(self) -> bool:
        """Return whether the segment that the next message goes to, or else the one before, is synced as it is."""
        made = [segment.body for segment in self._index.segments[-2:] if segment.body is not None]
        file = next((file for file in reversed(made) if file.created), None)
        return file is None or self.synced_mark == (file.head.base, file.head.generation, file.settled)

    def write_indexes(self, disk: Disk, tail: bool) -> None:
        """Write missing index files, with `tail` also for a long last segment.

        Nothing may wait for a commit. A failure of the disk only leaves them out.
        """
        if tail:
            self.file.trim(disk)
        index, long = self._index, self._host.options.tail_index_bytes
        unerased = {erasure.file for erasure in self._unerased}  # the next start must find the remaining work
        for at, segment in enumerate(index.segments):
            file, last = segment.body, at == len(index.segments) - 1
            if file is None or not file.created or file in unerased or (last and not (tail and file.size >= long)):
                continue
            if last or not file.indexed:
                covers = index.last_seq if last else index.bases[at + 1] - 1
                image = self._image(segment, file.size, covers, sealed=segment.keys is not None)
                file.indexed = write_index(disk, self.folder, image)

    def close_idle(self, disk: Disk) -> None:
        """Close the last segment without the zeros ahead of its messages; nothing may be in flight or wait."""
        self.file.trim(disk)
        self.file.close()

    def close_files(self) -> None:
        for segment in [*self._index.segments, *self._compaction.old_segments()]:
            if segment.body is not None:
                segment.body.close()
                self._cache.drop(segment.body)

    # -- reading

    def message_at(self, segment: Segment, position: int) -> StoredMessage:
        return self._reader.message_at(segment, position)

    def release_before(self, seq: int) -> None:
        """Release the cached bytes of the consecutive segments before the one of message `seq`."""
        at = bisect_right(self._index.bases, seq) - 2
        while at >= 0 and (file := self._index.segments[at].body) is not None and file.kept:
            self._cache.drop(file)
            at -= 1

    def messages_at(self, segment: Segment, positions: Sequence[int], keep: bool = True) -> list[StoredMessage]:
        """Return live messages of one segment; `positions` ascend and are not empty. Raises StoreDamagedError.

        Without `keep`, bytes that are read from the disk do not stay in memory.
        """
        return self._reader.messages_at(segment, positions, keep)

    def remnants_at(self, segment: Segment, positions: Sequence[int]) -> Iterator[StoredMessage]:
        """Yield those messages of one segment that can be read; `positions` ascend and are not empty."""
        return self._reader.remnants_at(segment, positions)

    def headed_at(self, segment: Segment, positions: Sequence[int]) -> list[int]:
        """Return the positions of messages with a header; the given ones ascend and are not empty."""
        return self._reader.headed_at(segment, positions)

    def reading_frames(self, from_seq: int, to_seq: int, filters: Filters, max_bytes: int) -> Steps[FrameRun]:
        """Return the frames of the matches from a sequence to another, both included and durable, in steps.

        They end before sizes and frames exceed `max_bytes`; the first always comes. Raises StoreDamagedError.
        """
        yield from self._index.preparing(filters)
        sizes, pieces, seq, room = array("I"), list[memoryview](), from_seq, max_bytes
        while seq <= to_seq:
            positions, segment = self._frame_positions(seq, to_seq, filters)
            if segment is None:
                seq = to_seq + 1
                break
            fits = _fitting_frames(segment, positions, room)
            if not fits and sizes:
                seq = segment.seq_at(positions[0])
                break
            taken = self._reader.frames_at(segment, positions[: max(fits, 1)])
            sizes += taken.sizes
            pieces += taken.pieces
            room -= sum(map(len, taken.pieces)) + len(taken.sizes) * _SIZE_BYTES
            seq = segment.seq_at(positions[len(taken.sizes) - 1]) + 1
            if fits < len(positions):
                break
            yield taken.cost + 1
        return FrameRun(seq - 1, sizes, pieces)

    def _frame_positions(self, seq: int, to_seq: int, filters: Filters) -> tuple[Sequence[int], Segment | None]:
        """Return the next places of frames and their segment, or None without frames up to `to_seq`."""
        place = self._index.next_place(filters, seq)
        if place is None or place[0].seq_at(place[1]) > to_seq:
            return (), None
        segment, start = place
        stop = segment.position_from(to_seq + 1)
        view = None if filters.everything else self._index.view(filters)
        if view is None or view.all:
            return live_span(segment, start, stop, FRAMES_STEP), segment
        return live_run(segment, view, start, stop, STEP), segment

    def remaining(self) -> Sequence[Segment]:
        return [*self._below_floor, *self._index.segments] if self._below_floor else self._index.segments

    def ts_at(self, segment: Segment, position: int) -> int:
        """Return a message's time, live or not; 0 if erased, the newest time if buffered."""
        file = segment.body
        if file is not None and segment.offsets[position] < file.settled:
            return self._reader.ts_at(segment, position)
        return self._index.last_ts_ns


def _fitting_frames(segment: Segment, positions: Sequence[int], room: int) -> int:
    """Return how many of the first positions have frames that fit into `room` bytes together.

    Consecutive ones are counted with the records between them.
    """
    if not isinstance(positions, range):
        sizes = map(add, map(segment.sizes.__getitem__, positions), repeat(_BESIDE_BYTES))
        return bisect_right([*accumulate(sizes)], room)
    offsets, sizes_of, first = segment.offsets, segment.sizes, positions.start
    begin = offsets[first] + first * _SIZE_BYTES

    def room_up_to(position: int) -> int:
        return offsets[position] + position * _SIZE_BYTES + sizes_of[position] + _BESIDE_BYTES - begin

    return bisect_right(positions, room, key=room_up_to)
