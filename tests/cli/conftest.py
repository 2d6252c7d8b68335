"""Commands run in this process, as a script runs them: no terminal, output in pipes, one server for the whole run."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from natsctl.cli.main import run as run_main
from natsctl.testing.process import ServerProcess


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The documents on stdout, one on a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        """The error object on stderr."""
        return json.loads(self.err)["error"]


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server of ours for all tests of commands."""
    with ServerProcess(tmp_path_factory.mktemp("server")) as process:
        yield process


@pytest.fixture
def natsctl(
    shared_server: ServerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Done]]:
    """Runs a command line on a server without streams; `stdin` is what a pipe would hold."""
    monkeypatch.setenv("NATS_URL", shared_server.url)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words: str, stdin: bytes | None = None) -> Done:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = run_main(list(words))
        return Done(code, *capsys.readouterr())

    yield run
    for name in run("str", "ls", "-n", "-a").out.split():
        run("str", "rm", name, "-f")
