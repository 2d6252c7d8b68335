"""One stream: its configuration, its messages, its consumers, and the changes of all three together.

Theory of operation. The publish path appends messages to the store's appended view; limits are kept there at once. When
a commit ends, it sends the acks and passes the durable messages to the consumers: nothing above `store.durable_seq` is
shown to anyone. Removals reach consumers as they happen (`on_removed` one by one, `on_purged` after bulk removals,
which makes them count again). A configuration is replaced as a whole by `reconfigure`, after the caller's checks;
everything derived from the old one is recomputed.

Rollups are completed after a crash between their message and the removal of the messages that it replaces: the messages
of a commit are on disk before its removals, and a publisher that tries again with its id would take a rollup without
its removals for complete.

`Upstreams` holds the mirror and the sources: `configure` follows the configuration, and connections begin with `start`
(a new stream) or `recover` (after a restart). A mirror that may answer direct gets in its origin's place does so from
the first time that it has almost caught up. A stream that loses its mirror configuration continues as an ordinary
stream.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api import headers
from natsctl.api.advisories import ActionType, StreamAction
from natsctl.api.stream import StreamConfig, StreamInfo, StreamState
from natsctl.api.subject_index import cost_of, subject_pieces
from natsctl.api.times import ZERO_TIME, format_time
from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.jetstream.consumers.consumer_set import ConsumerSet
from natsctl.jetstream.consumers.consumer_state import KINDS as CONSUMER_KINDS
from natsctl.jetstream.consumers.redelivery import GONE
from natsctl.jetstream.consumers.retention import Retention
from natsctl.jetstream.endpoints.direct_get import DirectGet
from natsctl.jetstream.streams.dedupe import ONE_COMMIT, Dedupe
from natsctl.jetstream.streams.expiry import DeleteMarkers, Expiry
from natsctl.jetstream.streams.limits import ContentLimits
from natsctl.jetstream.streams.mirror import Mirror
from natsctl.jetstream.streams.pipeline import PublishPipeline
from natsctl.jetstream.streams.schedules import TimedMessages
from natsctl.jetstream.streams.source import SourceSet
from natsctl.jetstream.work import Work
from natsctl.store.errors import StoreDamagedError, StoreError, StoreFullError
from natsctl.store.filters import ALL, Filters
from natsctl.store.message import RemovedMessage, StoredMessage
from natsctl.store.steps import STEP, Steps, finish, pieces
from natsctl.store.stream import RecordsCallback, StreamStore

if TYPE_CHECKING:
    from natsctl.broker.subscription import Subscription
    from natsctl.jetstream.account import JetStreamAccount


class _Record(msgspec.Struct):
    created_ns: int
    config: StreamConfig
    restoring: bool = False


_encode = msgspec.json.encode
_decoder = msgspec.json.Decoder(_Record)


class StreamMeta(msgspec.Struct, frozen=True):
    """One stream's metadata; times are ns since the epoch."""

    created_ns: int
    config: StreamConfig
    restoring: bool = False
    """An earlier version was restoring the stream when it ended: it is deleted."""

    def encode(self) -> bytes:
        return _encode(_Record(self.created_ns, self.config, self.restoring))

    @classmethod
    def decode(cls, raw: bytes) -> StreamMeta:
        """Return the decoded metadata; raises msgspec.MsgspecError for anything else."""
        record = _decoder.decode(raw)
        return cls(record.created_ns, record.config, record.restoring)


CAPTURES_STEP: Final = 128
"""Cost of the subjects that are subscribed to in one step."""
KEPT_STEP: Final = 1024
"""Subjects that are only looked for among the earlier ones in one step."""
COMMIT_NS: Final = 60 * 1_000_000_000
"""Largest difference in time between the first and the last message of a commit."""


def finish_rollups(stream: Stream) -> None:
    """Remove the messages that the rollups of an interrupted commit replace."""
    config, store = stream.config, stream.store
    foreign = config.mirror is not None or config.sources  # there the header may come from another stream
    if not config.allow_rollup_hdrs or config.deny_purge or foreign or not store.healthy:
        return
    with suppress(StoreDamagedError):  # the store has reported it
        newest = store.remnants(max(store.last_seq - ONE_COMMIT, 1), store.last_ts_ns - COMMIT_NS, headed=True)
        for message in [message for message in newest if b"\r\nNats-Rollup:" in message.header]:
            _finish_rollup(stream, message)


def _finish_rollup(stream: Stream, message: StoredMessage) -> None:
    store, seq = stream.store, message.seq
    if not store.holds(seq):
        return
    value = (headers.get(message.header, headers.ROLLUP) or b"").lower()
    if value == b"all" and store.first_seq < seq:
        stream.purge(below_seq=seq)
    elif value == b"sub" and store.first_seq_of(message.subject) < seq:
        stream.purge(Filters((message.subject,)), below_seq=seq)


