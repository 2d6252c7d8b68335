"""Which consumers are told of a message: the right ones, and no others."""

import random
from typing import Any
from unittest import mock

import pytest

from natsctl.broker.deferred_work import LongWork
from natsctl.jetstream.consumers import retention
from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.jetstream.consumers.pending import Undelivered
from natsctl.jetstream.consumers.retention import FEW, Interest
from natsctl.jetstream.engine import RUN_MIN
from natsctl.store.filters import Filters
from natsctl.store.steps import STEP
from tests.support.jet import Jet, texts


class Listener:
    """As much of a consumer as the index asks for."""

    def __init__(self, *filters: str) -> None:
        self.config: Any = type("Config", (), {"filter_subject": "", "filter_subjects": list(filters)})
        self.filters = Filters([subject.encode() for subject in filters])
        self.told: list[tuple[int, bytes]] = []

    def on_messages(self, messages: list[tuple[int, bytes]]) -> None:
        self.told += messages

    def on_own_messages(self, messages: list[tuple[int, bytes]], number: int) -> None:
        own = [message for message in messages if self.filters.matches(message[1])]
        assert len(own) == number
        self.told += own


def index_of(*listeners: Any) -> Interest:
    interest = Interest(LongWork())
    for listener in listeners:
        interest.add(listener)
    return interest


def test_many_consumers_are_told_of_their_own_messages_alone() -> None:
    own: list[Any] = [Listener(f"s.{number}") for number in range(FEW + 5)]
    everyone: Any = Listener()
    stored = [(1, b"s.0"), (2, b"s.1"), (3, b"s.0"), (4, b"s.none")]
    index_of(everyone, *own).announce(stored)
    assert everyone.told == stored
    assert own[0].told == [stored[0], stored[2]]
    assert own[1].told == [stored[1]]
    assert not any(listener.told for listener in own[2:])


def test_changed_filters_take_effect_among_many_consumers() -> None:
    jet = Jet()
    jet.stream()
    for number in range(FEW + 5):
        jet.consumer(f"C{number}", filter_subject=f"s.{number}")
    jet.publish("1", subject="s.3")
    jet.consumer("C3", filter_subject="s.four.*")
    jet.publish("2", subject="s.3")
    jet.publish("3", subject="s.four.x")
    jet.publish("4", subject="s.4")
    assert texts(jet.pull({"batch": 9, "no_wait": True}, "C3"))[0] == "3"
    assert jet.counts("C4")["pending"] == 1
    jet.api("CONSUMER.DELETE.S.C4")
    jet.publish("5", subject="s.4")
    assert jet.counts("C5")["pending"] == 0


def test_very_many_consumers_count_new_messages_in_parts_or_before_they_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MANY", 40)
    jet, number = Jet(), 60
    jet.stream()
    for consumer in range(number):
        jet.consumer(f"C{consumer}", filter_subject="s.*")
    consumers, counts = jet.machine.streams["S"].consumers, [0]
    arrived, catch_up, run_ready = Undelivered.arrived, Undelivered.catch_up, jet.machine.engine.run_ready
    jet.machine.hold_commits = True
    for message in range(10):
        jet.wire.publish(f"s.{message}")
    sid = jet.listen("in")
    jet.wire.publish("$JS.API.CONSUMER.MSG.NEXT.S.C59", b'{"batch": 20, "no_wait": true}', "in")

    def counted(call: Any) -> Any:
        def count(*args: Any) -> Any:
            counts[-1] += 1
            return call(*args)

        return count

    def turn(budget: int) -> bool:
        counts.append(0)
        return run_ready(16)

    monkeypatch.setattr(Undelivered, "arrived", counted(arrived))
    monkeypatch.setattr(Undelivered, "catch_up", counted(catch_up))
    monkeypatch.setattr(jet.machine.engine, "run_ready", turn)
    jet.machine.release_commits()
    assert sum(counts) == number
    assert max(counts) <= RUN_MIN // retention.LATE_COST
    assert [message.subject for message in jet.heard(sid)][:10] == [b"s.%d" % message for message in range(10)]
    assert [consumer.undelivered.count for consumer in consumers.values()] == [10] * (number - 1) + [0]


@pytest.mark.parametrize("many", [3, 2048])
@pytest.mark.parametrize("seed", range(3))
def test_pending_counts_of_many_consumers_are_those_of_the_store(
    seed: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MANY", many)
    rng, jet = random.Random(seed), Jet()
    jet.stream()
    names = [f"C{number}" for number in range(FEW + 4)]
    for number, name in enumerate(names):
        jet.consumer(name, **({} if not number else {"filter_subjects": [f"s.{number % 5}", "s.all.*"]}))
    subjects = [*(f"s.{number}" for number in range(6)), "s.all.x"]
    consumers = jet.machine.streams["S"].consumers
    for _ in range(40):
        jet.machine.hold_commits = rng.random() < 0.6
        for _ in range(rng.randint(1, 4)):
            jet.publish(*"xyz"[: rng.randint(1, 3)], subject=rng.choice(subjects))
            last = jet.machine.streams["S"].store.last_seq
            if rng.random() < 0.4:
                jet.wire.publish("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":%d}' % rng.randint(max(last - 3, 1), last))
            if rng.random() < 0.1:
                jet.wire.publish("$JS.API.STREAM.PURGE.S", b'{"filter":"%b"}' % rng.choice(subjects).encode())
        jet.machine.release_commits()
        jet.pull({"batch": 2, "no_wait": True}, rng.choice(names))
        for name in names:
            undelivered = consumers[name].undelivered
            counted = undelivered.count
            undelivered.recount()
            assert counted == undelivered.count, name


def test_very_many_consumers_learn_of_a_removed_message_in_parts() -> None:
    jet, number, told = Jet(), 3 * STEP, [0]
    jet.stream(max_consumers=number)
    for consumer in range(number):
        jet.consumer(f"C{consumer}", deliver_subject="to")
    jet.listen("to")
    jet.publish("1", "2")
    on_removed, run_ready = Consumer.on_removed, jet.machine.engine.run_ready

    def counted(self: Consumer, *args: Any) -> None:
        told[-1] += 1
        on_removed(self, *args)

    def turn(budget: int) -> bool:
        told.append(0)
        return run_ready(budget)

    with (
        mock.patch.object(Consumer, "on_removed", counted),
        mock.patch.object(jet.machine.engine, "run_ready", turn),
    ):
        assert jet.api("STREAM.MSG.DELETE.S", {"seq": 1})["success"]
    assert sum(told) == number
    assert max(told) <= 2 * STEP
    assert {len(c.state.pending) for c in jet.machine.streams["S"].consumers.values()} == {1}
