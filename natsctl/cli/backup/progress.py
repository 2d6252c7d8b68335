"""How far a backup or restore is: a bar on a terminal, log lines otherwise, all on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from natsctl.api.units import format_size
from natsctl.cli import output
from natsctl.cli.render.values import safe

if TYPE_CHECKING:
    from natsctl.client.backup import Progress

OnProgress = Callable[["Progress"], None]

LINE_EVERY_S = 2.0
"""Seconds between two log lines."""


@contextmanager
def shown(begin: Callable[[Progress], str], verb: str, *, bar: bool, quiet: bool) -> Iterator[OnProgress]:
    """A function to call at each step; the first call tells `begin(progress)`.

    With `bar` and a terminal a bar follows, otherwise a line every `LINE_EVERY_S`, beginning with `verb`; with `quiet`
    nothing is told.
    """
    if quiet:
        yield lambda progress: None
    elif bar and sys.stderr.isatty():
        with _bar(begin) as step:
            yield step
    else:
        yield _lines(begin, verb)


def _lines(begin: Callable[[Progress], str], verb: str) -> OnProgress:
    last_s = 0.0
    begun = False

    def step(progress: Progress) -> None:
        nonlocal last_s, begun
        if not begun:
            begun = True
            output.log(begin(progress))
        elif progress.elapsed_s - last_s >= LINE_EVERY_S:
            last_s = progress.elapsed_s
            size = format_size(progress.archive_bytes)
            output.log(f'{verb} {size} in {progress.chunks:,} chunks for stream "{safe(progress.stream)}"')

    return step


@contextmanager
def _bar(begin: Callable[[Progress], str]) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TaskProgressColumn, TransferSpeedColumn
    from rich.progress import Progress as RichProgress

    console = Console(stderr=True, highlight=False, markup=False, no_color=not output.has_color(sys.stderr))
    sizes = DownloadColumn(binary_units=True)
    columns = (TransferSpeedColumn(), BarColumn(bar_width=None), TaskProgressColumn(), sizes)
    with RichProgress(*columns, console=console, transient=False) as bars:
        task: TaskID | None = None

        def step(progress: Progress) -> None:
            nonlocal task
            if task is None:
                output.note(begin(progress))
                task = bars.add_task("", total=progress.total_bytes or None)
            # The size of the stream is a guess at what its archive will have: grow the guess rather than pass 100%.
            bars.update(
                task,
                completed=progress.archive_bytes,
                total=max(progress.total_bytes, progress.archive_bytes) or None,
            )

        yield step
        if task is not None:
            done = bars.tasks[0].completed
            bars.update(task, total=done or 1, completed=done or 1)
