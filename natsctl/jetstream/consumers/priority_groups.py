"""The order of open pull requests: in turn, or by the consumer's priority policy; and the pin of a priority group.

Theory of operation. The head of the queue `waiting` is served; a request that wants more goes to the tail, or with
policy prioritized after the others of its priority. Policies overflow and pinned_client skip requests: a skipped one
goes to the tail, and when all are skipped the message waits. Source: nats-server, consumer.go nextWaiting and
insertAtPosition.

With pinned_client one client is served, and the others wait until it stops requesting. The first request served without
a pinned client gets a new id, sent in `Nats-Pin-Id` with every message; requests that name it are served and
restart `priority_timeout`. When that passes without one, or on UNPIN, the pin is released, and the next request gets
another. A request with any other id is ended with a status. A restart forgets the pin. Source: nats-server, consumer.go
assignNewPinId, unassignPinId, setPinnedTimer.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from natsctl.api.consumer import PriorityGroupState, PriorityPolicy
from natsctl.api.headers import PIN_ID, append
from natsctl.api.times import ZERO_TIME, format_time
from natsctl.jetstream.advisories import nuid
from natsctl.jetstream.timers import Alarm

if TYPE_CHECKING:
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.jetstream.consumers.waiting_pulls import WaitingPull


MISMATCH: Final = b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"
WRONG_PIN: Final = b"423 Nats-Wrong-Pin-Id"


class Pin:
    """The pinned client; `id` is empty without one, `since_ns` is wall clock time."""

    __slots__ = ("_alarm", "_consumer", "_group", "id", "since_ns")

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._alarm = Alarm(consumer.engine.timers, lambda: self.unpin(self._group, "timeout"))
        self._group = ""
        self.id = ""
        self.since_ns = 0

    def assign(self, request: WaitingPull) -> None:
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
        self.release()
        self._consumer.events.unpinned(group, reason)
        self._consumer.schedule()

    def stamp(self, header: bytes) -> bytes:
        return append(header, ((PIN_ID, self.id.encode()),))


_GROUP_NAME: Final = re.compile("[a-zA-Z0-9/_=-]{1,16}")


class PullVerdict(Enum):
    """The decision about the request at the head of the queue."""

    SERVE = auto()
    PASS = auto()
    WRONG_PIN = auto()


class Priority:
    __slots__ = ("_consumer", "pin", "policy")

    def __init__(self, consumer: Consumer, policy: PriorityPolicy) -> None:
        self._consumer = consumer
        self.policy = policy
        self.pin: Pin | None = Pin(consumer) if policy is PriorityPolicy.PINNED_CLIENT else None

    def stop(self) -> None:
        if self.pin is not None:
            self.pin.release()

    def decide(self, request: WaitingPull, vacant: bool, available: int, unacked: int) -> PullVerdict:
        """Decide on a request; `vacant`: no client was pinned when the search for a recipient began.

        `available` and `unacked` are what min_pending and min_ack_pending are compared with.
        """
        if self.pin is not None:
            return self._decide_by_pin(self.pin, request, vacant)
        if self.policy is PriorityPolicy.OVERFLOW and (request.min_pending > 0 or request.min_ack_pending > 0):
            full = 0 < request.min_pending <= available or 0 < request.min_ack_pending <= unacked
            return PullVerdict.SERVE if full else PullVerdict.PASS
        return PullVerdict.SERVE

    def _decide_by_pin(self, pin: Pin, request: WaitingPull, vacant: bool) -> PullVerdict:
        if vacant:
            if request.pin_id:
                return PullVerdict.WRONG_PIN
            pin.assign(request)
            return PullVerdict.SERVE
        if not pin.id or request.pin_id == pin.id:
            return PullVerdict.SERVE
        return PullVerdict.WRONG_PIN if request.pin_id else PullVerdict.PASS

    def rank(self, request: WaitingPull) -> int:
        """Return the rank of a request: others of a higher one come after it."""
        return request.priority if self.policy is PriorityPolicy.PRIORITIZED else 0


def is_group_name(name: str) -> bool:
    return _GROUP_NAME.fullmatch(name) is not None


def priority_of(consumer: Consumer) -> Priority | None:
    """Return the priority policy of a consumer, or None if requests are served in turn."""
    policy = consumer.config.priority_policy
    return None if policy is None or policy is PriorityPolicy.NONE else Priority(consumer, policy)


def group_states(groups: list[str], pin: Pin | None) -> list[PriorityGroupState]:
    """Return the priority groups for CONSUMER.INFO: the first one, as in nats-server."""
    if pin is None or not pin.id:
        return [PriorityGroupState(group=groups[0], pinned_ts=ZERO_TIME)]
    return [PriorityGroupState(group=groups[0], pinned_client_id=pin.id, pinned_ts=format_time(pin.since_ns))]
