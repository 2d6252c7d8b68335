"""Version 1 archives: a tar of nats-server's block files, readable and writable by every released server.

`meta.inf` (configuration) and `meta.sum`, then `msgs/<i>.blk` with the messages, then for each consumer
`obs/<name>/meta.inf`, `meta.sum` and `o.dat` (state). Sums are HighwayHash-64. Other files are a server's own and are
skipped. Source: probes of nats-server 2.9 to 2.15, restored in both directions.

A record of a block is: length (bit 31: it has a header block), sequence, time in ns, length of the subject; then
subject, header block after its length, payload, and the HighwayHash-64 of all that but the lengths, keyed by the
stream's name and the block's number. Bit 63 of a sequence marks a message as erased, bit 62 as deleted. Hashing is
slow in Python (highwayhash.py); the native module does it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple, cast

from natsctl.api.archive import consumer_file
from natsctl.api.archive.archive import (
    PAUSE,
    ArchivedConsumer,
    ArchivedMessage,
    ArchivedStream,
    ArchiveError,
    ArchiveFeed,
    CountedRecords,
    Gone,
    Item,
    MessageFields,
    read_json,
)
from natsctl.api.archive.highwayhash import HighwayHash64, digests
from natsctl.api.archive.tar import END, TarFile, entry, in_pieces, read_tar
from natsctl.api.codec import encode
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.stream import StreamConfig
from natsctl.api.times import ZERO_TIME, format_time, parse_time
from natsctl.native import lib

BLOCK_BYTES: Final = 1 << 20
"""Max size of a block file of many records; it is kept in memory until it is closed."""
LARGE_BLOCK_BYTES: Final = 8 << 20
"""Max size of a block file of few records."""
LANES: Final = 64
"""Records that make many: hashing fewer at once costs more for each."""

_HEAD: Final = Struct("<IQqH")
_HASH_BYTES: Final = 8
_MIN_RECORD_BYTES: Final = _HEAD.size + _HASH_BYTES
_HAS_HEADER: Final = 1 << 31
_ERASED: Final = 1 << 63
_TOMBSTONE: Final = 1 << 62
_SEQ: Final = _TOMBSTONE - 1
_PARSED_BYTES: Final = 64 << 10
"""Least that is parsed in one step."""
_PARSED_RECORDS: Final = 1024
"""Minimum records of a large block: they take 2 ms and fill the lanes."""
_MOST_BYTES: Final = LARGE_BLOCK_BYTES if lib is None else BLOCK_BYTES
"""Most that is parsed in one step, unless one record is longer."""
_BATCH_RECORDS: Final = 512
_BATCH_BYTES: Final = 1 << 20
"""End of a batch of messages that are stored in one step."""
_COMPRESSED_BLOCK: Final = b"cmp"
_new: Final = tuple.__new__
_PARTS: Final = 5
"""Pieces of one record in BlockWriter._parts: head, subject, header with its length, payload, hash."""


def hasher_of(key: str) -> HighwayHash64:
    """Return the hash keyed by a name: `stream`, `stream/consumer` or `stream-block`."""
    return HighwayHash64(sha256(key.encode()).digest())


class BlockWriter:
    """A writer of consecutive block files."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self.index = 1
        self._hasher = hasher_of(f"{stream}-1")
        self._parts: list[bytes] = []
        self._hashed: list[bytes] = []
        self._records = 0
        self._bytes = 0

    def add(self, messages: Sequence[MessageFields]) -> None:
        """Accept messages; in Python their hashes are computed when the block is closed."""
        self._records += len(messages)
        if lib is not None:
            self._parts.append(lib.write_v1(messages, self._hasher.key))
            self._bytes += len(self._parts[-1])
            return
        parts, hashed, pack = self._parts, self._hashed, _HEAD.pack
        size = 0
        for seq, ts_ns, subject, header, payload in messages:
            if header:
                length = _MIN_RECORD_BYTES + 4 + len(subject) + len(header) + len(payload)
                head = pack(length | _HAS_HEADER, seq, ts_ns, len(subject))
                parts += (head, subject, len(header).to_bytes(4, "little") + header, payload, b"")
                hashed.append(head[4:20] + subject + header + payload)
            else:
                length = _MIN_RECORD_BYTES + len(subject) + len(payload)
                head = pack(length, seq, ts_ns, len(subject))
                parts += (head, subject, b"", payload, b"")
                hashed.append(head[4:20] + subject + payload)
            size += length
        self._bytes += size

    def add_erased(self, seq: int, ts_ns: int) -> None:
        """Record a sequence that was assigned and has no message."""
        self.add((ArchivedMessage(seq | _ERASED, ts_ns, b"", b"", b""),))

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to close."""
        return not self._bytes

    @property
    def full(self) -> bool:
        """Return whether the block is to be closed."""
        return self._bytes >= (BLOCK_BYTES if self._records >= LANES else LARGE_BLOCK_BYTES)

    def close(self) -> Generator[None, None, bytes]:
        """Return the file and begin the next one; yield between pieces of long work."""
        parts, hashed, hasher = self._parts, self._hashed, self._hasher
        self._parts, self._hashed, self._records, self._bytes = [], [], 0, 0
        self.index += 1
        self._hasher = hasher_of(f"{self._stream}-{self.index}")
        if hashed:
            hashes = yield from digests(hasher, hashed)
            parts[_PARTS - 1 :: _PARTS] = [hashes[at : at + _HASH_BYTES] for at in range(0, len(hashes), _HASH_BYTES)]
        return b"".join(parts)


class _Records(NamedTuple):
    """Content of a piece of a block file: records with the hashed bytes and the hash, and the start of the next one."""

    items: list[ArchivedMessage | Gone]
    hashed: list[bytes]
    hashes: list[bytes]
    end: int
    next_bytes: int


_Checked = tuple[list[ArchivedMessage | Gone], int, int]
"""Items of the complete records of a piece with verified hashes, their end, and the size of the next record."""


def read_block(
    file: TarFile, feed: ArchiveFeed, hasher: HighwayHash64, count_from: int | None = None
) -> Generator[Item | None, None, int | None]:
    """Yield the records of one file in batches, None when bytes are missing. Raises ArchiveError.

    Messages from the sequence `count_from` on are counted by the native module, until a record marks one as deleted;
    returns `count_from`, or None from then on.
    """
    wanted, record = _PARSED_BYTES, _MIN_RECORD_BYTES
    while file.left:
        if record > file.left:
            if feed.peek(min(len(feed), len(_COMPRESSED_BLOCK))) == _COMPRESSED_BLOCK:
                raise ArchiveError(f"{file.name} is compressed by itself: not an archive of a server")
            raise ArchiveError(f"{file.name} ends too early")
        if count_from is not None and lib is not None:
            while len(feed) < record:
                yield None
            counts = lib.count_v1(feed.view(record)[: file.left], hasher.key, count_from)
        else:
            counts = None
        if counts is not None:
            found, end, record = counts
            if found[0]:
                yield CountedRecords(*found)
            file.skip(feed, end)
            continue
        size = min(file.left, max(wanted, record))
        while (data := feed.peek(size)) is None:
            yield None
        native: _Checked | None = None if lib is None else lib.read_v1(data, hasher.key, ArchivedMessage, Gone)
        items, end, record = native or (yield from _checked(data, hasher, file.name))
        yield from _batches(items)
        if count_from is not None and any(isinstance(item, Gone) for item in items):
            count_from = None
        file.skip(feed, end)
        mean_bytes = end // max(len(items), 1)
        wanted = min(max(_PARSED_BYTES, mean_bytes * _PARSED_RECORDS), _MOST_BYTES)
    return count_from


def _checked(data: bytes, hasher: HighwayHash64, name: str) -> Generator[Item, None, _Checked]:
    """Return the records of `data`, and yield PAUSE between pieces of long work. Raises ArchiveError."""
    records = _parsed(data, name)
    yield PAUSE
    hashes = digests(hasher, records.hashed)
    while True:
        try:
            next(hashes)
        except StopIteration as end:
            _compare(records, end.value, name)
            return records.items, records.end, records.next_bytes
        yield PAUSE


def _parsed(data: bytes, name: str) -> _Records:
    """Return the whole records at the beginning of `data`.

    One loop, because a call per record costs a fifth of what reading it costs.
    """
    items: list[ArchivedMessage | Gone] = []
    hashed: list[bytes] = []
    hashes: list[bytes] = []
    at, size, unpack = 0, len(data), _HEAD.unpack_from
    least = _MIN_RECORD_BYTES
    while at + least <= size:
        flagged, seq, ts_ns, subjects = unpack(data, at)
        end = at + (flagged & ~_HAS_HEADER)
        start, stop = at + _HEAD.size, end - _HASH_BYTES
        body = start + subjects
        if stop < body:
            raise ArchiveError(f"a record of {name} is too short")
        if end > size:
            return _Records(items, hashed, hashes, at, end - at)
        if flagged & _HAS_HEADER:
            header_end = body + 4 + int.from_bytes(data[body : body + 4], "little")
            if header_end > stop:
                raise ArchiveError(f"a header in {name} is longer than its record")
            hashed.append(b"%b%b%b" % (data[at + 4 : at + 20], data[start:body], data[body + 4 : stop]))
            header, payload = data[body + 4 : header_end], data[header_end:stop]
        else:
            hashed.append(data[at + 4 : at + 20] + data[start:stop])
            header, payload = b"", data[body:stop]
        hashes.append(data[stop:end])
        if 0 < seq <= _SEQ:
            items.append(_new(ArchivedMessage, (seq, ts_ns, data[start:body], header, payload)))
        elif seq & _SEQ:
            items.append(Gone(seq & _SEQ, ts_ns))
        at = end
    return _Records(items, hashed, hashes, at, least)


def _compare(records: _Records, hashes: bytes, name: str) -> None:
    if hashes != b"".join(records.hashes):
        raise ArchiveError(f"a record of {name} does not match its hash")


def _batches(items: list[ArchivedMessage | Gone]) -> Iterator[Item]:
    """Yield messages that follow each other together."""
    if lib is not None and set(map(type, items)) == {ArchivedMessage}:
        yield cast("list[ArchivedMessage]", items)
        return
    batch: list[ArchivedMessage] = []
    size = 0
    for item in items:
        if isinstance(item, Gone):
            if batch:
                yield batch
                batch, size = [], 0
            yield item
        else:
            batch.append(item)
            size += len(item.payload)
            if len(batch) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


class _StreamMeta(StreamConfig):
    """`meta.inf` of a stream; keys are written in the order of the fields; nats-server accepts that."""

    Created: str = ZERO_TIME


class _ConsumerMeta(ConsumerConfig):
    Created: str = ZERO_TIME
    Name: str = ""


def _sum(key: str, data: bytes) -> bytes:
    hasher = hasher_of(key)
    return (hasher.digest(data) if lib is None else lib.highway(hasher.key, data)).hex().encode()


class WriterV1:
    """The writer of version 1."""

    def __init__(self) -> None:
        self._name = ""
        self._mtime_s = 0
        self._consumers: Sequence[ArchivedConsumer] = ()
        self._block = BlockWriter("")
        self._last_seq = 0

    def beginning(self, stream: ArchivedStream, consumers: Sequence[ArchivedConsumer]) -> Iterator[bytes]:
        """Yield the metadata; consumers follow after the messages."""
        assert stream.config is not None
        self._name, self._consumers = stream.config.name, consumers
        self._mtime_s = max(stream.created_ns, 0) // 1_000_000_000
        values = {name: getattr(stream.config, name) for name in stream.config.__struct_fields__}
        self._block = BlockWriter(self._name)
        yield self._meta("", self._name, encode(_StreamMeta(**values, Created=format_time(stream.created_ns))))

    def _meta(self, folder: str, key: str, body: bytes) -> bytes:
        files = (("meta.inf", body), ("meta.sum", _sum(key, body)))
        return b"".join(entry(folder + name, content, self._mtime_s) for name, content in files)

    def messages(self, messages: Sequence[MessageFields]) -> Iterator[bytes]:
        """Yield the blocks that these messages complete, b"" between pieces of long work."""
        self._block.add(messages)
        self._last_seq = messages[-1][0]
        if self._block.full:
            yield from self._close_block()

    def _close_block(self) -> Iterator[bytes]:
        yield from self._paused(f"msgs/{self._block.index}.blk", self._block.close())

    def _paused(self, name: str, steps: Iterator[object]) -> Iterator[bytes]:
        """Yield the file that the steps return, b"" after each of them."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                yield from in_pieces(name, end.value, self._mtime_s)
                return
            yield b""

    def end(self, last_seq: int, last_ts_ns: int) -> Iterator[bytes]:
        """Yield the last block and the consumers; a stream without its newest messages ends with an erased one."""
        if last_seq > self._last_seq:
            self._block.add_erased(last_seq, last_ts_ns)
        if not self._block.empty:
            yield from self._close_block()
        for consumer in self._consumers:
            yield from self._consumer(consumer)
        yield END

    def _consumer(self, consumer: ArchivedConsumer) -> Iterator[bytes]:
        values = {name: getattr(consumer.config, name) for name in consumer.config.__struct_fields__}
        meta = _ConsumerMeta(**values, Created=format_time(consumer.created_ns), Name=consumer.name)
        folder = f"obs/{consumer.name}/"
        yield self._meta(folder, f"{self._name}/{consumer.name}", encode(meta))
        yield from self._paused(f"{folder}o.dat", consumer_file.writing(consumer.progress))


