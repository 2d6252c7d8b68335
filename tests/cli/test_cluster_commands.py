"""Every command of `server`, `cluster` and `report`, run once on a cluster of three; a new one needs a row."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from natsctl.cli.commands import every_command
from tests.cli.conftest import WITHIN_S, eventually
from tests.support.commands import Done
from tests.support.servers import NAMES, Cluster

Run = Callable[..., Done]


class Row(NamedTuple):
    """The words that follow a command, texts that it prints, and whether it asks as a user of the system account.

    `code` is how it ends.
    """

    words: str = ""
    prints: tuple[str, ...] = ()
    system: bool = True
    code: int = 0


ALL: Final = Row(prints=NAMES)
OFFLINE: Final = {
    "server run": "starts a server",
    "server generate": "writes a configuration",
    "server repair": "works on a stopped server's folder",
    "server mappings": "asks no server",
    "server passwd": "asks no server",
    "server check credential": "asks no server",
}
"""Commands that a cluster does not make a difference to, with the reason."""
ROWS: Final = {
    "account report connections": Row(prints=("A",), system=False),
    "account report statistics": Row(prints=("n1",), system=False),
    "stream report": Row(prints=("SEEN", "n1", "n2", "n3"), system=False),
    "consumer report": Row("SEEN", ("C",), system=False),
    "server list": Row("3", ("Cluster Overview", *NAMES)),
    "server ping": Row("3", NAMES),
    "server report accounts": Row(prints=("A",)),
    "server report connections": Row(prints=("n1",)),
    "server report leafnodes": Row(),
    "server report routes": ALL,
    "server report gateways": Row(),
    "server report cpu": ALL,
    "server report mem": ALL,
    "server report health": ALL,
    "server report jetstream": Row(
        "--wide", (*NAMES, "RAFT Meta Group", "led from cluster C", "Quorum Sz", "Rescuing")
    ),
    "server report downgrade": Row("0", ("API level",)),
    "server stream-check": Row("--stream SEEN --health --expected 3", (*NAMES, "IN SYNC", "ok")),
    "server consumer-check": Row("--stream SEEN", (*NAMES, "IN SYNC")),
    "server check connection": Row(prints=("OK",)),
    "server check stream": Row("--stream SEEN --peer-expect 3", ("OK",), system=False),
    "server check consumer": Row("--stream SEEN --consumer C", ("OK",), system=False),
    "server check message": Row("--stream SEEN --content x", ("OK",), system=False),
    "server check meta": Row("--expect 4", ("CRITICAL",), code=2),
    "server check request": Row("--subject $JS.API.INFO", ("OK",), system=False),
    "server check jetstream": Row(prints=("OK",), system=False),
    "server check server": Row("--name n2", ("OK",)),
    "server check kv": Row("--bucket KEPT", ("OK",), system=False),
    "server info": Row("n3", ("n3",)),
    "server request accounts": ALL,
    "server request connections": ALL,
    "server request gateways": ALL,
    "server request ipqueue": ALL,
    "server request jetstream-health": ALL,
    "server request jetstream": ALL,
    "server request kick": Row("{cid} n1"),
    "server request leafnodes": ALL,
    "server request profile": Row("heap {folder} --host n1"),
    "server request raft": Row("--group _meta_", (*NAMES, "_meta_")),
    "server request routes": ALL,
    "server request subscriptions": ALL,
    "server request variables": ALL,
    "server config reload": Row("n2 -f"),
    "server cluster balance": Row("--account A -f"),
    # Removed for good, a server comes back only after a new start.
    "server cluster peer-remove": Row("n3 --dry-run", ("n3",)),
    "server cluster rescue": Row(prints=(*NAMES, "Cluster is healthy with a leader")),
    "server account info": Row("A", ("A",)),
    "server watch servers": Row("--count 1", NAMES),
    "server watch jetstream": Row("--count 1", NAMES),
    "server watch accounts": Row("--count 1", ("A",)),
    "server watch api requests": Row("--count 1", system=False),
    "server graph": Row("n1 --count 1", ("n1",)),
    "stream cluster balance": Row("-f", system=False),
    "consumer cluster balance": Row("SEEN -f", system=False),
    "consumer cluster step-down": Row("SEEN C -f", system=False),
    "stream cluster step-down": Row("SEEN -f", system=False),
    "stream cluster peer-remove": Row("MOVED {peer} -f", system=False),
    "stream cluster evacuate": Row("LONE {lone}", ("Stream peers are now: n",), system=False),
    "consumer cluster evacuate": Row("SEEN ONCE {alone}", ("Consumer peers are now: n",), system=False),
    # A move that hangs is in test_stream_cluster.py, one of a whole server in test_server_cluster.py.
    "stream cluster cancel-move": Row("SEEN", ("Stream SEEN is not moving",), system=False, code=1),
    "server cluster evacuate": Row("n3 --dry-run", ("$JS.API.SERVER.EVACUATE", "streams: ")),
    "server cluster step-down": Row("-f"),
    "server account purge": Row("A -f"),
}
"""In the order in which they run: those that change who leads come last."""


def commands() -> set[str]:
    """Return every command of `server`, and those of other nouns that are about a cluster or report."""
    found = set()
    for path, verb in every_command():
        noun, *below = path.split()
        if (noun == "server" or {"cluster", "report"} & set(below)) and not verb.is_group:
            found.add(path)
    return found


def test_every_command_of_clusters_and_reports_has_a_row() -> None:
    assert commands() == ROWS.keys() | OFFLINE.keys()


def _until_done(run: Run, *words: str, code: int = 0) -> Done:
    """Return how a command ended, begun again while a leader is missing."""
    until_s = time.monotonic() + WITHIN_S
    while (done := run(*words)).code in {1, 5} - {code} and time.monotonic() < until_s:
        time.sleep(0.1)
    return done


@pytest.fixture
def filled(three: Cluster, command: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster with a stream, a consumer and a bucket of three copies, and a stream of two that can be moved."""
    monkeypatch.setattr("natsctl.client.system.system_account.KNOWN_QUIET_S", 20.0)
    user = command(three.url())
    for words in (
        "str add SEEN --subjects SEEN --replicas 3 --defaults --if-not-exists",
        "str add MOVED --subjects MOVED --replicas 2 --defaults --if-not-exists",
        "str add LONE --subjects LONE --defaults --if-not-exists",
        "con add SEEN C --pull --replicas 3 --defaults",
        "con add SEEN ONCE --pull --replicas 1 --defaults",
        "kv add KEPT --replicas 3",
        "pub SEEN x -J",
        "con next SEEN C",
    ):
        done = _until_done(user, *words.split())
        assert done.code == 0, (words, done)
    return three


