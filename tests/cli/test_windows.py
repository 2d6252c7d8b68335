"""Commands without what Python lacks on Windows, against a server elsewhere (tests.support.as_on_windows)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from natsctl.testing.jetstream import JetStreamServer
from tests.cli.conftest import groups_of

SESSION = """
import contextlib, io, json, sys
from tests.support.as_on_windows import pretend
pretend()
from natsctl.cli.main import run
for words in json.load(sys.stdin):
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    out.flush(), err.flush()
    print(json.dumps([code, *(each.buffer.getvalue().decode() for each in (out, err))]))
"""
COMMANDS = groups_of("windows.txt")["commands"]


def session(folder: Path, lines: list[list[str]], **environment: str) -> list[tuple[int, str, str]]:
    """Run command lines in one process without what Windows lacks; return exit code, stdout and stderr of each."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("NATS")}
    variables |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", SESSION],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        cwd=folder,
        env=variables | environment,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_commands_need_nothing_that_windows_lacks(tmp_path: Path) -> None:
    with JetStreamServer() as server:
        results = session(tmp_path, [line.split() for line in COMMANDS], NATS_URL=server.url)
    failed = {line: err for line, (code, _, err) in zip(COMMANDS, results, strict=True) if code}
    assert not failed
    assert json.loads(results[2][1])["state"]["messages"] == 1


@pytest.mark.parametrize("line", ["server run -js", "tour"])
def test_what_needs_our_server_says_so(tmp_path: Path, line: str) -> None:
    [(code, out, err)] = session(tmp_path, [[*line.split()]], NATSCTL_DATA=str(tmp_path / "data"))
    assert code == 2 and not out
    assert "natsctl's server needs Linux or macOS" in err and "--server" in err
