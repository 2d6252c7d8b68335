"""Mutations: faults put into what joins two servers, each one plausible line, to prove that their simulation can fail.

A mutation replaces one function while it is active, and breaks one promise. A simulation that does not notice it within
`SEEDS_MAX` seeds proves nothing about that promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from unittest import mock

from natsctl.api.subject_index import Steps
from natsctl.broker.leaf.leaf_interest import LocalInterest
from natsctl.broker.subscription import Delivery, Subscription
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
from tests.support.store_mutations import Mutations, Patch, do_nothing

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


@MUTATIONS.planted()
def delivered_ahead_of_the_commit() -> Patch:
    finish = StreamStore.finish_commit

    def eager(self: StreamStore, commit: Commit, error: StoreError | None = None) -> None:
        commit.last_seq = self.last_seq
        finish(self, commit, error)

    return mock.patch.object(StreamStore, "finish_commit", eager)


@MUTATIONS.planted(6)
def flow_answered_before_it_is_durable() -> Patch:
    def on_control(self: Upstream, reply: bytes, header: bytes) -> None:
        if not reply:
            control(self, reply, header)
            return
        self._asked = reply
        self._answer_flow(reply, self._awaits, self.dseq, self.sseq, None)

    control = Upstream._on_control
    return mock.patch.object(Upstream, "_on_control", on_control)


@MUTATIONS.planted(6)
def lost_deliveries_not_noticed() -> Patch:
    def take(self: Upstream, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            number = delivery[1].rsplit(b".", 3)[1]
            if number.isdigit():
                self.dseq = int(number) - 1
            found(self, [delivery])

    found = Upstream._take
    return mock.patch.object(Upstream, "_take", take)


@MUTATIONS.planted()
def mirror_begins_one_too_late() -> Patch:
    def request(self: Mirror) -> object:
        config = found(self)
        if config.opt_start_seq:
            config.opt_start_seq += 1
        return config

    found = Mirror.request
    return mock.patch.object(Mirror, "request", request)


@MUTATIONS.planted()
def interest_of_before_the_link_not_announced() -> Patch:
    start = LocalInterest.start

    def nothing_yet(self: LocalInterest, subs: Iterable[Subscription], subjects: Iterable[bytes]) -> Steps[None]:
        return start(self, (), subjects)

    return mock.patch.object(LocalInterest, "start", nothing_yet)
