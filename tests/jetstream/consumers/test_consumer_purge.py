"""Where a purge puts consumers."""

from collections.abc import Sequence
from unittest import mock

import pytest

from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.jetstream.consumers.consumer_state import ChangeLog
from natsctl.store.filters import Filters
from natsctl.store.steps import STEP, Steps
from tests.support.jet import Jet


@pytest.fixture
def jet() -> Jet:
    """Return a client of a stream with two messages on each of two subjects."""
    jet = Jet()
    jet.stream()
    jet.publish("1", "2", subject="s.a")
    jet.publish("3", "4", subject="s.b")
    return jet


def test_places_survive_a_crash(jet: Jet) -> None:
    jet.consumer()
    jet.pull(b"3")
    jet.api("STREAM.PURGE.S", {"seq": 3})
    before = jet.counts()
    assert Jet(jet.machine.restarted()).counts() == before


def test_a_rollup_costs_nothing_for_consumers_of_other_subjects(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    jet.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "allow_rollup_hdrs": True})
    jet.consumer("A", filter_subject="s.a")
    jet.consumer("B", filter_subject="s.b")
    told: list[str] = []
    original = Consumer.purged

    def noting(self: Consumer, purged: Filters | None = None) -> Steps[None]:
        told.append(self.name)
        return original(self, purged)

    monkeypatch.setattr(Consumer, "purged", noting)
    jet.wire.publish("s.a", b"5", header=b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n")
    assert told == ["A"]
    assert jet.counts("A")["pending"] == 1
    assert jet.counts("B")["pending"] == 2


def test_very_many_pending_messages_are_dropped_in_parts(jet: Jet) -> None:
    count, sizes, forgotten = 2000, list[int](), ChangeLog.forgotten
    jet.consumer(max_ack_pending=-1)
    jet.publish_many(count)
    assert len(jet.pull({"batch": count})) == count

    def counted(self: ChangeLog, sseqs: Sequence[int]) -> None:
        sizes.append(len(sseqs))
        forgotten(self, sseqs)

    with mock.patch.object(ChangeLog, "forgotten", counted):
        jet.api("STREAM.PURGE.S")
    assert sum(sizes) == count
    assert max(sizes) <= STEP
    assert jet.info()["num_ack_pending"] == 0
    assert Jet(jet.machine.restarted()).info()["num_ack_pending"] == 0
