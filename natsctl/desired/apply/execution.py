"""Changes carried out side by side, each as soon as its dependencies are done."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from natsctl.api.errors import NatsctlError, UnreachableError
from natsctl.desired.apply import CONCURRENCY
from natsctl.desired.apply.results import (
    INTERRUPTED,
    LOST,
    STOPPED,
    Outcome,
    Result,
    Status,
    failure_of,
    outcome_of,
    result_of,
)
from natsctl.desired.dependencies import needed_name
from natsctl.desired.plan import Change


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
            numbers[needed_name(change.key)] = number
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
        left, self._left, self._ready = sorted(self._left), set(), []
        return left


GRACE_S = 5.0
"""Seconds that running changes get to end after Ctrl-C: enough for requests, not for transfers."""

OnResult = Callable[[Result], None]


@dataclass(frozen=True, slots=True)
class Done:
    """The details of a completed change."""

    detail: str = ""
    warnings: tuple[str, ...] = ()
    by_others: bool = False
    """Made by another client meanwhile: it does not count as made by this run."""


Step = Callable[[Change], Awaitable[Done]]
"""Makes one change; raises NatsctlError."""


def ignore_result(result: Result) -> None:
    """Ignore a result (the default callback)."""


class Execution:
    """One run over the changes of a plan; `is_lost` reports after a failure whether the connection was lost."""

    def __init__(
        self,
        changes: Sequence[Change],
        step: Step,
        *,
        concurrency: int = CONCURRENCY,
        stop_on_failure: bool = False,
        on_result: OnResult = ignore_result,
        is_lost: Callable[[], bool] = lambda: False,
        grace_s: float = GRACE_S,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._changes, self._step = changes, step
        self._concurrency, self._stop_on_failure = concurrency, stop_on_failure
        self._on_result, self._is_lost, self._grace_s, self._clock_ns = on_result, is_lost, grace_s, clock_ns
        self._schedule = Schedule(changes)
        self._results: dict[int, Result] = {}
        self._running: dict[asyncio.Task[Result], int] = {}
        self._ended = ""

    async def run(self, unchanged: int = 0) -> Outcome:
        """Return the outcome of the changes; if it is cancelled, it ends early and returns instead of raising."""
        begun = self._clock_ns()
        try:
            while self._begin():
                await self._wait()
        except asyncio.CancelledError:
            self._ended = INTERRUPTED
            await self._wind_down()
        finally:
            await self._cancel()
        why = {STOPPED: "stopped after a failure", INTERRUPTED: "interrupted", LOST: "the connection was lost"}
        for number in self._schedule.rest():
            self._skip(number, why.get(self._ended, ""))
        results = [self._results[number] for number in sorted(self._results)]
        return outcome_of(results, unchanged, self._clock_ns() - begun, self._ended)

    def _begin(self) -> bool:
        """Start the changes that may start; return whether any is running."""
        while not self._ended and len(self._running) < self._concurrency:
            number = self._schedule.next()
            if number is None:
                break
            self._running[asyncio.create_task(self._one(self._changes[number]))] = number
        return bool(self._running)

    async def _wait(self, timeout_s: float | None = None) -> None:
        """Take the results of the changes that end next."""
        done, _ = await asyncio.wait(self._running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for task in sorted(done, key=self._running.__getitem__):
            self._take(self._running.pop(task), task.result())

    def _take(self, number: int, result: Result) -> None:
        self._record(number, result)
        if result.status is Status.DONE:
            self._schedule.done(number)
            return
        for later in self._schedule.failed(number):
            self._skip(later, str(result.key))
        if self._is_lost():
            self._ended = self._ended or LOST
        elif self._stop_on_failure:
            self._ended = self._ended or STOPPED

    def _skip(self, number: int, because: str) -> None:
        self._record(number, result_of(self._changes[number], Status.SKIPPED, because=because))

    def _record(self, number: int, result: Result) -> None:
        self._results[number] = result
        self._on_result(result)

    async def _one(self, change: Change) -> Result:
        begun = self._clock_ns()
        try:
            done = await self._step(change)
        except NatsctlError as failure:
            elapsed = self._clock_ns() - begun
            return result_of(change, Status.FAILED, error=failure_of(failure), elapsed=elapsed)
        except asyncio.CancelledError:
            unheard_of = failure_of(UnreachableError("interrupted before its answer came"))
            return result_of(change, Status.FAILED, error=unheard_of, elapsed=self._clock_ns() - begun)
        elapsed = self._clock_ns() - begun
        result = result_of(change, Status.DONE, detail=done.detail, warnings=list(done.warnings), elapsed=elapsed)
        result.by_others = done.by_others
        return result

    async def _wind_down(self) -> None:
        """Wait after Ctrl-C for running changes to end, then cancel the others and wait for their clean-up."""
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        until = self._clock_ns() + int(self._grace_s * 1e9)
        while self._running and (left_ns := until - self._clock_ns()) > 0:
            await self._wait(left_ns / 1e9)
        for task in self._running:
            task.cancel()
        while self._running:
            await self._wait()

    async def _cancel(self) -> None:
        """Cancel all changes after an internal error, so that none continues unobserved."""
        for task in self._running:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._running, return_exceptions=True)
