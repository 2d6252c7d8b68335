"""The decoded bytes of an archive, read forwards; S2 is rewritten as Snappy, which Arrow decodes.

In that, a repeat becomes a copy with the offset of the last one. Columns have a row for each repeat; of eight bytes
from its place on, and from that of its source, follows what the copy is.

An archive is a row of frames of S2 or Snappy, and each gives its length and the length of its decoded content. So
skipped frames are not decoded, and reading can begin at any frame (a `Mark`).
"""

from __future__ import annotations

import gzip
import platform
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.api.archive.s2_rewrite import S2BlockError, copies, decoded_size, offset_of, repeated, repeats
from natsctl.spark.source.arrays import (
    RowPicker,
    int64_at,
    int_array,
    int_scalar,
    joined,
    repeated_int,
    slices_of,
    spans,
)
from natsctl.spark.source.errors import BackupError

_WORD: Final = 8
_LONGER: Final = 0x15
"""Tag of the repeats with a byte for their length behind them; lower ones have none."""
_MAX_LONGER: Final = 56
"""The greatest value of that byte where the repeat is one copy."""


def respelled(block: bytes, picker: RowPicker) -> bytes | pa.Buffer:
    """Return a block in Snappy's spelling; raises S2BlockError."""
    size, start = decoded_size(block)
    places, sources = next(repeats(block, start, len(block) + 1))
    if not places:
        return block
    at, padded = int_array(places), block + bytes(_WORD)
    repeat = int64_at(padded, at)
    tag, more = _byte(repeat, 0), _byte(repeat, 2)
    longer = pc.equal(tag, int_scalar(_LONGER))
    spelled, widths = _copies(tag, more, longer, int64_at(padded, int_array(sources)))
    begins = pc.add(picker.indices(0, _WORD, len(at)).cast(pa.int64()), int_scalar(len(padded)))
    columns = [begins, pc.add(begins, widths), pc.add(at, pc.if_else(longer, int_scalar(3), int_scalar(2)))]
    several = pc.or_(pc.greater(tag, int_scalar(_LONGER)), pc.and_(longer, pc.greater(more, int_scalar(_MAX_LONGER))))
    extra = b""
    if pc.any(several).as_py():
        rows = pc.indices_nonzero(several).to_pylist()
        base = len(padded) + _WORD * len(at)
        extra, replaced = _long_ones(block, [(places[row], sources[row]) for row in rows], base, size)
        columns = [pc.replace_with_mask(*each) for each in zip(columns, [several] * 3, replaced, strict=True)]
    data = b"".join((padded, spelled.buffers()[1], extra))
    return _put_together(data, at, columns, len(block), picker)


def _byte(word: pa.Int64Array, at: int) -> pa.Int64Array:
    """Return one byte of each of eight."""
    return pc.bit_wise_and(pc.shift_right(word, int_scalar(8 * at)), int_scalar(0xFF))


def _copies(
    tag: pa.Int64Array, more: pa.Int64Array, longer: pa.BooleanArray, source: pa.Int64Array
) -> tuple[pa.Int64Array, pa.Int64Array]:
    """Return the copies that stand for repeats of one copy, each in eight bytes, and how many of them it is.

    The offset lies where it lay in the source, but for those that have a part of it in their tag.
    """
    kind = pc.bit_wise_and(source, int_scalar(3))
    far = pc.equal(kind, int_scalar(3))
    high = pc.shift_left(pc.bit_wise_and(source, int_scalar(0xE0)), int_scalar(11))
    near = pc.bit_wise_or(pc.bit_wise_and(source, int_scalar(0xFF00)), high)
    offset = pc.bit_wise_and(source, pc.if_else(far, int_scalar(0xFFFFFFFF00), int_scalar(0xFFFF00)))
    offset = pc.if_else(pc.equal(kind, int_scalar(1)), near, offset)
    short = pc.add(tag, int_scalar((4 - 1 << 2 | 2) - 1))
    long = pc.add(pc.shift_left(more, int_scalar(2)), int_scalar(8 - 1 << 2 | 2))
    copy = pc.bit_wise_or(pc.if_else(longer, long, short), pc.if_else(far, int_scalar(1), int_scalar(0)))
    return pc.bit_wise_or(offset, copy), pc.if_else(far, int_scalar(5), int_scalar(3))


