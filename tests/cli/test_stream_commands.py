"""Stream commands as a script runs them: exit codes, stdout and stderr, `-j` for success and failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

EXAMPLES = Path(__file__).parents[2] / "examples" / "configs"


def test_a_stream_is_made_from_flags_and_defaults(natsctl: Run) -> None:
    done = natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*", "--max-age=1y", "--max-msgs", "-1")
    assert done.code == 0
    assert done.err == "Stream ORDERS was created\n"
    assert "Subjects: ORDERS.*" in done.out
    config = natsctl("str", "info", "ORDERS", "-j").json["config"]
    assert (config["max_age"], config["storage"], config["retention"]) == (31536000000000000, "file", "limits")
    assert config["allow_direct"] is True


def test_adding_the_same_stream_again_is_success_and_another_one_a_conflict(natsctl: Run) -> None:
    add = ("str", "add", "S", "--subjects", "s", "-j")
    assert natsctl(*add).json["config"]["name"] == "S"
    assert natsctl(*add).code == 0
    other = natsctl(*add, "--max-msgs", "5")
    assert (other.code, other.error["err_code"], other.out) == (4, 10058, "")


def test_a_stream_that_does_not_exist_is_never_replaced_by_another(natsctl: Run) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    for words in (("info",), ("state",), ("purge", "-f"), ("rm", "-f"), ("edit", "--max-age", "1d"), ("get", "1")):
        done = natsctl("str", words[0], "ORDRES", *words[1:])
        assert (done.code, done.out) == (3, ""), words
        assert 'did you mean "ORDERS"?' in done.err
    assert natsctl("str", "info", "ORDRES", "-j").error["err_code"] == 10059


@pytest.mark.parametrize("file", ["orders.json", "orders.yaml"])
def test_a_file_makes_a_stream_and_flags_and_name_win(natsctl: Run, file: str) -> None:
    path = str(EXAMPLES / file)
    assert natsctl("str", "add", "--config", path, "-j").json["config"]["name"] == "ORDERS"
    config = natsctl("str", "add", "OTHER", "--config", path, "--subjects", "o.>", "--max-age", "1d", "-j").json[
        "config"
    ]
    assert (config["name"], config["subjects"], config["max_age"]) == ("OTHER", ["o.>"], 86400 * 10**9)
    assert config["max_msgs"] == -1


def test_flags_a_file_and_buckets_agree_on_the_defaults_of_a_stream(natsctl: Run, tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text('{"subjects": ["f.>"]}')
    made = [
        natsctl("str", "add", "FLAGS", "--subjects", "s.>", "-j").json["config"],
        natsctl("str", "add", "FILE", "--config", str(file), "-j").json["config"],
        natsctl("str", "add", "NULLS", "--config", "-", "-j", stdin=b"subjects: [n]\nallow_direct:\n").json["config"],
    ]
    for config in made:
        del config["name"], config["subjects"]
    assert made[0] == made[1] == made[2]
    assert made[0]["allow_direct"] is True
    for noun in ("kv", "obj"):
        assert natsctl(noun, "add", "B", "-j").json["stream_info"]["config"]["allow_direct"] is True
    file.write_text('{"name": "OFF", "subjects": ["o"], "allow_direct": false}')
    assert natsctl("str", "add", "--config", str(file), "-j").json["config"]["allow_direct"] is False


def test_a_set_of_documents_gives_the_asset_that_is_named_or_the_only_one(natsctl: Run, tmp_path: Path) -> None:
    orders, several = str(EXAMPLES / "orders.yaml"), tmp_path / "several.yaml"
    several.write_text("kind: Stream\nname: A\nsubjects: [a]\n---\nstreams: {B: {subjects: [b]}}\n")
    assert natsctl("str", "add", "B", "--config", str(several), "-j").json["config"]["subjects"] == ["b"]
    none = natsctl("str", "add", "C", "--config", str(several))
    assert (none.code, "expected one stream, but it describes A, B" in none.err) == (2, True)
    assert natsctl("str", "add", "--config", orders).code == 0
    assert natsctl("con", "add", "ORDERS", "NEW", "--config", orders, "-j").json["config"]["max_deliver"] == 20
    assert natsctl("con", "edit", "ORDERS", "NEW", "--max-deliver", "5", "-f").code == 0
    assert natsctl("con", "edit", "ORDERS", "NEW", "--config", orders, "-f", "-j").json["config"]["max_deliver"] == 20
    assert natsctl("str", "edit", "ORDERS", "--config", orders, "--dry-run").code == 0
    which = natsctl("con", "add", "ORDERS", "--config", orders)
    assert (which.code, "ORDERS > DISPATCH" in which.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ("[1]", "$: expected an object"),
        ('{"name": "S", "max_age": "soon"}', "$.max_age"),
        ('{"name": "S", "subjects": "x"}', "$.subjects"),
        ("a: [", "not YAML"),
    ],
)
def test_a_wrong_file_is_told_by_path_and_reason(natsctl: Run, tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    done = natsctl("str", "add", "--config", str(path))
    assert done.code == 2
    assert "bad.json" in done.err
    assert told in done.err


def test_an_edit_without_difference_sends_nothing_and_succeeds(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*")
    done = natsctl("str", "edit", "S", "--subjects", "s.*", "--trace")
    assert done.code == 0
    assert "No difference" in done.err
    assert "STREAM.UPDATE" not in done.err


def test_a_dry_run_shows_the_difference_and_changes_nothing(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*")
    done = natsctl("str", "edit", "S", "--max-msgs", "5", "--dry-run")
    assert done.code == 10
    assert done.out.startswith("  max_msgs: unlimited → 5\n$JS.API.STREAM.UPDATE.S\n")
    document = natsctl("str", "edit", "S", "--max-msgs", "5", "--dry-run", "-j").json
    assert document["effect"]["differences"] == [{"path": "max_msgs", "old": -1, "new": 5}]
    assert document["requests"][0]["body"]["max_msgs"] == 5
    assert natsctl("str", "info", "S", "-j").json["config"]["max_msgs"] == -1
    assert natsctl("str", "edit", "S", "--subjects", "s.*", "--dry-run").code == 0


def test_a_refused_edit_leaves_the_servers_error(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*", "--deny-delete")
    done = natsctl("str", "edit", "S", "--no-deny-delete", "-j")
    assert (done.code, done.out, done.error["err_code"]) == (1, "", 10052)


def test_a_copy_takes_the_configuration_and_the_flags(natsctl: Run) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*", "--max-age", "1y", "--no-ack")
    done = natsctl("str", "cp", "ORDERS", "ARCHIVE", "--subjects", "ORDERS_ARCVHIVE.*", "--max-age", "2y")
    assert done.err == "Stream ARCHIVE was created\n"
    config = natsctl("str", "info", "ARCHIVE", "-j").json["config"]
    assert (config["subjects"], config["no_ack"], config["max_age"]) == (
        ["ORDERS_ARCVHIVE.*"],
        True,
        2 * 31536000 * 10**9,
    )
    assert "--subjects" in natsctl("str", "cp", "ORDERS", "SAME").err
    assert natsctl("str", "cp", "NONE", "X").code == 3


def test_a_message_is_shown_and_removed(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*")
    natsctl("pub", "s.a", "hello", "-H", "K:V", "-q", "-J")
    done = natsctl("str", "get", "S", "1")
    assert done.out.startswith("Item: S#1 received")
    assert done.out.endswith("\n\nHeaders:\n\n  K: V\n\nData:\n\nhello\n\n")
    assert natsctl("str", "get", "S", "--last-for", "s.a", "-j").json["data"] == "aGVsbG8="
    assert natsctl("str", "get", "S", "1", "--raw").out == "hello"
    assert natsctl("str", "rmm", "S", "1").code == 2
    assert natsctl("str", "rmm", "S", "1", "-f", "-j").json["success"] is True
    gone = natsctl("str", "rmm", "S", "1", "-f", "-j")
    assert gone.code == 3
    assert natsctl("str", "get", "S", "1", "-j").error["code"] == 404
    assert natsctl("str", "rmm", "S", "99", "-f").code == 3
