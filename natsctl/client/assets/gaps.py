"""Which sequences of a stream hold no message any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from natsctl.client.assets.purging import ALL
from natsctl.client.messaging.ordered import OrderedReader

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.client.answer import Answer
    from natsctl.client.manager import Manager

Gap = tuple[int, int]
"""First and last sequence of a range that is missing, both included."""


def is_complete(live: Answer[StreamInfoAnswer]) -> bool:
    """Whether the answer names every sequence that is missing; servers cut long lists."""
    state = live.value.state
    return len(state.deleted or ()) >= state.num_deleted


def ranges(deleted: Iterable[int]) -> list[Gap]:
    """Sequences in ascending order as ranges; a 0, which nats-server names in an empty stream, is none."""
    found: list[Gap] = []
    for seq in filter(None, deleted):
        if found and found[-1][1] + 1 == seq:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


async def walk_gaps(manager: Manager, live: Answer[StreamInfoAnswer], at: Callable[[int], None]) -> list[Gap]:
    """The gaps, found by reading the headers of every message; `at` is told how many were read."""
    state = live.value.state
    found: list[Gap] = []
    expected, read = state.first_seq, 0
    async with OrderedReader(manager, live.value.config.name, ALL, headers_only=True) as reader:
        async for delivered in reader.stored():
            seq = delivered.at.stream_seq
            if seq > expected:
                found.append((expected, seq - 1))
            expected, read = seq + 1, read + 1
            at(read)
            if seq >= state.last_seq:
                break
    if expected <= state.last_seq:
        found.append((expected, state.last_seq))
    return found