def test_each_command_of_clusters_and_reports_runs_on_three_servers(
    filled: Cluster, command: Callable[[str], Run], tmp_path: Path
) -> None:
    user, system = command(filled.url()), command(filled.url("s:p"))
    with socket.create_connection(("127.0.0.1", filled.ports[0]), timeout=30) as client:
        client.sendall(b'CONNECT {"verbose":false}\r\n')
        values = {"folder": str(tmp_path), "cid": str(json.loads(client.makefile().readline()[5:])["client_id"])}
        wrong = []
        for path, row in ROWS.items():
            if "{peer}" in row.words:
                values["peer"] = _until_done(user, "str", "info", "MOVED", "-j").json["cluster"]["replicas"][0]["name"]
            if "{lone}" in row.words:
                values["lone"] = _until_done(user, "str", "info", "LONE", "-j").json["cluster"]["leader"]
            if "{alone}" in row.words:
                values["alone"] = _until_done(user, "con", "info", "SEEN", "ONCE", "-j").json["cluster"]["leader"]
            words = row.words.format_map(values).split()
            done = _until_done(system if row.system else user, *path.split(), *words, code=row.code)
            missing = [text for text in row.prints if text not in done.out + done.err]
            if done.code != row.code or missing:
                wrong.append((path, done.code, missing, done.out[-500:], done.err[-500:]))
    assert not wrong, "\n".join(map(str, wrong))
    eventually(lambda: user("str", "ls", "-a", "-n").out, lambda out: out == "")  # emptied by the last command
