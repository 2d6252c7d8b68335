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
from typing import Final

import pyarrow as pa

from natsctl.spark.source.archive.content import Content, Mark
from natsctl.spark.source.columns.rows import Rows, RowShape

_HEAD: Final = "<IQqH"
"""A text and no Struct, which cannot be pickled with the functions that use it."""
_HEAD_BYTES: Final = calcsize(_HEAD)
_HEADER_BYTES: Final = 4
_HASH_BYTES: Final = 8
_HAS_HEADER: Final = 1 << 31
_SEQ: Final = (1 << 62) - 1
_FLAGS_AT: Final = 11
"""Byte of a record with the two bits that say that there is no message."""
_FLAGS: Final = 0xC0
_GONE_LENGTH: Final = (_HEAD_BYTES + _HASH_BYTES).to_bytes(4, "little")
"""How a record begins that tells of a sequence without a message."""
_FIRST_BYTES: Final = 4096
_FOLDER: Final = "msgs/"
_ENDING: Final = ".blk"
_PAX: Final = (b"x", b"g")
_FILE: Final = (b"0", b"\0")


@dataclass(frozen=True)
class Block:
    """One block file: where it lies in the content, and its first sequence (0: its beginning does not tell)."""

    name: str
    at: int
    size: int
    mark: Mark
    first_seq: int


def blocks_in(content: Content) -> Iterator[Block]:
    """Yield the block files of an archive in order; raises BackupFault."""
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
        raise content.fault(f"a tar header can not be read: {fault}") from fault
    if info.type not in (*_PAX, *_FILE):
        raise content.fault(f"{info.name!r} is no regular file")
    return info


def _first_seq(data: bytes) -> int:
    """The first sequence of a block that is not told to be gone, 0 where the beginning has none."""
    at, unpack = 0, Struct(_HEAD).unpack_from
    while at + _HEAD_BYTES <= len(data):
        flagged, seq, _, _ = unpack(data, at)
        if 0 < seq <= _SEQ:
            return int(seq)
        at += max(flagged & ~_HAS_HEADER, _HEAD_BYTES)
    return 0


def read_whole(content: Content, block: Block) -> bytes:
    """The bytes of a block file; raises BackupFault."""
    data = content.read(block.at, block.size)
    if len(data) < block.size:
        raise content.fault(f"it ends inside {block.name}")
    if data.startswith(b"cmp"):
        raise content.fault(f"{block.name} is compressed by itself, which no archive of a server is")
    return data


def gone_in(content: Content, block: Block) -> list[int]:
    """The sequences that a block says are gone; only one with such a record is read record by record."""
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
    """The length of a record, which lies in its block and has room for what every record has."""
    if length < _HEAD_BYTES + _HASH_BYTES or at + length > block.size:
        raise content.fault(f"a record at byte {at:,} of {block.name} has a length of {length:,}")
    return length


def rows_of(content: Content, block: Block, shape: RowShape) -> Rows:
    """The messages of a block; headers and payloads only where they are wanted. Raises BackupFault."""
    data = read_whole(content, block)
    seqs: list[int] = []
    times: list[int] = []
    subjects: list[bytes] = []
    headers: list[bytes] = []
    values: list[bytes] = []
    wants_value, wants_headers = shape.wants_value, shape.wants_headers
    at, size, unpack, head_bytes = 0, len(data), Struct(_HEAD).unpack_from, _HEAD_BYTES
    while at + head_bytes <= size:
        flagged, seq, ts_ns, named = unpack(data, at)
        end = at + (flagged & 0x7FFFFFFF)
        start = at + head_bytes
        body, stop = start + named, end - _HASH_BYTES
        if stop < body or end > size:
            _checked(content, block, flagged & ~_HAS_HEADER, at)
            raise content.fault(f"a record at byte {at:,} of {block.name} is shorter than its subject")
        at = end
        header = b""
        if flagged & _HAS_HEADER:
            body += _HEADER_BYTES
            header_end = body + int.from_bytes(data[body - _HEADER_BYTES : body], "little")
            if header_end > stop:
                raise content.fault(f"a header before byte {end:,} of {block.name} is longer than its record")
            header, body = data[body:header_end], header_end
        if not 0 < seq <= _SEQ:
            continue
        seqs.append(seq)
        times.append(ts_ns)
        subjects.append(data[start : start + named])
        if wants_headers:
            headers.append(header)
        if wants_value:
            values.append(data[body:stop])
    if at != size:
        raise content.fault(f"{block.name} ends inside a record")
    return Rows(pa.array(seqs, pa.int64()), pa.array(times, pa.int64()), subjects, headers, values)
