"""After a jump of the wall clock, expiry by age is suspended for `HOLD_NS`, so that an operator can react.

Each check compares the wall clock with the monotonic one. A machine that was suspended looks like a jump too; its
messages expire a little later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from natsctl.api.clock import Clock

JUMP_NS: Final = 5 * 60 * 1_000_000_000
"""A difference between the clocks that grew by more than this between two looks is a jump."""

HOLD_NS: Final = 60 * 1_000_000_000
"""Time after a jump during which nothing expires."""


class ClockWatch:
    """Detection of jumps of the wall clock, which suspend expiry."""

    __slots__ = ("_apart_ns", "_clock", "_held_until_ns", "_notice")

    def __init__(self, clock: Clock, notice: Callable[[str], None]) -> None:
        """Watch `clock`; `notice` is called with a sentence when it jumps."""
        self._clock = clock
        self._notice = notice
        self._apart_ns = clock.now_ns() - clock.monotonic_ns()
        self._held_until_ns = 0

    def held_until_ns(self) -> int:
        """Return the monotonic time until which nothing may expire; 0 when nothing is held."""
        now_ns = self._clock.monotonic_ns()
        apart_ns = self._clock.now_ns() - now_ns
        jump_ns, self._apart_ns = apart_ns - self._apart_ns, apart_ns
        if abs(jump_ns) > JUMP_NS:
            self._held_until_ns = now_ns + HOLD_NS
            self._notice(
                f"the clock jumped by {jump_ns / 1e9:+.0f} s: no message expires by age for {HOLD_NS // 10**9} s"
            )
        return self._held_until_ns if now_ns < self._held_until_ns else 0
