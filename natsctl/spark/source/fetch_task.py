"""One reading task: its range and limits, its connection, and its progress."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.errors import (
    ApiRefusedError,
    NoResponseError,
    ServerUnreachableError,
    SourceNotAuthorisedError,
)
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import BlockOffer, JetStreamApi
from natsctl.spark.source.link import Link
from natsctl.spark.source.rows import Rows, RowShape
from natsctl.wire.client import encode_pub

Transport = Literal["auto", "blocks", "consumer", "direct", "get"]


@dataclass(frozen=True)
class ReadRange:
    """Messages of one stream from sequence `first` to `last`, both included, on any of `filters` (none: all).

    Sequences that were removed or filtered out are simply absent.
    """

    stream: str
    first: int
    last: int
    filters: tuple[str, ...] = ()
    transport: Transport = "auto"


@dataclass(frozen=True)
class FetchLimits:
    """Limits of one request; two are open at any time."""

    messages: int = 10_000
    bytes: int = 8 << 20
    """Below the server's max_pending of 64 MiB, beyond which it closes the connection as a slow consumer."""
    timeout_s: float = 30.0
    """Time without any data after which reading restarts after the last message."""


WINDOW_BYTES: Final = 2 << 20
"""Bytes that are decoded at once. With half of it each message costs a fifth more: each column has a fixed cost;
twice as much is more than two pulls bring, so servers would wait."""
SHORT_WAIT_S: Final = 0.01
"""Time to wait for more while a window is not full: longer than the pauses of a server that sends
little at once, or shares the reader's cores."""


class ReadInterruptedError(ServerUnreachableError):
    """Reading was interrupted; it continues with another request after the last message."""


class Task:
    """A range being read; `at` is the first sequence that was not yet returned."""

    def __init__(
        self, link: Link, settings: ServerSettings, todo: ReadRange, limits: FetchLimits, shape: RowShape
    ) -> None:
        self.link = link
        self.settings = settings
        self.todo = todo
        self.limits = limits
        self.shape = shape
        self.api = JetStreamApi(link, settings)
        self.at = max(todo.first, 1)
        self.block_offer: BlockOffer | None = None
        """Whether the stream's blocks can be read, as `look` has found."""

    @property
    def stream(self) -> str:
        return self.todo.stream

    def look(self) -> dict[str, Any]:
        """Return the answer to STREAM.INFO; raises StreamNotFoundError, SourceNotAuthorisedError."""
        answer, self.block_offer = self.api.stream_and_blocks(self.stream)
        return answer

    @property
    def left(self) -> int:
        return max(self.todo.last - self.at + 1, 0)

    def handed_out(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows as a batch, and advance `at` past them.

        Raises ReadInterruptedError.

        Messages requested twice because of a lost connection are returned once. A message after the range ends it: the
        last sequences of a range may have other subjects.
        """
        if len(rows.seqs) > 1 and not rising(rows.seqs):
            raise ReadInterruptedError(f"messages of {self.stream} came out of order after {self.at}")
        begin, end = self.at, rows.seqs[-1].as_py()
        self.at = max(begin, min(end, self.todo.last) + 1)
        rows = between(rows, begin, self.todo.last)
        if len(rows.seqs):
            yield self.shape.batch(self.stream, rows)

    def more_to_come(self) -> bool:
        """Return whether the stream's leader has a message in the rest: a server may lag the leader."""
        for pattern in self.todo.filters or (">",):
            try:
                found = self.api.message(self.stream, {"seq": self.at, "next_by_subj": pattern})
            except (SourceNotAuthorisedError, ApiRefusedError, NoResponseError):
                return False
            if found is not None and found.seq <= self.todo.last:
                return True
        return False

    def gather(self, data: bytes, enough: int = WINDOW_BYTES) -> bytes:
        """Return the buffered input and the next window; raises NoResponseError, SourceConnectionLostError."""
        parts = [data, self.link.read(self.limits.timeout_s)]
        size = sum(map(len, parts))
        while size < enough:
            try:
                more = self.link.read(SHORT_WAIT_S)
            except NoResponseError:
                break
            parts.append(more)
            size += len(more)
        return b"".join(parts)


class RangeReader:
    """A way to read a task's range: requests, and their answers on an inbox of its own."""

    inbox_tokens = ""
    """Tokens after the inbox in the subjects of answers."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._inbox = task.link.new_inbox()
        self._rest = b""
        """Input after the last whole frame; it goes back to the link."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left.

        Raises ApiRefusedError, SourceNotAuthorisedError, and ServerUnreachableError to ask again.
        """
        link = self._task.link
        sid = link.subscribe(self._inbox + self.inbox_tokens)
        try:
            yield from self.rows_to(b"%d" % sid)
        finally:
            link.unread(self._rest)
            with suppress(ServerUnreachableError):
                link.unsubscribe(sid)

    def rows_to(self, sid: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left, from answers to the subscription `sid`."""
        raise NotImplementedError

    def request(self, verb: str, body: Mapping[str, Any], token: str = "") -> bytes:
        """Return the bytes of a request to the stream; `token` ends the subject of its answer."""
        subject = self._task.api.subject(verb)
        return encode_pub(subject.encode(), f"{self._inbox}{token}".encode(), b"", json.dumps(body).encode())


def rising(seqs: pa.Int64Array) -> bool:
    return bool(pc.all(pc.greater(seqs[1:], seqs[:-1])).as_py())


def between(rows: Rows, first: int, last: int) -> Rows:
    """Return the rows from one sequence to another; sequences rise."""
    seqs = rows.seqs
    if seqs[0].as_py() >= first and seqs[-1].as_py() <= last:
        return rows
    cut = slice(bisect_left(seqs, first, key=_value), bisect_right(seqs, last, key=_value))
    times = rows.times_ns[cut] if rows.times_ns is not None else None
    return Rows(seqs[cut], times, rows.subjects[cut], rows.headers[cut], rows.values[cut])


def _value(scalar: pa.Int64Scalar) -> int:
    return int(scalar.as_py())
