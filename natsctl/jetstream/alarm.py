"""One re-armable timer.

The engine's timers are one-shot. An Alarm remembers the one it has armed, so that an earlier time replaces it and a
later one costs a comparison: hot paths call `no_later_than` once per batch.
"""

from __future__ import annotations

from collections.abc import Callable

from natsctl.jetstream.timers import Timer, Timers


class Alarm:
    """A timer that calls back at the earliest of the requested times."""

    __slots__ = ("_armed", "_callback", "_timers", "due_ns")

    def __init__(self, timers: Timers, callback: Callable[[], None]) -> None:
        self._timers = timers
        self._callback = callback
        self._armed: Timer | None = None
        self.due_ns = 0

    @property
    def armed(self) -> bool:
        """Return whether a call is due."""
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
        """Disarm."""
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _fire(self) -> None:
        self._armed = None
        self._callback()
