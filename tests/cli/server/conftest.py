"""Servers with a system account: one of each kind for all tests of `server`, and a cluster for what needs one."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from natsctl.cli.main import run as run_main
from natsctl.testing.process import Kind, ServerProcess, reference_binary

ACCOUNTS = """
server_tags: ["az:1", "disk:ssd"]
accounts {
  SYS { users: [{ user: s, password: p }] }
  A { jetstream: enabled, users: [{ user: a, password: p }] }
}
system_account: SYS
no_auth_user: a
"""
READY_WITHIN_S = 20.0
NAMES = ("n1", "n2", "n3")


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


Run = Callable[..., Done]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with `operated` on natsctl's server and on the reference."""
    if "operated" in metafunc.fixturenames:
        absent = pytest.mark.skipif(reference_binary() is None, reason="nats-server is not on PATH")
        kinds: list[object] = ["natsctl", pytest.param("reference", marks=absent)]
        metafunc.parametrize("operated", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def operated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server of each kind, named `one`, with a system account and an account with JetStream."""
    kind: Kind = request.param
    folder = tmp_path_factory.mktemp(f"operated_{kind}")
    config = folder / "nats.conf"
    config.write_text("server_name: one\n" + ACCOUNTS)
    with ServerProcess(folder / "store", kind, "-c", str(config)) as process:
        yield process


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Run]:
    """Makes what runs command lines on a server."""
    monkeypatch.setenv("NO_COLOR", "1")

    def on(url: str) -> Run:
        def run(*words: str) -> Done:
            monkeypatch.setenv("NATS_URL", url)
            capsys.readouterr()
            code = run_main(list(words))
            return Done(code, *capsys.readouterr())

        return run

    return on


@pytest.fixture
def system(operated: ServerProcess, runner: Callable[[str], Run]) -> Run:
    """Runs a command line as a user of the system account."""
    return runner(operated.url.replace("nats://", "nats://s:p@"))


@pytest.fixture
def user(operated: ServerProcess, runner: Callable[[str], Run]) -> Iterator[Run]:
    """Runs a command line as a user of account A, which has no streams."""
    run = runner(operated.url.replace("nats://", "nats://a:p@"))
    yield run
    for name in run("str", "ls", "-n", "-a").out.split():
        run("str", "rm", name, "-f")


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="session")
def cluster_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    """The client ports of three reference servers that are one cluster with JetStream."""
    binary = reference_binary()
    if binary is None:
        pytest.skip("nats-server is not on PATH")
    ports = _free_ports(6)
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports[3:])
    processes = []
    for name, port, route in zip(NAMES, ports[:3], ports[3:], strict=True):
        folder = tmp_path_factory.mktemp(name)
        config = folder / "nats.conf"
        config.write_text(
            f"server_name: {name}\nlisten: 127.0.0.1:{port}\njetstream: {{ store_dir: {folder} }}\n"
            f"cluster: {{ name: C, listen: 127.0.0.1:{route}, routes: [{routes}] }}\n{ACCOUNTS}"
        )
        words = [binary, "-c", str(config), "-l", str(folder / "log")]
        processes.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    yield ports[:3]
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def cluster(cluster_ports: list[int], runner: Callable[[str], Run]) -> Run:
    """Runs a command line as a user of the cluster's system account, once it has a leader."""
    run = runner(",".join(f"nats://s:p@127.0.0.1:{port}" for port in cluster_ports))
    until_s = time.monotonic() + READY_WITHIN_S
    while run("srv", "check", "meta", "--expect", "3").code and time.monotonic() < until_s:
        time.sleep(0.1)
    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    made = tmp_path / "made"
    made.mkdir()
    return made
