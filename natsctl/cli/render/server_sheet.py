"""Wide tables of servers and what hangs on them: as many columns as there is room for, and a line of totals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from natsctl.cli.render.columns import Column, chosen, render_columns
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")


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

    Without `words` or `wide` (None: there is no such flag) the columns marked wide are left out, last first, where
    there is no room for them; without a `width` there is always room.
    """
    if none and not rows:
        from rich.text import Text

        return Text(none)
    totals = totals or {}
    columns = chosen(table, words, True)
    if words is None and not wide and width is not None:
        last = len(columns)
        columns = [replace(one, spare=last - at) if one.wide else one for at, one in enumerate(columns)]
    sheet = render_columns(title, columns, rows, "--wide" if wide is not None else "")
    if totals and rows:
        from rich.text import Text

        sheet.add_section()
        sheet.add_row(*(Text(safe(totals.get(column.title, ""))) for column in columns))
    return sheet


def summed(rows: Sequence[T], value: Callable[[T], int], show: Callable[[int], str]) -> str:
    """The total of a column."""
    return show(sum(value(row) for row in rows))
