"""Plots are a function of their values: as high and wide as they were asked to be, whatever the values are."""

from __future__ import annotations

import pytest

from natsctl.cli.render.plot import Rate, Series, counted, plot_lines, plot_text


@pytest.mark.parametrize("values", [[], [0], [5], [-3, 2], [1e12, 1], [7] * 500, list(range(300))])
@pytest.mark.parametrize(("width", "height"), [(20, 5), (60, 10), (200, 2)])
def test_lines_fit_whatever_the_values_are(values: list[float], width: int, height: int) -> None:
    lines = plot_lines(values, width, height)
    assert len(lines) == height
    assert max(map(len, lines)) <= width


def test_the_largest_value_is_the_highest_bar_and_the_newest_is_last() -> None:
    lines = plot_lines([0, 8, 0, 3], 20, 2)
    bars = [line.partition("┤")[2] for line in lines]
    assert bars[0] == " █"
    assert bars[1] == "▁█▁▇"


def test_a_level_that_hardly_moves_is_seen_to_move() -> None:
    top = plot_lines([1000, 1001], 40, 4)[0].partition("┤")[2]
    assert top == " █"


def test_only_the_newest_values_are_shown() -> None:
    assert plot_lines([9] * 100 + [0] * 100, 30, 1)[0].count("▁") > 0
    assert "█" not in "".join(plot_lines([9] * 100 + [0] * 100, 30, 3))


def test_rates_come_from_counters_and_never_fall_below_zero() -> None:
    rate = Rate("r")
    for counter, at_s in ((10, 0.0), (30, 2.0), (5, 3.0)):
        rate.count(counter, at_s)
    assert list(rate.values) == [10.0, 0.0]


def test_titles_have_the_newest_value() -> None:
    series = Series("Messages")
    series.add(1234)
    assert plot_text([series], 40, 10).splitlines()[0] == "Messages: 1,234"
    assert [counted(value) for value in (0, 12.34, 1234, 123_456, 2.5e6)] == ["0", "12.3", "1,234", "123K", "2.5M"]
