"""`natsctl pipeline run`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.consent import confirmed, named
from natsctl.cli.flags import flagged
from natsctl.cli.options import Force, Json, session_of
from natsctl.cli.pipeline.chosen import Pipeline, chosen_project, note_pipeline, take_context
from natsctl.cli.pipeline.validate import flags_of
from natsctl.cli.spark_flags import SparkFlags
from natsctl.cli.waiting import every_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.cli.session import Session
    from natsctl.spark.pipeline.events import Event
    from natsctl.spark.pipeline.project import Project
    from natsctl.spark.pipeline.runner import RunPlan


@flagged()
def run(
    ctx: typer.Context,
    spark: SparkFlags,
    pipeline: Pipeline = "",
    once: Annotated[
        bool, typer.Option("--once", help="run one update, ignoring the interval of natsctl.yml", show_default=False)
    ] = False,
    interval: Annotated[
        str,
        typer.Option(
            "--interval",
            metavar="DURATION",
            help="update at this interval until it is stopped [from natsctl.yml]",
            show_default=False,
        ),
    ] = "",
    full_refresh: Annotated[
        list[str] | None,
        typer.Option(
            "--full-refresh",
            metavar="TABLE",
            help="clear this table and rebuild it from the beginning",
            show_default=False,
        ),
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="clear all tables and rebuild them", show_default=False)
    ] = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", "-d", help="run in the background until natsctl pipeline stop", show_default=False),
    ] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Update the tables and streams of a pipeline: every flow reads what is new, once or repeatedly.

    How far each flow has read is kept in its checkpoint, and goes on from there however the run ends.
    """
    from natsctl.spark.pipeline.runner import RunPlan

    if once and interval:
        raise UsageError("--once and --interval exclude each other")
    if full_refresh and full_refresh_all:
        raise UsageError("--full-refresh-all is for all tables: leave out --full-refresh")
    project = chosen_project(pipeline)
    interval_s = 0.0 if once else every_seconds(interval, "--interval") if interval else project.own.interval_s
    plan = RunPlan(interval_s, tuple(full_refresh or ()), full_refresh_all)
    note_pipeline(project.name, project.folder)
    session = session_of(ctx)
    if session.dry_run:
        raise UsageError("pipeline run has no --dry-run", hint="natsctl pipeline validate checks it without running it")
    if (full_refresh or full_refresh_all) and not _may_empty(session, full_refresh or [], force):
        return
    if detach:
        from natsctl.cli.pipeline.detached import start_detached

        start_detached(session, flags_of(spark, project), project, plan)
        return
    take_context(session, project)
    _run(session, flags_of(spark, project), project, plan)


def _may_empty(session: Session, tables: list[str], force: bool) -> bool:
    """Return whether tables may be emptied: what their streams no longer hold does not come back."""
    what = named("Table", tables) if tables else "all tables"
    return confirmed(session, f"empty {what} and rebuild from what the streams still hold", force)


def _run(session: Session, spark: SparkFlags, project: Project, plan: RunPlan) -> None:
    from natsctl.cli.spark_work import run_on_spark, server_options
    from natsctl.spark.pipeline.project import check_streams
    from natsctl.spark.pipeline.run_record import Recorder, only_run
    from natsctl.spark.pipeline.served import session_for

    over = threading.Event()

    def work(connected: SparkSession, server: dict[str, str]) -> None:
        from natsctl.spark.pipeline.runner import Run

        Run(connected, project, server, recorder, teller(session)).go(plan, over.wait)

    with only_run(project):
        recorder = Recorder(project, plan.interval_s)
        try:
            check_streams(project, server_options(session))
            run_on_spark(session, spark, work, bar=False, opening=session_for(project), stop=over.set)
        except Exception as failure:  # of whatever kind: it is noted for `pipeline status`, and raised on
            recorder.state("failed", str(failure))
            raise
        except BaseException:
            recorder.state("ended")
            raise
        recorder.state("ended")


def teller(session: Session) -> Callable[[Event], None]:
    """Return a function that prints an event: a line for a person, or with -j a document."""
    from natsctl.cli.render.spark_reports import event_line

    def tell(event: Event) -> None:
        if session.json:
            output.emit_json_line(event_document(event))
        else:
            output.emit(event_line(event))
            sys.stdout.flush()

    return tell


def event_document(event: Event) -> dict[str, object]:
    """An event as -j prints one."""
    return {
        "time": event.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "flow": event.flow,
        "state": event.state,
        "message": event.message,
        "error": event.error,
        "read": dict(event.read),
    }
