"""The store keeps its promises under random disasters, and the simulation that says so can fail."""

from dataclasses import asdict

import pytest

from tests.support.store_mutations import MUTATIONS, caught_at
from tests.support.store_simulation import simulate

SEEDS = 80


@pytest.mark.timeout(300)
def test_no_promise_is_broken_in_many_sessions_of_crashes() -> None:
    reports = [simulate(seed) for seed in range(SEEDS)]
    assert sum(report.kills for report in reports) > SEEDS
    assert sum(report.power_losses for report in reports) > SEEDS
    assert sum(report.disk_faults for report in reports) > SEEDS // 4
    assert sum(report.acks for report in reports) > 50 * SEEDS
    assert sum(report.disk_image_checks for report in reports) > SEEDS // 2
    assert sum(report.packed_files for report in reports) > SEEDS // 4
    assert sum(report.erasures for report in reports) > SEEDS
    assert sum(report.repaired for report in reports) > SEEDS // 2


def test_no_promise_is_broken_where_streams_are_worked_on_by_whole_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "index.BULK",
        "index.BULK_DROP",
        "appended.BULK_MESSAGES",
        "appended.BULK_SUBJECTS",
        "index.BULK_MESSAGES",
        "view.BULK_MESSAGES",
    ):
        monkeypatch.setattr(f"natsctl.store.{name}", 0)
    monkeypatch.setattr("natsctl.store.recovery.BULK_REMOVALS", 0)
    for seed in range(1000, 1025):
        simulate(seed)


def test_a_seed_reproduces_its_session() -> None:
    assert asdict(simulate(769)) == asdict(simulate(769))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_planted_fault_is_noticed(name: str) -> None:
    assert caught_at(name) is not None