def _long_ones(
    block: bytes, found: Sequence[tuple[int, int]], base: int, size: int
) -> tuple[bytes, list[pa.Int64Array]]:
    """Return the copies that stand for repeats of several, the begin and end of each from `base` on, and the repeat.

    Raises S2BlockError where they are more than the whole block decodes to.
    """
    extra = bytearray()
    begins: list[int] = []
    ends: list[int] = []
    behind: list[int] = []
    for place, source in found:
        length, end = repeated(block, place)
        size -= length
        if size < 0:
            raise S2BlockError("a repeat repeats too much")
        begins.append(base + len(extra))
        extra += copies(offset_of(block, source), length)
        ends.append(base + len(extra))
        behind.append(end)
    return bytes(extra), [int_array(column) for column in (begins, ends, behind)]


def _put_together(
    data: bytes, at: pa.Int64Array, columns: Sequence[pa.Int64Array], end: int, picker: RowPicker
) -> pa.Buffer:
    """Return the bytes between the repeats and those that stand for them, in turns; nothing stands for the end."""
    begins, ends, behind = columns
    last = int_array((end,))
    between = spans(pa.concat_arrays([int_array((0,)), behind]), pa.concat_arrays([at, last]))
    instead = pa.concat_arrays([spans(begins, ends), spans(last, last)])
    return joined(slices_of(data, _in_turns(between, instead, picker)))


def _in_turns(one: pa.Int64Array, other: pa.Int64Array, picker: RowPicker) -> pa.Int64Array:
    """Return the numbers of two columns of the same length in turns."""
    rows, bit = picker.indices(0, 1, 2 * len(one)), repeated_int(1, 1)[0]
    second = pc.multiply(pc.bit_wise_and(rows, bit), repeated_int(len(one), 1)[0])
    return pa.concat_arrays([one, other]).take(pc.add(pc.shift_right(rows, bit), second))


_COMPRESSED: Final = 0x00
_PLAIN: Final = 0x01
_EMPTY: Final = (0xFF, 0xFE, 0x99)
"""The stream's own, padding, an index: frames without content."""
_CONTENT_AT: Final = 8
_HEAD_BYTES: Final = 16
"""Type, length, check, and the decoded length as a varint."""
_RAW_BYTES: Final = 1 << 20
"""The bytes that are read at once of an archive that is not compressed."""


class Mark(NamedTuple):
    """The place where a frame begins: in the data, and in what the data decodes to."""

    data_at: int = 0
    at: int = 0


@dataclass(frozen=True)
class DataFile:
    """An archive in a file: `size` bytes at `offset`, of the file or of what gzip makes of it; framed unless raw."""

    path: str
    offset: int
    size: int
    zipped: bool = False
    raw: bool = False

    def open(self) -> IO[bytes]:
        """Return the file; raises BackupError where it is not on this machine."""
        try:
            return cast(IO[bytes], gzip.open(self.path, "rb") if self.zipped else Path(self.path).open("rb"))
        except OSError as failure:
            raise BackupError(
                f"cannot read {self.path} on {platform.node()}: {failure.strerror}; tasks read a backup themselves, so "
                "on a cluster it has to lie where every machine finds it under the same path"
            ) from failure


