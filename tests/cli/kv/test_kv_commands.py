"""Buckets and keys as a script makes, reads, changes, watches and removes them."""

import base64
import re
from typing import Any

import pytest

from tests.support.commands import Run

DAY_NS = 86400 * 10**9


def config_of(natsctl: Run, bucket: str) -> dict[str, Any]:
    config: dict[str, Any] = natsctl("kv", "info", bucket, "-j").json["stream_info"]["config"]
    return config


def test_every_flag_of_add_reaches_the_stream(natsctl: Run) -> None:
    done = natsctl(
        *("kv", "new", "B", "--description", "d", "--history", "7", "--storage", "memory", "--ttl", "1d"),
        *("--marker-ttl", "1h", "--max-value-size", "1KB", "--max-bucket-size", "5GiB", "--compress"),
        *("--metadata", "team=a", "--republish-source", ">", "--republish-destination", "copy.>"),
        *("--republish-headers", "--replicas", "1", "-j"),
    )
    assert done.code == 0, done.err
    made = done.json
    assert (made["bucket"], made["history"], made["ttl"], made["marker_ttl"]) == ("B", 7, DAY_NS, 3600 * 10**9)
    assert (made["max_value_size"], made["max_bucket_size"]) == (1024, 5 * 1024**3)
    assert (made["storage"], made["compressed"], made["metadata"]) == ("memory", True, {"team": "a"})
    config = made["stream_info"]["config"]
    assert config["subjects"] == ["$KV.B.>"]
    assert config["republish"] == {"src": ">", "dest": "copy.>", "headers_only": True}
    assert (config["discard"], config["allow_rollup_hdrs"], config["deny_delete"]) == ("new", True, True)
    assert (config["allow_direct"], config["allow_msg_ttl"], config["duplicate_window"]) == (True, True, 120 * 10**9)


def test_a_short_ttl_shortens_the_window_of_duplicates(natsctl: Run) -> None:
    made = natsctl("kv", "add", "B", "--ttl", "30s", "-j").json
    assert made["stream_info"]["config"]["duplicate_window"] == 30 * 10**9
    assert natsctl("kv", "edit", "B", "--ttl", "0").code == 0
    config = config_of(natsctl, "B")
    assert (config["max_age"], config["duplicate_window"]) == (0, 120 * 10**9)


def test_adding_again_is_success_and_otherwise_a_conflict(natsctl: Run) -> None:
    assert natsctl("kv", "add", "B").err == "Bucket B was created\n"
    assert natsctl("kv", "add", "B").code == 0
    other = natsctl("kv", "add", "B", "--history", "9", "-j")
    assert (other.code, other.error["err_code"], other.out) == (4, 10058, "")
    assert "kv edit B" in other.error["hint"]
    left = natsctl("kv", "add", "B", "--history", "9", "--if-not-exists", "-j")
    assert (left.code, left.json["history"]) == (0, 1)


def test_edit_changes_what_was_asked_and_nothing_else(natsctl: Run) -> None:
    natsctl("kv", "add", "B", "--description", "d", "--metadata", "a=b", "--max-value-size", "9")
    before = config_of(natsctl, "B")
    differs = natsctl("kv", "edit", "B", "--history", "3", "--dry-run")
    assert (differs.code, differs.out.splitlines()[0]) == (10, "  max_msgs_per_subject: 1 → 3")
    done = natsctl("kv", "edit", "B", "--history", "3")
    assert done.err == ""
    assert "History Kept: 3\n" in done.out and "Backing Store Kind: JetStream\n" in done.out
    assert config_of(natsctl, "B") == {**before, "max_msgs_per_subject": 3}
    natsctl("kv", "edit", "B", "--metadata", "c=d", "--unset", "description", "-f")
    after = config_of(natsctl, "B")
    assert (after["metadata"]["a"], after["metadata"]["c"], "description" in after) == ("b", "d", False)
    assert natsctl("kv", "edit", "B", "--history", "3").err == "No difference in configuration\n"
    assert natsctl("kv", "edit", "B", "--unset", "nonsense").code == 2


def test_keys_of_other_buckets_are_taken_in_under_the_own_name(natsctl: Run) -> None:
    natsctl("kv", "add", "A")
    natsctl("kv", "add", "C")
    natsctl("kv", "put", "A", "from.a", "1")
    natsctl("kv", "put", "C", "from.c", "2")
    natsctl("kv", "add", "B", "--source", "A")
    natsctl("kv", "edit", "B", "--source", "C")
    watched = natsctl("kv", "watch", "B", "--count", "2", "--wait", "60s", "-j").lines
    assert {(one["key"], one["value"]) for one in watched} == {("from.a", "1"), ("from.c", "2")}
    assert natsctl("kv", "info", "B", "-j").json["sources"] == ["A", "C"]
    assert natsctl("kv", "get", "B", "from.c", "--raw").out == "2"
    page = natsctl("kv", "info", "B").out
    assert "Source Bucket: A" in page
    assert "Source Bucket: C" in page


