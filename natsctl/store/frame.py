"""Frames: how every log file spells its records, and the one scanner that reads them.

A file starts with a 64-byte header that carries a random salt. A frame is a 40-byte head, subject, header block (after
its length, if there is one) and payload, little-endian and unpadded. The checksum starts from salt + length and covers
everything after itself, so a wild length, stale blocks, zeros, or a payload that contains a copy of a log never
validate. Source: docs/adr/0004.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from natsctl.native import lib
from natsctl.store.columns import Places
from natsctl.store.message import Copy, MessageRun, StoredMessage
from natsctl.store.subject_table import SubjectTable, Tally

MAGIC = 0x9E4C6A5B
FILE_MAGIC = b"natsctl\x00"
UNMARKED, MARKED = 1, 2
"""Formats of a file's header: without, and with the identity of its stream or store and the file's role."""
SEGMENT_FILE, JOURNAL_FILE, HIGH_WATER_FILE = 1, 2, 3
"""Roles of files, so that a file is not mistaken for another one that begins with the same numbers."""
IDENTITY_BYTES = 12
NO_IDENTITY = bytes(IDENTITY_BYTES)
MASK = 0xFFFFFFFF

MSG, ERASED, DELETES, FLOOR, ERASE, SEAL, JOURNAL, HIGH_WATER, OPENED, CLEAN, GONE_STREAM = range(1, 12)
KINDS = range(MSG, GONE_STREAM + 1)

HEAD = struct.Struct("<IIIBBHQQQ")
"""magic, length, crc, kind, flags, subject length, seq, ts_ns, durable_seq."""
PREFIX = struct.Struct("<III")
BODY = struct.Struct("<BBHQQQ")
HEADER_LENGTH = struct.Struct("<I")
"""Stands before the header block where HAS_HEADER is set."""
HAS_HEADER = 1
TIMED = 2
"""Flag: the message carries a time of its own (a TTL or a schedule), so that its owner finds it without reading all."""
MORE = 4
"""Flag: the next message belongs to the same batch; a batch is there whole or not at all."""
FILE_HEAD = struct.Struct("<8sHHIQQQQI12s")
"""magic, format, role, salt, stream id, base, floor, generation, crc, identity."""
FLOOR_BODY = struct.Struct("<QQ")
"""Lowest sequence that can be live, highest sequence given out."""
ERASE_BODY = struct.Struct("<QQQQI")
"""Sequence, base and generation of its segment, offset and length of its frame."""
SEAL_BODY = struct.Struct("<QQ")
"""Last sequence covered, length of the file before the seal."""

HEAD_BYTES = HEAD.size
UNCHECKED_BYTES = PREFIX.size
"""Length of magic, length and checksum: the checksum covers the rest of a frame, from its kind on."""
KIND_AT = UNCHECKED_BYTES
FLAGS_AT = KIND_AT + 1
FRAME_OVER_SIZE = 10
"""A message's frame is this much longer than its accounted size."""
FILE_HEAD_BYTES = FILE_HEAD.size

_head_at = HEAD.unpack_from
_pack_body = BODY.pack
_pack_prefix = PREFIX.pack
_pack_length = HEADER_LENGTH.pack

FrameColumns = tuple[bytes, "array[int]", "array[int]", int]
"""The frames of a run of messages in one piece, the accounted size and the offset of each, and the last one's time."""


class FileHead(NamedTuple):
    """Header of a log file; one without an identity was begun by an earlier version (docs/adr/0004)."""

    salt: int
    stream_id: int
    base: int
    floor: int
    generation: int
    identity: bytes = NO_IDENTITY
    role: int = 0

    @property
    def is_marked(self) -> bool:
        return self.identity != NO_IDENTITY

    def encode(self) -> bytes:
        first = (FILE_MAGIC, MARKED if self.is_marked else UNMARKED, self.role, self.salt, self.stream_id, self.base)
        plain = FILE_HEAD.pack(*first, self.floor, self.generation, 0, self.identity)
        return FILE_HEAD.pack(*first, self.floor, self.generation, crc32(plain), self.identity)


def next_salt(salt: int, generation: int) -> int:
    """Return the salt of a journal's file of `generation`, the successor of one with `salt`."""
    return crc32(b"%d" % generation, salt) or 1


