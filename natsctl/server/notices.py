"""Lines of the log about what clients did wrong: as many as an operator can read, however much they do.

A client can offend with every few bytes it sends. `MAX_LINES` of a second are written; how many more there were is told
with the first line of a later second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.broker.notices import log_name

if TYPE_CHECKING:
    from natsctl.broker.options import Clock
    from natsctl.broker.session import Session
    from natsctl.server.process.log import Log

MAX_LINES: Final = 200
"""Lines that are written of each second."""
SECOND_NS: Final = 1_000_000_000


class Notices:
    """Writes what the broker has to say of sessions."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._began_ns = 0
        self._lines = 0

    def tell(self, session: Session, text: str) -> None:
        """Write one [ERR] line, unless there were too many."""
        now = self._clock.monotonic_ns()
        if now - self._began_ns >= SECOND_NS:
            dropped = self._lines - MAX_LINES
            self._began_ns, self._lines = now, 0
            if dropped > 0:
                self._log.error(f"{dropped} more lines about clients were left out")
        self._lines += 1
        if self._lines <= MAX_LINES:
            self._log.error(f"{log_name(session)} - {text}")
