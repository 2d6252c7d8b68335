"""When and from where users may connect."""

from datetime import UTC, datetime

import pytest

from natsctl.api.jwt_claims import TimeRange
from natsctl.api.jwt_validation import clock_time, is_inside, may_connect_for_ns
from natsctl.api.times import time_zone

SECOND_NS = 1_000_000_000
HOUR_S = 3600


def at(hour: int, minute: int = 0) -> int:
    return round(datetime(2024, 1, 15, hour, minute, tzinfo=UTC).timestamp()) * SECOND_NS


def left(hour: int, *ranges: tuple[str, str], location: str = "UTC") -> int | None:
    times = [TimeRange(start=start, end=end) for start, end in ranges]
    found = may_connect_for_ns(times, location, at(hour))
    return None if found is None else found // SECOND_NS


@pytest.mark.parametrize(
    ("hour", "start", "end", "hours"),
    [
        (13, "11:00:00", "22:00:00", 9),
        (11, "11:00:00", "22:00:00", None),
        (22, "11:00:00", "22:00:00", None),
        (10, "11:00:00", "22:00:00", None),
        (5, "22:00:00", "06:00:00", 1),
        (23, "22:00:00", "06:00:00", 7),
        (12, "22:00:00", "06:00:00", None),
        (12, "22:00:00", "22:00:00", None),
    ],
)
def test_range_of_hours(hour: int, start: str, end: str, hours: int | None) -> None:
    assert left(hour, (start, end)) == (None if hours is None else hours * HOUR_S)


def test_longest_range_counts_in_its_location_and_without_ranges_there_is_no_end() -> None:
    assert left(12, ("11:00:00", "13:00:00"), ("10:00:00", "20:00:00"), ("1:00:00", "2:00:00")) == 8 * HOUR_S
    assert left(12) == 0
    assert left(12, ("07:00:00", "08:00:00"), location="America/New_York") is None
    assert left(12, ("06:30:00", "08:00:00"), location="America/New_York") == HOUR_S


def test_parts_of_seconds_count() -> None:
    times = [TimeRange(start="11:00:00", end="13:00:00")]
    assert may_connect_for_ns(times, "UTC", at(12) + 500_000_000) == HOUR_S * SECOND_NS - 500_000_000


def test_hours_that_are_none_let_nobody_in() -> None:
    assert left(12, ("00:00:00", "24:00:00")) is None
    for text in ("", "1", "10:00", "24:00:00", "10:60:00", "x", "10:00:00 "):
        assert clock_time(text) is None, text


def test_zones_are_names_of_zones() -> None:
    assert time_zone("Europe/Berlin") is not None
    for name in ("Nowhere/X", "../etc/passwd", "/etc/passwd", "America", "x\0y"):
        assert time_zone(name) is None, name


def test_networks() -> None:
    assert is_inside("anything", [])
    assert is_inside("10.1.2.3", ["192.168.0.0/16", "10.0.0.1/8"])
    assert not is_inside("11.1.2.3", ["10.0.0.0/8"])
    assert is_inside("fe80::1", ["fe80::/10"])
    assert not is_inside("fe80::1", ["10.0.0.0/8"])
    assert not is_inside("", ["10.0.0.0/8"])
    assert not is_inside("10.0.0.1", ["nonsense"])