def parse_file_head(data: bytes) -> FileHead | None:
    if len(data) < FILE_HEAD_BYTES:
        return None
    magic, fmt, role, salt, stream_id, base, floor, generation, crc, identity = FILE_HEAD.unpack_from(data)
    head = FileHead(salt, stream_id, base, floor, generation, identity, role)
    if magic != FILE_MAGIC or fmt != (MARKED if head.is_marked else UNMARKED) or not salt:
        return None
    return head if head.encode() == data[:FILE_HEAD_BYTES] and crc else None


def encode(kind: int, seq: int, ts_ns: int, durable_seq: int, salt: int, payload: bytes) -> bytes:
    body = BODY.pack(kind, 0, 0, seq, ts_ns, durable_seq) + payload
    length = len(body) + 12
    return PREFIX.pack(MAGIC, length, crc32(body, (salt + length) & MASK)) + body


def _message(
    salt: int, durable_seq: int, seq: int, ts_ns: int, flags: int, subject: bytes, header: bytes, payload: bytes
) -> bytes:
    """Return the frame of one message; `flags` are TIMED and MORE."""
    if header:
        head = _pack_body(MSG, flags | HAS_HEADER, len(subject), seq, ts_ns, durable_seq)
        body = b"".join((head, subject, _pack_length(len(header)), header, payload))
    else:
        body = b"".join((_pack_body(MSG, flags, len(subject), seq, ts_ns, durable_seq), subject, payload))
    length = len(body) + 12
    return _pack_prefix(MAGIC, length, crc32(body, (salt + length) & MASK)) + body


def _run(run: MessageRun, salt: int, durable_seq: int, first_seq: int, ts_ns: int, offset: int) -> FrameColumns:
    copies = [(seq, ts_ns, op[1], op[3], op[4]) for seq, op in enumerate(run.ops(), first_seq)]
    return _copies(salt, durable_seq, ts_ns, offset, copies)


def _copies(salt: int, durable_seq: int, last_ts_ns: int, offset: int, messages: Sequence[Copy]) -> FrameColumns:
    """Return the frames of messages with sequences and times of their own, a time below an earlier one raised to it."""
    frames, sizes, offsets = list[bytes](), array("I"), array("I")
    for seq, ts_ns, subject, header, payload in messages:
        if ts_ns > last_ts_ns:
            last_ts_ns = ts_ns
        if header:
            head = _pack_body(MSG, HAS_HEADER, len(subject), seq, last_ts_ns, durable_seq)
            body = b"".join((head, subject, _pack_length(len(header)), header, payload))
        else:
            body = _pack_body(MSG, 0, len(subject), seq, last_ts_ns, durable_seq) + subject + payload
        length = len(body) + 12
        frames.append(_pack_prefix(MAGIC, length, crc32(body, (salt + length) & MASK)))
        frames.append(body)
        sizes.append(length - FRAME_OVER_SIZE)
        offsets.append(offset)
        offset += length
    return b"".join(frames), sizes, offsets, last_ts_ns


encode_message = _message if lib is None else lib.frame
encode_run: Callable[..., FrameColumns] = _run if lib is None else lib.PublishRun.frames
encode_copies = _copies if lib is None else lib.frame_copies


def erased(seq: int, length: int, salt: int) -> bytes:
    """Return the frame that takes the place of an erased message: same length, zeros, valid checksum."""
    return encode(ERASED, seq, 0, 0, salt, bytes(length - HEAD_BYTES))


class FrameRecord(NamedTuple):
    """A frame that is not a message; `after` messages of the file come before it."""

    kind: int
    seq: int
    payload: bytes
    offset: int
    end: int
    after: int


class FrameBatch(NamedTuple):
    """Offset of a batch that has no end yet; `messages` and `records` came before it, the last of them `last_seq`."""

    start: int
    messages: int
    records: int
    last_seq: int
    last_ts: int


class FrameGap(NamedTuple):
    """Bytes [start, end) that hold no valid frame; `messages` and `records` came before it.

    `batch` is the batch that it cuts short, if any.
    """

    start: int
    end: int
    messages: int
    records: int
    durable_seq: int
    last_seq: int
    last_ts: int
    batch: FrameBatch | None = None


