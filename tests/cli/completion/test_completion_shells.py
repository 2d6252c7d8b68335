"""Completion in the shells themselves, at a pseudo-terminal; a shell that is not installed is skipped."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.completion import SCRIPTS

WITHIN_S = 60
START = {
    "bash": (
        ["--norc", "--noprofile", "-i"],
        "PS1='ready> '; bind 'set enable-bracketed-paste off'; source '{script}'",
    ),
    "zsh": (["-f", "-i"], "PS1='ready> '; autoload -Uz compinit; compinit -u -d '{script}.dump'; source '{script}'"),
    "fish": (["--no-config", "-i"], "function fish_prompt; echo 'ready> '; end; source '{script}'"),
}


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, tmp_path: Path, natsctl: Callable[..., Any]) -> Iterator[Any]:
    """An interactive shell with completion loaded, on a server with a stream."""
    name = request.param
    pexpect = pytest.importorskip("pexpect")
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    script = tmp_path / f"natsctl.{name}"
    script.write_text(SCRIPTS[name])
    arguments, setup = START[name]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "dumb" if name != "fish" else "xterm",
        "NATSCTL_COMPLETION_MS": "20000",
    }
    child = pexpect.spawn(name, arguments, env=environment, encoding="utf-8", timeout=WITHIN_S, dimensions=(40, 200))
    child.sendline(setup.format(script=script))
    child.sendline("echo go''ing")
    child.expect_exact("going")
    yield child
    child.close(force=True)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("natsctl strea\tinf\tORD\t", "stream info ORDERS"),
        ("natsctl stream add X --storage=f\t", "--storage=file"),
    ],
)
def test_a_tab_completes_commands_values_and_names(shell: Any, typed: str, completed: str) -> None:
    for part in typed.split("\t")[:-1]:
        shell.send(f"{part}\t")
    shell.send("\x01echo got \r")  # to the beginning of the line, so that the shell says what it has
    shell.expect_exact(f"got natsctl {'' if 'stream info' in completed else 'stream add X '}{completed}")
