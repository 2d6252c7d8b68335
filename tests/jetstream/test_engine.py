"""Timers, the ready queue and the life of accounts."""

from natsctl.jetstream.engine import RUN_COST, TIMERS_NS
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


def test_very_many_timers_of_one_moment_are_called_in_several_runs() -> None:
    timers, called = EngineTimers(), list[int]()
    for number in range(10):
        timers.at(1, lambda number=number: called.append(number))  # type: ignore[misc]
    timers.at(1, lambda: called.append(-1)).cancel()
    runs = []
    while timers.next_ns() is not None:
        looks = iter((False, False, True))
        runs.append(timers.run(1, lambda looks=looks: next(looks)))  # type: ignore[misc]
    assert runs == [3, 3, 3, 1]
    assert called == [*range(10)]


def test_a_run_of_the_timers_ends_when_its_time_is_over() -> None:
    machine, called = Machine(), list[int]()
    due_ns = machine.clock.monotonic_ns()

    def slow() -> None:
        called.append(1)
        machine.clock.advance(TIMERS_NS // 4)

    for _ in range(100):
        machine.engine.timers.at(due_ns, slow)
    machine.engine.run_timers()
    assert len(called) == 5
    assert machine.engine.next_deadline_ns() == due_ns


class CountedRun:
    """A part with one message, such as a consumer."""

    runs = 0

    def run(self, budget: int) -> int:
        self.runs += 1
        return 1


def test_a_turn_runs_only_so_many_parts_and_the_others_before_those_that_have_run() -> None:
    engine, parts, runs = Machine().engine, [CountedRun() for _ in range(300)], 2048 // RUN_COST
    for part in parts:
        engine.ready(part)
    assert engine.run_ready(2048)
    assert 100 < sum(part.runs for part in parts) <= runs
    ran = [part for part in parts if part.runs]
    for part in ran:
        engine.ready(part)
    for _ in range(2):
        engine.run_ready(2048)
    assert all(part.runs for part in parts)
    assert parts[0].runs == 2


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
