"""Tables drawn line by line: rich renders every cell as a paragraph, which takes 8 s for 10,000 streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from natsctl.cli.render.text import folded

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

    from natsctl.cli.render.fit import Fit


def draw(
    table: Table, found: Fit, below: Sequence[str], console: Console, options: ConsoleOptions
) -> Iterator[Segment]:
    """The segments of a table of which this is shown, with lines below it."""
    box = table.box
    if box is None:
        raise ValueError("a table without a box is not drawn here")
    box = box.substitute(options)
    rule = console.get_style(table.border_style or "none")
    widths = found.widths
    padded = [width + 2 for width in widths]
    right = [part.right for part in found.parts]
    whole = sum(padded) + len(padded) + 1
    yield from _titled(table.title, whole, options.max_width)
    yield Segment(box.get_top(padded) + "\n", rule)
    headings = [part.title for part in found.parts]
    yield from _row(headings, widths, right, (box.head_left, box.head_vertical, box.head_right), rule)
    yield Segment(box.get_row(padded, "head") + "\n", rule)
    edges = (box.mid_left, box.mid_vertical, box.mid_right)
    divider = Segment(box.get_row(padded, "row") + "\n", rule)
    for row, cells in zip(table.rows, zip(*(part.cells for part in found.parts), strict=True), strict=True):
        yield from _row(cells, widths, right, edges, rule)
        if row.end_section:
            yield divider
    yield Segment(box.get_bottom(padded) + "\n", rule)
    for text in below:
        for line in folded(text, options.max_width):
            yield Segment(f"{line}\n")


def _titled(title: object, whole: int, most: int) -> Iterator[Segment]:
    """The title in the middle above the table, in lines of the terminal's width."""
    text = title.plain if isinstance(title, Text) else str(title or "")
    for line in folded(text, most) if text else ():
        yield Segment(" " * max(0, (whole - cell_len(line)) // 2))
        yield Segment(line, Style(bold=True))
        yield Segment("\n")


def _row(
    cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], edges: tuple[str, str, str], rule: Style
) -> Iterator[Segment]:
    """The lines of one row; with a coloured rule the letters between keep the terminal's own colour."""
    if all(
        cell.isascii() and len(cell) <= width and "\n" not in cell for cell, width in zip(cells, widths, strict=True)
    ):
        lines: Sequence[Sequence[str]] = (cells,)
    else:
        lines = list(zip_longest(*map(folded, cells, widths), fillvalue=""))
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


def _placed(cell: str, width: int, is_right: bool) -> str:
    if cell.isascii():
        return cell.rjust(width) if is_right else cell.ljust(width)
    blanks = " " * (width - cell_len(cell))
    return blanks + cell if is_right else cell + blanks
