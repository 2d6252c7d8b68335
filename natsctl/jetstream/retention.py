"""When a message may go before any limit says so: interest and workqueue retention.

Theory of operation. A workqueue message goes when it is acknowledged. An interest message is not even kept when no
consumer's filter takes its subject, and goes when the last consumer that wanted it has acknowledged it; a consumer that
goes takes its interest with it, so that what is left is swept then, some messages per turn of the ready queue. Acks are
journaled and removals recorded independently of each other: a removal without its ack leaves a consumer that misses a
message and forgets it; an ack without its removal leaves a message that the sweep after recovery finds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from natsctl.api.stream import RetentionPolicy
from natsctl.jetstream.consumer_config import filters_of
from natsctl.store.filters import Filters

if TYPE_CHECKING:
    from natsctl.jetstream.consumer import Consumer
    from natsctl.jetstream.stream import Stream

MAX_KNOWN_SUBJECTS: Final = 8192
"""Subjects whose interest is remembered; the memory is emptied when full."""

SWEEP_BATCH: Final = 256
"""Messages looked at together."""


class Retention:
    """The retention policy of one stream."""

    __slots__ = ("_filters", "_interest", "_known", "_stream", "_sweep_end", "_sweep_seq", "removes")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._interest = False
        self._filters: dict[Consumer, Filters] = {}
        self._known: dict[bytes, bool] = {}
        self._sweep_seq = 0
        self._sweep_end = 0
        self.removes = False
        """Whether acknowledged messages go."""

    def configure(self) -> None:
        """Take the policy from the configuration."""
        policy = self._stream.config.retention
        self.removes = policy is not RetentionPolicy.LIMITS
        self._interest = policy is RetentionPolicy.INTEREST

    def recovered(self) -> None:
        """Sweep what was acknowledged before a crash and not yet removed."""
        if self.removes:
            self._filters = {c: _filters_of(c) for c in self._stream.consumers.values()}
            if self._filters or self._interest:
                self._start_sweep()

    def consumers_changed(self) -> None:
        """Take note that a consumer came, went or changed what it takes."""
        if self.removes:
            self._filters = {c: _filters_of(c) for c in self._stream.consumers.values()}
            self._known.clear()
            if self._interest and self._filters:
                self._start_sweep()
            elif self._interest and self._stream.store.messages:
                self._stream.purge()

    # Interest

    def refuses(self, subject: bytes) -> bool:
        """Tell whether a message on `subject` is not kept because no consumer would take it."""
        if not self._interest:
            return False
        known = self._known.get(subject)
        if known is None:
            if len(self._known) >= MAX_KNOWN_SUBJECTS:
                self._known.clear()
            known = self._known[subject] = any(filters.matches(subject) for filters in self._filters.values())
        return not known

    # Acks

    def acked(self, seqs: Iterable[int]) -> None:
        """Remove acknowledged messages that nobody waits for any more; the acker has forgotten them already."""
        if not self._stream.store.healthy:
            return
        alone = not self._interest or len(self._stream.consumers) == 1
        for seq in seqs:
            if alone or not self._is_wanted(seq):
                self._remove(seq)
        self._stream.count_bytes()

    def _is_wanted(self, seq: int) -> bool:
        message = self._stream.store.get(seq)
        return message is not None and self._wants(seq, message.subject)

    def _wants(self, seq: int, subject: bytes) -> bool:
        """Tell whether a consumer has yet to acknowledge a message."""
        for consumer, filters in self._filters.items():
            state = consumer.state
            waits = seq > state.delivered_sseq or seq in state.pending or seq in state.redelivered
            if waits and filters.matches(subject):
                return True
        return False

    def _remove(self, seq: int) -> None:
        """Take a message out; no consumer has to be told, because none counts it any more."""
        store = self._stream.store
        gone = store.drop_first() if seq == store.first_seq and store.messages else store.remove(seq)
        if gone is not None:
            self._stream.dedupe.message_gone(seq)

    # The sweep

    def _start_sweep(self) -> None:
        self._sweep_seq, self._sweep_end = 1, self._stream.store.last_seq
        self._stream.engine.ready(self)

    def committed(self) -> None:
        """Go on with a sweep that waited for messages to become durable."""
        if self._sweep_seq:
            self._stream.engine.ready(self)

    def run(self, budget: int) -> int:
        """Look at the next messages of a sweep and remove those that nobody waits for."""
        store = self._stream.store
        if not self._sweep_seq or not self.removes or not store.healthy:
            self._sweep_seq = 0
            return 0
        messages = store.read_from(self._sweep_seq, max_msgs=min(budget, SWEEP_BATCH))
        for message in messages:
            if self._is_spent(message.seq, message.subject):
                self._remove(message.seq)
        if messages:
            self._sweep_seq = messages[-1].seq + 1
            self._stream.engine.ready(self)
        elif store.durable_seq >= self._sweep_end:
            self._sweep_seq = 0
        return len(messages)

    def _is_spent(self, seq: int, subject: bytes) -> bool:
        """Tell whether a message has no further use; one that some consumer gave up stays."""
        takers = [consumer for consumer, filters in self._filters.items() if filters.matches(subject)]
        if not takers:
            return self._interest
        if any(consumer.config.max_deliver == 1 and consumer.needs_ack for consumer in takers):
            return False  # what was given up after one delivery leaves no trace that tells it from an acknowledged one
        return not self._wants(seq, subject)


def _filters_of(consumer: Consumer) -> Filters:
    return Filters([subject.encode() for subject in filters_of(consumer.config)])