class Scan(msgspec.Struct):
    head: FileHead | None
    size: int
    """Length of the file without `zeros`."""
    end: int = 0
    zeros: int = 0
    """Number of zeros that a segment ends with: space for later messages. A start cuts them off."""
    seqs: array[int] | range = msgspec.field(default_factory=lambda: array("Q"))
    offsets: Places = msgspec.field(default_factory=lambda: array("I"))
    sizes: array[int] = msgspec.field(default_factory=lambda: array("I"))
    sids: array[int] = msgspec.field(default_factory=lambda: array("I"))
    timed: array[int] = msgspec.field(default_factory=lambda: array("Q"))
    """Sequences of the messages flagged TIMED."""
    headed: bool = False
    """Whether a message has a header, or may have one."""
    erased_seqs: set[int] = msgspec.field(default_factory=set)
    erased_bytes: int = 0
    records: list[FrameRecord] = msgspec.field(default_factory=list)
    gaps: list[FrameGap] = msgspec.field(default_factory=list)
    first_ts: int = 0
    last_ts: int = 0
    durable_seq: int = 0
    last_seq: int = 0
    batch: FrameBatch | None = None
    """A batch that the file ends in the middle of."""
    packed: bool = False
    """Whether the file lies compressed."""
    indexed: bool = False
    """Whether this comes from the segment's index file; then `dead` marks messages removed before it was written."""
    dead: bytearray | None = None
    tally: Tally | None = None

    def holds(self, seq: int) -> bool:
        at = bisect_right(self.seqs, seq) - 1
        return at >= 0 and self.seqs[at] == seq

    def is_live(self, seq: int) -> bool:
        """Return whether message `seq` is there and was not removed before the index file was written."""
        return self.holds(seq) and not (self.dead is not None and self.dead[bisect_right(self.seqs, seq) - 1])

    def cut(self, at: FrameGap | FrameBatch) -> None:
        """Forget what lies at and after the start of `at`."""
        self.seqs = self.seqs[: at.messages]
        assert isinstance(self.offsets, array)
        del self.offsets[at.messages :], self.sizes[at.messages :]
        del self.sids[at.messages :], self.records[at.records :]
        del self.timed[bisect_right(self.timed, at.last_seq) :]
        self.gaps = [g for g in self.gaps if g.start < at.start]
        self.end, self.zeros = at.start, 0
        self.last_seq, self.last_ts = at.last_seq, at.last_ts
        self.batch = None


def scan(data: bytes, max_frame_bytes: int, table: SubjectTable) -> Scan:
    """Return every valid frame of a log file, its subjects as numbers of `table`.

    Damage is recorded as gaps and looked past, never skipped silently.
    """
    result = Scan(parse_file_head(data), len(data))
    if result.head is None:
        return result
    salt, size = result.head.salt, len(data)
    view = memoryview(data)
    position = result.end = FILE_HEAD_BYTES
    while position < size:
        stop = _scan_run(data, view, position, max_frame_bytes, table, result)
        if stop > position:
            result.end = stop
        if stop >= size:
            break
        position = _resync(data, view, stop + 1, salt, max_frame_bytes, result.last_seq)
        result.gaps.append(
            FrameGap(
                stop,
                position,
                len(result.seqs),
                len(result.records),
                result.durable_seq,
                result.last_seq,
                result.last_ts,
                result.batch,
            )
        )
        result.batch = None
    _leave_out_zeros(data, result)
    return result


def _leave_out_zeros(data: bytes, result: Scan) -> None:
    gap = result.gaps[-1] if result.gaps else None
    if gap is None or gap.end < result.size or result.head is None or result.head.role != SEGMENT_FILE:
        return
    zeros = result.size - gap.start
    if data.count(0, gap.start) == zeros:
        result.gaps.pop()
        result.size, result.zeros, result.batch = gap.start, zeros, gap.batch


