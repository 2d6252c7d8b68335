"""`natsctl server run` reaches the server process with its arguments as they stand."""

import subprocess
import sys

import pytest


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "natsctl", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["server", "run", "-v"], ["srv", "run", "--version"]])
def test_flags_of_the_reference_server_reach_it(words: list[str]) -> None:
    done = run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("nats-server: v2.15.2")


def test_an_unknown_flag_is_a_usage_error() -> None:
    done = run("server", "run", "--sd", "x", "--nonsense")
    assert done.returncode == 2
    assert "flag provided but not defined: -nonsense" in done.stderr


def test_the_server_does_not_load_typer() -> None:
    code = (
        "import sys; from natsctl.cli.main import run; run(['server', 'run', '-v']); sys.exit('typer' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_a_server_loads_no_more_than_it_needs_to_start() -> None:
    slow = "'h11', 'wsproto', 'cryptography', 'bcrypt', 'nkeys', 'http'"
    start = "natsctl.server.process.process, natsctl.server.process.announcement"
    code = f"import sys, {start}; print({{{slow}}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "set()\n"
