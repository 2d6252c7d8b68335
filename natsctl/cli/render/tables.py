"""Tables in a box, fitted to the width of the terminal.

Cells are text, never markup; numbers, times and headings stay in one piece, other texts fold between
words. A table that is too wide drops, one after another and no more than necessary: columns that are empty in every
row, the offset of its times if all have the same, its least important columns, and then width of texts. Dropped columns
are listed below it. If that does not suffice, each row becomes a paragraph with a line for each column. `--columns`,
`--wide`, `--sort` and `--reverse` choose and order columns by their titles.

Tables are drawn here, as rich's own take 8 s for 10,000 streams, and the import of its console costs more than the rest
of a short command. Live views draw the same lines through rich.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from natsctl.api.errors import UsageError
from natsctl.cli.framework.output import table_style
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.render.text import folded, length, safe
from natsctl.hints import TYPE_CHECKING, Annotated, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

BETWEEN: Final = 3
"""Terminal columns between two columns of a table: a blank, the rule and a blank."""
COMFORT: Final = 20
"""Width below which a text column is narrowed only once no more columns can be left out."""
NARROWEST: Final = 8
"""Minimum width of a text column."""
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([+-]\d\d:\d\d)")


T = TypeVar("T")

Columns = Annotated[
    str | None,
    Option("--columns", metavar="NAME[,NAME]", help="show these columns, in this order"),
]
Wide = Annotated[bool, Option("--wide", help="all columns")]
Sort = Annotated[str | None, Option("--sort", metavar="COLUMN", help="sort the rows by this column")]
Reverse = Annotated[bool, Option("--reverse", "-R", help="reverse the order")]


Line: TypeAlias = Sequence[tuple[str, str]]
"""A line of the screen: its parts, each with a style of `STYLES`, or "" for none."""
STYLES: Final = {
    "": "",
    "bold": "\x1b[1m",
    **{
        colour: f"\x1b[{31 + index}m"
        for index, colour in enumerate(("red", "green", "yellow", "blue", "magenta", "cyan"))
    },
}


class BoxStyle(NamedTuple):
    """The characters of a table's frame; a rule has a left end, a line, a crossing and a right end."""

    top: str
    edge: str
    rule: str
    bottom: str


BOXES: Final = {
    "rounded": BoxStyle("╭─┬╮", "│", "├─┼┤", "╰─┴╯"),
    "double": BoxStyle("╔═╦╗", "║", "╠═╬╣", "╚═╩╝"),
    "square": BoxStyle("┌─┬┐", "│", "├─┼┤", "└─┴┘"),
    "ascii": BoxStyle("+--+", "|", "|-+|", "+--+"),
}


class Drawn:
    """Lines for a terminal or a pipe; also a renderable of rich, for live views."""

    def lines(self, width: int, box: str = "") -> Iterator[Line]:
        """Yield the lines in at most so many columns, with a box of `BOXES` instead of the user's."""
        raise NotImplementedError

    def text(self, width: int, *, colour: bool, box: str = "") -> str:
        drawn = []
        for line in self.lines(width, box):
            for text, style in line:
                drawn.append(f"{STYLES[style]}{text}\x1b[0m" if colour and style and text else text)
            drawn.append("\n")
        return "".join(drawn)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        box = "ascii" if options.ascii_only else "square" if options.legacy_windows else ""
        for line in self.lines(options.max_width, box):
            for text, style in line:
                yield Segment(text, console.get_style(style or "none"))
            yield Segment.line()


class Stack(Drawn):
    """Tables and texts below each other."""

    def __init__(self, *parts: Drawn | str) -> None:
        self._parts = parts

    def lines(self, width: int, box: str = "") -> Iterator[Line]:
        for part in self._parts:
            yield from _folded_lines(part, width) if isinstance(part, str) else part.lines(width, box)


def _folded_lines(text: str, width: int, style: str = "") -> Iterator[Line]:
    return ([(line, style)] for line in folded(text, width))


