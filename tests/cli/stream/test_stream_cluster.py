"""Leaders and peers of streams, on a cluster of three reference servers: bounded waits, and plans before moves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.servers import NAMES, Cluster

READY_WITHIN_S = 60.0

Run = Callable[..., Any]


@pytest.fixture
def natsctl(three: Cluster, command: Callable[[str], Run]) -> Run:
    """Runs a command line on the cluster."""
    return command(three.url())


def made(natsctl: Run, name: str, copies: int = 3) -> dict[str, Any]:
    """A stream of so many replicas, once all of them are there."""
    until_s = time.monotonic() + READY_WITHIN_S
    while natsctl("str", "add", name, "--subjects", name, "--replicas", str(copies)).code:
        assert time.monotonic() < until_s, "the cluster is not ready"
        time.sleep(0.1)
    return settled(natsctl, name, copies)


def settled(natsctl: Run, name: str, copies: int = 3) -> dict[str, Any]:
    """The stream's information once it has a leader and current replicas."""
    until_s = time.monotonic() + READY_WITHIN_S
    while True:
        done = natsctl("str", "info", name, "-j")
        found: dict[str, Any] = json.loads(done.out) if done.code == 0 else {}
        peers = (found.get("cluster") or {}).get("replicas") or []
        if (
            found.get("cluster", {}).get("leader")
            and len(peers) == copies - 1
            and all(peer["current"] for peer in peers)
        ):
            return found
        assert time.monotonic() < until_s, found
        time.sleep(0.1)


def leader(found: dict[str, Any]) -> str:
    return str(found["cluster"]["leader"])


@pytest.mark.reference
def test_leaders_step_down_are_spread_and_peers_leave(natsctl: Run) -> None:
    first = made(natsctl, "A")
    other = next(name for name in NAMES if name != leader(first))
    planned = natsctl("str", "cluster", "step-down", "A", "--preferred", other, "--dry-run", "-j").json
    assert planned["requests"] == [
        {"subject": "$JS.API.STREAM.LEADER.STEPDOWN.A", "body": {"placement": {"preferred": other}}}
    ]
    # Where no other server leads in time, it ends with an error.
    moved = natsctl("str", "cluster", "step-down", "A", "--preferred", other, "-f", "-j")
    assert (moved.code, leader(moved.json)) == (0, other)

    page = natsctl("str", "info", "A").out
    assert "Cluster Information:" in page
    assert f"Leader: {other} (" in page
    report = natsctl("str", "report", "-l").out
    assert f"{other}*" in report
    assert "RAFT Leader Report" in report
    assert natsctl("str", "find", "--leader", other, "-n").out == "A\n"
    assert natsctl("str", "find", "--cluster", "^C$", "--server-name", "n[123]", "-n").out == "A\n"

    for name in ("B", "D"):
        made(natsctl, name)
        if leader(settled(natsctl, name)) != other:
            natsctl("str", "cluster", "step-down", name, "--preferred", other, "-f")
            settled(natsctl, name)
    moves = natsctl("str", "cluster", "balance", "--dry-run", "-j").json
    assert moves["effect"] == {"leaders_moved": 2}
    spread = natsctl("str", "cluster", "balance", "-f", "-j").json
    assert (spread["streams"], len(spread["moved"])) == (3, 2)
    assert {leader(settled(natsctl, name)) for name in ("A", "B", "D")} == set(NAMES)
    balanced = natsctl("str", "cluster", "balance", "-f")
    assert balanced.out == "Balanced 0 streams of 3\n"
    assert "Found cluster C with a balanced distribution of 1" in balanced.err

    assert natsctl("str", "cluster", "peer-remove", "A", "n9", "-f").code == 2
    assert natsctl("str", "cluster", "peer-remove", "A", "n1").code == 2
    follower = next(peer["name"] for peer in settled(natsctl, "B")["cluster"]["replicas"])
    refused = natsctl("str", "cluster", "peer-remove", "B", follower, "-f")
    assert (refused.code, "--replicas" in refused.err) == (1, True)
    leaving = made(natsctl, "E", 2)["cluster"]["replicas"][0]["name"]
    gone = natsctl("str", "cluster", "peer-remove", "E", leaving, "-f", "-j")
    assert (gone.code, gone.json["success"]) == (0, True)
    until_s = time.monotonic() + READY_WITHIN_S
    while leaving in natsctl("str", "report", "--columns", "stream,replicas", "-n").out.splitlines()[-2]:
        assert time.monotonic() < until_s, "it is told to be there still"
        time.sleep(0.1)
