"""The conversations of `conversations/`: the engine answers as nats-server does, and as it was recorded to answer."""

from collections.abc import Sequence
from typing import Final

import pytest

from tests.jetstream.conversations import (
    consumer,
    consumer_life,
    priority,
    publish,
    pull,
    purges_and_acks,
    push,
    random_lives,
    retention,
    snapshot,
    stream_update,
    time_passes,
    upstream,
)
from tests.support.differential import BESIDE, AccountServer, Scenario, assert_all_same, ours
from tests.support.recorded import assert_as_recorded, record, unknown

TABLE: Final = "conversations"
MODULES: Final = (
    consumer, consumer_life, priority, publish, pull, purges_and_acks, push, random_lives, retention, snapshot,
    stream_update, upstream,
)  # fmt: skip
SCENARIOS: Final[dict[str, Scenario]] = {
    f"{module.__name__.rpartition('.')[2]}.{run.__name__}": run for module in MODULES for run in module.scenario
}
TIMED: Final = {f"time_passes.{talk.__name__}": talk for talk in time_passes.TALKS}
GROUPS: Final = -(-len(SCENARIOS) // BESIDE)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_engine_answers_as_recorded(name: str) -> None:
    assert_as_recorded(TABLE, name, lambda: ours(SCENARIOS[name])[0])


@pytest.mark.parametrize("name", TIMED)
def test_the_engine_answers_as_recorded_while_time_passes(name: str) -> None:
    assert_as_recorded(TABLE, name, lambda: time_passes.ours(TIMED[name]))


def test_all_conversations_are_recorded() -> None:
    assert not unknown(TABLE, [*SCENARIOS, *TIMED])


@pytest.mark.reference
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "names", [list(SCENARIOS)[at::GROUPS] for at in range(GROUPS)], ids=lambda names: f"{names[0]}-and-others"
)
def test_both_answer_the_same(names: Sequence[str], accounts: AccountServer) -> None:
    assert_all_same([SCENARIOS[name] for name in names], accounts)
    record(TABLE, {name: lambda name=name: ours(SCENARIOS[name])[0] for name in names}, [*SCENARIOS, *TIMED])


@pytest.mark.reference
def test_both_answer_the_same_while_time_passes(accounts: AccountServer) -> None:
    time_passes.assert_all_same_in_time(accounts)
    record(TABLE, {name: lambda name=name: time_passes.ours(TIMED[name]) for name in TIMED}, [*SCENARIOS, *TIMED])