class Table(Drawn):
    """Rows under headings, drawn without splits inside a word if they fit, else as paragraphs.

    The columns named in `right` are aligned to the right. Those in `least` are left out first, in that order, if
    the table is too wide; `more` is the hint how to see them. Texts are escaped when they are added.
    """

    def __init__(
        self, title: str, columns: Sequence[str], right: Iterable[str] = (), least: Sequence[str] = (), more: str = ""
    ) -> None:
        self.title = safe(title)
        self.columns = list(columns)
        self.right = frozenset(right)
        self.least = least
        self.more = more
        self.caption = ""
        self.rows: list[Sequence[str]] = []
        self.dividers: set[int] = set()
        """The numbers of rows, from 1, below which a line is drawn."""

    def add_row(self, *cells: str) -> None:
        self.rows.append([safe(cell) for cell in cells])

    def add_section(self) -> None:
        self.dividers.add(len(self.rows))

    def lines(self, width: int, box: str = "") -> Iterator[Line]:
        cells = list(zip(*self.rows, strict=True)) or [()] * len(self.columns)
        parts = [DrawnColumn(title, cells[index], title in self.right) for index, title in enumerate(self.columns)]
        layout = fit(parts, self.least, width)
        if layout is None:
            yield from self._paragraphs(parts, width)
        else:
            yield from _draw(self, layout, width, box)
            for text in self._below(layout):
                yield from _folded_lines(text, width)

    def _below(self, found: Fit) -> list[str]:
        below = self.caption.splitlines()
        if found.offset:
            below.append(f"times are {found.offset}")
        if found.left_out:
            below.append(f"hidden columns: {', '.join(found.left_out)}{f' ({self.more})' if self.more else ''}")
        return below

    def _paragraphs(self, parts: Sequence[DrawnColumn], width: int) -> Iterator[Line]:
        margin = max((len(part.title) for part in parts if any(part.cells)), default=0)
        beside = margin + 2 <= width // 2
        if self.title:
            yield from _folded_lines(self.title, width, "bold")
        for row in self.rows:
            yield ()
            for title, value in zip(self.columns, row, strict=True):
                if value:
                    yield from _labelled(title, value, margin if beside else 0, width)
        if self.caption:
            yield ()
            yield from _folded_lines(self.caption, width)


def render_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Iterable[str] = (),
    *,
    least: Sequence[str] = (),
    more: str = "-j shows them",
) -> Table:
    table = Table(title, columns, right, least, more)
    for row in rows:
        table.add_row(*row)
    return table


TROUBLE: Final = 1000
"""`spare` of the columns that show trouble: left out after all others, or before them if it is missing."""


class Column(NamedTuple, Generic[T]):
    """One column: its title, its cells, and the sort key of rows (the cell, unless `order` is given)."""

    title: str
    cell: Callable[[T], str]
    order: Callable[[T], Any] | None = None
    wide: bool = False
    """Only shown with `--wide`, or when it is named."""
    spare: int = 0
    """Order of leaving out columns of a table that is too wide, lowest first; 0 for never, as when named."""
    total: Callable[[int], str] | None = None
    """Text of the sum of the sort keys, for a row of totals."""

    @property
    def word(self) -> str:
        return self.title.lower().replace(" ", "-").replace("%", "").strip("-")

    @property
    def right(self) -> bool:
        """Return whether it is aligned to the right, as columns with a sort key of their own are."""
        return self.order is not None

    def key(self, row: T) -> Any:
        return (self.order or self.cell)(row)


def selected_columns(table: Sequence[Column[T]], words: str | None, wide: bool) -> list[Column[T]]:
    """Return the columns named in `words`, else all with `wide`, else those not marked wide."""
    if words is None and not wide:
        return [column for column in table if not column.wide]
    asked = table if words is None else [_named(table, word, "--columns") for word in words.replace(",", " ").split()]
    return [column._replace(spare=0) for column in asked]


def sorted_rows(
    rows: Iterable[T], table: Sequence[Column[T]], sort: str | None, reverse: bool, default: str = "name"
) -> list[T]:
    """Return the rows sorted by a column, ascending unless `reverse`. Raises UsageError for an unknown name."""
    return sorted(rows, key=_named(table, sort or default, "--sort").key, reverse=reverse)


def render_columns(
    title: str,
    columns: Sequence[Column[T]],
    rows: Iterable[T],
    more: str = "--columns selects them",
) -> Table:
    rows = list(rows)
    cells = [[column.cell(row) for column in columns] for row in rows]
    right = [column.title for column in columns if column.right]

    def spare(column: Column[T]) -> int:
        is_calm = column.spare == TROUBLE and not any(map(column.key, rows))
        return 1 if is_calm else column.spare

    least = [column.title for column in sorted(columns, key=spare) if column.spare]
    return render_table(title, [column.title for column in columns], cells, right, least=least, more=more)


