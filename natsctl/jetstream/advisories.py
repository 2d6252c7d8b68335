"""Advisories and metrics of consumers, and advisories to the system account about a full disk.

They are published only if they have a subscriber. nats-server disables JetStream when the disk is full; this server
sends the same advisory and continues: stored messages stay readable, and publishes are accepted again once there is
room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.advisories import (
    ActionType,
    Advised,
    ConsumerAckMetric,
    ConsumerAction,
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
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.jetstream.engine import Engine
    from natsctl.jetstream.engine_options import Rng


_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NUID_LENGTH: Final = 22

_NAK: Final = f"{ADVISORY_PREFIX}.CONSUMER.MSG_NAKED"
_TERMINATED: Final = f"{ADVISORY_PREFIX}.CONSUMER.MSG_TERMINATED"
_MAX_DELIVER: Final = f"{ADVISORY_PREFIX}.CONSUMER.MAX_DELIVERIES"
_LEGACY_MAX_DELIVER: Final = f"{ADVISORY_PREFIX}.MAX_DELIVERIES"
_METRIC: Final = f"{METRIC_PREFIX}.CONSUMER.ACK"
_LEGACY_METRIC: Final = f"{METRIC_PREFIX}.CONSUMER_ACK"


class ConsumerAdvisories:
    """The advisories and metrics of one consumer."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def _at(self, prefix: str) -> bytes:
        """Return the subject below `prefix` that names the consumer."""
        return f"{prefix}.{self._consumer.stream.name}.{self._consumer.name}".encode()

    def action(self, action: ActionType) -> None:
        """Publish that the consumer was created or deleted."""
        event = ConsumerAction(stream=self._consumer.stream.name, consumer=self._consumer.name, action=action)
        self._publish(event, event.subject().encode())

    def paused(self, paused: bool) -> None:
        """Publish that the consumer was paused or resumed."""
        event = ConsumerPause(stream=self._consumer.stream.name, consumer=self._consumer.name, paused=paused)
        event.pause_until = self._consumer.config.pause_until or ZERO_TIME
        self._publish(event, event.subject().encode())

    def max_deliver(self, sseq: int, deliveries: int) -> None:
        """Publish that a message reached max_deliver."""
        event = MaxDeliver(
            stream=self._consumer.stream.name, consumer=self._consumer.name, stream_seq=sseq, deliveries=deliveries
        )
        self._publish(event, self._at(_MAX_DELIVER), self._at(_LEGACY_MAX_DELIVER))

    def nak(self, sseq: int, cseq: int, deliveries: int) -> None:
        """Publish that a message was negatively acknowledged."""
        event = Nak(stream=self._consumer.stream.name, consumer=self._consumer.name)
        event.stream_seq, event.consumer_seq, event.deliveries = sseq, cseq, deliveries
        self._publish(event, self._at(_NAK))

    def terminated(self, sseq: int, cseq: int, deliveries: int, reason: str) -> None:
        """Publish that a message will not be delivered again."""
        event = Terminated(stream=self._consumer.stream.name, consumer=self._consumer.name, reason=reason)
        event.stream_seq, event.consumer_seq, event.deliveries = sseq, cseq, deliveries
        self._publish(event, self._at(_TERMINATED))

    def pinned(self, group: str, pin_id: str) -> None:
        """Publish that a client was pinned in a priority group."""
        self._publish_named(GroupPinned(account=self._consumer.account.name, group=group, pinned_id=pin_id))

    def unpinned(self, group: str, reason: str) -> None:
        """Publish that a priority group lost its pinned client."""
        self._publish_named(GroupUnpinned(account=self._consumer.account.name, group=group, reason=reason))

    def _publish_named(self, event: GroupPinned | GroupUnpinned) -> None:
        event.stream, event.consumer = self._consumer.stream.name, self._consumer.name
        self._publish(event, event.subject().encode())

    def sample(self, sseq: int, cseq: int, deliveries: int, ack_time_ns: int) -> None:
        """Publish the metric of an ack `ack_time_ns` after the delivery, on the subjects of today and of 2020."""
        event = ConsumerAckMetric(stream=self._consumer.stream.name, consumer=self._consumer.name)
        event.stream_seq, event.consumer_seq = sseq, cseq
        event.deliveries, event.ack_time = deliveries, ack_time_ns
        self._publish(event, self._at(_METRIC), self._at(_LEGACY_METRIC))

    def _publish(self, event: Advised, *subjects: bytes) -> None:
        """Publish `event` on each of `subjects` with a subscriber."""
        consumer = self._consumer
        account = consumer.account
        wanted = [subject for subject in subjects if account.has_interest(subject)]
        if not wanted:
            return
        event.id = nuid(consumer.engine.rng)
        event.timestamp = format_time(consumer.engine.clock.now_ns())
        event.domain = consumer.engine.options.domain
        body = encode(event)
        for subject in wanted:
            account.publish(subject, b"", b"", body)


def nuid(rng: Rng, length: int = _NUID_LENGTH) -> str:
    """Return a random name of `length` base62 digits."""
    return "".join(rng.choices(_DIGITS, k=length))


QUIET_NS: Final = MINUTE
"""Time between two advisories about the disk, however many publishes are refused meanwhile."""


class DiskFullAdvisories:
    """The advisories of one server about a full disk."""

    __slots__ = ("_engine", "_quiet_until_ns")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._quiet_until_ns = 0

    def report(self, stream: str) -> None:
        """Publish that there was no room to write a stream, once in `QUIET_NS` and only to subscribers."""
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
