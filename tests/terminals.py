"""Programs at a pseudo-terminal; commands of natsctl begin in the nursery, as they do in pipes."""

from __future__ import annotations

import functools
import time
from typing import Any, Final

import pytest

from tests.support import nursery

PATIENCE_S: Final = 30.0


def spawn(command: list[str], **options: Any) -> Any:
    """Start a command at a terminal, with what pexpect's `spawn` takes besides; skips the test without pexpect."""
    return _kind()(command[0], command[1:], encoding="utf-8", **options)


def ended() -> Any:
    """What to expect as the end of what a program shows."""
    return pytest.importorskip("pexpect").EOF


@functools.cache
def _kind() -> Any:
    pexpect = pytest.importorskip("pexpect")
    ptyprocess = pytest.importorskip("ptyprocess")

    class Patient(ptyprocess.PtyProcess):
        """A program that a busy machine may take a while to end once it was killed."""

        def terminate(self, force: bool = False) -> bool:
            ended: bool = super().terminate(force)
            deadline = time.monotonic() + PATIENCE_S
            while force and not ended and time.monotonic() < deadline:
                time.sleep(0.05)
                ended = not self.isalive()
            return ended

    class Spawned(pexpect.spawn):
        """What pexpect starts, but for commands that the nursery takes."""

        def _spawnpty(self, args: list[str], **options: Any) -> Any:
            size = options.get("dimensions", (24, 80))
            plain = options["echo"] and options["preexec_fn"] is None
            begun = nursery.at_terminal(args, options["env"], options["cwd"], size) if plain else None
            return Patient(*begun) if begun else super()._spawnpty(args, **options)

    return Spawned
