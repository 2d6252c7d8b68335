"""The position of a consumer after a purge. Source: nats-server, consumer.go purge and stream.go purgeLocked.

A consumer whose messages may all be gone moves to the first remaining message: delivered and ack floor move there
without a delivery. A consumer with wider filters than the purge only loses pending entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from natsctl.api.config.consumer_config import filters_of
from natsctl.api.subjects import is_subset
from natsctl.store.filters import ALL
from natsctl.store.steps import Steps, pieces

if TYPE_CHECKING:
    from natsctl.jetstream.consumers.consumer_context import ConsumerContext
    from natsctl.store.filters import Filters


class Scope(NamedTuple):
    """The effect of a purge on one consumer: the first remaining sequence, and whether others remain."""

    first_seq: int
    wider: bool


def after_purge(consumer: ConsumerContext, purged: Filters | None) -> Steps[None]:
    """Drop pending entries of purged messages and move positions."""
    state, store = consumer.state, consumer.stream.store
    scope = scope_of(consumer, purged)
    gone = {seq for seq in state.redelivered if seq < store.first_seq and seq not in state.pending}
    if scope is not None:
        floor = state.oldest_floor()
        floor_cseq, floor_sseq = floor
        if floor_sseq < scope.first_seq:
            floor_sseq = scope.first_seq - 1
            for piece in pieces([*state.pending.items()]):
                for seq, (cseq, _) in piece:
                    if seq <= floor_sseq or (scope.wider and store.next_seq(ALL, seq) != seq):
                        gone.add(seq)
                        floor_cseq = max(floor_cseq, cseq)
                yield len(piece)
        left = next((cseq for seq, (cseq, _) in state.pending.items() if seq not in gone), 0)
        position = max(consumer.undelivered.position, scope.first_seq - 1)
        if left:
            floor_cseq = min(floor_cseq, left - 1)
        else:
            gone.update(state.redelivered)
            floor_cseq, floor_sseq = state.delivered_cseq, position
    record_ack = any(seq in state.pending for seq in gone)
    yield from consumer.forgetting([*gone])
    if gone:
        consumer.log.forgotten(sorted(gone))
    if record_ack:
        consumer.record_ack()
    if scope is not None:
        before = state.delivered_sseq, state.floor_cseq, state.floor_sseq
        state.place(position, floor_cseq, floor_sseq)
        if gone or before != (state.delivered_sseq, floor_cseq, floor_sseq):
            consumer.log.placed(position, floor_cseq, floor_sseq)


def scope_of(consumer: ConsumerContext, purged: Filters | None) -> Scope | None:
    """Return the effect of a purge on a consumer, None when it keeps its position."""
    store, stream_first = consumer.stream.store, consumer.stream.store.first_seq
    if purged is None or purged.everything:
        return Scope(stream_first, False)
    own, subject = filters_of(consumer.config), purged.subjects[0].decode("utf-8", "replace")
    if any(is_subset(each, subject) for each in own):
        if not all(is_subset(each, subject) for each in own):
            return Scope(stream_first, True)
        return Scope(store.first_match(purged, stream_first) or store.last_seq + 1, False)
    if not own or any(is_subset(subject, each) for each in own):
        return Scope(stream_first, True)
    return None
