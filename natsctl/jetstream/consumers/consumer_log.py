"""The journal records of consumers: their contents and how they are applied.

Theory of operation. A stream has one journal for all of its consumers, distinguished by a number that is never reused
while the stream lives. `CREATED` carries name, configuration and a whole state; `CHANGED` carries what happened to one
consumer in one loop turn, as a list of operations. A ChangeLog gathers those operations in the order in which they
happened; single acks are gathered in a list of their own, which `settled` puts in its place before anything else
happens that moves the ack floor. Bodies are msgpack, so that runs of sequences stay small; a run without gaps is
written as its first and its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from natsctl.jetstream.consumers.consumer_state import ConsumerState

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
    """A consumer exists, with this state."""

    number: int
    name: str
    created_ns: int
    config: bytes
    state: Any


class Updated(msgspec.Struct, array_like=True):
    """A consumer has a new configuration."""

    number: int
    config: bytes


class Deleted(msgspec.Struct, array_like=True):
    """A consumer is gone."""

    number: int


class Changed(msgspec.Struct, array_like=True):
    """The changes of one consumer in one loop turn."""

    number: int
    ops: list[list[Any]]


class Record(NamedTuple):
    """A journal record in the store's form."""

    kind: int
    body: bytes


def encode(value: Created | Updated | Deleted | Changed) -> Record:
    """Return the journal record for `value`."""
    kinds: dict[type, int] = {Created: CREATED, Updated: UPDATED, Deleted: DELETED, Changed: CHANGED}
    return Record(kinds[type(value)], _encode(value))


def decode(kind: int, body: bytes) -> Created | Updated | Deleted | Changed:
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
    """The changes of one consumer since the last flush."""

    __slots__ = ("acked", "ops")

    def __init__(self) -> None:
        self.ops: list[tuple[Any, ...]] = []
        self.acked: list[int] = []

    def first(self, sseqs: Sequence[int], now_ns: int) -> None:
        """Record first deliveries that wait for acks."""
        self.ops.append((_FIRST, now_ns, _run(sseqs)))

    def first_unacked(self, number: int, last_sseq: int, now_ns: int) -> None:
        """Record first deliveries that need no acks."""
        self.ops.append((_FIRST_UNACKED, now_ns, number, last_sseq))

    def again(self, sseq: int, now_ns: int) -> None:
        """Record one redelivery."""
        self.ops.append((_AGAIN, now_ns, sseq))

    def settled(self, now_ns: int) -> None:
        """Record the acks gathered so far, the latest at `now_ns`."""
        self.ops.append((_ACKED, now_ns, _run(self.acked)))
        self.acked = []

    def acked_through(self, sseq: int, cseq: int, now_ns: int) -> None:
        """Record that everything pending up to and including `sseq` was acknowledged by an ack that named `cseq`."""
        self.ops.append((_ACKED_THROUGH, sseq, cseq, now_ns))

    def given_up(self, sseq: int) -> None:
        """Record that a message reached max_deliver."""
        self.ops.append((_GIVEN_UP, sseq))

    def touched(self, sseq: int, ts_ns: int) -> None:
        """Record that the ack wait of a message counts from `ts_ns`."""
        self.ops.append((_TOUCHED, sseq, ts_ns))

    def placed(self, delivered_sseq: int, floor_cseq: int, floor_sseq: int) -> None:
        """Record the position after a purge."""
        self.ops.append((_PLACED, delivered_sseq, floor_cseq, floor_sseq))

    def reset(self, next_seq: int) -> None:
        """Record that delivery starts over at `next_seq`; earlier changes are dropped."""
        self.acked.clear()
        self.ops = [(_RESET, next_seq)]

    def forgotten(self, sseqs: Sequence[int]) -> None:
        """Record that the messages of pending entries are gone from the stream."""
        self.ops.append((_FORGOTTEN, _run(sseqs)))

    def forget(self) -> None:
        """Drop everything gathered: a record of the whole state covers it."""
        self.ops = []
        self.acked = []

    def take(self, number: int, now_ns: int) -> Record | None:
        """Return one record of all changes, or None, and clear them."""
        if self.acked:
            self.settled(now_ns)
        ops = self.ops
        if not ops:
            return None
        self.ops = []
        return Record(CHANGED, _encode((number, ops)))


def apply(state: ConsumerState, ops: Iterable[list[Any]]) -> None:
    """Change `state` by the operations of one `Changed` record."""
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
