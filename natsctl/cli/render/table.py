"""Tables in a rounded box; cells are text, never markup, and long ones fold instead of losing letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from natsctl.cli.look import table_look
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from rich.table import Table


def render_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Iterable[str] = (),
    *,
    least: Sequence[str] = (),
    more: str = "-j shows them",
) -> Table:
    """A table of `rows`; the columns named in `right` are aligned to the right.

    Those in `least` are left out, in that order, where there is no room; `more` tells how to see them then.
    """
    from rich.text import Text

    from natsctl.cli.render.fitted import FittedTable

    box, colour = table_look()
    table = FittedTable(title=Text(safe(title), style="bold"), box=box, border_style=colour, least=least, more=more)
    numbers = frozenset(right)
    for name in columns:
        table.add_column(Text(name), justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(safe(cell)) for cell in row))
    return table
