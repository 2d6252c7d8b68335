"""`natsctl tour`: the ORDERS scenario, run for real, step by step.

Each step is a process of its own, started with the command line that is printed, so that the tour shows what a person
would see. Without a named server the steps talk to a temporary embedded server on a fresh store.
"""

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
from typing import Annotated

import typer

from natsctl.api.errors import NatsctlError
from natsctl.cli import output
from natsctl.cli.options import session_of
from natsctl.cli.tour.scenario import SCENARIO, Step

STEP_WITHIN_S = 30.0
LISTENING = (b"Listening for ", b"Subscribing on ")


class StepFailed(NatsctlError):
    """A step ended with another exit status than the scenario's, or did not show what it must."""


def _arguments(line: str) -> tuple[list[str], str | None]:
    """The program arguments of a command line and the file that its output goes to, if any."""
    words = shlex.split(line)
    target = None
    if ">" in words:
        words, target = words[: words.index(">")], words[-1]
    return [sys.executable, "-m", "natsctl", *words[1:]], target


def _check(step: Step, status: int, output: str) -> None:
    """Raise StepFailed unless the step ended and showed what the scenario says."""
    if status != step.exit_code:
        raise StepFailed(f"exit status {status}, not {step.exit_code}: {step.line}")
    missing = [text for text in step.shows if text not in output]
    if missing:
        raise StepFailed(f"the output lacks {missing!r}: {step.line}")


class _Running:
    """A background command: started, known to be listening, and collected later."""

    def __init__(self, step: Step, process: subprocess.Popen[bytes]) -> None:
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
        """Return once the command has said that it listens, or has ended."""
        self._listening.wait(STEP_WITHIN_S)

    def collect(self) -> tuple[int, str]:
        """The exit status and output, once the command has ended by itself."""
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
    """Runs the scenario in `folder`, its commands connecting to `url`; prints as it goes."""

    def __init__(self, url: str, folder: Path, included: bool) -> None:
        self._folder = folder
        self._included = included
        self._environment = {**os.environ, "NATS_URL": url, "NO_COLOR": "1", "COLUMNS": "100"}
        self._environment.pop("NATS_CONTEXT", None)
        self._background: _Running | None = None
        self.steps = 0

    def run(self) -> None:
        """Run every chapter; raises StepFailed at the first step that is not as it must be."""
        for number, chapter in enumerate(SCENARIO, 1):
            print(f"\n── {number}. {chapter.title} ".ljust(100, "─"), flush=True)
            for step in chapter.steps:
                if self._included or not step.included_only:
                    self._run(step)

    def _run(self, step: Step) -> None:
        self.steps += 1
        print(f"\n$ {step.line}{' &' if step.background else ''}", flush=True)
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
        if step.pause_s:
            time.sleep(step.pause_s)

    def _execute(self, step: Step) -> tuple[int, str]:
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

    def _start(self, step: Step) -> _Running:
        arguments, _ = _arguments(step.line)
        process = subprocess.Popen(
            arguments,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return _Running(step, process)


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
    """A temporary embedded server below the tour's folder."""
    from natsctl.server.embedded import EmbeddedServer

    server = EmbeddedServer(folder / "store")
    yield server.start()
    server.stop()


def tour(
    ctx: typer.Context,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="run in this folder and keep it, including the store")
    ] = None,
) -> None:
    """Run the ORDERS scenario from start to end: each command line, then its real output. Any failing step fails it.

    On a temporary embedded server, or on the server that -s, NATS_URL or --context names; there the streams ORDERS
    and ARCHIVE must not exist.
    """
    options = session_of(ctx).options
    named = options.server or os.environ.get("NATS_URL")
    began = time.monotonic()
    with _folder(keep) as folder, contextlib.ExitStack() as stack:
        url = named or stack.enter_context(_server(folder))
        run = Tour(url, folder, included=named is None)
        run.run()
    output.log(
        f"The tour is finished: {run.steps} steps in {time.monotonic() - began:.1f} s, each with the expected result."
    )
