"""Changes side by side: how many, what becomes of failures, and how a run ends early; with a fake world to act on."""

import asyncio
from typing import Any

import pytest

from natsctl.api.catalogue import error
from natsctl.api.errors import ApiResponseError, ExitCode, NatsctlError, UnreachableError
from natsctl.desired.apply.execution import Done, Execution
from natsctl.desired.apply.results import Outcome, Result
from natsctl.desired.plan import Action, Change


def change(name: str, *needs: str, action: Action = Action.CREATE) -> Change:
    stream, _, consumer = name.partition(" > ")
    kind = "Consumer" if consumer else "Stream"
    return Change(action=action, kind=kind, stream=stream, consumer=consumer, needs=list(needs))


class LiveState:
    """Does changes when it is told to: `begun` and `ended` are the names in the order they came."""

    def __init__(self, *, at_once: bool = True, failures: dict[str, NatsctlError] | None = None) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.most = 0
        self.lost = False
        self._at_once, self._failures = at_once, failures or {}
        self._doors: dict[str, asyncio.Event] = {}
        self._running = 0

    async def step(self, change: Change) -> Done:
        name = change.key.name
        self.begun.append(name)
        self._running += 1
        self.most = max(self.most, self._running)
        try:
            if not self._at_once:
                await self._door(name).wait()
            if name in self._failures:
                raise self._failures[name]
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            self._running -= 1
        self.ended.append(name)
        return Done(detail=f"made {name}")

    def _door(self, name: str) -> asyncio.Event:
        return self._doors.setdefault(name, asyncio.Event())

    async def let(self, *names: str) -> None:
        for name in names:
            self._door(name).set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


def statuses(outcome: Outcome) -> dict[str, str]:
    return {one.key.name: str(one.status) for one in outcome.results}


def execution(changes: list[Change], live_state: LiveState, **options: Any) -> Execution:
    return Execution(changes, live_state.step, is_lost=lambda: live_state.lost, **options)


async def test_results_are_in_the_order_of_the_plan_and_counted_by_what_was_done() -> None:
    live_state = LiveState()
    changes = [change("A"), change("B", action=Action.UPDATE), change("B > C", "B", action=Action.DELETE)]
    outcome = await execution(changes, live_state).run(unchanged=4)
    assert [(one.key.name, one.detail) for one in outcome.results] == [
        ("A", "made A"),
        ("B", "made B"),
        ("B > C", "made B > C"),
    ]
    counted = outcome.summary
    assert (counted.created, counted.updated, counted.deleted, counted.unchanged) == (1, 1, 1, 4)
    assert (outcome.ended, outcome.exit_code) == ("", ExitCode.DONE)


async def test_no_more_run_at_a_time_than_asked() -> None:
    live_state = LiveState(at_once=False)
    run = asyncio.create_task(execution([change(f"S{n}") for n in range(5)], live_state, concurrency=2).run())
    await live_state.settle()
    assert live_state.begun == ["S0", "S1"]
    await live_state.let("S1")
    assert live_state.begun == ["S0", "S1", "S2"]
    await live_state.let("S0", "S2", "S3", "S4")
    assert statuses(await run) == {f"S{n}": "done" for n in range(5)}
    assert live_state.most == 2


async def test_a_change_begins_as_soon_as_its_need_is_done_whatever_else_still_runs() -> None:
    live_state = LiveState(at_once=False)
    run = asyncio.create_task(execution([change("SLOW"), change("A"), change("A > C", "A")], live_state).run())
    await live_state.settle()
    await live_state.let("A")
    assert live_state.begun == ["SLOW", "A", "A > C"]
    await live_state.let("SLOW", "A > C")
    await run


async def test_after_a_failure_the_others_go_on_and_what_needed_it_says_so() -> None:
    live_state = LiveState(failures={"A": NatsctlError("no room", hint="make some")})
    changes = [change("A"), change("B"), change("A > C", "A"), change("B > C", "B")]
    outcome = await execution(changes, live_state, concurrency=1).run()
    assert statuses(outcome) == {"A": "failed", "B": "done", "A > C": "skipped", "B > C": "done"}
    failed, skipped = outcome.results[0], outcome.results[2]
    assert failed.error is not None
    assert (failed.error.description, failed.error.hint) == ("no room", "make some")
    assert skipped.because == "Stream A"
    assert outcome.exit_code is ExitCode.FAILED


