"""The bars of the browser: titles of lists and of pages that the mouse opens, and the first and the last line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.events import Click
from textual.widgets import Static

from natsctl.cli.browse.row_list import cut
from natsctl.cli.render.text import safe

if TYPE_CHECKING:
    from natsctl.cli.browse.catalog import CatalogSection
    from natsctl.client.connection import Connection

_HINTS = "? keys  / filter  : command  q end"


class SectionHeads(Static):
    """The titles of the lists, with their numbers of entries; `choose` gets the place of one that is clicked."""

    def __init__(self, choose: Callable[[int], None], **options: Any) -> None:
        super().__init__(markup=False, **options)
        self._choose = choose

    def show(
        self, sections: Sequence[CatalogSection], places: range, active: int, width: int, filters: dict[str, str]
    ) -> None:
        self._first = places.start
        lines = []
        for place in places:
            section = sections[place]
            mark = "▾" if place == active else "▸"
            part = filters.get(section.title) if place == active else ""
            title = f"{section.title} /{part}" if part else section.title
            text = f"{mark} {place + 1} {safe(title)}"
            number = section.count
            style = "bold" if place == active else ""
            urgent = section.title == "Attention" and section.names
            lines.append(Text(cut(text, width - len(number) - 1), style))
            lines[-1].append(f"{number} ", "bold red" if urgent else "not bold dim")
        self.display = bool(lines)
        self.update(Text("\n").join(lines))

    def on_click(self, event: Click) -> None:
        self._choose(self._first + event.y)


class TabBar(Static):
    """The titles of an entry's pages; `choose` gets the place of one that is clicked."""

    def __init__(self, choose: Callable[[int], None], **options: Any) -> None:
        super().__init__(markup=False, **options)
        self._choose = choose

    def show(self, titles: Sequence[str], active: int, above: str) -> None:
        text = Text(no_wrap=True)
        self._ends: list[int] = []
        for place, title in enumerate(titles):
            style = "bold reverse" if place == active and not above else ""
            text.append(f" {title} ", style).append(" ")
            self._ends.append(len(text))
        if above:
            text.append(f" {above} ", "bold reverse")
        self.update(text)

    def on_click(self, event: Click) -> None:
        place = next((place for place, end in enumerate(self._ends) if event.x < end), None)
        if place is not None:
            self._choose(place)


def title_line(connection: Connection, read_only: bool, width: int) -> Text:
    """Return the first line: the server."""
    info = connection.info
    name = info.get("server_name", "") if info.get("server_name") != info.get("server_id") else ""
    parts = (connection.target.shown, str(name), str(info.get("version", "")))
    where = safe("  ".join(part for part in parts if part))
    left = " natsctl browse  "
    right = "read-only " if read_only else ""
    middle = cut(where, max(0, width - len(left) - len(right)))
    return Text.assemble((left, "bold"), middle, (right, "bold"), no_wrap=True)


def status_line(notice: str, width: int) -> Text:
    text = Text(f" {cut(notice, max(0, width - len(_HINTS) - 3))} ", "bold" if notice else "", no_wrap=True)
    return text.append(_HINTS, "not bold dim")
