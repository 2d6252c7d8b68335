"""The values that leave the store."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class StoredMessage(NamedTuple):
    """One stored message; `header` is the whole block with its status line, or empty."""

    seq: int
    ts_ns: int
    subject: bytes
    header: bytes
    payload: bytes


Copy = tuple[int, int, bytes, bytes, bytes]
"""A message with its own sequence and time: sequence, time, subject, header, payload."""


class MessageRun(Protocol):
    """Interface of messages that are appended as a whole (wire/publish_run.py)."""

    def __len__(self) -> int: ...

    def ops(self) -> list[tuple[Any, ...]]:
        """Return (kind, subject, reply, header, payload) of each."""

    def subjects(self) -> list[bytes]: ...


class RemovedMessage(NamedTuple):
    seq: int
    subject: bytes
    size: int


class StoredFrames(NamedTuple):
    """Frames of messages as they lie in a segment, in pieces of one or more: a frame is `FRAME_OVER_SIZE` longer than
    the accounted size of its message."""

    sizes: array[int]
    pieces: Sequence[memoryview]
    cost: int
    """Cost of selecting them, counted in messages that are looked at one by one."""


def file_size(subject_bytes: int, header_bytes: int, payload_bytes: int) -> int:
    """Return the accounted size of a message on file storage. Source: nats-server accounting of max_bytes."""
    return subject_bytes + payload_bytes + 30 + (header_bytes + 4 if header_bytes else 0)


def memory_size(subject_bytes: int, header_bytes: int, payload_bytes: int) -> int:
    """Return the accounted size of a message on memory storage. Source: nats-server accounting of max_bytes."""
    return subject_bytes + header_bytes + payload_bytes + 16
