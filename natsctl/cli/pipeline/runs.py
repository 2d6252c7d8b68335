"""Runs of pipelines: `natsctl pipeline run` and `stop`, in the foreground and in the background."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from natsctl.api.errors import ExitCode, NatsctlError, UsageError
from natsctl.cli.framework import output
from natsctl.cli.framework.consent import confirmed, named
from natsctl.cli.framework.flags import Force, Json, SparkFlags, interval_seconds
from natsctl.cli.framework.globals import GLOBAL_FLAGS, GlobalOptions
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session
from natsctl.cli.pipeline.projects import Pipeline, chosen_project, flags_of, note_pipeline, take_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.spark.pipeline.project import Project
    from natsctl.spark.pipeline.run_record import Event
    from natsctl.spark.pipeline.update import RunPlan


def run(
    session: Session,
    spark: SparkFlags,
    pipeline: Pipeline = "",
    once: Annotated[bool, Option("--once", help="run one update, ignoring the interval of natsctl.yml")] = False,
    interval: Annotated[
        float | None,
        Option(
            "--interval",
            metavar="DURATION",
            help="update at this interval until it is stopped [from natsctl.yml]",
            read=interval_seconds,
        ),
    ] = None,
    full_refresh: Annotated[
        list[str] | None,
        Option(
            "--full-refresh",
            metavar="TABLE",
            help="clear this table and rebuild it from the beginning",
        ),
    ] = None,
    full_refresh_all: Annotated[bool, Option("--full-refresh-all", help="clear all tables and rebuild them")] = False,
    detach: Annotated[
        bool,
        Option("--detach", "-d", help="run in the background until natsctl pipeline stop"),
    ] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Update the tables and streams of a pipeline: every flow reads new messages, once or repeatedly.

    Each flow has its position in its checkpoint, and the next run continues there however this one ends.
    """
    if once and interval:
        raise UsageError("--once and --interval exclude each other")
    if full_refresh and full_refresh_all:
        raise UsageError("--full-refresh-all is for all tables: leave out --full-refresh")
    project = chosen_project(pipeline)
    plan = _run_plan(project, once, interval, full_refresh or [], full_refresh_all)
    note_pipeline(project.name, project.folder)
    if session.dry_run:
        raise UsageError("pipeline run has no --dry-run", hint="natsctl pipeline validate checks it without running it")
    if (full_refresh or full_refresh_all) and not _may_empty(session, full_refresh or [], force):
        return
    if detach:
        start_detached(session, flags_of(spark, project), project, plan)
        return
    take_context(session, project)
    _run(session, flags_of(spark, project), project, plan)


def _run_plan(
    project: Project, once: bool, interval: float | None, full_refresh: list[str], full_refresh_all: bool
) -> RunPlan:
    from natsctl.spark.pipeline.update import RunPlan

    interval_s = 0.0 if once else interval or project.own.interval_s
    return RunPlan(interval_s, tuple(full_refresh), full_refresh_all)


def _may_empty(session: Session, tables: list[str], force: bool) -> bool:
    """Return whether tables may be emptied: data that their streams no longer hold is lost."""
    what = named("Table", tables) if tables else "all tables"
    return confirmed(session, f"empty {what} and rebuild from the messages still in the streams", force)


def _run(session: Session, spark: SparkFlags, project: Project, plan: RunPlan) -> None:
    from natsctl.cli.spark_work import run_on_spark, server_options
    from natsctl.spark.pipeline.pipeline_session import session_for
    from natsctl.spark.pipeline.project import check_streams
    from natsctl.spark.pipeline.run_record import Recorder, only_run

    over = threading.Event()

    def work(connected: SparkSession, server: dict[str, str]) -> None:
        from natsctl.spark.pipeline.update import Run

        Run(connected, project, server, recorder, event_printer(session)).go(plan, over.wait)

    with only_run(project):
        recorder = Recorder(project, plan.interval_s)
        try:
            check_streams(project, server_options(session))
            run_on_spark(session, spark, work, bar=False, opening=session_for(project), stop=over.set)
        except Exception as failure:  # any failure: it is recorded for `pipeline status`, and raised again
            recorder.state("failed", str(failure))
            raise
        except BaseException:
            recorder.state("ended")
            raise
        recorder.state("ended")


def event_printer(session: Session) -> Callable[[Event], None]:
    from natsctl.cli.render.spark_reports import event_line

    def show(event: Event) -> None:
        if session.json:
            output.emit_json_line(event_document(event))
        else:
            output.emit(event_line(event))
            sys.stdout.flush()

    return show


def event_document(event: Event) -> dict[str, object]:
    return {
        "time": event.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "flow": event.flow,
        "state": event.state,
        "message": event.message,
        "error": event.error,
        "read": dict(event.read),
    }


CHECK_WAIT_S: Final = 300.0
"""The time for a run to start Spark and to check its pipeline; after that it is not waited for."""
SILENT_S: Final = 2.0
STOP_WAIT_S: Final = 90.0
"""The time for a run to finish or undo its work, and to stop Spark."""
POLL_S: Final = 0.1
_SECRETS: Final = {
    "user": "NATS_USER",
    "password": "NATS_PASSWORD",
    "token": "NATS_TOKEN",
    "jwt": "NATS_JWT",
    "seed": "NATS_SEED",
}
"""Options that must not appear among a process's arguments, visible to other users, by their variables."""


