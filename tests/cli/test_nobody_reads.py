"""Nobody reads what is for a person: a command does its work all the same, and its exit code says how that went."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess

Run = Callable[..., Any]
WITHIN_S = 60


def _ends(url: str, words: str, place: str, folder: Path) -> int:
    """The exit code of a command whose stderr is a full disk, or a pipe whose reader has gone."""
    command = f"{sys.executable} -m natsctl -s {url} {words} </dev/null"
    gone = f"exec 3>&1; {{ {command} 2>&4 >/dev/null; echo $? >&3; }} 4>&1 | :"
    line = f"{command} 2>/dev/full >/dev/null; echo $?" if place == "full" else gone
    done = subprocess.run(["sh", "-c", line], stdout=subprocess.PIPE, cwd=folder, timeout=WITHIN_S, text=True)
    return int(done.stdout)


LINES = [
    ("pub s.a x", 0),
    ("kv put B k v", 0),
    ("backup saved --data", 0),
    ("str info NOPE", 3),
    ("str info NOPE -j", 3),
    ("str frob", 2),
    ("str purge S -f", 0),
]


@pytest.mark.ours("nothing here differs between servers, and each line starts a process")
@pytest.mark.parametrize(("words", "code"), LINES)
@pytest.mark.parametrize("place", ["full", "gone"])
def test_a_stderr_that_takes_nothing_changes_nothing(
    natsctl: Run, shared_server: ServerProcess, tmp_path: Path, words: str, code: int, place: str
) -> None:
    if place == "full" and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    natsctl("str", "add", "S", "--subjects", "s.*")
    natsctl("kv", "add", "B")
    assert _ends(shared_server.url, words, place, tmp_path) == code
    if words.startswith("backup"):
        assert json.loads((tmp_path / "saved" / "stream_S.json").read_bytes())
        assert natsctl("backup", "verify", str(tmp_path / "saved")).code == 0
    if words.startswith("pub"):
        assert natsctl("str", "info", "S", "-j").json["state"]["messages"] == 1
