"""Version 1 archives: a tar of nats-server's block files, what every released server reads and writes.

`meta.inf` (configuration) and `meta.sum`, then `msgs/<i>.blk` with the messages (blocks.py), then for each consumer
`obs/<name>/meta.inf`, `meta.sum` and `o.dat` (state). Sums are HighwayHash-64. Files of other names, which servers
write for themselves, are passed over. Source: probes of nats-server 2.9 to 2.15, restored in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from natsctl.api.archive import consumer_file
from natsctl.api.archive.archive import ArchivedConsumer, ArchivedStream, ArchiveError, Feed, Item, MessageFields
from natsctl.api.archive.blocks import BlockWriter, hasher_of, read_block
from natsctl.api.archive.tar import END, TarFile, entry, in_pieces, read_tar
from natsctl.api.codec import InvalidJSONError, decode, encode
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.stream import StreamConfig
from natsctl.api.times import ZERO_TIME, format_time, parse_time

T = TypeVar("T")


class _StreamMeta(StreamConfig):
    """`meta.inf` of a stream; keys are written in the order of the fields, which nats-server accepts."""

    Created: str = ZERO_TIME


class _ConsumerMeta(ConsumerConfig):
    """`meta.inf` of a consumer."""

    Created: str = ZERO_TIME
    Name: str = ""


def _sum(key: str, data: bytes) -> bytes:
    return hasher_of(key).digest(data).hex().encode()


class WriterV1:
    """Writes version 1."""

    def __init__(self) -> None:
        self._name = ""
        self._mtime_s = 0
        self._consumers: Sequence[ArchivedConsumer] = ()
        self._block = BlockWriter("")
        self._last_seq = 0

    def begin(self, stream: ArchivedStream, consumers: Sequence[ArchivedConsumer]) -> bytes:
        """Return the metadata; consumers follow after the messages."""
        assert stream.config is not None
        self._name, self._consumers = stream.config.name, consumers
        self._mtime_s = max(stream.created_ns, 0) // 1_000_000_000
        values = {name: getattr(stream.config, name) for name in stream.config.__struct_fields__}
        self._block = BlockWriter(self._name)
        return self._meta("", self._name, encode(_StreamMeta(**values, Created=format_time(stream.created_ns))))

    def _meta(self, folder: str, key: str, body: bytes) -> bytes:
        return self._file(f"{folder}meta.inf", body) + self._file(f"{folder}meta.sum", _sum(key, body))

    def _file(self, name: str, content: bytes) -> bytes:
        return entry(name, content, self._mtime_s)

    def beginning(self, stream: ArchivedStream, consumers: Sequence[ArchivedConsumer]) -> Iterator[bytes]:
        """Yield what `begin` returns."""
        yield self.begin(stream, consumers)

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
        """Yield the last block and the consumers; a stream whose newest messages are gone ends with an erased one."""
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


def read_v1(feed: Feed) -> Iterator[Item | None]:
    """Yield the items of a tar, None when bytes are missing. Raises ArchiveError."""
    reader = _Reader()
    for file in read_tar(feed):
        if file is None:
            yield None
        else:
            yield from reader.items(file, feed)
    reader.check_complete()


class _Reader:
    """Data of an archive that must be kept until the rest arrives."""

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
                raise ArchiveError("the archive does not begin with its configuration")
            yield from read_block(file, feed, hasher_of(f"{self._name}-{_number(name)}"))
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
            raise ArchiveError(f"{name} stands without its metadata")
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
        raise ArchiveError(f"a time of creation can not be read: {fault}") from fault


def _check_sum(key: str, body: bytes, checksum: bytes, what: str) -> None:
    if _sum(key, body) != checksum.strip().lower():
        raise ArchiveError(f"the checksum of {what} does not match")


def _json(raw: bytes, wanted: type[T], what: str) -> T:
    try:
        return decode(raw, wanted)
    except (InvalidJSONError, msgspec.MsgspecError) as fault:
        raise ArchiveError(f"{what} can not be read: {fault}") from fault