def test_a_mirror_reads_here_and_writes_at_its_origin(natsctl: Run) -> None:
    natsctl("kv", "add", "A")
    natsctl("kv", "put", "A", "k", "1")
    natsctl("kv", "add", "M", "--mirror", "A")
    assert natsctl("kv", "watch", "M", "--count", "1", "--wait", "60s", "-j").json["key"] == "k"
    natsctl("kv", "put", "M", "k", "2")
    assert natsctl("kv", "get", "A", "k", "--raw").out == "2"
    assert natsctl("kv", "watch", "M", "--count", "1", "--revision", "2", "--wait", "60s", "-j").json["value"] == "2"
    assert (natsctl("kv", "get", "M", "k", "-r").out, natsctl("kv", "ls", "M").out) == ("2", "k\n")
    assert natsctl("kv", "ls", "-n").out == "A\nM\n"
    assert {one["bucket"]: one["mirror"] for one in natsctl("kv", "ls", "-j").json} == {"A": None, "M": "A"}
    promoted = natsctl("kv", "edit", "M", "--no-mirror", "-f")
    assert (promoted.code, "bucket A, and this bucket cannot read them" in promoted.err) == (0, True)
    natsctl("kv", "put", "M", "own", "3")
    assert natsctl("kv", "ls", "M").out == "own\n"
    natsctl("kv", "add", "N", "--mirror", "A")
    assert natsctl("kv", "edit", "N", "--unset", "mirror").code == 0
    assert config_of(natsctl, "N")["subjects"] == ["$KV.N.>"]


def test_lists_are_tables_names_or_whole_objects(natsctl: Run) -> None:
    assert natsctl("kv", "ls").out == "No Key-Value buckets defined\n"
    assert natsctl("kv", "ls", "-j").json == []
    natsctl("str", "add", "KVX", "--subjects", "$KV.KVX.>")
    natsctl("obj", "add", "FILES")
    natsctl("kv", "add", "B", "--history", "2")
    assert natsctl("kv", "ls", "-n").out == "B\n"
    assert natsctl("kv", "ls", "-n", "-j").json == ["B"]
    for number in range(3):
        natsctl("kv", "put", "B", f"a.{number}", str(number))
    natsctl("kv", "put", "B", "b", "x")
    natsctl("kv", "del", "B", "a.1", "-f")
    assert natsctl("kv", "ls", "B").out == "a.0\na.2\nb\n"
    assert natsctl("kv", "ls", "B", "a.*", "-n", "-j").json == ["a.0", "a.2"]
    assert [(one["key"], one["length"], "value" in one) for one in natsctl("kv", "ls", "B", "a.>", "-j").json] == [
        ("a.0", 1, False),
        ("a.2", 1, False),
    ]
    assert natsctl("kv", "ls", "B", "b", "--display-value", "-j").json[0]["value"] == "x"
    assert "Contents for bucket B" in natsctl("kv", "ls", "B", "-v").out
    empty = natsctl("kv", "ls", "B", "c.*")
    assert (empty.code, empty.out) == (0, "")
    assert "match c.*" in empty.err


def test_a_removed_bucket_is_gone_with_what_it_held(natsctl: Run) -> None:
    natsctl("kv", "add", "B")
    natsctl("kv", "put", "B", "k", "x")
    assert natsctl("kv", "del", "B", "--all").code == 2
    assert natsctl("kv", "rm", "B", "--all", "--dry-run", "-j").json["effect"]["values"] == 1
    assert natsctl("kv", "rm", "B", "--all", "-f", "-j").json["success"] is True
    gone = natsctl("kv", "rm", "B", "--all", "-f")
    assert (gone.code, gone.out) == (3, "")
    missing = natsctl("kv", "rm", "B", "--all", "-f", "--missing-ok", "-j").json
    assert missing == {"bucket": "B", "success": True, "missing": True}


@pytest.fixture
def bucket(natsctl: Run) -> str:
    assert natsctl("kv", "add", "B", "--history", "5", "-j").code == 0
    return "B"


