"""The conversion between a consumer's state and its form in archives."""

from __future__ import annotations

from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING

from natsctl.api.archive.archive import ArchivedConsumer, ArchiveError, Progress
from natsctl.jetstream.consumers.consumer_state import ConsumerState

if TYPE_CHECKING:
    from natsctl.jetstream.consumers.consumer_context import ConsumerContext


def archived(consumer: ConsumerContext) -> ArchivedConsumer:
    """Return a consumer as it is now."""
    return ArchivedConsumer(consumer.name, consumer.config, progress_of(consumer.state), consumer.created_ns)


def progress_of(state: ConsumerState) -> Progress:
    """Return the progress of a consumer."""
    floor = state.floor()
    below = min(map(itemgetter(0), state.pending.values()), default=floor.consumer_seq + 1) - 1  # all of it in C
    return Progress(
        state.delivered_cseq,
        state.delivered_sseq,
        min(floor.consumer_seq, below),
        floor.stream_seq,
        dict(state.pending),
        dict(state.redelivered),
    )


def state_of(progress: Progress) -> ConsumerState:
    """Return the state of a consumer that continues there. Raises ArchiveError for an impossible state."""
    state = ConsumerState(progress.delivered_sseq + 1)
    state.delivered_cseq = progress.delivered_cseq
    below = progress.delivered_cseq
    for sseq, (cseq, ts_ns) in sorted(progress.pending.items()):
        # Servers before 2.10 note the latest delivery, so consumer sequences need not ascend.
        if not 0 < cseq <= progress.delivered_cseq or not 0 < sseq <= progress.delivered_sseq:
            raise ArchiveError(f"message {sseq} is pending, but was never delivered")
        below = min(below, cseq - 1)
        state.pending[sseq] = (cseq, max(ts_ns, 0))
    state.order = deque(state.pending)
    oldest = state.order[0] if state.order else state.delivered_sseq + 1
    state.floor_cseq = min(max(progress.floor_cseq, 0), below)
    state.floor_sseq = min(max(progress.floor_sseq, 0), oldest - 1)
    state.stuck = state.floor_cseq < below
    state.redelivered.update({sseq: count for sseq, count in progress.redelivered.items() if count > 0})
    return state
