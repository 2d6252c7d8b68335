"""How far something long is, on stderr: a bar with rate and remaining time at a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from natsctl.cli import output
from natsctl.cli.render.text import count, duration, safe

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_EVERY_S = 2.0
"""Seconds between two lines where there is no terminal."""
RATE_FROM_COLUMNS = 70
"""Columns below which a bar goes without its rate: better than one that folds."""
BYTES = "bytes"
"""The unit whose numbers are shown as sizes; any other is a noun in the plural, such as `messages`."""

_LOOK = {
    "bar.back": "dim",
    "bar.complete": "none",
    "bar.finished": "none",
    "bar.pulse": "dim",
    "progress.percentage": "none",
    "progress.remaining": "none",
}
"""Weight in place of colours, which would vanish on one ground or the other."""


class Tracker(Protocol):
    """What is told how far it is."""

    def at(self, done: float, total: float | None = None) -> None:
        """Say how much is done, and how much there is where that has become known."""


@contextmanager
def progress(
    what: str, total: float | None, unit: str = BYTES, *, bar: bool = True, quiet: bool = False, timed: bool = True
) -> Iterator[Tracker]:
    """Yield a tracker of how much of `total` (None: unknown) is done; with `quiet` nothing is shown.

    Without `timed` neither rate nor remaining time is shown: for totals that grow, as those of Spark's tasks do.
    """
    if quiet:
        yield _Silent()
    elif bar and sys.stderr.isatty():
        with _bars(unit, timed=timed) as bars:
            yield _Bar(bars, bars.add_task(safe(what), total=total))
    else:
        yield _Lines(what, total, unit, timed=timed)


class _Silent:
    def at(self, done: float, total: float | None = None) -> None:
        """Show nothing."""


class _Lines:
    def __init__(self, what: str, total: float | None, unit: str, *, timed: bool = True) -> None:
        self._what, self._total, self._unit, self._timed = what, total, unit, timed
        self._last_s = time.monotonic()
        self._begin: tuple[float, float] | None = None
        """How much was done when that was first known, and when: what came before says nothing about the rate."""

    def at(self, done: float, total: float | None = None) -> None:
        """Write a line when the last one is old enough."""
        self._total = total if total is not None else self._total
        now_s = time.monotonic()
        begun, begin_s = self._begin = self._begin or (done, now_s)
        if now_s - self._last_s < LINE_EVERY_S:
            return
        self._last_s = now_s
        output.log(safe(f"{self._what}: {self._figures(done, done - begun, now_s - begin_s)}"))

    def _figures(self, done: float, newly: float, elapsed_s: float) -> str:
        """The figures of a line, `newly` of which were done in the time."""
        rate = newly / elapsed_s if elapsed_s and self._timed else 0
        if not self._total:
            known = amount(done, self._unit)
            return f"{known}, {amount(rate, self._unit)}/s" if self._timed else known
        share = f"{100 * done / self._total:.0f}% of {amount(self._total, self._unit)}"
        if not rate:
            return share
        left_s = max((self._total - done) / rate, 0)
        return f"{share}, {amount(rate, self._unit)}/s, {duration(int(left_s) * 1_000_000_000)} left"


class _Bar:
    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars, self._task = bars, task

    def at(self, done: float, total: float | None = None) -> None:
        """Move the bar."""
        known = total if total is not None else self._bars.tasks[self._task].total
        self._bars.update(self._task, completed=done, total=known)


def _bars(unit: str, *, timed: bool = True) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from rich.text import Text
    from rich.theme import Theme

    class Figures(ProgressColumn):
        """How much of how much, and how much of it a second."""

        def render(self, task: Task) -> Text:
            done = amount(task.completed, unit)
            if task.total:
                done = f"{_number(task.completed, unit)} of {amount(task.total, unit)}"
            has_rate = timed and task.speed and console.width >= RATE_FROM_COLUMNS
            rate = f", {_number(task.speed or 0, unit)}/s" if has_rate else ""
            return Text(f"{done}{rate}", no_wrap=True)

    console = Console(
        stderr=True, highlight=False, markup=False, no_color=not output.has_color(sys.stderr), theme=Theme(_LOOK)
    )
    what = TextColumn("{task.description}", markup=False)
    # The bar takes what the words leave; without a ratio of its own it would squeeze them.
    bar = BarColumn(bar_width=None, table_column=Column(ratio=1))
    remaining = [TimeRemainingColumn()] if timed else []
    return Progress(what, bar, TaskProgressColumn(), Figures(), *remaining, console=console, expand=True)


def _number(number: float, unit: str) -> str:
    """`1.2 MiB` or `1,234`, before what names the unit."""
    return amount(number, unit) if unit == BYTES else count(round(number))


def amount(number: float, unit: str) -> str:
    """`1.2 MiB` or `1,234 messages`."""
    from natsctl.api.units import format_size, plural

    return format_size(int(number)) if unit == BYTES else plural(round(number), unit.removesuffix("s"))
