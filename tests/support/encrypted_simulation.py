"""Sessions of `store_simulation` on a disk that encrypts, and mutations of that disk which they must notice.

The configured key and the cipher change between lives, and a third of the sessions begins with a plain store, so that
conversions are cut short by kills and power losses too. Beside the promises of the store, three are checked. No byte of
a stream of bytes is used for two contents, whatever happened between two writes. No file holds a payload, a subject, a
stream's name or metadata in clear. What was erased is not in any file, decrypted.
"""

import contextlib
import random
from collections.abc import Iterator
from typing import Any, Final
from unittest import mock

from natsctl.store.disk import Disk, File
from natsctl.store.encrypted_disk import EncryptedDisk, LogCipher, LogFile, Range
from natsctl.store.file_commit import FileCommit
from natsctl.store.keys import Cipher, KeyFile, Keyring
from natsctl.store.packed import PackedFile, open_segment
from natsctl.store.segment_file import SegmentFile
from tests.support.simdisk import SimDisk, no_faults
from tests.support.store_model import Report, Violation, simulating
from tests.support.store_mutations import NOTICED, Mutations, do_nothing
from tests.support.store_simulation import SUBJECTS, Session, look_for

WORDS: Final = (*(subject for subject in SUBJECTS if len(subject) > 4), b"natsctl\0", b'"key": ', b"K: v\r\n", b"$G/S")
"""Bytes that no encrypted file may hold; five random ones are equal to one of these once in 10^12 places."""
PAYLOAD_MIN: Final = 24
"""Length from which a payload is not in a file by chance."""
CIPHERS: Final[tuple[Cipher, ...]] = ("chacha", "aes")
PLAIN_FILES: Final = ("FORMAT", "LOCK", "RESERVE", "KEYS", "KEYS.copy", "FORMAT.tmp", "KEYS.tmp", "KEYS.copy.tmp")


class KeystreamLedger:
    """Contents that each stream of bytes was laid over."""

    def __init__(self) -> None:
        self._used: dict[tuple[bytes, bytes], tuple[bytearray, bytearray]] = {}

    def note(self, log: LogCipher, data: bytes, offset: int) -> None:
        """Raise Violation where a stream of bytes was used for other bytes at that place."""
        stops = [following.start for following in log.ranges[1:]] + [1 << 63]
        for found, stop in zip(log.ranges, stops, strict=True):
            first, last = max(found.start, offset), min(stop, offset + len(data))
            if first < last:
                self._note(log, found, first, data[first - offset : last - offset])

    def _note(self, log: LogCipher, found: Range, first: int, data: bytes) -> None:
        content, used = self._used.setdefault((log.nonce, found.nonce), (bytearray(), bytearray()))
        last = first + len(data)
        for column in (content, used):
            column.extend(bytes(max(last - len(column), 0)))
        before, mask = int.from_bytes(content[first:last]), int.from_bytes(used[first:last])
        if (before ^ int.from_bytes(data)) & mask:
            raise Violation(f"bytes {first} to {last} of a stream of bytes are used for two contents")
        content[first:last] = data
        used[first:last] = b"\xff" * len(data)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        sealed, ledger = LogCipher.sealed, self

        def noted(log: LogCipher, data: bytes | memoryview, offset: int) -> bytes:
            ledger.note(log, bytes(data), offset)
            return sealed(log, data, offset)

        with mock.patch.object(LogCipher, "sealed", noted):
            yield


