"""The record of a run, for others: that it runs, the state of its flows, and its failures.

The lock is held as long as the run lives, however it ends; the record may be older than that.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from natsctl.client.atomic_file import atomic_write
from natsctl.spark.pipeline.project import PipelineBusyError, Project

try:
    import fcntl
except ImportError:  # Windows, where two runs of one pipeline are not kept apart
    fcntl = None  # type: ignore[assignment]  # what is asked before it is used

ATTEMPTS: Final = 5
RETRY_S: Final = 0.1
"""A command that only looks for a run holds the lock for a moment too."""


@dataclass
class FlowRecord:
    """The last report on a flow; times in nanoseconds since 1970."""

    state: str = ""
    at_ns: int = 0
    error: str = ""


@dataclass
class RunRecord:
    """One run: `state` is starting, updating, waiting, failed or ended."""

    pid: int = 0
    state: str = ""
    started_ns: int = 0
    updates: int = 0
    failed_updates: int = 0
    updated_ns: int = 0
    """The end of the last update without a failure."""
    interval_s: float = 0.0
    error: str = ""
    flows: dict[str, FlowRecord] = field(default_factory=dict)

    @property
    def is_checked(self) -> bool:
        """Return whether validation is through: Spark reports flows only then."""
        return bool(self.flows or self.updates > self.failed_updates)


class Recorder:
    """The writer of the record of the run that holds the project's lock."""

    def __init__(self, project: Project, interval_s: float) -> None:
        self._path = record_path(project)
        self.record = RunRecord(os.getpid(), "starting", time.time_ns(), interval_s=interval_s)
        self.save()

    def flow(self, name: str, state: str, error: str = "") -> None:
        """Record the state of a flow."""
        self.record.flows[name] = FlowRecord(state, time.time_ns(), error)
        self.save()

    def completed(self) -> None:
        """Record that all flows are through: of those into sinks, Spark reports only the start."""
        for flow in self.record.flows.values():
            if flow.state in ("STARTING", "RUNNING"):
                flow.state, flow.at_ns = "COMPLETED", time.time_ns()
        self.save()

    def state(self, state: str, error: str = "") -> None:
        """Record the state of the run."""
        self.record.state, self.record.error = state, error
        self.save()

    def updated(self, error: str = "") -> None:
        """Record the end of an update."""
        self.record.updates += 1
        if error:
            self.record.failed_updates += 1
        else:
            self.record.updated_ns = time.time_ns()
        self.state("failed" if error else "waiting", error)

    def save(self) -> None:
        """Write the record to its file."""
        with atomic_write(self._path) as file:
            file.write(json.dumps(asdict(self.record)).encode())


def record_path(project: Project) -> Path:
    """Return the path of a project's record."""
    return project.state_folder / "run.json"


def log_path(project: Project) -> Path:
    """Return the path of a detached run's events."""
    return project.state_folder / "run.log"


def read_record(project: Project) -> RunRecord | None:
    """Return the record of the last run; None where there was none."""
    try:
        said: dict[str, Any] = json.loads(record_path(project).read_text(encoding="utf-8"))
        flows = {name: FlowRecord(**each) for name, each in said.pop("flows", {}).items()}
        return RunRecord(**said, flows=flows)
    except (OSError, ValueError, TypeError):
        return None


def is_running(project: Project) -> bool:
    """Return whether a process holds the project's lock."""
    try:
        with (project.state_folder / "lock").open("rb") as file:
            return not _locked(file)
    except OSError:
        return False


@contextlib.contextmanager
def only_run(project: Project) -> Iterator[None]:
    """Hold the project's lock. Raises PipelineBusyError where another run does."""
    project.state_folder.mkdir(parents=True, exist_ok=True)
    with (project.state_folder / "lock").open("ab") as file:
        left = ATTEMPTS
        while not _locked(file):
            left -= 1
            if left:
                time.sleep(RETRY_S)
                continue
            record = read_record(project)
            who = f" in process {record.pid}" if record else ""
            raise PipelineBusyError(
                f"pipeline {project.name} runs{who} already", hint=f"natsctl pipeline stop {project.name}"
            )
        yield


def _locked(file: IO[bytes]) -> bool:
    """Take the lock of a file until it is closed; return False where another process has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def run_state(project: Project) -> tuple[str, int, RunRecord | None]:
    """Return a pipeline's state (running, failed, stopped, new), its process, 0 unless it runs, and its record."""
    record = read_record(project)
    if record is None:
        return "new", 0, None
    if is_running(project):
        return "running", record.pid, record
    return ("failed" if record.state == "failed" else "stopped"), 0, record
