"""Storage of a stream in memory: the same index over messages kept as values; a commit settles at once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Literal

from natsctl.store.errors import StoreError
from natsctl.store.file_commit import Commit, Settled
from natsctl.store.frame import TIMED
from natsctl.store.index import StreamIndex
from natsctl.store.message import Copy, MessageRun, StoredMessage, memory_size
from natsctl.store.segment import Segment

SEGMENT_MESSAGES = 32768
"""Messages per segment; a segment's memory returns when its last message goes."""

_new = tuple.__new__


class MemoryLog:
    buffered_bytes = 0

    def __init__(self, index: StreamIndex) -> None:
        self._index = index

    def append(self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes, flags: int) -> None:
        index = self._index
        if len(index.segments[-1].sids) >= SEGMENT_MESSAGES:
            self._roll(seq)
        index.add(seq, subject, memory_size(len(subject), len(header), len(payload)), ts_ns)
        index.segments[-1].messages.append(_new(StoredMessage, (seq, ts_ns, subject, header, payload)))
        if flags & TIMED:
            index.segments[-1].note_timed(seq)

    def _roll(self, seq: int) -> None:
        self._index.active.seal()
        self._index.active.pack()
        self._index.open_segment(seq)
        self._index.tidy_subjects()

    def append_run(self, run: MessageRun, first_seq: int, ts_ns: int, subject: bytes) -> None:
        for seq, (_, its_subject, _, header, payload) in enumerate(run.ops(), first_seq):
            self.append(seq, ts_ns, its_subject, header, payload, 0)

    def append_copies(self, messages: Sequence[Copy]) -> None:
        """Take messages in under their own sequences and times; a time below an earlier one is raised to it."""
        for seq, ts_ns, subject, header, payload in messages:
            self.append(seq, max(ts_ns, self._index.last_ts_ns), subject, header, payload, 0)

    def compress(self, on: bool) -> None:
        """Do nothing: values are not compressed."""

    def message_at(self, segment: Segment, position: int) -> StoredMessage:
        message = segment.messages[position]
        assert message is not None
        return message

    def messages_at(self, segment: Segment, positions: Sequence[int], keep: bool = True) -> list[StoredMessage]:
        messages = segment.messages
        return [m for m in map(messages.__getitem__, positions) if m is not None]

    def remnants_at(self, segment: Segment, positions: Sequence[int]) -> Iterator[StoredMessage]:
        yield from self.messages_at(segment, positions)

    def remaining(self) -> Sequence[Segment]:
        return self._index.segments

    def ts_at(self, segment: Segment, position: int) -> int:
        """Return a message's time, or that of the next one that is there."""
        while position < len(segment.messages):
            message = segment.messages[position]
            if message is not None:
                return message.ts_ns
            position += 1
        return segment.last_ts

    def emptied(self, next_seq: int) -> None:
        """Do nothing: no restart finds these messages."""

    def removing(self, segment: Segment, position: int, seq: int, erase: bool) -> None:
        segment.messages[position] = None

    def removing_many(self, segment: Segment, positions: array[int], seqs: array[int], size: int) -> None:
        for position in positions:
            segment.messages[position] = None

    def dropping_first(self, seq: int) -> None:
        place = self._index.locate(seq)
        if place is not None:
            place[0].messages[place[1]] = None

    def dropping_below(self, seq: int) -> None:
        for segment in self._index.segments:
            if segment.base >= seq:
                break
            stop = segment.position_from(seq)
            segment.messages[:stop] = [None] * stop

    def skipping(self) -> None:
        """Do nothing: the index says it."""


class MemoryStream:
    """A stream that does not outlive the process."""

    kind: Literal["file", "memory"] = "memory"
    leaving = left = unsynced = has_work = False

    def __init__(self, index: StreamIndex, meta: bytes) -> None:
        self.log = MemoryLog(index)
        self.meta = meta
        self.journal_bytes = 0
        self._index = index
        self._journal: list[tuple[int, bytes]] = []

    def set_meta(self, meta: bytes) -> None:
        self.meta = meta

    def append_record(self, kind: int, body: bytes) -> None:
        self._journal.append((kind, body))
        self.journal_bytes += len(body)

    def records(self) -> list[tuple[int, bytes]]:
        return list(self._journal)

    def rewrite(self, records: Sequence[tuple[int, bytes]]) -> None:
        self._journal = list(records)
        self.journal_bytes = sum(len(body) for _, body in records)

    def complete(self) -> None:
        """Do nothing: no restart finds it."""

    def request_sync(self, force: bool) -> None:
        """Do nothing: there is no disk."""

    def take(self, callbacks: list[Settled], durable_seq: int, lazy: bool) -> Commit:
        return Commit(self._index.last_seq, callbacks)

    def settle(self, commit: Commit, durable_seq: int) -> StoreError | None:
        self._index.drop_leading()
        return None

    def keep_files(self, commit: Commit) -> None:
        """Do nothing: memory streams have none."""

    def close_files(self) -> None:
        """Do nothing: memory streams have none."""
