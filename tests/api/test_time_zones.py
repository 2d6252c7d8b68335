"""Time zones by the names that Go knows; `Local` is that of the machine."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from natsctl.api.times import time_zone

HOUR = timedelta(hours=1)


@pytest.fixture(params=["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZoneInfo]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield ZoneInfo(request.param)
    monkeypatch.undo()
    time.tzset()


def test_local_times_are_those_of_the_machine(machine: ZoneInfo) -> None:
    """Every hour around the changes of clocks in 2026, and calendar times that are skipped or come twice."""
    local = time_zone("Local")
    assert local is not None
    for month, day in ((3, 7), (3, 28), (10, 24), (10, 31)):
        for hours in range(72):
            moment = datetime(2026, month, day, 0, 30, tzinfo=UTC) + hours * HOUR
            here, there = moment.astimezone(local), moment.astimezone(machine)
            assert here.isoformat() == there.isoformat()
            assert here.astimezone(UTC) == moment
            for fold in (0, 1):
                wall = moment.replace(fold=fold)
                assert wall.replace(tzinfo=local).utcoffset() == wall.replace(tzinfo=machine).utcoffset()


@pytest.mark.parametrize("name", ["local", "LOCAL", "utc", "", "../UTC", "/etc/localtime", "Europe", "Nowhere/None"])
def test_other_names_are_of_no_zone(name: str) -> None:
    assert time_zone(name) is None


def test_utc_needs_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONTZPATH", "")
    assert time_zone("UTC") is UTC
