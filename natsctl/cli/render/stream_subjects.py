"""The subjects of a stream as a table of as many pairs of columns as the terminal has room for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.cli.render.values import count, safe

if TYPE_CHECKING:
    from rich.table import Table

MOST_PAIRS = 3
FRAME = 6
"""Columns that boxes and blanks take for each pair."""


def render_subjects(stream: str, rows: Sequence[tuple[str, int]], width: int | None) -> Table:
    """The table of subjects and counts, in order down the first pair of columns, then the next."""
    from rich.table import Table
    from rich.text import Text

    from natsctl.cli.look import table_look

    pairs = _pairs(rows, width)
    box, colour = table_look()
    title = Text(safe(f"{count(len(rows))} Subjects in stream {stream}"), style="bold")
    # A title is wrapped at the width of its table, which a few short subjects do not fill.
    room = len(title) if width is None else min(len(title), width)
    table = Table(title=title, min_width=room, box=box, border_style=colour, header_style="", pad_edge=True)
    for _ in range(pairs):
        table.add_column("Subject", overflow="fold")
        table.add_column("Count", justify="right")
    height = -(-len(rows) // pairs)
    for line in range(height):
        cells = [rows[at] for at in range(line, len(rows), height)]
        texts = [Text(text) for subject, number in cells for text in (safe(subject), count(number))]
        table.add_row(*texts, *[""] * (2 * pairs - len(texts)))
    return table


def _pairs(rows: Sequence[tuple[str, int]], width: int | None) -> int:
    if width is None:
        return 1
    each = max(7, *(len(safe(subject)) for subject, _ in rows)) + max(5, *(len(count(n)) for _, n in rows)) + FRAME
    return max(1, min(MOST_PAIRS, width // each, len(rows)))
