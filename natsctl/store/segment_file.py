"""The bytes of one segment: on disk, and cached in memory for reads.

Only bytes up to `settled` are ever read. Kept bytes are one run of adjacent pieces ("blobs") at ascending offsets; a
piece that this process wrote is trusted, one that was read from the disk is checked frame by frame.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from contextlib import suppress

from natsctl.store.disk import Disk, File
from natsctl.store.frame import FileHead
from natsctl.store.packed import Readable, open_segment

MAX_BLOBS = 256
"""Pieces kept of a segment; when there are more they are joined."""
LOAD_AFTER_MISSES = 8
"""Single reads that go forward in one segment before all of it is loaded."""
NEAR_BYTES = 256 * 1024
"""Distance that a read may jump and still count as going forward."""


def segment_name(base: int, generation: int) -> str:
    return f"{base:020d}-{generation}.seg"


def index_name(base: int, generation: int) -> str:
    return f"{base:020d}-{generation}.idx"


class SegmentFile:
    __slots__ = (
        "bare_end",
        "blobs",
        "counted",
        "created",
        "dead_bytes",
        "floor",
        "folder",
        "head",
        "indexed",
        "kept_end",
        "last_miss",
        "misses",
        "packed",
        "settled",
        "size",
        "starts",
        "tombs",
        "trusted",
        "used",
        "writer",
        "zeros_end",
    )

    def __init__(self, folder: str, head: FileHead) -> None:
        self.folder = folder
        self.head = head
        self.created = False
        self.indexed = False
        """Whether it has an index file; the caller that clears this (`give_up_index`) unlinks the file."""
        self.packed = False
        """Whether the file is compressed; every length and offset here is that of the plain content."""
        self.size = 0
        self.settled = 0
        self.zeros_end = 0
        """Length of the file if it has zeros after its messages, else at most `size`."""
        self.dead_bytes = 0
        self.bare_end = 0
        """Offset before which a scan found no message with a header."""
        self.floor = head.floor
        """The highest floor in this file: in its header or in a FLOOR record that is on disk."""
        self.tombs = array("Q")
        self.writer: File | None = None
        self.starts: list[int] = []
        self.blobs: list[bytes] = []
        self.trusted = True
        """Whether the first piece need not be checked; later ones never."""
        self.kept_end = 0
        """The offset of the pieces' end."""
        self.counted = 0
        """Bytes of the pieces as the cache counts them."""
        self.used = False
        """Whether the pieces were used since the cache last looked for some to release."""
        self.misses = 0
        self.last_miss = 0

    @property
    def path(self) -> str:
        return f"{self.folder}/{segment_name(self.head.base, self.head.generation)}"

    @property
    def index_path(self) -> str:
        return f"{self.folder}/{index_name(self.head.base, self.head.generation)}"

    def give_up_index(self) -> list[str]:
        """Clear `indexed` and return the path of the index file, for the caller to unlink.

        Return an empty list if it does not exist or another caller has it: a file is unlinked once.
        """
        indexed, self.indexed = self.indexed, False
        return [self.index_path] if indexed else []

    def keep(self, offset: int, blob: bytes, end: int) -> None:
        """Keep a piece, from `offset` to `end`; release the previous pieces unless this one follows them."""
        if self.kept_end != offset:
            self.forget()
        self.starts.append(offset)
        self.blobs.append(blob)
        self.kept_end = end
        if len(self.blobs) > MAX_BLOBS:
            self._join()

    def _join(self) -> None:
        """Join the trusted pieces; an untrusted first piece stays separate."""
        first = 0 if self.trusted else 1
        joined = b"".join(self.blobs[first:])
        del self.starts[first + 1 :], self.blobs[first:]
        self.blobs.append(joined)

    @property
    def kept(self) -> int:
        """Return the number of bytes of the pieces."""
        return self.kept_end - self.starts[0] if self.starts else 0

    def forget(self) -> None:
        self.starts, self.blobs, self.trusted = [], [], True

    def find(self, offset: int) -> tuple[int, bytes, bool] | None:
        at = bisect_right(self.starts, offset) - 1
        if at < 0 or offset >= self.starts[at] + len(self.blobs[at]):
            return None
        return self.starts[at], self.blobs[at], self.trusted or at > 0

    def trim(self, disk: Disk) -> None:
        """Cut off the zeros ahead of the messages; if the disk refuses, the next start does it."""
        if self.zeros_end > self.size == self.settled:
            with suppress(OSError):
                self.writer = self.writer or disk.open(self.path)
                self.writer.truncate(self.size)
                self.zeros_end = 0

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class SegmentCache:
    """Kept bytes and read descriptors of all streams; above a limit, bytes that were not used lately are released."""

    READERS = 64
    """Read descriptors that stay open."""

    def __init__(self, disk: Disk, limit_bytes: int) -> None:
        self._disk = disk
        self._limit = limit_bytes
        self._files: dict[SegmentFile, None] = {}
        self._readers: dict[SegmentFile, Readable] = {}
        self.bytes = 0

    def touch(self, file: SegmentFile) -> None:
        """Count what `file` keeps as used now, and release the bytes of others above the limit."""
        kept = file.kept
        self.bytes += kept - file.counted
        if not file.counted:
            self._files[file] = None
        file.counted, file.used = kept, True
        if self.bytes > self._limit:
            self._release(file)

    def _release(self, last: SegmentFile) -> None:
        """Release the bytes of files, those first that were not used since the last look; `last` stays."""
        files = self._files
        while self.bytes > self._limit and len(files) > 1:
            oldest = next(iter(files))
            if oldest.used or oldest is last:
                oldest.used = False
                del files[oldest]
                files[oldest] = None
            else:
                self.drop(oldest)

    def drop(self, file: SegmentFile) -> None:
        self._files.pop(file, None)
        self.bytes -= file.counted
        file.counted = 0
        file.forget()
        reader = self._readers.pop(file, None)
        if reader is not None:
            reader.close()

    def reader(self, file: SegmentFile) -> Readable:
        found = self._readers.pop(file, None)
        if found is None:
            while len(self._readers) >= self.READERS:
                self._readers.pop(next(iter(self._readers))).close()
            found = open_segment(self._disk, file.path)
        self._readers[file] = found
        return found

    def load(self, file: SegmentFile) -> None:
        blob = self.reader(file).pread(file.settled, 0)
        file.forget()
        file.misses = 0
        file.keep(0, blob, len(blob))
        file.trusted = False
        self.touch(file)

    def fetch(self, file: SegmentFile, offset: int, length: int) -> tuple[int, bytes, bool]:
        """Return (start, blob, trusted) of a piece that holds `offset`: a kept one, or `length` bytes that are read."""
        found = file.find(offset)
        if found is not None:
            return found
        file.misses = file.misses + 1 if 0 <= offset - file.last_miss < NEAR_BYTES else 0
        file.last_miss = offset
        if file.misses > LOAD_AFTER_MISSES:
            self.load(file)
            found = file.find(offset)
            if found is not None:
                return found
        return offset, self.reader(file).pread(length, offset), False

    def close(self) -> None:
        for file in list(self._files):
            self.drop(file)
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
