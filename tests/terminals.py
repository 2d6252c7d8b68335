"""Programs at a pseudo-terminal; commands of natsctl begin in the nursery, as they do in pipes."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from natsctl.testing import nursery


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

    class Spawned(pexpect.spawn):
        """What pexpect starts, but for commands that the nursery takes."""

        def _spawnpty(self, args: list[str], **options: Any) -> Any:
            size = options.get("dimensions", (24, 80))
            plain = options["echo"] and options["preexec_fn"] is None
            begun = nursery.at_terminal(args, options["env"], options["cwd"], size) if plain else None
            return ptyprocess.PtyProcess(*begun) if begun else super()._spawnpty(args, **options)

    return Spawned
