"""Interest and work queue retention: the removal of acknowledged messages, and the consumers that take a subject.

Theory of operation. A work queue message is removed when it is acknowledged. An interest message is not stored if no
consumer's filter takes its subject, and is removed when the last consumer that takes it has acknowledged it. When a
consumer is deleted, messages that no other consumer needs are removed by a sweep, some of them in each turn of the
ready queue. Acks are journaled and removals recorded independently of each other: after a crash, a removal without its
ack leaves a consumer that waits for a missing message and forgets it; an ack without its removal leaves a message that
the sweep after recovery removes.

The consumers that take a subject are found by `interest`. A consumer that no longer waits for a message will not wait
for it again, so the consumers are checked in turn and `_checked` has the index of the first that may wait: over all its
acks a message costs one check per consumer, not one per consumer and ack.

`Interest` keeps consumers without filters apart: they take everything. The others are in an index of their filters.
The filters of a consumer are claimed in steps before it is created, and removed in steps after it is deleted.
The consumers of a subject are cached until a consumer is added, deleted or changes its filters; the cache has a limit.
A consumer's own filters do not overlap, so none is found twice. A commit counts its messages by subject and passes to
each of many consumers how many it takes: a consumer that takes none costs nothing. If that is
long work, all consumers are `late` instead: each counts in a later turn, or before it looks at its messages.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from natsctl.api.consumer_config import filters_of
from natsctl.api.stream import RetentionPolicy
from natsctl.api.subject_index import SubjectIndex, cost_of, subject_pieces
from natsctl.jetstream.claims import Claim
from natsctl.store.filters import ALL, Filters
from natsctl.store.steps import STEP, Steps, pieces

if TYPE_CHECKING:
    from natsctl.api.consumer import ConsumerConfig
    from natsctl.broker.deferred_work import LongWork
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.errors import StoreError


MAX_KNOWN: Final = 16_384
"""Limit of the cache, in subjects plus their consumers; it is cleared when there are more."""

FEW: Final = 16
"""Max number of consumers that each receive every message: finding the matching ones would cost more."""

MANY: Final = 2048
"""Max number of pairs of a subject and a consumer that a commit announces at once: about two milliseconds."""
LATE_COST: Final = 4
"""Cost of a late consumer in a turn's budget, in messages."""

Consumers = tuple["Consumer", ...]
Stored = tuple[int, bytes]
"""(sequence, subject)"""


class FilterClaim(Claim):
    """The filters of a consumer, or of one that is about to be created or changed."""

    __slots__ = ("consumer", "filters")

    def __init__(self, filters: Filters) -> None:
        super().__init__()
        self.filters = filters
        self.consumer: Consumer | None = None


