"""When a consumer that nobody uses ends, and what counts as use. Source: reference, consumer.go deleteNotActive."""

from typing import Any
from unittest import mock

from natsctl.jetstream.consumers.redelivery import Redelivery
from natsctl.jetstream.work import SLICE
from natsctl.store.steps import STEP
from tests.support.jet import SECOND, Jet


def is_there(jet: Jet, name: str = "C") -> bool:
    return "error" not in jet.api(f"CONSUMER.INFO.S.{name}")


def test_an_ack_counts_as_use(jet: Jet) -> None:
    jet.consumer(inactive_threshold=10 * SECOND)
    jet.publish("1")
    (message,) = jet.pull()
    jet.advance(8)
    jet.ack(message)
    jet.advance(9)
    assert is_there(jet)
    jet.advance(3)
    assert not is_there(jet)


def test_an_ack_that_may_still_come_keeps_a_pull_consumer(jet: Jet) -> None:
    jet.consumer(inactive_threshold=10 * SECOND, ack_wait=60 * SECOND)
    jet.publish("1")
    jet.pull()
    jet.advance(65)
    assert is_there(jet)
    jet.advance(10)
    assert not is_there(jet)


def test_a_refused_one_shot_counts_as_use(jet: Jet) -> None:
    jet.consumer(inactive_threshold=10 * SECOND)
    for _ in range(5):
        jet.advance(8)
        jet.pull({"no_wait": True})
    assert is_there(jet)


def test_a_new_threshold_counts_from_the_change(jet: Jet) -> None:
    jet.consumer(inactive_threshold=3600 * SECOND)
    jet.advance(60)
    jet.consumer(inactive_threshold=10 * SECOND)
    jet.advance(9)
    assert is_there(jet)
    jet.advance(3)
    assert not is_there(jet)


def test_another_change_lets_the_threshold_run_on(jet: Jet) -> None:
    jet.consumer(inactive_threshold=10 * SECOND)
    jet.advance(8)
    jet.consumer(inactive_threshold=10 * SECOND, description="d")
    jet.advance(3.1)
    assert not is_there(jet)


def test_a_threshold_of_zero_lets_a_durable_live(jet: Jet) -> None:
    jet.consumer(inactive_threshold=10 * SECOND)
    jet.consumer(inactive_threshold=0)
    jet.advance(3600)
    assert is_there(jet)


def test_the_threshold_starts_anew_with_the_server(jet: Jet) -> None:
    jet.consumer(inactive_threshold=10 * SECOND)
    jet.advance(8)
    again = Jet(jet.machine.restarted())
    again.advance(8)
    assert is_there(again)
    again.advance(4)
    assert not is_there(again)


def test_a_push_consumer_counts_from_when_its_subscriber_left(jet: Jet) -> None:
    jet.consumer(deliver_subject="d.x", inactive_threshold=10 * SECOND)
    sid = jet.listen("d.x")
    jet.advance(3600)
    jet.wire.unsubscribe(sid)
    jet.advance(9)
    assert is_there(jet)
    jet.advance(1.1)
    assert not is_there(jet)


def test_each_edge_of_a_pause_is_told(jet: Jet) -> None:
    heard = jet.listen("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C")
    jet.consumer(pause_until="2026-01-01T01:00:00Z")  # the machine's clock begins with the year
    jet.advance(3601)
    assert [(m.json()["paused"], m.json()["pause_until"]) for m in jet.heard(heard)] == [
        (True, "2026-01-01T01:00:00Z"),
        (False, "2026-01-01T01:00:00Z"),
    ]


def test_very_many_outstanding_acks_are_examined_in_parts(jet: Jet) -> None:
    count = 2000
    jet.ephemeral(name="E", inactive_threshold=SECOND, max_ack_pending=-1, ack_wait=30 * SECOND)
    jet.publish_many(count)
    assert len(jet.pull({"batch": count}, "E")) == count
    looks, deadline, engine = [0], Redelivery.deadline, jet.machine.engine
    run_ready, run_timers = engine.run_ready, engine.run_timers

    def counted(self: Redelivery, sseq: int) -> int:
        looks[-1] += 1
        return deadline(self, sseq)

    def lap(call: Any) -> Any:
        def begin(*args: Any) -> Any:
            looks.append(0)
            return call(*args)

        return begin

    with (
        mock.patch.object(Redelivery, "deadline", counted),
        mock.patch.object(engine, "run_ready", lap(run_ready)),
        mock.patch.object(engine, "run_timers", lap(run_timers)),
    ):
        jet.advance(10)
    assert "E" in jet.machine.streams["S"].consumers
    assert count <= sum(looks)
    assert max(looks) <= SLICE + STEP
