"""The folders of pipelines: `natsctl pipeline init` and `validate`, and how commands find a pipeline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, unquote

from natsctl.api.errors import ExitCode, UsageError
from natsctl.api.subjects import is_asset_name
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json, SparkFlags
from natsctl.cli.framework.globals import GlobalOptions
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.cli.framework.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.spark.pipeline.project import Project


Pipeline = Annotated[
    str,
    Argument(metavar="PIPELINE", help="folder or name of the pipeline [the one in this folder]"),
]


def known_folder() -> Path:
    """Return the folder with a file for each known pipeline, in XDG_STATE_HOME (~/.local/state)."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "natsctl" / "pipelines"


def known_pipelines() -> dict[str, Path]:
    """Return the folders of all pipelines that were created or run here, by name, without deleted ones."""
    try:
        files = sorted(known_folder().iterdir())
    except OSError:
        return {}
    found = {unquote(file.name): Path(file.read_text(encoding="utf-8")) for file in files if file.is_file()}
    return {name: folder for name, folder in found.items() if folder.is_dir()}


def note_pipeline(name: str, folder: Path) -> None:
    known_folder().mkdir(parents=True, exist_ok=True)
    (known_folder() / quote(name, safe="")).write_text(str(folder.absolute()), encoding="utf-8")


def chosen_project(pipeline: str) -> Project:
    from natsctl.spark.pipeline.project import PipelineNotFoundError, find_project

    if not pipeline:
        return find_project()
    if Path(pipeline).exists():
        return find_project(Path(pipeline))
    known = known_pipelines()
    if pipeline in known:
        return find_project(known[pipeline])
    hint = did_you_mean(pipeline, known) or "natsctl pipeline ls shows the pipelines made or run here"
    raise PipelineNotFoundError(f"there is no pipeline {pipeline!r}", hint=hint)


def take_context(session: Session, project: Project) -> None:
    """Use the project's context for the server, unless a flag or the environment names one."""
    options = session.options
    named = options.server or options.context or os.environ.get("NATS_URL") or os.environ.get("NATS_CONTEXT")
    if project.own.context and not named:
        session.options = GlobalOptions(**{**vars(options), "context": project.own.context})


def init(
    session: Session,
    name: Annotated[str, Argument(metavar="NAME", help="folder to create; its last part is the pipeline's name")],
    stream: Annotated[str, Option("--stream", metavar="STREAM", help="the stream that the example reads")] = "ORDERS",
    json: Json = False,
) -> None:
    """Create the folder of a pipeline, with an example from a stream into a table and another stream."""
    from shlex import quote

    from natsctl.cli.pipeline.answers import Initialised
    from natsctl.spark.pipeline.project import write_project

    if not is_asset_name(stream):
        raise UsageError(f"--stream {stream}: no stream can have that name")
    folder, dry = Path(name), session.dry_run
    try:
        files = write_project(folder, stream, dry=dry)
    except FileExistsError as failure:
        raise UsageError(str(failure), hint="name a folder that does not exist yet") from failure
    if not dry:
        note_pipeline(folder.absolute().name, folder)
    if json:
        shown = [str(path.relative_to(folder)) for path in files]
        output.emit_json(Initialised(folder.absolute().name, str(folder.absolute()), shown))
        return
    for path in files:
        output.emit(str(path))
    sink, word = quote(f"BIG_{stream}"), quote(name)
    output.note(f"next: natsctl stream add {sink} --subjects {quote(f'BIG_{stream}.>')} --defaults")
    output.note(f"      natsctl pipeline validate {word}")
    output.note(f"      natsctl pipeline run {word} --once")


def validate(session: Session, spark: SparkFlags, pipeline: Pipeline = "", json: Json = False) -> int:
    """Check a pipeline without running it: its files, the streams they name, and every flow.

    Ends with 2 where anything is wrong; each fault is reported with its file and line.
    """

    from natsctl.cli.pipeline.answers import Checked, CheckedFault
    from natsctl.spark.pipeline.project import PipelineError

    faults: list[CheckedFault] = []
    name, folder = pipeline, ""
    try:
        project = chosen_project(pipeline)
        name, folder = project.name, str(project.folder)
        _check(session, spark, project)
    except PipelineError as failure:
        if not json:
            raise
        faults = [CheckedFault(fault.file, fault.line, fault.text, fault.hint) for fault in failure.faults]
    output.emit_json(Checked(name, folder, not faults, faults)) if json else output.emit(f"{name} is valid")
    return ExitCode.USAGE if faults else ExitCode.DONE


def _check(session: Session, spark: SparkFlags, project: Project) -> None:
    """Check the files and streams first, without Spark, as it takes seconds to start."""
    from natsctl.cli.spark_work import run_on_spark, server_options
    from natsctl.spark.pipeline.pipeline_session import session_for
    from natsctl.spark.pipeline.project import check_streams

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
    own = project.own
    if not spark.master and not spark.remote:
        spark = spark._replace(master=own.master, remote=own.remote)
    return spark._replace(java=spark.java or own.java)
