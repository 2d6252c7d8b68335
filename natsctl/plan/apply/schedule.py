"""Which change may begin next: pure, so that every order can be tried.

A change waits for those that it names in `needs`, as far as they are in the plan and stand before it: the plan's order
is one in which all can be done one by one, so that waiting for a later one would be waiting for ever. One whose need
failed or was skipped is skipped too, and says which asset's failure began it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from natsctl.plan.change import Change


class Schedule:
    """Schedule of changes by their number in the plan: the first that can start goes first."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes
        numbers: dict[str, int] = {}
        self._waits_for: list[int] = []
        self._waiting: dict[int, list[int]] = {}
        for number, change in enumerate(changes):
            needed = {numbers[name] for name in change.needs if name in numbers}
            self._waits_for.append(len(needed))
            for earlier in needed:
                self._waiting.setdefault(earlier, []).append(number)
            numbers[need_of(change)] = number
        self._ready = [number for number, count in enumerate(self._waits_for) if not count]
        self._left = set(range(len(changes)))

    def next(self) -> int | None:
        """Return a change that may start now, each once; None if all of these have started."""
        if not self._ready:
            return None
        number = heapq.heappop(self._ready)
        self._left.discard(number)
        return number

    def done(self, number: int) -> None:
        """Release the changes that waited only for this one."""
        for later in self._waiting.get(number, ()):
            self._waits_for[later] -= 1
            if not self._waits_for[later] and later in self._left:
                heapq.heappush(self._ready, later)

    def failed(self, number: int) -> list[int]:
        """Return the changes that cannot start because of it, directly or indirectly, in the order of the plan."""
        found: set[int] = set()
        reached = [number]
        while reached:
            for later in self._waiting.get(reached.pop(), ()):
                if later in self._left:
                    self._left.discard(later)
                    found.add(later)
                    reached.append(later)
        return sorted(found)

    def rest(self) -> list[int]:
        """Return the changes that were not started and will not be."""
        left, self._left, self._ready = sorted(self._left), set(), []
        return left


def need_of(change: Change) -> str:
    """Return the name of a change's asset as `needs` spells it."""
    return f"{change.stream} > {change.consumer}" if change.consumer else change.stream
