"""Which change may begin next, without running any."""

from hypothesis import given
from hypothesis import strategies as st

from natsctl.desired.apply.execution import Schedule
from natsctl.desired.plan import Action, Change


def change(name: str, *needs: str) -> Change:
    stream, _, consumer = name.partition(" > ")
    return Change(action=Action.CREATE, kind="Stream", stream=stream, consumer=consumer, needs=list(needs))


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
