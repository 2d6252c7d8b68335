"""Version 1 archives: a tar of the reference's block files, what every released server writes and reads.

`meta.inf` (configuration) and `meta.sum`, then `msgs/<i>.blk` with the messages, then for each consumer
`obs/<name>/meta.inf`, `meta.sum` and `o.dat` (state). Sums and record ends are HighwayHash-64. What the reference
hashes is written; read are the sums of the metadata, while records are covered by the checks of the compression
around them. Source: probes of nats-server, restored in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from struct import Struct
from typing import Final, TypeVar

import msgspec

from natsctl.api.codec import InvalidJSON, decode, encode
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.stream import StreamConfig
from natsctl.api.times import ZERO_TIME, format_time, parse_time
from natsctl.jetstream import consumer_file
from natsctl.jetstream.archive import ArchivedConsumer, ArchivedStream, ArchiveFault, Feed, Gone, Item
from natsctl.jetstream.highwayhash import HighwayHash64
from natsctl.jetstream.tar import END, TarFile, entry, read_tar
from natsctl.store.message import StoredMessage

BLOCK_BYTES: Final = 1 << 20
"""Size at which a block file is closed; it is held in memory until then."""

_HEAD: Final = Struct("<IQqH")  # length, sequence, time in ns, length of the subject
_HASH_BYTES: Final = 8
_HAS_HEADER: Final = 1 << 31
_ERASED: Final = 1 << 63
_TOMBSTONE: Final = 1 << 62
_COMPRESSED_BLOCK: Final = b"cmp"

T = TypeVar("T")


class _StreamMeta(StreamConfig):
    """`meta.inf` of a stream; keys are written in the order of the fields, which the reference does not mind."""

    Created: str = ZERO_TIME


class _ConsumerMeta(ConsumerConfig):
    """`meta.inf` of a consumer."""

    Created: str = ZERO_TIME
    Name: str = ""


def _sum(key: str, data: bytes) -> bytes:
    return HighwayHash64(sha256(key.encode()).digest()).digest(data).hex().encode()


class WriterV1:
    """Writes version 1."""

    def __init__(self) -> None:
        self._name = ""
        self._mtime_s = 0
        self._consumers: Sequence[ArchivedConsumer] = ()
        self._index = 0
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._hash = HighwayHash64(bytes(32))
        self._last_seq = 0

    def begin(self, stream: ArchivedStream, consumers: Sequence[ArchivedConsumer]) -> bytes:
        """Return the metadata; consumers follow after the messages."""
        assert stream.config is not None
        self._name, self._consumers = stream.config.name, consumers
        self._mtime_s = max(stream.created_ns, 0) // 1_000_000_000
        values = {name: getattr(stream.config, name) for name in stream.config.__struct_fields__}
        self._open_block()
        return self._meta("", self._name, encode(_StreamMeta(**values, Created=format_time(stream.created_ns))))

    def _meta(self, folder: str, key: str, body: bytes) -> bytes:
        return self._file(f"{folder}meta.inf", body) + self._file(f"{folder}meta.sum", _sum(key, body))

    def _file(self, name: str, content: bytes) -> bytes:
        return entry(name, content, self._mtime_s)

    def messages(self, messages: Sequence[StoredMessage]) -> bytes:
        """Return the blocks that these messages complete."""
        out = []
        for message in messages:
            self._add(message.seq, message.ts_ns, message.subject, message.header, message.payload)
            self._last_seq = message.seq
            if self._block_bytes >= BLOCK_BYTES:
                out.append(self._close_block())
        return b"".join(out)

    def _add(self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes) -> None:
        body = b"%b%b%b%b" % (subject, len(header).to_bytes(4, "little") if header else b"", header, payload)
        length = _HEAD.size + len(body) + _HASH_BYTES
        head = _HEAD.pack(length | (_HAS_HEADER if header else 0), seq, ts_ns, len(subject))
        hashed = head[4:20] + (subject + header + payload if header else body)
        self._block.append(head + body + self._hash.digest(hashed))
        self._block_bytes += length

    def _open_block(self) -> None:
        self._index += 1
        self._block, self._block_bytes = [], 0
        self._hash = HighwayHash64(sha256(f"{self._name}-{self._index}".encode()).digest())

    def _close_block(self) -> bytes:
        file = self._file(f"msgs/{self._index}.blk", b"".join(self._block))
        self._open_block()
        return file

    def end(self, last_seq: int, last_ts_ns: int) -> bytes:
        """Return the last block and the consumers; a stream whose newest messages are gone ends with an erased one."""
        if last_seq > self._last_seq:
            self._add(last_seq | _ERASED, last_ts_ns, b"", b"", b"")
        parts = [self._close_block()] if self._block else []
        for consumer in self._consumers:
            values = {name: getattr(consumer.config, name) for name in consumer.config.__struct_fields__}
            meta = _ConsumerMeta(**values, Created=format_time(consumer.created_ns), Name=consumer.name)
            folder = f"obs/{consumer.name}/"
            parts.append(self._meta(folder, f"{self._name}/{consumer.name}", encode(meta)))
            parts.append(self._file(f"{folder}o.dat", consumer_file.write(consumer.progress)))
        return b"".join([*parts, END])


def read_v1(feed: Feed) -> Iterator[Item | None]:
    """Yield the items of a tar, None when bytes are missing. Raises ArchiveFault."""
    reader = _Reader()
    for file in read_tar(feed):
        if file is None:
            yield None
        else:
            yield from reader.items(file, feed)
    reader.check_complete()


class _Reader:
    """What of an archive must be remembered while the rest arrives."""

    def __init__(self) -> None:
        self._config: StreamConfig | None = None
        self._name = ""
        self._checked = b""
        self._consumer: _ConsumerMeta | None = None

    def items(self, file: TarFile, feed: Feed) -> Iterator[Item | None]:
        """Yield what one file of the tar holds."""
        name = file.name.removeprefix("./")
        if name.startswith("msgs/") and name.endswith(".blk"):
            if self._config is None:
                raise ArchiveFault("the archive does not begin with its configuration")
            yield from _messages(file, feed)
        elif name.endswith(("meta.inf", "meta.sum")) or (name.startswith("obs/") and name.endswith("/o.dat")):
            while (body := file.take(feed, file.size)) is None:
                yield None
            item = self._small_file(name, body)
            if item is not None:
                yield item

    def _small_file(self, name: str, body: bytes) -> Item | None:
        """Take one small file in and return the item that it completes."""
        folder, _, kind = name.rpartition("/")
        if kind == "meta.inf":
            self._checked = body
            return None
        if kind == "meta.sum":
            return self._meta(folder, body)
        consumer, self._consumer = self._consumer, None
        if consumer is None or folder != f"obs/{consumer.Name}":
            raise ArchiveFault(f"{name} stands without its metadata")
        config = ConsumerConfig(**{key: getattr(consumer, key) for key in ConsumerConfig.__struct_fields__})
        progress = consumer_file.read(body)
        return ArchivedConsumer(consumer.Name, config, progress, _created(consumer.Created))

    def _meta(self, folder: str, checksum: bytes) -> Item | None:
        """Take metadata in whose sum has come."""
        if not folder:
            meta = _json(self._checked, _StreamMeta, "meta.inf")
            _check_sum(meta.name, self._checked, checksum, "meta.inf")
            self._name = meta.name
            self._config = StreamConfig(**{key: getattr(meta, key) for key in StreamConfig.__struct_fields__})
            return ArchivedStream(self._config, _created(meta.Created))
        consumer = _json(self._checked, _ConsumerMeta, f"{folder}/meta.inf")
        consumer.Name = consumer.Name or folder.removeprefix("obs/")
        _check_sum(f"{self._name}/{consumer.Name}", self._checked, checksum, folder)
        self._consumer = consumer
        return None

    def check_complete(self) -> None:
        """Raise ArchiveFault when something is missing at the end of the tar."""
        if self._config is None:
            raise ArchiveFault("the archive holds no stream")
        if self._consumer is not None:
            raise ArchiveFault(f"the state of consumer {self._consumer.Name} is missing")


def _messages(file: TarFile, feed: Feed) -> Iterator[Item | None]:
    """Yield the records of one block file."""
    least = _HEAD.size + _HASH_BYTES
    while file.left:
        while (head := file.take(feed, _HEAD.size)) is None:
            yield None
        length, seq, ts_ns, subjects = _HEAD.unpack(head)
        if head.startswith(_COMPRESSED_BLOCK):
            raise ArchiveFault(f"{file.name} is compressed by itself, which no archive of a server is")
        has_header, length = bool(length & _HAS_HEADER), length & ~_HAS_HEADER
        if length < least + subjects:
            raise ArchiveFault(f"a record of {file.name} is too short")
        while (body := file.take(feed, length - _HEAD.size)) is None:
            yield None
        sequence = seq & ~(_ERASED | _TOMBSTONE)
        if seq & (_ERASED | _TOMBSTONE) or not sequence:
            if sequence:
                yield Gone(sequence, ts_ns)
            continue
        header, payload = b"", body[subjects:-_HASH_BYTES]
        if has_header:
            size = int.from_bytes(payload[:4], "little")
            header, payload = payload[4 : 4 + size], payload[4 + size :]
            if len(header) != size:
                raise ArchiveFault(f"a header in {file.name} is longer than its record")
        yield StoredMessage(sequence, ts_ns, body[:subjects], header, payload)


def _created(text: str) -> int:
    try:
        return max(parse_time(text), 0)
    except ValueError as fault:
        raise ArchiveFault(f"a time of creation can not be read: {fault}") from fault


def _check_sum(key: str, body: bytes, checksum: bytes, what: str) -> None:
    if _sum(key, body) != checksum.strip().lower():
        raise ArchiveFault(f"the checksum of {what} does not match")


def _json(raw: bytes, wanted: type[T], what: str) -> T:
    try:
        return decode(raw, wanted)
    except (InvalidJSON, msgspec.MsgspecError) as fault:
        raise ArchiveFault(f"{what} can not be read: {fault}") from fault
