"""`natsctl stream export`: the messages of a stream as files, through Spark."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from natsctl.api.errors import UsageError
from natsctl.api.units import plural
from natsctl.cli import output
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json, session_of
from natsctl.cli.render.text import count, safe
from natsctl.cli.spark_flags import SparkFlags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.cli.session import Session
    from natsctl.cli.sql.tables import Tables
    from natsctl.spark.export.report import Exported
    from natsctl.spark.export.target import Target

Subjects = Annotated[
    str,
    typer.Option("--subject", metavar="SUBJECT[,SUBJECT]", help="only messages on these subjects", show_default=False),
]
Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="only messages stored since this time, or this long ago", show_default=False
    ),
]
StartSeq = Annotated[
    int | None, typer.Option("--start-seq", metavar="SEQ", help="the first sequence", min=1, show_default=False)
]
EndSeq = Annotated[
    int | None,
    typer.Option("--end-seq", metavar="SEQ", help="the last sequence, itself included", min=1, show_default=False),
]
FromBackup = Annotated[
    Path | None,
    typer.Option(
        "--backup", metavar="PATH", help="read a backup at or below this path instead of a server", show_default=False
    ),
]


class Part(NamedTuple):
    """Which messages are meant: a bundle of flags."""

    subject: Subjects = ""
    since: Since = ""
    start_seq: StartSeq = None
    end_seq: EndSeq = None

    def options(self, stream: str) -> dict[str, str]:
        """The options of the data source that mean them. Raises UsageError."""
        if self.since and self.start_seq:
            raise UsageError("--since and --start-seq exclude each other")
        if self.start_seq and self.end_seq and self.start_seq > self.end_seq:
            raise UsageError(f"--start-seq {self.start_seq} is behind --end-seq {self.end_seq}")
        found = {"subject": self.subject, "startingTimestamp": _moment(self.since)}
        for name, seq in (("startingOffsets", self.start_seq), ("endingOffsets", self.end_seq)):
            found[name] = json_text.dumps({stream: seq}) if seq else ""
        if self.since:
            found["startingOffsetsByTimestampStrategy"] = "latest"
        return {name: value for name, value in found.items() if value}


def _moment(text: str) -> str:
    from natsctl.api.times import format_time
    from natsctl.cli.moments import read_moment

    try:
        return format_time(read_moment(text, back=True)) if text else ""
    except ValueError as failure:
        raise UsageError(f"--since: {failure}") from failure


class Wanted(NamedTuple):
    """What is made of the messages: a bundle of flags."""

    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="parquet|json|csv|delta",
            help="[by the target's ending, else parquet]",
            show_default=False,
        ),
    ] = ""
    partition_by: Annotated[
        str,
        typer.Option(
            "--partition-by", metavar="date|subject", help="one folder for each in the target", show_default=False
        ),
    ] = ""
    incremental: Annotated[
        bool,
        typer.Option(
            "--incremental", help="add the messages since the last run, each exactly once", show_default=False
        ),
    ] = False
    ignore_loss: Annotated[
        bool,
        typer.Option(
            "--ignore-data-loss", help="--incremental: continue although messages are missing", show_default=False
        ),
    ] = False
    force: Annotated[
        bool, typer.Option("--force", "-f", "--yes", help="replace an existing export", show_default=False)
    ] = False

    def target(self, path: str) -> Target:
        """Where and as what messages are written. Raises UsageError."""
        from natsctl.spark.export.target import target_of

        return target_of(path, self.format, self.partition_by, incremental=self.incremental, force=self.force)


@flagged()
def export(
    ctx: typer.Context,
    spark: SparkFlags,
    part: Part,
    wanted: Wanted,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="the stream")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="a file such as out.parquet, a folder, or a URL that Spark knows")
    ],
    backup: FromBackup = None,
    json: Json = False,
) -> None:
    """Write the messages of a stream to files: Parquet, JSON lines, CSV or Delta.

    A target that ends as files of the format do (.parquet, .jsonl, .json, .csv, the last three also with .gz) becomes
    one file in the order of sequences; any other is a folder of files, written by all cores. Subject, sequence, time,
    headers and payload are kept; `stream import` has them back. In JSON and CSV a payload that is no text is base64.
    """
    where = wanted.target(target)
    if wanted.incremental and (backup or part.end_seq):
        raise UsageError("--incremental excludes --backup and --end-seq")
    session = session_of(ctx)
    strict = wanted.incremental and not wanted.ignore_loss
    chosen = {**part.options(stream), "failOnDataLoss": "true" if strict else "false"}
    tables = checked_tables(session, stream, backup)
    if session.dry_run:
        from natsctl.client.preview import Previewed

        raise Previewed(effect={"path": where.path, "format": where.format.name, "one_file": where.is_file})
    if where.incremental:
        from natsctl.spark.export.continuing import Note, prepare

        chosen.setdefault("startingOffsets", "earliest")
        note = Note(stream=stream, subject=part.subject, format=where.format.name, partition_by=where.partition_by)
        prepare(where, note)

    def work(opened: SparkSession, options: dict[str, str]) -> Exported:
        from natsctl.spark.export.continuing import export_more
        from natsctl.spark.export.writing import export as export_all

        run = export_more if where.incremental else export_all
        return run(opened, {**tables.options(options, stream), **chosen}, stream, where)

    from natsctl.cli.spark_work import run_on_spark

    what = f"Exporting Stream {stream}"
    messages = int(tables.state(stream).get("messages") or 0)
    found = run_on_spark(session, spark, work, what=what, needs_server=tables.on_server, messages=messages)
    _show(found, where.incremental, json)


def checked_tables(session: Session, stream: str, backup: Path | None) -> Tables:
    """Where the stream is; raises what tells that it is not there, before Spark starts."""
    from natsctl.cli.names import check_stream
    from natsctl.cli.sql.tables import BackupTables, ServerTables

    if backup is not None:
        tables = BackupTables(backup)
        tables.check(stream)
        return tables
    check_stream(session, stream)
    return ServerTables(session)


def _show(done: Exported, incremental: bool, json: bool) -> None:
    if json:
        from msgspec import to_builtins

        output.emit_json(to_builtins(done))
        return
    new = "new " if incremental else ""
    range_text = f", {count(done.first_seq)} to {count(done.last_seq)}," if done.first_seq else ""
    output.emit(
        f"Exported {plural(done.messages, f'{new}message')}{range_text} of Stream {safe(done.stream)}"
        f" to {safe(done.path)} as {done.format}"
    )
