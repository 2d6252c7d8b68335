"""Durations and sizes: what people write and what Go writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.api.units import format_duration, format_size, parse_duration, parse_size

NS = st.integers(-(2**63) + 1, 2**63 - 1)


@given(NS)
def test_a_written_duration_reads_back_as_itself(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


DURATIONS = [
    ("0", 0), ("0s", 0), ("1ns", 1), ("1us", 1_000), ("1µs", 1_000), ("1μs", 1_000), ("1.5ms", 1_500_000),
    (".5s", 500_000_000), ("1.s", 1_000_000_000), ("1h30m", 5400 * 10**9), ("1h2m3.5s", 3723_500_000_000),
    ("-2m", -120 * 10**9), ("+2m", 120 * 10**9), ("1d", 86400 * 10**9), ("1w", 7 * 86400 * 10**9),
    ("1M", 30 * 86400 * 10**9), ("1y", 365 * 86400 * 10**9), ("1y2d3h", (367 * 86400 + 3 * 3600) * 10**9),
    (" 5s ", 5 * 10**9),
]  # fmt: skip


@pytest.mark.parametrize(("text", "ns"), DURATIONS)
def test_a_duration_is_read(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "-", "5", "s", ".s", "1x", "1h 2m", "one", "1h2", "--1s", "1e3s", "300y", "٣s"])
def test_what_is_no_duration_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (120 * 10**9, "2m0s"),
        (26 * 3600 * 10**9, "26h0m0s"),
        (3723_000_000_001, "1h2m3.000000001s"),
        (-1_500_000_000, "-1.5s"),
        (2**63 - 1, "2562047h47m16.854775807s"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(ns: int, text: str) -> None:
    assert format_duration(ns) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("1K", 1024),
        ("1k", 1024),
        ("1KB", 1024),
        ("1KiB", 1024),
        ("1.5 MiB", 1536 * 1024),
        ("10GiB", 10 * 2**30),
        ("2T", 2 * 2**40),
        ("1E", 2**60),
        ("-1", -1),
    ],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "1X", "-2", "-1K", "1.5.2K", "KB", "16E", "1 0"])
def test_what_is_no_size_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (13 * 2**20, "13 MiB"),
        (10 * 2**30, "10 GiB"),
        (2**20 - 1, "1.0 MiB"),
        (2**62, "4.0 EiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_a_size_is_written_in_binary_units(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, 2**62))
def test_a_written_size_is_near_the_size(size: int) -> None:
    assert abs(parse_size(format_size(size)) - size) <= size * 0.06
