"""Cron patterns and schedule patterns."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from natsctl.api.times import parse_time
from natsctl.jetstream.timed.cron import CronError, parse_cron
from natsctl.jetstream.timed.schedule_pattern import ScheduleError, TimeZoneError, first_firing, next_firing

NEW_YORK = ZoneInfo("America/New_York")


def moments(pattern: str, start: str, number: int = 3, zone: str = "UTC") -> list[str]:
    """Return the next moments of a pattern."""
    cron, ts_ns, found = parse_cron(pattern), parse_time(start), []
    for _ in range(number):
        moment = cron.next_after(ts_ns, ZoneInfo(zone))
        found.append(moment.isoformat())
        ts_ns = int(moment.timestamp()) * 1_000_000_000
    return found


@pytest.mark.parametrize(
    ("pattern", "first"),
    [
        ("* * * * * *", "2026-01-01T00:00:01"),
        ("*/10 * * * * *", "2026-01-01T00:00:10"),
        ("0 30 * * * *", "2026-01-01T00:30:00"),
        ("0 0/20 * * * *", "2026-01-01T00:20:00"),
        ("0 0 0 * * sun", "2026-01-04T00:00:00"),
        ("0 0 0 13 * fri", "2026-01-02T00:00:00"),
        ("0 0 0 */2 * mon", "2026-01-03T00:00:00"),
        ("0 0 0 29 2 *", "2028-02-29T00:00:00"),
        ("0 0 0 1 JAN,MAR ?", "2026-03-01T00:00:00"),
        ("5,1-3 0 0 1 1 *", "2026-01-01T00:00:01"),
    ],
)
def test_the_next_moment(pattern: str, first: str) -> None:
    assert moments(pattern, "2026-01-01T00:00:00.5Z", 1) == [first + "+00:00"]


@pytest.mark.parametrize(
    "pattern",
    ["", "* * * * *", "* * * * * * *", "60 * * * * *", "* * 24 * * *", "* * * 0 * *", "* * * * 0 *", "* * * * * 7",
     "0 0 0 30 2 *", "5-1 * * * * *", "1-2-3 * * * * *", "1/2/3 * * * * *", "*/0 * * * * *", "-1 * * * * *",
     "1.5 * * * * *", ", * * * * *", "x * * * * *"],
)  # fmt: skip
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(CronError):
        parse_cron(pattern).next_after(parse_time("2026-01-01T00:00:00Z"))


def test_an_hour_that_is_skipped_names_no_moment_and_one_that_is_repeated_names_two() -> None:
    spring = moments("0 30 2 * * *", "2026-03-07T12:00:00Z", 2, "America/New_York")
    assert spring == ["2026-03-09T02:30:00-04:00", "2026-03-10T02:30:00-04:00"]
    autumn = moments("0 30 1 * * *", "2026-10-31T12:00:00Z", 3, "America/New_York")
    assert autumn == ["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"]


def header(pattern: str, zone: str = "") -> bytes:
    """Return the header of a schedule."""
    line = f"Nats-Schedule-Time-Zone: {zone}\r\n" if zone else ""
    return f"NATS/1.0\r\nNats-Schedule: {pattern}\r\n{line}\r\n".encode()


def test_an_interval_counts_from_the_nearest_second() -> None:
    for start, first in (("10.4", "13"), ("10.5", "14")):
        firing = first_firing(header("@every 3s"), parse_time(f"2026-01-01T00:00:{start}Z"))
        assert firing is not None
        assert (firing.text, firing.repeats) == (f"2026-01-01T00:00:{first}Z", True)


def test_moments_that_have_passed_are_left_out() -> None:
    stored, now = parse_time("2026-01-01T00:00:00Z"), parse_time("2026-01-01T00:00:59.6Z")
    every = next_firing(header("@every 10s"), stored, now)
    cron = next_firing(header("*/7 * * * * *", "Asia/Tokyo"), stored, now)
    assert every is not None
    assert cron is not None
    assert every.text == "2026-01-01T00:01:10Z"
    assert cron.text == "2026-01-01T09:01:07+09:00"


def test_a_zone_that_is_none_is_told_before_the_pattern() -> None:
    with pytest.raises(TimeZoneError):
        first_firing(header("nonsense", "Mars/Olympus"), 0)
    with pytest.raises(ScheduleError):
        first_firing(header("@every 1h", "UTC"), 0)
