"""Information pages: a heading, sections, and rows with labels that end in one column.

Pages are plain text, so that no terminal library is imported for them; the same page serves a pipe (never wrapped) and
a terminal of any width (values wrapped and indented).
"""

from __future__ import annotations

from natsctl.cli.render.text import folded
from natsctl.hints import Any

INDENT = 2
LONGEST_LABEL = 32
"""Maximum columns for labels; a longer one does not widen the column of the whole page."""
NARROWEST_VALUE = 16
"""Minimum columns for wrapped values; with less the terminal folds the lines."""

_BOLD, _OFF = "\x1b[1m", "\x1b[0m"


class Section:
    """A title ("" for the rows under the heading), lines of text below it, and its rows.

    A section that is not `shown` is in `Page.fields` only.
    """

    __slots__ = ("lines", "rows", "shown", "title")

    def __init__(self, title: str, *, shown: bool = True) -> None:
        self.title = title
        self.rows: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.shown = shown

    def line(self, text: str) -> None:
        """Add a line of text without a label; all lines come before the rows."""
        self.lines.append(text)

    def row(self, label: str, value: str) -> None:
        self.rows.append((label, value))

    def maybe(self, label: str, value: str) -> None:
        if value:
            self.rows.append((label, value))

    def many(self, label: str, values: list[str]) -> None:
        for index, value in enumerate(values):
            self.rows.append((label if index == 0 else "", value))


class Page:
    """A whole page; values must be escaped (`text.safe`) before they are added."""

    __slots__ = ("heading", "sections")

    def __init__(self, heading: str) -> None:
        self.heading = heading
        self.sections: list[Section] = []

    def section(self, title: str = "", *, shown: bool = True) -> Section:
        """Add and return an empty section; one that stays empty is not shown."""
        added = Section(title, shown=shown)
        self.sections.append(added)
        return added

    def text(self, width: int | None = None, colour: bool = False) -> str:
        """Return the page, ending in a line end; `width` in columns wraps long values, None never does."""
        shown = [section for section in self.sections if section.shown and (section.rows or section.lines)]
        labels = [len(label) for section in shown for label, _ in section.rows]
        column = INDENT + max((length for length in labels if length <= LONGEST_LABEL), default=LONGEST_LABEL)
        heading = "\n".join(folded(self.heading, width)) if width else self.heading
        lines = [f"{_BOLD}{heading}{_OFF}" if colour else heading, ""]
        for section in shown:
            if section.title:
                lines += [f"{_BOLD}{section.title}:{_OFF}" if colour else f"{section.title}:", ""]
            for text in section.lines:
                lines += [f"{' ' * INDENT}{part}" for part in (folded(text, width - INDENT) if width else [text])]
            for label, value in section.rows:
                lines += _row(label, value, column, width)
            lines.append("")
        return "\n".join(lines)

    def fields(self) -> dict[str, Any]:
        """Return labels and values: of the heading next to `Header`, of each section below its title.

        A row without a label continues the one above it and is left out, as in the `nats` tool. Lines are a `header`.
        """
        found: dict[str, Any] = {"Header": self.heading} if self.heading else {}
        for section in self.sections:
            rows: dict[str, Any] = {label: value for label, value in section.rows if label}
            if section.lines:
                rows["header"] = list(section.lines)
            if not section.title:
                found |= rows
            elif rows:
                found.setdefault(section.title, {}).update(rows)
        return found


def _row(label: str, value: str, column: int, width: int | None) -> list[str]:
    lead = f"{label:>{column}}{':' if label else ' '} "
    room = 0 if width is None else width - column - 2
    if room < NARROWEST_VALUE or (len(value) <= room and len(lead) <= column + 2):
        return [(lead + value).rstrip()]
    parts = folded(value, room)
    if width is not None and len(lead) + len(value) > width and len(lead) > column + 2:
        return [*folded(lead.rstrip(), width), *(" " * (column + 2) + part for part in parts)]
    if len(lead) > column + 2:
        return [lead + value]
    return [lead + parts[0], *(" " * (column + 2) + part for part in parts[1:])]
