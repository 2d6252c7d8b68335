"""Which pending messages are due again, and in what order they go out.

Theory of operation. `due` is a heap of deadlines, each for a bucket of sequences that were delivered in one batch;
nothing is taken out of it when an ack arrives. When a deadline passes, each sequence of the bucket is checked against
the state: gone, already queued, or with a later deadline by now (redelivered, progress, nak with delay) means that
this entry is stale. When stale entries outnumber what is pending by far, the heap is built anew from the state, so
its size follows `pending`.

`queue` holds what must go out before new messages: expired ones in ascending order, naks in order of arrival.
`queued` is the truth about membership; the queue may hold stale entries, which `next` passes over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from natsctl.jetstream.consumers.consumer_state import ConsumerState

EXPIRED_PER_CALL = 4096
"""Sequences looked at per timer call, so that a mass expiry does not hold up the loop."""

_NO_QUEUE: deque[int] = deque()
_NOTHING_QUEUED: set[int] = set()
"""What a consumer without redeliveries has in place of its own; they stay empty."""

_STALE_FACTOR = 4
_STALE_SLACK = 4096


class Redelivery:
    """Deadlines and the redelivery queue of one consumer."""

    __slots__ = ("_tie", "_watched", "backoff", "due", "queue", "queued", "state", "wait_ns")

    def __init__(self, state: ConsumerState, wait_ns: int, backoff: Sequence[int]) -> None:
        self.state = state
        self.wait_ns = wait_ns
        self.backoff = tuple(backoff)
        self.due: list[tuple[int, int, Sequence[int]]] = []
        self.queue: deque[int] = _NO_QUEUE
        self.queued: set[int] = _NOTHING_QUEUED
        self._tie = 0
        self._watched = 0

    def wait_after(self, deliveries: int) -> int:
        """Return the ack wait in ns that follows the given delivery (1 = first)."""
        if self.backoff:
            return self.backoff[min(deliveries, len(self.backoff)) - 1]
        return self.wait_ns

    def deadline(self, sseq: int) -> int:
        """Return when a pending message is due again."""
        return self.state.pending[sseq][1] + self.wait_after(self.state.deliveries(sseq))

    def watch(self, sseqs: Sequence[int], deadline_ns: int) -> None:
        """Look at `sseqs`, which were delivered together, at `deadline_ns`."""
        self._tie += 1
        heappush(self.due, (deadline_ns, self._tie, sseqs))
        self._watched += len(sseqs)
        if self._watched > _STALE_FACTOR * len(self.state.pending) + _STALE_SLACK:
            self.rebuild()

    def rebuild(self) -> None:
        """Set every deadline anew from the state (after recovery, an update, or too many stale ones)."""
        self.due = [(self.deadline(sseq), sseq, (sseq,)) for sseq in self.state.pending if sseq not in self.queued]
        heapify(self.due)
        self._tie = max(self._tie, self.state.delivered_sseq)
        self._watched = len(self.due)

    def expired(self, now_ns: int) -> list[int]:
        """Return pending sequences whose wait is over, ascending; call again while `next_deadline` has passed."""
        due, pending, queued = self.due, self.state.pending, self.queued
        found: set[int] = set()
        looked = 0
        while due and due[0][0] <= now_ns and looked < EXPIRED_PER_CALL:
            _, _, sseqs = heappop(due)
            looked += len(sseqs)
            found.update(s for s in sseqs if s in pending and s not in queued and self.deadline(s) <= now_ns)
        self._watched -= looked
        return sorted(found)

    def next_deadline(self) -> int | None:
        """Return the earliest deadline that may matter."""
        return self.due[0][0] if self.due else None

    def enqueue(self, sseq: int) -> None:
        """Put a pending message at the tail of the redelivery queue, once."""
        if sseq not in self.queued:
            if self.queue is _NO_QUEUE:
                self.queue, self.queued = deque(), set()
            self.queued.add(sseq)
            self.queue.append(sseq)

    def head(self) -> int:
        """Return the sequence to redeliver next without taking it, 0 when there is none."""
        queue, queued = self.queue, self.queued
        while queue and queue[0] not in queued:
            queue.popleft()
        return queue[0] if queue else 0

    def take(self) -> None:
        """Take the head out of the queue."""
        self.queued.discard(self.queue.popleft())

    def forget(self, sseq: int) -> None:
        """Do not redeliver `sseq`."""
        self.queued.discard(sseq)

    def clear(self) -> None:
        """Forget every deadline and the queue."""
        self.due.clear()
        self.queue, self.queued = _NO_QUEUE, _NOTHING_QUEUED
        self._watched = 0
