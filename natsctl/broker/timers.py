"""Deadlines of one connection: the wait for CONNECT, pings, a silent peer, the end of credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.broker.refusals import CloseReason
from natsctl.wire.server_frames import PING_LINE

if TYPE_CHECKING:
    from natsctl.broker.session import Session

NEVER_NS: Final = 1 << 62
"""A time of the monotonic clock that does not come."""

LATE_PARTS: Final = 10
"""A ping may be late by this part of its interval, so that many of them are sent at one look at the clock."""

PINGS_A_LOOK: Final = 500
"""Pings that are sent at one look: thousands of clients that came back together are due together, at 4 µs each."""


TICK_SLICE_NS: Final = 5_000_000
"""Time for sessions that are due, after the first of them: thousands may expire at once, each with subscriptions."""


class Timers:
    """The timers of one session; `tick` is called often and costs a comparison until something is due."""

    __slots__ = (
        "_answered_ns", "_expires_ns", "_measured", "_next_ns", "_ping_sent_ns", "_session", "alarm_ns", "pings_out",
    )  # fmt: skip

    def __init__(self, session: Session) -> None:
        self._session = session
        self._expires_ns = self._next_ns = NEVER_NS
        self._measured = False
        self._ping_sent_ns = self._answered_ns = 0
        self.pings_out = 0
        """Pings since the client was last heard."""
        self.alarm_ns = NEVER_NS
        """Latest time for the broker's next check; pings may be a little late."""

    def hold(self) -> None:
        """Suspend all deadlines until `start`."""
        self._next_ns = self.alarm_ns = NEVER_NS

    def start(self) -> None:
        """Start: the client has limited time to log in, or is pinged soon if no login is required."""
        session = self._session
        if session.is_ready:
            interval_ns = session.broker.options.ping_interval_of(session.connection_type)
            self._sleep_until(
                session.broker.clock.monotonic_ns() + min(session.first_ping_ns, interval_ns), self._late_ns
            )
        else:
            self.wait(session.patience_ns)

    def wait(self, patience_ns: int) -> None:
        """Limit the time until the next step of the handshake."""
        self._sleep_until(self._session.broker.clock.monotonic_ns() + patience_ns, 0)

    def expire_at(self, wall_ns: int) -> None:
        """Close the connection at a time of the wall clock; 0: never."""
        clock = self._session.broker.clock
        self._expires_ns = NEVER_NS
        if wall_ns:
            self._expires_ns = clock.monotonic_ns() + max(wall_ns - clock.now_ns(), 0)
        self._sleep_until(self._next_ns, self._late_ns)

    @property
    def _late_ns(self) -> int:
        """Delay that a ping may have."""
        session = self._session
        return session.broker.options.ping_interval_of(session.connection_type) // LATE_PARTS

    def _sleep_until(self, at_ns: int, late_ns: int) -> None:
        self._next_ns = min(at_ns, self._expires_ns)
        self.alarm_ns = min(at_ns + late_ns, self._expires_ns)
        self._session.broker.tick_by(self.alarm_ns)

    def answered(self) -> None:
        self.pings_out = 0
        if self._ping_sent_ns:
            session = self._session
            self._answered_ns = session.last_active_ns
            session.rtt_ns = max(session.broker.clock.monotonic_ns() - self._ping_sent_ns, 1)
            self._ping_sent_ns = 0
            self._measured = True

    def tick(self) -> None:
        session = self._session
        now = session.broker.clock.monotonic_ns()
        if session.close_reason is not None:
            self.alarm_ns = NEVER_NS
            return
        if now < self._next_ns:
            return
        ends_ns = session.broker.tick_ends_ns
        if not ends_ns:
            session.broker.tick_ends_ns = now + TICK_SLICE_NS
        elif now > ends_ns:
            self.alarm_ns = now
            return
        if now >= self._expires_ns:
            session.close(CloseReason.AUTHENTICATION_EXPIRED, "User Authentication Expired")
        elif session.login.pending is not None:
            self.start()  # who has said CONNECT in time need not pay for the server's slowness
        elif not session.is_ready:
            session.run_out_of_patience()
        else:
            self._ping(session, now)

    def _ping(self, session: Session, now: int) -> None:
        options = session.broker.options
        interval = options.ping_interval_of(session.connection_type)
        late_ns = interval // LATE_PARTS
        active_ns = session.last_active_ns
        # The answer to the last ping came a little after it: no reason to delay the next one.
        in_use = self._measured and active_ns != self._answered_ns and active_ns + interval > now
        if in_use and not session.pings_always:
            self._sleep_until(active_ns + interval, late_ns)
            return
        if self.pings_out >= options.ping_max:
            session.count_stale()
            session.close(CloseReason.STALE_CONNECTION, "Stale Connection")
            return
        if session.broker.pings_left <= 0:
            self.alarm_ns = now
            return
        session.broker.pings_left -= 1
        self.pings_out += 1
        self._ping_sent_ns = now
        session.write(PING_LINE)
        due = self._next_ns + interval  # not from now on, so that delays do not add up
        self._sleep_until(due if due > now else now + interval, late_ns)
