"""Messages of a stream on disk, copied while clients go on, and the archive that is made of them.

`messages` has the records of a version 2 archive in compressed segments that can be decoded separately. `index`
has a line of JSON for each segment, written once the segment is synced: a process that is killed leaves at most a
segment without a line; it is cut off when the spool is reopened, and copying continues after the last line.

A stream is first copied by a snapshot (servers send it whole), and from then on by sequence. A spool keeps messages
that the stream has removed meanwhile; they are left out when the archive is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from natsctl.api import acks
from natsctl.api.archive.archive import (
    ArchivedConsumer,
    ArchivedMessage,
    ArchivedStream,
    ArchiveError,
    CountedRecords,
    Gone,
    Item,
)
from natsctl.api.archive.archive_reader import ArchiveReader
from natsctl.api.archive.archive_v2 import WriterV2, read_records
from natsctl.api.archive.s2 import FrameReader, FrameWriter, S2FrameError
from natsctl.api.errors import ApiResponseError, ErrCode, ProtocolError, StorageError, file_errors
from natsctl.client.atomic_file import PRIVATE, sync_file
from natsctl.client.backup.manifest import Document
from natsctl.client.backup.save import IDLE_S, BackupSnapshot, SaveOptions, read_window
from natsctl.client.backup.transfer import OnProgress, RetryingManager, TransferProgress, ignore_progress
from natsctl.client.backup.writer import BackupWriter
from natsctl.client.manager import Manager
from natsctl.client.message import as_bytes
from natsctl.client.messaging.consumers import OrderedReader
from natsctl.client.stream_state import is_complete

SEGMENT_BYTES: Final = 2 << 20
"""Bytes of headers and payloads after which a segment ends; a sync costs less than reading so much."""
SEGMENT_MESSAGES: Final = 20_000
SNAPSHOT_FROM: Final = 2_000
"""Min number of messages that a snapshot copies faster than single requests."""
HEAD_BYTES: Final = 64 * 1024
"""Chunk and window of a snapshot that is read up to its first message."""
_MESSAGES: Final = "messages"
_INDEX: Final = "index"
_COPY_BYTES: Final = 1 << 20
_ALL: Final = ">"


class SpoolSegment(Document):
    """One line of the index: messages at `at`, and the last sequence that was read, whether or not it is there."""

    at: int
    bytes: int
    messages: int
    first_seq: int
    last_seq: int
    reached: int
    gone: list[int] = msgspec.field(default_factory=list)
    """Sequences that the snapshot removes after sending them."""


class Spool:
    """The messages of one stream in a folder; `messages` counts them, removed ones included.

    `reached` is the last sequence that was read.
    """

    def __init__(self, folder: Path) -> None:
        """Open or create the spool. Raises StorageError."""
        self.folder = folder
        self.segments: list[SpoolSegment] = []
        self.messages = 0
        self._waiting: list[ArchivedMessage] = []
        self._waiting_bytes = 0
        self._gone: list[int] = []
        with file_errors(f"cannot write to {folder}"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._data = _opened(folder / _MESSAGES)
            self._index = _opened(folder / _INDEX)
            self._load()
        self.reached = self.segments[-1].reached if self.segments else 0

    def _load(self) -> None:
        """Read the index, and cut what no whole line of it describes."""
        size = os.fstat(self._data.fileno()).st_size
        end = at = 0
        for line in self._index:
            try:
                segment = msgspec.json.decode(line, type=SpoolSegment)
            except msgspec.MsgspecError:
                break
            if not line.endswith(b"\n") or segment.at != end or segment.at + segment.bytes > size:
                break
            self.segments.append(segment)
            self.messages += segment.messages
            end, at = segment.at + segment.bytes, at + len(line)
        self._index.truncate(at)
        self._index.seek(at)
        self._data.truncate(end)
        self._data.seek(end)

    @property
    def last_seq(self) -> int:
        return max((segment.last_seq for segment in self.segments), default=0)

    def add(self, messages: Sequence[ArchivedMessage]) -> None:
        """Append messages after the existing ones; others are skipped. Raises StorageError."""
        if not messages or messages[-1].seq <= self.reached:
            return
        if messages[0].seq <= self.reached:
            messages = [message for message in messages if message.seq > self.reached]
        self._waiting += messages
        self._waiting_bytes += sum(len(message.header) + len(message.payload) for message in messages)
        self.reached = messages[-1].seq
        if self._waiting_bytes >= SEGMENT_BYTES or len(self._waiting) >= SEGMENT_MESSAGES:
            self.commit(self.reached)

    def remove(self, seq: int) -> None:
        """Record that a message which was added before is no part of the stream."""
        self._gone.append(seq)

    def commit(self, reached: int) -> None:
        """Make all messages durable, and that the stream was read up to a sequence. Raises StorageError."""
        waiting, gone = self._waiting, self._gone
        before = self.segments[-1].reached if self.segments else 0
        if not waiting and not gone and reached <= before:
            return
        self._waiting, self._waiting_bytes, self._gone = [], 0, []
        content = b"".join(WriterV2().messages(waiting)) if waiting else b""
        frames = FrameWriter()
        packed = frames.write(content) + frames.finish() if content else b""
        segment = SpoolSegment(
            at=self._data.tell(),
            bytes=len(packed),
            messages=len(waiting),
            first_seq=waiting[0].seq if waiting else 0,
            last_seq=waiting[-1].seq if waiting else 0,
            reached=max(reached, self.reached),
            gone=gone,
        )
        with file_errors(f"cannot write to {self.folder}"):
            self._data.write(packed)
            sync_file(self._data)
            self._index.write(msgspec.json.encode(segment) + b"\n")
            sync_file(self._index)
        self.segments.append(segment)
        self.messages += segment.messages
        self.reached = segment.reached

    def clear(self) -> None:
        self.segments, self._waiting, self._gone = [], [], []
        self.messages = self._waiting_bytes = self.reached = 0
        for file in (self._index, self._data):
            file.seek(0)
            file.truncate()

    def start_at(self, seq: int) -> None:
        """Leave the messages below a sequence out of an empty spool."""
        self.reached = max(self.reached, seq - 1)

    def close(self) -> None:
        """Close the files; messages that were not committed are dropped."""
        self._data.close()
        self._index.close()

    def batches(self, kept: Kept) -> Iterator[list[ArchivedMessage]]:
        """Yield the messages that the stream still has, in order. Raises StorageError where the spool is damaged."""
        for segment in self.segments:
            if segment.messages and kept.some_of(segment):
                yield kept.of(segment, self._read(segment))

    def write_to(self, writer: BackupWriter, kept: Kept) -> None:
        """Append the messages that the stream still has to an archive; whole segments are copied as they are."""
        for segment in self.segments:
            if not segment.messages or not kept.some_of(segment):
                continue
            if kept.all_of(segment):
                writer.write(self._packed(segment))
            elif messages := kept.of(segment, self._read(segment)):
                frames = FrameWriter()
                writer.write(frames.write(b"".join(WriterV2().messages(messages))) + frames.finish())

    def _packed(self, segment: SpoolSegment) -> bytes:
        with (self.folder / _MESSAGES).open("rb") as file:
            file.seek(segment.at)
            packed = file.read(segment.bytes)
        if len(packed) != segment.bytes:
            raise StorageError(f"{self.folder} is damaged: {_MESSAGES} is too short")
        return packed

    def _read(self, segment: SpoolSegment) -> list[ArchivedMessage]:
        try:
            content = b"".join(FrameReader().read(self._packed(segment)))
            found = read_records(content)
        except (S2FrameError, ArchiveError) as fault:
            raise StorageError(f"{self.folder} is damaged: {fault}", hint=f"remove {self.folder}") from fault
        if len(found) != segment.messages:
            raise StorageError(f"{self.folder} is damaged: messages are missing", hint=f"remove {self.folder}")
        return found


def _opened(path: Path) -> IO[bytes]:
    """Return a file for reading and writing that only its owner may read."""
    path.touch(PRIVATE)
    return path.open("r+b")


class Kept:
    """The sequences of a spool that the stream still has: from `first_seq` to `last_seq` without `removed`."""

    def __init__(self, first_seq: int, last_seq: int, removed: Sequence[int] = ()) -> None:
        self.first_seq, self.last_seq = first_seq, last_seq
        self._removed = sorted(removed)
        self._set = frozenset(removed)

    def within(self, first_seq: int, last_seq: int) -> Kept:
        return Kept(max(first_seq, self.first_seq), min(last_seq, self.last_seq), self._removed)

    def some_of(self, segment: SpoolSegment) -> bool:
        """Return whether messages of the segment may be in the stream."""
        return segment.last_seq >= self.first_seq and segment.first_seq <= self.last_seq

    def all_of(self, segment: SpoolSegment) -> bool:
        if segment.first_seq < self.first_seq or segment.last_seq > self.last_seq:
            return False
        position = bisect_left(self._removed, segment.first_seq)
        return position >= len(self._removed) or self._removed[position] > segment.last_seq

    def of(self, segment: SpoolSegment, messages: list[ArchivedMessage]) -> list[ArchivedMessage]:
        if self.all_of(segment):
            return messages
        first, last, removed = self.first_seq, self.last_seq, self._set
        return [message for message in messages if first <= message.seq <= last and message.seq not in removed]


class _Sink:
    """The receiver of a snapshot that puts its messages into a spool."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.restart()

    def restart(self) -> None:
        """Begin again; messages that are there already are passed over."""
        self.reader = ArchiveReader()

    def write(self, chunk: bytes) -> None:
        """Accept the next piece. Raises ProtocolError for one that is damaged."""
        for item in _items(self.reader, chunk):
            if isinstance(item, Gone):
                self._spool.remove(item.seq)
            elif not isinstance(item, ArchivedStream | ArchivedConsumer | CountedRecords):
                self._spool.add(list(item))


