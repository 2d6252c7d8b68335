"""Advisories to the system account that the disk is full, as nats-server sends before it disables JetStream.

This server continues: stored messages stay readable, and publishes are accepted again once there is room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.advisories import ServerOutOfSpace
from natsctl.api.codec import encode
from natsctl.api.times import format_time
from natsctl.jetstream.consumers.consumer_events import nuid

if TYPE_CHECKING:
    from natsctl.jetstream.engine_context import EngineContext

QUIET_NS: Final = 60 * 1_000_000_000
"""Time between two advisories, however many publishes are refused meanwhile."""


class DiskFull:
    """One server's advisories about its disk."""

    __slots__ = ("_engine", "_quiet_until_ns")

    def __init__(self, engine: EngineContext) -> None:
        self._engine = engine
        self._quiet_until_ns = 0

    def met(self, stream: str) -> None:
        """Record that a stream could not be written for lack of room."""
        engine, now_ns = self._engine, self._engine.clock.monotonic_ns()
        event = ServerOutOfSpace(stream=stream, domain=engine.options.domain)
        subject, system = event.subject().encode(), engine.broker.system_account
        if now_ns < self._quiet_until_ns or not system.has_interest(subject):
            return
        self._quiet_until_ns = now_ns + QUIET_NS
        event.id = nuid(engine.rng)
        event.timestamp = format_time(engine.clock.now_ns())
        event.server, event.server_id = engine.broker.server_name, engine.broker.server_id
        system.publish(subject, b"", b"", encode(event))
