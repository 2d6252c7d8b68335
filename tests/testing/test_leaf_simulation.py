"""Two joined servers keep their promises under cuts and power failures, and the simulation that says so can fail."""

from dataclasses import asdict

import pytest

from tests.support.leaf_mutations import MUTATIONS, caught_at
from tests.support.leaf_simulation import simulate_leaf

SEEDS = 6


@pytest.mark.timeout(300)
def test_no_promise_is_broken_in_sessions_of_cuts_and_power_failures() -> None:
    reports = [simulate_leaf(seed) for seed in range(SEEDS)]
    assert sum(report.cuts for report in reports) > SEEDS // 2
    assert sum(report.breaks for report in reports) > SEEDS
    assert sum(report.power_losses for report in reports) > SEEDS
    assert sum(report.stalls for report in reports) > SEEDS // 2
    assert sum(report.crashes for report in reports) > SEEDS // 2
    assert sum(report.crashed_starts for report in reports) > SEEDS // 2
    assert sum(report.acks for report in reports) > 20 * SEEDS
    assert sum(report.acks_over_the_link for report in reports) > 5 * SEEDS
    assert sum(report.copied for report in reports) > 20 * SEEDS
    assert sum(report.drained for report in reports) > 5 * SEEDS
    assert sum(report.deliveries for report in reports) > 5 * SEEDS


def test_a_seed_reproduces_its_session() -> None:
    assert asdict(simulate_leaf(3)) == asdict(simulate_leaf(3))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_planted_fault_is_noticed(name: str) -> None:
    assert caught_at(name) is not None
