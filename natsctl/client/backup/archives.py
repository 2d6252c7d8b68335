"""Archives offline: their messages and consumers, read from either format, and their rewriting.

Version 1 holds blocks as they lay on a server's disk: messages that limits had dropped may still be there, and the
record of a removal in the middle comes later than the message. So the contents of such an archive are known only after
a first reading; `Removed` holds the removed sequences.

An archive is rewritten under another name, in the other format, or with some of the messages only. A version 2 archive
does not contain its stream's name: restored under another name it stays as it is. In version 1 the hash of every record
and of the configuration is keyed by the stream's name, so another name requires reading and writing all of it: as
version 2 where the server reads that, else as version 1 with all hashes computed again. Version 2 is needed by streams
in memory, version 1 by servers before 2.15.

Long reading runs in another thread, so that the connection is served meanwhile and Ctrl-C ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from natsctl.api.archive.archive import (
    ArchivedConsumer,
    ArchivedMessage,
    ArchivedStream,
    ArchiveError,
    CountedRecords,
    Gone,
    Item,
    counted,
)
from natsctl.api.archive.archive_v1 import WriterV1
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.codec import InvalidJSONError, decode, encode
from natsctl.api.errors import StorageError, UsageError
from natsctl.api.stream import StreamConfig, StreamState
from natsctl.api.times import ZERO_TIME, format_time
from natsctl.api.units import plural
from natsctl.client.backup.reader import BackupData, OpenBackup

if TYPE_CHECKING:
    from natsctl.client.backup.obfuscation import Obfuscator
    from natsctl.client.backup.renaming import BucketRenaming

    Alteration: TypeAlias = "BucketRenaming | Obfuscator"


MAX_SUBJECTS = 100_000
"""Subjects that a summary counts; messages on others are counted together."""
_PIECE_BYTES = 256 * 1024
_KEPT_BYTES = 8 << 20
_MAGIC = b"NATSARC1"
_HEAD_BYTES = 4096
_CHECK_BYTES = 4
_IN_MEMORY_BYTES, _IN_FILE_BYTES, _HEADER_LENGTH_BYTES = 16, 30, 4
"""Overhead of a message in bytes, and the length field of headers. Source: memstore.go's
memStoreMsgSizeRaw and filestore.go's fileStoreMsgSizeRaw."""
_COMPRESSED_FRAME, _PLAIN_FRAME = 0x00, 0x01
_OTHER_FRAMES = (0xFF, 0xFE, 0x99)
"""Types of frames without content: stream identifier, padding, index."""

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
    """Return the first decoded bytes of frames of S2 or Snappy that are stored as literals.

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
    at = next((index + 1 for index, byte in enumerate(block[:5]) if byte < 0x80), 0)
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


def read_items(backup: OpenBackup, on_read: OnRead = ignore_read, count_from: int | None = None) -> Iterator[Item]:
    """Yield everything in the archive in its order, up to its end mark. Raises StorageError if it is damaged.

    With `count_from`, nearly all messages come as counts (see ArchiveReader).
    """
    from natsctl.api.archive.archive_reader import ArchiveReader

    reader, done = ArchiveReader(count_from), 0
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
    """Raise StorageError if data is damaged: checked by the manifest's checksum, without one by reading the content."""
    if backup.manifest is None:
        summarise(backup, on_read)
        return
    backup.data.rewind()
    done = 0
    while piece := backup.data.read(_PIECE_BYTES):
        done += len(piece)
        on_read(done)


@dataclass(slots=True)
class RemovedMessages:
    """Messages of an archive that do not count: below the first sequence, or removed by a later record."""

    first_seq: int = 0
    seqs: set[int] = field(default_factory=set)

    def kept(self, messages: Sequence[ArchivedMessage]) -> Sequence[ArchivedMessage]:
        """Return those of the messages that the stream has; their sequences ascend."""
        if not messages or (not self.seqs and messages[0].seq >= self.first_seq):
            return messages
        return [message for message in messages if message.seq >= self.first_seq and message.seq not in self.seqs]


