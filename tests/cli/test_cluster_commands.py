"""Commands on a cluster of three: every one of `server`, `cluster` and `report`, and data in three copies."""

import json
import socket
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from natsctl.cli.framework.nouns import every_command
from tests.cli.conftest import WITHIN_S, eventually, groups_of
from tests.support.commands import Done, Run
from tests.support.servers import NAMES, Cluster


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
def filled(three: Cluster, command: Run, monkeypatch: pytest.MonkeyPatch) -> Cluster:
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
    filled: Cluster, command: Run, tmp_path: Path
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


def until_led(run: Run, *words: str) -> Any:
    """Run a command until it succeeds: a leader may not be elected yet, or a server not know the asset."""
    return eventually(lambda: run(*words), lambda done: done.code == 0)


@pytest.fixture
def replicated(three: Cluster, command: Run) -> Run:
    """Runs a command line on the cluster, which has a stream of three copies."""
    run = command(three.url())
    until_led(run, "str", "add", "SAVED", "--subjects", "SAVED.*", "--replicas", "3", "--if-not-exists")
    return run


def copies(run: Run, stream: str) -> set[str]:
    cluster = run("str", "info", stream, "-j").json["cluster"]
    return {cluster["leader"], *(one["name"] for one in cluster["replicas"])}


def test_a_stream_of_three_copies_is_saved_replaced_and_copied(replicated: Run, tmp_path: Path) -> None:
    assert replicated("pub", "SAVED.a", "{{Count}}", "--count", "200", "-q", "-J").code == 0
    assert replicated("con", "add", "SAVED", "C", "--pull", "--replicas", "3", "--defaults").code == 0
    assert replicated("con", "next", "SAVED", "C", "--count", "50", "--raw").code == 0
    saved = replicated("str", "backup", "SAVED", str(tmp_path / "SAVED"), "-j")
    assert (saved.code, saved.json["messages"], saved.json["consumers"]) == (0, 200, 1)

    assert replicated("str", "purge", "SAVED", "-f").code == 0
    back = replicated("str", "restore", str(tmp_path / "SAVED"), "--on-existing", "replace", "-f", "-j")
    assert (back.code, back.json["state"]["messages"], copies(replicated, "SAVED")) == (0, 200, set(NAMES)), back.err
    # The server that saves it may not yet have heard of the last acks, which another one leads.
    assert 1 <= int(until_led(replicated, "con", "next", "SAVED", "C", "--raw").out) <= 51

    other = replicated("str", "restore", "T", str(tmp_path / "SAVED"), "--subjects", "T.*", "--replicas", "1", "-j")
    assert (other.code, other.json["config"]["num_replicas"]) == (0, 1), other.err
    # The server asked need not know the consumer yet.
    assert until_led(replicated, "con", "info", "T", "C", "-j").json["config"]["num_replicas"] == 1
    assert replicated("str", "rm", "T", "-f").code == 0


def test_a_restore_that_a_cluster_refuses_leaves_no_stream(replicated: Run, tmp_path: Path) -> None:
    assert replicated("con", "add", "SAVED", "C", "--pull", "--replicas", "3", "--defaults").code == 0
    saved = tmp_path / "SAVED"
    assert replicated("str", "backup", "SAVED", str(saved)).code == 0
    meta = json.loads((saved / "backup.json").read_text())
    meta["config"] |= {"num_replicas": 1, "name": "LESS", "subjects": ["LESS.*"]}
    (saved / "backup.json").write_text(json.dumps(meta))
    (saved / "manifest.json").unlink()
    refused = replicated("str", "restore", str(saved), "-j")
    assert (refused.code, "replica count exceeds" in refused.error["description"]) == (1, True)
    assert replicated("str", "info", "LESS").code == 3


def test_an_account_is_saved_and_comes_back_in_three_copies(replicated: Run, tmp_path: Path) -> None:
    assert replicated("kv", "add", "B", "--replicas", "3").code == 0
    assert replicated("kv", "put", "B", "k", "kept").code == 0
    assert replicated("account", "backup", str(tmp_path / "all"), "-f", "-j").code == 0
    for name in replicated("str", "ls", "-a", "-n").out.split():
        assert replicated("str", "rm", name, "-f").code == 0
    back = replicated("account", "restore", str(tmp_path / "all"), "-j")
    assert back.code == 0, back.out
    assert replicated("kv", "get", "B", "k", "--raw").out == "kept"
    assert copies(replicated, "KV_B") == set(NAMES)
    assert replicated("kv", "del", "B", "--all", "-f").code == 0


def test_keys_and_objects_are_written_read_and_removed(replicated: Run, tmp_path: Path) -> None:
    assert replicated("kv", "add", "K", "--replicas", "3", "--history", "3").code == 0
    for value in ("1", "2"):
        assert replicated("kv", "put", "K", "a.b", value).code == 0
    assert replicated("kv", "create", "K", "a.b", "3").code == 4
    assert replicated("kv", "update", "K", "a.b", "3", "2").code == 0
    assert replicated("kv", "get", "K", "a.b", "--raw").out == "3"
    assert [one["value"] for one in replicated("kv", "history", "K", "a.b", "-j").json] == ["1", "2", "3"]
    assert replicated("kv", "ls", "K", "-n").out == "a.b\n"

    body = bytes(range(256)) * 2000
    (tmp_path / "sent").write_bytes(body)
    assert replicated("object", "add", "O", "--replicas", "3").code == 0
    assert replicated("object", "put", "O", str(tmp_path / "sent"), "--name", "file", "-f").code == 0
    assert replicated("object", "get", "O", "file", "--output", str(tmp_path / "got"), "-f").code == 0
    assert (tmp_path / "got").read_bytes() == body
    assert replicated("object", "del", "O", "file", "-f").code == 0
    assert replicated("object", "ls", "O", "-n").out == ""
    assert copies(replicated, "KV_K") == copies(replicated, "OBJ_O") == set(NAMES)