def test_a_value_comes_from_the_words_or_stdin(natsctl: Run, bucket: str) -> None:
    done = natsctl("kv", "put", bucket, "a.b", "text")
    assert (done.code, done.out, done.err) == (0, "text\n", "")
    natsctl("kv", "put", bucket, "f", stdin=b"\x00\xffbytes")
    natsctl("kv", "put", bucket, "s", "", stdin=b"piped\n")
    natsctl("kv", "put", bucket, "empty", "")
    natsctl("kv", "put", bucket, "piped", "-", stdin=b"by a dash\n")
    natsctl("kv", "put", bucket, "minus", "--", "-", stdin=b"not read")
    natsctl("kv", "put", bucket, "at", "@/etc/hostname")
    assert natsctl("kv", "get", bucket, "a.b", "--raw").out == "text"
    assert natsctl("kv", "get", bucket, "s", "--raw").out == "piped\n"
    assert natsctl("kv", "get", bucket, "empty", "--raw").out == ""
    assert natsctl("kv", "get", bucket, "piped", "--raw").out == "by a dash\n"
    assert natsctl("kv", "get", bucket, "minus", "--raw").out == "-"
    assert natsctl("kv", "get", bucket, "at", "--raw").out == "@/etc/hostname"
    assert natsctl("kv", "get", bucket, "f", "-j").json["value_base64"] == base64.b64encode(b"\x00\xffbytes").decode()


def test_get_has_all_on_stdout_and_raw_the_value_alone(natsctl: Run, bucket: str) -> None:
    natsctl("kv", "put", bucket, "k", "one")
    natsctl("kv", "put", bucket, "k", "two")
    done = natsctl("kv", "get", bucket, "k")
    assert re.fullmatch(r"B > k revision: 2 created @ [^\n]+\n\ntwo\n\n", done.out)
    assert done.err == ""
    assert natsctl("kv", "get", bucket, "k", "--revision", "1", "--raw").out == "one"
    entry = natsctl("kv", "get", bucket, "k", "-j").json
    assert entry.pop("created").endswith("Z")
    said = {"operation": "PUT", "length": 3, "delta": 0, "value": "two"}
    assert entry == {"bucket": "B", "key": "k", "revision": 2, **said}


def test_what_is_not_there_is_told_with_what_was_meant(natsctl: Run, bucket: str) -> None:
    natsctl("kv", "put", bucket, "db.host", "x")
    done = natsctl("kv", "get", bucket, "db.hots")
    assert (done.code, done.out) == (3, "")
    assert 'did you mean "db.host"?' in done.err
    assert natsctl("kv", "get", bucket, "db.host", "--revision", "9").code == 3
    natsctl("kv", "put", bucket, "other", "y")
    other = natsctl("kv", "get", bucket, "db.host", "--revision", "2", "-j")
    assert (other.code, other.error["subject"]) == (3, "$KV.B.db.host")
    wrong = natsctl("kv", "get", "BB", "db.host", "-j")
    assert (wrong.code, wrong.error["err_code"]) == (3, 10059)
    assert wrong.error["hint"] == "natsctl kv ls shows the buckets there are"


@pytest.mark.parametrize("key", ["a..b", ".a", "a.", "a b", "ä", "a*", ">"])
def test_what_can_be_no_key_is_refused_before_anything_is_sent(natsctl: Run, bucket: str, key: str) -> None:
    assert natsctl("kv", "put", bucket, key, "x").code == 2
    assert natsctl("kv", "get", bucket, key).code == 2
    assert natsctl("kv", "ls", bucket, "-j").json == []


def test_create_sets_only_what_has_no_value(natsctl: Run, bucket: str) -> None:
    made = natsctl("kv", "create", bucket, "k", "one", "-j").json
    assert (made["revision"], made["key"], made["stream"]) == (1, "k", "KV_B")
    again = natsctl("kv", "create", bucket, "k", "two", "-j")
    assert (again.code, again.error["err_code"], again.out) == (4, 10071, "")
    assert "revision 1" in again.error["hint"]
    natsctl("kv", "del", bucket, "k", "-f")
    assert natsctl("kv", "create", bucket, "k", "three", "-j").json["revision"] == 3


def test_update_wants_the_revision_that_the_key_is_at(natsctl: Run, bucket: str) -> None:
    natsctl("kv", "put", bucket, "k", "one")
    assert natsctl("kv", "update", bucket, "k", "two", "1").code == 0
    late = natsctl("kv", "update", bucket, "k", "three", "1")
    assert (late.code, late.out) == (4, "")
    assert "it is at revision 2 now" in late.err
    assert natsctl("kv", "get", bucket, "k", "--raw").out == "two"
    assert natsctl("kv", "update", bucket, "new", "x", "0").code == 0
    unset = natsctl("kv", "update", bucket, "unset", "x", "5")
    assert (unset.code, "was never set" in unset.err) == (4, True)
    assert "REVISION" in natsctl("kv", "update", bucket, "k", "four").err


