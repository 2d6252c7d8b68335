"""Changes that run side by side, as many at a time as asked, each as soon as what it needs is done.

Ctrl-C (a cancelled task) and a lost connection begin nothing more. What runs then may end within `GRACE_S`; after that
it is cancelled, and has to leave things whole: a single request counts as failed, because its answer was not heard, a
replacement puts back what it took away.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from natsctl.api.errors import NatsctlError, UnreachableError
from natsctl.plan.apply import CONCURRENCY
from natsctl.plan.apply.result import (
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
from natsctl.plan.apply.schedule import Schedule
from natsctl.plan.change import Change

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


def unheard(result: Result) -> None:
    """Ignore a result (the default callback)."""


class Execution:
    """One run over the changes of a plan; `is_lost` returns after a failure whether the connection is gone."""

    def __init__(
        self,
        changes: Sequence[Change],
        step: Step,
        *,
        concurrency: int = CONCURRENCY,
        stop_on_failure: bool = False,
        on_result: OnResult = unheard,
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
        self._tell(number, result)
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
        self._tell(number, result_of(self._changes[number], Status.SKIPPED, because=because))

    def _tell(self, number: int, result: Result) -> None:
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
        result = result_of(change, Status.DONE, detail=done.detail, warnings=done.warnings, elapsed=elapsed)
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
