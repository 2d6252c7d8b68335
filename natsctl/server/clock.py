"""The real clock and the real source of randomness that the cores are given."""

import time


class SystemClock:
    """The machine's clocks, as `api.clock.Clock`."""

    __slots__ = ()

    def now_ns(self) -> int:
        """Return wall-clock nanoseconds since the epoch."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a clock that never goes back."""
        return time.monotonic_ns()
