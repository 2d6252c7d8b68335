"""The clock every sans-I/O room is given."""

from typing import Protocol


class Clock(Protocol):
    """Two readings of time in nanoseconds."""

    def now_ns(self) -> int:
        """Return the wall clock, ns since the Unix epoch; it may jump."""
        ...

    def monotonic_ns(self) -> int:
        """Return a clock that never goes back, ns since an arbitrary start."""
        ...
