"""Series of numbers as plots of characters, for views that are redrawn; lines depend only on the values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from natsctl.api.units import format_size

if TYPE_CHECKING:
    from rich.text import Text

BARS = " ▁▂▃▄▅▆▇█"
EIGHTHS = len(BARS) - 1
SMALLEST = (20, 20)
"""Minimum columns and lines of a plot."""
MAX_KEPT = 1000
"""Values of a series that are kept: more than a terminal has columns."""

Unit = Callable[[float], str]


def counted(value: float) -> str:
    """Return a number in few characters: `1,234`, `12.5`, `1.2M`."""
    for limit, divisor, letter in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e5, 1e3, "K")):
        if abs(value) >= limit:
            return f"{value / divisor:.3g}{letter}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.1f}"


def per_second(value: float) -> str:
    """Return `1,234/s`."""
    return f"{counted(value)}/s"


def sized(value: float) -> str:
    """Return `1.2 MiB`."""
    return format_size(int(value))


class Series:
    """The newest values of one figure."""

    def __init__(self, title: str, unit: Unit = counted) -> None:
        self.title = title
        self.unit = unit
        self.values: deque[float] = deque(maxlen=MAX_KEPT)

    def add(self, value: float) -> None:
        self.values.append(value)


class Rate(Series):
    """Growth of a counter per second; counter and time are added."""

    def __init__(self, title: str, unit: Unit = per_second) -> None:
        super().__init__(title, unit)
        self._last: tuple[float, float] | None = None

    def count(self, counter: float, at_s: float) -> None:
        """Add the rate since the last counter; the first call only stores it."""
        if self._last is not None:
            before, then_s = self._last
            self.add(max(0.0, counter - before) / max(at_s - then_s, 1e-9))
        self._last = (counter, at_s)


def plot_lines(values: Sequence[float], width: int, height: int, unit: Unit = counted) -> list[str]:
    """Return `height` lines of at most `width` columns: the newest values as bars, with the scale on the left.

    The scale begins at the smallest value unless that is near 0 compared with the largest, so that changes are visible.
    """
    top, bottom = _scale(values)
    labels = [unit(top), *[""] * max(0, height - 2), unit(bottom)][-height:]
    margin = max(len(label) for label in labels) + 2
    room = max(1, width - margin)
    shown = list(values)[-room:]
    heights = [round((value - bottom) / (top - bottom) * (height * EIGHTHS - 1)) + 1 for value in shown]
    lines = []
    for row in range(height):
        floor = (height - 1 - row) * EIGHTHS
        bars = "".join(BARS[min(max(level - floor, 0), EIGHTHS)] for level in heights)
        lines.append(f"{labels[row]:>{margin - 2}} ┤{bars}"[:width].rstrip())
    return lines


def _scale(values: Sequence[float]) -> tuple[float, float]:
    top, bottom = max(values, default=0.0), min(values, default=0.0)
    if bottom > 0 and bottom < top / 2:
        bottom = 0.0
    if top == bottom:
        bottom = min(0.0, bottom) if top <= 0 else 0.0
        top = top or 1.0
    return top, bottom


def plot_text(series: Sequence[Series], width: int, height: int) -> str:
    """Return all series below each other, each with its title and newest value, in the available space."""
    each = max(2, height // max(1, len(series)) - 2)
    blocks = []
    for one in series:
        newest = f": {one.unit(one.values[-1])}" if one.values else ""
        blocks.append("\n".join([f"{one.title}{newest}"[:width], *plot_lines(one.values, width, each, one.unit), ""]))
    return "\n".join(blocks)


def render_plots(heading: str, series: Sequence[Series], width: int, height: int) -> Text:
    from rich.text import Text

    body = Text(f"{heading[:width]}\n\n", style="bold", no_wrap=True)
    return body.append(Text(plot_text(series, width, height - 3), style="not bold"))
