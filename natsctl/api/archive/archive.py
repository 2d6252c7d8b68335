"""Contents of a stream archive in either of its two formats, and the common parts of their readers.

Version 1 is a tar of block files: every released server reads and writes it. Version 2 is a sequence of records:
servers from 2.15 on write it. Both are compressed as a whole (`s2`). Readers are generators over a Feed: they yield an
item, or None when they need more bytes, so that an archive of any size passes through a bounded buffer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from natsctl.api.codec import InvalidJSONError, decode
from natsctl.api.consumer import ConsumerConfig
from natsctl.api.stream import StreamConfig, StreamState

T = TypeVar("T")

MAX_RECORD_BYTES: Final = 72 << 20
"""Longest piece that is read as one: a message of the largest payload (64 MiB), with room for its header."""
_MAX_VARINT_BYTES: Final = 10
_SMALL_BYTES: Final = 16 << 10
"""Bytes that are copied rather than kept as a piece of their own."""


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
    """State of a stream before any message of its archive; `config` is None if the format lacks it."""

    config: StreamConfig | None = None
    created_ns: int = 0
    state: StreamState | None = None


class CountedRecords(NamedTuple):
    """Messages that follow each other, counted; times in ns."""

    messages: int
    payload_bytes: int
    record_bytes: int
    """Bytes of subjects, headers and payloads together."""
    with_header: int
    first_seq: int
    first_ts_ns: int
    last_seq: int
    last_ts_ns: int
    subjects: Mapping[bytes, int]


def counted(messages: Sequence[MessageFields]) -> CountedRecords:
    """Return the counts of at least one message."""
    _, _, subjects, headers, payloads = zip(*messages, strict=True)
    payload_bytes = sum(map(len, payloads))
    return CountedRecords(
        len(messages),
        payload_bytes,
        payload_bytes + sum(map(len, subjects)) + sum(map(len, headers)),
        len(headers) - headers.count(b""),
        *messages[0][:2],
        *messages[-1][:2],
        Counter(subjects),
    )


class Gone(msgspec.Struct, frozen=True):
    """The sequence holds no message, since `ts_ns` at the latest; one that came before is to be removed."""

    seq: int
    ts_ns: int = 0


Item: TypeAlias = "ArchivedStream | ArchivedConsumer | Gone | CountedRecords | Sequence[ArchivedMessage]"
"""Items that readers yield; consecutive messages are batched, or only counted if the caller allows it."""
PAUSE: Final[Item] = ()
"""No messages: the work is not finished, and other tasks may run first."""


def read_json(raw: bytes, wanted: type[T], what: str) -> T:
    """Return the value of a JSON text in an archive. Raises ArchiveError."""
    try:
        return decode(raw, wanted)
    except (InvalidJSONError, msgspec.MsgspecError) as fault:
        raise ArchiveError(f"{what} cannot be read: {fault}") from fault


class ArchiveFeed:
    """Bytes that arrived and were not read yet."""

    def __init__(self) -> None:
        self._pieces: list[memoryview | bytearray] = []
        """Non-empty pieces; small ones are joined in a bytearray."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, data: bytes) -> None:
        """Accept more bytes."""
        self._size += len(data)
        if len(data) >= _SMALL_BYTES:
            self._pieces.append(memoryview(data))
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            self._pieces[-1] += data
        elif data:
            self._pieces.append(bytearray(data))

    def view(self, size: int) -> memoryview:
        """Return at least the next `size` bytes and any that directly follow; `size` bytes must be available."""
        pieces = self._pieces
        first = memoryview(pieces[0]) if pieces else memoryview(b"")
        if len(first) < size:
            parts = [pieces.pop(0)]
            missing = size - len(first)
            while missing > 0:
                part = memoryview(pieces.pop(0))
                if len(part) > missing:
                    pieces.insert(0, part[missing:])
                parts.append(part[:missing])
                missing -= len(part)
            first = memoryview(b"".join(parts))
            pieces.insert(0, first)
        elif pieces:
            pieces[0] = first
        return first

    def peek(self, size: int) -> bytes | None:
        """Return the next `size` bytes and leave them there; None until that many are there. Raises ArchiveError."""
        if size > MAX_RECORD_BYTES:
            raise ArchiveError(f"a piece of {size} bytes is over the limit of {MAX_RECORD_BYTES}")
        if len(self) < size:
            return None
        found = self.view(size)
        whole = found.obj
        return whole if isinstance(whole, bytes) and len(whole) == size == len(found) else bytes(found[:size])

    def take(self, size: int) -> bytes | None:
        """Return the next `size` bytes, None until that many are there. Raises ArchiveError."""
        data = self.peek(size)
        if data is not None:
            self.skip(size)
        return data

    def skip(self, size: int) -> int:
        """Pass over up to `size` bytes and return how many are still to be passed over."""
        step = left = min(size, self._size)
        self._size -= step
        while left:
            first = memoryview(self._pieces[0])
            if left < len(first):
                self._pieces[0] = first[left:]
                break
            left -= len(first)
            self._pieces.pop(0)
        return size - step

    def uvarint(self) -> int | None:
        """Return the next unsigned varint, None until it is there. Raises ArchiveError."""
        value = shift = 0
        for number, byte in enumerate(self.view(min(self._size, _MAX_VARINT_BYTES))[:_MAX_VARINT_BYTES], 1):
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 64:
                    break
                self.skip(number)
                return value
            shift += 7
        else:
            if self._size < _MAX_VARINT_BYTES:
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
