"""Consumers come back after a crash with everything that was told to be durable."""

from collections.abc import Callable

import pytest

from tests.support.jet import SECOND, Jet, numbers, texts
from tests.support.simdisk import SimDisk

CRASHES = [SimDisk.kill, SimDisk.power_loss]


def test_ack_waits_continue_from_the_time_of_delivery(jet: Jet) -> None:
    jet.consumer(ack_wait=10 * SECOND)
    jet.publish("1")
    (message,) = jet.pull()
    jet.double_ack(message, b"+WPI")
    jet.advance(8)
    after = Jet(jet.machine.restarted())
    after.advance(1.9)
    assert texts(after.pull({"no_wait": True})) == ["<404 No Messages>"]
    after.advance(0.2)
    (again, _) = after.pull({"batch": 2, "no_wait": True})
    assert numbers(again)[:3] == (2, 1, 2)


def test_what_fell_due_while_the_server_was_down_goes_out_at_once(jet: Jet) -> None:
    jet.consumer(ack_wait=10 * SECOND)
    jet.publish("1")
    jet.double_ack(jet.pull()[0], b"+WPI")
    jet.machine.clock.advance(60 * SECOND)
    after = Jet(jet.machine.restarted())
    after.advance(0)
    assert texts(after.pull()) == ["1"]


@pytest.mark.parametrize("crash", CRASHES)
def test_creation_update_and_deletion_that_were_answered_are_durable(
    jet: Jet, crash: Callable[[SimDisk], None]
) -> None:
    jet.consumer("A")
    jet.consumer("B")
    jet.consumer("A", description="new")
    jet.api("CONSUMER.DELETE.S.B")
    after = Jet(jet.machine.restarted(crash))
    assert after.api("CONSUMER.NAMES.S")["consumers"] == ["A"]
    assert after.info("A")["config"]["description"] == "new"


def test_created_time_and_name_of_an_ephemeral_survive(jet: Jet) -> None:
    info = jet.ephemeral(inactive_threshold=100 * SECOND)
    after = Jet(jet.machine.restarted())
    again = after.info(info["name"])
    assert (again["created"], again["config"]) == (info["created"], info["config"])


def test_consumers_in_memory_end_with_the_process(jet: Jet) -> None:
    jet.consumer("A", mem_storage=True)
    jet.consumer("B")
    after = Jet(jet.machine.restarted())
    assert after.api("CONSUMER.NAMES.S")["consumers"] == ["B"]


def test_an_unused_ephemeral_ends_after_its_threshold_counted_from_the_start(jet: Jet) -> None:
    name = jet.ephemeral(deliver_subject="d.x")["name"]
    after = Jet(jet.machine.restarted())
    after.advance(4.9)
    after.info(name)
    after.advance(0.2)
    assert after.api(f"CONSUMER.INFO.S.{name}")["error"]["err_code"] == 10014


def test_pause_survives(jet: Jet) -> None:
    jet.consumer()
    jet.api("CONSUMER.PAUSE.S.C", {"pause_until": "2026-01-01T00:01:00Z"})
    after = Jet(jet.machine.restarted())
    assert after.info()["paused"] is True
    after.advance(61)
    assert "paused" not in after.info()


def test_snapshot_of_last_per_subject_continues_where_it_was(jet: Jet) -> None:
    for round_ in "12":
        for key in "abcd":
            jet.publish(key + round_, subject=f"s.{key}")
    jet.consumer(deliver_policy="last_per_subject", filter_subject="s.*")
    jet.double_ack(jet.pull(b"2")[1])
    jet.publish("a3", subject="s.a")
    after = Jet(jet.machine.restarted())
    assert after.counts()["pending"] == 3
    assert texts(after.pull(b"5")) == ["c2", "d2", "a3"]


def test_giving_up_and_termination_survive(jet: Jet) -> None:
    jet.consumer(max_deliver=1)
    jet.publish("1", "2", "3")
    one, two, three = jet.pull(b"3")
    jet.ack(one, b"-NAK")
    jet.ack(two, b"+TERM")
    jet.double_ack(three)
    before = jet.counts()
    after = Jet(jet.machine.restarted())
    assert after.counts() == before
    after.advance(60)
    assert texts(after.pull({"no_wait": True})) == ["<404 No Messages>"]


def test_a_journal_that_was_rewritten_says_the_same(jet: Jet) -> None:
    jet.consumer("A")
    jet.consumer("B", filter_subject="s.b")
    jet.publish("1", "2", "3")
    messages = jet.pull(b"3", name="A")
    jet.ack(messages[1])
    jet.ack(messages[0], b"-NAK")
    before = jet.counts("A"), jet.counts("B")
    stream = jet.machine.streams["S"]
    session = jet.wire.session
    session.receive(b"PUB %b 0\r\n\r\n" % messages[2].reply)
    stream.consumer_set.rewrite()
    jet.machine.settle()
    assert len(stream.store.records()) == 2
    jet.publish("4")
    now = jet.counts("A"), jet.counts("B")
    assert now[0] == before[0] | {"ack_pending": 1, "pending": 1}
    jet.double_ack(jet.pull(b"1", name="A")[0])
    last = jet.counts("A")
    after = Jet(jet.machine.restarted())
    assert after.counts("A") == last
    assert after.counts("B") == now[1]