class _HeadReadError(Exception):
    """The part of a snapshot that was asked for is read."""


class _Head:
    """The receiver of a snapshot that keeps its consumers, and ends a version 2 one after them."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.reader = ArchiveReader()
        self.consumers: list[ArchivedConsumer] = []
        self._last = -1

    def write(self, chunk: bytes) -> None:
        """Accept the next piece. Raises _HeadReadError once every consumer is there."""
        for item in _items(self.reader, chunk):
            if isinstance(item, ArchivedStream) and item.state is not None:
                self._last = item.state.consumer_count
            elif isinstance(item, ArchivedConsumer):
                self.consumers.append(item)
        if self._last == len(self.consumers):
            raise _HeadReadError


def _items(reader: ArchiveReader, chunk: bytes) -> Iterator[Item]:
    try:
        yield from reader.read(chunk)
    except ArchiveError as fault:
        raise ProtocolError(f"the snapshot cannot be read: {fault}") from fault


async def copy_stream(
    retrying: RetryingManager, stream: str, spool: Spool, on_progress: OnProgress = ignore_progress
) -> dict[str, Any]:
    """Copy a stream to its present last message, and return the information it had at the beginning.

    Raises the errors of `save_stream`; copied messages stay.
    """
    info: dict[str, Any] = (await retrying.manager.stream_info(stream)).raw
    state = info.get("state") or {}
    first, last = int(state.get("first_seq") or 0), int(state.get("last_seq") or 0)
    behind = min(last - max(spool.reached, first - 1), int(state.get("messages") or 0))
    progress = TransferProgress(stream, behind)
    if behind > SNAPSHOT_FROM and (spool.reached < first or not _is_read_in_order(info)):
        try:
            await _by_snapshot(retrying, stream, spool, progress, on_progress)
        except ApiResponseError as failure:
            if failure.err_code != ErrCode.STREAM_SNAPSHOT:
                raise
            retrying.say(f"{failure.text}: reading the messages of {stream} one by one")
    spool.start_at(first)
    while spool.reached < last:
        await retrying.run(f"the copy of {stream}", _by_sequence(info, spool, last, progress, on_progress))
    return info


def _is_read_in_order(info: dict[str, Any]) -> bool:
    """Return whether a consumer may read the stream: with other retentions it would affect which messages are kept."""
    config = info.get("config") or {}
    return config.get("retention", "limits") == "limits" and int(config.get("max_consumers") or -1) < 0


async def _by_snapshot(
    retrying: RetryingManager, stream: str, spool: Spool, progress: TransferProgress, on_progress: OnProgress
) -> None:
    sink = _Sink(spool)
    snapshot = BackupSnapshot(stream, sink, progress, SaveOptions(consumers=False), on_progress)
    _, state = await retrying.run(f"the copy of {stream}", snapshot.take)
    try:
        sink.reader.finish()
    except ArchiveError as fault:
        raise ProtocolError(f"the snapshot of {stream} cannot be read: {fault}") from fault
    spool.commit(int(state.get("last_seq") or 0))


def _by_sequence(
    info: dict[str, Any], spool: Spool, last: int, progress: TransferProgress, on_progress: OnProgress
) -> Any:
    """Return the work that copies the messages up to `last`, or a part of them."""
    stream = str((info.get("config") or {}).get("name"))

    async def read(manager: Manager) -> None:
        if _is_read_in_order(info) and last - spool.reached > HEAD_MESSAGES:
            try:
                await _in_order(manager, stream, spool, last, progress, on_progress)
            finally:
                spool.commit(spool.reached)
        while spool.reached < last:
            messages, at = await read_window(manager, stream, spool.reached + 1, last)
            spool.add(messages)
            spool.commit(at - 1)
            progress.archive_bytes += len(messages)
            on_progress(progress)

    return read


HEAD_MESSAGES: Final = 128
"""Maximum number of messages to read without a consumer."""


async def _in_order(
    manager: Manager, stream: str, spool: Spool, last: int, progress: TransferProgress, on_progress: OnProgress
) -> None:
    """Read messages through a consumer, up to `last` or the end."""
    start = spool.reached + 1
    async with OrderedReader(manager, stream, _ALL, deliver="by_start_sequence", start_seq=start) as reader:
        async for delivered in reader.stored():
            message, at = delivered.message, acks.parse(delivered.message.reply.encode())
            if at is None:
                raise ProtocolError(f"a message of {stream} does not say its place: {message.reply!r}")
            subject = as_bytes(message.subject)
            spool.add((ArchivedMessage(at.stream_seq, at.ts_ns, subject, message.block, message.body),))
            progress.archive_bytes += 1
            on_progress(progress)
            if at.stream_seq >= last:
                break
    spool.commit(last)


async def consumers_in(retrying: RetryingManager, stream: str) -> list[ArchivedConsumer]:
    """Return a stream's consumers with their progress from a snapshot that ends after them."""
    head = _Head()
    options = SaveOptions(chunk_size=HEAD_BYTES, window_size=HEAD_BYTES, idle_s=IDLE_S)
    snapshot = BackupSnapshot(stream, head, TransferProgress(stream, 0), options, ignore_progress)
    with contextlib.suppress(_HeadReadError):
        await retrying.run(f"reading the consumers of {stream}", snapshot.take)
    return head.consumers


