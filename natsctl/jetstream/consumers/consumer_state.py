"""The state of one consumer: its position, the messages pending an ack, and the redelivered ones.

Theory of operation. A delivery gets the next consumer sequence; the first delivery of a message also puts it into
`pending`, keyed by stream sequence, with the consumer sequence of that first delivery (kept for ever) and the time of
the latest delivery (moved by redelivery, progress and nak). First deliveries happen in ascending stream sequence, so
`order`, the queue of everything put into `pending`, is sorted; entries that left `pending` are dropped from its head by
`settle`, which follows every turn's acks. `redelivered` counts deliveries beyond the first.

The ack floor is what CONSUMER.INFO shows, and moves as in nats-server (filestore.go UpdateAcks): when an ack leaves
nothing pending it becomes `delivered`; when the oldest entry is acknowledged it becomes one below the next. An oldest
entry that was given up after max_deliver leaves the floor `stuck` until nothing is pending. With ack policy all the
floor is the pair of sequences that the latest ack named.

The state is changed in memory at once and journaled as operations (`consumer_log`); replaying the operations over the
state of the consumer's creation gives the same state again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import count, repeat
from typing import Any, Final, NamedTuple

import msgspec


class Floor(NamedTuple):
    """Everything up to and including these sequences is acknowledged."""

    consumer_seq: int
    stream_seq: int


MOST_LISTED: Final = 10_000
"""Sequences of a snapshot that are written one by one."""

_NO_ORDER: deque[int] = deque()
"""The queue of every consumer that has delivered nothing; it stays empty."""


class ConsumerState:
    """The durable part of a consumer."""

    __slots__ = (
        "delivered_cseq",
        "delivered_sseq",
        "floor_cseq",
        "floor_sseq",
        "is_new",
        "last_ack_ns",
        "last_delivered_ns",
        "order",
        "pending",
        "redelivered",
        "snapshot",
        "snapshot_end",
        "stuck",
    )

    def __init__(self, start_seq: int = 1, snapshot: Sequence[int] = (), snapshot_end: int = 0) -> None:
        """Begin before `start_seq`; `snapshot` lists the sequences that last_per_subject found up to `snapshot_end`."""
        self.delivered_cseq = 0
        self.delivered_sseq = start_seq - 1
        self.floor_cseq, self.floor_sseq = 0, start_seq - 1
        self.stuck = False
        self.last_delivered_ns = 0
        self.last_ack_ns = 0
        self.pending: dict[int, tuple[int, int]] = {}
        self.order: deque[int] = _NO_ORDER
        self.redelivered: dict[int, int] = {}
        self.snapshot = array("Q", snapshot)
        self.snapshot_end = snapshot_end
        self.is_new = False
        """Whether the stream still has every message that `snapshot` lists."""

    def floor(self) -> Floor:
        """Return the ack floor."""
        return Floor(self.floor_cseq, self.floor_sseq)

    def settle(self) -> None:
        """Move the ack floor after entries were acknowledged or their messages are gone."""
        order, pending = self.order, self.pending
        if not pending:
            order.clear()
            self.stuck = False
            self.floor_cseq, self.floor_sseq = self.delivered_cseq, self.delivered_sseq
        elif order[0] not in pending:
            while order[0] not in pending:
                order.popleft()
            if not self.stuck:
                self.floor_cseq, self.floor_sseq = pending[order[0]][0] - 1, order[0] - 1

    def oldest_floor(self) -> Floor:
        """Return the floor below the oldest pending entry, `delivered` when nothing is pending."""
        if not self.pending:
            return Floor(self.delivered_cseq, self.delivered_sseq)
        oldest = next(seq for seq in self.order if seq in self.pending)
        if self.stuck or oldest != self.order[0]:
            return Floor(self.pending[oldest][0] - 1, oldest - 1)
        return self.floor()

    def first(self, sseqs: Sequence[int], now_ns: int) -> None:
        """Record first deliveries of `sseqs` (ascending, all above what was delivered) that wait for acks."""
        cseq = self.delivered_cseq
        self.pending.update(zip(sseqs, zip(count(cseq + 1), repeat(now_ns)), strict=False))
        if self.order is _NO_ORDER:
            self.order = deque()
        self.order.extend(sseqs)
        self.delivered_cseq = cseq + len(sseqs)
        self.delivered_sseq = sseqs[-1]
        self.last_delivered_ns = now_ns

    def first_unacked(self, number: int, last_sseq: int, now_ns: int) -> None:
        """Record `number` first deliveries, the last of them `last_sseq`, of a consumer that needs no acks."""
        self.delivered_cseq += number
        self.delivered_sseq = last_sseq
        self.floor_cseq, self.floor_sseq = self.delivered_cseq, last_sseq
        self.last_delivered_ns = now_ns

    def again(self, sseq: int, now_ns: int) -> None:
        """Record one redelivery; an entry that is no longer pending only uses up a consumer sequence."""
        self.delivered_cseq += 1
        self.last_delivered_ns = now_ns
        entry = self.pending.get(sseq)
        if entry is not None:
            self.pending[sseq] = (entry[0], now_ns)
            self.redelivered[sseq] = self.redelivered.get(sseq, 0) + 1

    def touch(self, sseq: int, ts_ns: int) -> None:
        """Restart the ack wait of a pending entry at `ts_ns`."""
        entry = self.pending.get(sseq)
        if entry is not None:
            self.pending[sseq] = (entry[0], ts_ns)

    def forget(self, sseq: int) -> None:
        """Drop one entry: acknowledged, terminated, or its message is gone."""
        self.pending.pop(sseq, None)
        self.redelivered.pop(sseq, None)

    def acked_through(self, sseq: int, cseq: int = 0, now_ns: int = 0) -> list[int]:
        """Drop every pending entry up to and including `sseq` and return them, ascending.

        If `sseq` is one of them, it and `cseq`, the consumer sequence that the ack named, are the floor from now on.
        """
        order, pending, redelivered = self.order, self.pending, self.redelivered
        self.last_ack_ns = now_ns or self.last_ack_ns
        entry = pending.get(sseq)
        if entry is not None:
            self.floor_cseq, self.floor_sseq = cseq or entry[0], sseq
        dropped: list[int] = []
        while order and order[0] <= sseq:
            seq = order.popleft()
            if pending.pop(seq, None) is not None:
                dropped.append(seq)
                redelivered.pop(seq, None)
        return dropped

    def pass_over(self, sseq: int) -> None:
        """Drop entries that left `pending` from the order, below `sseq`: a larger ack is under way."""
        order, pending = self.order, self.pending
        while order and order[0] < sseq and order[0] not in pending:
            order.popleft()

    def give_up(self, sseq: int) -> None:
        """Drop a pending entry that reached max_deliver; its redelivery count stays visible."""
        order, pending = self.order, self.pending
        if pending.pop(sseq, None) is None:
            return
        while order and order[0] not in pending and order[0] <= sseq:
            self.stuck = self.stuck or order[0] == sseq
            order.popleft()
        self.redelivered.setdefault(sseq, 1)

    def skip_to(self, sseq: int) -> None:
        """Continue after `sseq` if that is further than what was delivered (journals of earlier versions)."""
        self.delivered_sseq = max(self.delivered_sseq, sseq)
        self.settle()

    def place(self, delivered_sseq: int, floor_cseq: int, floor_sseq: int) -> None:
        """Move to the position that a purge of the stream requires."""
        self.delivered_sseq = max(self.delivered_sseq, delivered_sseq)
        self.floor_cseq, self.floor_sseq = floor_cseq, floor_sseq
        order, pending = self.order, self.pending
        while order and order[0] not in pending:
            order.popleft()
        self.stuck = bool(order) and floor_cseq < pending[order[0]][0] - 1

    def reset(self, next_seq: int) -> None:
        """Start over at `next_seq` with nothing pending and consumer sequences from 1."""
        self.pending.clear()
        self.order.clear()
        self.redelivered.clear()
        self.snapshot, self.snapshot_end = array("Q"), 0
        self.delivered_cseq = 0
        self.delivered_sseq = next_seq - 1
        self.floor_cseq, self.floor_sseq, self.stuck = 0, next_seq - 1, False
        self.last_delivered_ns = self.last_ack_ns = 0

    def deliveries(self, sseq: int) -> int:
        """Return how often a pending message was delivered."""
        return self.redelivered.get(sseq, 0) + 1

    def encode(self) -> list[Any]:
        """Return the state as plain values for a journal record."""
        left = self.snapshot[bisect_right(self.snapshot, self.delivered_sseq) :]
        head = [self.delivered_cseq, self.delivered_sseq, self.last_delivered_ns, self.last_ack_ns]
        pending = [(seq, *entry) for seq, entry in self.pending.items()]
        floor = [self.floor_cseq, self.floor_sseq, self.stuck]
        listed = left.tolist() if len(left) <= MOST_LISTED else left.tobytes()
        return [head, pending, list(self.redelivered.items()), listed, self.snapshot_end, floor]

    @classmethod
    def decode(cls, values: Any) -> ConsumerState:
        """Return the state that `encode` described; raises msgspec.ValidationError for anything else."""
        wire = msgspec.convert(values, _StateRecord)
        left = wire.snapshot
        state = cls(1, left if isinstance(left, list) else array("Q", left), wire.snapshot_end)
        state.delivered_cseq, state.delivered_sseq, state.last_delivered_ns, state.last_ack_ns = wire.head
        for sseq, cseq, ts_ns in sorted(wire.pending):
            state.pending[sseq] = (cseq, ts_ns)
        if state.pending:
            state.order = deque(state.pending)
        state.redelivered.update(wire.redelivered)
        if wire.floor is not None:
            state.floor_cseq, state.floor_sseq, state.stuck = wire.floor
        elif state.order:
            state.floor_cseq, state.floor_sseq = state.pending[state.order[0]][0] - 1, state.order[0] - 1
        else:
            state.floor_cseq, state.floor_sseq = state.delivered_cseq, state.delivered_sseq
        return state

    def copy(self) -> ConsumerState:
        """Return an independent copy, for snapshots."""
        return ConsumerState.decode(self.encode())


class _StateRecord(msgspec.Struct, array_like=True):
    head: tuple[int, int, int, int]
    pending: list[tuple[int, int, int]]
    redelivered: list[tuple[int, int]]
    snapshot: list[int] | bytes
    """Many are written as they are in memory, which takes a fraction of the time."""
    snapshot_end: int
    floor: tuple[int, int, bool] | None = None
    """Absent in journals of earlier versions, where it followed from what was pending."""
