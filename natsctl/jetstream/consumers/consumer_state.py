"""The state of one consumer: its position, the messages pending an ack, redelivered ones, and journal records.

Theory of operation. A delivery gets the next consumer sequence; the first delivery of a message also puts it into
`pending`, keyed by stream sequence, with the consumer sequence of that first delivery (kept permanently) and the time
of the latest delivery (moved by redelivery, progress and nak). First deliveries happen in ascending stream sequence, so
`order`, the queue of everything put into `pending`, is sorted; entries that left `pending` are dropped from its head by
`settle`, called after every turn's acks. `redelivered` counts deliveries beyond the first.

The ack floor is what CONSUMER.INFO shows, and moves as in nats-server (filestore.go UpdateAcks): when an ack leaves
nothing pending it becomes `delivered`; when the oldest entry is acknowledged it becomes one below the next. An oldest
entry that was given up after max_deliver leaves the floor `stuck` until nothing is pending. With ack policy all the
floor is the pair of sequences that the latest ack named.

The journal. The state is changed in memory at once and journaled as operations; replaying the operations over the state
of the consumer's creation gives the same state again. A stream has one journal for all of its consumers, distinguished
by a number that is never reused while the stream lives. `CREATED` carries name, configuration and a whole state;
`CHANGED` carries what happened to one consumer in one loop turn, as a list of operations. A ChangeLog gathers those
operations in their order; single acks are collected in a separate list, and `settled` merges them before anything else
moves the ack floor. Bodies are msgpack, so that runs of sequences stay small; a run without gaps is written as its
first and its length.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count, repeat
from typing import Any, Final, NamedTuple

import msgspec


class Floor(NamedTuple):
    """Everything up to and including these sequences is acknowledged."""

    consumer_seq: int
    stream_seq: int


MAX_LISTED: Final = 10_000
"""Sequences of a snapshot that are written one by one."""

_NO_ORDER: deque[int] = deque()
"""The queue of every consumer that has delivered nothing; it stays empty."""


class ConsumerState:
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
        """True if the stream still has every message that `snapshot` lists."""

    def floor(self) -> Floor:
        return Floor(self.floor_cseq, self.floor_sseq)

    def settle(self) -> None:
        """Move the ack floor after entries were acknowledged or their messages removed."""
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
        cseq = self.delivered_cseq
        self.pending.update(zip(sseqs, zip(count(cseq + 1), repeat(now_ns)), strict=False))
        if self.order is _NO_ORDER:
            self.order = deque()
        self.order.extend(sseqs)
        self.delivered_cseq = cseq + len(sseqs)
        self.delivered_sseq = sseqs[-1]
        self.last_delivered_ns = now_ns

    def first_unacked(self, number: int, last_sseq: int, now_ns: int) -> None:
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
        entry = self.pending.get(sseq)
        if entry is not None:
            self.pending[sseq] = (entry[0], ts_ns)

    def forget(self, sseq: int) -> None:
        """Drop one entry: acknowledged, terminated, or its message was removed."""
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
        """Continue after `sseq` if that is beyond the last delivery (journals of earlier versions)."""
        self.delivered_sseq = max(self.delivered_sseq, sseq)
        self.settle()

    def place(self, delivered_sseq: int, floor_cseq: int, floor_sseq: int) -> None:
        """Move to the position that a purge of the stream requires."""
        self.delivered_sseq = max(self.delivered_sseq, delivered_sseq)
        self.floor_cseq, self.floor_sseq = floor_cseq, floor_sseq
        order, pending = self.order, self.pending
        if not pending:
            order.clear()
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
        return self.redelivered.get(sseq, 0) + 1

    def encode(self) -> list[Any]:
        left = self.snapshot[bisect_right(self.snapshot, self.delivered_sseq) :]
        head = [self.delivered_cseq, self.delivered_sseq, self.last_delivered_ns, self.last_ack_ns]
        pending = [(seq, *entry) for seq, entry in self.pending.items()]
        floor = [self.floor_cseq, self.floor_sseq, self.stuck]
        listed = left.tolist() if len(left) <= MAX_LISTED else left.tobytes()
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
        return ConsumerState.decode(self.encode())


class _StateRecord(msgspec.Struct, array_like=True):
    head: tuple[int, int, int, int]
    pending: list[tuple[int, int, int]]
    redelivered: list[tuple[int, int]]
    snapshot: list[int] | bytes
    """Large numbers are written in their memory format, in a fraction of the time."""
    snapshot_end: int
    floor: tuple[int, int, bool] | None = None
    """Absent in journals of earlier versions: it followed from the pending messages."""


CREATED = 0x20
UPDATED = 0x21
DELETED = 0x22
CHANGED = 0x23
KINDS = frozenset((CREATED, UPDATED, DELETED, CHANGED))

_FIRST, _FIRST_UNACKED, _AGAIN, _ACKED, _ACKED_THROUGH, _GIVEN_UP, _TOUCHED, _SKIPPED, _RESET, _FORGOTTEN, _PLACED = (
    range(11)
)

_encode = msgspec.msgpack.encode


class Created(msgspec.Struct, array_like=True):
    number: int
    name: str
    created_ns: int
    config: bytes
    state: Any


class Updated(msgspec.Struct, array_like=True):
    number: int
    config: bytes


class Deleted(msgspec.Struct, array_like=True):
    number: int


class Changed(msgspec.Struct, array_like=True):
    number: int
    ops: list[list[Any]]


class ConsumerRecord(NamedTuple):
    kind: int
    body: bytes


def encode_record(value: Created | Updated | Deleted | Changed) -> ConsumerRecord:
    kinds: dict[type, int] = {Created: CREATED, Updated: UPDATED, Deleted: DELETED, Changed: CHANGED}
    return ConsumerRecord(kinds[type(value)], _encode(value))


def decode_record(kind: int, body: bytes) -> Created | Updated | Deleted | Changed:
    """Return the decoded record; raises KeyError for a foreign kind and msgspec.ValidationError for a damaged body."""
    types: dict[int, Any] = {CREATED: Created, UPDATED: Updated, DELETED: Deleted, CHANGED: Changed}
    value: Created | Updated | Deleted | Changed = msgspec.msgpack.decode(body, type=types[kind])
    return value


def _run(sseqs: Sequence[int]) -> tuple[int, int] | Sequence[int]:
    """Return (first, length, marker) folded to a pair when `sseqs` is a gapless ascending run of three or more."""
    length = len(sseqs)
    if length > 2 and list(sseqs) == list(range(sseqs[0], sseqs[0] + length)):
        return (-sseqs[0], length)
    return sseqs


def _unrun(values: Sequence[int]) -> Sequence[int]:
    """Return the sequences that `_run` folded: a negative head marks (−first, length)."""
    if values and values[0] < 0:
        return range(-values[0], -values[0] + values[1])
    return values


class ChangeLog:
    __slots__ = ("acked", "ops")

    def __init__(self) -> None:
        self.ops: list[tuple[Any, ...]] = []
        self.acked: list[int] = []

    def first(self, sseqs: Sequence[int], now_ns: int) -> None:
        self.ops.append((_FIRST, now_ns, _run(sseqs)))

    def first_unacked(self, number: int, last_sseq: int, now_ns: int) -> None:
        self.ops.append((_FIRST_UNACKED, now_ns, number, last_sseq))

    def again(self, sseq: int, now_ns: int) -> None:
        self.ops.append((_AGAIN, now_ns, sseq))

    def settled(self, now_ns: int) -> None:
        """Record the acks gathered so far, the latest at `now_ns`."""
        self.ops.append((_ACKED, now_ns, _run(self.acked)))
        self.acked = []

    def acked_through(self, sseq: int, cseq: int, now_ns: int) -> None:
        """Record that everything pending up to and including `sseq` was acknowledged by an ack that named `cseq`."""
        self.ops.append((_ACKED_THROUGH, sseq, cseq, now_ns))

    def given_up(self, sseq: int) -> None:
        self.ops.append((_GIVEN_UP, sseq))

    def touched(self, sseq: int, ts_ns: int) -> None:
        self.ops.append((_TOUCHED, sseq, ts_ns))

    def placed(self, delivered_sseq: int, floor_cseq: int, floor_sseq: int) -> None:
        self.ops.append((_PLACED, delivered_sseq, floor_cseq, floor_sseq))

    def reset(self, next_seq: int) -> None:
        """Record that delivery starts over at `next_seq`; earlier changes are dropped."""
        self.acked.clear()
        self.ops = [(_RESET, next_seq)]

    def forgotten(self, sseqs: Sequence[int]) -> None:
        self.ops.append((_FORGOTTEN, _run(sseqs)))

    def take(self, number: int, now_ns: int) -> ConsumerRecord | None:
        """Return one record of all changes, or None, and clear them."""
        if self.acked:
            self.settled(now_ns)
        ops = self.ops
        if not ops:
            return None
        self.ops = []
        return ConsumerRecord(CHANGED, _encode((number, ops)))


def apply_ops(state: ConsumerState, ops: Iterable[list[Any]]) -> None:
    for op, *args in ops:
        if op == _FIRST:
            state.first(_unrun(args[1]), args[0])
        elif op == _ACKED:
            state.last_ack_ns = args[0]
            for sseq in _unrun(args[1]):
                state.forget(sseq)
            state.settle()
        elif op == _FIRST_UNACKED:
            state.first_unacked(args[1], args[2], args[0])
        elif op == _FORGOTTEN:
            sseqs = _unrun(args[0])
            waited = any(sseq in state.pending for sseq in sseqs)
            for sseq in sseqs:
                state.forget(sseq)
            if waited:
                state.settle()
        else:
            _SINGLE[op](state, *args)


_SINGLE: dict[int, Any] = {
    _AGAIN: lambda state, now_ns, sseq: state.again(sseq, now_ns),
    _ACKED_THROUGH: ConsumerState.acked_through,
    _GIVEN_UP: ConsumerState.give_up,
    _TOUCHED: ConsumerState.touch,
    _SKIPPED: ConsumerState.skip_to,
    _PLACED: ConsumerState.place,
    _RESET: ConsumerState.reset,
}