async def kept_of(manager: Manager, stream: str, spool: Spool) -> tuple[Kept, dict[str, Any]] | None:
    """Return a stream's sequences and its information; None if the server does not list them all."""
    answer = await manager.stream_info(stream, deleted_details=True)
    state = answer.value.state
    if not is_complete(answer):
        return None
    removed = [*(state.deleted or ()), *(seq for segment in spool.segments for seq in segment.gone)]
    return Kept(max(state.first_seq, 1), state.last_seq, removed), answer.raw


class Digest:
    """Number, ends and checksum of messages, in the order of addition."""

    def __init__(self) -> None:
        self.messages = self.first_seq = self.last_seq = self.first_ts_ns = self.last_ts_ns = 0
        self._sha = hashlib.sha256()

    def add(self, messages: Sequence[ArchivedMessage]) -> None:
        """Add messages: their sequences, times, subjects, headers and payloads."""
        if not messages:
            return
        if not self.messages:
            self.first_seq, self.first_ts_ns = messages[0].seq, messages[0].ts_ns
        self.messages += len(messages)
        self.last_seq, self.last_ts_ns = messages[-1].seq, messages[-1].ts_ns
        for piece in WriterV2().messages(messages):
            self._sha.update(piece)

    @property
    def sha256(self) -> str:
        """Return the checksum of the messages as version 2 archives write them."""
        return self._sha.hexdigest()