def _named(table: Sequence[Column[T]], word: str, flag: str) -> Column[T]:
    wanted = word.strip().lower().replace("_", "-").replace(" ", "-")
    found = next((column for column in table if column.word == wanted), None)
    if found is None and wanted and flag == "--sort":  # the tool has conns for connections, gw for gws and the like
        short = [column for column in table if column.word.startswith(wanted.removesuffix("s"))]
        found = short[0] if len(short) == 1 else None
    if found is None:
        known = [column.word for column in table]
        raise UsageError(
            f"{flag}: there is no column {word!r}", hint=did_you_mean(wanted, known) or f"there are {', '.join(known)}"
        )
    return found


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
    summed: Sequence[T] = (),
) -> Drawn:
    """Return the table, or `none` without rows; the last row has `totals` by title, and the sums over `summed`.

    Without `words` or `wide` (None: there is no such flag) the columns marked wide are left out, last first, if
    they do not fit; without a `width` all fit.
    """
    if none and not rows:
        return Stack(none)
    columns = selected_columns(table, words, True)
    sums = {column.title: column.total(sum(map(column.key, summed))) for column in columns if summed and column.total}
    totals = {**(totals or {}), **sums}
    if words is None and not wide and width is not None:
        last = len(columns)
        columns = [
            one._replace(spare=one.spare or last - index) if one.wide else one for index, one in enumerate(columns)
        ]
    sheet = render_columns(title, columns, rows, "--wide" if wide is not None else "")
    if totals and rows:
        sheet.add_section()
        sheet.add_row(*(totals.get(column.title, "") for column in columns))
    return sheet


class DrawnColumn(NamedTuple):
    """A column: its heading and cells, and whether they are aligned to the right."""

    title: str
    cells: Sequence[str]
    right: bool = False


class Fit(NamedTuple):
    """The shown columns, their widths, those left out, and the offset that was removed from times."""

    parts: Sequence[DrawnColumn]
    widths: Sequence[int]
    left_out: Sequence[str] = ()
    offset: str = ""


def fit(parts: Sequence[DrawnColumn], least: Sequence[str], width: int) -> Fit | None:
    """Return the layout of the table in `width`, None if it does not fit.

    The columns named in `least` are left out in that order.
    """
    used = [index for index, part in enumerate(parts) if any(part.cells)] or list(range(len(parts)))
    for places in (range(len(parts)), used):
        kept = [parts[place] for place in places]
        if (widths := _widths(kept, width, width)) is not None:
            return Fit(kept, widths)
    short, offset = _without_offset(parts)
    rank = {part.title: least.index(part.title) for part in parts if part.title in least}
    given_up = sorted((at for at in used if short[at].title in rank), key=lambda at: rank[short[at].title])[
        : len(used) - 1
    ]
    found = _with_room(short, used, given_up, width)
    if found is None:
        return None
    kept, widths, left_out = found
    removed_offset = offset if any(_is_moment(cell) for part in kept for cell in part.cells) else ""
    return Fit(kept, widths, [parts[at].title for at in sorted(left_out)], removed_offset)


def _with_room(
    parts: Sequence[DrawnColumn], used: Sequence[int], given_up: Sequence[int], width: int
) -> tuple[list[DrawnColumn], list[int], list[int]] | None:
    """Return the columns that fit, with as few left out as possible, their widths, and those left out."""

    def without(gone: Sequence[int], comfort: int = COMFORT) -> tuple[list[DrawnColumn], list[int] | None]:
        kept = [parts[at] for at in used if at not in gone]
        return kept, _widths(kept, width, comfort)

    for number in range(len(given_up) + 1):
        gone = list(given_up[:number])
        kept, widths = without(gone)
        if widths is None:
            continue
        # Columns that were left out before a wider one may fit again.
        for at in reversed(gone[:-1]):
            more, wider = without([one for one in gone if one != at])
            if wider is not None:
                gone, kept, widths = [one for one in gone if one != at], more, wider
        return kept, widths, gone
    for comfort in range(COMFORT - 1, NARROWEST - 1, -1):
        kept, widths = without(given_up, comfort)
        if widths is not None:
            return kept, widths, list(given_up)
    return None


