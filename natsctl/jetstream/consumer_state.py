"""What one consumer remembers: how far it delivered, what waits for an ack, what was delivered again.

Theory of operation. A delivery gets the next consumer sequence; the first delivery of a message also puts it into
`pending`, keyed by stream sequence, with the consumer sequence of that first delivery (kept for ever) and the time of
the latest delivery (moved by redelivery, progress and nak). First deliveries happen in ascending stream sequence, so
`order`, the queue of everything put into `pending`, is sorted; entries that left `pending` are dropped from its head
when the ack floor is asked for. The floor is therefore never stored: it is one below the oldest pending entry, or,
when nothing is pending, equal to `delivered`. `redelivered` counts deliveries beyond the first.

The state is changed in memory at once and journaled as operations (`consumer_log`); replaying the operations over the
state of the consumer's creation gives the same state again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count, repeat
from typing import Any, NamedTuple

import msgspec


class Floor(NamedTuple):
    """Everything up to and including these sequences is acknowledged."""

    consumer_seq: int
    stream_seq: int


class ConsumerState:
    """The durable part of a consumer."""

    __slots__ = (
        "delivered_cseq",
        "delivered_sseq",
        "last_ack_ns",
        "last_delivered_ns",
        "order",
        "pending",
        "redelivered",
        "snapshot",
        "snapshot_end",
    )

    def __init__(self, start_seq: int = 1, snapshot: Sequence[int] = (), snapshot_end: int = 0) -> None:
        """Begin before `start_seq`; `snapshot` lists the sequences that last_per_subject found up to `snapshot_end`."""
        self.delivered_cseq = 0
        self.delivered_sseq = start_seq - 1
        self.last_delivered_ns = 0
        self.last_ack_ns = 0
        self.pending: dict[int, tuple[int, int]] = {}
        self.order: deque[int] = deque()
        self.redelivered: dict[int, int] = {}
        self.snapshot: tuple[int, ...] = tuple(snapshot)
        self.snapshot_end = snapshot_end

    def floor(self) -> Floor:
        """Return the ack floor, forgetting acknowledged heads of `order`."""
        order, pending = self.order, self.pending
        while order and order[0] not in pending:
            order.popleft()
        if order:
            head = order[0]
            return Floor(pending[head][0] - 1, head - 1)
        return Floor(self.delivered_cseq, self.delivered_sseq)

    def first(self, sseqs: Sequence[int], now_ns: int) -> None:
        """Book first deliveries of `sseqs` (ascending, all above what was delivered) that wait for acks."""
        cseq = self.delivered_cseq
        self.pending.update(zip(sseqs, zip(count(cseq + 1), repeat(now_ns)), strict=False))
        self.order.extend(sseqs)
        self.delivered_cseq = cseq + len(sseqs)
        self.delivered_sseq = sseqs[-1]
        self.last_delivered_ns = now_ns

    def first_unacked(self, number: int, last_sseq: int, now_ns: int) -> None:
        """Book `number` first deliveries, the last of them `last_sseq`, of a consumer that needs no acks."""
        self.delivered_cseq += number
        self.delivered_sseq = last_sseq
        self.last_delivered_ns = now_ns

    def again(self, sseq: int, now_ns: int) -> None:
        """Book one redelivery; an entry that is no longer pending only uses up a consumer sequence."""
        self.delivered_cseq += 1
        self.last_delivered_ns = now_ns
        entry = self.pending.get(sseq)
        if entry is not None:
            self.pending[sseq] = (entry[0], now_ns)
            self.redelivered[sseq] = self.redelivered.get(sseq, 0) + 1

    def touch(self, sseq: int, ts_ns: int) -> None:
        """Let the ack wait of a pending entry count from `ts_ns`."""
        entry = self.pending.get(sseq)
        if entry is not None:
            self.pending[sseq] = (entry[0], ts_ns)

    def forget(self, sseq: int) -> None:
        """Drop one entry: acknowledged, terminated, or its message is gone."""
        self.pending.pop(sseq, None)
        self.redelivered.pop(sseq, None)

    def acked_through(self, sseq: int) -> list[int]:
        """Drop every pending entry up to and including `sseq` and return them, ascending."""
        order, pending, redelivered = self.order, self.pending, self.redelivered
        dropped: list[int] = []
        while order and order[0] <= sseq:
            seq = order.popleft()
            if pending.pop(seq, None) is not None:
                dropped.append(seq)
                redelivered.pop(seq, None)
        return dropped

    def give_up(self, sseq: int) -> None:
        """Drop a pending entry that reached max_deliver; its redelivery count stays visible."""
        self.pending.pop(sseq, None)

    def skip_to(self, sseq: int) -> None:
        """Continue after `sseq` if that is further than what was delivered (a purge took what lay between)."""
        self.delivered_sseq = max(self.delivered_sseq, sseq)

    def reset(self, next_seq: int) -> None:
        """Start over at `next_seq` with nothing pending and consumer sequences from 1."""
        self.pending.clear()
        self.order.clear()
        self.redelivered.clear()
        self.snapshot, self.snapshot_end = (), 0
        self.delivered_cseq = 0
        self.delivered_sseq = next_seq - 1

    def deliveries(self, sseq: int) -> int:
        """Return how often a pending message was delivered."""
        return self.redelivered.get(sseq, 0) + 1

    def encode(self) -> list[Any]:
        """Return the state as plain values for a journal record."""
        left = [seq for seq in self.snapshot if seq > self.delivered_sseq]
        head = [self.delivered_cseq, self.delivered_sseq, self.last_delivered_ns, self.last_ack_ns]
        pending = [(seq, *entry) for seq, entry in self.pending.items()]
        return [head, pending, list(self.redelivered.items()), left, self.snapshot_end]

    @classmethod
    def decode(cls, values: Any) -> ConsumerState:
        """Return the state that `encode` described; raises msgspec.ValidationError for anything else."""
        wire = msgspec.convert(values, _StateRecord)
        state = cls(1, wire.snapshot, wire.snapshot_end)
        state.delivered_cseq, state.delivered_sseq, state.last_delivered_ns, state.last_ack_ns = wire.head
        for sseq, cseq, ts_ns in sorted(wire.pending):
            state.pending[sseq] = (cseq, ts_ns)
            state.order.append(sseq)
        state.redelivered.update(wire.redelivered)
        return state

    def copy(self) -> ConsumerState:
        """Return an independent copy, for snapshots."""
        return ConsumerState.decode(self.encode())


class _StateRecord(msgspec.Struct, array_like=True):
    head: tuple[int, int, int, int]
    pending: list[tuple[int, int, int]]
    redelivered: list[tuple[int, int]]
    snapshot: list[int]
    snapshot_end: int
