"""The page on growing beyond one machine is followed: from one server to three, and through the loss of one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from natsctl.testing.jetstream import JetStreamServer
from tests.docs.test_pages import DOCS, blocks, folder, follow, lines_of, run_line

__all__ = ["folder"]
PAGE = DOCS / "how-to" / "grow-beyond-one-machine.md"
ELSEWHERE = ("natsctl server run", "natsctl tour", "natsctl cluster run")
"""Commands that need a process of their own; the server and the cluster run already."""
LOSS = "natsctl --context local publish ORDERS.new 'order 101'"
PATIENCE_S = 60.0


@pytest.mark.docs
@pytest.mark.reference
def test_one_server_grows_to_three_as_the_page_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = next(line for line in lines_of(PAGE) if line.startswith("natsctl cluster run")).split()[1:]
    command = [sys.executable, "-m", "natsctl", *words, "-j"]
    with JetStreamServer() as one, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cluster:
        try:
            assert cluster.stdout is not None
            nodes = json.loads(cluster.stdout.readline())["nodes"]

            servers = {"nats://127.0.0.1:4222": one.url}

            def losing(line: str) -> str | None:
                if not line.startswith("natsctl ") or line.startswith(ELSEWHERE):
                    return None
                if line.startswith(LOSS):
                    servers["n3"], lost = _leader_and_idle(capsys)
                    os.kill(next(node["pid"] for node in nodes if node["name"] == lost), signal.SIGKILL)
                return run_line(line, capsys, servers)

            done = follow(blocks(PAGE), folder, losing)
        finally:
            cluster.send_signal(signal.SIGTERM)
            cluster.wait(PATIENCE_S)
    assert len(done) == 14
    assert any(line.startswith(LOSS) for line in done)
    assert (folder / "cluster" / "a" / "nats.conf").exists()


def _leader_and_idle(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Return the server that leads ORDERS, and one that leads neither that nor the cluster: no election comes."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        info = json.loads(run_line("natsctl --context local stream info ORDERS -j", capsys, {}))
        copies = info["cluster"].get("replicas") or []
        if len(copies) == 2 and all(copy["current"] for copy in copies) and "desired" not in info["cluster"]:
            break
        assert time.monotonic() < until_s, info
    check = run_line("natsctl --context local-system server check meta --expect 3", capsys, {})
    leader = str(info["cluster"]["leader"])
    return leader, next(name for name in ("n1", "n2", "n3") if name != leader and f"led by {name}" not in check)
