"""Acks of one consumer, as they arrive on `$JS.ACK.<stream>.<consumer>.>`.

An ack names its message by the stream sequence in the subject. Delivery count and consumer sequence there go into
advisories; with ack policy `all` the consumer sequence is the new ack floor.

Every ack with a reply subject is answered, late and repeated ones too, once its effect is durable. The exceptions are
`+NXT`, which delivers the next messages to its reply subject, and a final ack for a message that this consumer has not
delivered to its knowledge: after a crash that lost the record of the delivery it will be delivered again, so an
answer would promise too much.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from natsctl.api.acks import NEXT, TERM, AckKind, AckPayload, parse_ack_payload
from natsctl.api.consumer import AckPolicy
from natsctl.api.consumer_config import sample_percent
from natsctl.jetstream.consumers.pull import PullDelivery
from natsctl.store.steps import STEP, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.wire.ops import Op
    from natsctl.wire.publish_run import PublishRun

PLAIN: Final = frozenset((b"", b"+ACK", b"+OK"))
"""Payloads of an ack that asks for nothing else."""

_UNREADABLE: Final = 1 << 64
"""Stream sequence of an ack with an invalid token: above every other, so that the ack has no effect."""

_SSEQ_TOKEN: Final = 5
"""Index in `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>…`, the same since 2020."""


METRIC_COST: Final = 12
"""Cost of a metric, in messages examined one by one."""


class Acks:
    __slots__ = ("_consumer", "_percent", "_policy", "_simple", "_through")

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.configure()

    def configure(self) -> None:
        self._policy = self._consumer.config.ack_policy
        self._percent = sample_percent(self._consumer.config)
        self._simple = self._policy is AckPolicy.EXPLICIT and not self._percent
        self._through = self._policy is AckPolicy.ALL

    def handle(self, subject: bytes, token: bytes, reply: bytes, payload: bytes) -> None:
        sseq = int(token) if token.isdigit() else _UNREADABLE
        consumer = self._consumer
        if self._through and self._settles_many(sseq, subject, payload):
            self._settle_most(sseq, subject, token, reply, payload)
            return
        if payload in PLAIN:
            if self._simple and not consumer.state.redelivered and not consumer.redelivery.queued:
                if consumer.state.pending.pop(sseq, None) is not None:
                    consumer.log.acked.append(sseq)
                elif 0 < sseq <= consumer.undelivered.position:
                    consumer.record_ack()
            else:
                self._ack(sseq, subject)
        elif self._act(sseq, subject, reply, parse_ack_payload(payload)):
            return
        if reply and (sseq <= consumer.state.delivered_sseq or (sseq and not payload.startswith(TERM) and payload)):
            consumer.answers.append(reply)
        if not consumer.scheduled:
            consumer.schedule()

    def handle_run(self, run: PublishRun) -> bool:
        """Handle acks without an answer together, or in steps; False if each has to be looked at by itself."""
        if self._percent and self._policy is AckPolicy.EXPLICIT:
            self._consumer.stream.work.begin(self._sampling([*run.ops()]))
            return True
        return self._handle_plain(run.acked())

    def _handle_plain(self, seqs: Sequence[int]) -> bool:
        consumer = self._consumer
        if not self._simple or consumer.state.redelivered or consumer.redelivery.queued:
            return False
        pop, log, position = consumer.state.pending.pop, consumer.log, consumer.undelivered.position
        for sseq in seqs:
            if pop(sseq, None) is not None:
                log.acked.append(sseq)
            elif 0 < sseq <= position:
                consumer.record_ack()
        if not consumer.scheduled:
            consumer.schedule()
        return True

    def _sampling(self, acks: Sequence[Op]) -> Steps[None]:
        """Handle acks with a metric for each; messages and acks of the stream wait meanwhile."""
        self._consumer.stream.work.shut()
        for _, subject, reply, _, payload in acks:
            self.handle(subject, subject.split(b".", _SSEQ_TOKEN + 1)[_SSEQ_TOKEN], reply, payload)
            yield METRIC_COST

    def _ack(self, sseq: int, subject: bytes) -> None:
        state = self._consumer.state
        if self._policy is AckPolicy.NONE or sseq > state.delivered_sseq:
            return
        if self._percent and self._policy is AckPolicy.EXPLICIT and sseq in state.pending:
            self._sample(sseq, *_numbers(subject))
        self._settle(sseq, _numbers(subject)[1])

    def _settles_many(self, sseq: int, subject: bytes, payload: bytes) -> bool:
        """Return whether an ack with policy `all` reaches over more messages than one step may look at."""
        state = self._consumer.state
        order = state.order
        if len(order) <= STEP or not order[STEP] < sseq <= state.delivered_sseq or self._consumer.stopped:
            return False
        return _numbers(subject)[1] > state.floor_cseq and (payload in PLAIN or payload.startswith((NEXT, TERM)))

    def _settle_most(self, sseq: int, subject: bytes, token: bytes, reply: bytes, payload: bytes) -> None:
        """Handle an ack after nearly all of its messages have been acknowledged in steps."""
        self._consumer.stream.work.begin(
            self._settling_most(sseq), lambda _: self.handle(subject, token, reply, payload)
        )

    def _settling_most(self, sseq: int) -> Steps[None]:
        """Acknowledge all but the last few messages below `sseq`, in steps, as several acks of clients would."""
        self._consumer.stream.work.shut()
        state = self._consumer.state
        order, pending = state.order, state.pending
        while len(order) > STEP and order[STEP] < sseq:
            upto = next((seq for seq in reversed([*islice(order, STEP)]) if seq in pending), 0)
            if upto:
                self._drop_through(upto, max(pending[upto][0], state.floor_cseq))
            else:
                state.pass_over(order[STEP])
            yield STEP

    def through(self, sseq: int, cseq: int) -> None:
        """Acknowledge everything delivered up to `sseq` (consumer sequence `cseq`)."""
        state = self._consumer.state
        if cseq > state.floor_cseq and sseq > state.floor_sseq:
            self._drop_through(sseq, cseq)

    def _drop_through(self, sseq: int, cseq: int) -> None:
        consumer, state = self._consumer, self._consumer.state
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
        """Handle a payload other than a plain ack; return whether the reply subject gets messages and no answer."""
        consumer, state = self._consumer, self._consumer.state
        if ack.kind is AckKind.NEXT:
            self._ack(sseq, subject)
            if isinstance(consumer.delivery, PullDelivery):
                consumer.delivery.request(reply, ack.request)
            else:
                consumer.delivery.on_request(b"", reply, b"", b"", None)
            if not consumer.scheduled:
                consumer.schedule()
            return True
        deliveries, cseq = _numbers(subject)
        if ack.kind is AckKind.TERM:
            consumer.events.terminated(sseq, cseq, deliveries, ack.reason)
            self._settle(sseq, cseq)
        elif sseq not in state.pending:
            return False
        elif ack.kind is AckKind.NAK:
            if state.floor_cseq < cseq <= state.delivered_cseq + 1:
                consumer.retry.nak(sseq, cseq, deliveries, ack.delay_ns)
        elif ack.kind is AckKind.PROGRESS:
            consumer.retry.delay(sseq, 0)
        return False

    def _settle(self, sseq: int, cseq: int) -> None:
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
            consumer.record_ack()
            if consumer.stream.retention.removes:
                consumer.stream.retention.acked((sseq,))
        elif self._policy is AckPolicy.EXPLICIT and 0 < sseq <= consumer.undelivered.position:
            consumer.record_ack()  # too late to change anything but the time of the last ack

    def _sample(self, sseq: int, deliveries: int, cseq: int) -> None:
        consumer = self._consumer
        if self._percent >= 100 or consumer.engine.rng.random() * 100 < self._percent:
            since = consumer.now_ns() - consumer.state.pending[sseq][1]
            consumer.events.sample(sseq, cseq, deliveries, since)


def _numbers(subject: bytes) -> tuple[int, int]:
    """Return the delivery count and the consumer sequence in an ack subject, 0 for a token that is not a number."""
    tokens = subject.split(b".", _SSEQ_TOKEN + 2)
    deliveries, cseq = tokens[_SSEQ_TOKEN - 1], tokens[_SSEQ_TOKEN + 1]
    return int(deliveries) if deliveries.isdigit() else 0, int(cseq) if cseq.isdigit() else 0
