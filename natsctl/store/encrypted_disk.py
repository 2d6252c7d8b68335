"""A disk that encrypts: the store above it sees its own bytes, the disk below only encrypted ones.

Logs (segments, journals, WITNESS) begin with a header of 4,096 bytes, and byte n of the log is byte 4096 + n of the
file, laid over with byte n of a stream that follows from the file's key. So appends, reads at any place, torn tails and
cuts are as they are without encryption. Files that are written whole (`meta`, index files) are encrypted and
authenticated as one piece. FORMAT, LOCK, RESERVE, KEYS and its copy hold nothing of the owner's and stay as they are.

No byte of a stream of bytes is ever used for two different contents, as two versions of a disk would then reveal both.
A range that may have been written before, by this process or by an earlier one with lost bytes, begins a new
stream under a key of its own. Its slot in the header says from where on: 112 of them, and a start copies a file that
has used half. Bytes in the middle of a log are not overwritten with others; erasures replace the file. On a full disk
zeros are written first, so that a write that fails uses none.

A file with a damaged or never synced header reads as noise: no frame in it validates. Source: docs/adr/0031.
"""

from __future__ import annotations

import errno
import hmac
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from natsctl.store.disk import Disk, File
from natsctl.store.file_commit import NO_SPACE, replace_file, write_all
from natsctl.store.keys import NONCE_BYTES, SCRYPT_COST, Cipher, DataKey, KeyFile, Keyring, Keystream, seal, unseal
from natsctl.store.layout import says_encrypted

MAGIC: Final = b"natsenc\x01"
HEAD: Final = struct.Struct("<8sQ16s16s")
"""magic, number of the data key, random number, check."""
HEAD_BYTES: Final = HEAD.size
LOG_START: Final = 4096
"""Place of a log's first byte: a page, so that pages of the log are pages of the file."""
SLOT: Final = struct.Struct("<Q16s8s")
"""Offset where another key stream begins, its random number, and a check."""
SLOTS_START: Final = 512
"""The header's first sector is written once; slots share the others, none of them with a sector's end in it."""
SLOTS: Final = (LOG_START - SLOTS_START) // SLOT.size
WORN_SLOTS: Final = SLOTS // 2
"""Min number of used slots of a file that a start copies."""
ANYWHERE: Final = 1 << 63
"""The end of what may have been written by an earlier process."""
_CHECKED: Final = HEAD_BYTES - 16


class Range(NamedTuple):
    """The bytes of a log from `start` to the next range, and their stream of bytes."""

    start: int
    nonce: bytes
    stream: Keystream


def _head_of(key: DataKey, nonce: bytes) -> bytes:
    plain = HEAD.pack(MAGIC, key.number, nonce, bytes(16))[:_CHECKED]
    return plain + hmac.digest(key.derived(b"file", nonce), plain, "sha256")[:16]


def _parse_head(data: bytes, keyring: Keyring) -> tuple[DataKey, bytes] | None:
    """Return data key and random number of a file, or None if it has no valid header."""
    if len(data) < HEAD_BYTES:
        return None
    magic, number, nonce, _ = HEAD.unpack_from(data)
    key = keyring.keys.get(number)
    if magic != MAGIC or key is None or not hmac.compare_digest(_head_of(key, nonce), data[:HEAD_BYTES]):
        return None
    return key, nonce


