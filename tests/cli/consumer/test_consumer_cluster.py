"""Leaders of consumers in a true cluster of three reference servers."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from natsctl.cli.main import run as run_main
from natsctl.testing.process import ServerProcess, reference_binary

pytestmark = pytest.mark.skipif(reference_binary() is None, reason="nats-server is not on PATH")

READY_WITHIN_S = 30.0
NAMES = ("n1", "n2", "n3")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster that has elected its leader."""
    ports = {name: free_port() for name in NAMES}
    routes = ",".join(f"nats://127.0.0.1:{port}" for port in ports.values())
    servers = []
    for name in NAMES:
        folder = tmp_path_factory.mktemp(name)
        flags = ("--server_name", name, "--cluster_name", "C", "--cluster", f"nats://127.0.0.1:{ports[name]}")
        servers.append(ServerProcess(folder, "reference", *flags, "--routes", routes))
    try:
        yield servers[0].start().url if all(server.start() for server in servers[1:]) else ""
    finally:
        for server in servers:
            server.kill()


@pytest.fixture
def run(cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """A command on the cluster, with its exit code and what it said."""
    monkeypatch.setenv("NATS_URL", cluster)
    monkeypatch.setenv("NO_COLOR", "1")

    def command(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_main(list(words))
        return code, *capsys.readouterr()

    return command


@pytest.fixture
def led(run: Callable[..., Any]) -> Callable[..., Any]:
    """A cluster with six consumers of three copies each."""
    until_s = time.monotonic() + READY_WITHIN_S
    while run("str", "add", "S", "--subjects", "s", "--replicas", "3", "--if-not-exists")[0]:
        assert time.monotonic() < until_s, "no leader was elected"
        time.sleep(0.1)
    for number in range(6):
        assert run("con", "add", "S", f"C{number}", "--pull", "--if-not-exists")[0] == 0
    return run


def leaders(run: Callable[..., Any]) -> Counter[str]:
    return Counter(one["cluster"]["leader"] for one in json.loads(run("con", "ls", "S", "-j")[1]))


def test_leaders_hand_over_and_are_spread_evenly(led: Callable[..., Any]) -> None:
    before = json.loads(led("con", "info", "S", "C0", "-j")[1])["cluster"]["leader"]
    preferred = next(name for name in NAMES if name != before)
    code, out, _ = led("con", "cluster", "step-down", "S", "C0", "--preferred", preferred, "-f", "-j")
    assert (code, json.loads(out)["cluster"]["leader"]) == (0, preferred)
    for number in range(1, 6):
        led("con", "cluster", "step-down", "S", f"C{number}", "--preferred", preferred, "-f")
    assert leaders(led) == {preferred: 6}
    assert led("con", "find", "S", "--leader", preferred, "-n")[1].split() == [f"C{number}" for number in range(6)]

    report = json.loads(led("con", "report", "S", "-l", "-j")[1])
    assert report["leaders"] == [{"server": preferred, "cluster": "C", "consumers": 6}]
    assert f"{preferred}*" in led("con", "report", "S")[1]

    code, out, _ = led("con", "cluster", "balance", "S", "--dry-run", "-j")
    assert (code, json.loads(out)["effect"]) == (0, {"leaders_moved": 4})
    assert leaders(led) == {preferred: 6}
    code, out, _ = led("con", "cluster", "balance", "S", "-f", "-j")
    assert (code, len(json.loads(out)["moved"])) == (0, 4)
    assert sorted(leaders(led).values()) == [2, 2, 2]


@pytest.mark.parametrize(
    ("words", "matched"),
    [
        (("--pull",), 6),
        (("--push",), 0),
        (("--bound",), 0),
        (("--waiting", "1"), 6),
        (("--ack-pending", "1"), 6),
        (("--pending", "1"), 6),
        (("--idle", "1h"), 0),
        (("--created", "1h"), 0),
        (("--replicas", "2"), 0),
        (("--replicas", "3"), 6),
        (("--leader", "nobody"), 0),
        (("--pinned",), 0),
        (("--pull", "--invert"), 0),
        (("--expression", 'config.name == "C3"'), 1),
    ],
)
def test_only_what_is_described_is_balanced(led: Callable[..., Any], words: tuple[str, ...], matched: int) -> None:
    code, out, err = led("con", "cluster", "balance", "S", *words, "-f", "-j")
    assert (code, json.loads(out)["consumers"]) == (0, matched), err
