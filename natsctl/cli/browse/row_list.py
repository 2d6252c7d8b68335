"""A list that draws only the rows on the screen: it costs the same for ten rows and for a million."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from rich.segment import Segment
from textual.binding import Binding
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from natsctl.cli.render.text import folded, length

Cells = Sequence[tuple[str, str]]
"""A row as texts and their roles: "" or one of ROLES."""
ROLES: Final = ("dim", "name", "good", "warn", "bad")


class RowList(ScrollView, can_focus=True):
    """Rows with a cursor; `draw` returns the cells of a row for a width."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"row--cursor", *(f"row--{role}" for role in ROLES)}
    BINDINGS: ClassVar[list[Any]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", show=False),
        Binding("ctrl+u", "page(-0.5)", show=False),
        Binding("ctrl+d", "page(0.5)", show=False),
        Binding("home,g", "top", show=False),
        Binding("end,G", "bottom", show=False),
        Binding("enter,l,right", "open", show=False),
    ]

    class RowEvent(Message):
        """Base class of the cursor's events."""

        def __init__(self, rows: RowList) -> None:
            super().__init__()
            self.rows = rows

        @property
        def control(self) -> RowList:
            return self.rows

    class RowMoved(RowEvent):
        """The cursor is on another row."""

    class RowOpened(RowEvent):
        """A row was chosen with Enter or a double click."""

    class RowEdge(RowEvent):
        """The cursor is at an end, or was asked to go beyond it: `step` is -1 or 1, or ±2 for the very end."""

        def __init__(self, rows: RowList, step: int) -> None:
            super().__init__(rows)
            self.step = step

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.draw: Callable[[int, int], Cells] = lambda index, width: ()
        self.notice = ""
        self.cursor = 0
        self.length = 0

    def show(self, count: int, cursor: int | None = None, notice: str = "") -> None:
        self.length, self.notice = count, notice
        before = self.cursor
        self.cursor = max(0, min(self.cursor if cursor is None else cursor, count - 1))
        self.virtual_size = Size(self.size.width, max(count, 1))
        if cursor is not None or self.cursor != before:
            self._follow()
        self.refresh()

    @property
    def shown(self) -> range:
        first = int(self.scroll_offset.y)
        return range(min(first, self.length), min(first + max(1, self.size.height), self.length))

    def render_line(self, y: int) -> Strip:
        width, index = self.size.width, y + int(self.scroll_offset.y)
        style = self.rich_style
        if index >= self.length:
            text = self._notice_lines(width)[index : index + 1] if not self.length else []
            dim = self.get_component_rich_style("row--dim")
            return Strip([Segment(text[0], dim)] if text else []).adjust_cell_length(width, style)
        if index == self.cursor:
            mark = self.get_component_rich_style("row--cursor", partial=True)
            plain = "".join(text for text, _ in self.draw(index, width))
            return Strip([Segment(plain, style + mark)]).adjust_cell_length(width, style + mark)
        segments = [
            Segment(text, self.get_component_rich_style(f"row--{role}") if role else style)
            for text, role in self.draw(index, width)
        ]
        return Strip(segments).adjust_cell_length(width, style)

    def _notice_lines(self, width: int) -> list[str]:
        return [f" {line}" for line in folded(self.notice, max(width - 2, 8))] if self.notice else []

    def _follow(self) -> None:
        top, height = int(self.scroll_offset.y), max(1, self.size.height)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, force=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, force=True)

    def _go(self, cursor: int, step: int = 0) -> None:
        target = max(0, min(cursor, self.length - 1))
        moved, self.cursor = target != self.cursor, target
        self._follow()
        self.refresh()
        if moved:
            self.post_message(self.RowMoved(self))
        if step and (target == 0 or target >= self.length - 1):
            self.post_message(self.RowEdge(self, step))

    def action_move(self, step: int) -> None:
        self._go(self.cursor + step, step)

    def action_page(self, pages: float) -> None:
        self._go(self.cursor + int(pages * max(1, self.size.height - 1)), 1 if pages > 0 else -1)

    def action_top(self) -> None:
        self._go(0, -2)

    def action_bottom(self) -> None:
        self._go(self.length - 1, 2)

    def action_open(self) -> None:
        if self.length:
            self.post_message(self.RowOpened(self))

    def on_click(self, event: Click) -> None:
        """Select the row under the mouse; a double click opens it."""
        index = int(event.y + self.scroll_offset.y)
        if index < self.length:
            self._go(index)
            if event.chain == 2:
                self.action_open()

    def on_resize(self, event: Resize) -> None:
        self.virtual_size = Size(event.size.width, max(self.length, 1))
        self._follow()


_BARS: Final = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    last = list(values)[-width:]
    highest = max(last, default=0.0)
    bars = "".join(_BARS[max(1, round(value / highest * 8))] if value > 0 else " " for value in last)
    return bars.rjust(width)


def short(number: float) -> str:
    """Return a number in at most five columns: `999`, `1.2K`, `345M`."""
    if number < 1000:
        return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
    for unit in "KMGTP":
        number /= 1000
        if number < 999.5 or unit == "P":
            return f"{number:.1f}{unit}" if number < 99.95 else f"{number:.0f}{unit}"
    return ""


def cut(text: str, width: int) -> str:
    """Return a text in exactly `width` columns, cut or padded."""
    if text.isascii():
        return text.ljust(width) if len(text) <= width else f"{text[: max(width - 1, 0)]}…"
    while length(text) > width:
        text = f"{text[:-2]}…" if len(text) > 1 else ""
    return text + " " * (width - length(text))
