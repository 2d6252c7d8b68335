"""Which change may begin next, without running any."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from natsctl.desired.apply.execution import Schedule
from natsctl.desired.plan import Action, Change


def change(name: str, *needs: str) -> Change:
    stream, _, consumer = name.partition(" > ")
    return Change(action=Action.CREATE, kind="Stream", stream=stream, consumer=consumer, needs=list(needs))


def test_a_need_that_the_plan_does_not_change_is_met() -> None:
    assert Schedule([change("A > C", "A")]).next() == 0


def test_a_need_that_stands_later_is_not_waited_for() -> None:
    assert Schedule([change("A", "B"), change("B", "A")]).next() == 0


def test_what_needs_a_failed_change_through_others_is_given_up_and_the_rest_is_not() -> None:
    schedule = Schedule([change("A"), change("B"), change("M", "A"), change("M > C", "M"), change("B > C", "B")])
    assert (schedule.next(), schedule.next()) == (0, 1)
    assert schedule.failed(0) == [2, 3]
    schedule.done(1)
    assert [schedule.next(), schedule.next()] == [4, None]
    assert schedule.rest() == []


def test_the_rest_is_what_was_not_given_out() -> None:
    schedule = Schedule([change("A"), change("A > C", "A"), change("B")])
    assert schedule.next() == 0
    assert schedule.rest() == [1, 2]
    assert schedule.next() is None


@given(st.data())
def test_every_change_is_given_out_once_and_after_its_needs(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 20))
    needs = [data.draw(st.sets(st.integers(0, max(number - 1, 0)), max_size=3)) - {number} for number in range(count)]
    schedule = Schedule([change(f"S{number}", *(f"S{one}" for one in needs[number])) for number in range(count)])
    done: list[int] = []
    running: list[int] = []
    while True:
        while (number := schedule.next()) is not None:
            assert needs[number] <= set(done)
            running.append(number)
        if not running:
            break
        ended = running.pop(data.draw(st.integers(0, len(running) - 1)))
        schedule.done(ended)
        done.append(ended)
    assert sorted(done) == list(range(count))
