"""`server` on a cluster of three reference servers: who leads, who belongs to it, how connections are spread."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from natsctl.client.system.cluster import Member
from tests.cli.conftest import eventually
from tests.support.servers import Cluster

Run = Callable[..., Any]


def test_the_leader_hands_over_to_the_one_that_is_wanted(cluster: Run) -> None:
    dry = cluster("srv", "cluster", "step-down", "--host", "n2", "--dry-run", "-j").json
    assert dry["requests"] == [{"subject": "$JS.API.META.LEADER.STEPDOWN", "body": {"placement": {"preferred": "n2"}}}]
    was = cluster("srv", "check", "meta", "--expect", "3").out
    wanted = next(name for name in ("n1", "n2") if f"led by {name}" not in was)
    done = cluster("srv", "cluster", "sd", "--host", wanted, "-f", "-j")
    assert (done.code, done.json["leader"]) == (0, wanted)


def test_a_member_is_removed_only_when_it_is_one(cluster: Run) -> None:
    done = cluster("srv", "cluster", "peer-remove", "n9", "-f")
    assert (done.code, "known are: " in done.err) == (3, True)
    dry = cluster("srv", "cluster", "peer-remove", "n3", "--dry-run", "-j").json
    assert dry["requests"][0]["subject"] == "$JS.API.SERVER.REMOVE"
    assert dry["requests"][0]["body"]["peer"] == "n3"
    assert dry["effect"] == {"server": "n3", "online": True}
    assert cluster("srv", "cluster", "peer-remove", "n3").code == 2


def _client(port: int) -> socket.socket:
    """A connection that has logged in and knows about servers that send it elsewhere."""
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    client.sendall(b'CONNECT {"verbose":false,"protocol":1}\r\n')
    _heard(client)
    return client


def _heard(client: socket.socket) -> bytes:
    """What the server has said until now."""
    client.sendall(b"PING\r\n")
    heard = b""
    while b"PONG" not in heard:
        heard += client.recv(65536)
    return heard


def test_connections_are_sent_from_where_there_are_more(cluster: Run, three: Cluster) -> None:
    clients = [_client(three.ports[0]) for _ in range(6)]
    try:
        dry = cluster("srv", "cluster", "balance", "--account", "A", "--dry-run", "-j")
        assert dry.json["effect"] == {"connections": 4}
        done = cluster("srv", "cluster", "balance", "--account", "A", "-f", "-j")
        assert (done.code, done.json["balanced"]) == (0, 4)
        assert {one["target"] for one in done.json["servers"]} == {2}
        assert sum(b'"ldm":true' in _heard(client) for client in clients) == 4
    finally:
        for client in clients:
            client.close()


def test_a_cluster_that_has_lost_its_majority_is_rescued(cluster: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[dict[str, Any]] = []
    asked: list[tuple[int, int]] = []

    async def members(manager: Any) -> list[Member]:
        return [Member(f"n{at}", "C", "", 5, 5, 2, 3, rescue=False) for at in (1, 2)]

    async def rescue(manager: Any, quorum: int, servers: int) -> list[dict[str, Any]]:
        asked.append((quorum, servers))
        return answers

    assert cluster("srv", "cluster", "rescue", "--js-domain", "hub").code == 2
    dry = cluster("srv", "cluster", "rescue", "--quorum", "1", "--dry-run")
    assert (dry.code, "Cluster is healthy with a leader" in dry.out) == (0, True)
    monkeypatch.setattr("natsctl.client.system.cluster.members", members)
    dry = cluster("srv", "cluster", "rescue", "--quorum", "1", "--dry-run").out
    assert all(text in dry for text in ("$JS.API.META.RESCUE", '"quorum_needed": 1', "2 online / 5 peers"))
    monkeypatch.setattr("natsctl.client.system.cluster.rescue", rescue)
    for words, text in (((), "2 servers answered"), (("--quorum", "3", "-f"), "expected 1 to 2")):
        refused = cluster("srv", "cluster", "rescue", *words)
        assert (refused.code, text in refused.err, asked) == (2, True, [])
    answers.append({"server": "n1", "prev_quorum": 3, "new_quorum": 2})
    answers.append({"server": "n2", "error": {"description": "raft: log is empty"}})
    done = cluster("srv", "cluster", "rescue", "--quorum", "2", "-f")
    assert (done.code, asked) == (0, [(2, 2)])
    assert "Server n1 now requires 2 servers (was 3)\nwarning: n2: raft: log is empty\n" in done.err
    assert cluster("srv", "cluster", "rescue", "--quorum", "2", "-f", "-j").json["answers"] == answers
    del answers[0]
    assert cluster("srv", "cluster", "rescue", "--quorum", "2", "-f").code == 1


def test_a_server_is_evacuated(cluster: Run, command: Callable[[str], Run], three: Cluster) -> None:
    user = command(three.url())
    add = ("str", "add", "LONE", "--subjects", "lone", "--defaults", "--if-not-exists")
    eventually(lambda: user(*add).code == 0)
    assert user("con", "add", "LONE", "C", "--pull", "--defaults").code == 0
    home = user("str", "info", "LONE", "-j").json["cluster"]["leader"]
    refused = cluster("srv", "cluster", "evacuate", "n9", "-f")
    assert (refused.code, "known are: " in refused.err) == (3, True)
    assert user("srv", "cluster", "evacuate", home, "-f").code == 6
    dry = cluster("srv", "cluster", "evacuate", home, "--dry-run", "-j").json
    assert dry["effect"] == {"server": home, "streams": 1, "consumers": 1}
    done = cluster("srv", "cluster", "evacuate", home, "-f", "-j")
    assert (done.code, done.json) == (0, {"server": home, "evacuated": True, "streams": 1, "consumers": 1})
    assert user("str", "info", "LONE", "-j").json["cluster"]["leader"] != home