def read_v1(feed: ArchiveFeed, count_from: int | None = None) -> Iterator[Item | None]:
    """Yield the items of a tar, None when bytes are missing; `read_block` has the rest. Raises ArchiveError."""
    reader = _BlockReader(count_from)
    for number, file in enumerate(read_tar(feed), 1):
        if file is None:
            yield None
        else:
            yield from reader.items(file, feed)
        if not number % _PAUSE_FILES:
            yield PAUSE
    reader.check_complete()


_PAUSE_FILES: Final = 32
"""Files after which there is a pause: they may be small or of no use, and very many."""


class _BlockReader:
    """Data of an archive that must be kept until the rest arrives."""

    def __init__(self, count_from: int | None) -> None:
        self._count_from = count_from
        self._config: StreamConfig | None = None
        self._name = ""
        self._checked = b""
        self._consumer: _ConsumerMeta | None = None

    def items(self, file: TarFile, feed: ArchiveFeed) -> Iterator[Item | None]:
        name = file.name.removeprefix("./")
        if name.startswith("msgs/") and name.endswith(".blk"):
            if self._config is None:
                raise ArchiveError("the archive does not begin with its configuration")
            hasher = hasher_of(f"{self._name}-{_number(name)}")
            self._count_from = yield from read_block(file, feed, hasher, self._count_from)
        elif name.endswith(("meta.inf", "meta.sum")) or (name.startswith("obs/") and name.endswith("/o.dat")):
            while (body := file.take(feed, file.size)) is None:
                yield None
            item = self._small_file(name, body)
            if item is not None:
                yield item

    def _small_file(self, name: str, body: bytes) -> Item | None:
        folder, _, kind = name.rpartition("/")
        if kind == "meta.inf":
            self._checked = body
            return None
        if kind == "meta.sum":
            return self._meta(folder, body)
        consumer, self._consumer = self._consumer, None
        if consumer is None or folder != f"obs/{consumer.Name}":
            raise ArchiveError(f"{name} stands without its metadata")
        config = ConsumerConfig(**{key: getattr(consumer, key) for key in ConsumerConfig.__struct_fields__})
        progress = consumer_file.read(body)
        return ArchivedConsumer(consumer.Name, config, progress, _created(consumer.Created))

    def _meta(self, folder: str, checksum: bytes) -> Item | None:
        """Accept metadata once its checksum has arrived."""
        if not folder:
            meta = read_json(self._checked, _StreamMeta, "meta.inf")
            _check_sum(meta.name, self._checked, checksum, "meta.inf")
            self._name = meta.name
            self._config = StreamConfig(**{key: getattr(meta, key) for key in StreamConfig.__struct_fields__})
            return ArchivedStream(self._config, _created(meta.Created))
        consumer = read_json(self._checked, _ConsumerMeta, f"{folder}/meta.inf")
        consumer.Name = consumer.Name or folder.removeprefix("obs/")
        _check_sum(f"{self._name}/{consumer.Name}", self._checked, checksum, folder)
        self._consumer = consumer
        return None

    def check_complete(self) -> None:
        """Raise ArchiveError when something is missing at the end of the tar."""
        if self._config is None:
            raise ArchiveError("the archive holds no stream")
        if self._consumer is not None:
            raise ArchiveError(f"the state of consumer {self._consumer.Name} is missing")


def _number(name: str) -> str:
    """Return the number of a block file, as its hashes are keyed."""
    number = name.removeprefix("msgs/").removesuffix(".blk")
    if not number.isdecimal():
        raise ArchiveError(f"{name!r} is not the name of a block")
    return number


def _created(text: str) -> int:
    try:
        return max(parse_time(text), 0)
    except ValueError as fault:
        raise ArchiveError(f"a time of creation cannot be read: {fault}") from fault


def _check_sum(key: str, body: bytes, checksum: bytes, what: str) -> None:
    if _sum(key, body) != checksum.strip().lower():
        raise ArchiveError(f"the checksum of {what} does not match")
