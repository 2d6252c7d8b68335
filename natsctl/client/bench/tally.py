"""What one client of a benchmark has done so far, and waiting until it is enough."""

from __future__ import annotations

import asyncio
import contextlib
import time

from natsctl.api.errors import NothingReceivedError
from natsctl.client.bench.latencies import Latencies


class Tally:
    """Messages and bytes that count, when it began and ended, and how long each operation took."""

    __slots__ = ("_failure", "_stopped", "_target", "_waiting", "begin_ns", "bytes", "end_ns", "latencies", "msgs")

    def __init__(self) -> None:
        self.msgs = 0
        self.bytes = 0
        self.begin_ns = 0
        self.end_ns = 0
        self.latencies = Latencies()
        self._target = 0
        self._waiting: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._stopped = False

    def begin(self) -> None:
        """Start the clock."""
        self.begin_ns = self.end_ns = time.monotonic_ns()

    def end(self) -> None:
        """Stop the clock."""
        self.end_ns = time.monotonic_ns()

    def add(self, msgs: int, size: int) -> None:
        """Count messages that have together `size` bytes, and wake who waits for so many."""
        self.msgs += msgs
        self.bytes += size
        if self.msgs >= self._target and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def fail(self, failure: BaseException) -> None:
        """Raise `failure` at whoever waits, or will."""
        self._failure = self._failure or failure
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(self._failure)

    def stop(self) -> None:
        """Let who waits for messages go on without the rest."""
        self._stopped = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def go_on(self) -> None:
        """Let waiting be waiting again."""
        self._stopped = False

    def check(self) -> None:
        """Raise what went wrong meanwhile."""
        if self._failure is not None:
            raise self._failure

    async def reach(self, msgs: int, idle_s: float | None, first_s: float | None = None) -> None:
        """Return once `msgs` messages are counted.

        Raises NothingReceivedError when for `idle_s` none was, or not even a first one for `first_s` (None: wait for
        ever).
        """
        while self.msgs < msgs and not self._stopped:
            self.check()
            seen = self.msgs
            self._target = msgs
            self._waiting = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(idle_s if seen else first_s):
                    await self._waiting
            if self.msgs == seen and not self._stopped:
                self.check()
                raise NothingReceivedError(
                    f"{seen:,} of {msgs:,} messages came, then none for {(idle_s if seen else first_s) or 0:g}s"
                )
