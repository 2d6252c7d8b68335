"""A table that suits the width it is drawn in; what it gives up for that is told below it.

Where the columns have no room side by side, each row becomes a paragraph with a line for each column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from natsctl.cli.render.drawn import draw
from natsctl.cli.render.fit import Fit, Part, fit
from natsctl.cli.render.text import folded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult


class FittedTable(Table):
    """A table drawn with whole words as far as there is room, else as paragraphs."""

    def __init__(self, *, least: Sequence[str] = (), more: str = "", **kind: Any) -> None:
        """`least` are the columns that are left out first where there is no room; `more` says how to see them."""
        super().__init__(**kind)
        self.least = least
        self.more = more

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        parts = [
            Part(_text(column.header), [_text(cell) for cell in column.cells], column.justify == "right")
            for column in self.columns
        ]
        found = fit(parts, self.least, options.max_width)
        if found is None or self.box is None:
            yield from self._paragraphs(parts, options.max_width)
        else:
            yield from draw(self, found, self._below(found), console, options)

    def _below(self, found: Fit) -> list[str]:
        """What stands below the table."""
        told = _text(self.caption).splitlines() if self.caption else []
        if found.offset:
            told.append(f"times are {found.offset}")
        if found.left_out:
            told.append(f"hidden columns: {', '.join(found.left_out)}{f' ({self.more})' if self.more else ''}")
        return told

    def _paragraphs(self, parts: Sequence[Part], width: int) -> Iterator[Text]:
        """The rows below each other; cells that are empty are left out."""
        margin = max((len(part.title) for part in parts if any(part.cells)), default=0)
        beside = margin + 2 <= width // 2
        if self.title:
            yield Text(_text(self.title), style="bold", overflow="fold")
        for row in zip(*(part.cells for part in parts), strict=True):
            yield Text("")
            for part, value in zip(parts, row, strict=True):
                if value:
                    yield from _labelled(part.title, value, margin if beside else 0, width)
        if self.caption:
            yield Text("")
            yield Text(_text(self.caption), overflow="fold")


def _labelled(title: str, value: str, margin: int, width: int) -> Iterator[Text]:
    """A label and its value, which goes on below itself; without a margin the label stands above."""
    indent = margin + 2 if margin else 2
    if not margin:
        yield Text(f"{title}:", overflow="fold")
    for number, line in enumerate(folded(value, max(width - indent, 1))):
        lead = f"{title:>{margin}}: " if margin and not number else " " * indent
        yield Text(lead + line, overflow="fold")


def _text(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