class LogCipher:
    """The encryption of one log, shared by all that have the file open; without ranges its header is not valid."""

    __slots__ = ("end", "found_no_room", "is_renewed", "key", "nonce", "ranges")

    def __init__(self, key: DataKey, nonce: bytes) -> None:
        self.key = key
        self.nonce = nonce
        self.ranges: tuple[Range, ...] = ()
        self.end = ANYWHERE
        """End of what may have been written with the last range's stream, even if it was cut off since."""
        self.is_renewed = False
        """Whether this process has written the header, so that it is synced with the next write."""
        self.found_no_room = False
        """Whether a write failed for lack of room; from then on zeros take the room first."""

    def begin(self, nonce: bytes) -> None:
        self.nonce = nonce
        self.ranges = (Range(0, nonce, Keystream(self.key.cipher, self.key.derived(b"log", nonce))),)
        self.end, self.is_renewed = 0, True

    def parse(self, header: bytes) -> None:
        self.begin(self.nonce)
        self.end, self.is_renewed = ANYWHERE, False
        found = []
        for at in range(SLOTS_START, len(header) - SLOT.size + 1, SLOT.size):
            start, nonce, check = SLOT.unpack_from(header, at)
            if nonce != bytes(NONCE_BYTES) and hmac.compare_digest(self._check(start, nonce), check):
                found.append(self._range(start, nonce))
        self.ranges += tuple(sorted(found, key=lambda found: found.start))

    def header(self) -> bytes:
        slots = b"".join(SLOT.pack(r.start, r.nonce, self._check(r.start, r.nonce)) for r in self.ranges[1:])
        return _head_of(self.key, self.nonce).ljust(SLOTS_START, b"\0") + slots.ljust(LOG_START - SLOTS_START, b"\0")

    def begin_range(self, start: int, nonce: bytes) -> None:
        """Use another stream from `start` on. Raises OSError if the header has no room for that."""
        kept = tuple(r for r in self.ranges if r.start < start) or self.ranges[:1]
        if len(kept) > SLOTS:
            raise OSError(errno.ENOSPC, "the header of an encrypted file has no room: it was cut too often")
        self.ranges = (*kept, self._range(start, nonce))

    def write_header(self, file: File, before: tuple[Range, ...]) -> None:
        """Write the header; without room for it, restore the ranges `before` and continue nothing."""
        try:
            write_all(file, self.header(), 0)
        except OSError:
            self.ranges, self.end, self.is_renewed = before, ANYWHERE, False
            raise
        self.is_renewed = True

    def _range(self, start: int, nonce: bytes) -> Range:
        return Range(start, nonce, Keystream(self.key.cipher, self.key.derived(b"range", self.nonce + nonce)))

    def _check(self, start: int, nonce: bytes) -> bytes:
        place = start.to_bytes(8, "little")
        return hmac.digest(self.key.derived(b"slot", self.nonce + nonce), place, "sha256")[:8]

    def over(self, data: bytes | memoryview, offset: int) -> bytes:
        last = self.ranges[-1]
        if last.start <= offset:
            return last.stream.over(data, offset)
        return b"".join(self._pieces(memoryview(data), offset))

    def sealed(self, data: bytes | memoryview, offset: int) -> bytes:
        return self.over(data, offset)

    def _pieces(self, data: memoryview, offset: int) -> Iterator[bytes]:
        ranges = self.ranges
        stops = [r.start for r in ranges[1:]] + [ANYWHERE]
        for (start, _, stream), stop in zip(ranges, stops, strict=True):
            first, last = max(start, offset), min(stop, offset + len(data))
            if first < last:
                yield stream.over(data[first - offset : last - offset], first)


def _parsed(header: bytes, head: tuple[DataKey, bytes] | None, newest: DataKey) -> LogCipher:
    """Return the encryption of a log by its header, with or without a valid `head`."""
    if head is None:
        return LogCipher(newest, b"")
    log = LogCipher(*head)
    log.parse(header)
    return log


class LogFile:
    """An open log; its places are those of the plain bytes."""

    __slots__ = ("_draw", "_file", "_log")

    def __init__(self, file: File, log: LogCipher, draw: Callable[[int], bytes]) -> None:
        self._file = file
        self._log = log
        self._draw = draw

    @property
    def is_worn(self) -> bool:
        return len(self._log.ranges) > WORN_SLOTS

    def pread(self, size: int, offset: int) -> bytes:
        data = self._file.pread(size, LOG_START + offset)
        return self._log.over(data, offset) if self._log.ranges else data

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        """Write at `offset` and return how many bytes went in; raises OSError where others lie there."""
        if offset < self._log.end and not self._may_continue(data, offset):
            return self._file.pwrite(self._log.sealed(data, offset), LOG_START + offset)
        return self._put(data, offset)

    def _put(self, data: bytes | memoryview, offset: int) -> int:
        """Write data after everything that used the last stream.

        A write that fails costs a range, as some of its bytes may be on the disk. A full disk lets each attempt fail,
        so that zeros are written there first: if the disk is full, nothing of the stream was used.
        """
        log = self._log
        if log.found_no_room:
            write_all(self._file, bytes(len(data)), LOG_START + offset)
        sealed = log.sealed(data, offset)
        log.end = offset + len(sealed)
        try:
            done = self._file.pwrite(sealed, LOG_START + offset)
        except OSError as error:
            log.found_no_room |= error.errno in NO_SPACE
            raise
        log.end = offset + done
        return done

    def _may_continue(self, data: bytes | memoryview, offset: int) -> bool:
        """Begin another stream for bytes at a possibly written place; return False if they are already there.

        Raises OSError if other bytes, and something after them, are there.
        """
        log = self._log
        if not log.ranges:
            raise OSError(errno.EIO, "the header of an encrypted file is damaged")
        behind = max(self.size() - offset, 0)
        there = self.pread(min(len(data), behind), offset)
        again = len(there) == len(data) and there == data
        if not again and len(data) < behind:
            raise OSError(errno.EINVAL, "bytes of an encrypted file are not overwritten by others")
        before = log.ranges
        if not again:
            log.begin_range(offset, self._draw(NONCE_BYTES))
        if not again or not log.is_renewed:
            log.write_header(self._file, before)
        return not again

    def placed(self, data: bytes, offset: int) -> tuple[int, bytes, int]:
        """Return descriptor, bytes and offset for a thread that writes by itself; -1 if it must not."""
        log, (fd, _, _) = self._log, self._file.placed(b"", 0)
        if fd < 0 or offset < log.end or log.found_no_room:
            return -1, b"", 0
        sealed = log.sealed(data, offset)
        log.end = offset + len(sealed)
        return fd, sealed, LOG_START + offset

    def truncate(self, size: int) -> None:
        """Set the file's length; an emptied file gets a valid header if it lacks one."""
        if not size and not self._log.ranges:
            self._log.begin(self._draw(NONCE_BYTES))
            self._log.write_header(self._file, ())
        self._file.truncate(LOG_START + size)

    def sync(self) -> None:
        self._file.sync()

    def start_writeback(self) -> None:
        self._file.start_writeback()

    def size(self) -> int:
        return max(self._file.size() - LOG_START, 0)

    def fileno(self) -> int:
        """Return -1: data written to the descriptor would not be encrypted."""
        return -1

    def close(self) -> None:
        self._file.close()