class Interest:
    __slots__ = (
        "_claims", "_known", "_known_size", "_long_work", "_patterns", "_unfiltered", "_unfiltered_listed", "late",
    )  # fmt: skip

    def __init__(self, long_work: LongWork) -> None:
        """Keep an empty index; many filters are removed from it by `long_work`."""
        self.late: OrderedDict[Consumer, None] = OrderedDict()
        """Consumers that are still to count the newest messages (`Consumer.catch_up`)."""
        self._unfiltered: dict[Consumer, None] = {}
        self._unfiltered_listed: Consumers | None = None
        self._claims: dict[Consumer, FilterClaim] = {}
        self._patterns: SubjectIndex[FilterClaim] = SubjectIndex()
        self._known: dict[bytes, Consumers] = {}
        self._known_size = 0
        self._long_work = long_work

    def __len__(self) -> int:
        return len(self._claims)

    def claiming(self, config: ConsumerConfig) -> Steps[FilterClaim]:
        return self._claiming(filters_of(config))

    def _claiming(self, subjects: Sequence[str]) -> Steps[FilterClaim]:
        claim = FilterClaim((yield from Filters.compiling(subjects)))
        for piece in subject_pieces(claim.filters.subjects):
            for subject in piece:
                self._patterns.add(subject, claim)
            claim.subjects += piece
            yield sum(map(cost_of, piece))
        return claim

    def unclaim(self, claim: FilterClaim) -> None:
        if claim.consumer is None:
            claim.end(self._patterns, self._long_work)

    def add(self, consumer: Consumer, claim: FilterClaim | None = None) -> bool:
        """Add a consumer or update its already claimed filters; return whether they have changed."""
        filters, before = consumer.filters, self._claims.get(consumer)
        if before is not None and before.filters == filters:
            return False
        self.remove(consumer)
        if claim is None or claim.filters is not filters:
            claim = FilterClaim(filters)
            for subject in filters.subjects:
                self._patterns.add(subject, claim)
            claim.subjects += filters.subjects
        claim.consumer = consumer
        self._claims[consumer] = claim
        if filters.everything:
            self._unfiltered[consumer] = None
        return True

    def remove(self, consumer: Consumer) -> None:
        self._known.clear()
        self._known_size, self._unfiltered_listed = 0, None
        self._unfiltered.pop(consumer, None)
        self.late.pop(consumer, None)
        claim = self._claims.pop(consumer, None)
        if claim is not None:
            claim.consumer = None
            self.unclaim(claim)

    def consumers_of(self, subject: bytes) -> Consumers:
        filtering = self._filtering(subject)
        if not self._unfiltered:
            return filtering
        if self._unfiltered_listed is None:
            self._unfiltered_listed = tuple(self._unfiltered)
        return (*self._unfiltered_listed, *filtering) if filtering else self._unfiltered_listed

    def overlapping(self, patterns: Sequence[bytes]) -> Steps[dict[Consumer, None]]:
        found = dict(self._unfiltered)
        cost = 0
        for pattern in patterns:
            cost += cost_of(pattern)
            for claims in self._patterns.meeting(pattern):
                found |= dict.fromkeys([claim.consumer for claim in claims if claim.consumer is not None])
                cost += self._patterns.take_cost()
                if cost >= STEP:
                    yield cost
                    cost = 0
        return found

    def _filtering(self, subject: bytes) -> Consumers:
        known = self._known.get(subject)
        if known is None:
            if self._known_size > MAX_KNOWN:
                self._known.clear()
                self._known_size = 0
            known = self._known[subject] = tuple(
                [claim.consumer for claim in self._patterns.matching(subject) if claim.consumer is not None]
            )
            self._known_size += len(known) + 1
        return known

    def announce(self, stored: Sequence[Stored]) -> bool:
        """Pass messages that became durable, ascending and at least one, to the consumers that take them.

        Return False if consumers are `late` instead.
        """
        if len(self._claims) <= FEW and not self.late:
            for consumer in tuple(self._claims):
                consumer.on_messages(stored)
            return True
        pairs = MANY if self.late else len(self._unfiltered)
        takers: list[tuple[Consumers, int]] = []
        for subject, number in Counter([subject for _, subject in stored]).items():
            takers.append((self._filtering(subject), number))
            pairs += 1 + len(takers[-1][0])
            if pairs > MANY:
                self.late.update(dict.fromkeys(self._claims))
                return False
        for consumer in tuple(self._unfiltered):
            consumer.on_messages(stored)
        numbers: dict[Consumer, int] = {}
        for consumers, number in takers:
            for consumer in consumers:
                numbers[consumer] = numbers.get(consumer, 0) + number
        for consumer, number in numbers.items():
            consumer.on_own_messages(stored, number)
        return True

    def run(self, budget: int) -> int:
        """Let late consumers count."""
        cost = 0
        while self.late and cost < budget:
            next(iter(self.late)).catch_up()
            cost += LATE_COST
        return cost


AT_ONCE: Final = 100_000
"""Max number of sequences that an update to interest retention examines before its answer."""

SWEEP_BATCH: Final = 256
"""Messages that a sweep examines in one turn of the ready queue."""

