"""The deadlines and the order of redeliveries.

Theory of operation. `due` is a heap of deadlines, each for a bucket of sequences that were delivered in one batch;
nothing is taken out of it when an ack arrives. When a deadline passes, each sequence of the bucket is checked against
the state: gone, already queued, or with a later deadline by now (redelivered, progress, nak with delay) means that this
entry is stale. When stale entries outnumber what is pending by far, the heap is built anew from the state, so its size
follows `pending`. That goes in steps, and takes over at the end what was watched meanwhile.

`queue` holds what must go out before new messages: expired ones in ascending order, naks in order of arrival. `queued`
is the truth about membership; the queue may hold stale entries, which `next` passes over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from natsctl.jetstream.consumers.consumer_state import ConsumerState
from natsctl.store.steps import Steps, pieces

EXPIRED_PER_CALL = 2048
"""Sequences looked at per timer call, so that a mass expiry does not hold up the loop."""

_NO_QUEUE: deque[int] = deque()
_NOTHING_QUEUED: set[int] = set()
"""Shared by the consumers without redeliveries; they stay empty."""

_STALE_FACTOR = 4
_STALE_SLACK = 4096


class Redelivery:
    """Deadlines and the redelivery queue of one consumer."""

    __slots__ = ("_since", "_tie", "_watched", "backoff", "due", "queue", "queued", "state", "wait_ns")

    def __init__(self, state: ConsumerState, wait_ns: int, backoff: Sequence[int]) -> None:
        self.state = state
        self.wait_ns = wait_ns
        self.backoff = tuple(backoff)
        self.due: list[tuple[int, int, Sequence[int]]] = []
        self.queue: deque[int] = _NO_QUEUE
        self.queued: set[int] = _NOTHING_QUEUED
        self._since: list[tuple[int, int, Sequence[int]]] | None = None
        """Deadlines added since the present rebuild began; None without one."""
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

    def watch(self, sseqs: Sequence[int], deadline_ns: int) -> bool:
        """Look at `sseqs`, which were delivered together, at `deadline_ns`; return whether `rebuilding` is called for.

        It is when most of what is watched is stale.
        """
        self._tie += 1
        entry = (deadline_ns, self._tie, sseqs)
        heappush(self.due, entry)
        self._watched += len(sseqs)
        if self._since is not None:
            self._since.append(entry)
            return False
        return self._watched > _STALE_FACTOR * len(self.state.pending) + _STALE_SLACK

    def rebuilding(self) -> Steps[None]:
        """Rebuild every deadline from the state (after recovery, an update, or too many stale ones).

        Another one that begins meanwhile, or `clear`, takes its place.
        """
        since = self._since = []
        due: list[tuple[int, int, Sequence[int]]] = []
        pending, watched = self.state.pending, 0
        for piece in pieces([*pending]):
            together: list[int] = []
            last_ns = -1
            for sseq in piece:
                if sseq not in pending or sseq in self.queued:
                    continue
                deadline_ns = self.deadline(sseq)
                if deadline_ns != last_ns:
                    self._tie, together, last_ns = self._tie + 1, [], deadline_ns
                    due.append((deadline_ns, self._tie, together))
                together.append(sseq)
                watched += 1
            yield len(piece)
            if self._since is not since:
                return
        due += since
        heapify(due)
        self.due, self._since = due, None
        self._watched = watched + sum(len(entry[2]) for entry in since)

    def expired(self, now_ns: int, most: int = 0) -> list[int]:
        """Return pending sequences whose wait is over, ascending; call again while `next_deadline` has passed.

        It looks at `most`, or else at `EXPIRED_PER_CALL`.
        """
        due, pending, queued, most = self.due, self.state.pending, self.queued, most or EXPIRED_PER_CALL
        found: set[int] = set()
        looked = 0
        while due and due[0][0] <= now_ns and looked < most:
            deadline_ns, tie, sseqs = heappop(due)
            if looked + len(sseqs) > most:
                heappush(due, (deadline_ns, tie, sseqs[most - looked :]))
                sseqs = sseqs[: most - looked]
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
        """Remove the head of the queue."""
        self.queued.discard(self.queue.popleft())

    def forget(self, sseq: int) -> None:
        """Do not redeliver `sseq`."""
        queued = self.queued
        if sseq in queued:
            queued.discard(sseq)
            if not queued:
                self.queue.clear()  # `head` would pass over each of them

    def clear(self) -> None:
        """Drop all deadlines and the queue."""
        self.due.clear()
        self.queue, self.queued = _NO_QUEUE, _NOTHING_QUEUED
        self._since = None
        self._watched = 0
