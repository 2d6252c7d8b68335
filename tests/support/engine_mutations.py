"""Mutations: faults put into the engine, each one plausible line, to prove that its simulation can fail.

A mutation replaces one function of the engine while it is active, and breaks one promise. A simulation that does not
notice it within `SEEDS_MAX` seeds proves nothing about that promise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final
from unittest import mock

from natsctl.jetstream.consumers import retention
from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.jetstream.consumers.consumer_set import ConsumerSet
from natsctl.jetstream.streams import counters
from natsctl.jetstream.streams.dedupe import Dedupe
from natsctl.jetstream.streams.expiry import DeleteMarkers, Expiry
from natsctl.jetstream.streams.limits import ContentLimits
from natsctl.jetstream.streams.pending_message import PendingMessage
from natsctl.jetstream.streams.pipeline import PublishPipeline
from natsctl.jetstream.streams.schedules import Schedules, TimedMessages
from natsctl.jetstream.streams.source import SourceSet
from natsctl.store import file_log
from natsctl.store.errors import StoreError
from natsctl.store.filters import Filters
from natsctl.store.message import Copy
from natsctl.store.segment_file import SegmentFile
from natsctl.store.steps import Steps
from natsctl.store.stream import StreamStore
from tests.support.engine_simulation import simulate_engine
from tests.support.store_model import Violation
from tests.support.store_mutations import Mutations, Patch, do_nothing

SEEDS_MAX: Final = 150

NOTICED = (Violation, AssertionError, LookupError, ValueError)
"""Errors of a simulation; an engine that breaks down counts as well."""


MUTATIONS: Final = Mutations(
    simulate_engine,
    SEEDS_MAX,
    NOTICED,
    ids_not_looked_up_after_a_restart=(Dedupe, "recover", do_nothing),
    counter_adds_to_what_is_durable=(counters.FreshTotals, "stored", do_nothing, 6),
    interest_removed_before_every_ack=(
        retention,
        "_wants",
        lambda consumer, seq: seq > consumer.state.delivered_sseq,
        1,
    ),
    acked_messages_stay=(retention.Retention, "acked", do_nothing),
    acks_not_journaled=(ConsumerSet, "changed", do_nothing, 2),
    no_delete_markers=(DeleteMarkers, "_leave", lambda self, subject: True, 1),
    ttl_forgotten_at_start=(TimedMessages, "recover", do_nothing),
    rest_of_a_job_forgotten_at_the_start=(ContentLimits, "recovered", do_nothing, 88),
    source_positions_forgotten=(SourceSet, "_read_headers", do_nothing, 11),
    blocks_hold_removed_messages=(file_log, "live_span", lambda segment, start, stop, most: range(start, stop)[:most]),
    ids_read_from_removed_messages_not_written_down=(Dedupe, "_keep_gone", do_nothing, 48),
)


@MUTATIONS.planted()
def ids_of_removed_messages_forgotten() -> Patch:
    recover = Dedupe.recover

    def of_what_is_there(self: Dedupe, journal: Iterable[tuple[int, bytes]]) -> None:
        recover(self, ())
        for entry in [entry for entry in self._entries if not self._stream.store.holds(entry[0])]:
            self._seqs.pop(entry[2], None)

    return mock.patch.object(Dedupe, "recover", of_what_is_there)


@MUTATIONS.planted(463)
def batch_stored_one_by_one() -> Patch:
    append_copies = StreamStore.append_copies

    def apart(
        self: StreamStore, messages: Sequence[Copy], timed: Collection[int] = (), *, together: bool = False
    ) -> None:
        append_copies(self, messages, timed)

    return mock.patch.object(StreamStore, "append_copies", apart)


@MUTATIONS.planted(1)
def schedule_fires_again_after_a_crash() -> Patch:
    return mock.patch.multiple(Schedules, _last_step=lambda *_: b"", _settled=do_nothing)


@MUTATIONS.planted(1)
def schedule_ends_before_its_message_is_durable() -> Patch:
    fire = Schedules._fire

    def ending(self: Schedules, seq: int, due_ns: int, now_ns: int) -> None:
        self._stream.remove(seq)
        fire(self, seq, due_ns, now_ns)

    return mock.patch.object(Schedules, "_fire", ending)


@MUTATIONS.planted(20)
def acks_confirmed_before_they_are_durable() -> Patch:
    def durable(self: ConsumerSet, consumer: Consumer, callback: Callable[[StoreError | None], None]) -> None:
        callback(None)

    return mock.patch.object(ConsumerSet, "durable", durable)


@MUTATIONS.planted(1)
def publisher_told_before_the_commit() -> Patch:
    place = PublishPipeline.store_checked

    def hasty(self: PublishPipeline, message: PendingMessage) -> Any:
        outcome = place(self, message)
        self.committed(self._stream.store.last_seq)
        return outcome

    return mock.patch.object(PublishPipeline, "store_checked", hasty)


@MUTATIONS.planted(3)
def age_counted_in_other_units() -> Patch:
    def first_kept(self: Expiry) -> int:
        oldest_ns = self._stream.engine.clock.now_ns() - self._max_age_ns // 2
        return self._stream.store.first_seq_at(oldest_ns + 1)

    return mock.patch.object(Expiry, "_first_kept", first_kept)


@MUTATIONS.planted(1)
def one_message_too_many_dropped() -> Patch:
    trim = ContentLimits._trim_subject

    def eager(self: ContentLimits, subject: bytes, most: int = 0) -> int:
        dropped = trim(self, subject, most)
        store, limit = self._stream.store, self._stream.config.max_msgs_per_subject
        if 1 < limit == store.count_of(subject):
            self._stream.remove(store.first_seq_of(subject))
        return dropped

    return mock.patch.object(ContentLimits, "_trim_subject", eager)


@MUTATIONS.planted(29)
def job_ends_after_a_slice() -> Patch:
    enforcing = ContentLimits.enforcing

    def first_slice(self: ContentLimits) -> Steps[None]:
        for cost in enforcing(self):
            yield cost
            return

    return mock.patch.object(ContentLimits, "enforcing", first_slice)


@MUTATIONS.planted(4)
def mirror_counts_for_itself() -> Patch:
    store_mirrored = PublishPipeline.store_mirrored

    def counted(self: PublishPipeline, seq: int, ts_ns: int, *message: Any, **named: Any) -> None:
        store_mirrored(self, self._stream.store.last_seq + 1, ts_ns, *message, **named)

    return mock.patch.object(PublishPipeline, "store_mirrored", counted)


@MUTATIONS.planted()
def pending_not_counted_again_after_a_purge() -> Patch:
    def purged(self: Consumer, filters: Filters | None = None) -> Steps[None]:
        yield from ()

    return mock.patch.object(Consumer, "purged", purged)


@MUTATIONS.planted(19)
def index_file_removed_twice() -> Patch:
    def give_up_index(self: SegmentFile) -> list[str]:
        return [self.index_path] if self.indexed else []

    return mock.patch.object(SegmentFile, "give_up_index", give_up_index)