class Content:
    """The decoded bytes of a data file, from a mark on; `mark` is where the frame that was reached begins."""

    def __init__(self, data: DataFile, mark: Mark = Mark()) -> None:  # immutable
        self.data = data
        self.mark = mark
        self._file = data.open()
        self._codec = pa.Codec("snappy")
        self._picker = RowPicker()
        self._kind = _PLAIN
        self._end = mark.at
        self._next = mark.data_at
        self._head = b""
        self._body: bytes | None = b""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def reach(self, at: int) -> bool:
        """Go on to the frame that has the byte `at`, or return False where there is none any more."""
        while at >= self._end:
            if self._next >= self.data.size:
                return False
            self._step()
        return True

    def total(self) -> int:
        """Return the length of all of it; goes to the end."""
        while self._next < self.data.size:
            self._step()
        return self._end

    def read(self, at: int, size: int) -> bytes:
        """Return `size` bytes from `at` on; fewer at the end. Raises ValueError for bytes before the reached frame."""
        if at < self.mark.at:
            raise ValueError(f"byte {at} was passed over")
        parts: list[bytes] = []
        while size > 0 and self.reach(at):
            body = self._decoded()
            piece = body[at - self.mark.at : at - self.mark.at + size]
            parts.append(piece)
            at += len(piece)
            size -= len(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_some(self, at: int, least: int, before: bytes = b"") -> bytes:
        """Return `before` and at least `least` bytes from `at` on, to the end of a frame; fewer at the data's end."""
        parts = [before] if before else []
        while least > 0 and self.reach(at):
            parts.append(self._decoded()[at - self.mark.at :])
            at = self._end
            least -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def fault(self, what: str) -> BackupError:
        """Return the failure to raise for what is wrong with the frame that was reached."""
        return BackupError(f"{self.data.path} is damaged: {what} (byte {self.mark.data_at:,} of its data)")

    def _step(self) -> None:
        """Go on by one frame and read its head."""
        self.mark = Mark(self._next, self._end)
        if self.data.raw:
            size = min(_RAW_BYTES, self.data.size - self._next)
            self._kind, self._next, self._end, self._body = _PLAIN, self._next + size, self._end + size, None
            return
        self._head = head = self._bytes(self._next, _HEAD_BYTES)
        self._kind, size = head[0] if head else -1, int.from_bytes(head[1:4], "little")
        if not self._next and self._kind != _EMPTY[0]:
            raise self.fault("it does not begin as an archive does")
        self._next += 4 + size
        if len(head) < 4 or self._next > self.data.size:
            raise self.fault("it ends inside a frame")
        self._end += self._content_bytes(head, size)
        self._body = None

    def _content_bytes(self, head: bytes, size: int) -> int:
        """Return the length of a frame's content."""
        if self._kind in _EMPTY:
            return 0
        if self._kind not in (_COMPRESSED, _PLAIN) or size < 4:
            raise self.fault(f"a frame is of the unknown type 0x{self._kind:02x}")
        try:
            return size - 4 if self._kind == _PLAIN else decoded_size(head[_CONTENT_AT : 4 + size])[0]
        except S2BlockError as fault:
            raise self.fault(str(fault)) from fault

    def _decoded(self) -> bytes:
        """Return the content of the frame that was reached."""
        if self._body is None:
            begun = self._head[_CONTENT_AT : self._next - self.mark.data_at]
            at = self.mark.data_at + len(self._head)
            block = begun + self._bytes(at, self._next - at)
            self._body = block if self._kind == _PLAIN else self._decompressed(block)
            if len(self._body) != self._end - self.mark.at:
                raise self.fault("a frame is cut")
        return self._body

    def _decompressed(self, block: bytes) -> bytes:
        """Return a block's content; only what is not plain Snappy has to be rewritten."""
        size = self._end - self.mark.at
        try:
            return bytes(self._codec.decompress(block, size, asbytes=True))
        except OSError:
            pass
        try:
            return bytes(self._codec.decompress(respelled(block, self._picker), size, asbytes=True))
        except (OSError, S2BlockError) as fault:
            raise self.fault(f"a frame does not decode: {fault}") from fault

    def _bytes(self, at: int, size: int) -> bytes:
        """Return bytes of the data as they lie in the file; raises BackupError where the disk, or gzip, refuses."""
        if size <= 0:
            return b""
        try:
            self._file.seek(self.data.offset + at)
            return self._file.read(min(size, self.data.size - at))
        except (OSError, EOFError, zlib.error) as failure:
            raise self.fault(str(failure)) from failure
