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

    def with_note(self, note: str) -> TourLine:
        """Return the line with a note from an indented line below it, such as `exit 3`."""
        word, _, value = note.partition(" ")
        if word == "shows":
            return self._replace(shows=(*self.shows, value))
        if word == "exit":
            return self._replace(exit_code=int(value))
        if word == "pause":
            return self._replace(pause_s=float(value))
        if word == "included":
            return self._replace(included_only=True)
        return self._replace(background=True) if word == "background" else self._replace(joins=True)


class Chapter(NamedTuple):
    """A heading and its steps."""

    title: str
    steps: list[TourLine]


def scenario() -> list[Chapter]:
    """Return the chapters of tour.txt: command lines, each with its expectations in indented lines below."""
    chapters: list[Chapter] = []
    for line in filter(None, Path(__file__).with_name("tour.txt").read_text(encoding="utf-8").splitlines()):
        if line.startswith("## "):
            chapters.append(Chapter(line[3:], []))
        elif line.startswith("  "):
            steps = chapters[-1].steps
            steps[-1] = steps[-1].with_note(line[2:])
        else:
            chapters[-1].steps.append(TourLine(line))
    return chapters


STEP_WITHIN_S = 30.0
ESTIMATED_FROM = 3
"""Steps after which the time that is left is estimated."""
LISTENING = (b"Listening for ", b"Subscribing on ")


def _arguments(line: str) -> tuple[list[str], str | None]:
    """Return the program arguments of a command line and the file that its output goes to, if any."""
    words = shlex.split(line)
    target = None
    if ">" in words:
        words, target = words[: words.index(">")], words[-1]
    return [sys.executable, "-m", "natsctl", *words[1:]], target


def _check(step: TourLine, status: int, output: str) -> None:
    if status != step.exit_code:
        raise NatsctlError(f"exit status {status}, not {step.exit_code}: {step.line}")
    missing = [text for text in step.shows if text not in output]
    if missing:
        raise NatsctlError(f"the output lacks {missing!r}: {step.line}")


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
        self._listening.wait(STEP_WITHIN_S)

    def collect(self) -> tuple[int, str]:
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
        self._chapters = scenario()
        self._worked_s = 0.0
        self._pauses_s = sum(step.pause_s for step in self._steps())
        self.steps = 0
        self.of = len(self._steps())

    def _steps(self) -> list[TourLine]:
        return [
            step for chapter in self._chapters for step in chapter.steps if self._included or not step.included_only
        ]

    def run(self) -> None:
        for number, chapter in enumerate(self._chapters, 1):
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
