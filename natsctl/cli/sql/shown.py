"""How answers of queries are shown: as tables, JSON or CSV, once or again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from natsctl.api.errors import UsageError
from natsctl.cli import output

if TYPE_CHECKING:
    from natsctl.spark.sql.result import Result

MOST_ROWS = 1000
"""Rows of a table where nothing else is asked for: what a person may want to look through."""

Look = Callable[[], "Result"]


@dataclass(frozen=True, slots=True)
class Shown:
    """How answers are shown: as what, how often, and with how many rows (None for all)."""

    json: bool = False
    csv: bool = False
    every_s: float | None = None
    rounds: int = 0
    limit: int | None = MOST_ROWS

    def __post_init__(self) -> None:
        if self.json and self.csv:
            raise UsageError("--json and --csv exclude each other")

    def show(self, look: Look) -> None:
        """Show the answer, or with --watch one after the other."""
        if self.every_s is None:
            self.once(look())
        elif self.json:
            from natsctl.cli.live import emit_each

            emit_each(lambda: look().cut(self.limit).documents(), self.every_s, self.rounds)
        elif self.csv:
            from natsctl.cli.live import paced

            for _ in paced(self.every_s, self.rounds):
                self.once(look())
        else:
            from natsctl.cli.live import watch
            from natsctl.cli.render.spark_reports import render_result

            watch(lambda: render_result(look().cut(self.limit)), self.every_s, rounds=self.rounds)

    def once(self, found: Result) -> None:
        """Show an answer."""
        found = found.cut(self.limit)
        if self.json:
            output.emit_json(found.documents())
            return
        if not found.columns:
            output.note("done: the statement returns no rows")
            return
        if self.csv:
            import sys

            from natsctl.cli.render.spark_reports import csv_text
            from natsctl.cli.render.text import safe

            output.emit(csv_text(found, safe) if sys.stdout.isatty() else csv_text(found))
        else:
            from natsctl.cli.render.spark_reports import render_result
            from natsctl.cli.screen import show_table

            show_table(render_result(found))
        if found.more:
            output.note("there are more rows: --limit 0 shows all")


def rows_shown(given: int | None, all_rows: bool) -> int | None:
    """How many rows are shown at most; None for all."""
    if given is None:
        return None if all_rows else MOST_ROWS
    return given or None