def removed_in(backup: OpenBackup) -> RemovedMessages:
    """Return the removals in a version 1 archive, found by reading it; version 2 has no removals."""
    if version_of(backup) == 2:
        return RemovedMessages()
    gone = {item.seq for item in read_items(backup) if isinstance(item, Gone)}
    return RemovedMessages(int(backup.state.get("first_seq") or 0), gone)


def read_messages(
    backup: OpenBackup, on_read: OnRead = ignore_read, removed: RemovedMessages | None = None
) -> Iterator[Sequence[ArchivedMessage]]:
    """Yield the stream's messages in order, in lists of neighbours. Raises StorageError.

    `removed` is the result of an earlier reading; without it version 1 is read once more.
    """
    removed = removed or removed_in(backup)
    for item in read_items(backup, on_read):
        if not isinstance(item, ArchivedStream | ArchivedConsumer | Gone | CountedRecords):
            yield removed.kept(item)


@dataclass(slots=True)
class ArchiveSummary:
    """Result of one reading of an archive; times in ns, 0 without messages."""

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
    removed: RemovedMessages = field(default_factory=RemovedMessages)

    def add(self, messages: Sequence[ArchivedMessage]) -> None:
        """Count messages that follow those before."""
        if messages:
            self.add_counted(counted(messages))

    def add_counted(self, found: CountedRecords) -> None:
        if not self.messages:
            self.first_seq, self.first_ts_ns = found.first_seq, found.first_ts_ns
        self.last_seq, self.last_ts_ns = found.last_seq, found.last_ts_ns
        self.messages += found.messages
        self.payload_bytes += found.payload_bytes
        self.record_bytes += found.record_bytes
        self.with_header += found.with_header
        for raw, number in found.subjects.items():
            subject = raw.decode("utf-8", "replace")
            if subject in self.subjects or len(self.subjects) < MAX_SUBJECTS:
                self.subjects[subject] += number

    def stored_bytes(self, *, in_memory: bool) -> int:
        """Return the size of the messages in a stream's storage, as nats-server counts it."""
        if in_memory:
            return self.record_bytes + _IN_MEMORY_BYTES * self.messages
        return self.record_bytes + _IN_FILE_BYTES * self.messages + _HEADER_LENGTH_BYTES * self.with_header

    def reached(self, seq: int, ts_ns: int) -> None:
        """Record that the stream reached that sequence of a removed message."""
        if seq > self.last_seq:
            self.last_seq, self.last_ts_ns = seq, ts_ns


def summarise(backup: OpenBackup, on_read: OnRead = ignore_read) -> ArchiveSummary:
    """Return the summary of the archive, all of it read and checked. Raises StorageError.

    One reading is enough unless a later record removes a message that was counted before.
    """
    removed = RemovedMessages()
    if version_of(backup) == 1:
        removed.first_seq = int(backup.state.get("first_seq") or 0)
    summary, late = _read(backup, removed, on_read)
    return _read(backup, removed, on_read)[0] if late else summary


def _read(backup: OpenBackup, removed: RemovedMessages, on_read: OnRead) -> tuple[ArchiveSummary, bool]:
    """Return the summary of one reading (it adds to `removed`), and whether a removal came after its message."""
    summary, late = ArchiveSummary(version_of(backup), removed=removed), False
    bytes(
        _KEPT_BYTES
    )  # glibc keeps freed memory up to the size of the largest block that was freed: pages are used again
    count_from = None if removed.seqs else removed.first_seq
    for item in read_items(backup, on_read, count_from):
        if isinstance(item, ArchivedStream):
            summary.inner = item
        elif isinstance(item, ArchivedConsumer):
            summary.consumers.append(item)
        elif isinstance(item, Gone):
            counted = removed.first_seq <= item.seq <= summary.last_seq
            late = late or (counted and item.seq not in removed.seqs)
            removed.seqs.add(item.seq)
            summary.reached(item.seq, item.ts_ns)
        elif isinstance(item, CountedRecords):
            summary.add_counted(item)
        else:
            summary.add(removed.kept(item))
    return summary, late


def state_of(backup: OpenBackup) -> dict[str, Any]:
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


class ReadCancelledError(Exception):
    """The result of a reading is not awaited any more: the reading ends."""


