"""The subjects of a stream as a table of as many pairs of columns as the terminal has room for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from natsctl.api.units import plural
from natsctl.cli.render.table import render_table
from natsctl.cli.render.values import count, safe

if TYPE_CHECKING:
    from rich.table import Table

MOST_PAIRS = 3
FRAME = 6
"""Columns that boxes and blanks take for each pair."""


def render_subjects(stream: str, rows: Sequence[tuple[str, int]], width: int | None) -> Table:
    """The table of subjects and counts, in order down the first pair of columns, then the next."""
    pairs = _pairs(rows, width)
    height = -(-len(rows) // pairs)
    lines = []
    for line in range(height):
        cells = [text for at in range(line, len(rows), height) for text in (rows[at][0], count(rows[at][1]))]
        lines.append([*cells, *[""] * (2 * pairs - len(cells))])
    title = f"{plural(len(rows), 'Subject')} in stream {stream}"
    return render_table(title, ("Subject", "Count") * pairs, lines, ("Count",))


def _pairs(rows: Sequence[tuple[str, int]], width: int | None) -> int:
    if width is None:
        return 1
    each = max(7, *(len(safe(subject)) for subject, _ in rows)) + max(5, *(len(count(n)) for _, n in rows)) + FRAME
    return max(1, min(MOST_PAIRS, width // each, len(rows)))
