"""Messages of a stream on disk: appends become frames in a buffer, reads come from settled bytes.

One batch (the content of one commit) lies in one segment: a full segment is sealed when the next batch begins. Removals
are recorded at the end of the batch, coalesced: whatever their number, one batch ends with DELETES, ERASE and at most
one FLOOR record.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from operator import add
from typing import Literal, NamedTuple
from zlib import crc32

from natsctl.store import frame
from natsctl.store.compaction import Compaction
from natsctl.store.errors import StorePoisonedError
from natsctl.store.file_commit import Erasure, Host, Plan
from natsctl.store.filters import Filters
from natsctl.store.index_file import IndexImage, image_of
from natsctl.store.message import StoredMessage
from natsctl.store.segment import Segment, SegmentReader
from natsctl.store.segment_file import SegmentCache, SegmentFile
from natsctl.store.steps import STEP, Steps
from natsctl.store.stream import BatchMessage, Copy, StreamStore
from natsctl.store.view import live_run, live_span

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
        """Return the sequence of every message that these records say was removed."""
        return self.deletes + array("Q", [spot[0] for spot in self.spots])

    def encode(self, salt: int, limit: int) -> list[bytes]:
        """Return the frames for removals of messages up to `limit`."""
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

    __slots__ = ("deletes", "erases", "floor_moved")

    def __init__(self) -> None:
        self.deletes = array("Q")
        self.erases: list[int] = []
        self.floor_moved = False

    def add(self, seq: int, erase: bool) -> None:
        """Note that message `seq` was taken out, its bytes to be overwritten if `erase`."""
        if erase:
            self.erases.append(seq)
        else:
            self.deletes.append(seq)

    def take(self, spots: list[Spot], first_seq: int, synced_seq: int) -> RemovalRecords:
        """Return everything noted, `spots` standing for the erasures, and begin anew."""
        taken = RemovalRecords(self.deletes, spots, self.floor_moved, first_seq, synced_seq)
        self.deletes, self.erases, self.floor_moved = array("Q"), [], False
        return taken

    def forget_above(self, seq: int) -> None:
        """Drop what concerns messages above `seq`, which are gone themselves."""
        self.deletes = array("Q", [found for found in self.deletes if found <= seq])
        self.erases = [found for found in self.erases if found <= seq]


_pack_body = frame.BODY.pack
_pack_prefix = frame.PREFIX.pack
_pack_length = frame.HEADER_LENGTH.pack
_MAGIC, _MSG, _MASK, _HAS_HEADER = frame.MAGIC, frame.MSG, frame.MASK, frame.HAS_HEADER
_TIMED, _MORE = frame.TIMED, frame.MORE


FRAMES_STEP = 2048
"""Frames that one step copies where they follow each other."""


_BESIDE_BYTES = frame.FRAME_OVER_SIZE + array("I").itemsize
"""Bytes of a frame and its size beside the accounted size."""


class FrameRun(NamedTuple):
    """The frames of all matches up to a sequence, in pieces, and the accounted size of each."""

    last_seq: int
    sizes: array[int]
    pieces: list[memoryview]


class FileLog(StreamStore):
    """Appends, removals and reads of a stream on disk; FileStreamStore commits them."""

    storage: Literal["file", "memory"] = "file"

    def __init__(
        self,
        host: Host,
        cache: SegmentCache,
        stream_id: int,
        key: str,
        meta: bytes,
        first_seq: int,
        salt: Callable[[], int],
        identity: bytes,
    ) -> None:
        super().__init__(host, key, meta, first_seq)
        self.stream_id = stream_id
        self.identity = identity
        self.folder = f"streams/s{stream_id:06d}"
        self.synced_seq = self.durable_seq
        self.synced_mark = (0, 0, 0)
        """Base, generation and length of the last segment as it was synced."""
        self._cache = cache
        self._reader = SegmentReader(cache, key, host.report_fault)
        self._new_salt = salt
        self._parts: list[bytes] = []
        self._taken_end = 0
        self._has_messages = False
        self._removals = Removals()
        self._sealing: SegmentFile | None = None
        self._below_floor: list[Segment] = []
        """Segments below the floor that a start found: `remnants` reads them until the first commit unlinks them."""
        self._unerased: list[Erasure] = []
        """Erasures on record that had not begun: the first commit does them."""
        self._compaction = Compaction(cache, host.options.segment_bytes, identity)
        self._file = self._start_file(self._index.active, max(first_seq, 1))

    def _start_file(self, segment: Segment, base: int) -> SegmentFile:
        numbers = (self.stream_id, base, self._index.first_seq, 0)
        head = frame.FileHead(self._new_salt(), *numbers, self.identity, frame.SEGMENT_FILE)
        file = segment.body = SegmentFile(self.folder, head)
        file.size = frame.FILE_HEAD_BYTES
        return file

    # -- appending

    def append(self, subject: bytes, header: bytes, payload: bytes, ts_ns: int, timed: bool = False) -> int:
        """Buffer one message and return its sequence; it is not durable until a commit ends.

        `ts_ns` is raised to the newest message's if lower and there is one. Raises StorePoisonedError (nothing
        changed).
        """
        return self._append(self._index.last_seq + 1, ts_ns, subject, header, payload, _TIMED if timed else 0)

    def append_run(self, subject: bytes, payloads: Sequence[bytes], ts_ns: int) -> int:
        """Buffer messages without headers on one subject and return the first one's sequence."""
        if len(payloads) == 1:
            return self._append(self._index.last_seq + 1, ts_ns, subject, b"", payloads[0], 0)
        if self.fault is not None:
            raise StorePoisonedError(self.fault)
        first_seq = seq = self._index.last_seq + 1
        if ts_ns < self.last_ts_ns:
            ts_ns = self._in_order(ts_ns, seq)
        self.last_ts_ns = ts_ns
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

    def append_batch(self, messages: Sequence[BatchMessage], ts_ns: int) -> int:
        """Buffer messages that stay together: the frames of all but the last say that more follows.

        What is buffered between two commits lies in one segment, so that a batch can only end early at the tail.
        """
        first_seq = seq = self._index.last_seq + 1
        last_seq = first_seq + len(messages) - 1
        for subject, header, payload, timed in messages:
            flags = (_TIMED if timed else 0) | (_MORE if seq < last_seq else 0)
            self._append(seq, ts_ns, subject, header, payload, flags)
            seq += 1
        return first_seq

    def append_at(
        self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes, timed: bool = False
    ) -> None:
        """Buffer a message under a given sequence above last_seq; what lies between counts as deleted."""
        if seq <= self._index.last_seq:
            raise ValueError(f"sequence {seq} is not above {self._index.last_seq}")
        self._append(seq, ts_ns, subject, header, payload, _TIMED if timed else 0)

    def append_copies(self, messages: Sequence[Copy]) -> None:
        """Buffer messages without times of their own under ascending sequences above last_seq."""
        if self.fault is not None:
            raise StorePoisonedError(self.fault)
        if messages[0][0] <= self._index.last_seq:
            raise ValueError(f"sequence {messages[0][0]} is not above {self._index.last_seq}")
        if messages[0][1] < self.last_ts_ns:
            self._in_order(messages[0][1], messages[0][0])
        parts, synced_seq, last_ts_ns = self._parts, self.synced_seq, self.last_ts_ns
        first_ts_ns = max(messages[0][1], last_ts_ns)
        if not parts:
            self._begin_batch(messages[0][0])
        file = self._file
        salt, offset, sizes, offsets = file.head.salt, file.size, array("I"), array("I")
        for seq, ts_ns, subject, header, payload in messages:
            if ts_ns > last_ts_ns:
                last_ts_ns = ts_ns
            if header:
                head = _pack_body(_MSG, _HAS_HEADER, len(subject), seq, last_ts_ns, synced_seq)
                body = b"".join((head, subject, _pack_length(len(header)), header, payload))
            else:
                body = _pack_body(_MSG, 0, len(subject), seq, last_ts_ns, synced_seq) + subject + payload
            length = len(body) + 12
            parts.append(_pack_prefix(_MAGIC, length, crc32(body, (salt + length) & _MASK)))
            parts.append(body)
            sizes.append(length - frame.FRAME_OVER_SIZE)
            offsets.append(offset)
            offset += length
        seqs, subjects = [copy[0] for copy in messages], [copy[2] for copy in messages]
        self._index.add_all(seqs, subjects, sizes, (first_ts_ns, last_ts_ns), offsets)
        file.size, self.last_ts_ns = offset, last_ts_ns
        self._has_messages = True
        if self._clean:
            self._mark()

    def _append(self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes, flags: int) -> int:
        if self.fault is not None:
            raise StorePoisonedError(self.fault)
        if ts_ns < self.last_ts_ns:
            ts_ns = self._in_order(ts_ns, seq)
        else:
            self.last_ts_ns = ts_ns
        parts = self._parts
        if not parts:
            self._begin_batch(seq)
        file = self._file
        if header:
            body = b"".join(
                (
                    _pack_body(_MSG, flags | _HAS_HEADER, len(subject), seq, ts_ns, self.synced_seq),
                    subject,
                    _pack_length(len(header)),
                    header,
                    payload,
                )
            )
        else:
            body = b"".join((_pack_body(_MSG, flags, len(subject), seq, ts_ns, self.synced_seq), subject, payload))
        length = len(body) + 12
        parts.append(_pack_prefix(_MAGIC, length, crc32(body, (file.head.salt + length) & _MASK)))
        parts.append(body)
        self._index.add(seq, subject, length - 10, ts_ns, file.size)
        if flags & _TIMED:
            self._index.active.note_timed(seq)
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

    def compress(self, on: bool) -> None:
        """Switch compression of segments once they are sealed; old ones follow as they are rewritten."""
        self._compaction.block_bytes = self._host.options.block_bytes if on else 0
        if on and len(self._index.segments) > 1:  # a stop may have come between its seal and its compression
            self._compaction.note(self._index.segments[-2])

    @property
    def waiting_bytes(self) -> int:
        """Return how much is buffered for the commit after the one in flight, or held before it is appended."""
        return self.held_bytes + (self._file.size - self._taken_end if self._parts else 0)

    # -- removing

    def _removing(self, segment: Segment, position: int, seq: int, erase: bool) -> None:
        file = segment.body
        assert file is not None
        self._removals.add(seq, erase)
        file.dead_bytes += segment.sizes[position] + frame.FRAME_OVER_SIZE
        if file.dead_bytes * 2 > file.size and segment.keys is not None:
            self._compaction.note(segment)

    def _removing_many(self, segment: Segment, positions: list[int], seqs: array[int], size: int) -> None:
        file = segment.body
        assert file is not None
        self._removals.deletes.extend(seqs)
        file.dead_bytes += size + len(seqs) * frame.FRAME_OVER_SIZE
        if file.dead_bytes * 2 > file.size and segment.keys is not None:
            self._compaction.note(segment)

    def _floor_moved(self, first_seq: int) -> None:
        self._removals.floor_moved = True

    def _purging_below(self, seq: int) -> None:
        self._removals.floor_moved = True

    def _skipped(self, last_seq: int) -> None:
        self._removals.floor_moved = True

    def _emptied(self, next_seq: int) -> None:
        """Put a FLOOR record in front of the batch's next message, unless earlier commits say that nothing is left.

        The removals of a batch are recorded at its end. A crash that left the message and not them would bring back
        older messages of later times.
        """
        removals, last_seq = self._removals, self._index.last_seq
        if not (removals.floor_moved or removals.deletes or removals.erases):
            return
        if not self._parts:
            self._begin_batch(next_seq)
        body = frame.FLOOR_BODY.pack(last_seq + 1, last_seq)
        record = frame.encode(frame.FLOOR, last_seq, 0, self.synced_seq, self._file.head.salt, body)
        self._parts.append(record)
        self._file.size += len(record)
        removals.floor_moved = True

    # -- what the next commit writes

    def _take_log(self, plan: Plan) -> None:
        parts, self._parts = self._parts, []
        file, last_seq = self._file, self._index.last_seq
        spots = [self._plan_erasure(plan, seq) for seq in self._removals.erases]
        removals = self._removals.take(spots, self._index.first_seq, self.synced_seq)
        tail = removals.encode(file.head.salt, last_seq)
        plan.floor = removals.first_seq if removals.floor else 0
        plan.tombs = removals.tombs()
        file.size += sum(map(len, tail))
        plan.data = b"".join(parts + tail)
        if not plan.data:
            if plan.sync and self._log_unsynced:
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
            plan.image = self._image(self._index.segments[-2], sealing.size + len(plan.seal), covers, sealed=True)
            self._sealing = None
        self._taken_end = file.size

    @property
    def _log_unsynced(self) -> bool:
        """Return whether the last segment has bytes, removals among them, that were written and not synced."""
        file = self._file
        return file.created and self.synced_mark != (file.head.base, file.head.generation, file.settled)

    def _image(self, segment: Segment, end: int, covers: int, sealed: bool) -> IndexImage:
        """Return what the index file of `segment` will say once everything taken so far is on disk."""
        return image_of(segment, end, covers, self._index.table.names, sealed)

    def _plan_erasure(self, plan: Plan, seq: int) -> Spot:
        """Plan to overwrite message `seq` wherever its bytes are; return what its record says of the first place."""
        spot = (seq, 0, 0, 0, 0)
        for segment, position, file in self._compaction.places(self._index, seq):
            length = segment.sizes[position] + frame.FRAME_OVER_SIZE
            self._cache.drop(file)
            plan.unlinks += file.give_up_index()  # it may name the subject, and say that the message is there
            plan.erasures.append(Erasure(file, segment.offsets[position], frame.erased(seq, length, file.head.salt)))
            if not spot[1]:
                spot = (seq, file.head.base, file.head.generation, segment.offsets[position], length)
        return spot

    # -- reading

    def _message_at(self, segment: Segment, position: int) -> StoredMessage:
        return self._reader.message_at(segment, position)

    def _messages_at(self, segment: Segment, positions: Sequence[int]) -> list[StoredMessage]:
        return self._reader.messages_at(segment, positions)

    def _remnants_at(self, segment: Segment, positions: Sequence[int]) -> Iterator[StoredMessage]:
        return self._reader.remnants_at(segment, positions)

    def reading_frames(self, from_seq: int, to_seq: int, filters: Filters, max_bytes: int) -> Steps[FrameRun]:
        """Return the frames of the durable matches from a sequence to another, both included, in steps.

        They end before sizes and frames exceed `max_bytes`; the first always comes. Raises StoreDamagedError.
        """
        yield from self._index.preparing(filters)
        sizes, pieces, seq, room = array("I"), list[memoryview](), from_seq, max_bytes
        to_seq = min(to_seq, self.durable_seq)
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
            room -= sum(taken.sizes) + len(taken.sizes) * _BESIDE_BYTES
            seq = segment.seq_at(positions[len(taken.sizes) - 1]) + 1
            if fits < len(positions):
                break
            yield taken.cost + 1
        return FrameRun(seq - 1, sizes, pieces)

    def _frame_positions(self, seq: int, to_seq: int, filters: Filters) -> tuple[Sequence[int], Segment | None]:
        """Return the next places to take frames from and their segment, None where there are none up to `to_seq`."""
        place = self._index.next_place(filters, seq)
        if place is None or place[0].seq_at(place[1]) > to_seq:
            return (), None
        segment, start = place
        stop = segment.position_from(to_seq + 1)
        view = None if filters.everything else self._index.view(filters)
        if view is None or view.all:
            return live_span(segment, start, stop, FRAMES_STEP), segment
        return live_run(segment, view, start, stop, STEP), segment

    def _remaining(self) -> Sequence[Segment]:
        return [*self._below_floor, *self._index.segments] if self._below_floor else self._index.segments

    def _ts_at(self, segment: Segment, position: int) -> int:
        file = segment.body
        if file is not None and segment.offsets[position] < file.settled:
            return self._reader.ts_at(segment, position)
        return self.last_ts_ns


def _fitting_frames(segment: Segment, positions: Sequence[int], room: int) -> int:
    """Return how many of the first positions have frames that fit into `room` bytes together."""
    if isinstance(positions, range):
        sizes: Iterable[int] = segment.sizes[positions.start : positions.stop]
    else:
        sizes = map(segment.sizes.__getitem__, positions)
    return bisect_right([*accumulate(map(add, sizes, repeat(_BESIDE_BYTES)))], room)
