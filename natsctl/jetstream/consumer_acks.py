"""Acks of one consumer, as they arrive on `$JS.ACK.<stream>.<consumer>.>`.

An ack names its message by the stream sequence in the subject; how often it was delivered and under which consumer
sequence is taken from the state, never from the subject. Whatever has a reply subject is answered, late and unknown
acks too, once what the ack changed is durable; only `+NXT` is not, whose reply subject is where the next messages go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.api.acks import AckKind, AckPayload, parse_ack_payload
from natsctl.api.consumer import AckPolicy
from natsctl.jetstream.consumer_config import sample_percent
from natsctl.jetstream.pull import PullDelivery

if TYPE_CHECKING:
    from natsctl.jetstream.consumer import Consumer

PLAIN: Final = frozenset((b"", b"+ACK", b"+OK"))

_SSEQ_TOKEN: Final = 5
"""`$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>…`: the first seven tokens are the same since 2020."""


class Acks:
    """Takes the acks of one consumer."""

    __slots__ = ("_consumer", "_percent", "_policy", "_simple")

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.configure()

    def configure(self) -> None:
        """Take ack policy and sampling from the configuration."""
        self._policy = self._consumer.config.ack_policy
        self._percent = sample_percent(self._consumer.config)
        self._simple = self._policy is AckPolicy.EXPLICIT and not self._percent

    def handle(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: object) -> None:
        """Take one ack message."""
        try:
            sseq = int(subject.split(b".", 6)[_SSEQ_TOKEN])
        except (ValueError, IndexError):
            return
        consumer = self._consumer
        if payload in PLAIN:
            if self._simple and not consumer.state.first_ns and not consumer.redelivery.queued:
                if consumer.state.pending.pop(sseq, None) is not None:
                    consumer.log.acked.append(sseq)
            else:
                self._ack(sseq)
        elif self._act(sseq, reply, parse_ack_payload(payload)):
            return
        if reply:
            consumer.answers.append(reply)
        if not consumer.scheduled:
            consumer.schedule()

    def _ack(self, sseq: int) -> None:
        """Acknowledge one message, or with ack policy all everything up to it."""
        consumer, state = self._consumer, self._consumer.state
        if self._policy is AckPolicy.NONE:
            return
        entry = state.pending.get(sseq)
        if entry is not None and self._percent:
            self._sample(sseq, entry)
        if self._policy is AckPolicy.ALL:
            dropped = state.acked_through(sseq)
            if dropped:
                consumer.log.acked_through(sseq)
                if consumer.stream.retention.removes:
                    consumer.stream.retention.acked(dropped)
            for seq in dropped:
                consumer.redelivery.forget(seq)
        elif entry is not None or sseq in state.redelivered:
            state.forget(sseq)
            consumer.log.acked.append(sseq)
            consumer.redelivery.forget(sseq)

    def _act(self, sseq: int, reply: bytes, ack: AckPayload) -> bool:
        """Do what a payload other than a plain ack asks; True when the reply subject is taken by what it asked for."""
        entry = self._consumer.state.pending.get(sseq)
        if ack.kind is AckKind.NEXT:
            self._ack(sseq)
            delivery = self._consumer.delivery
            if reply and ack.pull is not None and isinstance(delivery, PullDelivery):
                delivery.open(reply, ack.pull)
                reply = b""
            if not self._consumer.scheduled:
                self._consumer.schedule()
            return not reply
        if entry is None or self._policy is AckPolicy.NONE:
            return False
        if ack.kind is AckKind.NAK:
            self._consumer.retry.nak(sseq, entry[0], ack.delay_ns)
        elif ack.kind is AckKind.PROGRESS:
            self._consumer.retry.delay(sseq, 0)
        elif ack.kind is AckKind.TERM:
            deliveries = self._consumer.state.deliveries(sseq)
            self._consumer.events.terminated(sseq, entry[0], deliveries, ack.reason)
            self._terminate(sseq)
        return False

    def _terminate(self, sseq: int) -> None:
        consumer = self._consumer
        consumer.state.forget(sseq)
        consumer.log.acked.append(sseq)
        consumer.redelivery.forget(sseq)

    def _sample(self, sseq: int, entry: tuple[int, int]) -> None:
        consumer = self._consumer
        if self._percent >= 100 or consumer.engine.rng.random() * 100 < self._percent:
            since = consumer.now_ns() - consumer.state.first_delivery_ns(sseq)
            consumer.events.sample(sseq, entry[0], consumer.state.deliveries(sseq), since)
