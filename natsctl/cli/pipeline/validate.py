"""`natsctl pipeline validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from natsctl.api.exit_codes import ExitCode
from natsctl.cli import output
from natsctl.cli.flags import flagged
from natsctl.cli.options import Json, session_of
from natsctl.cli.pipeline.chosen import Pipeline, chosen_project, take_context
from natsctl.cli.spark_flags import SparkFlags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.cli.session import Session
    from natsctl.spark.pipeline.project import Project


@flagged()
def validate(ctx: typer.Context, spark: SparkFlags, pipeline: Pipeline = "", json: Json = False) -> int:
    """Check a pipeline without running it: its files, the streams they name, and every flow.

    Ends with 2 where anything is wrong; each fault is reported with its file and line.
    """
    from msgspec import to_builtins

    from natsctl.cli.pipeline.shapes import Checked, CheckedFault
    from natsctl.spark.pipeline.project import PipelineError

    faults: list[CheckedFault] = []
    name, folder = pipeline, ""
    try:
        project = chosen_project(pipeline)
        name, folder = project.name, str(project.folder)
        _check(session_of(ctx), spark, project)
    except PipelineError as failure:
        if not json:
            raise
        faults = [CheckedFault(each.file, each.line, each.text, each.hint) for each in failure.faults]
    if json:
        output.emit_json(to_builtins(Checked(name, folder, not faults, faults)))
    else:
        output.emit(f"{name} is valid")
    return ExitCode.USAGE if faults else ExitCode.DONE


def _check(session: Session, spark: SparkFlags, project: Project) -> None:
    """Check first without Spark, as that takes seconds to start."""
    from natsctl.cli.spark_work import run_on_spark, server_options
    from natsctl.spark.pipeline.project import check_streams
    from natsctl.spark.pipeline.served import session_for

    take_context(session, project)
    check_streams(project, server_options(session))

    def work(connected: SparkSession, server: dict[str, str]) -> None:
        from natsctl.spark.pipeline.update import Updates, restore_tables

        restore_tables(connected, project)
        Updates(connected, project, server, lambda event: None).run(dry=True)

    run_on_spark(
        session, flags_of(spark, project), work, what=f"Validating {project.name}", opening=session_for(project)
    )


def flags_of(spark: SparkFlags, project: Project) -> SparkFlags:
    """Return the place where Spark runs: that of the flags, else of the project."""
    own = project.own
    if not spark.master and not spark.remote:
        spark = spark._replace(master=own.master, remote=own.remote)
    return spark._replace(java=spark.java or own.java)