async def run_in_thread(work: Callable[[OnRead], T], on_read: OnRead) -> T:
    """Return the result of `work`; it reports its progress to its argument.

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


V2_SINCE = (2, 15)
"""First server version that reads version 2."""

Keep = Callable[[ArchivedMessage], bool]


def is_since(server_version: str, since: tuple[int, int]) -> bool:
    """Return whether a server's version is that or later; an unknown version counts as new."""
    parts = server_version.split("-")[0].split(".")[:2]
    return not all(part.isdecimal() for part in parts) or tuple(map(int, parts)) >= since


def version_for(backup: OpenBackup, config: dict[str, Any], server_version: str) -> int:
    """Return the format for that server to restore the stream. Raises UsageError if no format fits."""
    new_server = is_since(server_version, V2_SINCE)
    if config.get("storage") == "memory":
        if not new_server:
            raise UsageError(
                f"nats-server {server_version} restores no stream in memory",
                hint='restore it with a --config that has "storage": "file", or on a server from 2.15 on',
            )
        return 2
    if not new_server:
        return 1
    return 2 if config["name"] != backup.stream else version_of(backup)


@contextlib.asynccontextmanager
async def fitted(
    backup: OpenBackup,
    config: dict[str, Any],
    version: int,
    on_read: OnRead = ignore_read,
    alter: Alteration | None = None,
) -> AsyncIterator[str]:
    """Yield the backup with data in that format that may be restored as `config`.

    The returned text describes the changes, except changes by `alter`.
    """
    had = version_of(backup)
    renamed = config["name"] != backup.stream
    lowered = (
        await run_in_thread(lambda read: _over(backup, _replicas(config), read), on_read)
        if _replicas(config) < _replicas(backup.config)  # consumers may not have more than their stream
        else []
    )
    as_it_is = had == version and not (renamed and had == 1) and not lowered
    if as_it_is and alter is None:
        yield ""
        return
    before, size, state = backup.data, backup.size, backup.state
    with tempfile.TemporaryFile() as data:
        made = await run_in_thread(
            lambda read: rewrite(backup, data, config, version, alter=alter, on_read=read), on_read
        )
        backup.data, backup.size = BackupData(backup.path, before.name, data), data.tell()
        if alter is not None:
            backup.state = made
        try:
            yield "" if as_it_is else _done(had, version, lowered, _replicas(config))
        finally:
            backup.data, backup.size, backup.state = before, size, state


def _replicas(config: dict[str, Any]) -> int:
    return int(config.get("num_replicas") or 1)


def _over(backup: OpenBackup, replicas: int, on_read: OnRead) -> list[str]:
    """Return the consumers that have more copies; in version 2 they stand before the messages."""
    found: list[str] = []
    consumers_first = version_of(backup) == 2
    for item in read_items(backup, on_read):
        if isinstance(item, ArchivedConsumer):
            found += [item.name] if item.config.num_replicas > replicas else []
        elif consumers_first and isinstance(item, Sequence) and item:
            break
    return found


def _done(had: int, version: int, lowered: list[str], replicas: int) -> str:
    done = []
    if had != version or not lowered:
        done.append(
            f"archive of version {had} rewritten as version {version}" + (", with new hashes" if version == 1 else "")
        )
    if lowered:
        done.append(f"{plural(replicas, 'replica')}, as the stream has, for {', '.join(lowered)}")
    return "; ".join(done)


