"""How what is watched is shown: one table or JSON line a look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from natsctl.cli.options import Json, Rounds
from natsctl.cli.render.tables import Column, Reverse, Sort
from natsctl.cli.server.report.rows import top
from natsctl.cli.waiting import every_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from natsctl.client.system.reports import Row

Number = Annotated[
    int, typer.Option("--number", "-n", "--top", metavar="N", help="only the first N rows", min=0, show_default=False)
]


class Looks(NamedTuple):
    """How often is looked, and how that is wanted: a bundle of flags for commands."""

    sort: Sort = None
    reverse: Reverse = False
    every: Annotated[str, typer.Option("--every", metavar="DURATION", help="time between two refreshes")] = "2s"
    rounds: Rounds = 0
    json: Json = False


def show_rows(
    title: str, table: Sequence[Column[Row]], look: Callable[[], list[Row]], looks: Looks, default: str, number: int
) -> None:
    """Show the rows of one look after the other, in the order of the column `default` if no other is wanted."""
    every_s = every_seconds(looks.every, "--every")

    def rows() -> list[Row]:
        return top(look(), table, looks.sort, looks.reverse, number, default)[0]

    from natsctl.cli.live import emit_each, watch

    if looks.json:
        emit_each(lambda: {"rows": rows()}, every_s, looks.rounds)
        return
    from natsctl.cli.render.tables import render_sheet
    from natsctl.cli.screen import width

    def view() -> RenderableType:
        return render_sheet(title, table, rows(), width(), none=f"{title}: nothing yet")

    watch(view, every_s, rounds=looks.rounds)
