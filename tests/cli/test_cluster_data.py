"""Backups, key-value buckets and object stores on a cluster of three, in three copies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import eventually
from tests.support.servers import NAMES, Cluster

Run = Callable[..., Any]


def until_led(run: Run, *words: str) -> Any:
    """Run a command until it succeeds: a leader may not be elected yet, or a server not know the asset."""
    return eventually(lambda: run(*words), lambda done: done.code == 0)


@pytest.fixture
def replicated(three: Cluster, command: Callable[[str], Run]) -> Run:
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
