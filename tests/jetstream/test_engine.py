"""Timers, the ready queue and the life of accounts."""

from __future__ import annotations

from natsctl.jetstream.timers import SWEEP_FROM, EngineTimers
from tests.support.jet import Jet
from tests.support.machine import Machine


def test_timers_run_in_order_of_time_then_of_arming() -> None:
    timers, called = EngineTimers(), list[str]()
    timers.at(20, lambda: called.append("c"))
    timers.at(10, lambda: called.append("a"))
    timers.at(10, lambda: called.append("b"))
    assert timers.next_ns() == 10
    assert timers.run(9) == 0
    assert timers.run(10) == 2
    assert timers.run(30) == 1
    assert called == ["a", "b", "c"]
    assert timers.next_ns() is None


def test_a_cancelled_timer_is_not_called() -> None:
    timers, called = EngineTimers(), list[str]()
    first = timers.at(10, lambda: called.append("a"))
    second = timers.at(10, lambda: called.append("b"))
    second.cancel()
    second.cancel()
    assert len(timers) == 1
    timers.run(10)
    first.cancel()
    assert called == ["a"]
    assert len(timers) == 0


def test_a_callback_can_cancel_one_that_is_due_as_well() -> None:
    timers, called = EngineTimers(), list[str]()
    timers.at(10, lambda: other.cancel())
    other = timers.at(10, lambda: called.append("b"))
    timers.run(10)
    assert called == []
    assert len(timers) == 0


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


class Runner:
    def __init__(self, machine: Machine, left: int) -> None:
        self.machine, self.left, self.runs = machine, left, list[int]()

    def run(self, budget: int) -> int:
        sent = min(budget, self.left)
        self.left -= sent
        self.runs.append(sent)
        if self.left:
            self.machine.engine.ready(self)
        return sent


def test_the_ready_queue_shares_its_budget() -> None:
    machine = Machine()
    big, small = Runner(machine, 10_000), Runner(machine, 10)
    machine.engine.ready(big)
    machine.engine.ready(small)
    machine.engine.ready(small)
    assert machine.engine.run_ready(1000)
    assert (big.runs, small.runs) == ([500], [10])
    assert machine.engine.run_ready(1000)
    assert big.runs == [500, 1000]


def test_what_the_budget_does_not_reach_runs_next_turn() -> None:
    machine = Machine()
    runners = [Runner(machine, 100) for _ in range(20)]
    for runner in runners:
        machine.engine.ready(runner)
    turns = 1
    while machine.engine.run_ready(100):
        turns += 1
    assert all(runner.left == 0 for runner in runners)
    assert 10 <= turns <= 20


def test_nothing_waits_on_an_idle_machine() -> None:
    machine = Machine()
    assert not machine.engine.run_ready(100)
    machine.advance(5_000_000_000)
    assert machine.engine.next_deadline_ns() is None


def test_the_engine_wakes_for_its_earliest_deadline() -> None:
    jet = Jet()
    jet.stream(max_age=5_000_000_000)
    jet.publish("1")
    jet.advance(2)
    deadline = jet.machine.engine.next_deadline_ns()
    assert deadline is not None
    assert deadline - jet.machine.clock.monotonic_ns() <= 3_000_000_000


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
