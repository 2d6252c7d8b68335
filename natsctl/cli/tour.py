"""The ORDERS scenario from start to end on a temporary server: `natsctl tour`."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from natsctl.api.errors import NatsctlError
from natsctl.cli.framework import output
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.session import Session, server_missing


class TourLine(NamedTuple):
    """One command line of the tour.

    `shows` are texts that the output must have; `background` starts the command and collects it at the step that
    has `joins`; `pause_s` waits after the step, where the scenario is about time.
    """

    line: str
    shows: tuple[str, ...] = ()
    exit_code: int = 0
    background: bool = False
    joins: bool = False
    pause_s: float = 0.0
    included_only: bool = False


class Chapter(NamedTuple):
    """A heading and its steps."""

    title: str
    steps: tuple[TourLine, ...]


ADD_ORDERS = (
    'natsctl str add ORDERS --subjects "ORDERS.*" --ack --max-msgs=-1 --max-bytes=-1 --max-age=1y'
    " --storage file --retention limits --max-msg-size=-1 --discard old"
)
ADD_MONITOR = (
    "natsctl con add ORDERS MONITOR --filter '' --ack none --target monitor.ORDERS --deliver last --replay instant"
)


def _pull(name: str, deliver: str) -> str:
    flags = "--pull --filter ORDERS.processed --ack none --replay instant"
    return f"natsctl con add ORDERS {name} {flags} --deliver {deliver}"


SCENARIO: tuple[Chapter, ...] = (
    Chapter("Account information", (TourLine("natsctl account info", ("Memory", "Storage", "Streams")),)),
    Chapter(
        "Streams: creating, listing, querying, copying, editing",
        (
            TourLine(ADD_ORDERS, ("ORDERS.*",)),
            TourLine("natsctl str ls", ("ORDERS",)),
            TourLine("natsctl str info ORDERS", ("Subjects: ORDERS.*", "Maximum Age: 1y0d0h0m0s", "Messages: 0")),
            TourLine("natsctl str info ORDERS -j > orders.json", ()),
            TourLine("natsctl str add ORDERS --config orders.json", ("ORDERS.*",)),
            TourLine(
                'natsctl str cp ORDERS ARCHIVE --subjects "ORDERS_ARCVHIVE.*" --max-age 2y',
                ("ORDERS_ARCVHIVE.*", "2y0d0h0m0s"),
            ),
            TourLine('natsctl str edit ARCHIVE --subjects "ORDERS_ARCHIVE.*" -f', ("ORDERS_ARCHIVE.*",)),
            TourLine("natsctl str edit ORDERS --config orders.json -f", ()),
        ),
    ),
    Chapter(
        "Publishing into a stream, deleting from it",
        (
            TourLine("natsctl pub ORDERS.scratch hello", ()),
            TourLine("natsctl pub --wait ORDERS.scratch hello", ("ORDERS",)),
            TourLine("natsctl req ORDERS.scratch hello", ('"seq":3',)),
            TourLine("natsctl str info ORDERS", ("Messages: 3",)),
            TourLine("natsctl str rmm ORDERS 1 -f", ()),
            TourLine("natsctl str get ORDERS 2 -j", ('"ORDERS.scratch"',)),
            TourLine("natsctl str purge ORDERS -f", ("Messages: 2 → 0",)),
            TourLine("natsctl str rm ORDERS -f", ()),
            TourLine("natsctl str info ORDERS", ("stream not found",), exit_code=3),
            TourLine(ADD_ORDERS, ("ORDERS.*",)),
        ),
    ),
    Chapter(
        "Consumers: pull-based and push-based",
        (
            TourLine("natsctl con ls ORDERS", ("No Consumers defined",)),
            TourLine(
                "natsctl con add ORDERS NEW --filter ORDERS.received --ack explicit --pull --deliver all"
                " --max-deliver=-1 --sample 100",
                ("ORDERS.received",),
            ),
            TourLine(
                "natsctl con add ORDERS DISPATCH --filter ORDERS.processed --ack explicit --pull --deliver all"
                " --sample 100 --max-deliver 20",
                ("ORDERS.processed",),
            ),
            TourLine(ADD_MONITOR, ("monitor.ORDERS",)),
            TourLine("natsctl con info ORDERS MONITOR -j > monitor.json", ()),
            TourLine("natsctl con add ORDERS MONITOR --config monitor.json", ("monitor.ORDERS",)),
            TourLine("natsctl con add ORDERS --config monitor.json", ("monitor.ORDERS",)),
            TourLine("natsctl con ls ORDERS", ("DISPATCH", "MONITOR", "NEW")),
            TourLine("natsctl con info ORDERS DISPATCH", ("Filter Subject: ORDERS.processed", "Sampling Rate: 100")),
            TourLine('natsctl pub ORDERS.processed "order 1"', ()),
            TourLine('natsctl pub ORDERS.processed "order 2"', ()),
            TourLine('natsctl pub ORDERS.processed "order 3"', ()),
            TourLine("natsctl con next ORDERS DISPATCH", ("order 1", "Acknowledged message")),
            TourLine("natsctl con next ORDERS DISPATCH", ("order 2", "Acknowledged message")),
            TourLine("natsctl req '$JS.NEXT.ORDERS.DISPATCH' ''", ("order 3",), included_only=True),
            TourLine("natsctl sub monitor.ORDERS --count 4", ("order 3", "order 4"), background=True),
            TourLine('natsctl pub ORDERS.processed "order 4"', (), joins=True),
        ),
    ),
    Chapter(
        "Message deduplication",
        (
            TourLine("natsctl str purge ORDERS -f", ("Purged ",)),
            TourLine("natsctl req -H Nats-Msg-Id:1 ORDERS.new hello1", ()),
            TourLine("natsctl req -H Nats-Msg-Id:1 ORDERS.new hello2", ("duplicate",)),
            TourLine("natsctl req -H Msg-Id:2 ORDERS.new hello3", (), included_only=True),
            TourLine("natsctl req -H Msg-Id:2 ORDERS.new hello4", ("duplicate",), included_only=True),
            TourLine("natsctl str purge ORDERS --seq 6 -f", ()),
        ),
    ),
    Chapter(
        "Acknowledgement models",
        (
            TourLine("natsctl con rm ORDERS DISPATCH -f", ()),
            TourLine("natsctl str purge ORDERS -f", ("Purged ",)),
            TourLine(
                "natsctl con add ORDERS DISPATCH --filter ORDERS.processed --ack explicit --pull --deliver all"
                " --sample 100 --wait 2s",
                ("Ack Wait: 2.00s",),
            ),
            TourLine('natsctl pub ORDERS.processed "order 4"', ()),
            TourLine("natsctl con next ORDERS DISPATCH", ("order 4", "Acknowledged message")),
            TourLine('natsctl pub ORDERS.processed "order 5"', ()),
            TourLine("natsctl con next ORDERS DISPATCH --no-ack", ("order 5",)),
            TourLine("natsctl con info ORDERS DISPATCH", ("Outstanding Acks: 1",)),
            TourLine("natsctl con next ORDERS DISPATCH --no-ack", ("order 5",)),
            TourLine("natsctl con info ORDERS DISPATCH", ("Redelivered Messages: 1",)),
            TourLine("natsctl con next ORDERS DISPATCH", ("order 5", "Acknowledged message")),
            TourLine("natsctl con info ORDERS DISPATCH", ("Outstanding Acks: 0",)),
        ),
    ),
    Chapter(
        "Consumer starting position",
        (
            TourLine("natsctl str purge ORDERS -f", ()),
            TourLine('natsctl pub ORDERS.processed "order {{Count}}" --count 12', ()),
            TourLine(_pull("ALL", "all"), ()),
            TourLine("natsctl con next ORDERS ALL", ("order 1",)),
            TourLine(_pull("LAST", "last"), ()),
            TourLine("natsctl con next ORDERS LAST", ("order 12",), pause_s=2.5),
            TourLine('natsctl pub ORDERS.processed "order 13"', ()),
            TourLine(_pull("TWOSECONDS", "2s"), ()),
            TourLine("natsctl con next ORDERS TWOSECONDS", ("order 13",)),
            TourLine(_pull("TEN", "10"), ("From Sequence 10",)),
        ),
    ),
    Chapter(
        "Ephemeral consumers, message rates, ack sampling",
        (
            TourLine("natsctl sub my.monitor --count 1", ("order 13",), background=True),
            TourLine(
                "natsctl con add ORDERS --filter '' --ack none --target 'my.monitor' --deliver last"
                " --replay instant --ephemeral",
                (),
                joins=True,
            ),
            TourLine("natsctl str purge ORDERS -f", ()),
            TourLine('natsctl pub ORDERS.processed "order 1"', (), pause_s=1.0),
            TourLine('natsctl pub ORDERS.processed "order 2"', ()),
            TourLine(
                "natsctl con add ORDERS REPLAY --target out.original --filter ORDERS.processed --ack none"
                " --deliver all --sample 100 --replay original",
                ("Replay Policy: Original",),
            ),
            TourLine("natsctl sub -t out.original --count 2", ("order 1", "order 2")),
            TourLine("natsctl con events ORDERS NEW --count 1", ("Acknowledgment Sample",), background=True),
            TourLine('natsctl pub ORDERS.received "order 6"', ()),
            TourLine("natsctl con next ORDERS NEW", ("order 6",), joins=True),
        ),
    ),
    Chapter(
        "Disaster recovery",
        (
            TourLine("natsctl stream backup ORDERS ORDERS.tgz --no-progress", ("Starting backup of Stream",)),
            TourLine("natsctl str rm ORDERS -f", ()),
            TourLine("natsctl str restore ORDERS ORDERS.tgz --no-progress", ("Restored stream",)),
            TourLine("natsctl str info ORDERS", ("Messages: 3", "Active Consumers")),
            TourLine("natsctl backup js-backup --data", ("Configuration backup complete",)),
            TourLine("natsctl restore js-backup --update-streams", ("ORDERS",)),
        ),
    ),
    Chapter(
        "The API underneath",
        (
            TourLine("natsctl req '$JS.API.STREAM.INFO.nonexisting' ''", ('"code":404',)),
            TourLine("natsctl req '$JS.STREAM.INFO.ORDERS' ''", ('"ORDERS"',), included_only=True),
            TourLine(
                "natsctl req '$JS.API.STREAM.MSG.GET.ORDERS' '{\"last_by_subj\": \"ORDERS.received\"}'", ('"data"',)
            ),
            TourLine("natsctl str ls", ("ARCHIVE", "ORDERS")),
        ),
    ),
)


STEP_WITHIN_S = 30.0
ESTIMATED_FROM = 3
"""Steps after which the time that is left is estimated."""
LISTENING = (b"Listening for ", b"Subscribing on ")


class StepFailedError(NatsctlError):
    """A step ended with an unexpected exit status, or lacks expected output."""


def _arguments(line: str) -> tuple[list[str], str | None]:
    """Return the program arguments of a command line and the file that its output goes to, if any."""
    words = shlex.split(line)
    target = None
    if ">" in words:
        words, target = words[: words.index(">")], words[-1]
    return [sys.executable, "-m", "natsctl", *words[1:]], target


def _check(step: TourLine, status: int, output: str) -> None:
    """Raise StepFailedError unless the step ended and printed as the scenario expects."""
    if status != step.exit_code:
        raise StepFailedError(f"exit status {status}, not {step.exit_code}: {step.line}")
    missing = [text for text in step.shows if text not in output]
    if missing:
        raise StepFailedError(f"the output lacks {missing!r}: {step.line}")


class _RunningCommand:
    """A background command: started, known to be listening, and collected later."""

    def __init__(self, step: TourLine, process: subprocess.Popen[bytes]) -> None:
        self.step = step
        self._process = process
        self._chunks: list[bytes] = []
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stream = self._process.stdout
        for line in stream or ():
            self._chunks.append(line)
            if any(banner in line for banner in LISTENING):
                self._listening.set()
        self._listening.set()

    def wait_listening(self) -> None:
        """Wait until the command has reported that it listens, or has ended."""
        self._listening.wait(STEP_WITHIN_S)

    def collect(self) -> tuple[int, str]:
        """Return the exit status and output, once the command has ended by itself."""
        try:
            status = self._process.wait(STEP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status, b"".join(self._chunks).decode(errors="replace")


class Tour:
    """The scenario, run in `folder` against the server at `url`, with each step printed."""

    def __init__(self, url: str, folder: Path, included: bool) -> None:
        self._folder = folder
        self._included = included
        self._environment = {**os.environ, "NATS_URL": url, "NO_COLOR": "1", "COLUMNS": "100"}
        self._environment.pop("NATS_CONTEXT", None)
        self._background: _RunningCommand | None = None
        self._worked_s = 0.0
        self._pauses_s = sum(step.pause_s for step in self._steps())
        self.steps = 0
        self.of = len(self._steps())

    def _steps(self) -> list[TourLine]:
        return [step for chapter in SCENARIO for step in chapter.steps if self._included or not step.included_only]

    def run(self) -> None:
        """Run every chapter; raises StepFailedError at the first failed step."""
        for number, chapter in enumerate(SCENARIO, 1):
            print(f"\n── {number}. {chapter.title} ".ljust(100, "─"), flush=True)
            for step in chapter.steps:
                if self._included or not step.included_only:
                    began = time.monotonic()
                    self._run(step)
                    self._worked_s += time.monotonic() - began
                    time.sleep(step.pause_s)
                    self._pauses_s -= step.pause_s

    def _left(self) -> str:
        """Return an estimate of the time until the end, from the pace so far; "" for the first steps."""
        if self.steps <= ESTIMATED_FROM:
            return ""
        each_s = self._worked_s / (self.steps - 1)
        return f", about {self._pauses_s + each_s * (self.of - self.steps + 1):.0f} s left"

    def _run(self, step: TourLine) -> None:
        self.steps += 1
        print(f"\n[step {self.steps} of {self.of}{self._left()}]", flush=True)
        print(f"$ {step.line}{' &' if step.background else ''}", flush=True)
        if step.background:
            self._background = self._start(step)
            self._background.wait_listening()
            return
        status, output = self._execute(step)
        print(output, end="", flush=True)
        _check(step, status, output)
        if step.joins and self._background is not None:
            background, self._background = self._background, None
            status, output = background.collect()
            print(f"\n[{background.step.line}]\n{output}", end="", flush=True)
            _check(background.step, status, output)

    def _execute(self, step: TourLine) -> tuple[int, str]:
        arguments, target = _arguments(step.line)
        done = subprocess.run(
            arguments,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if target else subprocess.STDOUT,
            timeout=STEP_WITHIN_S,
        )
        if target is None:
            return done.returncode, done.stdout.decode(errors="replace")
        (self._folder / target).write_bytes(done.stdout)
        return done.returncode, done.stderr.decode(errors="replace")

    def _start(self, step: TourLine) -> _RunningCommand:
        arguments, _ = _arguments(step.line)
        process = subprocess.Popen(
            arguments,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return _RunningCommand(step, process)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="natsctl-tour-") as name:
            yield Path(name)
    else:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[str]:
    """Run a temporary embedded server below the tour's folder."""
    if sys.platform == "win32":
        raise server_missing()
    from natsctl.server.embedded import EmbeddedServer

    server = EmbeddedServer(folder / "store")
    yield server.start()
    server.stop()


def tour(
    session: Session,
    keep: Annotated[
        Path | None, Option("--keep", metavar="DIR", help="run in this folder and keep it, including the store")
    ] = None,
) -> None:
    """Run the ORDERS scenario from start to end: each command line, then its real output.

    It ends at the first step that fails. It runs on a temporary embedded server, or on the server that -s, NATS_URL or
    --context names; there the streams ORDERS and ARCHIVE must not exist.
    """
    options = session.options
    named = options.server or os.environ.get("NATS_URL")
    began = time.monotonic()
    with _folder(keep) as folder, contextlib.ExitStack() as stack:
        url = named or stack.enter_context(_server(folder))
        run = Tour(url, folder, included=named is None)
        run.run()
    output.log(
        f"The tour is finished: {run.steps} steps in {time.monotonic() - began:.1f} s, each with the expected result."
    )
