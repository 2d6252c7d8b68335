"""The first commands of the README do what they say."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from natsctl.testing.process import ServerProcess

README = Path(__file__).parents[2] / "README.md"


def test_the_commands_of_the_first_five_minutes_work(server: ServerProcess, tmp_path: Path) -> None:
    found = re.search(r"## In five minutes\n\n```console\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    said = []
    for line in found[1].splitlines():
        command = shlex.split(line, comments=True)
        assert command.pop(0) == "natsctl"
        done = subprocess.run(
            [sys.executable, "-m", "natsctl", "-s", server.url, *command],
            cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        said.append(done.stdout)
    assert len(said) == 6
    assert "order 1" in said[3]
    assert '"subjects"' in said[4]
    assert (tmp_path / "orders.tgz").stat().st_size > 0
