"""Store, engine and two joined servers keep their promises under random disasters, and their simulations can fail."""

from collections.abc import Callable

import pytest

from tests.support import encrypted_simulation, engine_mutations, leaf_mutations, store_mutations
from tests.support.encrypted_simulation import simulate_encrypted
from tests.support.engine_simulation import simulate_engine
from tests.support.leaf_simulation import simulate_leaf
from tests.support.store_model import Report
from tests.support.store_simulation import simulate
from tests.support.tiers import seeds

Simulate = Callable[[int], Report]

SESSIONS: dict[str, tuple[Simulate, int, int, dict[float, str]]] = {
    "store": (
        simulate, 10, 80,
        {0.25: "disk_faults", 0.5: "disk_image_checks packed_files repaired completed",
         1: "kills power_losses erasures",
         50: "acks"},
    ),
    "encrypted": (
        simulate_encrypted, 8, 60,
        {0.25: "disk_faults packed_files", 0.5: "disk_image_checks", 1: "kills power_losses erasures",
         50: "acks"},
    ),
    "engine": (
        simulate_engine, 4, 20,
        {0.1: "clean_stops packed_files", 0.5: "crashed_starts",
         1: "crashes kills power_losses unanswered restores disk_image_checks", 5: "slow_steps blocks",
         10: "acks deliveries"},
    ),
    "leaf": (
        simulate_leaf, 1, 6,
        {0.5: "cuts stalls crashes crashed_starts", 1: "breaks power_losses",
         5: "acks_over_the_link drained deliveries", 20: "acks copied"},
    ),
}  # fmt: skip
"""How to run a session, how many by default and at full size, and what happens in one how often at least."""

MUTATIONS = {
    "store": store_mutations.MUTATIONS,
    "encrypted": encrypted_simulation.MUTATIONS,
    "engine": engine_mutations.MUTATIONS,
    "leaf": leaf_mutations.MUTATIONS,
}
BY_DEFAULT = {
    "ack_before_sync", "no_folder_sync", "short_write_kept", "removal_not_recorded", "appended_in_clear",
    "range_not_begun", "acks_not_journaled", "publisher_told_before_the_commit", "ids_not_looked_up_after_a_restart",
    "ids_forgotten_at_start",
}  # fmt: skip
"""Planted faults that the default tier tries; the tier `fuzz` tries all others."""


@pytest.mark.parametrize("name", SESSIONS)
def test_no_promise_is_broken_in_a_few_sessions_of_crashes(name: str) -> None:
    run, few, _, _ = SESSIONS[name]
    assert sum(run(seed)["acks"] for seed in range(few)) > few


@pytest.mark.fuzz
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SESSIONS)
def test_no_promise_is_broken_in_many_sessions_of_crashes(name: str) -> None:
    run, _, many, least = SESSIONS[name]
    reports = [run(seed) for seed in range(many)]
    for per_session, counts in least.items():
        for count in counts.split():
            assert sum(report[count] for report in reports) > per_session * many, count


@pytest.mark.parametrize("seed", seeds(4, 25))
def test_no_promise_is_broken_where_streams_are_worked_on_by_whole_columns(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for name in (
        "index.BULK", "index.BULK_DROP", "appended.BULK_MESSAGES", "appended.BULK_SUBJECTS", "index.BULK_MESSAGES",
        "view.BULK_MESSAGES", "recovery.BULK_REMOVALS",
    ):  # fmt: skip
        monkeypatch.setattr(f"natsctl.store.{name}", 0)
    simulate(1000 + seed)


@pytest.mark.parametrize(("run", "seed"), [(simulate, 769), (simulate_engine, 7), (simulate_leaf, 3)])
def test_a_seed_reproduces_its_session(run: Simulate, seed: int) -> None:
    assert run(seed) == run(seed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("simulation", "name"),
    [
        pytest.param(simulation, name, marks=[] if name in BY_DEFAULT else pytest.mark.fuzz)
        for simulation, mutations in MUTATIONS.items()
        for name in sorted(mutations)
    ],
)
def test_a_planted_fault_is_noticed(simulation: str, name: str) -> None:
    assert MUTATIONS[simulation].caught_at(name) is not None
