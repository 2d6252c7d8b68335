"""Version 1 of archives: a tar of a server's block files, `msgs/<i>.blk`, with the messages.

A record is: length (bit 31: it has a header block), sequence, time in ns, length of the subject; then subject, header
block after its length, payload and 8 bytes of hash. Bit 63 of a sequence says that the message was erased, bit 62 that
it is gone, which a later block may say of a message that still lies in an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, calcsize
from tarfile import BLOCKSIZE, TarError, TarInfo
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.arrays import any_sliced, int64_at, int_array, int_scalar, sliced
from natsctl.spark.source.backup_content import Content, Mark
from natsctl.spark.source.rows import Rows, RowShape

_HEAD: Final = "<IQqH"
"""A text and no Struct, which cannot be pickled with the functions that use it."""
_HEAD_BYTES: Final = calcsize(_HEAD)
_LENGTH: Final = "<I"
_SEQ_AT: Final = 4
_TIME_AT: Final = 12
_NAMED_AT: Final = 20
_HEADER_BYTES: Final = 4
_HASH_BYTES: Final = 8
_HAS_HEADER: Final = 1 << 31
_SEQ: Final = (1 << 62) - 1
_FLAGS_AT: Final = 11
"""Byte of a record with the two bits that say that there is no message."""
_FLAGS: Final = 0xC0
_GONE_LENGTH: Final = (_HEAD_BYTES + _HASH_BYTES).to_bytes(4, "little")
"""The beginning of a record of a sequence without a message."""
_FIRST_BYTES: Final = 4096
_FOLDER: Final = "msgs/"
_ENDING: Final = ".blk"
_PAX: Final = (b"x", b"g")
_FILE: Final = (b"0", b"\0")


@dataclass(frozen=True)
class Block:
    """One block file: where it lies in the content, and its first sequence (0: its beginning does not say)."""

    name: str
    at: int
    size: int
    mark: Mark
    first_seq: int


def blocks_in(content: Content) -> Iterator[Block]:
    """Yield the block files of an archive in order; raises BackupError."""
    at = 0
    while True:
        head = content.read(at, BLOCKSIZE)
        if len(head) < BLOCKSIZE:
            raise content.fault("it ends before the end of its tar")
        if head == bytes(BLOCKSIZE):
            return
        info = _tar_info(content, head)
        at += BLOCKSIZE
        name = info.name.removeprefix("./")
        if name.startswith(_FOLDER) and name.endswith(_ENDING) and info.size:
            content.reach(at)
            yield Block(name, at, info.size, content.mark, _first_seq(content.read(at, min(_FIRST_BYTES, info.size))))
        at += info.size + -info.size % BLOCKSIZE


def _tar_info(content: Content, head: bytes) -> TarInfo:
    try:
        info = TarInfo.frombuf(head, "utf-8", "replace")
    except (TarError, ValueError) as fault:
        raise content.fault(f"a tar header cannot be read: {fault}") from fault
    if info.type not in (*_PAX, *_FILE):
        raise content.fault(f"{info.name!r} is no regular file")
    return info


def _first_seq(data: bytes) -> int:
    """Return the first sequence of a block that is not recorded as gone, 0 where the beginning has none."""
    at, unpack = 0, Struct(_HEAD).unpack_from
    while at + _HEAD_BYTES <= len(data):
        flagged, seq, _, _ = unpack(data, at)
        if 0 < seq <= _SEQ:
            return int(seq)
        at += max(flagged & ~_HAS_HEADER, _HEAD_BYTES)
    return 0


def read_whole(content: Content, block: Block) -> bytes:
    """Return the bytes of a block file; raises BackupError."""
    data = content.read(block.at, block.size)
    if len(data) < block.size:
        raise content.fault(f"it ends inside {block.name}")
    if data.startswith(b"cmp"):
        raise content.fault(f"{block.name} is compressed by itself, which no archive of a server is")
    return data


def gone_in(content: Content, block: Block) -> list[int]:
    """Return the sequences that a block says are gone; only one with such a record is read record by record."""
    data = read_whole(content, block)
    at = data.find(_GONE_LENGTH)
    while at >= 0 and not (at + _FLAGS_AT < len(data) and data[at + _FLAGS_AT] & _FLAGS):
        at = data.find(_GONE_LENGTH, at + 1)
    if at < 0:
        return []
    gone, at, unpack = [], 0, Struct(_HEAD).unpack_from
    while at + _HEAD_BYTES <= len(data):
        flagged, seq, _, _ = unpack(data, at)
        if seq > _SEQ:
            gone.append(seq & _SEQ)
        at += _checked(content, block, flagged & ~_HAS_HEADER, at)
    return gone


def _checked(content: Content, block: Block, length: int, at: int) -> int:
    """Return the length of a record, which lies in its block and has room for what every record has."""
    if length < _HEAD_BYTES + _HASH_BYTES or at + length > block.size:
        raise content.fault(f"a record at byte {at:,} of {block.name} has a length of {length:,}")
    return length


def rows_of(content: Content, block: Block, shape: RowShape) -> Rows:
    """Return the messages of a block; headers and payloads only where they are wanted. Raises BackupError."""
    data = read_whole(content, block)
    found = _starts(content, block, data)
    places, ends = found[:-1], found[1:]
    lengths, seqs, times = (int64_at(data, pc.add(places, int_scalar(at))) for at in (0, _SEQ_AT, _TIME_AT))
    named = pc.bit_wise_and(int64_at(data, pc.add(places, int_scalar(_NAMED_AT))), int_scalar(0xFFFF))
    has_header = pc.not_equal(pc.bit_wise_and(lengths, int_scalar(_HAS_HEADER)), int_scalar(0))
    stop = pc.subtract(ends, int_scalar(_HASH_BYTES))
    heads = RecordHeads(seqs, times, pc.add(places, int_scalar(_HEAD_BYTES)), named, has_header, stop)
    there = pc.and_(pc.greater(seqs, int_scalar(0)), pc.less_equal(seqs, int_scalar(_SEQ)))
    try:
        return rows_at(data, heads, shape, there)
    except DamagedRecordError as damage:
        at = places[damage.row].as_py()
        raise content.fault(f"a record at byte {at:,} of {block.name} is shorter than {damage}") from damage


class RecordHeads(NamedTuple):
    """Heads of records, column by column, with the places of the bytes behind each head."""

    seqs: pa.Int64Array
    times: pa.Int64Array
    start: pa.Int64Array
    named: pa.Int64Array
    """Lengths of the subjects."""
    has_header: pa.BooleanArray
    stop: pa.Int64Array


class DamagedRecordError(Exception):
    """A record whose subject or header block is longer than the record: the text says which of them."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


