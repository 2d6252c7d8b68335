"""Leaders and peers of streams, on a cluster of three reference servers: bounded waits, and plans before moves."""

import json
import os
import signal
from typing import Any, Final

import pytest

from tests.cli.conftest import eventually
from tests.support.commands import Run
from tests.support.servers import NAMES, Cluster


@pytest.fixture
def natsctl(three: Cluster, command: Run) -> Run:
    return command(three.url())


def made(natsctl: Run, name: str, copies: int = 3) -> dict[str, Any]:
    words = ("--subjects", name, "--replicas", str(copies))
    eventually(lambda: natsctl("str", "add", name, *words), lambda done: done.code == 0)
    return settled(natsctl, name, copies)


def settled(natsctl: Run, name: str, copies: int = 3) -> dict[str, Any]:
    def stands(done: Any) -> bool:
        cluster = (done.json.get("cluster") or {}) if done.code == 0 else {}
        peers = cluster.get("replicas") or []
        return bool(cluster.get("leader")) and len(peers) == copies - 1 and all(peer["current"] for peer in peers)

    found: dict[str, Any] = eventually(lambda: natsctl("str", "info", name, "-j"), stands).json
    return found


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

    for name in ("B", "KV_D"):
        made(natsctl, name)
        if leader(settled(natsctl, name)) != other:
            natsctl("str", "cluster", "step-down", name, "--preferred", other, "-f")
            settled(natsctl, name)
    moves = natsctl("str", "cluster", "balance", "--dry-run", "-j").json
    assert moves["effect"] == {"leaders_moved": 2}
    spread = natsctl("str", "cluster", "balance", "-f", "-j").json
    assert (spread["streams"], len(spread["moved"])) == (3, 2)
    assert {leader(settled(natsctl, name)) for name in ("A", "B", "KV_D")} == set(NAMES)
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
    report = ("str", "report", "--columns", "stream,replicas", "-n")
    eventually(lambda: natsctl(*report).out.splitlines()[-2], lambda row: leaving not in row)


REQUESTS: Final = {
    "stream cluster evacuate MOVED {leader} -f": ("$JS.API.STREAM.PEER.EVACUATE.MOVED", {"peer": "{leader}"}),
    "consumer cluster evacuate MOVED C {leader} -f": ("$JS.API.CONSUMER.PEER.EVACUATE.MOVED.C", {"peer": "{leader}"}),
    "stream cluster cancel-move MOVED -f": ("$JS.API.STREAM.CANCEL_MOVE.MOVED", None),
    "server cluster evacuate {leader} -f": ("$JS.API.SERVER.EVACUATE", {"peer": "{leader}"}),
}
"""What `nats` 0.5.1 sends for lines that move copies: `nats --trace` on a cluster of three nats-servers 2.15.2."""


@pytest.mark.reference
def test_a_move_asks_as_the_tool_does_and_can_be_cancelled(natsctl: Run, three: Cluster, command: Run) -> None:
    system = command(three.url("s:p"))
    home = _led_elsewhere(natsctl, system)
    assert natsctl("con", "add", "MOVED", "C", "--pull", "--defaults").code == 0
    stopped = three.servers[NAMES.index("n3")].pid
    os.kill(stopped, signal.SIGSTOP)
    try:
        assert natsctl("str", "edit", "MOVED", "--tag", "host:n3", "-f").code == 0
        moving = eventually(lambda: natsctl("str", "info", "MOVED"), lambda done: "Desired Peers: n3" in done.out)
        assert f"Placement Tags: host:{home} → host:n3" in moving.out
        for line, (subject, body) in REQUESTS.items():
            run = system if line.startswith("server") else natsctl
            asked = run(*line.format(leader=home).split(), "--dry-run", "-j").json["requests"]
            wanted = json.loads(json.dumps(body).replace("{leader}", home))
            assert asked == [{"subject": subject, "body": wanted}], line
        done = natsctl("stream", "cluster", "cancel-move", "MOVED")
        assert (done.code, f"Leader: {home}" in done.out) == (0, True), done
        assert "Migration" not in done.out
        info = natsctl("str", "info", "MOVED", "-j").json
        assert info["config"]["placement"]["tags"] == [f"host:{home}"]
        again = natsctl("stream", "cluster", "cancel-move", "MOVED", "-j")
        assert (again.code, "is not moving" in again.error["description"]) == (1, True)
    finally:
        os.kill(stopped, signal.SIGCONT)


def _led_elsewhere(natsctl: Run, system: Run) -> str:
    """Make MOVED on another server than n3, which leads neither it nor the cluster; returns its server."""
    made(natsctl, "MOVED", 1)
    eventually(lambda: system("srv", "check", "meta", "--expect", "3"), lambda done: done.code == 0)
    if "led by n3" in system("srv", "check", "meta", "--expect", "3").out:
        assert system("srv", "cluster", "step-down", "--host", "n1", "-f").code == 0
    home = leader(settled(natsctl, "MOVED", 1))
    if home == "n3":
        moved = eventually(lambda: natsctl("str", "cluster", "evacuate", "MOVED", "n3"), lambda done: done.code == 0)
        home = moved.out.strip().rpartition(" ")[2]
    assert natsctl("str", "edit", "MOVED", "--tag", f"host:{home}", "-f").code == 0
    eventually(lambda: natsctl("str", "info", "MOVED", "-j"), lambda done: "desired" not in done.json["cluster"])
    return home


@pytest.mark.reference
def test_an_evacuation_that_no_server_can_take_is_refused(natsctl: Run) -> None:
    made(natsctl, "EVERY", 3)
    refused = natsctl("stream", "cluster", "evacuate", "EVERY", "n1")
    assert (refused.code, "natsctl str edit EVERY --replicas" in refused.err) == (1, True)
    for words, code in ((("EVERY", "n9"), 2), (("EVERY",), 2), ((), 2), (("NONE", "n1"), 3)):
        assert natsctl("stream", "cluster", "evacuate", *words).code == code, words
    assert natsctl("consumer", "cluster", "evacuate", "EVERY", "NONE", "n1").code == 3
