"""Wide tables of servers and what hangs on them: as many columns as there is room for, and a line of totals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from natsctl.cli.render.columns import Column, chosen, render_columns
from natsctl.cli.render.values import safe

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")
_BETWEEN = 3
"""Columns of the terminal that a line and its blanks take between two cells."""


def render_sheet(
    title: str,
    table: Sequence[Column[T]],
    rows: Sequence[T],
    width: int | None,
    totals: Mapping[str, str] | None = None,
    *,
    words: str | None = None,
    wide: bool | None = None,
    none: str = "",
) -> Table | Text:
    """The table, or without rows what `none` says.

    Without `words` or `wide` (None: there is no such flag) the columns marked wide are left out, last first, until the
    table fits `width`.
    """
    if none and not rows:
        from rich.text import Text

        return Text(none)
    totals = totals or {}
    columns = chosen(table, words, True)
    if words is None and not wide and width is not None:
        columns = _fitting(columns, rows, totals, width)
    sheet = render_columns(title, columns, rows)
    if totals and rows:
        from rich.text import Text

        sheet.add_section()
        sheet.add_row(*(Text(safe(totals.get(column.title, ""))) for column in columns))
    if len(columns) < len(table) and words is None and wide is not None:
        sheet.caption = "more with --wide"
    return sheet


def _fitting(columns: list[Column[T]], rows: Sequence[T], totals: Mapping[str, str], width: int) -> list[Column[T]]:
    taken = {
        column.title: max(
            len(column.title), len(totals.get(column.title, "")), *(len(safe(column.cell(row))) for row in rows), 0
        )
        + _BETWEEN
        for column in columns
    }
    kept = list(columns)
    for column in reversed(columns):
        if sum(taken[one.title] for one in kept) + 1 <= width:
            break
        if column.wide:
            kept.remove(column)
    return kept


def summed(rows: Sequence[T], value: Callable[[T], int], show: Callable[[int], str]) -> str:
    """The total of a column."""
    return show(sum(value(row) for row in rows))
