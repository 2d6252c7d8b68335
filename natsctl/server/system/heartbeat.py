"""When the server tells its STATSZ by itself: often after the start, then every ten seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.codec import encode

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker

FIRST_NS: Final = 250_000_000
"""Time from the start to the first STATSZ; each wait is twice as long as the one before. Source: nats-server."""
LONGEST_NS: Final = 10 * 1_000_000_000
RATE_LIMIT_NS: Final = 1_000_000_000
"""Least time between two STATSZ that nobody asked for. Source: nats-server, defaultStatszRateLimit."""


class Heartbeat:
    """Publishes `$SYS.SERVER.<id>.STATSZ` of one broker."""

    __slots__ = ("_body", "_broker", "_due_ns", "_interval_ns", "_last_ns", "_subject")

    def __init__(self, broker: Broker, body: Callable[[], dict[str, Any]]) -> None:
        """`body` returns what is told."""
        self._broker = broker
        self._body = body
        self._subject = f"$SYS.SERVER.{broker.server_id}.STATSZ".encode()
        self._interval_ns = FIRST_NS
        self._due_ns = broker.clock.monotonic_ns() + FIRST_NS
        self._last_ns: int | None = None

    @property
    def due_ns(self) -> int:
        """When `tick` has something to tell, monotonic clock."""
        return self._due_ns

    def tick(self) -> None:
        """Tell what is due."""
        now_ns = self._broker.clock.monotonic_ns()
        if now_ns < self._due_ns:
            return
        self._interval_ns = min(self._interval_ns * 2, LONGEST_NS)
        self._due_ns = now_ns + self._interval_ns
        self.broadcast()

    def asked(self) -> None:
        """Tell now: somebody asked without saying where to."""
        self._last_ns = None
        self.broadcast()

    def broadcast(self) -> None:
        """Publish STATSZ where somebody listens, unless it was told just now: then a little later."""
        now_ns, system = self._broker.clock.monotonic_ns(), self._broker.system_account
        wait_ns = min(RATE_LIMIT_NS, self._interval_ns)
        if self._last_ns is not None and now_ns - self._last_ns < wait_ns:
            self._due_ns = self._last_ns + wait_ns
            return
        self._last_ns = now_ns
        if system.has_interest(self._subject):
            system.publish(self._subject, b"", b"", encode(self._body()))
