"""Commands that tests run: how they ended, and programs at a pseudo-terminal.

Commands of natsctl at a terminal begin in the forkserver, as they do in pipes.
"""

import functools
import json
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from tests.support import forkserver

Run = Callable[..., Any]
"""The type of fixtures that are called, most of them with the words of a command line: they return a Done."""


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


PATIENCE_S: Final = 30.0


def spawn(command: list[str], **options: Any) -> Any:
    """Start a command at a terminal, with what pexpect's `spawn` takes besides; skips the test without pexpect."""
    return _kind()(command[0], command[1:], encoding="utf-8", **options)


def ended() -> Any:
    return pytest.importorskip("pexpect").EOF


def late() -> Any:
    """Pattern of a program that does not print in time what it is expected to."""
    return pytest.importorskip("pexpect").TIMEOUT


@functools.cache
def _kind() -> Any:
    pexpect = pytest.importorskip("pexpect")
    ptyprocess = pytest.importorskip("ptyprocess")

    class Patient(ptyprocess.PtyProcess):  # type: ignore[misc, name-defined]  # found at run time
        """A program that a busy machine may take a while to end once it was killed."""

        def terminate(self, force: bool = False) -> bool:
            ended: bool = super().terminate(force)
            deadline = time.monotonic() + PATIENCE_S
            while force and not ended and time.monotonic() < deadline:
                time.sleep(0.05)
                ended = not self.isalive()
            return ended

    class Spawned(pexpect.spawn):  # type: ignore[misc, name-defined]  # found at run time
        """A process as pexpect starts it; the forkserver starts natsctl's commands."""

        def _spawnpty(self, args: list[str], **options: Any) -> Any:
            size = options.get("dimensions", (24, 80))
            plain = options["echo"] and options["preexec_fn"] is None
            begun = forkserver.at_terminal(args, options["env"], options["cwd"], size) if plain else None
            return Patient(*begun) if begun else super()._spawnpty(args, **options)

    return Spawned
