"""The start of a new consumer: the deliver policy as a position in the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.api.config.consumer_config import filters_of
from natsctl.api.consumer import ConsumerConfig, DeliverPolicy
from natsctl.api.times import parse_time
from natsctl.jetstream.consumers.consumer_state import ConsumerState
from natsctl.store.filters import Filters

if TYPE_CHECKING:
    from natsctl.jetstream.stream_context import StreamContext
    from natsctl.store.steps import Steps
    from natsctl.store.stream import StreamStore


def preparing(store: StreamStore, config: ConsumerConfig) -> Steps[None]:
    """Prepare, in steps, to find the start of a consumer and to count its num_pending."""
    subjects = filters_of(config)
    yield from store.preparing(Filters([subject.encode() for subject in subjects]))
    if config.deliver_policy is DeliverPolicy.BY_START_TIME and len(subjects) > 1:
        for subject in subjects:
            yield from store.preparing(Filters((subject.encode(),)))


def finding_first_state(stream: StreamContext, config: ConsumerConfig) -> Steps[ConsumerState | None]:
    """Return the state of a consumer that begins with the last message of each subject, None for any other policy.

    There may be very many of them: while they are found the stream is closed.
    """
    store = stream.store
    if config.deliver_policy is not DeliverPolicy.LAST_PER_SUBJECT or stream.config.max_msgs_per_subject == 1:
        return None
    stream.work.shut()
    end = store.durable_seq
    filters = Filters([subject.encode() for subject in filters_of(config)])
    return _behind(store, (yield from store.finding_last_per_subject(filters, end)), end)


def _behind(store: StreamStore, newest: Sequence[int], end: int) -> ConsumerState:
    state = ConsumerState(newest[0], newest, end) if newest else ConsumerState(max(end, store.first_seq, 1))
    state.is_new = True
    return state


def first_state(store: StreamStore, config: ConsumerConfig, one_per_subject: bool = False) -> ConsumerState:
    """Return the state of a consumer that has delivered nothing. Source: nats-server, consumer.go selectStartingSeqNo.

    With `one_per_subject` the stream keeps one message per subject: each is then the last of its subject.
    """
    subjects = filters_of(config)
    filters = Filters([subject.encode() for subject in subjects])
    first, last = max(store.first_seq, 1), store.last_seq
    policy = config.deliver_policy
    if policy is DeliverPolicy.NEW:
        return ConsumerState(last + 1)
    if policy is DeliverPolicy.LAST:
        return ConsumerState(max(store.last_match(filters) if subjects else last, first))
    if policy is DeliverPolicy.BY_START_SEQUENCE:
        return ConsumerState(max(config.opt_start_seq, first))
    if policy is DeliverPolicy.BY_START_TIME:
        return ConsumerState(_first_since(store, subjects, parse_time(config.opt_start_time or "")))
    if policy is DeliverPolicy.LAST_PER_SUBJECT and not one_per_subject:
        return _behind(store, store.last_per_subject(filters, store.durable_seq), store.durable_seq)
    return ConsumerState(first)


def _first_since(store: StreamStore, subjects: Sequence[str], ts_ns: int) -> int:
    """Return the first sequence since a time, closer to the first match where one filter has its first one there."""
    start, last = store.first_seq_at(ts_ns), store.last_seq
    matches = (store.first_match(Filters((subject.encode(),)), store.first_seq) for subject in subjects)
    nearest = min((seq for seq in matches if seq >= start), default=last)
    return nearest if start < nearest < last else start
