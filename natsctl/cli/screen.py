"""Pages and tables on stdout: laid out for a terminal's width, in full length in a pipe."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from natsctl.cli import output

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from natsctl.cli.render.page import Page

PIPE_WIDTH = 4000
"""Columns for tables where no terminal limits them: wider than any row of names."""


def width() -> int | None:
    """The columns to lay out for: COLUMNS if set, else those of the terminal on stdout, else None for no limit."""
    if os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty():
        return max(20, output.width())
    return None


def show_page(page: Page) -> None:
    """Print an information page.

    With TESTING=true in the environment it is JSON of labels and values: tests written for the `nats` tool, which does
    the same, compare those.
    """
    if os.environ.get("TESTING") == "true":
        output.emit_json(page.fields())
        return
    output.emit(page.text(width(), output.has_color(sys.stdout)).rstrip("\n"))


def show_table(table: RenderableType) -> None:
    """Print a table."""
    console().print(table)


def console(*, live: bool = False) -> Console:
    """Where tables and live views are drawn: stdout, in its width and with the colours that it takes.

    What is `live` moves the cursor of a terminal, also of one that shows no colours.
    """
    from rich.console import Console

    colour = output.has_color(sys.stdout)
    if live and not colour and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        return Console(file=sys.stdout, force_terminal=True, color_system=None, highlight=False, markup=False)
    return Console(
        file=sys.stdout,
        width=None if live and sys.stdout.isatty() else width() or PIPE_WIDTH,
        force_terminal=colour,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
    )
