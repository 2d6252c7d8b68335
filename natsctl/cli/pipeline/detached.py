"""A run in the background: started, looked for, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from natsctl.api.errors import NatsctlError
from natsctl.cli import output
from natsctl.cli.globals import GLOBAL_FLAGS

if TYPE_CHECKING:
    from natsctl.cli.session import GlobalOptions, Session
    from natsctl.cli.spark_flags import SparkFlags
    from natsctl.spark.pipeline.project import Project
    from natsctl.spark.pipeline.runner import RunPlan

START_WAIT_S: Final = 30.0
STOP_WAIT_S: Final = 90.0
"""How long a run may take to end: what is on its way is finished or undone, and Spark ends."""
POLL_S: Final = 0.1
_SECRETS: Final = {
    "user": "NATS_USER",
    "password": "NATS_PASSWORD",
    "token": "NATS_TOKEN",
    "jwt": "NATS_JWT",
    "seed": "NATS_SEED",
}
"""What other users of the machine would see among a process's words."""


def start_detached(session: Session, spark: SparkFlags, project: Project, plan: RunPlan) -> None:
    """Start the same run in the background and tell of it. Raises PipelineBusy, NatsctlError where it ends at once."""
    from natsctl.spark.pipeline.run_record import is_running, log_path, only_run, read_record

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
    until_s = time.monotonic() + START_WAIT_S
    while process.poll() is None and time.monotonic() < until_s:
        record = read_record(project)
        if record and record.pid == process.pid and is_running(project):
            break
        time.sleep(POLL_S)
    if process.poll():
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        raise NatsctlError(f"the run ended at once:\n{said}", hint=f"its log is {log}")
    _tell(session, project, process.pid, str(log))


def stop_run(project: Project, *, force: bool = False) -> int:
    """End a run, and return the process that ran; 0 where none did.

    Raises NatsctlError where it does not end; with `force` it is killed then, which loses nothing that is committed.
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


def _tell(session: Session, project: Project, pid: int, log: str) -> None:
    from msgspec import to_builtins

    from natsctl.cli.pipeline.shapes import Started

    if session.json:
        output.emit_json(to_builtins(Started(project.name, str(project.folder), pid, log)))
    else:
        output.emit(f"{project.name} runs in process {pid}")
        output.note(f"natsctl pipeline status {project.name}; natsctl pipeline logs {project.name}")


def _global_words(options: GlobalOptions) -> list[str]:
    """The flags of this command line that the other one needs, without secrets."""
    words = []
    for flag in GLOBAL_FLAGS:
        value = getattr(options, flag.name, None)
        if value in (None, False) or flag.name in (*_SECRETS, "password_stdin", "token_stdin", "dry_run"):
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
