"""The record of a run for other commands: its process, the state of its flows, its failures and the events of updates.

The lock is held as long as the run lives, however it ends; the record may be older than that.

Spark reports the events of an update as sentences; they are parsed here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from natsctl.api.errors import ConflictError
from natsctl.client.atomic_file import atomic_write
from natsctl.spark.pipeline.project import Project

try:
    import fcntl
except ImportError:  # Windows, where two runs of one pipeline are not kept apart
    fcntl = None  # type: ignore[assignment]  # checked before it is used

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
        self.record.flows[name] = FlowRecord(state, time.time_ns(), error)
        self.save()

    def completed(self) -> None:
        """Record that all flows are through: of those into sinks, Spark reports only the start."""
        for flow in self.record.flows.values():
            if flow.state in ("STARTING", "RUNNING"):
                flow.state, flow.at_ns = "COMPLETED", time.time_ns()
        self.save()

    def state(self, state: str, error: str = "") -> None:
        self.record.state, self.record.error = state, error
        self.save()

    def updated(self, error: str = "") -> None:
        self.record.updates += 1
        if error:
            self.record.failed_updates += 1
        else:
            self.record.updated_ns = time.time_ns()
        self.state("failed" if error else "waiting", error)

    def save(self) -> None:
        with atomic_write(self._path) as file:
            file.write(json.dumps(asdict(self.record)).encode())


def record_path(project: Project) -> Path:
    return project.state_folder / "run.json"


def log_path(project: Project) -> Path:
    return project.state_folder / "run.log"


def read_record(project: Project) -> RunRecord | None:
    try:
        said: dict[str, Any] = json.loads(record_path(project).read_text(encoding="utf-8"))
        flows = {name: FlowRecord(**each) for name, each in said.pop("flows", {}).items()}
        return RunRecord(**said, flows=flows)
    except (OSError, ValueError, TypeError):
        return None


def is_running(project: Project) -> bool:
    try:
        with (project.state_folder / "lock").open("rb") as file:
            return not _locked(file)
    except OSError:
        return False


@contextlib.contextmanager
def only_run(project: Project) -> Iterator[None]:
    """Hold the project's lock. Raises ConflictError where another run does."""
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
            raise ConflictError(
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


_STATE: Final = re.compile(r"Flow '?(?P<flow>.+?)'? (?:is|has|was) (?P<state>[A-Z]{4,})\b(?P<rest>.*)", re.DOTALL)
_UNRESOLVED: Final = re.compile(r"Failed to resolve flow: '(?P<flow>.+?)'\.(?P<rest>.*)", re.DOTALL)
_RUN: Final = re.compile(r"Run (?:is|has) (?P<state>[A-Z]{4,})\b(?P<rest>.*)", re.DOTALL)
_ERROR: Final = re.compile(r"Error: (.*)", re.DOTALL)
_CONDITION: Final = re.compile(r"\[(?P<condition>[A-Z][A-Z0-9_.]+)\] (?P<text>.*?)(?:\s*SQLSTATE: \w+|\n|$)", re.DOTALL)
_OWN: Final = re.compile(r"\[(?P<condition>JETSTREAM_[A-Z_]+)\] (?P<text>[^\n]+)")
_WRAPPING: Final = ("STREAM_FAILED", "PYTHON_DATA_SOURCE_ERROR", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR")
UNRESOLVED: Final = "UNRESOLVED"
_NOT_EXPECTED: Final = "UNKNOWN_RESPONSE"
_QUOTED: Final = re.compile(r"`((?:[^`]|``)*)`")


def without_counters(responses: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a server's responses without the last one: some servers count the work of Python processes in it.

    PySpark's client does not expect it for a pipeline. It comes after everything else, and only after a success.
    """
    from pyspark.errors import PySparkException

    try:
        yield from responses
    except PySparkException as failure:
        if failure.getCondition() != _NOT_EXPECTED:
            raise


@dataclass(frozen=True)
class Event:
    """One sentence; `flow` is empty for the update as a whole, `error` if it is not a failure."""

    time: datetime
    flow: str
    state: str
    message: str
    error: str = ""
    condition: str = ""
    position: str = ""
    """The place of a failure in its statement, as Spark's text."""
    read: Mapping[str, int] = field(default_factory=dict)
    """For a flow that has completed: by stream, the number of sequences that it has passed in this update."""


def parse_event(message: str, time: datetime) -> Event:
    """Return the parts of a sentence; unknown text is kept as the message of an event without state."""
    time = time.replace(tzinfo=UTC)
    unresolved = _UNRESOLVED.match(message)
    found = unresolved or _STATE.match(message) or _RUN.match(message)
    if found is None:
        return Event(time, "", "", message.strip())
    parts = found.groupdict()
    state = UNRESOLVED if unresolved else str(parts["state"])
    flow = short_name(parts.get("flow") or "")
    wrong = _ERROR.search(parts["rest"])
    if wrong is None:
        return Event(time, flow, state, message.strip())
    condition, error = readable_error(wrong[1])
    first = message.partition("\n")[0].strip()
    return Event(time, flow, state, first, error, condition, wrong[1])


def readable_error(text: str) -> tuple[str, str]:
    """Return the condition and the sentence of a failure that a reader can act on, without plans and stacks."""
    if own := _OWN.search(text):
        return own["condition"], own["text"].strip()
    match = _CONDITION.search(text)
    while match and match["condition"] in _WRAPPING:
        match = _CONDITION.search(text, match.end("condition"))
    if match:
        return match["condition"], " ".join(match["text"].split())
    lines = (line.strip() for line in text.splitlines())
    return "", next((line for line in lines if line and not line.startswith("at ")), "")


def name_parts(name: str) -> list[str]:
    """Return the given parts of catalog, database and table of a name, without backticks."""
    parts = []
    rest = name
    while rest:
        quoted = _QUOTED.match(rest)
        part = quoted[0] if quoted else rest.partition(".")[0]
        parts.append(quoted[1].replace("``", "`") if quoted else part)
        rest = rest[len(part) :].removeprefix(".")
    return parts


def short_name(name: str) -> str:
    """Return a flow's name without the catalog and database that Spark puts before it, and without backticks."""
    parts = name_parts(name)
    return parts[-1] if len(parts) in (2, 3) else name
