"""Long tables drawn line by line: rich renders every cell as a paragraph, which takes 8 s for 10,000 streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

MANY_ROWS: Final = 200
"""Rows from which on a table is drawn here; below that nobody waits for rich."""

Cells = Sequence[Sequence[str]]


def draw(
    table: Table, cells: Cells, widths: Sequence[int], console: Console, options: ConsoleOptions
) -> Iterator[Segment]:
    """The segments of a table whose columns have these texts, each with its header first, and these widths."""
    box = table.box
    if box is None:
        raise ValueError("a table without a box is not drawn here")
    box = box.substitute(options)
    rule = console.get_style(table.border_style or "none")
    padded = [width + 2 for width in widths]
    right = [column.justify == "right" for column in table.columns]
    whole = sum(padded) + len(padded) + 1
    yield from _titled(table.title, whole, Style(bold=True))
    yield Segment(box.get_top(padded) + "\n", rule)
    rows = zip(*cells, strict=True)
    yield from _row(next(rows), widths, right, (box.head_left, box.head_vertical, box.head_right), rule, console)
    yield Segment(box.get_row(padded, "head") + "\n", rule)
    edges = (box.mid_left, box.mid_vertical, box.mid_right)
    divider = Segment(box.get_row(padded, "row") + "\n", rule)
    for row, drawn in zip(table.rows, rows, strict=True):
        yield from _row(drawn, widths, right, edges, rule, console)
        if row.end_section:
            yield divider
    yield Segment(box.get_bottom(padded) + "\n", rule)
    yield from _titled(table.caption, whole, Style(dim=True, italic=True))


def _titled(title: object, width: int, style: Style) -> Iterator[Segment]:
    text = title.plain if isinstance(title, Text) else str(title or "")
    if text:
        yield Segment(f"{text:^{width}}\n", style)


def _row(
    cells: Sequence[str],
    widths: Sequence[int],
    right: Sequence[bool],
    edges: tuple[str, str, str],
    rule: Style,
    console: Console,
) -> Iterator[Segment]:
    """The lines of one row; with a coloured rule the letters between keep the terminal's own colour."""
    if all(
        cell.isascii() and len(cell) <= width and "\n" not in cell for cell, width in zip(cells, widths, strict=True)
    ):
        lines: Sequence[Sequence[str]] = (cells,)
    else:
        folded = [_folded(cell, width, console) for cell, width in zip(cells, widths, strict=True)]
        lines = list(zip_longest(*folded, fillvalue=""))
    for line in lines:
        shown = [
            f" {_placed(cell, width, is_right)} " for cell, width, is_right in zip(line, widths, right, strict=True)
        ]
        left, between, end = edges
        if not rule:
            yield Segment(f"{left}{between.join(shown)}{end}\n")
            continue
        yield Segment(left, rule)
        for number, cell in enumerate(shown):
            if number:
                yield Segment(between, rule)
            yield Segment(cell)
        yield Segment(f"{end}\n", rule)


def _folded(cell: str, width: int, console: Console) -> list[str]:
    if "\n" not in cell and cell_len(cell) <= width:
        return [cell]
    return [line.plain.rstrip() for line in Text(cell).wrap(console, width, overflow="fold")]


def _placed(cell: str, width: int, is_right: bool) -> str:
    if cell.isascii():
        return cell.rjust(width) if is_right else cell.ljust(width)
    blanks = " " * (width - cell_len(cell))
    return blanks + cell if is_right else cell + blanks
