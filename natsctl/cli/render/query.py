"""The rows of a query as a table, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from natsctl.api.units import plural
from natsctl.cli.render.table import render_table

if TYPE_CHECKING:
    from rich.table import Table

    from natsctl.spark.sql.result import Result

LONGEST_CELL = 1000
"""Letters of a value that a table shows; payloads may be of any length."""


def render_result(result: Result) -> Table:
    """The rows as a table below their number."""
    from natsctl.spark.sql.result import shown, unique

    columns = unique(result.columns)
    renamed = dict(zip(columns, result.columns, strict=True))
    rows = [[_cut(shown(value)) for value in row] for row in result.rows]
    right = [name for name in columns if renamed[name] in result.numbers]
    title = f"First {plural(len(rows), 'row')}" if result.more else plural(len(rows), "row")
    return render_table(title, columns, rows, right)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…"


def csv_text(result: Result, harmless: Callable[[str], str] = str) -> str:
    """The rows as CSV with a line of names; `harmless` is for values that a terminal may see."""
    from natsctl.spark.sql.result import cell

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([harmless(name) for name in result.columns])
    writer.writerows([harmless(cell(value)) for value in row] for row in result.rows)
    return text.getvalue().removesuffix("\n")