class Upstreams:
    __slots__ = ("_mirror", "_started", "_stream", "sources")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._mirror: Mirror | None = None
        self._started = False
        self.sources = SourceSet(stream)

    def configuring(self) -> Steps[None]:
        source = self._stream.config.mirror
        if self._mirror is not None and source != self._mirror.source:
            self._mirror.delete_consumer()
            self._mirror.stop()
            self._mirror = None
        if source is not None and self._mirror is None:
            mirror = Mirror(self._stream, source)
            yield from mirror.transforms.indexing()
            self._mirror = mirror
            if self._started:
                mirror.start()
        elif self._mirror is not None and self._mirror.last_ns >= 0:
            self.taken(self._mirror.lag)
        yield from self.sources.configuring()

    def starting(self) -> Steps[None]:
        yield from self.sources.starting()
        self._start_mirror()

    def recover(self, journal: Iterable[tuple[int, bytes]]) -> None:
        self.sources.recover(journal)
        self._start_mirror()

    def _start_mirror(self) -> None:
        self._started = True
        if self._mirror is not None:
            self._mirror.start()

    def stop(self) -> None:
        """End every connection; nothing is kept for this stream elsewhere."""
        if self._started:
            if self._mirror is not None:
                self._mirror.delete_consumer()
            self._stream.js.work.begin(self.sources.ending())
        else:
            self.sources.stop()
        self._started = False
        if self._mirror is not None:
            self._mirror.stop()

    def refused(self) -> None:
        """Fetch again the messages that the store could not keep."""
        self.sources.refused()
        if self._mirror is not None and self._stream.store.healthy:
            self._mirror.fail_setup("the store could not keep its newest messages")

    def taken(self, lag: int) -> None:
        """Answer direct gets for the origin once the mirror lags by only a few messages."""
        self._stream.direct_get.caught_up(lag)

    def describing(self, info: StreamInfo) -> Steps[StreamInfo]:
        """Add the states of mirror and sources to a stream's info, and return it."""
        if self._mirror is not None:
            info.mirror = self._mirror.info()
        info.sources = yield from self.sources.describing()
        return info


