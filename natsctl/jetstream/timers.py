"""One heap for every deadline of the engine, run by the shell, and alarms that can be set again.

Theory of operation. The heap orders (due, number, timer); the number keeps timers of the same moment in the order in
which they were armed. Cancelling only marks a timer; marked ones leave the heap at its top, or all together once they
are the majority, so that re-arming in a loop does not grow it.

The heap's timers are one-shot. An `Alarm` remembers the one it has armed, so that an earlier time replaces it and a
later one costs a comparison: hot paths call `no_later_than` once per batch.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

SWEEP_FROM: Final = 64
"""Min heap size to remove cancelled timers once they outnumber the others."""

POPS_AT_ONCE: Final = 1_000
"""Cancelled timers that leave the heap in one look at it, each in about a microsecond."""


class Timer:
    __slots__ = ("_timers", "callback", "due_ns")

    def __init__(self, timers: EngineTimers, due_ns: int, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.due_ns = due_ns
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Prevent the call; without effect once it was made."""
        if self.callback is not None:
            self.callback = None
            self._timers.cancelled()


class EngineTimers:
    __slots__ = ("_cancelled", "_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._number = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def at(self, monotonic_ns: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` once, at the first `run` at or after `monotonic_ns`."""
        timer = Timer(self, monotonic_ns, callback)
        self._number += 1
        heappush(self._heap, (monotonic_ns, self._number, timer))
        return timer

    def next_ns(self) -> int | None:
        """Return when `run` is due; nothing may be due then if very many cancelled timers come first."""
        heap = self._heap
        for _ in range(POPS_AT_ONCE):
            if not heap:
                return None
            if heap[0][2].callback is not None:
                break
            heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def run(self, now_ns: int, is_over: Callable[[], bool] = lambda: False) -> int:
        """Call due timers until the time `is_over`, at least one, and return how many were called.

        What callbacks arm waits for the next run.
        """
        last, called, heap = self._number, 0, self._heap
        while heap and heap[0][0] <= now_ns and heap[0][1] <= last:
            timer = heappop(heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled -= 1
            else:
                callback()
                called += 1
                heap = self._heap  # the call may have swept it
            if is_over():
                break
        return called

    def cancelled(self) -> None:
        """Count a timer that was cancelled, and sweep when they prevail."""
        self._cancelled += 1
        if len(self._heap) >= SWEEP_FROM and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._cancelled = 0


class Alarm:
    """A timer that calls back at the earliest of the requested times."""

    __slots__ = ("_armed", "_callback", "_timers", "due_ns")

    def __init__(self, timers: EngineTimers, callback: Callable[[], None]) -> None:
        self._timers = timers
        self._callback = callback
        self._armed: Timer | None = None
        self.due_ns = 0

    @property
    def armed(self) -> bool:
        return self._armed is not None

    def no_later_than(self, monotonic_ns: int) -> None:
        """Arm for `monotonic_ns` unless already armed for that moment or an earlier one."""
        if self._armed is not None:
            if self.due_ns <= monotonic_ns:
                return
            self._armed.cancel()
        self.due_ns = monotonic_ns
        self._armed = self._timers.at(monotonic_ns, self._fire)

    def set(self, monotonic_ns: int) -> None:
        """Arm for exactly `monotonic_ns`, whatever was armed before."""
        self.cancel()
        self.no_later_than(monotonic_ns)

    def cancel(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _fire(self) -> None:
        self._armed = None
        self._callback()
