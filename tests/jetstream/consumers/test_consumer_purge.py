"""Where a purge puts consumers; test_random_reference.py compares whole lives with the reference."""

from __future__ import annotations

import pytest

from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.store.filters import Filters
from natsctl.store.steps import Steps
from natsctl.testing.jet import Jet, texts


@pytest.fixture
def jet() -> Jet:
    """Return a client of a stream with two messages on each of two subjects."""
    jet = Jet()
    jet.stream()
    jet.publish("1", "2", subject="s.a")
    jet.publish("3", "4", subject="s.b")
    return jet


def places(jet: Jet) -> tuple[object, object, object, object]:
    """Return delivered, floor, unacked and pending."""
    counts = jet.counts()
    return counts["delivered"], counts["floor"], counts["ack_pending"], counts["pending"]


def test_an_idle_consumer_moves_to_the_end_of_a_purged_stream(jet: Jet) -> None:
    jet.consumer()
    jet.api("STREAM.PURGE.S")
    assert places(jet) == ((0, 4), (0, 4), 0, 0)


def test_a_purge_of_all_its_subjects_moves_a_consumer(jet: Jet) -> None:
    jet.consumer(filter_subject="s.a")
    jet.pull()
    jet.api("STREAM.PURGE.S", {"filter": "s.a"})
    assert places(jet) == ((1, 4), (1, 4), 0, 0)
    jet.publish("5", subject="s.a")
    assert texts(jet.pull()) == ["5"]


def test_a_purge_of_other_subjects_leaves_a_consumer_where_it_is(jet: Jet) -> None:
    jet.consumer(filter_subject="s.b")
    jet.pull()
    jet.api("STREAM.PURGE.S", {"filter": "s.a"})
    assert places(jet) == ((1, 3), (0, 0), 1, 1)


def test_a_narrower_purge_drops_what_was_pending_of_it(jet: Jet) -> None:
    jet.consumer()
    jet.pull(b"3")
    jet.api("STREAM.PURGE.S", {"filter": "s.a"})
    assert jet.counts() | {"ack_pending": 1, "pending": 1} == jet.counts()
    assert texts(jet.pull()) == ["4"]


def test_places_survive_a_crash(jet: Jet) -> None:
    jet.consumer()
    jet.pull(b"3")
    jet.api("STREAM.PURGE.S", {"seq": 3})
    before = jet.counts()
    assert Jet(jet.machine.restarted()).counts() == before


def test_the_message_of_a_rollup_is_still_to_be_delivered(jet: Jet) -> None:
    jet.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.*"], "allow_rollup_hdrs": True})
    jet.consumer(filter_subject="s.a")
    jet.wire.publish("s.a", b"rolled", header=b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n")
    assert places(jet) == ((0, 4), (0, 4), 0, 1)
    assert texts(jet.pull()) == ["rolled"]


@pytest.mark.parametrize("rollup", [b"sub", b"all"])
@pytest.mark.parametrize("filter_subject", ["s.a", "s.>", ""])
def test_a_rollup_is_delivered_itself(filter_subject: str, rollup: bytes) -> None:
    jet = Jet()
    jet.stream(allow_rollup_hdrs=True)
    jet.consumer(filter_subject=filter_subject)
    jet.publish("1", "2")
    jet.pull()
    jet.wire.publish("s.a", b"3", header=b"NATS/1.0\r\nNats-Rollup: %b\r\n\r\n" % rollup)
    assert jet.counts()["pending"] == 1
    assert texts(jet.pull()) == ["3"]


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
