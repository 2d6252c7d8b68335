"""A clock that moves only on request."""

from typing import Final

from natsctl.api.times import parse_time

EPOCH_NS: Final = parse_time("2026-01-01T00:00:00Z")


class VirtualClock:
    """Wall and monotonic time under the test's control; implements `api.times.Clock`."""

    __slots__ = ("_monotonic_ns", "_wall_ns")

    def __init__(self, wall_ns: int = EPOCH_NS, monotonic_ns: int = 1_000_000_000) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns

    def now_ns(self) -> int:
        return self._wall_ns

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def advance(self, ns: int) -> None:
        if ns < 0:
            raise ValueError("time does not go back; use set_wall for a clock that was put back")
        self._wall_ns += ns
        self._monotonic_ns += ns

    def set_wall(self, wall_ns: int) -> None:
        """Set the wall clock, as an administrator or NTP does; the monotonic clock is not changed."""
        self._wall_ns = wall_ns
