"""An encrypted store keeps its promises and its secrets under random disasters, and the simulation can fail."""

import pytest

from tests.support.encrypted_simulation import MUTATIONS, caught_at, simulate_encrypted

SEEDS = 60


@pytest.mark.timeout(300)
def test_no_promise_is_broken_and_nothing_stands_in_clear_in_many_sessions_of_crashes() -> None:
    reports = [simulate_encrypted(seed) for seed in range(SEEDS)]
    assert sum(report.kills for report in reports) > SEEDS
    assert sum(report.power_losses for report in reports) > SEEDS
    assert sum(report.disk_faults for report in reports) > SEEDS // 4
    assert sum(report.acks for report in reports) > 50 * SEEDS
    assert sum(report.disk_image_checks for report in reports) > SEEDS // 2
    assert sum(report.packed_files for report in reports) > SEEDS // 8
    assert sum(report.erasures for report in reports) > SEEDS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_planted_fault_of_the_encryption_is_noticed(name: str) -> None:
    assert caught_at(name) is not None
