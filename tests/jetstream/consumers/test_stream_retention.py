"""Interest and workqueue retention."""

from __future__ import annotations

from typing import Any

import pytest

from natsctl.jetstream.consumers import retention as policy
from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.jetstream.consumers.retention import _wants as wants
from natsctl.testing.jet import Jet, ok
from natsctl.testing.simdisk import SimDisk


def left(jet: Jet) -> list[int]:
    """Return the sequences that are still there."""
    last = jet.api("STREAM.INFO.S")["state"]["last_seq"]
    return [seq for seq in range(1, last + 1) if "message" in jet.api("STREAM.MSG.GET.S", {"seq": seq})]


def pull(jet: Jet, number: int, name: str = "C") -> Any:
    """Pull and return messages."""
    return jet.pull({"batch": number, "no_wait": True}, name)[:number]


def test_a_workqueue_message_goes_when_it_is_acked(jet: Jet) -> None:
    jet.stream(retention="workqueue")
    jet.publish("1", "2", "3")
    assert left(jet) == [1, 2, 3]
    jet.consumer()
    first, second = pull(jet, 2)
    jet.ack(second)
    assert left(jet) == [1, 3]
    jet.ack(first, b"+TERM")
    assert left(jet) == [3]
    assert jet.counts()["pending"] == 1


def test_a_nak_leaves_a_workqueue_message(jet: Jet) -> None:
    jet.stream(retention="workqueue")
    jet.publish("1")
    jet.consumer()
    jet.ack(pull(jet, 1)[0], b"-NAK")
    assert left(jet) == [1]


def test_a_workqueue_message_given_up_stays(jet: Jet) -> None:
    jet.stream(retention="workqueue")
    jet.publish("1")
    jet.consumer(max_deliver=1, ack_wait=1_000_000_000)
    pull(jet, 1)
    jet.advance(3)
    assert left(jet) == [1]


def test_an_interest_message_without_consumer_is_acked_and_not_kept(jet: Jet) -> None:
    jet.stream(retention="interest")
    assert jet.wire.request("s.a", b"x") == {"stream": "S", "seq": 1}
    state = jet.api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 2, 1)


def test_interest_follows_filters(jet: Jet) -> None:
    jet.stream(retention="interest")
    jet.consumer(filter_subject="s.a")
    jet.publish("1", subject="s.a")
    jet.publish("2", subject="s.b")
    assert left(jet) == [1]


def test_an_interest_message_waits_for_every_consumer(jet: Jet) -> None:
    jet.stream(retention="interest")
    jet.consumer("A")
    jet.consumer("B")
    jet.publish("1", "2")
    for message in pull(jet, 2, "A"):
        jet.ack(message)
    assert left(jet) == [1, 2]
    jet.ack(pull(jet, 1, "B")[0])
    assert left(jet) == [2]


def test_interest_with_ack_all_and_ack_none(jet: Jet) -> None:
    jet.stream(retention="interest")
    jet.consumer("A", ack_policy="all")
    jet.consumer("N", ack_policy="none")
    jet.publish("1", "2", "3")
    assert len(pull(jet, 3, "N")) == 3
    assert left(jet) == [1, 2, 3]
    jet.ack(pull(jet, 3, "A")[1])
    assert left(jet) == [3]


def test_a_consumer_that_goes_takes_its_interest_with_it(jet: Jet) -> None:
    jet.stream(retention="interest")
    jet.consumer("A")
    jet.consumer("B")
    jet.publish("1", "2")
    jet.ack(pull(jet, 1, "A")[0])
    ok(jet.api("CONSUMER.DELETE.S.B"))
    assert left(jet) == [2]
    ok(jet.api("CONSUMER.DELETE.S.A"))
    assert left(jet) == []


def test_changing_limits_to_interest_drops_what_is_acknowledged_before_the_answer(jet: Jet) -> None:
    config = ok(jet.stream())["config"]
    jet.consumer(filter_subject="s.a")
    jet.publish("1", "2", subject="s.a")
    jet.publish("3", subject="s.b")
    jet.ack(pull(jet, 1)[0])
    answer = ok(jet.api("STREAM.UPDATE.S", {**config, "retention": "interest"}))
    assert answer["state"]["messages"] == 2
    assert left(jet) == [2, 3]  # what no consumer takes stays, as with the reference


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


def test_limits_hold_for_workqueues_too(jet: Jet) -> None:
    jet.stream(retention="workqueue", max_msgs=2)
    jet.consumer()
    jet.publish("1", "2", "3")
    assert left(jet) == [2, 3]
    assert jet.counts()["pending"] == 2


def test_a_sweep_waits_for_what_is_not_durable_yet(jet: Jet) -> None:
    jet.stream(retention="interest")
    jet.consumer("A", filter_subject="s.a")
    jet.consumer("B", filter_subject="s.b")
    jet.machine.hold_commits = True
    jet.publish("1", subject="s.b")
    jet.wire.publish("$JS.API.CONSUMER.DELETE.S.B")
    jet.machine.hold_commits = False
    jet.machine.settle()
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


def test_a_reset_consumer_is_asked_again(jet: Jet) -> None:
    jet.stream(retention="interest")
    for name in ("A", "B", "C"):
        jet.consumer(name)
    jet.publish("1", "2", "3")
    for name in ("A", "B"):
        for message in pull(jet, 3, name):
            jet.ack(message)
    ok(jet.api("CONSUMER.RESET.S.A", {"seq": 2}))
    for message in pull(jet, 3, "C"):
        jet.ack(message)
    assert left(jet) == [2, 3]


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
