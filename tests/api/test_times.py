"""Times of the wire and nanoseconds since the epoch."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.times import ZERO_NS, ZERO_TIME, format_time, is_zero, parse_time

LAST_NS = 253_402_300_799 * 10**9 + 999_999_999


@given(st.integers(ZERO_NS, LAST_NS))
def test_a_written_time_reads_back_as_itself(ns: int) -> None:
    assert parse_time(format_time(ns)) == ns


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.integers(-14 * 60, 14 * 60))
def test_an_offset_is_taken_off(moment: datetime, minutes: int) -> None:
    sign = "-" if minutes < 0 else "+"
    text = f"{moment.isoformat()}{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    since = moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC) - timedelta(minutes=minutes)
    assert parse_time(text) == (since // timedelta(microseconds=1)) * 1000


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (1_500_000_000, "1970-01-01T00:00:01.5Z"),
        (ZERO_NS, ZERO_TIME),
    ],
)
def test_trailing_zeros_are_trimmed(ns: int, text: str) -> None:
    assert format_time(ns) == text


def test_digits_past_the_ninth_are_cut() -> None:
    assert parse_time("1970-01-01T00:00:00.1234567899Z") == 123_456_789


NO_TIMES = (
    "", "yesterday", "2026-01-31", "2026-01-31T12:00:00", "2026-02-30T12:00:00Z", "2026-01-31T24:00:00Z",
    "2026-01-31T12:60:00Z", "0000-01-01T00:00:00Z", "2026-01-31T12:00:00ZZ",
)  # fmt: skip


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_time_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"time"):
        parse_time(text)


def test_zero_is_the_absent_time_and_the_year_one() -> None:
    assert is_zero(None)
    assert is_zero("")
    assert is_zero(ZERO_TIME)
    assert not is_zero("1970-01-01T00:00:00Z")