def test_acks_that_were_gathered_before_a_rewrite_remove_their_messages() -> None:
    jet = Jet()
    jet.stream("Q", "q.>", retention="workqueue")
    jet.consumer("C", "Q")
    jet.publish("1", "2", subject="q.a")
    for message in jet.pull(b"2", stream="Q"):
        jet.wire.session.receive(b"PUB %b 0\r\n\r\n" % message.reply)
    stream = jet.machine.streams["Q"]
    stream.consumer_set.rewrite()
    jet.machine.settle()
    assert stream.store.messages == 0


def test_what_changes_while_the_journal_is_rewritten_is_in_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsctl.jetstream.consumers.consumer_set.STEP", 16)
    jet = Jet()
    jet.stream(storage="file", duplicate_window=100 * SECOND)
    names, header = [f"C{number}" for number in range(200)], b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n"
    for name in names:
        jet.consumer(name)
    for number in range(200):
        jet.wire.publish("s.a", b"x", header=header % number)
    held = {name: jet.pull(b"2", name=name) for name in (names[0], names[-1])}
    stream = jet.machine.streams["S"]
    stream.consumer_set.rewrite()
    assert jet.machine.engine.run_ready(1)
    assert stream.work.busy
    for messages in held.values():  # of consumers before and after the place that the rewrite has reached
        jet.wire.session.receive(b"PUB %b 0\r\n\r\n" % messages[0].reply)
    for name in (names[1], names[-2]):
        stream.consumer_set.delete(stream.consumers[name])
    stream.consumer_set.create("NEW", stream.consumers[names[0]].config)
    stream.dedupe.message_gone(7)
    assert stream.work.busy
    jet.machine.settle()
    jet.wire.request("$JS.API.STREAM.PURGE.S", b"")
    before = {name: jet.counts(name) for name in stream.consumers}
    again = Jet(jet.machine.restarted())
    assert {name: again.counts(name) for name in again.machine.streams["S"].consumers} == before
    assert len(before) == len(names) - 1
    assert before[names[0]]["ack_pending"] == before[names[-1]]["ack_pending"] == 0
    assert again.machine.streams["S"].dedupe.find(b"7") == 8


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_an_ack_that_was_confirmed_during_a_rewrite_survives_it(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old journal counts until the new one is durable; each turn makes one part of it."""
    monkeypatch.setattr("natsctl.jetstream.consumers.consumer_set.STEP", 16)
    monkeypatch.setattr("natsctl.store.stream.RECORD_COST", 1 << 20)
    confirmed = 0
    for before in range(12):
        jet = Jet()
        jet.stream(storage="file")
        names = [f"C{number}" for number in range(8)]
        for name in names:
            jet.consumer(name)
        jet.publish("1")
        (message,) = jet.pull(b"1", name=names[3])
        sid, machine = jet.listen("in.ack"), jet.machine
        machine.streams["S"].consumer_set.rewrite()
        for _ in range(before):
            machine.engine.run_ready(1)
        jet.wire.session.receive(b"PUB %b in.ack 0\r\n\r\n" % message.reply)
        for _ in range(turns):
            machine.engine.run_ready(1)
        machine.commit()
        machine._drain()
        answered = bool(jet.wire.take(sid))
        confirmed += answered
        again = Jet(machine.restarted())
        assert again.counts(names[3])["ack_pending"] == 0 or not answered
    assert confirmed > 3


def test_a_long_life_does_not_grow_the_journal_without_bound(jet: Jet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsctl.jetstream.consumers.consumer_set.REWRITE_BYTES", 4096)
    jet.consumer(max_ack_pending=-1)
    stream = jet.machine.streams["S"]
    for _ in range(60):
        jet.publish_many(20)
        for message in jet.pull(b"20"):
            jet.ack(message)
    assert stream.store.journal_bytes < 2 * 4096
    before = jet.counts()
    assert Jet(jet.machine.restarted()).counts() == before


def test_numbers_of_deleted_consumers_are_not_used_again(jet: Jet) -> None:
    jet.consumer("A")
    jet.publish("1")
    jet.double_ack(jet.pull(name="A")[0])
    jet.api("CONSUMER.DELETE.S.A")
    after = Jet(jet.machine.restarted())
    after.consumer("A")
    assert after.counts("A") | {"delivered": (0, 0), "pending": 1} == after.counts("A")
    again = Jet(after.machine.restarted())
    assert again.counts("A") | {"delivered": (0, 0), "pending": 1} == again.counts("A")


def test_a_state_can_be_taken_to_another_stream(jet: Jet) -> None:
    jet.consumer()
    jet.publish("1", "2", "3")
    jet.ack(jet.pull(b"2")[1], b"-NAK")
    consumer = jet.machine.streams["S"].consumers["C"]
    state, config, before = consumer.state.copy(), consumer.config, jet.counts()
    other = Jet()
    other.stream()
    other.publish("1", "2", "3")
    stream = other.machine.streams["S"]
    stream.consumer_set.create("C", config, state, created_ns=7)
    other.machine.settle()
    assert other.counts() == before
    assert Jet(other.machine.restarted()).counts() == before


def test_an_ack_for_a_delivery_that_a_power_loss_forgot_is_not_answered(jet: Jet) -> None:
    jet.consumer()
    jet.publish("1")
    jet.machine.hold_commits = True
    (message,) = jet.pull()
    after = Jet(jet.machine.restarted(SimDisk.power_loss))
    assert after.counts()["delivered"] == (0, 0)
    assert after.double_ack(message) == []
    assert texts(after.pull()) == ["1"]
    assert len(after.double_ack(message)) == 1
