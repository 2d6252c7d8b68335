"""Keys as a script reads and writes them: values as bytes, revisions as guards, exit codes."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


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
    assert entry == {
        "bucket": "B",
        "key": "k",
        "revision": 2,
        "operation": "PUT",
        "length": 3,
        "delta": 0,
        "value": "two",
    }


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
    assert (wrong.code, wrong.error["err_code"], wrong.error["hint"]) == (3, 10059, 'did you mean "B"?')


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
