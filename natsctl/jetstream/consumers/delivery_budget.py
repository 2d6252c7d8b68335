"""The messages that a consumer may deliver now: how many, how fast, and in which form.

Bounds are max_ack_pending, the bytes one read returns, what the client has not read yet, and for replay `original` the
rhythm in which the messages were stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from natsctl.api.consumer import ReplayPolicy
from natsctl.jetstream.alarm import Alarm
from natsctl.jetstream.consumers.flow import Replay, headers_only

if TYPE_CHECKING:
    from natsctl.broker.delivery import Delivery
    from natsctl.jetstream.consumers.consumer_context import ConsumerContext
    from natsctl.store.message import StoredMessage

UNLIMITED: Final = 1 << 62

FIRST_READ: Final = 16
"""Messages of the first read, before anything is known about their size."""

READ_BYTES: Final = 4 << 20
"""Bytes of messages that one read from the store is meant to return."""

MAX_UNWRITTEN_BYTES: Final = 8 << 20
"""Unread bytes of a client at which deliveries to it wait: far below the broker's limit (max_pending)."""

CONGESTION_LOOK_NS: Final = 5_000_000
"""Time until a client with too many unread bytes is checked again."""


class DeliveryBudget:
    """The messages that one consumer may deliver."""

    __slots__ = ("_consumer", "_fit", "_pace", "_replay")

    def __init__(self, consumer: ConsumerContext) -> None:
        self._consumer = consumer
        self._fit = FIRST_READ
        self._pace = Alarm(consumer.engine.timers, consumer.schedule)
        self._replay: Replay | None = None
        if consumer.config.replay_policy is ReplayPolicy.ORIGINAL:
            self._replay = Replay(consumer.stream.store.last_seq)

    def stop(self) -> None:
        """Cancel the timer."""
        self._pace.cancel()

    def room(self) -> int:
        """Return how many more messages may wait for acks."""
        consumer = self._consumer
        if not consumer.needs_ack or consumer.config.max_ack_pending <= 0:
            return UNLIMITED
        return max(consumer.config.max_ack_pending - len(consumer.state.pending), 0)

    def pacing(self) -> bool:
        """Return whether replay or a client's unread bytes hold back available messages."""
        return self._pace.armed

    def congested(self, to: bytes) -> bool:
        """Return whether a client on `to` has too many unread bytes; then the consumer checks again a little later."""
        consumer = self._consumer
        if consumer.account.unwritten_bytes(to) <= MAX_UNWRITTEN_BYTES:
            return False
        self._pace.no_later_than(consumer.engine.clock.monotonic_ns() + CONGESTION_LOOK_NS)
        return True

    def deliveries(self, messages: Sequence[StoredMessage]) -> list[Delivery]:
        """Return first deliveries of `messages`, whose ack subjects count on from here."""
        consumer = self._consumer
        form, cseq, left = consumer.ack_form, consumer.state.delivered_cseq, consumer.undelivered.pending
        if consumer.config.headers_only:
            return [
                (subject, form % (1, seq, cseq + i, ts_ns, left - i), *headers_only(header, payload))
                for i, (seq, ts_ns, subject, header, payload) in enumerate(messages, 1)
            ]
        return [
            (subject, form % (1, seq, cseq + i, ts_ns, left - i), header, payload)
            for i, (seq, ts_ns, subject, header, payload) in enumerate(messages, 1)
        ]

    def take(self, limit: int) -> Sequence[StoredMessage]:
        """Return up to `limit` new messages to deliver now."""
        replay = self._replay
        if replay is None or limit <= 0:
            messages = self._consumer.undelivered.take(min(limit, self._fit))
            if messages:
                self._fit = max(READ_BYTES // (len(messages[-1].payload) + 1), 1)
            return messages
        messages = self._consumer.undelivered.take(1)
        if messages:
            now_ns = self._consumer.engine.clock.monotonic_ns()
            wait_ns = replay.wait_ns(messages[0].seq, messages[0].ts_ns, now_ns)
            if wait_ns:
                self._pace.no_later_than(now_ns + wait_ns)
                return ()
            replay.sent(messages[0].ts_ns, now_ns)
        return messages
