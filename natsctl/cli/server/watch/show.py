"""How what is watched is shown: one table or JSON line a look."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.cli import output
from natsctl.cli.render.columns import Column
from natsctl.cli.server.report.rows import top
from natsctl.cli.waiting import wait_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.system_reports import Row

Every = Annotated[str, typer.Option("--every", metavar="DURATION", help="time between two looks")]
Rounds = Annotated[int, typer.Option("--count", metavar="N", help="end after N looks", min=0, show_default=False)]
Number = Annotated[
    int, typer.Option("--number", "-n", "--top", metavar="N", help="only the first N rows", min=0, show_default=False)
]


def show_rows(
    title: str,
    table: Sequence[Column[Row]],
    look: Callable[[], list[Row]],
    order: tuple[str | None, bool, str],
    number: int,
    every: str,
    rounds: int,
    json: bool,
) -> None:
    """Show the rows of one look after the other; `order` is the column, the other way round, and the default one."""
    every_s = wait_seconds(every, "--every") or 1.0
    sort, reverse, default = order

    def rows() -> list[Row]:
        return top(look(), table, sort, reverse, number, default)[0]

    if json:
        _lines(rows, every_s, rounds)
        return
    from natsctl.cli.live import watch
    from natsctl.cli.render.server_sheet import render_sheet
    from natsctl.cli.screen import width

    def view() -> RenderableType:
        return render_sheet(title, table, rows(), width(), none=f"{title}: nothing yet")

    watch(view, every_s, rounds=rounds)


def _lines(rows: Callable[[], list[Row]], every_s: float, rounds: int) -> None:
    shown = 0
    while not rounds or shown < rounds:
        if shown:
            time.sleep(every_s)
        output.emit_json_line({"rows": rows()})
        shown += 1
