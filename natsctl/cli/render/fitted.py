"""A table that suits the width it is drawn in: no column is squeezed to where words fall apart.

Where the columns have no room side by side, each row becomes a paragraph with a line for each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from natsctl.cli.render.drawn import MANY_ROWS, draw

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

CAPS: Final = range(24, 5, -1)
"""How much of the longest word of a column is kept in one piece, as the room allows; the last is the least."""
_BETWEEN: Final = 3
"""Columns of the terminal between two of the table: a blank, the rule and a blank."""


class FittedTable(Table):
    """A table drawn with whole words as far as there is room, else as paragraphs."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        room = options.max_width - _BETWEEN * len(self.columns) - 1
        cells = [[_text(cell) for cell in (column.header, *column.cells)] for column in self.columns]
        # A number that goes on in the next line is no number any more.
        whole = [
            _longest_word(each[1:]) if own.justify == "right" else 0
            for own, each in zip(self.columns, cells, strict=True)
        ]
        widths = _widths([_longest_word(each) for each in cells], whole, [_longest_line(each) for each in cells], room)
        if widths is None:
            yield from self._paragraphs(options.max_width)
            return
        if self.row_count > MANY_ROWS and self.box is not None:
            yield from draw(self, cells, widths, console, options)
            return
        for column, width in zip(self.columns, widths, strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)

    def _paragraphs(self, width: int) -> RenderResult:
        """The rows below each other; cells that are empty are left out."""
        titles = [_text(column.header) for column in self.columns]
        margin = max((len(title) for title in titles), default=0)
        beside = margin + 2 <= width // 2
        if self.title:
            yield self.title
        for row in zip(*(column.cells for column in self.columns), strict=True):
            yield Text("")
            for title, cell in zip(titles, row, strict=True):
                value = _text(cell)
                if value and beside:
                    yield _line(f"{title:>{margin}}: ", value)
                elif value:
                    yield Text(f"{title}:", overflow="fold")
                    yield _line("  ", value)
        if self.caption:
            yield Text("")
            yield self.caption


def _line(label: str, value: str) -> Table:
    """A label and its value, which goes on below itself."""
    grid = Table.grid()
    grid.add_column(no_wrap=True, min_width=len(label))
    grid.add_column(overflow="fold")
    grid.add_row(Text(label), Text(value))
    return grid


def _text(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def _widths(words: Sequence[int], whole: Sequence[int], lines: Sequence[int], room: int) -> list[int] | None:
    """The width of each column: first room for words, then what is left for those that lack least; None for no room.

    `whole` is what a column needs in any case.
    """
    tries = ([max(min(word, cap), least) for word, least in zip(words, whole, strict=True)] for cap in CAPS)
    widths = next((one for one in tries if sum(one) <= room), None)
    if widths is None:
        return None
    left = room - sum(widths)
    lacking = sorted(range(len(widths)), key=lambda at: lines[at] - widths[at])
    for number, at in enumerate(lacking):
        more = min(lines[at] - widths[at], left // (len(lacking) - number))
        widths[at] += more
        left -= more
    return widths


def _longest_word(cells: Sequence[str]) -> int:
    return max((_length(word) for cell in set(cells) for word in cell.split()), default=1)


def _longest_line(cells: Sequence[str]) -> int:
    return max((_length(line) for cell in set(cells) for line in cell.splitlines()), default=1)


def _length(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)
