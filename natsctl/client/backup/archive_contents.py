"""Contents of an archive, messages and consumers, read offline from either format.

Version 1 holds blocks as they lay on a server's disk: messages that limits had dropped may still be there, and the
record of a removal in the middle comes later than the message. So the contents of such an archive are known only after
a first reading; `Removed` holds the removed sequences.

Long reading runs in another thread, so that the connection is served meanwhile and Ctrl-C ends it at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage, ArchivedStream, ArchiveError, Gone, Item
from natsctl.api.errors import StorageError
from natsctl.api.times import ZERO_TIME, format_time

if TYPE_CHECKING:
    from natsctl.client.backup.reader import OpenBackup


MAX_SUBJECTS = 100_000
"""Subjects that a summary counts; messages on others are counted together."""
_PIECE_BYTES = 256 * 1024
_MAGIC = b"NATSARC1"
_HEAD_BYTES = 4096
_CHECK_BYTES = 4
_IN_MEMORY_BYTES, _IN_FILE_BYTES, _HEADER_LENGTH_BYTES = 16, 30, 4
"""Bytes that a message takes beside its own, and of those with headers the length of these. Source: memstore.go's
memStoreMsgSizeRaw and filestore.go's fileStoreMsgSizeRaw."""
_COMPRESSED_FRAME, _PLAIN_FRAME = 0x00, 0x01
_OTHER_FRAMES = (0xFF, 0xFE, 0x99)
"""Those without content: the stream's own, padding, an index."""

OnRead = Callable[[int], None]
"""Takes how many bytes of the data have been read."""


def ignore_read(done: int) -> None:
    """Show nothing."""


class FormatFinder:
    """Detector of an archive's format by its first pieces; `version` is 0 until it is known.

    Only the first bytes are examined: decoding a whole S2 frame takes long.
    """

    def __init__(self) -> None:
        self._head = b""
        self.version = 0

    def add(self, piece: bytes) -> None:
        """Add the next piece. Raises StorageError for data that is no archive."""
        if self.version:
            return
        self._head += piece[: _HEAD_BYTES - len(self._head)]
        begin = _beginning(self._head)
        if len(begin) >= len(_MAGIC):
            self.version = 2 if begin.startswith(_MAGIC) else 1
        elif len(self._head) >= _HEAD_BYTES:
            raise StorageError("the data is damaged: it does not begin as an archive does")


def _beginning(head: bytes) -> bytes:
    """Return the first decoded bytes of frames of S2 or Snappy, as far as they stand there plainly.

    Raises StorageError.
    """
    at = 0
    while at + 4 <= len(head):
        kind, size = head[at], int.from_bytes(head[at + 1 : at + 4], "little")
        body = head[at + 4 : at + 4 + size]
        if kind == _PLAIN_FRAME:
            return body[_CHECK_BYTES:]
        if kind == _COMPRESSED_FRAME:
            return _first_literal(body[_CHECK_BYTES:])
        if kind not in _OTHER_FRAMES:
            raise StorageError(f"the data is damaged: it begins with a frame of unknown type 0x{kind:02x}")
        at += 4 + size
    return b""


def _first_literal(block: bytes) -> bytes:
    """Return the bytes that a compressed block begins with: it has nothing to copy from before them."""
    at = next((at + 1 for at, byte in enumerate(block[:5]) if byte < 0x80), 0)
    if not at or at >= len(block) or block[at] & 3:
        return b""
    size = block[at] >> 2
    more = max(size - 59, 0)
    if more:
        size = int.from_bytes(block[at + 1 : at + 1 + more], "little")
    start = at + 1 + more
    return block[start : start + size + 1]


def version_of(backup: OpenBackup) -> int:
    """Return the format of the archive, 1 or 2. Raises StorageError when it is neither."""
    finder = FormatFinder()
    backup.data.rewind()
    while not finder.version and (piece := backup.data.read(_PIECE_BYTES)):
        finder.add(piece)
    if not finder.version:
        raise StorageError(f"{backup.path} is damaged: its data is empty or cut")
    return finder.version


def read_items(backup: OpenBackup, on_read: OnRead = ignore_read) -> Iterator[Item]:
    """Yield everything in the archive in its order, up to its end mark. Raises StorageError where it is damaged."""
    from natsctl.api.archive.archive_reader import ArchiveReader

    reader, done = ArchiveReader(), 0
    backup.data.rewind()
    try:
        while piece := backup.data.read(_PIECE_BYTES):
            done += len(piece)
            yield from reader.read(piece)
            on_read(done)
        reader.finish()
    except ArchiveError as fault:
        why = "its data is empty" if str(fault) == "EOF" else str(fault)
        raise StorageError(f"{backup.path} is damaged: {why}") from fault


def check_whole(backup: OpenBackup, on_read: OnRead = ignore_read) -> None:
    """Raise StorageError where data is damaged: by the manifest's checksum, without one by reading what is inside."""
    if backup.manifest is None:
        summarise(backup, on_read)
        return
    backup.data.rewind()
    done = 0
    while piece := backup.data.read(_PIECE_BYTES):
        done += len(piece)
        on_read(done)


@dataclass(slots=True)
class Removed:
    """Messages of an archive that do not count: below the first sequence, or removed by a later record."""

    first_seq: int = 0
    seqs: set[int] = field(default_factory=set)

    def kept(self, messages: Sequence[ArchivedMessage]) -> Sequence[ArchivedMessage]:
        """Return those of the messages that the stream has; their sequences ascend."""
        if not messages or (not self.seqs and messages[0].seq >= self.first_seq):
            return messages
        return [one for one in messages if one.seq >= self.first_seq and one.seq not in self.seqs]