CHECKED_SLACK: Final = 65_536
"""Entries of `_checked` beyond twice the number of messages before entries of removed messages are dropped."""


class Retention:
    __slots__ = ("_checked", "_stream", "_sweep_end", "_sweep_seq", "by_interest", "interest", "removes")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._checked: dict[int, int] = {}
        self._sweep_seq = 0
        self._sweep_end = 0
        self.interest = Interest(stream.engine.broker.long_work)
        self.by_interest = False
        """True if messages without an interested consumer are not kept."""
        self.removes = False
        """True if acknowledged messages are removed."""

    def configure(self) -> None:
        policy = self._stream.config.retention
        self.removes = policy is not RetentionPolicy.LIMITS
        self.by_interest = policy is RetentionPolicy.INTEREST

    def stop(self) -> None:
        self.removes, self._sweep_seq = False, 0
        self.interest.late.clear()

    def announce(self, stored: Sequence[Stored]) -> None:
        """Pass messages that became durable to the consumers, in later turns if that is long work."""
        if not self.interest.announce(stored):
            self._stream.engine.ready(self)

    def recovered(self) -> None:
        """Sweep messages that were acknowledged before a crash and not yet removed."""
        for consumer in self._stream.consumers.values():
            self.interest.add(consumer)
        if self.removes and (len(self.interest) or self.by_interest):
            self._start_sweep()

    # Changes of consumers

    def consumer_added(self, consumer: Consumer, claim: FilterClaim | None = None) -> None:
        """Record a new consumer; no message is removed because of it."""
        self.interest.add(consumer, claim)
        self._checked.clear()

    def consumer_updated(self, consumer: Consumer, claim: FilterClaim | None = None) -> None:
        """Record a consumer's new configuration, possibly with other filters."""
        if self.interest.add(consumer, claim):
            self._reconsider(consumer.state.floor().stream_seq + 1)

    def consumer_deleted(self, consumer: Consumer) -> None:
        """Remove a deleted consumer, and messages that no other consumer needs."""
        self.interest.remove(consumer)
        self._reconsider(consumer.state.floor().stream_seq + 1)

    def consumer_reset(self) -> None:
        """Record that a consumer waits for acknowledged messages again."""
        self._checked.clear()

    def applying(self) -> Steps[None]:
        """Remove acknowledged messages after a change of policy: before the answer, or by a sweep if there are many.

        Messages that no consumer takes stay, as with nats-server, unless there are no consumers at all.
        """
        store = self._stream.store
        if self.by_interest and not len(self.interest) and store.messages:
            yield from self._stream.purging()
        if not self.by_interest or not len(self.interest) or store.last_seq - store.first_seq > AT_ONCE:
            self._reconsider(1)
            return
        seq, looked = store.next_seq(ALL, 1), 0
        while seq:
            consumers = self.interest.consumers_of(store.subject_of(seq) or b"")
            if consumers and not self._is_wanted(seq, consumers):
                self._remove(seq)
            seq, looked = store.next_seq(ALL, seq + 1), looked + 1
            if not looked % SWEEP_BATCH:
                yield STEP

    def _reconsider(self, from_seq: int) -> None:
        """Sweep messages from `from_seq` on that no consumer needs any more; earlier ones are not affected."""
        self._checked.clear()
        if not self.by_interest:
            return
        if len(self.interest):
            self._start_sweep(from_seq)
        elif self._stream.store.messages:
            self._stream.work.begin(self._stream.purging())

    # Interest

    def refuses(self, subject: bytes) -> bool:
        """Return whether a message on `subject` is not kept because no consumer would take it."""
        return self.by_interest and not self.interest.consumers_of(subject)

    # Acks

    def acked(self, seqs: Iterable[int]) -> None:
        """Remove messages that a consumer has acknowledged and no other waits for; it has dropped them as pending."""
        if not self._stream.store.healthy:
            return
        acked = list(seqs)
        if len(acked) > STEP:
            self._stream.work.begin(self._removing(acked))
        else:
            self._remove_unwanted(acked)

    def _removing(self, acked: Sequence[int]) -> Steps[None]:
        self._stream.work.shut()
        for piece in pieces(acked):
            self._remove_unwanted(piece)
            yield STEP

    def _remove_unwanted(self, seqs: Iterable[int]) -> None:
        store = self._stream.store
        for seq in seqs:
            subject = store.subject_of(seq)
            if subject is not None and not self._is_wanted(seq, self.interest.consumers_of(subject)):
                self._remove(seq)
        self._stream.count_bytes()

    def _is_wanted(self, seq: int, consumers: Consumers) -> bool:
        if len(consumers) == 1:
            return _wants(consumers[0], seq)
        at = self._checked.get(seq, 0)
        while at < len(consumers) and not _wants(consumers[at], seq):
            at += 1
        if at == len(consumers):
            self._checked.pop(seq, None)
            return False
        if at:
            self._checked[seq] = at
            self._drop_removed()
        return True

    def _drop_removed(self) -> None:
        if len(self._checked) > 2 * self._stream.store.messages + CHECKED_SLACK:
            holds = self._stream.store.holds
            self._checked = {seq: at for seq, at in self._checked.items() if holds(seq)}

    def _remove(self, seq: int) -> None:
        """Remove a message; consumers are not informed, because none counts it any more."""
        store = self._stream.store
        gone = store.drop_first() if seq == store.first_seq and store.messages else store.remove(seq)
        if gone is not None:
            self._stream.dedupe.message_gone(seq)

    # The sweep

    def _start_sweep(self, from_seq: int = 1) -> None:
        self._sweep_end = self._stream.store.last_seq
        if from_seq <= self._sweep_end:
            self._sweep_seq = min(self._sweep_seq or from_seq, from_seq)
            self._stream.engine.ready(self)

    def _go_on(self, fault: StoreError | None) -> None:
        """Continue a sweep that waited for messages to become durable, unless the store could not keep them."""
        if fault is not None:
            self._sweep_seq = 0
        elif self._sweep_seq:
            self._stream.engine.ready(self)

    def run(self, budget: int) -> int:
        """Let late consumers count; examine the next messages of a sweep, and remove messages that nobody needs."""
        if self._stream.work.defers(self):
            return 0
        cost = self.interest.run(min(budget, STEP))
        if self.interest.late:
            self._stream.engine.ready(self)
        return cost + self._sweep(budget)

    def _sweep(self, budget: int) -> int:
        store = self._stream.store
        if not self._sweep_seq or not self.removes or not store.healthy:
            self._sweep_seq = 0
            return 0
        for looked in range(min(budget, SWEEP_BATCH)):
            seq = store.next_seq(ALL, self._sweep_seq)
            if not seq:
                if store.durable_seq < self._sweep_end:
                    store.on_settled(self._go_on)
                else:
                    self._sweep_seq = 0
                self._stream.count_bytes()
                return looked
            if self._is_spent(seq):
                self._remove(seq)
            self._sweep_seq = seq + 1
        self._stream.engine.ready(self)
        self._stream.count_bytes()
        return min(budget, SWEEP_BATCH)

    def _is_spent(self, seq: int) -> bool:
        """Return whether a message is to be removed; one that reached a consumer's `max_deliver` stays."""
        consumers = self.interest.consumers_of(self._stream.store.subject_of(seq) or b"")
        if not consumers:
            return self.by_interest
        return not self._is_wanted(seq, consumers)


def _wants(consumer: Consumer, seq: int) -> bool:
    """Return whether a consumer has yet to acknowledge a message of a subject that it takes.

    One that reached `max_deliver` counts as not acknowledged: it is no longer pending, but still in `redelivered`.
    """
    state = consumer.state
    return seq > state.delivered_sseq or seq in state.pending or seq in state.redelivered
