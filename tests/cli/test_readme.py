"""The commands of the README do what they say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from natsctl.testing.process import ServerProcess

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n(natsctl (?!server run).*?)```", re.DOTALL)


def _run(line: str, server: ServerProcess, folder: Path) -> str:
    command = shlex.split(line, comments=True)
    assert command.pop(0) == "natsctl"
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "natsctl", "-s", server.url, *command], cwd=folder, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.docs
def test_the_commands_of_the_first_five_minutes_work(server: ServerProcess, tmp_path: Path) -> None:
    first, second, third, fourth, *_ = BLOCK.findall(README.read_text())  # those behind are Spark's, in tests/spark
    said = [_run(line, server, tmp_path) for line in first.splitlines()]
    assert len(said) == 6
    assert "order 1" in said[3]
    assert '"subjects"' in said[4]
    assert (tmp_path / "orders.tgz").stat().st_size > 0
    said = [_run(line, server, tmp_path) for line in second.splitlines()]
    assert "natsctl stream add ORDERS" in said[0]
    assert said[3] == "messages: 0\n"
    assert "stream not found" in said[4]
    said = [_run(line, server, tmp_path) for line in third.splitlines()]
    assert "ORDERS" in (tmp_path / "account.yaml").read_text()
    assert "nothing to do" in said[3]
    *lines, last = fourth.splitlines()
    assert last.startswith("natsctl browse ")  # needs a terminal
    said = [_run(line, server, tmp_path) for line in lines]
    assert "Consumer ORDERS > NEW" in said[0]
