"""Redelivery of pending messages: deadlines, order, sending, and giving up after max_deliver.

Theory of operation. `Redelivery` keeps deadlines and order; `Retry` connects it with a consumer's clock, journal, store
and advisories. `due` is a heap of deadlines, each for a bucket of sequences that were delivered in one batch; nothing
is taken out of it when an ack arrives. When a deadline passes, each sequence of the bucket is checked against the
state: if it was removed, is already queued, or has a later deadline by now (redelivered, progress, nak with delay),
this entry is stale. When stale entries far outnumber pending ones, the heap is rebuilt from the state, so its size
follows `pending`. Rebuilding goes in steps and adopts entries watched meanwhile at the end.

`queue` holds what must go out before new messages: expired ones in ascending order, naks in order of arrival. `queued`
is the truth about membership; the queue may have stale entries, skipped by `next`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

from natsctl.api.consumer import AckPolicy
from natsctl.jetstream.consumers.consumer_state import ConsumerState
from natsctl.jetstream.consumers.delivery_budget import headers_only
from natsctl.jetstream.timers import Alarm
from natsctl.store.steps import STEP, Steps, pieces

if TYPE_CHECKING:
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.store.message import StoredMessage


Send: TypeAlias = "Callable[[bytes, bytes, bytes, bytes, int], bool]"
"""Sends subject, ack subject, header and payload at a monotonic time; False when the message cannot be sent now."""

EXPIRED_PER_CALL = 2048
"""Sequences examined per timer call, so that a mass expiry does not hold up the loop."""

_NO_QUEUE: deque[int] = deque()
_NOTHING_QUEUED: set[int] = set()
"""Shared by the consumers without redeliveries; they stay empty."""

_STALE_FACTOR = 4
_STALE_SLACK = 4096


class Redelivery:
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
        return self.state.pending[sseq][1] + self.wait_after(self.state.deliveries(sseq))

    def watch(self, sseqs: Sequence[int], deadline_ns: int) -> bool:
        """Watch `sseqs`, delivered together, until `deadline_ns`; return whether `rebuilding` is needed.

        It is needed if a majority of watched entries is stale.
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

        A later rebuild, or `clear`, cancels it.
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
        """Return pending sequences with an expired wait, ascending; call again while `next_deadline` has passed.

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
        return self.due[0][0] if self.due else None

    def enqueue(self, sseq: int) -> None:
        if sseq not in self.queued:
            if self.queue is _NO_QUEUE:
                self.queue, self.queued = deque(), set()
            self.queued.add(sseq)
            self.queue.append(sseq)

    def head(self) -> int:
        """Return the next sequence to redeliver without removing it, or 0."""
        queue, queued = self.queue, self.queued
        while queue and queue[0] not in queued:
            queue.popleft()
        return queue[0] if queue else 0

    def take(self) -> None:
        self.queued.discard(self.queue.popleft())

    def forget(self, sseq: int) -> None:
        queued = self.queued
        if sseq in queued:
            queued.discard(sseq)
            if not queued:
                self.queue.clear()  # `head` would pass over each of them

    def clear(self) -> None:
        self.due.clear()
        self.queue, self.queued = _NO_QUEUE, _NOTHING_QUEUED
        self._since = None
        self._watched = 0


GONE_STEP: Final = 32
"""Removed messages that one step handles: each has an advisory."""
REDELIVERY_COST: Final = 4
"""Cost of one redelivery, in first deliveries: each is looked up and read by itself."""
GIVEN_UP_PER_CALL: Final = 128
"""Maximum number of messages that a timer call may give up: each has an advisory."""
GONE: Final = "Unacknowledged message was deleted"


class Retry:
    __slots__ = ("_alarm", "_consumer", "_offset_ns", "_watching", "redelivery")

    def __init__(self, consumer: Consumer, offset_ns: int) -> None:
        """Manage redelivery for `consumer`; its stored times are monotonic time plus `offset_ns`."""
        self._consumer = consumer
        self._offset_ns = offset_ns
        self._alarm = Alarm(consumer.engine.timers, self._on_deadline)
        self._watching = consumer.config.ack_wait > 0  # ack policy flow_control knows no redelivery
        self.redelivery = Redelivery(consumer.state, consumer.config.ack_wait, consumer.config.backoff)

    def configure(self) -> None:
        """Read ack wait and backoff from the configuration and reset every deadline, as a job of the stream."""
        config = self._consumer.config
        waits = config.ack_wait, tuple(config.backoff)
        same = self.redelivery.due and waits == (self.redelivery.wait_ns, self.redelivery.backoff)
        self._watching = config.ack_wait > 0
        self.redelivery.wait_ns, self.redelivery.backoff = waits
        if self._watching and not same and self._consumer.state.pending:
            self._rebuild()
        else:
            self._arm_anew()

    def _rebuild(self) -> None:
        self._consumer.stream.work.begin(self.redelivery.rebuilding(), self._arm_anew)

    def _arm_anew(self, _: object = None) -> None:
        if not self._consumer.stopped:
            self._alarm.cancel()
            self._arm()

    def stop(self) -> None:
        self._alarm.cancel()
        self.redelivery.clear()

    def watch_first(self, sseqs: list[int], now_ns: int) -> None:
        self._watch(sseqs, now_ns + self.redelivery.wait_after(1))

    def deliver(self, send: Send) -> int:
        """Send the head of the queue, or drop it if it was removed or given up, and return the cost.

        0 means that it cannot go now.
        """
        consumer = self._consumer
        message, reply = self._next()
        if message is None:
            return REDELIVERY_COST
        _, _, subject, header, payload = message
        if consumer.config.headers_only:
            header, payload = headers_only(header, payload)
        if not send(subject, reply, header, payload, consumer.engine.clock.monotonic_ns()):
            return 0
        self._book(message[0])
        return REDELIVERY_COST

    def _next(self) -> tuple[StoredMessage | None, bytes]:
        """Return the message to redeliver next and its ack subject; (None, b"") if it was dropped instead."""
        consumer = self._consumer
        sseq = self.redelivery.head()
        if not sseq or self._given_up(sseq):
            return None, b""
        message = consumer.stream.store.get(sseq)
        if message is None:
            self.redelivery.take()
            self.message_gone(sseq, GONE)
            return None, b""
        state = consumer.state
        numbers = (
            state.deliveries(sseq) + 1,
            sseq,
            state.delivered_cseq + 1,
            message.ts_ns,
            consumer.undelivered.pending,
        )
        return message, consumer.ack_form % numbers

    def _book(self, sseq: int) -> None:
        consumer = self._consumer
        now_ns = consumer.now_ns()
        if consumer.log.acked:
            consumer.settle_acks()
        self.redelivery.take()
        consumer.state.again(sseq, now_ns)
        consumer.log.again(sseq, now_ns)
        self._watch((sseq,), self.redelivery.deadline(sseq))

    def delay(self, sseq: int, delay_ns: int) -> None:
        consumer = self._consumer
        ts_ns = consumer.now_ns() + delay_ns
        consumer.state.touch(sseq, ts_ns)
        consumer.log.touched(sseq, ts_ns)
        self._watch((sseq,), self.redelivery.deadline(sseq))

    def nak(self, sseq: int, cseq: int, named: int, delay_ns: int) -> None:
        """Redeliver a pending message now or after the delay; `named` is the delivery count that the ack named.

        After its last delivery it is given up when its turn comes; for pull consumers that needs a request.
        """
        consumer = self._consumer
        deliveries = consumer.state.deliveries(sseq)
        consumer.events.nak(sseq, cseq, named)
        wait_ns = self.redelivery.wait_after(deliveries)
        if delay_ns:
            self.redelivery.forget(sseq)
            self.delay(sseq, delay_ns - wait_ns)
        else:
            due_ns = consumer.now_ns() - wait_ns
            consumer.state.touch(sseq, due_ns)
            consumer.log.touched(sseq, due_ns)
            self.redelivery.enqueue(sseq)

    def queueing_all(self) -> Steps[None]:
        """Redeliver everything that waits for an ack now: the deliver subject changed; a job of the stream."""
        consumer = self._consumer
        consumer.stream.work.shut()
        now_ns, pending = consumer.now_ns(), consumer.state.pending
        for piece in pieces(sorted(set(pending) - self.redelivery.queued), GONE_STEP):
            for sseq in piece:
                if sseq in pending and not self._given_up(sseq):
                    consumer.state.touch(sseq, now_ns)
                    consumer.log.touched(sseq, now_ns)
                    self.redelivery.enqueue(sseq)
            consumer.journal.changed(consumer)
            yield STEP if consumer.config.max_deliver > 0 else len(piece)
        consumer.schedule()

    def advise_gone(self, sseq: int) -> None:
        """Publish that a pending message left the stream; the caller handles its entry."""
        consumer = self._consumer
        consumer.events.terminated(sseq, consumer.state.pending[sseq][0], self._redeliveries(sseq), GONE)

    def message_gone(self, sseq: int, reason: str) -> None:
        """Drop the pending entry of a removed message.

        With ack policy all it counts as acknowledged, with all before it, as in nats-server. With ack policy
        flow_control only this one counts, unlike in nats-server: earlier messages are in flight to a stream that may
        not have them yet, and a work queue would remove messages that are stored nowhere else.
        """
        consumer = self._consumer
        entry = consumer.state.pending.get(sseq)
        self.redelivery.forget(sseq)
        if entry is not None:
            consumer.events.terminated(sseq, entry[0], self._redeliveries(sseq), reason)
        if consumer.log.acked:
            consumer.settle_acks()
        if entry is not None and consumer.config.ack_policy is AckPolicy.ALL:
            consumer.acks.through(sseq, entry[0])
        if entry is not None or sseq in consumer.state.redelivered:
            waits = sseq in consumer.state.pending
            consumer.state.forget(sseq)
            consumer.log.forgotten((sseq,))
            if waits:
                consumer.record_ack()
                consumer.state.settle()
            consumer.schedule()

    def messages_gone(self, sseqs: Sequence[int], reason: str) -> Steps[None]:
        for piece in pieces(sseqs, GONE_STEP):
            for sseq in piece:
                self.message_gone(sseq, reason)
            yield STEP

    def _redeliveries(self, sseq: int) -> int:
        """Return the deliveries that nats-server reports for a removed message: its redeliveries, at least 1."""
        return max(self._consumer.state.deliveries(sseq) - 1, 1)

    def _given_up(self, sseq: int) -> bool:
        consumer = self._consumer
        deliveries = consumer.state.deliveries(sseq)
        if not 0 < consumer.config.max_deliver <= deliveries:
            return False
        if consumer.log.acked:
            consumer.settle_acks()
        consumer.state.give_up(sseq)
        consumer.log.given_up(sseq)
        self.redelivery.forget(sseq)
        consumer.events.max_deliver(sseq, deliveries)
        return True

    def _watch(self, sseqs: list[int] | tuple[int], deadline_ns: int) -> None:
        if not self._watching:
            return
        if self.redelivery.watch(sseqs, deadline_ns):
            self._rebuild()
        self._alarm.no_later_than(deadline_ns - self._offset_ns)

    def _arm(self) -> None:
        deadline_ns = self.redelivery.next_deadline()
        if deadline_ns is not None:
            self._alarm.no_later_than(deadline_ns - self._offset_ns)

    def _on_deadline(self) -> None:
        """Queue due messages, or give them up; the rest follows with the next call."""
        if self._consumer.stopped:
            return
        most = GIVEN_UP_PER_CALL if self._consumer.config.max_deliver > 0 else 0
        for sseq in self.redelivery.expired(self._consumer.now_ns(), most):
            if not self._given_up(sseq):
                self.redelivery.enqueue(sseq)
        self._consumer.schedule()
        self._arm()