class AuthenticatedFile:
    """An open file that is written once, as one piece, and reads as empty if any byte was altered."""

    __slots__ = ("_content", "_file", "_key", "_keyring", "_nonce")

    def __init__(self, file: File, keyring: Keyring, key: DataKey, nonce: bytes) -> None:
        """Open it with the key and the random number of a new file, should it become one."""
        self._file = file
        self._keyring = keyring
        self._key = key
        self._nonce = nonce
        self._content: bytes | None = None

    def _plain(self) -> bytes:
        if self._content is None:
            data = self._file.pread(self._file.size(), 0)
            head = _parse_head(data, self._keyring)
            found = None
            if head is not None:
                key, nonce = head
                found = unseal(key.cipher, key.derived(b"whole", nonce), data[HEAD_BYTES:], data[:HEAD_BYTES])
            self._content = found or b""
        return self._content

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes at `offset`; none if the file was altered."""
        return self._plain()[offset : offset + size]

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        """Write all of a new file's content; raises OSError for anything else."""
        if offset or self._file.size():
            raise OSError(errno.EINVAL, "a file that is encrypted as one piece is written once")
        head = _head_of(self._key, self._nonce)
        sealed = seal(self._key.cipher, self._key.derived(b"whole", self._nonce), bytes(data), head)
        write_all(self._file, head + sealed, 0)
        return len(data)

    def placed(self, data: bytes, offset: int) -> tuple[int, bytes, int]:
        return -1, b"", 0

    def truncate(self, size: int) -> None:
        """Raise OSError: it is replaced, not changed."""
        raise OSError(errno.EINVAL, "a file that is encrypted as one piece is not cut")

    def sync(self) -> None:
        self._file.sync()

    def start_writeback(self) -> None:
        self._file.start_writeback()

    def size(self) -> int:
        return len(self._plain())

    def fileno(self) -> int:
        """Return -1: data written to the descriptor would not be encrypted."""
        return -1

    def close(self) -> None:
        self._file.close()


def _is_plain(path: str) -> bool:
    """Return whether a file is not encrypted: FORMAT, LOCK, RESERVE, KEYS and its copy."""
    return "/" not in path and not path.startswith("WITNESS")


def _is_whole(path: str) -> bool:
    name = path.rpartition("/")[2].removesuffix(".tmp")
    return name == "meta" or name.endswith(".idx")