def test_a_key_with_a_time_to_live_needs_a_bucket_with_markers(natsctl: Run, bucket: str) -> None:
    refused = natsctl("kv", "create", bucket, "k", "x", "--ttl", "1h")
    assert (refused.code, "--marker-ttl" in refused.err) == (1, True)
    natsctl("kv", "edit", bucket, "--marker-ttl", "1m")
    assert natsctl("kv", "create", bucket, "k", "x", "--ttl", "1h").code == 0
    assert natsctl("kv", "get", bucket, "k", "-j").json["ttl"] == 3600 * 10**9
    assert "time to live: 1h0m0s" in natsctl("kv", "get", bucket, "k").out
    assert "it lives 1m0s" in natsctl("kv", "create", bucket, "short", "x", "--ttl", "1s").err
    assert natsctl("kv", "create", bucket, "x", "x", "--ttl", "1ms").code == 2


def test_history_and_revert(natsctl: Run, bucket: str) -> None:
    for value in ("one", "two"):
        natsctl("kv", "put", bucket, "k", value)
    natsctl("kv", "del", bucket, "k", "-f")
    found = natsctl("kv", "history", bucket, "k", "-j").json
    assert [(one["revision"], one["operation"], one.get("value")) for one in found] == [
        (1, "PUT", "one"),
        (2, "PUT", "two"),
        (3, "DEL", None),
    ]
    table = natsctl("kv", "history", bucket, "k").out
    assert [row.split("│")[3].strip() for row in table.splitlines() if row.startswith("│ k")] == ["PUT", "PUT", "DEL"]
    asked = natsctl("kv", "revert", bucket, "k", "1")
    assert (asked.code, "--force" in asked.err) == (2, True)
    assert natsctl("kv", "revert", bucket, "k", "1", "-f").code == 0
    assert natsctl("kv", "get", bucket, "k", "--raw").out == "one"
    assert natsctl("kv", "revert", bucket, "k", "4", "-f").code == 2
    assert natsctl("kv", "revert", bucket, "k", "3", "-f").code == 3
    assert natsctl("kv", "history", bucket, "none").code == 3


@pytest.mark.ours("what is shown and asked on this side")
def test_values_and_keys_drive_no_terminal(natsctl: Run, bucket: str) -> None:
    natsctl("kv", "put", bucket, "k", "\x1b[2J[red]x")
    assert "\\x1b[2J[red]x" in natsctl("kv", "history", bucket, "k").out
    assert "\x1b" not in natsctl("kv", "ls", bucket, "-v", "--display-value").out
    assert "\x1b" not in natsctl("kv", "watch", bucket, "--count", "1").out


def test_a_dry_run_shows_the_message_and_sends_none(natsctl: Run, bucket: str) -> None:
    for words in (("put", "k", "x"), ("create", "k", "x"), ("update", "k", "x", "0")):
        done = natsctl("kv", words[0], bucket, *words[1:], "--dry-run", "-j").json
        assert done["requests"][0]["subject"] == "$KV.B.k"
        assert base64.b64decode(done["requests"][0]["data"]) == b"x"
    assert natsctl("kv", "ls", bucket, "-j").json == []


@pytest.fixture
def full(natsctl: Run) -> str:
    natsctl("kv", "add", "B", "--history", "5")
    for key in ("a.1", "a.2", "b"):
        natsctl("kv", "put", "B", key, "old")
        natsctl("kv", "put", "B", key, "new")
    return "B"


def values(natsctl: Run) -> int:
    return int(natsctl("kv", "info", "B", "-j").json["values"])


def test_a_deleted_key_keeps_its_history(natsctl: Run, full: str) -> None:
    assert natsctl("kv", "del", full, "b").code == 2
    assert natsctl("kv", "del", full, "b", "-f", "--revision", "1").code == 4
    assert natsctl("kv", "del", full, "b", "-f", "-j").json["revision"] == 7
    assert natsctl("kv", "get", full, "b").code == 3
    assert len(natsctl("kv", "history", full, "b", "-j").json) == 3
    again = natsctl("kv", "del", full, "b", "-f")
    assert (again.code, "kv history B b" in again.err) == (3, True)
    assert natsctl("kv", "del", full, "b", "-f", "--missing-ok", "-j").json["missing"] is True
    assert natsctl("kv", "get", full, "b", "--revision", "6", "--raw").out == "new"


