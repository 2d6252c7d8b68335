"""Interest and workqueue retention."""

from typing import Any

import pytest

from natsctl.jetstream.consumers import retention as policy
from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.jetstream.consumers.retention import _wants as wants
from tests.support.jet import Jet
from tests.support.simdisk import SimDisk
from tests.support.stored_messages import stored_rows


@pytest.fixture
def jet() -> Jet:
    return Jet()


def left(jet: Jet) -> list[int]:
    return [row.seq for row in stored_rows(jet)]


def pull(jet: Jet, number: int, name: str = "C") -> Any:
    return jet.pull({"batch": number, "no_wait": True}, name)[:number]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
@pytest.mark.parametrize("crash", [SimDisk.kill, SimDisk.power_loss])
def test_acked_messages_do_not_return_after_a_crash(jet: Jet, retention: str, crash: Any) -> None:
    jet.stream(retention=retention)
    jet.consumer()
    jet.publish("1", "2", "3")
    for message in pull(jet, 2):
        assert jet.double_ack(message)
    again = Jet(jet.machine.restarted(crash))
    assert left(again) == [3]
    again.advance(60)
    assert [m.payload for m in pull(again, 5) if not m.status] == [b"3"]


def test_an_ack_whose_removal_was_lost_is_swept_at_recovery(jet: Jet) -> None:
    jet.stream(retention="workqueue")
    jet.consumer()
    jet.publish("1", "2")
    stream = jet.machine.streams["S"]
    stream.retention.removes = False  # as if the removal had not reached the disk
    jet.double_ack(pull(jet, 1)[0])
    assert left(jet) == [1, 2]
    assert left(Jet(jet.machine.restarted())) == [2]


def test_a_sweep_waits_for_what_is_not_durable_yet(jet: Jet) -> None:
    jet.stream(retention="interest")
    jet.consumer("A", filter_subject="s.a")
    jet.consumer("B", filter_subject="s.b")
    jet.machine.hold_commits = True
    jet.publish("1", subject="s.b")
    jet.wire.publish("$JS.API.CONSUMER.DELETE.S.B")
    jet.machine.release_commits()
    assert left(jet) == []


def test_what_one_consumer_gave_up_stays_when_others_acknowledge_it(jet: Jet) -> None:
    jet.stream(retention="interest")
    jet.consumer("A", max_deliver=1, ack_wait=1_000_000_000)
    jet.consumer("B")
    jet.publish("1", "2")
    jet.double_ack(pull(jet, 2, "A")[1])
    jet.advance(3)
    for message in pull(jet, 2, "B"):
        jet.double_ack(message)
    assert left(jet) == [1]
    jet = Jet(jet.machine.restarted())
    jet.advance(1)
    assert left(jet) == [1]


def test_an_ack_costs_by_those_who_take_the_subject(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    jet.stream(retention="interest")
    for number in range(60):
        jet.consumer(f"O{number}", filter_subject=f"s.{number}")
    for number in range(40):
        jet.consumer(f"A{number}", filter_subject="s.all.>")
    asked: list[int] = []

    def count(consumer: Consumer, seq: int) -> bool:
        asked.append(seq)
        return wants(consumer, seq)

    monkeypatch.setattr(policy, "_wants", count)
    jet.publish("1", subject="s.7")
    jet.ack(pull(jet, 1, "O7")[0])
    assert len(asked) == 1
    asked.clear()
    jet.publish("2", subject="s.all.x")
    for number in range(40):
        assert left(jet) == [2]
        jet.ack(pull(jet, 1, f"A{number}")[0])
    assert left(jet) == []
    assert len(asked) <= 2 * 40
