"""The pin of a priority group: one client is served, the others wait until it stops requesting.

Theory of operation. The first request served without a pinned client gets a new id, which every message carries in
`Nats-Pin-Id`; requests that name it are served and restart `priority_timeout`. When that passes without one, or on
UNPIN, the pin is released, and the next request gets another. A request with any other id is ended with a status. A
restart forgets the pin. Source: nats-server, consumer.go assignNewPinId, unassignPinId, setPinnedTimer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.headers import PIN_ID, append
from natsctl.jetstream.alarm import Alarm
from natsctl.jetstream.consumers.consumer_events import nuid

if TYPE_CHECKING:
    from natsctl.jetstream.consumers.consumer_context import ConsumerContext
    from natsctl.jetstream.consumers.pull_request import OpenRequest

MISMATCH: Final = b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"
WRONG_PIN: Final = b"423 Nats-Wrong-Pin-Id"


class Pin:
    """The pinned client; `id` is empty when there is none, `since_ns` is wall clock time."""

    __slots__ = ("_alarm", "_consumer", "_group", "id", "since_ns")

    def __init__(self, consumer: ConsumerContext) -> None:
        self._consumer = consumer
        self._alarm = Alarm(consumer.engine.timers, self._on_timeout)
        self._group = ""
        self.id = ""
        self.since_ns = 0

    def assign(self, request: OpenRequest) -> None:
        """Pin the sender of a request; a request that names no group is served without a pin."""
        if not request.group:
            return
        engine = self._consumer.engine
        self.id = request.pin_id = nuid(engine.rng)
        self.since_ns = engine.clock.now_ns()
        self.used(request.group)
        self._consumer.events.pinned(request.group, self.id)

    def used(self, group: str) -> None:
        """Restart the timeout: the pinned client has sent another request."""
        self._group = group
        now_ns = self._consumer.engine.clock.monotonic_ns()
        self._alarm.set(now_ns + self._consumer.config.priority_timeout)

    def release(self) -> None:
        """Give up the pin; the next request gets it."""
        self._alarm.cancel()
        self.id, self.since_ns = "", 0

    def unpin(self, group: str, reason: str) -> None:
        """Release the pin and publish the reason: `admin` or `timeout`."""
        self.release()
        self._consumer.events.unpinned(group, reason)
        self._consumer.schedule()

    def stamp(self, header: bytes) -> bytes:
        """Return the header block of a message for the pinned client."""
        return append(header, ((PIN_ID, self.id.encode()),))

    def _on_timeout(self) -> None:
        self.unpin(self._group, "timeout")