def test_a_purged_key_leaves_a_marker_and_no_history(natsctl: Run, full: str) -> None:
    shown = natsctl("kv", "purge", full, "b", "--dry-run", "-j").json
    assert shown["requests"][0]["headers"] == {"KV-Operation": ["PURGE"], "Nats-Rollup": ["sub"]}
    assert shown["effect"] == {"purges": 2}
    refused = natsctl("kv", "purge", full, "b")
    assert (refused.code, "no terminal" in refused.err) == (2, True)
    assert natsctl("kv", "purge", full, "b", "-f").code == 0
    assert [one["operation"] for one in natsctl("kv", "history", full, "b", "-j").json] == ["PURGE"]
    assert natsctl("kv", "purge", full, "none", "-f").code == 3
    assert natsctl("kv", "purge", full, "none", "-f", "--missing-ok").code == 0


def test_a_filter_or_the_whole_bucket_is_purged_at_once(natsctl: Run, full: str) -> None:
    assert natsctl("kv", "purge", full, "a.*", "--dry-run", "-j").json["effect"] == {"keys": 2, "purges": 4}
    done = natsctl("kv", "purge", full, "a.*", "-f", "-j").json
    assert (done["purged"], done["keys"]) == (4, 2)
    assert natsctl("kv", "ls", full).out == "b\n"
    assert natsctl("kv", "purge", full, "--all", "-f", "-j").json["purged"] == 2
    assert values(natsctl) == 0
    assert natsctl("kv", "purge", full, "a.*", "--revision", "1").code == 2


def test_markers_tell_watchers_of_each_purged_key(natsctl: Run, full: str) -> None:
    done = natsctl("kv", "purge", full, "a.>", "--markers", "-f", "-j").json
    assert (done["markers"], done["purged"]) == (2, 4)
    seen = natsctl("kv", "watch", full, "a.>", "--count", "2", "-j").lines
    assert {(one["key"], one["operation"]) for one in seen} == {("a.1", "PURGE"), ("a.2", "PURGE")}
    assert natsctl("kv", "purge", full, "a.1", "--ttl", "1h", "-f").code == 1
    natsctl("kv", "edit", full, "--marker-ttl", "1h", "-f")
    assert natsctl("kv", "purge", full, "--all", "--ttl", "1h", "-f").code == 0
    assert {one["ttl"] for one in natsctl("kv", "watch", full, "--count", "3", "-j").lines} == {3600 * 10**9}


def test_compact_frees_what_deleted_keys_take_up_and_nothing_else(natsctl: Run, full: str) -> None:
    natsctl("kv", "del", full, "a.1", "-f")
    natsctl("kv", "purge", full, "a.2", "-f")
    shown = natsctl("kv", "compact", full, "--dry-run", "-j").json
    assert {"filter": "$KV.B.a.1", "seq": 7} in [one["body"] for one in shown["requests"]]
    assert shown["effect"] == {"keys": 2, "markers": 0}
    done = natsctl("kv", "compact", full, "-f")
    assert done.err == "Removed 2 messages of 2 deleted keys of bucket B, 2 newer markers stay\n"
    assert values(natsctl) == 4
    done = natsctl("kv", "compact", full, "--older-than", "0", "-f", "-j").json
    assert (done["markers"], done["purged"], values(natsctl)) == (2, 2, 2)
    assert natsctl("kv", "compact", full, "-f", "-j").json["purged"] == 0
    assert natsctl("kv", "get", full, "b", "--raw").out == "new"


def test_watch_shows_values_history_deletes_and_ends_where_it_was_told(natsctl: Run, full: str) -> None:
    natsctl("kv", "del", full, "b", "-f")
    values_now = natsctl("kv", "watch", full, "--wait", "1s", "-j").lines
    assert [one["key"] for one in values_now] == ["a.1", "a.2", "b"]
    history = natsctl("kv", "watch", full, "b", "--history", "--deletes", "--count", "3", "-j").lines
    assert [(one["revision"], one["operation"], one["delta"]) for one in history] == [
        (5, "PUT", 2),
        (6, "PUT", 1),
        (7, "DEL", 0),
    ]
    assert natsctl("kv", "watch", full, "b", "--no-deletes", "--wait", "200ms").code == 7
    assert natsctl("kv", "watch", full, "--updates", "--wait", "200ms", "-j").code == 7
    text = natsctl("kv", "watch", full, "a.1", "--count", "1").out
    assert text.endswith(" PUT B > a.1: new\n")
    assert natsctl("con", "ls", "KV_B", "-n").out == ""


@pytest.mark.ours("what is shown and asked on this side")
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
