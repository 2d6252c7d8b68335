"""Where a new consumer begins: the deliver policy as a position in the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.consumer import ConsumerConfig, DeliverPolicy
from natsctl.api.times import parse_time
from natsctl.jetstream.consumer_config import filters_of
from natsctl.jetstream.consumer_state import ConsumerState
from natsctl.store.filters import Filters

if TYPE_CHECKING:
    from natsctl.store.stream import StreamStore


def first_state(store: StreamStore, config: ConsumerConfig) -> ConsumerState:
    """Return the state of a consumer that has delivered nothing. Source: jetstream_semantics.md part 9."""
    filters = Filters([subject.encode() for subject in filters_of(config)])
    first, behind = max(store.first_seq, 1), store.last_seq + 1
    policy = config.deliver_policy
    if policy is DeliverPolicy.NEW:
        return ConsumerState(behind)
    if policy is DeliverPolicy.LAST:
        return ConsumerState(store.last_match(filters) or first)
    if policy is DeliverPolicy.BY_START_SEQUENCE:
        return ConsumerState(max(config.opt_start_seq, first))
    if policy is DeliverPolicy.BY_START_TIME:
        return ConsumerState(store.first_seq_at(parse_time(config.opt_start_time or "")))
    if policy is DeliverPolicy.LAST_PER_SUBJECT:
        newest = store.last_per_subject(filters, store.durable_seq)
        return ConsumerState(newest[0] if newest else store.durable_seq + 1, newest, store.durable_seq)
    return ConsumerState(first)
