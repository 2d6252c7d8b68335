"""The engine keeps its promises under random clients and disasters, and the simulation that says so can fail."""

from dataclasses import asdict

import pytest

from tests.support.engine_mutations import MUTATIONS, caught_at
from tests.support.engine_simulation import simulate_engine

SEEDS = 20


@pytest.mark.timeout(300)
def test_no_promise_is_broken_in_many_sessions_of_crashes() -> None:
    reports = [simulate_engine(seed) for seed in range(SEEDS)]
    assert sum(report.crashes for report in reports) > SEEDS
    assert sum(report.crashed_starts for report in reports) > SEEDS // 2
    assert sum(report.kills for report in reports) > SEEDS
    assert sum(report.power_losses for report in reports) > SEEDS
    assert sum(report.clean_stops for report in reports) > SEEDS // 10
    assert sum(report.acks for report in reports) > 10 * SEEDS
    assert sum(report.deliveries for report in reports) > 10 * SEEDS
    assert sum(report.unanswered for report in reports) > SEEDS
    assert sum(report.restores for report in reports) > SEEDS
    assert sum(report.disk_image_checks for report in reports) > SEEDS
    assert sum(report.slow_steps for report in reports) > 5 * SEEDS
    assert sum(report.blocks for report in reports) > 5 * SEEDS
    assert sum(report.packed_files for report in reports) > SEEDS // 10


def test_a_seed_reproduces_its_session() -> None:
    assert asdict(simulate_engine(7)) == asdict(simulate_engine(7))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_planted_fault_is_noticed(name: str) -> None:
    assert caught_at(name) is not None
