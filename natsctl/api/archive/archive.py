"""Contents of a stream archive in either of its two formats, and the common parts of their readers.

Version 1 is a tar of block files, which every released server reads and writes; version 2 is a row of records, which
servers from 2.15 on write. Both are compressed as a whole (`s2`). Readers are generators over a Feed: they yield an
item, or None when they need more bytes, so that an archive of any size passes through a bounded buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.stream import StreamConfig, StreamState

MAX_RECORD_BYTES: Final = 72 << 20
"""Longest piece that is read as one: a message of the largest payload (64 MiB), with room for its header."""

MAX_VARINT_BYTES: Final = 10
_COMPACT_BYTES: Final = 1 << 16


MessageFields: TypeAlias = tuple[int, int, bytes, bytes, bytes]
"""A message as writers take it: the fields of ArchivedMessage in order. The messages of a store are such tuples."""


class ArchivedMessage(NamedTuple):
    """One message; `header` is the whole block with its status line, or empty."""

    seq: int
    ts_ns: int
    subject: bytes
    header: bytes
    payload: bytes


class ArchiveError(Exception):
    """The archive is damaged, incomplete, or of no known format; the text says how."""


class Progress(msgspec.Struct, frozen=True):
    """Progress of a consumer; pending maps a stream sequence to (first consumer sequence, last delivery in ns)."""

    delivered_cseq: int = 0
    delivered_sseq: int = 0
    floor_cseq: int = 0
    floor_sseq: int = 0
    pending: Mapping[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    redelivered: Mapping[int, int] = msgspec.field(default_factory=dict)


class ArchivedConsumer(msgspec.Struct, frozen=True):
    """One consumer; `created_ns` is 0 where the format does not have it."""

    name: str
    config: ConsumerConfig
    progress: Progress
    created_ns: int = 0


class ArchivedStream(msgspec.Struct, frozen=True):
    """State of a stream before any message of its archive; `config` is None where the format does not have it."""

    config: StreamConfig | None = None
    created_ns: int = 0
    state: StreamState | None = None


class Gone(msgspec.Struct, frozen=True):
    """The sequence holds no message, since `ts_ns` at the latest; one that came before is to be removed."""

    seq: int
    ts_ns: int = 0


Item: TypeAlias = "ArchivedStream | ArchivedConsumer | Gone | Sequence[ArchivedMessage]"
"""Items that readers yield; consecutive messages come together."""
PAUSE: Final[Item] = ()
"""No messages: the work is not finished, and other tasks may run first."""


class ArchiveWriter(Protocol):
    """A writer of streams in one format, before compression."""

    def begin(self, stream: ArchivedStream, consumers: Sequence[ArchivedConsumer]) -> bytes:
        """Return the bytes before the messages."""

    def beginning(self, stream: ArchivedStream, consumers: Sequence[ArchivedConsumer]) -> Iterator[bytes]:
        """Yield the bytes of `begin`, b"" between pieces of long work."""

    def messages(self, messages: Sequence[MessageFields]) -> Iterator[bytes]:
        """Yield the bytes of these messages, b"" between pieces of long work; their sequences ascend."""

    def end(self, last_seq: int, last_ts_ns: int) -> Iterator[bytes]:
        """Yield the bytes after the messages; `last_seq` is the stream's last, whether or not it is there."""


class Feed:
    """Bytes that arrived and were not read yet."""

    __slots__ = ("_at", "_buffer", "ended")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self.ended = False

    def __len__(self) -> int:
        return len(self._buffer) - self._at

    def add(self, data: bytes) -> None:
        """Accept more bytes."""
        if self._at >= _COMPACT_BYTES:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def peek(self, size: int) -> bytes | None:
        """Return the next `size` bytes and leave them there; None until that many are there. Raises ArchiveError."""
        if size > MAX_RECORD_BYTES:
            raise ArchiveError(f"a piece of {size} bytes is over the limit of {MAX_RECORD_BYTES}")
        if len(self) < size:
            return None
        return bytes(memoryview(self._buffer)[self._at : self._at + size])

    def take(self, size: int) -> bytes | None:
        """Return the next `size` bytes, None until that many are there. Raises ArchiveError."""
        data = self.peek(size)
        if data is not None:
            self._at += size
        return data

    def skip(self, size: int) -> int:
        """Pass over up to `size` bytes and return how many are still to be passed over."""
        step = min(size, len(self))
        self._at += step
        return size - step

    def uvarint(self) -> int | None:
        """Return the next unsigned varint, None until it is there. Raises ArchiveError."""
        value = shift = 0
        for at in range(self._at, min(self._at + MAX_VARINT_BYTES, len(self._buffer))):
            byte = self._buffer[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 64:
                    break
                self._at = at + 1
                return value
            shift += 7
        else:
            if len(self) < MAX_VARINT_BYTES:
                return None
        raise ArchiveError("a number is longer than 64 bits")


def uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    """Return the unsigned form of a signed number, small for small ones of either sign."""
    return (value << 1) ^ (value >> 63) if value < 0 else value << 1


def unzigzag(value: int) -> int:
    """Return the signed number of a zigzag form."""
    return value >> 1 ^ -(value & 1)