def _scan_run(data: bytes, view: memoryview, position: int, max_frame: int, table: SubjectTable, out: Scan) -> int:
    """Take in valid frames from `position` on; return where the first invalid one starts, or the file's end."""
    assert out.head is not None
    size, salt = len(data), out.head.salt
    while position + HEAD_BYTES <= size:
        if data[position + KIND_AT] == MSG and out.batch is None:
            stop = _take_messages(data, position, max_frame, table, out)
            if stop > position:
                position = stop
                continue
        magic, length, crc, kind, flags, slen, seq, ts_ns, synced = _head_at(data, position)
        end, start = position + length, position + HEAD_BYTES
        if magic != MAGIC or end > size or length > max_frame or start + slen > end or kind not in KINDS:
            break
        if crc32(view[position + UNCHECKED_BYTES : end], (salt + length) & MASK) != crc:
            break
        if kind == MSG:
            if seq <= out.last_seq:
                break
            _take_message(out, position, length, table.intern(data[start : start + slen]), flags, seq, ts_ns)
        elif kind == ERASED:
            out.erased_seqs.add(seq)
            out.erased_bytes += length
            out.last_seq, out.batch = max(seq, out.last_seq), None
        else:
            out.records.append(FrameRecord(kind, seq, data[start:end], position, end, len(out.seqs)))
            out.batch = None
        out.durable_seq = max(out.durable_seq, synced)
        position = end
    return position if position < size else size


def _take_messages(data: bytes, position: int, max_frame: int, table: SubjectTable, out: Scan) -> int:
    """Take in the messages from `position` on, up to one of a batch, and return their end."""
    assert out.head is not None and isinstance(out.seqs, array) and isinstance(out.offsets, array)
    before = (out.last_seq, out.durable_seq, out.first_ts, out.last_ts)
    run = scan_messages(data, position, out.head.salt, max_frame, *before, table.ids, table.names)
    position, out.last_seq, out.durable_seq, out.first_ts, out.last_ts, headed = run[:6]
    out.headed |= headed
    table.grow()
    if len(out.seqs):
        out.seqs += run[6]
        out.offsets += run[7]
        out.sizes += run[8]
        out.sids += run[9]
        out.timed += run[10]
    else:
        out.seqs, out.offsets, out.sizes, out.sids, out.timed = run[6:]
    return position


def _take_message(out: Scan, position: int, length: int, sid: int, flags: int, seq: int, ts_ns: int) -> None:
    """Take in one message, possibly of a batch."""
    assert isinstance(out.seqs, array) and isinstance(out.offsets, array)
    out.headed |= bool(flags & HAS_HEADER)
    if not out.last_ts:
        out.first_ts = ts_ns
    if flags & TIMED:
        out.timed.append(seq)
    if not flags & MORE:
        out.batch = None
    elif out.batch is None:
        out.batch = FrameBatch(position, len(out.seqs), len(out.records), out.last_seq, out.last_ts)
    out.seqs.append(seq)
    out.offsets.append(position)
    out.sizes.append(length - FRAME_OVER_SIZE)
    out.sids.append(sid)
    out.last_seq, out.last_ts = seq, ts_ns


Column: TypeAlias = "array[int]"
MessageColumns = tuple[int, int, int, int, int, bool, Column, Column, Column, Column, Column]
"""End of the messages, their last sequence, durable sequence, first and last time, and whether any has a header;
sequences, offsets, sizes, subject numbers, and the sequences of the messages flagged TIMED."""


def _scan_messages(
    data: bytes, position: int, salt: int, max_frame: int, last_seq: int, durable_seq: int,
    first_ts: int, last_ts: int, ids: dict[bytes, int], names: list[bytes],
) -> MessageColumns:  # fmt: skip
    """Return the columns of the whole messages from `position` on, up to a frame of another kind or of a batch.

    New subjects are added to `ids` and `names`.
    """
    size, view, plain = len(data), memoryview(data), HAS_HEADER | TIMED
    seqs, offsets, sizes, sids, timed = array("Q"), array("I"), array("I"), array("I"), array("Q")
    seen = 0
    while position + HEAD_BYTES <= size:
        magic, length, crc, kind, flags, slen, seq, ts_ns, synced = _head_at(data, position)
        end, start = position + length, position + HEAD_BYTES
        if magic != MAGIC or kind != MSG or flags & ~plain or seq <= last_seq:
            break
        if end > size or length > max_frame or start + slen > end:
            break
        if crc32(view[position + UNCHECKED_BYTES : end], (salt + length) & MASK) != crc:
            break
        subject = data[start : start + slen]
        sid = ids.get(subject)
        if sid is None:
            sid = ids[subject] = len(names)
            names.append(subject)
        seqs.append(seq)
        offsets.append(position)
        sizes.append(length - FRAME_OVER_SIZE)
        sids.append(sid)
        if flags & TIMED:
            timed.append(seq)
        seen |= flags
        if not last_ts:
            first_ts = ts_ns
        last_seq, last_ts, position = seq, ts_ns, end
        if synced > durable_seq:
            durable_seq = synced
    return (
        position,
        last_seq,
        durable_seq,
        first_ts,
        last_ts,
        bool(seen & HAS_HEADER),
        seqs,
        offsets,
        sizes,
        sids,
        timed,
    )