def start_detached(session: Session, spark: SparkFlags, project: Project, plan: RunPlan) -> None:
    """Start the same run in the background, and report it after its pipeline has passed the checks."""
    from natsctl.spark.pipeline.run_record import log_path, only_run

    with only_run(project):
        pass
    log = log_path(project)
    words = [*_global_words(session.options), "pipeline", "run", str(project.folder), *_plan_words(plan), "-j"]
    environment = {**os.environ, **_login(session.options)}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "natsctl", *words, *_spark_words(spark)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
            start_new_session=True,
        )
    _wait_until_checked(session, project, process)
    if process.poll():
        raise _ended(process.returncode, log)
    _show_started(session, project, process.pid, str(log))


class RunEndedError(NatsctlError):
    """A run in the background ended before its pipeline passed the checks; each line of its output is a fault."""

    def __init__(self, said: str, exit_code: int, hint: str) -> None:
        super().__init__(f"the run ended: {said}", hint=hint)
        self.faults = tuple(said.splitlines())
        self.headline = "the run ended:" if len(self.faults) > 1 else ""
        self._exit_code = exit_code if exit_code > 0 else ExitCode.FAILED

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # the run's own, where others are by class
        return self._exit_code


def _wait_until_checked(session: Session, project: Project, process: subprocess.Popen[bytes]) -> None:
    """Wait until the run has checked its pipeline, has ended, or takes longer than CHECK_WAIT_S."""
    from natsctl.spark.pipeline.run_record import read_record

    begin_s = time.monotonic()
    until_s, announced = begin_s + CHECK_WAIT_S, False
    while process.poll() is None and time.monotonic() < until_s:
        record = read_record(project)
        if record and record.pid == process.pid and record.is_checked:
            return
        if not (announced or session.json) and time.monotonic() > begin_s + SILENT_S:
            output.note("Spark starts and checks the pipeline …")
            announced = True
        time.sleep(POLL_S)


def _ended(code: int, log: Path) -> RunEndedError:
    said = log.read_text(encoding="utf-8", errors="replace").strip()
    hint = f"its log is {log}"
    try:
        error = json.loads(said.splitlines()[-1])["error"]
        own_hint = error.get("hint") or ""
        return RunEndedError(error["description"], code, f"{own_hint}\n{hint}".strip())
    except (ValueError, LookupError, TypeError):
        return RunEndedError(said or f"exit code {code}", code, hint)


def stop_run(project: Project, *, force: bool = False) -> int:
    """End a run, and return its process; 0 if none ran.

    Raises NatsctlError if it does not end; with `force` it is killed then; committed work is kept.
    """
    from natsctl.spark.pipeline.run_record import is_running, read_record

    record = read_record(project)
    if record is None or not is_running(project):
        return 0
    os.kill(record.pid, signal.SIGTERM)
    until_s = time.monotonic() + STOP_WAIT_S
    while is_running(project):
        if time.monotonic() > until_s:
            if not force:
                raise NatsctlError(
                    f"pipeline {project.name} in process {record.pid} does not end", hint="--force kills it"
                )
            os.kill(record.pid, signal.SIGKILL)
            break
        time.sleep(POLL_S)
    return record.pid


def _show_started(session: Session, project: Project, pid: int, log: str) -> None:

    from natsctl.cli.pipeline.answers import Started

    if session.json:
        output.emit_json(Started(project.name, str(project.folder), pid, log))
    else:
        output.emit(f"{project.name} runs in process {pid}")
        output.note(f"natsctl pipeline status {project.name}; natsctl pipeline logs {project.name}")


def _global_words(options: GlobalOptions) -> list[str]:
    """Return the flags of this command line that the run needs, without secrets."""
    words = []
    for flag in GLOBAL_FLAGS:
        value = getattr(options, flag.field)
        if value in (None, False) or flag.field in (*_SECRETS, "password_stdin", "token_stdin", "dry_run"):
            continue
        words += [flag.spellings[-1]] if value is True else [flag.spellings[-1], str(value)]
    return words


def _login(options: GlobalOptions) -> dict[str, str]:
    return {variable: value for name, variable in _SECRETS.items() if (value := getattr(options, name))}


def _plan_words(plan: RunPlan) -> list[str]:
    words = ["--interval", f"{plan.interval_s}s"] if plan.interval_s else ["--once"]
    for table in plan.full_refresh:
        words += ["--full-refresh", table]
    words += ["--full-refresh-all"] if plan.full_refresh_all else []
    return [*words, *(["--force"] if plan.full_refresh or plan.full_refresh_all else [])]  # confirmed before


def _spark_words(spark: SparkFlags) -> list[str]:
    words = []
    for name in ("master", "remote", "java"):
        if value := getattr(spark, name):
            words += [f"--{name}", value]
    return words + [word for pair in spark.conf or () for word in ("--conf", pair)]


def stop(
    pipeline: Pipeline = "",
    force: Annotated[bool, Option("--force", "-f", help="kill it if it does not stop")] = False,
    json: Json = False,
) -> None:
    """Stop a pipeline's run; the next one continues from there."""

    from natsctl.cli.pipeline.answers import Stopped

    project = chosen_project(pipeline)
    pid = stop_run(project, force=force)
    if json:
        output.emit_json(Stopped(project.name, pid, bool(pid)))
    elif pid:
        output.emit(f"{project.name} ended in process {pid}")
    else:
        output.emit(f"{project.name} does not run")
