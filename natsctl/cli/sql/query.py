"""`natsctl sql`: queries over streams, answered by Spark, or by the server alone where it knows the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json, Rounds, Watch, session_of
from natsctl.cli.spark_flags import SparkFlags
from natsctl.cli.sql.on_spark import SparkQueries
from natsctl.cli.sql.shown import Look, Shown, rows_shown
from natsctl.cli.waiting import watch_seconds

if TYPE_CHECKING:
    from natsctl.cli.session import Session
    from natsctl.cli.sql.tables import Tables


@flagged()
def sql(
    ctx: typer.Context,
    spark: SparkFlags,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUERY]", help="the query, @FILE, or - for stdin; without it, a prompt", show_default=False
        ),
    ] = None,
    backup: Annotated[
        Path | None,
        typer.Option("--backup", metavar="PATH", help="tables are backups at or below this path", show_default=False),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", help="most rows; 0 for all [tables: 1000]", min=0, show_default=False),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="show the rows as CSV", show_default=False)] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="show how the query would be answered", show_default=False)
    ] = False,
    use_spark: Annotated[
        bool, typer.Option("--spark", help="let Spark answer even what the server can", show_default=False)
    ] = False,
    watch: Watch = None,
    rounds: Rounds = 0,
    json: Json = False,
) -> None:
    """Query streams with SQL: each stream is a table, each bucket too, and STREAM$subjects has its subjects.

    Streams have the columns stream, seq, subject, timestamp, headers and value (binary; cast(value as string) is its
    text). Buckets have bucket, key, revision, operation, timestamp and value. How many messages there are, also by
    subject, and the first and last sequence the server tells itself; anything else is read and answered by Spark.

    With --watch the query is asked anew each time, of all that is there then.
    """
    every_s = watch_seconds(watch, rounds)
    shown = Shown(json=json, csv=csv, every_s=every_s, rounds=rounds, limit=rows_shown(limit, json or csv))
    if explain and (csv or every_s):
        raise UsageError("--explain excludes --csv and --watch")
    session = session_of(ctx)
    if query is None:
        _prompt(session, spark, backup, shown, use_spark)
        return
    from natsctl.cli.sql.words import read_query

    text = read_query(query)
    tables = tables_of(session, backup)
    counted = answered(session, tables, text, whole=not (use_spark or backup))
    asked = SparkQueries(session, spark, tables)
    if counted is None:
        asked.check(text)
    if explain:
        _explain(asked, text, counted is not None, json)
    elif counted is not None:
        shown.show(counted)
    elif every_s is None:
        shown.show(lambda: asked.run(text, shown.limit))
    else:
        with asked.staying(text):
            shown.show(lambda: asked.run(text, shown.limit, bar=False))


def _prompt(session: Session, spark: SparkFlags, backup: Path | None, shown: Shown, use_spark: bool) -> None:
    """Answer queries until the person has no more. Raises UsageError where there is nobody to ask."""
    if not session.interactive:
        raise UsageError("a query is needed", hint="give QUERY, @FILE, or - for stdin")
    from natsctl.cli.sql.prompt import Prompt

    tables = tables_of(session, backup)

    def counted(text: str) -> Look | None:
        return answered(session, tables, text, whole=not (use_spark or backup))

    Prompt(SparkQueries(session, spark, tables), tables, shown, counted).run()


def tables_of(session: Session, backup: Path | None) -> Tables:
    """The tables of the server, or of backups."""
    from natsctl.cli.sql.tables import BackupTables, ServerTables

    return ServerTables(session) if backup is None else BackupTables(backup)


def answered(session: Session, tables: Tables, text: str, *, whole: bool) -> Look | None:
    """What answers a query without Spark: which tables there are, and where it is `whole` what the server counts."""
    from natsctl.spark.sql.queries import listed

    if (found := listed(text, tables.catalogue)) is not None:
        return lambda: found
    return counting(session, tables, text) if whole else None


def counting(session: Session, tables: Tables, text: str) -> Look | None:
    """What answers a query from what the server counts; None where messages must be read."""
    from natsctl.spark.sql.counted import counted_query, facts_for
    from natsctl.spark.sql.result import Result

    found = counted_query(text, tables.catalogue)
    if found is None:
        return None
    query, stream = found
    if session.options.trace:
        output.note(f"answered from STREAM.INFO of {stream}, without Spark")

    def look() -> Result:
        facts = session.run(lambda manager: facts_for(manager, stream, query))
        return Result(query.columns, query.answer(facts), query.numbers)

    return look


def _explain(asked: SparkQueries, text: str, counted: bool, json: bool) -> None:
    plan = "Answered from STREAM.INFO, without Spark: no message is read" if counted else asked.explain(text)
    if json:
        output.emit_json({"spark": not counted, "plan": plan})
    else:
        from natsctl.cli.render.text import safe

        output.emit(safe(plan, block=True))