async def test_asked_to_stop_what_runs_ends_and_nothing_more_begins() -> None:
    live_state = LiveState(at_once=False, failures={"A": NatsctlError("no room")})
    changes = [change("A"), change("B"), change("C")]
    run = asyncio.create_task(execution(changes, live_state, concurrency=2, stop_on_failure=True).run())
    await live_state.settle()
    await live_state.let("A")
    await live_state.let("B")
    outcome = await run
    assert statuses(outcome) == {"A": "failed", "B": "done", "C": "skipped"}
    assert outcome.results[2].because == "stopped after a failure"
    assert outcome.ended == "stopped"


async def test_a_lost_connection_ends_the_run_with_its_own_code() -> None:
    live_state = LiveState(failures={"A": UnreachableError("the connection was lost")})
    live_state.lost = True
    outcome = await execution([change("A"), change("B")], live_state, concurrency=1).run()
    assert statuses(outcome) == {"A": "failed", "B": "skipped"}
    assert outcome.results[1].because == "the connection was lost"
    assert (outcome.ended, outcome.exit_code) == ("lost", ExitCode.UNREACHABLE)


async def test_no_answer_on_a_connection_that_lives_fails_that_change_alone() -> None:
    live_state = LiveState(failures={"A": UnreachableError("no answer")})
    outcome = await execution([change("A"), change("B")], live_state, concurrency=1).run()
    assert statuses(outcome) == {"A": "failed", "B": "done"}
    assert outcome.exit_code is ExitCode.UNREACHABLE


async def test_ctrl_c_lets_what_runs_end_and_tells_what_was_done() -> None:
    live_state = LiveState(at_once=False)
    run = asyncio.create_task(execution([change("A"), change("B")], live_state, concurrency=1, grace_s=60).run())
    await live_state.settle()
    run.cancel()
    await live_state.settle()
    await live_state.let("A")
    outcome = await run
    assert statuses(outcome) == {"A": "done", "B": "skipped"}
    assert outcome.results[1].because == "interrupted"
    assert (outcome.ended, outcome.exit_code) == ("interrupted", ExitCode.INTERRUPTED)
    assert live_state.cancelled == []
    assert run.cancelling() == 0


async def test_what_does_not_end_after_ctrl_c_is_cancelled_and_its_end_is_said_to_be_unknown() -> None:
    live_state = LiveState(at_once=False)
    run = asyncio.create_task(execution([change("A")], live_state, grace_s=0.01).run())
    await live_state.settle()
    run.cancel()
    outcome = await run
    assert live_state.cancelled == ["A"]
    assert outcome.results[0].error is not None
    assert "before its answer came" in outcome.results[0].error.description


async def test_every_result_is_told_once_when_it_is_there() -> None:
    live_state, told = LiveState(failures={"A": NatsctlError("no")}), list[Result]()
    changes = [change("A"), change("A > C", "A"), change("B")]
    outcome = await execution(changes, live_state, concurrency=1, on_result=told.append).run()
    assert [one.key.name for one in told] == ["A", "A > C", "B"]
    assert {id(one) for one in told} == {id(one) for one in outcome.results}


async def test_failures_that_share_a_code_give_it_and_others_do_not() -> None:
    taken, full = ApiResponseError(error(10058)), ApiResponseError(error(10002))
    same = await execution([change("A"), change("B")], LiveState(failures={"A": taken, "B": taken})).run()
    other = await execution([change("A"), change("B")], LiveState(failures={"A": taken, "B": full})).run()
    assert (same.exit_code, other.exit_code) == (ExitCode.CONFLICT, ExitCode.FAILED)
    assert same.results[0].error is not None
    assert same.results[0].error.err_code == 10058


async def test_a_mistake_of_ours_is_no_result_and_leaves_nothing_running() -> None:
    live_state = LiveState(at_once=False)

    async def step(one: Change) -> Done:
        if one.stream == "BAD":
            raise KeyError("ours")
        return await live_state.step(one)

    with pytest.raises(KeyError):
        await Execution([change("A"), change("BAD")], step).run()
    assert live_state.cancelled == ["A"]
