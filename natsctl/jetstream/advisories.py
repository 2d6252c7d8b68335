"""Advisories and metrics of consumers, and advisories to the system account about a full disk.

They are published only if they have a subscriber. nats-server disables JetStream when the disk is full; this server
sends the same advisory and continues: stored messages stay readable, and publishes are accepted again once there is
room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.advisories import (
    ActionType,
    ConsumerAckMetric,
    ConsumerAdvisory,
    ConsumerChanged,
    ConsumerPause,
    GroupPinned,
    GroupUnpinned,
    MaxDeliver,
    Nak,
    ServerOutOfSpace,
    Terminated,
)
from natsctl.api.codec import encode
from natsctl.api.subjects import ADVISORY_PREFIX, METRIC_PREFIX
from natsctl.api.times import ZERO_TIME, format_time
from natsctl.api.units import MINUTE

if TYPE_CHECKING:
    from natsctl.broker.broker_options import Rng
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.jetstream.engine import Engine


_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NUID_LENGTH: Final = 22

_LEGACY_MAX_DELIVER: Final = f"{ADVISORY_PREFIX}.MAX_DELIVERIES"
_LEGACY_METRIC: Final = f"{METRIC_PREFIX}.CONSUMER_ACK"


class ConsumerAdvisories:
    __slots__ = ("_consumer",)

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def action(self, action: ActionType) -> None:
        self._publish(ConsumerChanged(action=action))

    def paused(self, paused: bool) -> None:
        self._publish(ConsumerPause(paused=paused, pause_until=self._consumer.config.pause_until or ZERO_TIME))

    def max_deliver(self, sseq: int, deliveries: int) -> None:
        self._publish(MaxDeliver(stream_seq=sseq, deliveries=deliveries), _LEGACY_MAX_DELIVER)

    def nak(self, sseq: int, cseq: int, deliveries: int) -> None:
        self._publish(Nak(stream_seq=sseq, consumer_seq=cseq, deliveries=deliveries))

    def terminated(self, sseq: int, cseq: int, deliveries: int, reason: str) -> None:
        self._publish(Terminated(stream_seq=sseq, consumer_seq=cseq, deliveries=deliveries, reason=reason))

    def pinned(self, group: str, pin_id: str) -> None:
        self._publish(GroupPinned(account=self._consumer.account.name, group=group, pinned_id=pin_id))

    def unpinned(self, group: str, reason: str) -> None:
        """Publish that a priority group lost its pinned client."""
        self._publish(GroupUnpinned(account=self._consumer.account.name, group=group, reason=reason))

    def sample(self, sseq: int, cseq: int, deliveries: int, ack_time_ns: int) -> None:
        """Publish the metric of an ack `ack_time_ns` after the delivery, on its present subject and the one of 2020."""
        metric = ConsumerAckMetric(stream_seq=sseq, consumer_seq=cseq, deliveries=deliveries, ack_time=ack_time_ns)
        self._publish(metric, _LEGACY_METRIC)

    def _publish(self, event: ConsumerAdvisory, legacy_prefix: str = "") -> None:
        consumer, account = self._consumer, self._consumer.account
        event.stream, event.consumer = consumer.stream.name, consumer.name
        subjects = [event.published_on().encode()]
        if legacy_prefix:
            subjects.append(f"{legacy_prefix}.{event.stream}.{event.consumer}".encode())
        subjects = [subject for subject in subjects if account.has_interest(subject)]
        if not subjects:
            return
        event.id = nuid(consumer.engine.rng)
        event.timestamp = format_time(consumer.engine.clock.now_ns())
        event.domain = consumer.engine.options.domain
        body = encode(event)
        for subject in subjects:
            account.publish(subject, b"", b"", body)


def nuid(rng: Rng, length: int = _NUID_LENGTH) -> str:
    """Return a random name of `length` base62 digits."""
    return "".join(rng.choices(_DIGITS, k=length))


QUIET_NS: Final = MINUTE
"""Time between two advisories about the disk, however many publishes are refused meanwhile."""


class DiskFullAdvisories:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._quiet_until_ns = 0

    def report(self, stream: str) -> None:
        """Publish that there was no room to write a stream, once in `QUIET_NS` and only to subscribers."""
        engine, now_ns = self._engine, self._engine.clock.monotonic_ns()
        event = ServerOutOfSpace(stream=stream, domain=engine.options.domain)
        subject, system = event.published_on().encode(), engine.broker.system_account
        if now_ns < self._quiet_until_ns or not system.has_interest(subject):
            return
        self._quiet_until_ns = now_ns + QUIET_NS
        event.id = nuid(engine.rng)
        event.timestamp = format_time(engine.clock.now_ns())
        event.server, event.server_id = engine.broker.server_name, engine.broker.server_id
        system.publish(subject, b"", b"", encode(event))