scan_messages = _scan_messages if lib is None else lib.scan_messages


def _resync(data: bytes, view: memoryview, position: int, salt: int, max_frame: int, last_seq: int) -> int:
    """Return the start of the next valid frame at or after `position`, or the file's end."""
    needle = struct.pack("<I", MAGIC)
    while (position := data.find(needle, position)) >= 0:
        if position + HEAD_BYTES <= len(data):
            _, length, crc, kind, _, slen, seq, _, _ = _head_at(data, position)
            end = position + length
            fits = HEAD_BYTES + slen <= length <= max_frame and end <= len(data)
            if (
                fits
                and crc32(view[position + 12 : end], (salt + length) & MASK) == crc
                and kind in KINDS
                and (kind != MSG or seq > last_seq)
            ):
                return position
        position += 1
    return len(data)


def claimed_durable(data: bytes, base: int) -> int:
    """Return the highest durable_seq that anything looking like a frame of this segment claims, where the salt is lost.

    A frame records at least the synced state before it; anything else is an old block of another file, or garbage.
    """
    needle, position, highest = struct.pack("<I", MAGIC), 0, 0
    while (position := data.find(needle, position)) >= 0 and position + HEAD_BYTES <= len(data):
        _, length, _, kind, _, _, seq, _, synced = _head_at(data, position)
        if kind in KINDS and position + length <= len(data) and synced <= seq >= base - 1:
            highest = max(highest, synced)
        position += 1
    return highest


def parse_message(blob: bytes, at: int) -> StoredMessage:
    _, length, _, _, flags, slen, seq, ts_ns, _ = _head_at(blob, at)
    end, start = at + length, at + HEAD_BYTES + slen
    subject = blob[start - slen : start]
    if not flags & HAS_HEADER:
        return StoredMessage(seq, ts_ns, subject, b"", blob[start:end])
    body = start + 4 + HEADER_LENGTH.unpack_from(blob, start)[0]
    return StoredMessage(seq, ts_ns, subject, blob[start + 4 : body], blob[body:end])


def _read_frames(
    blob: bytes,
    start: int,
    places: list[int],
    first: int,
    salt: int,
    kind: type[StoredMessage],
    messages: list[StoredMessage] | None,
) -> int:
    """Append the messages whose frames begin at `places[first:]` of a file to `messages`; `start` is the blob's place.

    Without `messages` they are only examined. Return the first place that is outside of the blob, or has no whole
    frame; with a salt other than 0 also the place of a wrong checksum.
    """
    new, size = tuple.__new__, len(blob)
    for done in range(first, len(places)):
        at = places[done] - start
        if at < 0 or at + HEAD_BYTES > size:
            return done
        _, length, crc, _, flags, slen, seq, ts_ns, _ = _head_at(blob, at)
        stop = at + length
        if length < HEAD_BYTES or stop > size or (salt and crc32(blob[at + 12 : stop], (salt + length) & MASK) != crc):
            return done
        if messages is None:
            continue
        body = at + HEAD_BYTES + slen
        header = b""
        if flags & HAS_HEADER:
            cut = body + 4 + HEADER_LENGTH.unpack_from(blob, body)[0]
            header, body_at = blob[body + 4 : cut], cut
        else:
            body_at = body
        messages.append(new(kind, (seq, ts_ns, blob[at + HEAD_BYTES : body], header, blob[body_at:stop])))
    return len(places)


read_frames = _read_frames if lib is None else lib.read_frames


def is_intact(blob: bytes, at: int, salt: int, seq: int) -> bool:
    if at + HEAD_BYTES > len(blob):
        return False
    magic, length, crc, kind, _, _, found, _, _ = _head_at(blob, at)
    if magic != MAGIC or kind != MSG or found != seq or at + length > len(blob):
        return False
    return bool(crc32(blob[at + 12 : at + length], (salt + length) & MASK) == crc)


def deletes_of(record: FrameRecord) -> array[int]:
    seqs = array("Q")
    seqs.frombytes(record.payload)
    return seqs
