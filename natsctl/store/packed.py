"""Sealed segments kept compressed: the bytes of an ordinary segment file in blocks, and how they are read back.

A packed file is a head, a table with length and checksum of every block, and the blocks: Snappy (which is S2 without
its own codes), or the plain bytes if that is not shorter. All other modules see the plain bytes
at their own offsets: frames, checksums, the seal and the index file refer to the plain file.

A packed file is written whole and synced before it gets its name, and never changed: an erasure replaces it. So what
does not fit together was damaged later. A block that is damaged, or says of itself that it is longer than a block can
be, reads as zeros: no frame in it validates. A damaged head or table leaves a file that no segment head validates.
Source: docs/adr/0010.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, TypeAlias
from zlib import crc32

from natsctl.store.disk import Disk, File

MAGIC: Final = b"natspak\x01"
HEAD: Final = struct.Struct("<8sIIQI")
"""magic, crc of all that follows up to the blocks, length of a block, length of the plain file, number of blocks."""
CRC_FROM: Final = 12
BLOCK_MAX: Final = 1024 * 1024
EXPANSION_MAX: Final = 22
"""Maximum plain bytes for one byte of Snappy: a copy of 64 takes three."""


class PackedFile:
    """The plain bytes of a packed file; the block used last is kept. `damaged` says whether one could not be read."""

    __slots__ = ("_block", "_block_number", "_crcs", "_ends", "_file", "_size", "block_bytes", "damaged")

    def __init__(self, file: File, block_bytes: int, size: int, lengths: array[int], crcs: array[int]) -> None:
        self._file = file
        self._size = size
        start = HEAD.size + 8 * len(lengths)
        self._ends = array("Q", accumulate(lengths, initial=start))
        self._crcs = crcs
        self._block = b""
        self._block_number = -1
        self.block_bytes = block_bytes
        self.damaged = False

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self._block, self._block_number = b"", -1
        self._file.close()

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` plain bytes at `offset`; zeros for damaged blocks."""
        end = min(offset + size, self._size)
        if end <= offset:
            return b""
        first, last = offset // self.block_bytes, (end - 1) // self.block_bytes
        skip = first * self.block_bytes
        if first == last:
            return self._plain(first)[offset - skip : end - skip]
        return b"".join(map(self._plain, range(first, last + 1)))[offset - skip : end - skip]

    def stored(self, number: int) -> tuple[bytes, int]:
        """Return a block as it lies on the disk, and its checksum by the table."""
        start, end = self._ends[number], self._ends[number + 1]
        return self._file.pread(end - start, start), self._crcs[number]

    def _plain(self, number: int) -> bytes:
        if number != self._block_number:
            block, crc = self.stored(number)
            length = min(self.block_bytes, self._size - number * self.block_bytes)
            plain = _unpack_block(block, length) if crc32(block) == crc else None
            self.damaged |= plain is None
            self._block = plain if plain is not None else bytes(length)
            self._block_number = number
        return self._block


Readable: TypeAlias = File | PackedFile


def open_segment(disk: Disk, path: str) -> Readable:
    """Open a segment file for reading its plain bytes, however it is kept. Raises OSError."""
    file = disk.open_read(path)
    try:
        return _packed(file) or file
    except OSError:
        file.close()
        raise


def _packed(file: File) -> PackedFile | None:
    """Return the reader of a packed file, or None if the file is plain or unreadable."""
    head = file.pread(HEAD.size, 0)
    if len(head) < HEAD.size or head[:8] != MAGIC:
        return None
    _, crc, block_bytes, size, count = HEAD.unpack(head)
    room = file.size() - HEAD.size
    if not 0 < block_bytes <= BLOCK_MAX or count * 8 > room or -(-size // block_bytes) != count:
        return None
    table = file.pread(count * 8, HEAD.size)
    if len(table) < count * 8 or crc32(table, crc32(head[CRC_FROM:])) != crc:
        return None
    lengths, crcs = array("I", table[: count * 4]), array("I", table[count * 4 :])
    if sum(lengths) + len(table) != room or size > EXPANSION_MAX * room:
        return None
    return PackedFile(file, block_bytes, size, lengths, crcs)


def pack(data: bytes, block_bytes: int) -> bytes:
    view = memoryview(data)
    blocks = [_pack_block(view[at : at + block_bytes]) for at in range(0, len(data), block_bytes)]
    return _joined(blocks, list(map(crc32, blocks)), len(data), block_bytes)


def altered(file: PackedFile, writes: Sequence[tuple[int, bytes]]) -> bytes | None:
    """Return a packed file with `writes` (offset, bytes) applied to its plain bytes, or None if they are damaged.

    Blocks that are not written to are taken over as they lie, damage included.
    """
    size, block_bytes = file.size(), file.block_bytes
    touched: dict[int, bytearray] = {}
    for offset, data in writes:
        at, end = offset, offset + len(data)
        while at < end:
            number, within = divmod(at, block_bytes)
            if number not in touched:
                touched[number] = bytearray(file.pread(block_bytes, number * block_bytes))
            stop = min(end, (number + 1) * block_bytes)
            touched[number][within : within + stop - at] = data[at - offset : stop - offset]
            at = stop
    if file.damaged:
        return None
    blocks, crcs = [], []
    for number in range(-(-size // block_bytes)):
        block, crc = file.stored(number)
        if number in touched:
            block = _pack_block(touched[number])
            crc = crc32(block)
        blocks.append(block)
        crcs.append(crc)
    return _joined(blocks, crcs, size, block_bytes)


def overwritten(data: bytes, writes: Sequence[tuple[int, bytes]]) -> bytes:
    """Return `data` with `writes` (offset, bytes) put over it."""
    changed = bytearray(data)
    for offset, piece in writes:
        changed[offset : offset + len(piece)] = piece
    return bytes(changed)


def _joined(blocks: Sequence[bytes], crcs: Sequence[int], size: int, block_bytes: int) -> bytes:
    table = array("I", map(len, blocks)).tobytes() + array("I", crcs).tobytes()
    tail = HEAD.pack(MAGIC, 0, block_bytes, size, len(blocks))[CRC_FROM:] + table
    return b"".join((MAGIC, crc32(tail).to_bytes(4, "little"), tail, *blocks))


def _pack_block(plain: memoryview | bytearray) -> bytes:
    import cramjam  # 4 ms, for streams that ask for it

    block = bytes(cramjam.snappy.compress_raw(plain))
    return block if len(block) < len(plain) else bytes(plain)


def _unpack_block(block: bytes, length: int) -> bytes | None:
    """Return a block's plain bytes, or None if there are not exactly `length` of them."""
    if len(block) == length:
        return block
    import cramjam

    try:
        if cramjam.snappy.decompress_raw_len(block) != length:
            return None
        plain = bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError:
        return None
    return plain if len(plain) == length else None
