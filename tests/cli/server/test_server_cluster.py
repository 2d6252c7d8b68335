"""`server` on a cluster: copies that differ, who leads and belongs to it, how connections are spread."""

import json
import socket
from typing import Any

import pytest

from natsctl.client.system.cluster import ClusterMember
from tests.cli.conftest import eventually
from tests.support.commands import Run
from tests.support.servers import Cluster

GROUP = {"name": "C", "leader": "n1"}


def _answer(
    server: str, state: dict[str, int], *consumers: dict[str, Any], cluster: dict[str, Any] | None = None
) -> dict[str, Any]:
    stream = {
        "name": "ORDERS", "state": state, "cluster": GROUP if cluster is None else cluster,
        "stream_raft_group": "S-R3F-1", "consumer_detail": [{"name": "C", **one} for one in consumers],
        "consumer_raft_groups": [{"name": "C", "raft_group": "C-R3F-1"}],
    }  # fmt: skip
    account = {"name": "A", "id": "AID", "stream_detail": [stream]}
    return {"server": {"name": server, "id": server.upper()}, "data": {"account_details": [account]}}


def _state(messages: int, size: int, last: int, deleted: int = 0) -> dict[str, int]:
    counts = {"messages": messages, "bytes": size, "num_deleted": deleted, "num_subjects": 50, "consumer_count": 1}
    return {**counts, "first_seq": 1, "last_seq": last}


def _consumer(delivered: int, floor: int, **more: Any) -> dict[str, Any]:
    place = {"delivered": {"stream_seq": delivered, "consumer_seq": delivered}}
    return {**place, "ack_floor": {"stream_seq": floor, "consumer_seq": floor}, "cluster": GROUP, **more}


def _fed(*answers: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, answers)).encode()


def test_copies_of_a_stream_are_compared_with_the_leader(offline: Run) -> None:
    fed = _fed(
        _answer("n1", _state(1000, 10_000, 1000, 10)),
        _answer("n2", _state(990, 9_800, 990, 5)),
        _answer("n3", _state(1000, 10_000, 1000)),
    )
    done = offline("server", "stream-check", "--stdin", "--unsynced", stdin=fed)
    assert (done.code, done.err) == (0, "Servers: 3\nStreams: 3\n")
    lines = {name: next(line for line in done.out.splitlines() if f"│ {name}" in line) for name in ("n1*", "n2", "n3")}
    assert "%" not in lines["n1*"]
    assert "│      1000 │      10000 │" in lines["n1*"]  # to the right
    assert all(text in lines["n2"] for text in ("990 (-1%)", "9800 (-2%)", "5 (-50%)", "UNSYNCED"))
    assert "0 (-100%)" in lines["n3"]
    table = offline("server", "stream-check", "--stdin", "--csv", "--stream", "ORDERS", stdin=fed).out.splitlines()
    assert table[0].startswith("Stream Replica,Raft,Account,Account ID,Node,Messages,")
    assert table[2] == "ORDERS,S-R3F-1,A,AID,n2,990,9800,50,5,1,1,990,UNSYNCED,n1,"
    short = offline("server", "stream-check", "--stdin", "--expected", "5", "--stream", "OTHER", "-j", stdin=fed)
    assert (short.json, short.err) == ([], "")


def test_servers_that_do_not_answer_are_named_and_the_others_compared(offline: Run) -> None:
    group = {**GROUP, "replicas": [{"name": "n2", "current": True}, {"name": "n3", "offline": True}]}
    refusing = {"server": {"name": "n4", "id": "N4"}, "error": {"code": 503, "description": "no JetStream"}}
    fed = _fed(_answer("n1", _state(10, 100, 10), cluster=group), _answer("n2", _state(10, 100, 10)), refusing)
    done = offline("server", "stream-check", "--stdin", "--expected", "4", stdin=fed)
    assert done.code == 0
    assert done.out.count("IN SYNC") == 2
    assert "Warning: n4: no JetStream" in done.err
    assert "Warning: expected 4 responses got 2" in done.err
    assert "Warning: no answer of n3, but others name it as leader or peer" in done.err


@pytest.mark.parametrize(
    ("second", "status"),
    [
        ({"name": "C", "leader": ""}, "LEADERLESS"),
        ({"name": "C", "leader": "n2"}, "MULTILEADER"),
        ({"name": "C", "leader": "n1", "replicas": [{"name": "n1", "current": True}]}, "IN SYNC"),
    ],
)
def test_groups_that_disagree_on_their_leader_are_found(offline: Run, second: dict[str, Any], status: str) -> None:
    state = _state(5, 500, 5)
    fed = _fed(_answer("n1", state), _answer("n2", state, cluster=second))
    rows = offline("server", "stream-check", "--stdin", "-j", stdin=fed).json
    assert [(one["server"], one["status"]) for one in rows][1] == ("n2", status)


def test_copies_of_a_consumer_are_compared_with_the_leader(offline: Run) -> None:
    state = _state(1000, 10_000, 1000)
    fed = _fed(
        _answer("n1", state, _consumer(500, 0, num_pending=500)),
        _answer("n2", state, _consumer(490, 10)),
        _answer("n3", _state(400, 4_000, 400), _consumer(500, 0)),
    )
    done = offline("server", "consumer-check", "--stdin", "--unsynced", stdin=fed)
    assert done.err == "Servers: 3\nConsumers: 3\n"
    assert all(text in done.out for text in ("490 (-2%)", "10 (+100%)", "(ap:0, nr:0, nw:0, np:500)", "n1*"))
    rows = {
        one["server"]: one["status"] for one in offline("server", "consumer-check", "--stdin", "-j", stdin=fed).json
    }
    assert rows["n2"] == "UNSYNCED:DELIVERED,UNSYNCED:ACK_FLOOR"
    assert rows["n1"].endswith(",EMPTY / INTERSECT")
    assert "UNSYNCED:DELIVERED_AHEAD_OF_STREAM_SEQ" in rows["n3"]


@pytest.mark.parametrize(
    ("fed", "flags", "text"),
    [
        (b"", (), "there is no answer of a server on stdin"),
        (b"[1]", (), "expected answers of servers"),
        (b"{", (), "--stdin: "),
        (b"{}", ("--health",), "--health asks the servers"),
    ],
)
def test_what_is_no_answer_is_refused(offline: Run, fed: bytes, flags: tuple[str, ...], text: str) -> None:
    done = offline("server", "stream-check", "--stdin", *flags, stdin=fed)
    assert (done.code, text in done.err) == (2, True), done


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

    async def members(manager: Any) -> list[ClusterMember]:
        return [ClusterMember(f"n{at}", "C", "", 5, 5, 2, 3, rescue=False) for at in (1, 2)]

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


def test_a_server_is_evacuated(cluster: Run, command: Run, three: Cluster) -> None:
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
