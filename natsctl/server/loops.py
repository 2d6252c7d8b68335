"""The event loop (uvloop where the platform has it, asyncio's elsewhere) and the machine's clocks."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Final

SWITCH_INTERVAL_S: Final = 0.0005
"""Time that a commit worker may wait for the interpreter after its sync (Python's default is 5 ms)."""

GC_THRESHOLD: Final = (50_000, 5, 200)
"""Allocations between collections: messages are tuples without cycles, so frequent collections find nothing.

The middle generation is looked at with a quarter of a million objects in it, which takes some 20 ms.
"""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop of the fastest kind there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def let_garbage_wait() -> None:
    """Disable collection until `tune_interpreter`: objects of the start stay, and scanning them took half the time."""
    gc.disable()


def tune_interpreter() -> None:
    """Set thread switching and garbage collection for a process that serves; affects the whole process.

    What the start has made is never looked at again. It is not collected first: that takes as long as a tenth of the
    start, in which the first clients would wait, and frees some hundred objects.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
    gc.enable()
    gc.set_threshold(*GC_THRESHOLD)


class SystemClock:
    """The machine's clocks, as `api.clock.Clock`."""

    __slots__ = ()

    def now_ns(self) -> int:
        """Return wall-clock nanoseconds since the epoch."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a clock that never goes back."""
        return time.monotonic_ns()