def _without_offset(parts: Sequence[DrawnColumn]) -> tuple[list[DrawnColumn], str]:
    """Return the columns with their times' offset removed, and that offset; unchanged unless all have the same one."""
    offsets = {match[2] for part in parts for cell in part.cells if (match := _MOMENT.fullmatch(cell))}
    if len(offsets) != 1:
        return list(parts), ""
    short = [
        part._replace(cells=[match[1] if (match := _MOMENT.fullmatch(cell)) else cell for cell in part.cells])
        for part in parts
    ]
    return short, offsets.pop()


def _widths(parts: Sequence[DrawnColumn], width: int, comfort: int) -> list[int] | None:
    """Return the width of each column, None if the table is too wide.

    Each gets its minimum; the rest is shared evenly by columns that need more.
    """
    room = width - BETWEEN * len(parts) - 1
    lines = [max(map(length, (part.title, *set(_lines(part)))), default=1) for part in parts]
    widths = [_minimum_width(part, comfort) for part in parts]
    if sum(widths) > room:
        return None
    left = room - sum(widths)
    lacking = sorted(range(len(widths)), key=lambda at: lines[at] - widths[at])
    for number, at in enumerate(lacking):
        more = min(lines[at] - widths[at], left // (len(lacking) - number))
        widths[at] += more
        left -= more
    return widths


def _minimum_width(part: DrawnColumn, comfort: int) -> int:
    heading = max(map(length, part.title.split()), default=1)
    longest = max(map(length, set(_lines(part))), default=1)
    whole = part.right or all(cell in ("", "never") or _is_moment(cell) for cell in part.cells)
    return max(heading, longest if whole else min(longest, comfort), 1)


def _is_moment(cell: str) -> bool:
    return len(cell) in (19, 26) and cell[:4].isdigit() and cell[4:5] == "-"


def _lines(part: DrawnColumn) -> Iterator[str]:
    for cell in part.cells:
        yield from cell.splitlines()


def _draw(table: Table, layout: Fit, width: int, box_name: str) -> Iterator[Line]:
    name, colour = table_style()
    box = BOXES[box_name or name]
    widths = layout.widths
    right = [part.right for part in layout.parts]
    whole = sum(widths) + BETWEEN * len(widths) + 1
    for title in folded(table.title, width) if table.title else ():
        yield [(" " * max(0, (whole - length(title)) // 2), ""), (title, "bold")]
    yield [(_rule(box.top, widths), colour)]
    yield from _row([part.title for part in layout.parts], widths, right, box.edge, colour)
    divider = [(_rule(box.rule, widths), colour)]
    yield divider
    for number, cells in enumerate(zip(*(part.cells for part in layout.parts), strict=True), 1):
        yield from _row(cells, widths, right, box.edge, colour)
        if number in table.dividers:
            yield divider
    yield [(_rule(box.bottom, widths), colour)]


def _rule(marks: str, widths: Sequence[int]) -> str:
    return f"{marks[0]}{marks[2].join(marks[1] * (width + 2) for width in widths)}{marks[3]}"


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], edge: str, colour: str) -> Iterator[Line]:
    """Yield the lines of one row; with a coloured rule the text keeps the terminal's own colour."""
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
        if colour:
            yield [(edge, colour), *(part for cell in shown for part in ((cell, ""), (edge, colour)))]
        else:
            yield [(f"{edge}{edge.join(shown)}{edge}", "")]


def _placed(cell: str, width: int, is_right: bool) -> str:
    if cell.isascii():
        return cell.rjust(width) if is_right else cell.ljust(width)
    blanks = " " * (width - length(cell))
    return blanks + cell if is_right else cell + blanks


def _labelled(title: str, value: str, margin: int, width: int) -> Iterator[Line]:
    """Yield the lines of a label and its wrapped value; without a margin the label is on a line above."""
    indent = margin + 2 if margin else 2
    if not margin:
        yield from _folded_lines(f"{title}:", width)
    for number, line in enumerate(folded(value, max(width - indent, 1))):
        lead = f"{title:>{margin}}: " if margin and not number else " " * indent
        yield [(lead + line, "")]
