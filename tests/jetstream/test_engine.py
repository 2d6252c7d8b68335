"""Timers, the ready queue and the life of accounts."""

from natsctl.jetstream.timers import POPS_AT_ONCE, SWEEP_FROM, EngineTimers
from tests.support.jet import Jet
from tests.support.machine import Machine


def test_a_callback_that_arms_again_does_not_hold_the_loop() -> None:
    timers, called = EngineTimers(), list[int]()

    def again() -> None:
        called.append(1)
        timers.at(0, again)

    timers.at(0, again)
    assert timers.run(5) == 1
    assert timers.run(5) == 1
    assert called == [1, 1]


def test_rearming_does_not_grow_the_heap() -> None:
    timers = EngineTimers()
    for number in range(100_000):
        timers.at(number, lambda: None).cancel()
    assert len(timers._heap) <= SWEEP_FROM
    assert len(timers) == 0


def test_very_many_cancelled_timers_leave_in_several_looks() -> None:
    timers, called, count = EngineTimers(), list[int](), 3 * POPS_AT_ONCE
    for timer in [timers.at(number, lambda: None) for number in range(count)]:
        timers.at(count, lambda: called.append(1))
        timer.cancel()
    assert [timers.next_ns() for _ in range(4)] == [POPS_AT_ONCE, 2 * POPS_AT_ONCE, count, count]
    assert timers.run(count) == len(timers) + count == count


def test_nothing_waits_on_an_idle_machine() -> None:
    machine = Machine()
    assert not machine.engine.run_ready(100)
    machine.advance(5_000_000_000)
    assert machine.engine.next_deadline_ns() is None


def test_the_same_inputs_give_the_same_bytes() -> None:
    def run() -> list[bytes]:
        jet = Jet(Machine(seed=7))
        sid = jet.listen(">")
        jet.stream()
        jet.consumer()
        jet.publish("1", "2")
        jet.pull({"batch": 1}, inbox="inbox")
        jet.advance(40)
        jet.api("STREAM.INFO.S")
        return [m.subject + m.header + m.payload for m in jet.heard(sid)]

    assert run() == run()
