"""`natsctl server run` reaches the server process with its arguments as they stand."""

import re
import subprocess
import sys

import pytest


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "natsctl", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["server", "run", "-v"], ["srv", "run", "--version"]])
def test_flags_of_the_reference_server_reach_it(words: list[str]) -> None:
    done = run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"nats-server: v2\.15\.2 \(natsctl [0-9.]+\)\n", done.stdout)


@pytest.mark.parametrize("module", ["typer", "typing_extensions"])
def test_the_server_does_not_load(module: str) -> None:
    """Who needs one of them afterwards gets it: msgspec looks for the second, and does without."""
    code = "import sys; from natsctl.cli.main import run; run(['server', 'run', '-v']); "
    code += f"assert 'msgspec' in sys.modules and {module!r} not in sys.modules; import {module}"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_a_server_loads_no_more_than_it_needs_to_start() -> None:
    slow = "'h11', 'wsproto', 'cryptography', 'bcrypt', 'nkeys', 'http'"
    start = "natsctl.server.process.process, natsctl.server.process.announcement"
    code = f"import sys, {start}; print({{{slow}}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "set()\n"
