"""Tables are drawn line by line, without rich's paragraphs."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from natsctl.cli.render.tables import render_table

ROWS = [
    ("ORDERS", "a text that has some words and goes on", "1,234"),
    ("WIDE_名前_\x1b[2J", "", "7"),
    ("X" * 40, "two\nlines", "12,345,678"),
]


def drawn(width: int, *, sections: bool) -> list[str]:
    table = render_table("Streams of somebody", ("Name", "Description", "Messages"), ROWS, ("Messages",))
    if sections:
        table.add_section()
        table.add_row("Total", "", "3")
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("sections", [False, True])
@pytest.mark.parametrize("width", [50, 60, 80, 200])
def test_every_letter_of_a_table_is_shown_in_lines_of_one_length(width: int, sections: bool) -> None:
    title, *lines = drawn(width, sections=sections)
    assert title.strip() == "Streams of somebody"
    assert {cell_len(line) for line in lines} == {cell_len(lines[0])}
    assert cell_len(lines[0]) <= width
    cells = [re.split("[│├┤]", line)[1:-1] for line in lines]
    names = "".join(row[0].strip() for row in cells if len(row) == 3)
    assert names == "NameORDERS" + "WIDE_名前_\\x1b[2J" + "X" * 40 + ("Total" if sections else "")
    assert "12,345,678" in "".join(lines)


def test_coloured_rules_leave_the_cells_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_COLOR", "red")
    out = io.StringIO()
    table = render_table("T", ("Name",), [("A",)])
    Console(file=out, width=80, force_terminal=True, color_system="standard").print(table)
    assert "\x1b[31m│\x1b[0m A    \x1b[31m│\x1b[0m" in out.getvalue()
