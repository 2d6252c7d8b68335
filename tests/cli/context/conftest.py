"""Commands about contexts run in this process, in a home of their own; most need no server."""

import io
import os
import sys
from pathlib import Path

import pytest

from natsctl.cli.main import run as run_main
from tests.support.commands import Done, Run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without contexts; the variables of the environment that name servers are away."""
    for name in [one for one in os.environ if one.startswith("NATS")] + ["XDG_CONFIG_HOME"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


@pytest.fixture
def ctx(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = run_main(["context", *words])
        return Done(code, *capsys.readouterr())

    return run
