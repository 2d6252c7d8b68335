"""Long tables are drawn without rich's paragraphs, and look the same."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from natsctl.cli.render import fitted
from natsctl.cli.render.table import render_table

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
def test_a_long_table_looks_as_a_short_one(width: int, sections: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    short = drawn(width, sections=sections)
    monkeypatch.setattr(fitted, "MANY_ROWS", 0)
    long = drawn(width, sections=sections)
    assert long[1:] == short[1:]
    assert long[0].strip() == short[0].strip() == "Streams of somebody"


def test_coloured_rules_leave_the_cells_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitted, "MANY_ROWS", 0)
    monkeypatch.setenv("NATS_COLOR", "red")
    out = io.StringIO()
    table = render_table("T", ("Name",), [("A",)])
    Console(file=out, width=80, force_terminal=True, color_system="standard").print(table)
    assert "\x1b[31m│\x1b[0m A    \x1b[31m│\x1b[0m" in out.getvalue()