def removed_in(backup: OpenBackup) -> Removed:
    """Return the removals found by one reading of a version 1 archive; version 2 has none."""
    if version_of(backup) == 2:
        return Removed()
    gone = {item.seq for item in read_items(backup) if isinstance(item, Gone)}
    return Removed(int(backup.state.get("first_seq") or 0), gone)


def read_messages(
    backup: OpenBackup, on_read: OnRead = ignore_read, removed: Removed | None = None
) -> Iterator[Sequence[ArchivedMessage]]:
    """Yield the stream's messages in order, those that lie together in one list. Raises StorageError.

    `removed` is what an earlier reading has found; without it version 1 is read once more.
    """
    removed = removed or removed_in(backup)
    for item in read_items(backup, on_read):
        if not isinstance(item, ArchivedStream | ArchivedConsumer | Gone):
            yield removed.kept(item)


@dataclass(slots=True)
class Summary:
    """Result of one reading of an archive; times in ns, 0 where there is no message."""

    version: int = 0
    messages: int = 0
    payload_bytes: int = 0
    record_bytes: int = 0
    """Bytes of subjects, headers and payloads together."""
    with_header: int = 0
    first_seq: int = 0
    first_ts_ns: int = 0
    last_seq: int = 0
    last_ts_ns: int = 0
    subjects: Counter[str] = field(default_factory=Counter)
    consumers: list[ArchivedConsumer] = field(default_factory=list)
    inner: ArchivedStream = field(default_factory=ArchivedStream)
    removed: Removed = field(default_factory=Removed)

    def add(self, messages: Sequence[ArchivedMessage]) -> None:
        """Count messages that follow those before."""
        if not messages:
            return
        if not self.messages:
            self.first_seq, self.first_ts_ns = messages[0].seq, messages[0].ts_ns
        self.last_seq, self.last_ts_ns = messages[-1].seq, messages[-1].ts_ns
        self.messages += len(messages)
        payload_bytes = sum(len(message.payload) for message in messages)
        self.payload_bytes += payload_bytes
        self.record_bytes += payload_bytes + sum(len(message.subject) + len(message.header) for message in messages)
        self.with_header += sum(1 for message in messages if message.header)
        for raw, number in Counter(message.subject for message in messages).items():
            subject = raw.decode("utf-8", "replace")
            if subject in self.subjects or len(self.subjects) < MAX_SUBJECTS:
                self.subjects[subject] += number

    def stored_bytes(self, *, in_memory: bool) -> int:
        """Return what the messages take in a stream's storage, as nats-server counts it."""
        if in_memory:
            return self.record_bytes + _IN_MEMORY_BYTES * self.messages
        return self.record_bytes + _IN_FILE_BYTES * self.messages + _HEADER_LENGTH_BYTES * self.with_header

    def reached(self, seq: int, ts_ns: int) -> None:
        """Record that the stream reached that sequence, whose message was removed."""
        if seq > self.last_seq:
            self.last_seq, self.last_ts_ns = seq, ts_ns


def summarise(backup: OpenBackup, on_read: OnRead = ignore_read) -> Summary:
    """Return the summary of the archive, all of it read and checked. Raises StorageError.

    One reading is enough unless a later record removes a message that was counted before.
    """
    removed = Removed()
    if version_of(backup) == 1:
        removed.first_seq = int(backup.state.get("first_seq") or 0)
    summary, late = _read(backup, removed, on_read)
    return _read(backup, removed, on_read)[0] if late else summary


def _read(backup: OpenBackup, removed: Removed, on_read: OnRead) -> tuple[Summary, bool]:
    """Return the summary of one reading, which adds to `removed`, and whether a removal came after its message."""
    summary, late = Summary(version_of(backup), removed=removed), False
    for item in read_items(backup, on_read):
        if isinstance(item, ArchivedStream):
            summary.inner = item
        elif isinstance(item, ArchivedConsumer):
            summary.consumers.append(item)
        elif isinstance(item, Gone):
            counted = removed.first_seq <= item.seq <= summary.last_seq
            late = late or (counted and item.seq not in removed.seqs)
            removed.seqs.add(item.seq)
            summary.reached(item.seq, item.ts_ns)
        else:
            summary.add(removed.kept(item))
    return summary, late


def state_of(backup: OpenBackup) -> dict[str, Any]:
    """Return the state computed from the messages, for an archive that has none of its own."""
    found = summarise(backup)
    first_seq = found.first_seq if found.messages else found.last_seq + 1
    return {
        "messages": found.messages,
        "bytes": found.payload_bytes,
        "first_seq": first_seq,
        "first_ts": format_time(found.first_ts_ns) if found.messages else ZERO_TIME,
        "last_seq": found.last_seq,
        "last_ts": format_time(found.last_ts_ns) if found.last_seq else ZERO_TIME,
        "consumer_count": len(found.consumers),
    }


T = TypeVar("T")


class ReadCancelledError(Exception):  # the result is not awaited any more
    """Ends a reading whose result is not wanted any more."""


async def run_in_thread(work: Callable[[OnRead], T], on_read: OnRead) -> T:
    """Return the result of `work`, which reports its progress to its argument.

    `on_read` is called with it in this thread.

    The waiting task may be cancelled: the work then ends at the next piece that it has read.
    """
    stopped = threading.Event()
    loop = asyncio.get_running_loop()

    def watch(done: int) -> None:
        if stopped.is_set():
            raise ReadCancelledError
        loop.call_soon_threadsafe(on_read, done)

    try:
        return await asyncio.to_thread(work, watch)
    except BaseException:
        stopped.set()
        raise
