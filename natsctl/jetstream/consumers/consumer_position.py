"""The position of a consumer at its start and after a purge.

At the start the deliver policy becomes a position in the stream. A purge moves delivered and ack floor without a
delivery: to the first message that remains of the purged subjects if the consumer takes no others, and only to the
first message of the stream if it does. Source: nats-server, consumer.go purge and stream.go purgeLocked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from natsctl.api.consumer import ConsumerConfig, DeliverPolicy
from natsctl.api.consumer_config import filters_of
from natsctl.api.subjects import is_subset
from natsctl.api.times import parse_time
from natsctl.jetstream.consumers.consumer_state import ConsumerState
from natsctl.store.filters import ALL, Filters
from natsctl.store.steps import STEP, Steps, finish, pieces

if TYPE_CHECKING:
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.stream import StreamStore


def preparing(store: StreamStore, config: ConsumerConfig, filters: Filters) -> Steps[None]:
    """Prepare, in steps, to find the start of a consumer and to count its num_pending."""
    yield from store.preparing(filters)
    if config.deliver_policy is DeliverPolicy.BY_START_TIME and len(filters.subjects) > 1:
        for subject in filters.wildcards:
            yield from store.preparing(Filters((subject,)))


def finding_first_state(stream: Stream, config: ConsumerConfig, filters: Filters) -> Steps[ConsumerState | None]:
    """Return the state of a consumer that needs a long search, or None if `first_state` finds it immediately.

    That is one with the last message of each subject, or with many filters and a start time. The stream takes no
    messages meanwhile (`Work.shut`).
    """
    store, policy = stream.store, config.deliver_policy
    if policy is DeliverPolicy.BY_START_TIME and len(filters.subjects) > STEP:
        stream.work.shut()
        return ConsumerState((yield from _finding_first_since(store, filters, _start_ns(config))))
    if policy is not DeliverPolicy.LAST_PER_SUBJECT or stream.config.max_msgs_per_subject == 1:
        return None
    stream.work.shut()
    end = store.durable_seq
    return _last_per_subject(store, (yield from store.finding_last_per_subject(filters, end)), end)


def _last_per_subject(store: StreamStore, newest: Sequence[int], end: int) -> ConsumerState:
    """Return the state of a consumer that delivers the `newest` sequences first, then messages after `end`."""
    state = ConsumerState(newest[0], newest, end) if newest else ConsumerState(max(end, store.first_seq, 1))
    state.is_new = True
    return state


def first_state(
    store: StreamStore, config: ConsumerConfig, filters: Filters, one_per_subject: bool = False
) -> ConsumerState:
    """Return the state of a consumer that has delivered nothing. Source: nats-server, consumer.go selectStartingSeqNo.

    With `one_per_subject` the stream keeps one message per subject: each is then the last of its subject.
    """
    first, last = max(store.first_seq, 1), store.last_seq
    policy = config.deliver_policy
    if policy is DeliverPolicy.NEW:
        return ConsumerState(last + 1)
    if policy is DeliverPolicy.LAST:
        return ConsumerState(max(store.last_match(filters) if filters_of(config) else last, first))
    if policy is DeliverPolicy.BY_START_SEQUENCE:
        return ConsumerState(max(config.opt_start_seq, first))
    if policy is DeliverPolicy.BY_START_TIME:
        return ConsumerState(finish(_finding_first_since(store, filters, _start_ns(config))))
    if policy is DeliverPolicy.LAST_PER_SUBJECT and not one_per_subject:
        return _last_per_subject(store, store.last_per_subject(filters, store.durable_seq), store.durable_seq)
    return ConsumerState(first)


def _start_ns(config: ConsumerConfig) -> int:
    return parse_time(config.opt_start_time or "")


def _finding_first_since(store: StreamStore, filters: Filters, ts_ns: int) -> Steps[int]:
    """Return the first sequence since a time, or a later one before which no filter has its first match.

    The later one is the lowest first match of a single filter, as nats-server takes it.
    """
    start, last = store.first_seq_at(ts_ns), store.last_seq
    nearest = last
    for piece in pieces(filters.literals):
        nearest = min((seq for seq in map(store.first_seq_of, piece) if start <= seq < nearest), default=nearest)
        yield len(piece)
    for subject in filters.wildcards:
        seq = store.first_match(Filters((subject,)), store.first_seq)
        nearest = seq if start <= seq < nearest else nearest
        yield 1
    return nearest if start < nearest < last else start


class PurgeScope(NamedTuple):
    first_seq: int
    """The first sequence that may remain for the consumer."""
    wider: bool
    """Whether the consumer also takes subjects that were not purged: each pending message is then looked up."""


def after_purge(consumer: Consumer, purged: Filters | None) -> Steps[None]:
    state, store = consumer.state, consumer.stream.store
    scope = yield from _finding_scope(consumer, purged)
    gone = list[int]()
    for seqs in pieces([*state.redelivered]):
        gone += [seq for seq in seqs if seq < store.first_seq and seq not in state.pending]
        yield len(seqs)
    if scope is not None:
        floor_cseq, floor_sseq = state.oldest_floor()
        if floor_sseq < scope.first_seq:
            floor_sseq = scope.first_seq - 1
            left = 0
            for seqs in pieces([*state.pending]):
                for seq in seqs:
                    cseq, _ = state.pending.get(seq, (0, 0))
                    if not cseq:
                        continue  # given up meanwhile
                    if seq <= floor_sseq or (scope.wider and store.next_seq(ALL, seq) != seq):
                        gone.append(seq)
                        floor_cseq = max(floor_cseq, cseq)
                    else:
                        left = left or cseq
                yield len(seqs)
        else:
            left = next((cseq for cseq, _ in state.pending.values()), 0)
        position = max(consumer.undelivered.position, scope.first_seq - 1)
        if left:
            floor_cseq = min(floor_cseq, left - 1)
        else:
            for seqs in pieces([*state.redelivered]):
                gone += [seq for seq in seqs if seq not in state.pending]
                yield len(seqs)
            floor_cseq, floor_sseq = state.delivered_cseq, position
    record_ack = any(seq in state.pending for seq in gone)
    yield from consumer.forgetting(gone)
    if record_ack:
        consumer.record_ack()
    if scope is not None:
        before = state.delivered_sseq, state.floor_cseq, state.floor_sseq
        state.place(position, floor_cseq, floor_sseq)
        if gone or before != (state.delivered_sseq, floor_cseq, floor_sseq):
            consumer.log.placed(position, floor_cseq, floor_sseq)


def _finding_scope(consumer: Consumer, purged: Filters | None) -> Steps[PurgeScope | None]:
    """Return the effect of a purge on a consumer, None when it keeps its position."""
    store, stream_first = consumer.stream.store, consumer.stream.store.first_seq
    if purged is None or purged.everything:
        return PurgeScope(stream_first, False)
    own, subject = filters_of(consumer.config), purged.subjects[0].decode("utf-8", "replace")
    inside, wider = 0, not own
    for piece in pieces(own):
        inside += sum(is_subset(each, subject) for each in piece)
        wider = wider or any(is_subset(subject, each) for each in piece)
        yield len(piece)
    if inside and inside == len(own):
        return PurgeScope(store.first_match(purged, stream_first) or store.last_seq + 1, False)
    return PurgeScope(stream_first, True) if inside or wider else None
