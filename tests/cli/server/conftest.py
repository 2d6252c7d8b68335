"""Servers with a system account: one of each kind for all tests of `server`, and a cluster for what needs one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from natsctl.testing.process import Kind, ServerProcess
from tests.cli.conftest import eventually
from tests.support.commands import Run
from tests.support.servers import CONFIG, Cluster


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "operated" in metafunc.fixturenames:
        kinds: list[object] = ["natsctl", "reference"]
        metafunc.parametrize("operated", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def operated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server of each kind, named `one`, with a system account and an account with JetStream."""
    kind: Kind = request.param
    folder = tmp_path_factory.mktemp(f"operated_{kind}")
    config = folder / "nats.conf"
    config.write_text(f"server_name: one\n{CONFIG}")
    with ServerProcess(folder / "store", kind, "-c", str(config)) as process:
        yield process


@pytest.fixture
def system(operated: ServerProcess, command: Run) -> Run:
    return command(operated.url.replace("nats://", "nats://s:p@"))


@pytest.fixture
def user(operated: ServerProcess, command: Run) -> Iterator[Run]:
    """Runs a command line as a user of account A, which has no streams."""
    run = command(operated.url.replace("nats://", "nats://a:p@"))
    yield run
    operated.await_removals()
    for name in run("str", "ls", "-n", "-a").out.split():
        run("str", "rm", name, "-f")
    operated.await_removals()


@pytest.fixture
def cluster(three: Cluster, command: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line as a user of the cluster's system account, once it has a leader; it awaits every server."""
    monkeypatch.setattr("natsctl.client.system.system_account.KNOWN_QUIET_S", 20.0)
    run = command(three.url("s:p"))
    eventually(lambda: run("srv", "check", "meta", "--expect", "3").code == 0)
    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    made.mkdir()
    return made
