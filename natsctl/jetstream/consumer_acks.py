"""Acks of one consumer, as they arrive on `$JS.ACK.<stream>.<consumer>.>`.

An ack names its message by the stream sequence in the subject; how often it was delivered is taken from the state.
The consumer sequence in the subject only goes into events. Whatever has a reply subject is answered, late and
repeated acks too, once what the ack changed is durable. Not answered are `+NXT`, whose reply subject is where the
next messages go, and a final ack for a message that this consumer has not delivered as far as it knows: after a crash
that lost the record of the delivery it will be delivered again, so nobody may be told that it is settled.
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

_PASSING: Final = (b"-NAK", b"+WPI")
"""Acks that promise nothing for ever: they are answered whatever they name."""

_SSEQ_TOKEN: Final = 5
"""`$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>…`: the first seven tokens are the same since 2020."""

_FEWEST_DOTS: Final = 6
_MOST_DOTS: Final = 8
"""Seven tokens in 2020, then eight, nine since."""


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

    def handle(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: object) -> bool | None:
        """Take one ack message; False for a subject of no known form."""
        if not _FEWEST_DOTS <= subject.count(b".") <= _MOST_DOTS:
            return False
        token = subject.split(b".", 6)[_SSEQ_TOKEN]
        sseq = int(token) if token.isdigit() else 0
        if not sseq:
            return None
        consumer = self._consumer
        if payload in PLAIN:
            if self._simple and not consumer.state.redelivered and not consumer.redelivery.queued:
                if consumer.state.pending.pop(sseq, None) is not None:
                    consumer.log.acked.append(sseq)
            else:
                self._ack(sseq, subject)
        elif self._act(sseq, subject, reply, parse_ack_payload(payload)):
            return None
        if reply and (sseq <= consumer.state.delivered_sseq or payload.startswith(_PASSING)):
            consumer.answers.append(reply)
        if not consumer.scheduled:
            consumer.schedule()
        return None

    def _ack(self, sseq: int, subject: bytes) -> None:
        """Acknowledge one message, or with ack policy all everything up to it."""
        state = self._consumer.state
        if self._policy is AckPolicy.NONE or sseq > state.delivered_sseq:
            return
        entry = state.pending.get(sseq)
        if entry is not None and self._percent:
            self._sample(sseq, _consumer_seq(subject, entry[0]))
        self._settle(sseq, _consumer_seq(subject, 0))

    def through(self, sseq: int, cseq: int) -> None:
        """Acknowledge everything delivered up to `sseq`, which had the consumer sequence `cseq`."""
        consumer, state = self._consumer, self._consumer.state
        if cseq <= state.floor_cseq or sseq <= state.floor_sseq:
            return
        now_ns = consumer.now_ns()
        dropped = state.acked_through(sseq, cseq, now_ns)
        if not dropped:
            return
        consumer.lifetime.used()
        consumer.log.acked_through(sseq, cseq, now_ns)
        if consumer.stream.retention.removes:
            consumer.stream.retention.acked(dropped)
        for seq in dropped:
            consumer.redelivery.forget(seq)

    def _act(self, sseq: int, subject: bytes, reply: bytes, ack: AckPayload) -> bool:
        """Do what a payload other than a plain ack asks; True when the reply subject is taken by what it asked for."""
        entry = self._consumer.state.pending.get(sseq)
        if ack.kind is AckKind.NEXT:
            self._ack(sseq, subject)
            delivery = self._consumer.delivery
            if isinstance(delivery, PullDelivery):
                delivery.request(reply, ack.request)
                reply = b""
            if not self._consumer.scheduled:
                self._consumer.schedule()
            return not reply
        if entry is None or self._policy is AckPolicy.NONE:
            return False
        cseq = _consumer_seq(subject, entry[0])
        if ack.kind is AckKind.NAK:
            self._consumer.retry.nak(sseq, cseq, ack.delay_ns)
        elif ack.kind is AckKind.PROGRESS:
            self._consumer.retry.delay(sseq, 0)
        elif ack.kind is AckKind.TERM:
            deliveries = self._consumer.state.deliveries(sseq)
            self._consumer.events.terminated(sseq, cseq, deliveries, ack.reason)
            self._settle(sseq, cseq)
        return False

    def _settle(self, sseq: int, cseq: int) -> None:
        """Settle one message, or with ack policy all everything up to it."""
        consumer, state = self._consumer, self._consumer.state
        if self._policy is AckPolicy.ALL:
            self.through(sseq, cseq)
        elif sseq in state.pending:
            state.forget(sseq)
            consumer.log.acked.append(sseq)
            consumer.redelivery.forget(sseq)
        elif sseq in state.redelivered:
            state.forget(sseq)
            consumer.log.forgotten((sseq,))
            if consumer.stream.retention.removes:
                consumer.stream.retention.acked((sseq,))

    def _sample(self, sseq: int, cseq: int) -> None:
        consumer = self._consumer
        if self._percent >= 100 or consumer.engine.rng.random() * 100 < self._percent:
            since = consumer.now_ns() - consumer.state.pending[sseq][1]
            consumer.events.sample(sseq, cseq, consumer.state.deliveries(sseq), since)


def _consumer_seq(subject: bytes, otherwise: int) -> int:
    """Return the consumer sequence that an ack subject names: that of the delivery it answers."""
    tokens = subject.split(b".", _SSEQ_TOKEN + 2)[_SSEQ_TOKEN + 1 :]
    return int(tokens[0]) if tokens and tokens[0].isdigit() else otherwise