def rows_at(data: bytes | pa.Buffer, heads: RecordHeads, shape: RowShape, there: pa.BooleanArray | None = None) -> Rows:
    """Cut what lies behind the heads: subject, header block after its length, payload; only rows that are `there`.

    Headers and payloads are cut where they are wanted. Raises DamagedRecordError.
    """
    seqs, times, start, named, has_header, stop = heads
    body = pc.add(start, named)
    _check_row(pc.less(stop, body), "its subject")
    if pc.any(has_header).as_py():
        header = pc.add(body, pc.if_else(has_header, int_scalar(_HEADER_BYTES), int_scalar(0)))
        _check_row(pc.less(stop, header), "its header")
        # The length as the second half of a word, which is in the data whatever a record ends with.
        ends = pc.if_else(has_header, header, start)
        header_bytes = pc.shift_right(int64_at(data, pc.subtract(ends, int_scalar(8))), int_scalar(32))
        header_bytes = pc.bit_wise_and(header_bytes, int_scalar(0xFFFFFFFF))
        value = pc.add(header, pc.if_else(has_header, header_bytes, int_scalar(0)))
        _check_row(pc.less(stop, value), "its header")
    else:
        header = value = body
    if there is not None and not pc.all(there).as_py():
        columns = (seqs, times, start, body, header, value, stop)
        seqs, times, start, body, header, value, stop = (column.filter(there) for column in columns)
    headers = any_sliced(data, header, value) if shape.wants_headers else []
    return Rows(seqs, times, sliced(data, start, body), headers, sliced(data, value, stop) if shape.wants_value else [])


def _check_row(damaged: pa.BooleanArray, what: str) -> None:
    if pc.any(damaged).as_py():
        raise DamagedRecordError(pc.indices_nonzero(damaged)[0].as_py(), what)


def _starts(content: Content, block: Block, data: bytes) -> pa.Int64Array:
    """Return the beginnings of a block's records, and the end of the last one; raises BackupError."""
    starts: list[int] = []
    at, size, unpack, least = 0, len(data), Struct(_LENGTH).unpack_from, _HEAD_BYTES + _HASH_BYTES
    while at + _HEAD_BYTES <= size:
        starts.append(at)
        length = unpack(data, at)[0] & 0x7FFFFFFF
        if length < least or at + length > size:
            _checked(content, block, length, at)
        at += length
    if at != size:
        raise content.fault(f"{block.name} ends inside a record")
    return int_array([*starts, at])
