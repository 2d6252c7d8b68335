"""Mutations: faults put into the engine, each one plausible line, to prove that its simulation can fail.

A mutation replaces one function of the engine while it is active, and breaks one promise. A simulation that does not
notice it within `SEEDS_MAX` seeds proves nothing about that promise.
"""

from collections.abc import Iterable
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


@MUTATIONS.replacing(Dedupe, "recover")
def ids_of_removed_messages_forgotten(recover: Any, dedupe: Dedupe, journal: Iterable[tuple[int, bytes]]) -> None:
    recover(dedupe, ())
    for entry in [entry for entry in dedupe._entries if not dedupe._stream.store.holds(entry[0])]:
        dedupe._seqs.pop(entry[2], None)


@MUTATIONS.replacing(StreamStore, "append_copies", 1000)
def batch_stored_one_by_one(append_copies: Any, store: StreamStore, *arguments: Any, together: bool = False) -> None:
    append_copies(store, *arguments)


@MUTATIONS.planted(1)
def schedule_fires_again_after_a_crash() -> Patch:
    return mock.patch.multiple(Schedules, _last_step=lambda *_: b"", _settled=do_nothing)


@MUTATIONS.replacing(Schedules, "_fire", 1)
def schedule_ends_before_its_message_is_durable(fire: Any, schedules: Schedules, seq: int, *times_ns: int) -> None:
    schedules._stream.remove(seq)
    fire(schedules, seq, *times_ns)


@MUTATIONS.replacing(ConsumerSet, "durable", 20)
def acks_confirmed_before_they_are_durable(_durable: Any, _set: ConsumerSet, _consumer: Consumer, confirm: Any) -> None:
    confirm(None)


@MUTATIONS.replacing(PublishPipeline, "store_checked", 1)
def publisher_told_before_the_commit(store_checked: Any, pipeline: PublishPipeline, message: PendingMessage) -> Any:
    outcome = store_checked(pipeline, message)
    pipeline.committed(pipeline._stream.store.last_seq)
    return outcome


@MUTATIONS.replacing(Expiry, "_first_kept", 3)
def age_counted_in_other_units(_first_kept: Any, expiry: Expiry) -> int:
    oldest_ns = expiry._stream.engine.clock.now_ns() - expiry._max_age_ns // 2
    return expiry._stream.store.first_seq_at(oldest_ns + 1)


@MUTATIONS.replacing(ContentLimits, "_trim_subject", 1)
def one_message_too_many_dropped(trim_subject: Any, limits: ContentLimits, subject: bytes, most: int = 0) -> Any:
    dropped = trim_subject(limits, subject, most)
    store, limit = limits._stream.store, limits._stream.config.max_msgs_per_subject
    if 1 < limit == store.count_of(subject):
        limits._stream.remove(store.first_seq_of(subject))
    return dropped


@MUTATIONS.replacing(ContentLimits, "enforcing", 29)
def job_ends_after_a_slice(enforcing: Any, limits: ContentLimits) -> Steps[None]:
    for cost in enforcing(limits):
        yield cost
        return


@MUTATIONS.replacing(PublishPipeline, "store_mirrored", 4)
def mirror_counts_for_itself(store: Any, pipeline: PublishPipeline, seq: int, *more: Any, **named: Any) -> None:
    store(pipeline, pipeline._stream.store.last_seq + 1, *more, **named)


@MUTATIONS.replacing(Consumer, "purged")
def pending_not_counted_again_after_a_purge(_purged: Any, _consumer: Consumer, filters: Any = None) -> Steps[None]:
    yield from ()


@MUTATIONS.replacing(SegmentFile, "give_up_index", 19)
def index_file_removed_twice(_give_up_index: Any, file: SegmentFile) -> list[str]:
    return [file.index_path] if file.indexed else []
