"""Mutations: faults put into what joins two servers, each one plausible line, to prove that their simulation can fail.

A mutation replaces one function while it is active, and breaks one promise. A simulation that does not notice it within
`SEEDS_MAX` seeds proves nothing about that promise.
"""

from collections.abc import Sequence
from typing import Any, Final

from natsctl.broker.leaf.leaf_interest import LocalInterest
from natsctl.broker.subscription import Delivery
from natsctl.jetstream.consumers import consumer_set
from natsctl.jetstream.streams.dedupe import Dedupe
from natsctl.jetstream.streams.mirror import Mirror
from natsctl.jetstream.streams.source import SourceSet
from natsctl.jetstream.streams.upstream import Upstream
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import Commit
from natsctl.store.stream import StreamStore
from tests.support.leaf_simulation import simulate_leaf
from tests.support.store_model import Violation
from tests.support.store_mutations import Mutations, do_nothing

SEEDS_MAX: Final = 60

NOTICED = (Violation, StoreError, AssertionError, LookupError, ValueError)
"""Errors of a simulation; servers that break down count as well."""


MUTATIONS: Final = Mutations(
    simulate_leaf,
    SEEDS_MAX,
    NOTICED,
    source_begins_anew_after_a_crash=(SourceSet, "_read_headers", do_nothing, 1),
    silence_not_noticed=(Upstream, "_look", do_nothing, 3),
    ids_forgotten_at_start=(Dedupe, "recover", do_nothing, 1),
    deliveries_numbered_as_before_a_crash=(consumer_set, "UNSURE_DELIVERIES", 0, 5),
)


@MUTATIONS.replacing(StreamStore, "finish_commit")
def delivered_ahead_of_the_commit(finish_commit: Any, stream: StreamStore, commit: Commit, error: Any = None) -> None:
    commit.last_seq = stream.last_seq
    finish_commit(stream, commit, error)


@MUTATIONS.replacing(Upstream, "_on_control", 6)
def flow_answered_before_it_is_durable(on_control: Any, upstream: Upstream, reply: bytes, header: bytes) -> None:
    if not reply:
        on_control(upstream, reply, header)
        return
    upstream._asked = reply
    upstream._answer_flow(reply, upstream._awaits, upstream.dseq, upstream.sseq, None)


@MUTATIONS.replacing(Upstream, "_take", 6)
def lost_deliveries_not_noticed(take: Any, upstream: Upstream, deliveries: Sequence[Delivery]) -> None:
    for delivery in deliveries:
        number = delivery[1].rsplit(b".", 3)[1]
        if number.isdigit():
            upstream.dseq = int(number) - 1
        take(upstream, [delivery])


@MUTATIONS.replacing(Mirror, "request")
def mirror_begins_one_too_late(request: Any, mirror: Mirror) -> Any:
    config = request(mirror)
    if config.opt_start_seq:
        config.opt_start_seq += 1
    return config


@MUTATIONS.replacing(LocalInterest, "start")
def interest_of_before_the_link_not_announced(start: Any, interest: LocalInterest, subs: Any, subjects: Any) -> Any:
    return start(interest, (), subjects)
