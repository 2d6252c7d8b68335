"""Tables whose columns can be chosen and sorted by, with `--columns`, `--wide`, `--sort` and `--reverse`.

A table is a list of columns; each says how its cell is written and, where that is another thing, by what it sorts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from natsctl.api.errors import UsageError
from natsctl.cli.render.table import render_table

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")

Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="NAME[,NAME]", help="show these columns, in this order", show_default=False),
]
Wide = Annotated[bool, typer.Option("--wide", help="all columns", show_default=False)]
Sort = Annotated[
    str | None, typer.Option("--sort", metavar="COLUMN", help="sort the rows by this column", show_default=False)
]
Reverse = Annotated[bool, typer.Option("--reverse", "-R", help="reverse the order", show_default=False)]


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column: its title, what stands in a cell, and what rows are sorted by (the cell, unless `order` says)."""

    title: str
    cell: Callable[[T], str]
    order: Callable[[T], Any] | None = None
    wide: bool = False
    """Only shown with `--wide`, or when it is named."""
    spare: int = 0
    """Left out where there is no room, those with the lowest number first; 0 for never, as when it is named."""

    @property
    def word(self) -> str:
        """How the command line names it."""
        return self.title.lower().replace(" ", "-").replace("%", "").strip("-")

    @property
    def right(self) -> bool:
        """Whether it holds numbers: what sorts by another thing than its text does not begin on the left."""
        return self.order is not None

    def key(self, row: T) -> Any:
        """What a row is sorted by."""
        return (self.order or self.cell)(row)


def chosen(table: Sequence[Column[T]], words: str | None, wide: bool) -> list[Column[T]]:
    """The columns to show. Raises UsageError for a name that none has."""
    if words is None and not wide:
        return [column for column in table if not column.wide]
    asked = table if words is None else [_named(table, word, "--columns") for word in words.replace(",", " ").split()]
    return [replace(column, spare=0) for column in asked]


def ordered(
    rows: Iterable[T], table: Sequence[Column[T]], sort: str | None, reverse: bool, default: str = "name"
) -> list[T]:
    """The rows by a column, smallest first. Raises UsageError for a name that none has."""
    return sorted(rows, key=_named(table, sort or default, "--sort").key, reverse=reverse)


def render_columns(
    title: str,
    columns: Sequence[Column[T]],
    rows: Iterable[T],
    more: str = "--columns selects them",
) -> Table:
    """The table of those columns; `more` is for `render_table`."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    right = [column.title for column in columns if column.right]
    least = [column.title for column in sorted(columns, key=lambda column: column.spare) if column.spare]
    return render_table(title, [column.title for column in columns], cells, right, least=least, more=more)


def _named(table: Sequence[Column[T]], word: str, flag: str) -> Column[T]:
    wanted = word.strip().lower().replace("_", "-").replace(" ", "-")
    found = next((column for column in table if column.word == wanted), None)
    if found is None:
        from natsctl.cli.suggest import did_you_mean

        known = [column.word for column in table]
        raise UsageError(
            f"{flag}: there is no column {word!r}", hint=did_you_mean(wanted, known) or f"there are {', '.join(known)}"
        )
    return found
