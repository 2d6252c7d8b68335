"""A consumer: a durable position in a stream, and the delivery of the messages after it.

Theory of operation. The parts are: `state` (survives a crash), `log` (its changes since the last journal
record), `undelivered` (read position and num_pending), `redelivery` (deadlines and queue of redeliveries), `delivery`
(pull or push), `acks`, and `lifetime` (pause_until and the inactive threshold). Every event that may permit a delivery
(messages became durable, a request or interest came, an ack made room, a deadline passed) only puts the consumer into
the engine's ready queue, once. The engine calls `run` at most once per turn; it delivers a bounded number of
messages, then writes one journal record for everything that changed in the turn. Double acks are answered by the commit
that makes that record durable.

Stored times (deliveries, acks) come from `now_ns`: wall clock at start plus the time of the monotonic clock since then,
so that a jump of the wall clock neither holds back nor hastens redelivery.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Final

from natsctl.api import acks as ack_subjects
from natsctl.api import consumer_config as rules
from natsctl.api.consumer import AckPolicy, ConsumerConfig, ConsumerInfo, SequenceInfo
from natsctl.api.consumer_config import pause_until_ns
from natsctl.api.subjects import FC_PREFIX
from natsctl.api.times import format_time
from natsctl.jetstream.advisories import ConsumerAdvisories, nuid
from natsctl.jetstream.consumers.consumer_acks import Acks
from natsctl.jetstream.consumers.consumer_position import after_purge, first_state
from natsctl.jetstream.consumers.consumer_state import ChangeLog, ConsumerState
from natsctl.jetstream.consumers.delivery_budget import DeliveryBudget
from natsctl.jetstream.consumers.pending import Undelivered
from natsctl.jetstream.consumers.priority_groups import group_states
from natsctl.jetstream.consumers.pull import PullDelivery
from natsctl.jetstream.consumers.push import PushDelivery
from natsctl.jetstream.consumers.redelivery import GONE, Retry
from natsctl.jetstream.timers import Alarm
from natsctl.store.filters import ALL, Filters
from natsctl.store.steps import Steps, finish, pieces

if TYPE_CHECKING:
    from natsctl.broker.account import Account
    from natsctl.broker.subscription import Subscription
    from natsctl.jetstream.consumers.consumer_set import ConsumerSet
    from natsctl.jetstream.engine import Engine
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.errors import StoreError


_JITTER_MIN_NS: Final = 100_000_000
_JITTER_SPAN_NS: Final = 900_000_000
"""Added to the threshold of a pull consumer: its next request may be on its way."""


class Lifetime:
    __slots__ = ("_consumer", "_inactivity", "_pause", "_threshold_ns", "paused")

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._inactivity = Alarm(consumer.engine.timers, self._on_inactivity)
        self._pause = Alarm(consumer.engine.timers, self._on_pause_end)
        self._threshold_ns = 0
        self.paused = False

    def configure(self, threshold: bool = True) -> None:
        """With `threshold`, take the inactive threshold from the configuration; it counts from now."""
        if not threshold:
            return
        consumer = self._consumer
        self._inactivity.cancel()
        self._threshold_ns = consumer.config.inactive_threshold
        if self._threshold_ns > 0:
            if not consumer.config.deliver_subject:
                self._threshold_ns += int(_JITTER_MIN_NS + consumer.engine.rng.random() * _JITTER_SPAN_NS)
            consumer.delivery.idle_since_ns = consumer.engine.clock.monotonic_ns()
            self.watch()

    def stop(self) -> None:
        self._pause.cancel()
        self._inactivity.cancel()

    def used(self) -> None:
        if self._threshold_ns > 0:
            self._consumer.delivery.idle_since_ns = self._consumer.engine.clock.monotonic_ns()

    def pause_remaining_ns(self) -> int:
        return max(pause_until_ns(self._consumer.config) - self._consumer.engine.clock.now_ns(), 0)

    def apply_pause(self) -> None:
        consumer = self._consumer
        remaining_ns = self.pause_remaining_ns()
        self.paused = remaining_ns > 0
        self._pause.cancel()
        if self.paused:
            self._pause.no_later_than(consumer.engine.clock.monotonic_ns() + remaining_ns)
        else:
            consumer.schedule()

    def advise_pause(self) -> None:
        """Publish that the consumer is paused, if it is: each creation and change by a create request does so."""
        if self.paused:
            self._consumer.events.paused(True)

    def watch(self) -> None:
        """Check again once the consumer was not used for its threshold."""
        if self._threshold_ns > 0 and not self._consumer.stopped:
            self._inactivity.no_later_than(self._consumer.delivery.idle_since_ns + self._threshold_ns)

    def _on_inactivity(self) -> None:
        """End the consumer, unless it was used since the alarm was armed or acks may still be on their way."""
        consumer = self._consumer
        now_ns = consumer.engine.clock.monotonic_ns()
        pull = not consumer.config.deliver_subject
        if isinstance(consumer.delivery, PullDelivery) and consumer.delivery.prune():
            self._inactivity.no_later_than(now_ns)
        elif consumer.delivery.active():
            if pull:
                self._inactivity.no_later_than(now_ns + self._threshold_ns)
        elif consumer.delivery.idle_since_ns + self._threshold_ns > now_ns:
            self.watch()
        elif pull:
            consumer.stream.work.begin(self._finding_last_wait(), self._on_idle)
        else:
            consumer.journal.expired(consumer)

    def _finding_last_wait(self) -> Steps[int]:
        """Return the deadline of the last outstanding ack, 0 for none."""
        consumer, last_ns = self._consumer, 0
        for piece in pieces([*consumer.state.pending]):
            waits = (consumer.redelivery.deadline(seq) for seq in piece if seq in consumer.state.pending)
            last_ns = max(last_ns, *waits, 0)
            yield len(piece)
        return last_ns

    def _on_idle(self, last_ns: int) -> None:
        """End a pull consumer unless outstanding acks keep it alive. Source: nats-server, consumer.go."""
        consumer = self._consumer
        wait_ns = last_ns + self._threshold_ns - consumer.now_ns() if last_ns else 0
        if consumer.stopped:
            return
        if wait_ns > 0:
            self._inactivity.no_later_than(consumer.engine.clock.monotonic_ns() + wait_ns)
        elif consumer.delivery.idle_since_ns + self._threshold_ns > consumer.engine.clock.monotonic_ns():
            self.watch()
        else:
            consumer.journal.expired(consumer)

    def _on_pause_end(self) -> None:
        if not self._consumer.stopped:
            self.apply_pause()
            self._consumer.events.paused(self.paused)


RUN_MESSAGES: Final = 512
"""Messages one consumer may deliver per turn, so that none starves the others."""

CONSUMER_COST: Final = 16
"""Cost of counting for one consumer in a job, in messages that are examined one by one (`store.steps`)."""

_FC_NAME: Final = 8


def _filters_of(config: ConsumerConfig) -> Filters:
    return Filters([subject.encode() for subject in rules.filters_of(config)])


class Consumer:
    __slots__ = (
        "_flow_answers",
        "_offset_ns",
        "account",
        "ack_form",
        "ack_prefix",
        "acks",
        "answers",
        "budget",
        "config",
        "created_ns",
        "delivery",
        "engine",
        "events",
        "filters",
        "held",
        "journal",
        "lifetime",
        "log",
        "name",
        "needs_ack",
        "number",
        "redelivery",
        "retry",
        "scheduled",
        "state",
        "stopped",
        "stream",
        "undelivered",
    )

    def __init__(
        self,
        stream: Stream,
        name: str,
        config: ConsumerConfig,
        created_ns: int,
        journal: ConsumerSet,
        state: ConsumerState | None = None,
        number: int = 0,
        filters: Filters | None = None,
    ) -> None:
        """Create a consumer that does nothing before `start`; without a state it begins at its deliver policy."""
        self.stream = stream
        self.engine: Engine = stream.engine
        self.account: Account = stream.account
        self.name: str = name
        self.config: ConsumerConfig = config
        self.created_ns: int = created_ns
        self.number: int = number
        self.journal = journal
        clock = self.engine.clock
        self._offset_ns = clock.now_ns() - clock.monotonic_ns()
        self.filters: Filters = filters or _filters_of(config)
        one_per_subject = stream.config.max_msgs_per_subject == 1
        self.state: ConsumerState = state or first_state(stream.store, config, self.filters, one_per_subject)
        self.log = ChangeLog()
        self.answers: list[bytes] = []
        self.events = ConsumerAdvisories(self)
        self.ack_prefix = ack_subjects.prefix(stream.name.encode(), name.encode())
        self.ack_form = self.ack_prefix.replace(b"%", b"%%") + b"%d.%d.%d.%d.%d"
        self.needs_ack = rules.needs_ack(config)
        self.scheduled = self.stopped = self.held = False
        self._flow_answers: Subscription | None = None
        self.retry = Retry(self, self._offset_ns)
        self.redelivery = self.retry.redelivery
        self.undelivered = Undelivered(stream.store, self.filters, self.filters.everything, self.state)
        self.budget = DeliveryBudget(self)
        self.acks = Acks(self)
        self.lifetime = Lifetime(self)
        self.delivery: PullDelivery | PushDelivery
        self.delivery = PushDelivery(self) if config.deliver_subject else PullDelivery(self)

    # Life

    def start(self) -> None:
        """Accept acks and requests, continue the timers of pending messages, and deliver."""
        takes_acks = self.needs_ack and self.config.ack_policy is not AckPolicy.FLOW_CONTROL
        names = self.stream.name.encode(), self.name.encode()
        self.stream.js.router.register(*names, self._on_request, self.acks if takes_acks else None)
        if self.config.flow_control and isinstance(self.delivery, PushDelivery):
            answers = b"%b.%b.%b.*" % (FC_PREFIX.encode(), *names)
            self._flow_answers = self.account.subscribe(answers, self._on_flow_answer)
        finish(self._forgetting_missing())
        self.retry.configure()
        self.delivery.start()
        self.lifetime.apply_pause()
        self.lifetime.configure()
        self.schedule()

    def stop(self) -> None:
        """Stop delivering for good; waiting clients get a status and nothing more is journaled."""
        if not self.stopped:
            self.stopped = True
            self.end()

    def end(self) -> None:
        """End the parts of a consumer that has `stopped`."""
        self.delivery.stop(deleted=True)
        self.retry.stop()
        self.lifetime.stop()
        self.budget.stop()
        self.stream.js.router.unregister(self.stream.name.encode(), self.name.encode())
        if self._flow_answers is not None:
            self.account.unsubscribe(self._flow_answers)
            self._flow_answers = None

    def update(self, config: ConsumerConfig, filters: Filters | None = None) -> None:
        """Apply a configuration that was checked against the present one."""
        old, self.config = self.config, config
        self.needs_ack = rules.needs_ack(config)
        self.acks.configure()
        self.retry.configure()
        if rules.filters_of(old) != rules.filters_of(config):
            self.filters = filters or _filters_of(config)
            self.undelivered.refilter(self.filters, self.filters.everything)
        if isinstance(self.delivery, PushDelivery):
            if (old.deliver_subject, old.deliver_group) != (config.deliver_subject, config.deliver_group):
                if old.deliver_subject != config.deliver_subject:
                    self.stream.work.begin(self.retry.queueing_all())
                self.delivery.stop(deleted=False)
                self.delivery = PushDelivery(self)
                self.delivery.start()
            elif old.rate_limit_bps != config.rate_limit_bps:
                self.delivery.limit_rate()
        else:
            self.delivery.configure()
        if rules.pause_until_ns(old) != rules.pause_until_ns(config):
            self.lifetime.apply_pause()
            self.events.paused(self.lifetime.paused)
        self.lifetime.configure(threshold=old.inactive_threshold != config.inactive_threshold)
        self.schedule()

    def reset(self, next_seq: int) -> None:
        """Start over at `next_seq`: nothing is pending, consumer sequences begin at 1."""
        self.state.reset(next_seq)
        self.log.reset(next_seq)
        self.retry.stop()
        self.undelivered.reset(next_seq)
        self.stream.retention.consumer_reset()
        self.schedule()

    # Turns

    def hold(self) -> None:
        """Deliver nothing until `release`: a new consumer is silent before its creation is durable and answered."""
        self.held = True

    def release(self) -> None:
        """Deliver from the next turn on."""
        self.held = False
        self.schedule()

    def schedule(self) -> None:
        """Ask the engine for a turn, once."""
        if not self.scheduled and not self.stopped:
            self.scheduled = True
            self.engine.ready(self)

    def run(self, budget: int) -> int:
        """Deliver messages that cost up to `budget`, journal the turn, and return their cost; ask again for more."""
        if self.stream.work.defers(self):
            return 0
        self.scheduled = False
        if self.stopped or self.held:
            return 0
        self.catch_up()
        sent = 0
        if not self.lifetime.paused and self.delivery.ready():
            limit = min(budget, RUN_MESSAGES)
            sent = self.delivery.run(limit)
            if sent >= limit and self.delivery.ready():
                self.schedule()
        elif self.lifetime.paused and isinstance(self.delivery, PullDelivery):
            self.delivery.rest()
        self.flush()
        return sent

    def flush(self) -> None:
        """Journal the changes, and answer double acks once they are durable."""
        if self.log.acked:
            self.settle_acks()
        self.journal.changed(self)
        if self.answers:
            answers, self.answers = self.answers, []
            self.journal.durable(self, partial(self._answer, answers))

    def settle_acks(self) -> None:
        """Apply gathered single acks to ack floor and stream, before any other change."""
        acked, state = self.log.acked, self.state
        self.lifetime.used()
        state.last_ack_ns = self.now_ns()
        state.settle()
        self.log.settled(state.last_ack_ns)
        if self.stream.retention.removes:
            self.stream.retention.acked(acked)

    def record_ack(self) -> None:
        """Record the time of an ack, or of an equivalent event: the removal of a pending message."""
        if self.log.acked:
            self.settle_acks()
            return
        self.state.last_ack_ns = self.now_ns()
        self.log.settled(self.state.last_ack_ns)

    def _answer(self, replies: Sequence[bytes], fault: StoreError | None) -> None:
        """Answer double acks; after a fault their state is not durable and they stay unanswered."""
        if fault is None:
            for reply in replies:
                self.account.publish(reply, b"", b"", b"")

    def now_ns(self) -> int:
        """Return the time to store: ns since the epoch, advancing with the monotonic clock."""
        return self.engine.clock.monotonic_ns() + self._offset_ns

    # Deliveries

    def record_deliveries(self, sseqs: list[int]) -> None:
        now_ns = self.now_ns()
        self.undelivered.delivered(len(sseqs), sseqs[-1])
        if not self.needs_ack:
            self.state.first_unacked(len(sseqs), sseqs[-1], now_ns)
            self.log.first_unacked(len(sseqs), sseqs[-1], now_ns)
            if self.stream.retention.removes:
                self.stream.retention.acked(sseqs)
            return
        if self.log.acked:
            self.settle_acks()
        self.state.first(sseqs, now_ns)
        self.log.first(sseqs, now_ns)
        self.retry.watch_first(sseqs, now_ns)

    def flow_reply(self) -> bytes:
        return f"{FC_PREFIX}.{self.stream.name}.{self.name}.{nuid(self.engine.rng, _FC_NAME)}".encode()

    # Called by the stream

    def on_messages(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Record messages that became durable: (sequence, subject), ascending."""
        if self.undelivered.arrived(messages) and not self.scheduled and self.delivery.ready():
            self.schedule()

    def on_own_messages(self, messages: Sequence[tuple[int, bytes]], number: int) -> None:
        """Record that messages became durable; `number` of them match the filters."""
        if self.undelivered.arrived_own(messages, number) and not self.scheduled and self.delivery.ready():
            self.schedule()

    def catch_up(self) -> None:
        """Count the newest messages if they were not announced yet, because they concern very many consumers."""
        late = self.stream.retention.interest.late
        if late and late.pop(self, False) is None and self.undelivered.catch_up() and self.delivery.ready():
            self.schedule()

    def on_removed(self, seq: int, subject: bytes, reason: str) -> None:
        """Record a message that left the stream; `reason` goes into the advisory."""
        self.undelivered.removed(seq, subject)
        state = self.state
        if seq in state.pending or seq in state.redelivered:
            self.retry.message_gone(seq, reason)

    def purged(self, purged: Filters | None = None) -> Steps[None]:
        """Update after a purge of the messages that `purged` matches, None for all."""
        if self.log.acked:
            self.settle_acks()
        yield from after_purge(self, purged)
        yield from self._forgetting_missing()
        yield from self.stream.store.preparing(self.filters)
        yield from self.undelivered.skipping_to(max(self.undelivered.next_seq, self.state.delivered_sseq + 1))
        self.schedule()
        yield CONSUMER_COST

    def trimmed(self, gone: AbstractSet[int]) -> Steps[None]:
        """Record that limits removed messages, except in num_pending: `recounting` follows."""
        state = self.state
        if state.pending or state.redelivered:
            mine = sorted((state.pending.keys() & gone) | (state.redelivered.keys() & gone))
            yield from self.retry.messages_gone(mine, GONE)

    def recounting(self) -> Steps[None]:
        yield from self.stream.store.preparing(self.filters)
        yield from self.undelivered.recounting()
        self.schedule()
        yield CONSUMER_COST

    def _forgetting_missing(self) -> Steps[None]:
        """Drop pending entries of removed messages."""
        store, state = self.stream.store, self.state
        first_seq, next_seq = store.first_seq, store.next_seq
        gone: list[int] = []
        for known in (state.pending, state.redelivered):
            for piece in pieces([*known]):
                gone += [seq for seq in piece if seq < first_seq or next_seq(ALL, seq) != seq]
                yield len(piece)
        yield from self.forgetting(gone)
        if gone:
            state.settle()

    def forgetting(self, gone: Sequence[int]) -> Steps[None]:
        """Drop and journal entries of removed messages; with acks gathered before, call `settle_acks` first."""
        for piece in pieces(gone):
            for seq in piece:
                self.state.forget(seq)
                self.redelivery.forget(seq)
            self.log.forgotten(sorted(piece))
            yield len(piece)

    def _on_request(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: object) -> None:
        self.delivery.on_request(subject, reply, header, payload, origin)

    def _on_flow_answer(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: object) -> None:
        if not self.stopped and isinstance(self.delivery, PushDelivery):
            self.delivery.on_flow_answer(subject, reply, header, payload, origin)

    # Information

    def floor_seq(self) -> int:
        """Return the stream sequence after which a reset begins: with nothing pending, skipped messages count too."""
        floor = self.state.oldest_floor().stream_seq
        if self.state.pending or not self.needs_ack or not self.state.delivered_cseq:
            return floor
        return max(floor, self.undelivered.position)

    def in_use(self) -> bool:
        """Return whether the deliver subject has a subscriber; it must not change then."""
        return self.account.has_interest(self.deliver_subject)

    @property
    def deliver_subject(self) -> bytes:
        return self.config.deliver_subject.encode()

    def describing(self) -> Steps[ConsumerInfo]:
        """Return the consumer's info; there may be very many pull requests to count."""
        if isinstance(self.delivery, PullDelivery):
            yield from self.delivery.pruning()
        return self.info()

    def info(self) -> ConsumerInfo:
        self.catch_up()
        state, clock = self.state, self.engine.clock
        floor = state.floor()
        info = ConsumerInfo(
            stream_name=self.stream.name,
            name=self.name,
            created=format_time(self.created_ns),
            config=self.config,
            delivered=_sequence_info(state.delivered_cseq, self._delivered_seq(), state.last_delivered_ns),
            ack_floor=_sequence_info(floor.consumer_seq, floor.stream_seq, state.last_ack_ns),
            num_ack_pending=len(state.pending),
            num_redelivered=0 if self.config.max_deliver == 1 else len(state.redelivered),
            num_waiting=self.delivery.num_waiting(),
            num_pending=max(self.undelivered.count, 0),
            push_bound=self.delivery.bound(),
            ts=format_time(clock.now_ns()),
        )
        if isinstance(self.delivery, PullDelivery) and self.config.priority_groups:
            info.priority_groups = group_states(self.config.priority_groups, self.delivery.pin)
        if self.lifetime.paused:
            info.paused, info.pause_remaining = True, self.lifetime.pause_remaining_ns()
        return info

    def _delivered_seq(self) -> int:
        """Return delivered.stream_seq: of a consumer in memory that has no state yet, how far it looked."""
        state = self.state
        on_disk = self.stream.store.storage == "file" and not self.config.mem_storage
        if state.delivered_cseq or state.delivered_sseq or on_disk:
            return state.delivered_sseq
        return self.undelivered.position


def _sequence_info(consumer_seq: int, stream_seq: int, last_ns: int) -> SequenceInfo:
    active = format_time(last_ns) if last_ns else None
    return SequenceInfo(consumer_seq=consumer_seq, stream_seq=stream_seq, last_active=active)