class EncryptedSession(Session):
    """One seed's disk, whose store is encrypted from its first or a later life on."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._keys = random.Random(f"{seed}/keys")
        self._key, self._prev_key = "key 0", ""
        self._cipher: Cipher = self._keys.choice(CIPHERS)
        self._plain_lives = self._keys.choice((0, 0, 1))
        self._began_plain = self._plain_lives > 0
        self._opened: EncryptedDisk | None = None

    def run(self) -> Report:
        with KeystreamLedger().watching():
            return super().run()

    def _disk_of_store(self, disk: SimDisk) -> Disk:
        if self._plain_lives:
            return disk
        return EncryptedDisk(disk, self._key, self._keys.randbytes, self._cipher, self._prev_key, cost=2)

    def _open(self) -> None:
        if self._opened is not None and self._keys.random() < 0.4:  # else the store may be under an earlier key still
            self._key, self._prev_key = f"{self._key[:4]}{self._keys.randrange(1 << 30)}", self._key
            self._cipher = self._keys.choice(CIPHERS)
            self._opened = None
        if self._plain_lives and self.report["lives"] > self._plain_lives:
            self._plain_lives = 0
        super()._open()
        disk = self._store._disk
        self._opened = disk if isinstance(disk, EncryptedDisk) else None
        if not self._began_plain:
            self._look_for_plaintext()

    def _end_life(self) -> None:
        super()._end_life()
        if not self._began_plain:
            self._look_for_plaintext()

    def _settle(self) -> None:
        super()._settle()
        if self._plain_lives:
            raise Violation("the store was never encrypted")

    def _look_for_plaintext(self) -> None:
        """Raise Violation where a file, or one that could come back, has something of the owner's in clear."""
        plain = {self._disk.content(path) for path in self._disk.files() if path in PLAIN_FILES}
        payloads = [message.payload for each in self._ledger.streams.values() for message in each.messages.values()]
        wanted = [*WORDS, *(payload for payload in payloads[-100:] if len(payload) >= PAYLOAD_MIN)]
        for content in self._disk.contents():
            found = [word for word in wanted if word in content]
            if found and content not in plain and not content.startswith(b'{"format"'):
                raise Violation(f"a file holds {found[0]!r} in clear")

    def _look_for(self, payloads: list[bytes]) -> None:
        super()._look_for(payloads)
        if payloads and self._opened is not None:
            look_for(payloads, self._decrypted(self._opened))

    def _decrypted(self, disk: EncryptedDisk) -> list[bytes]:
        """Return what the store sees of its files, but for cut-off tails."""
        plan, self._disk.plan = self._disk.plan, no_faults
        contents = []
        for path in self._disk.files():
            if path not in PLAIN_FILES and not path.endswith(".torn"):
                file = disk.open_read(path)
                contents.append(file.pread(file.size(), 0))
        self._disk.plan = plan
        return contents

    def _unpacked(self) -> list[bytes]:
        disk = self._store._disk
        opened = [open_segment(disk, path) for path in self._disk.files() if path.endswith(".seg")]
        return [file.pread(file.size(), 0) for file in opened if isinstance(file, PackedFile)]


simulate_encrypted = simulating(EncryptedSession)


MUTATIONS: Final = Mutations(
    simulate_encrypted,
    1000,
    (*NOTICED, OSError),
    writer_of_a_replaced_segment_kept=(SegmentFile, "close", do_nothing),
    erasure_in_a_copy_skipped=(FileCommit, "_erase_in_copy", do_nothing),
    old_key_dropped_before_its_files=(EncryptedDisk, "_convert_folder", lambda self, folder: 0),
)


@MUTATIONS.replacing(LogCipher, "begin_range")
def range_not_begun(_begin_range: Any, log: LogCipher, start: int, nonce: bytes) -> None:
    log.end = start


@MUTATIONS.replacing(LogCipher, "write_header")
def header_of_a_range_not_written(write_header: Any, log: LogCipher, file: File, before: tuple[Range, ...]) -> None:
    if not before:
        write_header(log, file, before)
    log.is_renewed = True


@MUTATIONS.replacing(LogCipher, "write_header", 69)
def range_kept_whose_header_found_no_room(write_header: Any, log: LogCipher, *arguments: Any) -> None:
    ranges = log.ranges
    try:
        write_header(log, *arguments)
    except OSError:
        log.ranges, log.end = ranges, ranges[-1].start
        raise


@MUTATIONS.replacing(LogCipher, "parse", 22)
def continued_where_the_last_run_ended(parse: Any, log: LogCipher, header: bytes) -> None:
    parse(log, header)
    log.end = 0


@MUTATIONS.replacing(LogFile, "_put")
def appended_in_clear(_put: Any, file: LogFile, data: bytes | memoryview, offset: int) -> int:
    return file._file.pwrite(data, 4096 + offset)


@MUTATIONS.replacing(KeyFile, "open", 10)
def conversion_done_before_its_files(open_keys: Any, file: KeyFile, *arguments: bool) -> Keyring:
    ring: Keyring = open_keys(file, *arguments)
    if ring.converting:
        ring.converting = False
        file.save(ring)
        ring.converting = True
    return ring
