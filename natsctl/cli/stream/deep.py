"""`natsctl stream report --deep`: what reading every message of a stream tells, through Spark."""

from __future__ import annotations

import time
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from natsctl.api.errors import StorageError, UsageError
from natsctl.cli import output
from natsctl.cli.stream.export import FromBackup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.cli.session import Session
    from natsctl.cli.spark_flags import SparkFlags
    from natsctl.spark.report.model import DeepReport


NEVER = "1970-01-01T00:00:00Z"
"""When the first and the last message of an empty stream were stored."""


class DeepFlags(NamedTuple):
    """What a deep report is asked for: a bundle of flags."""

    deep: Annotated[
        bool, typer.Option("--deep", help="analyse every message of STREAM, with Spark", show_default=False)
    ] = False
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="--deep: write it as an HTML page with plots", show_default=False),
    ] = None
    payloads: Annotated[
        bool, typer.Option("--payloads", help="--deep: also find equal payloads", show_default=False)
    ] = False
    backup: FromBackup = None

    def check(self, stream: str | None, others: bool) -> None:
        """Raises UsageError for what does not go together; `others` is whether flags of the other report were given."""
        if self.deep and others:
            raise UsageError("--deep reports on one stream: it excludes flags about several, and --watch")
        if not self.deep and (stream or self.html or self.payloads or self.backup):
            raise UsageError("STREAM, --html, --payloads and --backup are for --deep")


def deep_report(session: Session, spark: SparkFlags, stream: str, flags: DeepFlags, *, json: bool) -> None:
    """Show the report on a stream, and write its page."""
    from natsctl.api.times import parse_time
    from natsctl.cli.spark_work import run_on_spark
    from natsctl.cli.stream.export import checked_tables
    from natsctl.spark.report.slots import slot_length

    tables = checked_tables(session, stream, flags.backup)
    state = tables.state(stream)
    slot_s = slot_length(*(parse_time(state.get(name) or NEVER) for name in ("first_ts", "last_ts")))
    last_seq = int(state.get("last_seq") or 0)

    def work(opened: SparkSession, options: dict[str, str]) -> DeepReport:
        from natsctl.spark.report.gather import deep_report as report_on

        located = {**tables.options(options, stream), "failOnDataLoss": "false"}
        if tables.on_server:
            located["endingOffsets"] = dumps({stream: last_seq})
        return report_on(opened, located, stream, slot_s, payloads=flags.payloads)

    what = f"Reading Stream {stream}"
    messages = int(state.get("messages") or 0)
    found = run_on_spark(session, spark, work, what=what, needs_server=tables.on_server, messages=messages)
    if flags.html is not None:
        _write(found, flags.html)
    _show(found, json)


def _write(found: DeepReport, path: Path) -> None:
    from natsctl.cli.render.text import stamp
    from natsctl.client.whole_file import whole_file
    from natsctl.spark.report.page import html_page

    try:
        with whole_file(path) as file:
            file.write(html_page(found, stamp(time.time_ns())).encode())
    except OSError as failure:
        raise StorageError(f"--html {path}: {failure.strerror or failure}") from failure
    output.note(f"Wrote the report to {path}")


def _show(found: DeepReport, json: bool) -> None:
    if json:
        from msgspec import to_builtins

        output.emit_json(to_builtins(found))
        return
    from natsctl.cli.render.spark_reports import deep_page, deep_plot, deep_tables
    from natsctl.cli.screen import show_page, show_table, width

    show_page(deep_page(found))
    if found.slots:
        output.emit("\n" + deep_plot(found, width() or 100))
    for table in deep_tables(found):
        output.emit("")
        show_table(table)
