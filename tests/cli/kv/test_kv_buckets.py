"""Buckets as a script makes, changes, lists and removes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]
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
    natsctl("kv", "edit", "B", "--ttl", "0")
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
    assert (done.err, "History Kept: 3\n" in done.out, "Backing Store Kind: JetStream\n" in done.out) == (
        "",
        True,
        True,
    )
    assert config_of(natsctl, "B") == {**before, "max_msgs_per_subject": 3}
    natsctl("kv", "edit", "B", "--metadata", "c=d", "--unset", "description", "-f")
    after = config_of(natsctl, "B")
    assert (after["metadata"]["a"], after["metadata"]["c"], "description" in after) == ("b", "d", False)
    assert natsctl("kv", "edit", "B", "--history", "3").err == "No difference in configuration\n"
    assert natsctl("kv", "edit", "B", "--unset", "nonsense").code == 2


def test_a_dry_edit_ends_with_drift_and_shows_the_request(natsctl: Run) -> None:
    natsctl("kv", "add", "B")
    done = natsctl("kv", "edit", "B", "--ttl", "1d", "--dry-run", "-j")
    assert done.code == 10
    assert done.json["requests"][0]["subject"] == "$JS.API.STREAM.UPDATE.KV_B"
    assert {"path": "max_age", "old": 0, "new": DAY_NS} in done.json["effect"]["differences"]
    assert natsctl("kv", "edit", "B", "--ttl", "0", "--dry-run").code == 0
    assert config_of(natsctl, "B")["max_age"] == 0


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
    assert (promoted.code, "bucket A, which this bucket cannot read" in promoted.err) == (0, True)
    natsctl("kv", "put", "M", "own", "3")
    assert natsctl("kv", "ls", "M").out == "own\n"
    natsctl("kv", "add", "N", "--mirror", "A")
    assert natsctl("kv", "edit", "N", "--unset", "mirror", "-j").json["stream_info"]["config"]["subjects"] == [
        "$KV.N.>"
    ]


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
    assert natsctl("kv", "rm", "B", "--all", "-f", "--missing-ok", "-j").json == {
        "bucket": "B",
        "success": True,
        "missing": True,
    }


def test_a_person_picks_a_bucket_and_types_its_name_to_remove_it(natsctl: Run, person: Run) -> None:
    natsctl("kv", "add", "B")
    natsctl("kv", "add", "C")
    one = person("kv", "info")
    one.answers("Select a Bucket", "\x1b[B\r")
    code, seen = one.end()
    assert (code, "Bucket Name: C" in seen) == (0, True)
    one = person("kv", "rm", "C", "--all")
    one.answers("type C to do it", "C\r")
    assert one.end()[0] == 0
    assert natsctl("kv", "ls", "-n").out == "B\n"
