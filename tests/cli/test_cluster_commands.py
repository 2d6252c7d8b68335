"""Every command of `server`, `cluster` and `report`, once on a cluster of three; cluster.txt has a row for each."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from natsctl.cli.commands import every_command
from tests.cli.conftest import WITHIN_S, eventually, groups_of
from tests.support.commands import Done
from tests.support.servers import Cluster

Run = Callable[..., Done]


class Row(NamedTuple):
    """The words that follow a command, texts that it prints, and whether it asks as a user of the system account.

    `code` is how it ends.
    """

    words: str = ""
    prints: tuple[str, ...] = ()
    system: bool = True
    code: int = 0


OFFLINE: Final = {
    "server run": "starts a server",
    "server generate": "writes a configuration",
    "server repair": "works on a stopped server's folder",
    "server mappings": "asks no server",
    "server passwd": "asks no server",
    "server check credential": "asks no server",
}
"""Commands that a cluster does not make a difference to, with the reason."""


def rows() -> dict[str, Row]:
    """The commands in the order in which they run: those that change who leads come last."""
    found = {}
    for line in groups_of("cluster.txt")["rows"]:
        path, words, prints, ending = line.split("  →  ")
        user, _, code = ending.partition(" ")
        texts = () if prints == "-" else tuple(prints.split(" | "))
        found[path] = Row("" if words == "-" else words, texts, user == "system", int(code or 0))
    return found


ROWS: Final = rows()


def commands() -> set[str]:
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