def rewrite(
    backup: OpenBackup,
    out: IO[bytes],
    config: dict[str, Any],
    version: int,
    *,
    keep: Keep | None = None,
    consumers: bool = True,
    more: Sequence[ArchivedConsumer] = (),
    renumber: bool = False,
    alter: Alteration | None = None,
    on_read: OnRead = ignore_read,
) -> dict[str, Any]:
    """Rewrite the archive to `out` and return the state that goes with it. Raises StorageError, UsageError.

    With `keep` only those messages, under the sequences that they had; the stream's last sequence stays. With
    `renumber` their sequences begin at 1, and no consumer may be kept. `more` are consumers that the archive lacks, or
    that replace consumers of the same name. `alter` changes written messages and consumers.
    """
    found = summarise(backup, on_read)
    known = StreamState() if not backup.state else _typed_state(backup)
    stand_ins = {one.name for one in more}
    left = [consumer for consumer in found.consumers if consumers and consumer.name not in stand_ins]
    state = msgspec.structs.replace(known, consumer_count=len(left) + len(more))
    if keep is not None or alter is not None:
        _recount(backup, found, keep, alter, state)
    if renumber:
        state.first_seq, state.last_seq = 1, state.messages
        state.num_deleted, state.deleted = 0, []
    head = ArchivedStream(config=_typed_config(config), created_ns=found.inner.created_ns, state=state)
    kept_consumers = _fitting(left, backup, found, keep)
    kept_consumers = [_lowered(consumer, _replicas(config)) for consumer in (*kept_consumers, *more)]
    if alter is not None:
        alter.begin()
        kept_consumers = [alter.consumer(consumer) for consumer in kept_consumers]
    writer: WriterV1 | WriterV2 = WriterV1() if version == 1 else WriterV2()
    frames = FrameWriter()
    out.write(frames.write(b"".join(writer.beginning(head, kept_consumers))))
    written = 0
    for messages in read_messages(backup, on_read, found.removed):
        if chosen := messages if keep is None else list(filter(keep, messages)):
            if renumber:
                chosen = [one._replace(seq=written + number) for number, one in enumerate(chosen, 1)]
                written += len(chosen)
            if alter is not None:
                chosen = alter.messages(chosen)
            for piece in writer.messages(chosen):
                out.write(frames.write(piece))
    for piece in writer.end(state.last_seq, found.last_ts_ns):
        out.write(frames.write(piece))
    out.write(frames.finish())
    return dict(msgspec.to_builtins(state))


def _recount(
    backup: OpenBackup, found: ArchiveSummary, keep: Keep | None, alter: Alteration | None, state: StreamState
) -> None:
    kept = ArchiveSummary()
    for messages in read_messages(backup, removed=found.removed):
        chosen = messages if keep is None else list(filter(keep, messages))
        kept.add(chosen if alter is None else alter.messages(chosen))
    state.messages = kept.messages
    state.bytes = kept.stored_bytes(in_memory=backup.config.get("storage") == "memory")
    state.first_seq, state.first_ts = state.last_seq + 1, state.last_ts
    if kept.messages:
        state.first_seq, state.first_ts = kept.first_seq, format_time(kept.first_ts_ns)
    state.num_deleted, state.deleted, state.num_subjects, state.subjects = 0, [], len(kept.subjects), {}


def _fitting(
    consumers: list[ArchivedConsumer], backup: OpenBackup, found: ArchiveSummary, keep: Keep | None
) -> list[ArchivedConsumer]:
    """Return the consumers, waiting for acks of messages only that are there."""
    if keep is None:
        return consumers
    waiting = {seq for consumer in consumers for seq in (*consumer.progress.pending, *consumer.progress.redelivered)}
    batches = read_messages(backup, removed=found.removed) if waiting else ()
    there = {message.seq for batch in batches for message in filter(keep, batch)} & waiting
    return [
        replace(
            consumer,
            progress=replace(
                consumer.progress,
                pending={seq: entry for seq, entry in consumer.progress.pending.items() if seq in there},
                redelivered={seq: count for seq, count in consumer.progress.redelivered.items() if seq in there},
            ),
        )
        for consumer in consumers
    ]


def _lowered(consumer: ArchivedConsumer, replicas: int) -> ArchivedConsumer:
    """Return the consumer with no more copies than its stream has."""
    if consumer.config.num_replicas <= replicas:
        return consumer
    return replace(consumer, config=replace(consumer.config, num_replicas=replicas))


def _typed_config(config: dict[str, Any]) -> StreamConfig:
    try:
        return decode(encode(config), StreamConfig)
    except InvalidJSONError as failure:
        raise UsageError(f"the configuration of the backup is not understood: {failure}") from failure


def _typed_state(backup: OpenBackup) -> StreamState:
    try:
        return decode(encode(backup.state), StreamState)
    except InvalidJSONError as failure:
        raise UsageError(f"{backup.path}: the state is not understood: {failure}") from failure