class EncryptedDisk:
    """Implements `Disk` on another disk; `unlock` comes before anything but `lock`."""

    encrypted = True

    def __init__(
        self,
        disk: Disk,
        key: str,
        draw: Callable[[int], bytes],
        cipher: Cipher = "chacha",
        prev_key: str = "",
        log: Callable[[str], object] = str,
        cost: int = SCRYPT_COST,
    ) -> None:
        """Encrypt data for `disk` with the configured `key`; `prev_key` opens a store that does not use it yet.

        `draw` returns unpredictable random bytes; `log` gets a line about a conversion; `cost` is
        scrypt's.
        """
        self._disk = disk
        self.mkdir, self.listdir, self.exists, self.is_dir = disk.mkdir, disk.listdir, disk.exists, disk.is_dir
        self.fsync_dir, self.fsync_dirs, self.lock = disk.fsync_dir, disk.fsync_dirs, disk.lock
        self.free_bytes = disk.free_bytes
        self._draw = draw
        self._key_file = KeyFile(disk, key, prev_key, cipher, draw, log, cost)
        self._log_line = log
        self._keyring = Keyring({}, False, False)
        self._logs: dict[str, dict[str, LogCipher]] = {}
        """The logs that were opened, by folder and name; threads change it by single steps."""

    # -- keys

    def unlock(self) -> None:
        """Read the keys, or draw them for a new store; the store's lock must be held.

        Raises StoreKeyError, StoreDamagedError, OSError, and has then written nothing.
        """
        stands = self._disk.exists("FORMAT") or self._disk.exists("streams")
        self._keyring = self._key_file.open(says_encrypted(self._disk), not stands)

    def convert(self) -> None:
        """Encrypt files that are not encrypted yet or use an earlier key; an interrupted conversion continues.

        Each file is replaced in one step, its plain bytes unchanged. Raises OSError.
        """
        ring = self._keyring
        if not ring.converting:
            return
        self._log_line("Encrypting the store: its files are replaced one by one")
        done = self._convert_file("WITNESS")
        for parent in ("streams", "refused"):
            for name in self._disk.listdir(parent) if self._disk.exists(parent) else ():
                done += self._convert_folder(f"{parent}/{name}")
        ring.finish()
        self._key_file.save(ring)
        self._log_line(f"Encrypted {done} files of the store")

    def _convert_folder(self, folder: str) -> int:
        if not self._disk.is_dir(folder):
            return self._convert_file(folder)
        return sum(self._convert_file(f"{folder}/{name}") for name in self._disk.listdir(folder))

    def _convert_file(self, path: str) -> int:
        """Replace a file that is not under the newest key; return how many there were."""
        if not self._disk.exists(path) or self._disk.is_dir(path):
            return 0
        file = self._disk.open_read(path)
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        head = _parse_head(data, self._keyring)
        if (head is None and not self._keyring.plain) or (head is not None and head[0] is self._keyring.newest):
            return 0
        if head is not None:
            opened = self.open_read(path)
            try:
                data = opened.pread(opened.size(), 0)
            finally:
                opened.close()
        replace_file(self, path, data)
        return 1

    def renew(self, path: str) -> None:
        """Copy a log that uses many streams of bytes to a new file; nobody may have it open.

        A lack of space only postpones it. Raises OSError.
        """
        file = self.open_read(path)
        try:
            worn = isinstance(file, LogFile) and file.is_worn
            data = file.pread(file.size(), 0) if worn else b""
        finally:
            file.close()
        if not worn:
            return
        try:
            replace_file(self, path, data)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise

    # -- files

    def open(self, path: str, create: bool = False) -> File:
        file = self._disk.open(path, create)
        if not create or _is_plain(path):
            return self._opened(path, file)
        key = self._keyring.newest
        if _is_whole(path):
            return AuthenticatedFile(file, self._keyring, key, self._draw(NONCE_BYTES))
        log = LogCipher(key, b"")
        log.begin(self._draw(NONCE_BYTES))
        try:
            log.write_header(file, ())
        except OSError:
            file.close()
            with suppress(OSError):
                self._disk.unlink(path)
            raise
        folder, _, name = path.rpartition("/")
        self._logs.setdefault(folder, {})[name] = log
        return LogFile(file, log, self._draw)

    def open_read(self, path: str) -> File:
        return self._opened(path, self._disk.open_read(path))

    def _opened(self, path: str, file: File) -> File:
        if _is_plain(path):
            return file
        try:
            if _is_whole(path):
                return AuthenticatedFile(file, self._keyring, self._keyring.newest, self._draw(NONCE_BYTES))
            return LogFile(file, self._known(path, file), self._draw)
        except OSError:
            file.close()
            raise

    def _known(self, path: str, file: File) -> LogCipher:
        """Return the encryption of a log: the one of those who have the same file open, else from its header.

        Another thread may have put another file at `path` since this one was opened.
        """
        folder, _, name = path.rpartition("/")
        header = file.pread(LOG_START, 0)
        head = _parse_head(header, self._keyring)
        found = self._logs.get(folder, {}).get(name)
        if found is None:
            found = self._logs.setdefault(folder, {}).setdefault(name, _parsed(header, head, self._keyring.newest))
        if found.nonce == (head[1] if head is not None else b""):
            return found
        return _parsed(header, head, self._keyring.newest)

    # -- names

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)
        old_folder, _, old_name = source.rpartition("/")
        folder, _, name = target.rpartition("/")
        self._logs.get(folder, {}).pop(name, None)
        if (log := self._logs.get(old_folder, {}).pop(old_name, None)) is not None:
            self._logs.setdefault(folder, {})[name] = log
        if (logs := self._logs.pop(source, None)) is not None:
            self._logs[target] = logs

    def unlink(self, path: str) -> None:
        self._disk.unlink(path)
        folder, _, name = path.rpartition("/")
        self._logs.get(folder, {}).pop(name, None)

    def rmdir(self, path: str) -> None:
        self._disk.rmdir(path)
        self._logs.pop(path, None)
