"""The messages that one consumer has not delivered yet: its read position and num_pending.

Theory of operation. `count` is num_pending. It is counted by the store once, at creation and after a purge or a change
of filters, and kept by arithmetic afterwards: minus one for each first delivery, plus one for each matching message
that became durable, minus one for each undelivered message that was removed. Only messages up to `seen_seq`, the last
one announced as durable, are counted. If one was removed before it was announced, announcements up to
`_doubtful_seq` are counted by the store's index instead, so that removed messages are not counted.

With last_per_subject, delivery first walks a snapshot, the newest sequence of every subject at creation, and then
continues after `snapshot_end` like any other consumer. There may be a million of them, so that nothing is kept for each
but its sequence; `_gone` has entries of messages that have left the stream.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.store.steps import Steps, finish

if TYPE_CHECKING:
    from natsctl.jetstream.consumers.consumer_state import ConsumerState
    from natsctl.store.filters import Filters
    from natsctl.store.message import StoredMessage
    from natsctl.store.stream import StreamStore


_NO_SNAPSHOT: array[int] = array("Q")
_NO_GONE: set[int] = set()
"""Shared by the consumers without a snapshot; they stay empty."""


class Undelivered:
    __slots__ = (
        "_doubtful_seq",
        "_everything",
        "_filters",
        "_gone",
        "_looked_seq",
        "_snapshot",
        "_snapshot_at",
        "_store",
        "count",
        "next_seq",
        "seen_seq",
        "snapshot_end",
    )

    def __init__(self, store: StreamStore, filters: Filters, everything: bool, state: ConsumerState) -> None:
        """Continue after the last delivery of `state`; with `everything` no message can fail the filters."""
        self._store = store
        self._doubtful_seq = 0
        self._looked_seq = 0
        self._snapshot, self._gone = state.snapshot or _NO_SNAPSHOT, _NO_GONE
        self._snapshot_at = bisect_right(self._snapshot, state.delivered_sseq)
        self.snapshot_end = state.snapshot_end
        self.next_seq = state.delivered_sseq + 1
        self.seen_seq = 0
        self.count = 0
        self._take_filters(filters, everything)
        if state.is_new:
            self._count_anew()
        else:
            self.recount()

    def refilter(self, filters: Filters, everything: bool) -> None:
        """Use other filters from here on: messages skipped with the old ones stay skipped."""
        self._take_filters(filters, everything)
        self.recount()

    def _take_filters(self, filters: Filters, everything: bool) -> None:
        self.next_seq = self.position + 1
        self._filters = filters
        self._everything = everything

    def recount(self) -> None:
        """Recount num_pending (by the store's index, without reading)."""
        finish(self.recounting())

    def recounting(self) -> Steps[None]:
        """Recount num_pending in steps; nothing is delivered or changed between them."""
        if self._snapshot:
            left = self._snapshot[self._snapshot_at :]
            self._snapshot = (yield from self._store.finding_present(left)) or _NO_SNAPSHOT
            self._snapshot_at, self._gone = 0, _NO_GONE
        self._count_anew()

    def _count_anew(self) -> None:
        store = self._store
        self.seen_seq = store.durable_seq
        if store.last_seq > self.seen_seq:
            self._doubtful_seq = store.last_seq
        after = self.next_seq
        waiting = len(self._snapshot) - self._snapshot_at - len(self._gone)
        if self.snapshot_end:
            after = max(after, self.snapshot_end + 1)
        if after <= self.seen_seq and store.messages:
            literals = self._filters.literals
            if len(literals) == len(self._filters.subjects) > 0 and after <= store.first_seq and not self._doubtful_seq:
                waiting += sum(map(store.count_of, literals))
            else:
                waiting += store.count(self._filters, after, self.seen_seq)
        self.count = waiting

    @property
    def pending(self) -> int:
        """Return num_pending as deliveries show it: with the messages received that cannot be read yet."""
        store = self._store
        if not store.unsettled:
            return max(self.count, 0)
        return max(self.count, 0) + store.count(self._filters, max(self.next_seq, store.durable_seq + 1))

    def take(self, limit: int) -> Sequence[StoredMessage]:
        """Return up to `limit` messages to deliver next, without moving on."""
        if limit <= 0:
            return ()
        if self.count <= 0:
            self.look_at_end()
            return ()
        if self._snapshot:
            return self._take_snapshot(limit)
        found = self._store.read_from(max(self.next_seq, self.snapshot_end + 1), self._filters, min(limit, self.count))
        if not found:
            self.recount()
        return found

    def _take_snapshot(self, limit: int) -> Sequence[StoredMessage]:
        messages: list[StoredMessage] = []
        seqs = self._snapshot[self._snapshot_at : self._snapshot_at + limit]
        for seq in seqs:
            message = self._store.get(seq) if seq not in self._gone else None
            if message is None:
                self._lose(seq)
            else:
                messages.append(message)
        if messages or self.count <= 0:
            return messages
        self._pass(seqs[-1])
        return self.take(limit)

    def _lose(self, seq: int) -> None:
        if seq not in self._gone:
            if self._gone is _NO_GONE:
                self._gone = set()
            self._gone.add(seq)
            self.count -= 1

    def _pass(self, seq: int) -> None:
        at = bisect_right(self._snapshot, seq, self._snapshot_at)
        if self._gone:
            self._gone.difference_update(self._snapshot[self._snapshot_at : at])
        self._snapshot_at = at
        if at == len(self._snapshot):
            self._snapshot, self._snapshot_at, self._gone = _NO_SNAPSHOT, 0, _NO_GONE

    @property
    def position(self) -> int:
        return max(self.next_seq - 1, self._looked_seq)

    def look_at_end(self) -> None:
        """Record that nothing was found up to the end of the stream."""
        self._looked_seq = self._store.durable_seq

    def delivered(self, number: int, last_seq: int) -> None:
        self.count -= number
        self.next_seq = last_seq + 1
        if self._snapshot:
            self._pass(last_seq)

    def arrived(self, messages: Sequence[tuple[int, bytes]]) -> bool:
        """Count newly durable (sequence, subject) pairs and return whether one of them is to be delivered."""
        seen_seq, first, self.seen_seq = self.seen_seq, messages[0][0], messages[-1][0]
        if first <= seen_seq:  # a removal within the same commit has had everything counted that is durable
            self.seen_seq = max(seen_seq, self.seen_seq)
            self.count += self._store.count(self._filters, max(seen_seq + 1, self.next_seq), self.seen_seq)
            return self.count > 0
        if first <= self._doubtful_seq or first < self.next_seq:
            more = self._store.count(self._filters, max(first, self.next_seq), self.seen_seq)
        elif self._everything:
            more = len(messages)
        else:
            matches = self._filters.matches
            more = sum(1 for m in messages if matches(m[1]))
        self.count += more
        return more > 0

    def arrived_own(self, messages: Sequence[tuple[int, bytes]], number: int) -> bool:
        """Count newly durable pairs; `number` of them (at least one) match. Return whether one can be delivered."""
        first = messages[0][0]
        if first <= self.seen_seq or first <= self._doubtful_seq or first < self.next_seq:
            return self.arrived(messages)
        self.seen_seq = messages[-1][0]
        self.count += number
        return True

    def catch_up(self) -> bool:
        """Count durable messages that were not announced; return whether one can be delivered."""
        seen_seq, self.seen_seq = self.seen_seq, max(self.seen_seq, self._store.durable_seq)
        if self.seen_seq > seen_seq:
            self.count += self._store.count(self._filters, max(seen_seq + 1, self.next_seq), self.seen_seq)
        return self.count > 0

    def removed(self, seq: int, subject: bytes) -> None:
        """Uncount a message that left the stream without being delivered."""
        if seq > self.seen_seq:
            self._doubtful_seq = max(self._doubtful_seq, seq)
        elif seq >= self.next_seq:
            if seq <= self.snapshot_end:
                position = bisect_left(self._snapshot, seq, self._snapshot_at)
                if position < len(self._snapshot) and self._snapshot[position] == seq:
                    self._lose(seq)
            elif self._everything or self._filters.matches(subject):
                self.count -= 1

    def skipping_to(self, next_seq: int) -> Steps[None]:
        self.next_seq = next_seq
        if self._snapshot:
            self._pass(next_seq - 1)
        yield from self.recounting()

    def reset(self, next_seq: int) -> None:
        """Start over at `next_seq`, without a snapshot."""
        self._snapshot, self._snapshot_at, self._gone = _NO_SNAPSHOT, 0, _NO_GONE
        self.snapshot_end = self._looked_seq = 0
        self.next_seq = next_seq
        self.recount()
