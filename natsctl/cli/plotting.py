"""What the `graph` commands share: their flags, and the room that there is to draw in."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output

Every = Annotated[str, typer.Option("--watch", metavar="DURATION", help="time between two refreshes")]


def plot_room(rounds: int) -> tuple[int, int]:
    """Columns and lines to plot in. Raises UsageError where they are too few, or nobody could end the looks."""
    from natsctl.cli.render.plot import SMALLEST
    from natsctl.cli.screen import console

    if not rounds and not sys.stdout.isatty():
        raise UsageError("there is no terminal to draw on: give --count N to end after N refreshes")
    screen = console()
    columns, lines = min(screen.width, output.width()), screen.height
    if columns < SMALLEST[0] or lines < SMALLEST[1]:
        raise UsageError(f"the terminal is too small to plot: {SMALLEST[0]} columns and {SMALLEST[1]} lines are needed")
    return columns, lines - 1
