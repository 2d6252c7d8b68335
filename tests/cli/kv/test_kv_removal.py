"""What takes keys away, and what watchers see of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def bucket(natsctl: Run) -> str:
    natsctl("kv", "add", "B", "--history", "5")
    for key in ("a.1", "a.2", "b"):
        natsctl("kv", "put", "B", key, "old")
        natsctl("kv", "put", "B", key, "new")
    return "B"


def values(natsctl: Run) -> int:
    return int(natsctl("kv", "info", "B", "-j").json["values"])


def test_a_deleted_key_keeps_its_history(natsctl: Run, bucket: str) -> None:
    assert natsctl("kv", "del", bucket, "b").code == 2
    assert natsctl("kv", "del", bucket, "b", "-f", "--revision", "1").code == 4
    assert natsctl("kv", "del", bucket, "b", "-f", "-j").json["revision"] == 7
    assert natsctl("kv", "get", bucket, "b").code == 3
    assert len(natsctl("kv", "history", bucket, "b", "-j").json) == 3
    again = natsctl("kv", "del", bucket, "b", "-f")
    assert (again.code, "kv history B b" in again.err) == (3, True)
    assert natsctl("kv", "del", bucket, "b", "-f", "--missing-ok", "-j").json["missing"] is True
    assert natsctl("kv", "get", bucket, "b", "--revision", "6", "--raw").out == "new"


def test_a_purged_key_leaves_a_marker_and_no_history(natsctl: Run, bucket: str) -> None:
    shown = natsctl("kv", "purge", bucket, "b", "--dry-run", "-j").json
    assert shown["requests"][0]["headers"] == {"KV-Operation": ["PURGE"], "Nats-Rollup": ["sub"]}
    assert shown["effect"] == {"purges": 2}
    refused = natsctl("kv", "purge", bucket, "b")
    assert (refused.code, "no terminal" in refused.err) == (2, True)
    assert natsctl("kv", "purge", bucket, "b", "-f").code == 0
    assert [one["operation"] for one in natsctl("kv", "history", bucket, "b", "-j").json] == ["PURGE"]
    assert natsctl("kv", "purge", bucket, "none", "-f").code == 3
    assert natsctl("kv", "purge", bucket, "none", "-f", "--missing-ok").code == 0


def test_a_filter_or_the_whole_bucket_is_purged_at_once(natsctl: Run, bucket: str) -> None:
    assert natsctl("kv", "purge", bucket, "a.*", "--dry-run", "-j").json["effect"] == {"keys": 2, "purges": 4}
    done = natsctl("kv", "purge", bucket, "a.*", "-f", "-j").json
    assert (done["purged"], done["keys"]) == (4, 2)
    assert natsctl("kv", "ls", bucket).out == "b\n"
    assert natsctl("kv", "purge", bucket, "--all", "-f", "-j").json["purged"] == 2
    assert values(natsctl) == 0
    assert natsctl("kv", "purge", bucket, "a.*", "--revision", "1").code == 2


def test_markers_tell_watchers_of_each_purged_key(natsctl: Run, bucket: str) -> None:
    done = natsctl("kv", "purge", bucket, "a.>", "--markers", "-f", "-j").json
    assert (done["markers"], done["purged"]) == (2, 4)
    seen = natsctl("kv", "watch", bucket, "a.>", "--count", "2", "-j").lines
    assert {(one["key"], one["operation"]) for one in seen} == {("a.1", "PURGE"), ("a.2", "PURGE")}
    assert natsctl("kv", "purge", bucket, "a.1", "--ttl", "1h", "-f").code == 1
    natsctl("kv", "edit", bucket, "--marker-ttl", "1h", "-f")
    assert natsctl("kv", "purge", bucket, "--all", "--ttl", "1h", "-f").code == 0
    assert {one["ttl"] for one in natsctl("kv", "watch", bucket, "--count", "3", "-j").lines} == {3600 * 10**9}


def test_compact_frees_what_deleted_keys_take_up_and_nothing_else(natsctl: Run, bucket: str) -> None:
    natsctl("kv", "del", bucket, "a.1", "-f")
    natsctl("kv", "purge", bucket, "a.2", "-f")
    shown = natsctl("kv", "compact", bucket, "--dry-run", "-j").json
    assert {"filter": "$KV.B.a.1", "seq": 7} in [one["body"] for one in shown["requests"]]
    assert shown["effect"] == {"keys": 2, "markers": 0}
    done = natsctl("kv", "compact", bucket, "-f")
    assert done.err == "Removed 2 messages of 2 deleted keys of bucket B, 2 newer markers stay\n"
    assert values(natsctl) == 4
    done = natsctl("kv", "compact", bucket, "--older-than", "0", "-f", "-j").json
    assert (done["markers"], done["purged"], values(natsctl)) == (2, 2, 2)
    assert natsctl("kv", "compact", bucket, "-f", "-j").json["purged"] == 0
    assert natsctl("kv", "get", bucket, "b", "--raw").out == "new"


def test_watch_shows_values_history_deletes_and_ends_where_it_was_told(natsctl: Run, bucket: str) -> None:
    natsctl("kv", "del", bucket, "b", "-f")
    assert [one["key"] for one in natsctl("kv", "watch", bucket, "--wait", "500ms", "-j").lines] == ["a.1", "a.2", "b"]
    history = natsctl("kv", "watch", bucket, "b", "--history", "--deletes", "--count", "3", "-j").lines
    assert [(one["revision"], one["operation"], one["delta"]) for one in history] == [
        (5, "PUT", 2),
        (6, "PUT", 1),
        (7, "DEL", 0),
    ]
    assert natsctl("kv", "watch", bucket, "b", "--no-deletes", "--wait", "200ms").code == 7
    assert natsctl("kv", "watch", bucket, "--updates", "--wait", "200ms", "-j").code == 7
    text = natsctl("kv", "watch", bucket, "a.1", "--count", "1").out
    assert text.endswith(" PUT B > a.1: new\n")
    assert natsctl("con", "ls", "KV_B", "-n").out == ""


@pytest.mark.parametrize("columns", (30, 60, 200))
def test_events_of_a_watch_fit_the_terminal_and_lose_nothing(
    natsctl: Run, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    value = " ".join(f"word{number}" for number in range(40))
    natsctl("kv", "add", "B")
    natsctl("kv", "put", "B", "k", value)
    shown = natsctl("kv", "watch", "B", "--count", "1").out.splitlines()
    assert max(len(line) for line in shown) <= columns
    assert all(line.startswith("  ") for line in shown[1:])
    assert " ".join(" ".join(shown).split()).endswith(f"PUT B > k: {value}")


def test_an_event_of_a_watch_is_one_line_in_a_pipe_and_has_its_operation_in_colour() -> None:
    from natsctl.cli.render.bucket_pages import event_text

    text = f"[2026-01-01 00:00:00] PUT B > PUT: {'word ' * 200}"
    assert event_text(text, "PUT", None, deleted=False, coloured=False) == text
    coloured = event_text(text, "PUT", 60, deleted=False, coloured=True)
    assert coloured.startswith("[2026-01-01 00:00:00] \x1b[32mPUT\x1b[0m B > PUT: word")
    assert coloured.count("\x1b") == 2
