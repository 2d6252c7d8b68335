"""The memory twin: the same index over messages kept as values; a commit settles at once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Literal

from natsctl.store.errors import StoreError
from natsctl.store.file_commit import Commit, Host, Settled
from natsctl.store.message import RemovedMessage, StoredMessage
from natsctl.store.segment import Segment
from natsctl.store.stream import BatchMessage, StreamStore

SEGMENT_MESSAGES = 32768
"""Messages per segment; a segment's memory returns when its last message goes."""

_new = tuple.__new__


class MemoryStreamStore(StreamStore):
    """A stream that does not outlive the process."""

    storage: Literal["file", "memory"] = "memory"

    def __init__(self, host: Host, key: str, meta: bytes, first_seq: int) -> None:
        super().__init__(host, key, meta, first_seq)
        self._journal: list[tuple[int, bytes]] = []
        self._journal_bytes = 0

    def append(self, subject: bytes, header: bytes, payload: bytes, ts_ns: int, timed: bool = False) -> int:
        """Take one message in and return its sequence."""
        seq = self._index.last_seq + 1
        self.append_at(seq, ts_ns, subject, header, payload, timed)
        return seq

    def append_batch(self, messages: Sequence[BatchMessage], ts_ns: int) -> int:
        """Take messages in that stay together and return the first one's sequence."""
        first_seq = self._index.last_seq + 1
        for subject, header, payload, timed in messages:
            self.append(subject, header, payload, ts_ns, timed)
        return first_seq

    def append_at(
        self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes, timed: bool = False
    ) -> None:
        """Take a message in under a given sequence above last_seq."""
        index = self._index
        if seq <= index.last_seq:
            raise ValueError(f"sequence {seq} is not above {index.last_seq}")
        if ts_ns < self.last_ts_ns:
            ts_ns = self._in_order(ts_ns, seq)
        if len(index.segments[-1].sids) >= SEGMENT_MESSAGES:
            self._roll(seq)
        index.add(seq, subject, len(subject) + len(header) + len(payload) + 16, ts_ns)
        index.segments[-1].messages.append(_new(StoredMessage, (seq, ts_ns, subject, header, payload)))
        if timed:
            index.segments[-1].note_timed(seq)
        self.last_ts_ns = ts_ns
        if self._clean:
            self._mark()

    def _roll(self, seq: int) -> None:
        self._index.active.seal()
        self._index.open_segment(seq)
        self._index.tidy_subjects()

    def drop_first(self) -> RemovedMessage:
        """Take the oldest message out for a limit and let go of its value. There must be one."""
        place = self._index.locate(self._index.first_seq)
        removed = super().drop_first()
        if place is not None:
            place[0].messages[place[1]] = None
        return removed

    def set_meta(self, meta: bytes) -> None:
        """Replace the metadata."""
        self.meta = meta
        self._mark()

    def append_record(self, kind: int, body: bytes) -> None:
        """Add one journal record."""
        self._journal.append((kind, body))
        self._journal_bytes += len(body)
        self._mark()

    def records(self) -> list[tuple[int, bytes]]:
        """Return the journal as (kind, body) in order."""
        return list(self._journal)

    def rewrite(self, records: Sequence[tuple[int, bytes]]) -> None:
        """Replace the whole journal."""
        self._journal = list(records)
        self._journal_bytes = sum(len(body) for _, body in records)
        self._mark()

    @property
    def journal_bytes(self) -> int:
        """Return the sum of the journal's bodies."""
        return self._journal_bytes

    def _take(self, callbacks: list[Settled]) -> Commit:
        return Commit(self._index.last_seq, callbacks)

    def _settle(self, commit: Commit, error: OSError | StoreError | None) -> StoreError | None:
        self._index.drop_leading()
        return None

    def _message_at(self, segment: Segment, position: int) -> StoredMessage:
        message = segment.messages[position]
        assert message is not None
        return message

    def _messages_at(self, segment: Segment, positions: Sequence[int]) -> list[StoredMessage]:
        messages = segment.messages
        return [m for m in map(messages.__getitem__, positions) if m is not None]

    def _remnants_at(self, segment: Segment, positions: Sequence[int]) -> Iterator[StoredMessage]:
        yield from self._messages_at(segment, positions)

    def _ts_at(self, segment: Segment, position: int) -> int:
        while position < len(segment.messages):
            message = segment.messages[position]
            if message is not None:
                return message.ts_ns
            position += 1
        return segment.last_ts

    def _removing(self, segment: Segment, position: int, seq: int, erase: bool) -> None:
        segment.messages[position] = None

    def _removing_many(self, segment: Segment, positions: list[int], seqs: array[int], size: int) -> None:
        for position in positions:
            segment.messages[position] = None

    def _floor_moved(self, first_seq: int) -> None:
        if self._index.segments[0].live == 0:
            self._mark()

    def _purging_below(self, seq: int) -> None:
        for segment in self._index.segments:
            if segment.base >= seq:
                break
            stop = segment.position_from(seq)
            segment.messages[:stop] = [None] * stop

    def _skipped(self, last_seq: int) -> None:
        self._mark()