class Stream:
    def __init__(self, js: JetStreamAccount, config: StreamConfig, created_ns: int, store: StreamStore) -> None:
        """Bind configuration and messages; nothing is captured before `start`."""
        self.js = js
        self.engine = js.engine
        self.account = js.account
        self.name = config.name
        self.config = config
        self.created_ns = created_ns
        self.store = store
        self.work = Work(self.engine, self)
        self.consumers: dict[str, Consumer] = {}
        self.consumer_set = ConsumerSet(self)
        self.dedupe = Dedupe(self)
        self.expiry = Expiry(self)
        self.timed = TimedMessages(self)
        self.markers = DeleteMarkers(self)
        self.retention = Retention(self)
        self.usage = js.usage[config.storage]
        self._counted_bytes = 0
        self._purged = False
        """True once everything was purged: a stream that was never written then reports its first sequence."""
        self.limits: ContentLimits = ContentLimits(self)
        self.pipeline = PublishPipeline(self, self.limits)
        self.upstreams = Upstreams(self)
        self.direct_get = DirectGet(self)
        self._captures: dict[bytes, Subscription] = {}
        self._stopped = False

    # Life

    def start(self) -> None:
        """Serve direct gets; nothing is captured before `following`."""
        self.store.listener = self.pipeline.committed
        self.store.refused = self._refused
        self._derive()
        self.count_bytes()

    def _refused(self, durable_seq: int, fault: StoreError) -> None:
        """Return to `durable_seq`: the store could not keep later messages."""
        if isinstance(fault, StoreFullError):
            self.engine.disk_full.report(self.name)
        self.pipeline.refused(durable_seq, fault)
        self.timed.refused(durable_seq)
        self.upstreams.refused()

    def recover(self) -> None:
        finish(self.recovering())

    def recovering(self) -> Steps[None]:
        """Continue after a restart or a restore: duplicate window, expiry, consumers; a job that keeps messages out."""
        records = self.store.records()
        self.dedupe.recover(records)
        self.timed.recover(records)
        self.upstreams.recover(records)  # before messages expire that hold the positions of sources
        self.expiry.catch_up()
        if not self.engine.store.stopped_cleanly:  # before consumers count what waits for them
            self.limits.recovered()
            finish_rollups(self)
        yield from self.consumer_set.recovering(record for record in records if record[0] in CONSUMER_KINDS)
        self.retention.recovered()

    def stop(self, removed: bool) -> None:
        """Stop capturing messages and end the consumers; with `removed`, advisories report that."""
        captures, self._captures, self._stopped = self._captures, {}, True
        self.account.end_subscriptions(captures)
        self.pipeline.stop()
        self.upstreams.stop()
        self.expiry.stop()
        self.timed.stop()
        self.dedupe.stop()
        self.usage.moved(-self._counted_bytes)
        self._counted_bytes = 0
        self.direct_get.stop()
        self.consumer_set.stop(removed)
        self.retention.stop()

    def reconfiguring(self, config: StreamConfig) -> Steps[StoreError | None]:
        """Apply a checked configuration and remove messages that it no longer allows; a job of `work`.

        Both are durable when the commit ends that follows its end. Returns why the configuration could not be kept,
        if that is known already; then it was reverted. A crash meanwhile leaves the old one or the new one, and
        the rest is then done at the start (`ContentLimits.recovered`).
        """
        self.work.shut()
        try:
            self.store.set_meta(StreamMeta(self.created_ns, config).encode())
        except BaseException:
            self.js.subjects.unclaim(config)
            raise
        before, self.config = self.config, config
        faults: list[StoreError] = []

        def settled(fault: StoreError | None) -> None:
            if fault is not None:
                faults.append(fault)
                self.revert(config, before)

        self.store.on_durable(RecordsCallback(settled))
        self._derive()
        yield from self.following()
        if config.retention is not before.retention:
            yield from self.retention.applying()
        yield from self.limits.enforcing()
        self.count_bytes()
        return faults[0] if faults else None

    def revert(self, config: StreamConfig, to: StreamConfig) -> None:
        """Revert from `config` to the previous one: the store could not keep the change."""
        if self.config is config:
            self.config = to
            self._derive()
            finish(self.following())

    def _derive(self) -> None:
        if self.js.streams.get(self.name) is self:
            self.js.subjects.put(self.config)
        self.dedupe.configure()
        self.retention.configure()
        self.markers.configure()
        self.timed.configure()
        self.pipeline.configure()
        self.expiry.configure()
        self.direct_get.configure()

    def following(self) -> Steps[None]:
        """Connect the sources of the configuration and capture its subjects; there may be very many."""
        config = self.config
        for steps in (self.upstreams.configuring(), self._capturing()):
            for cost in steps:
                yield cost
                if self._stopped or self.config is not config:
                    return

    def _capturing(self) -> Steps[None]:
        """Subscribe to the subjects of the configuration, and to no others."""
        subjects = self.config.subjects
        if self._captures:
            kept = set[bytes]()
            for names in subject_pieces(subjects, KEPT_STEP):
                kept.update(name.encode() for name in names)
                yield CAPTURES_STEP
            for ended in subject_pieces([subject for subject in self._captures if subject not in kept], CAPTURES_STEP):
                for subject in ended:
                    self.account.unsubscribe(self._captures.pop(subject))
                yield sum(map(cost_of, ended))
        for names in subject_pieces(subjects, CAPTURES_STEP):
            sink = self.work if self.work.closed else self.pipeline
            for subject in (name.encode() for name in names):
                if subject not in self._captures:
                    capture = self.account.subscribe(subject, sink.publish, run=sink.publish_run)
                    capture.stream = self.name
                    self._captures[subject] = capture
            if (cost := sum(map(cost_of, names))) >= CAPTURES_STEP:
                yield cost

    def hold_back(self, closed: bool) -> None:
        """Hold messages, acks and pull requests while a job changes the stream; direct gets check for themselves."""
        sink = self.work if closed else self.pipeline
        for capture in self._captures.values():
            capture.handler, capture.run = sink.publish, sink.publish_run
        if not self._stopped:
            self.js.router.hold(self.name.encode(), self.work.hold if closed else None)

    # Removing

    def removed(self, gone: RemovedMessage, reason: str) -> None:
        if self.dedupe:
            self.dedupe.message_gone(gone.seq)
        consumers = self.retention.interest.consumers_of(gone.subject) if self.consumers else ()
        for consumer in consumers:
            consumer.on_removed(gone.seq, gone.subject, reason)
        self.account.broker.took_long |= len(consumers) > 4 * STEP

    def remove(self, seq: int, erase: bool = False) -> bool:
        """Remove one message and return whether it existed. Raises StoreError."""
        gone = self.store.remove(seq, erase)
        if gone is None:
            return False
        consumers = self.retention.interest.consumers_of(gone.subject)
        if len(consumers) > STEP and seq <= self.store.durable_seq and not self.retention.interest.late:
            if self.dedupe:
                self.dedupe.message_gone(seq)
            self.work.begin(self._reporting(gone, consumers))
        else:
            self.removed(gone, GONE)
        self.count_bytes()
        return True

    def _reporting(self, removed: RemovedMessage, consumers: Sequence[Consumer]) -> Steps[None]:
        """Report a removed message to very many consumers; they deliver nothing meanwhile."""
        self.work.shut()
        for piece in pieces(consumers):
            for consumer in piece:
                consumer.on_removed(removed.seq, removed.subject, GONE)
            yield len(piece)

    def purge(self, filters: Filters | None = None, below_seq: int = 0, keep: int = 0) -> int:
        """Remove messages as `StreamStore.purge` does and return their number. Raises StoreError."""
        return finish(self.purging(filters, below_seq, keep))

    def purging(self, filters: Filters | None = None, below_seq: int = 0, keep: int = 0) -> Steps[int]:
        self.work.shut()
        if filters:
            yield from self.store.preparing(filters)
        yield from self.dedupe.purging(below_seq)
        oldest = self._oldest_of(filters) if filters or keep else 0
        count = yield from self.store.purging(filters, below_seq, keep)
        self._purged |= not (filters or below_seq or keep)
        if below_seq > self.store.last_seq + 1 and filters is None:
            self.store.skip_to(below_seq - 1)  # nats-server continues after the requested sequence
        for consumer in self._consumers_of(filters):  # they move even if nothing was removed
            # nats-server sends an advisory for a single message only, on disk by the subject of the purge.
            if count == 1 and oldest in consumer.state.pending and self._advises_on(consumer, filters):
                consumer.retry.advise_gone(oldest)
            yield from consumer.purged(filters)
        if count:
            self.expiry.arm()
            self.count_bytes()
        return count

    def trimmed(self, seqs: array[int]) -> Steps[None]:
        """Inform the other parts that limits removed messages, ascending; consumers count the rest by `recounting`."""
        self.dedupe.messages_gone(seqs)
        gone = frozenset(seqs)
        for consumer in tuple(self.consumers.values()):
            yield from consumer.trimmed(gone)

    def recounting(self) -> Steps[None]:
        for consumer in tuple(self.consumers.values()):
            yield from consumer.recounting()

    def _oldest_of(self, filters: Filters | None) -> int:
        """Return the first sequence that a purge removes, 0 for none."""
        if filters and len(filters.literals) == 1:
            return self.store.first_seq_of(filters.literals[0])
        return self.store.first_match(filters or ALL, self.store.first_seq)

    def _advises_on(self, consumer: Consumer, filters: Filters | None) -> bool:
        """Return whether a consumer publishes an advisory for the only message that a purge removed."""
        subject = filters.subjects[0] if filters and filters.subjects else b">"
        return self.store.storage == "memory" or consumer.filters.matches(subject)

    def _consumers_of(self, filters: Filters | None) -> tuple[Consumer, ...]:
        """Return the consumers with filters that may overlap `filters`; None matches everything."""
        if filters is None or filters.everything:
            return tuple(self.consumers.values())
        return tuple(finish(self.retention.interest.overlapping(filters.subjects)))

    def count_bytes(self) -> None:
        size = self.store.bytes
        if size != self._counted_bytes:
            self.usage.moved(size - self._counted_bytes)
            self._counted_bytes = size

    # Information

    @property
    def consumer_count(self) -> int:
        return self.consumer_set.count

    def state(self) -> StreamState:
        """Return counters and ends of the appended view."""
        store = self.store
        return StreamState(
            messages=store.messages,
            bytes=store.bytes,
            first_seq=store.first_seq or int(self._purged),
            first_ts=format_time(store.first_ts_ns) if store.messages else ZERO_TIME,
            last_seq=store.last_seq,
            last_ts=format_time(store.last_ts_ns) if store.last_ts_ns else ZERO_TIME,
            num_subjects=store.num_subjects,
            num_deleted=store.num_deleted,
            consumer_count=self.consumer_count,
        )

    def info(self) -> StreamInfo:
        return finish(self.describing())

    def describing(self) -> Steps[StreamInfo]:
        info = StreamInfo(
            config=self.config,
            created=format_time(self.created_ns),
            state=self.state(),
            domain=self.engine.options.domain,
            ts=format_time(self.engine.clock.now_ns()),
            write_error=self.write_error,
        )
        return (yield from self.upstreams.describing(info))

    @property
    def write_error(self) -> str:
        """Return the reason why writing has stopped, "" while it works."""
        if self.store.fault is not None:
            return self.store.fault
        return "no space left on the store's disk" if self.store.full and not self.engine.store.has_room else ""

    def advise(self, action: ActionType) -> None:
        event = StreamAction(stream=self.name, action=action, template=self.config.template_owner)
        self.js.advise(event)
