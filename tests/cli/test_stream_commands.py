"""Stream commands as a script runs them: exit codes, stdout and stderr, `-j` for success and failure."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("str", "add"), "STREAM"),
        (("str", "add", "S"), "--subjects"),
        (("str", "add", "S", "--subjects", "a", "--max-age", "1x"), "--max-age"),
        (("str", "add", "S", "--subjects", "a", "--mirror", "M"), "--mirror"),
        (("str", "info"), "STREAM"),
        (("str", "rm", "S"), "--force"),
        (("str", "purge", "S", "--seq", "1", "--keep", "1"), "--keep"),
        (("str", "get", "S"), "SEQ"),
        (("str", "add", "--config", "/nowhere.json"), "/nowhere.json"),
    ],
)
def test_what_is_missing_or_wrong_is_a_usage_error_that_names_it(
    natsctl: Run, words: tuple[str, ...], named: str
) -> None:
    natsctl("str", "add", "S", "--subjects", "s")
    done = natsctl(*words)
    assert (done.code, done.out) == (2, "")
    assert named in done.err
    failed = natsctl(*words, "-j")
    assert named in failed.error["description"] + (failed.error["hint"] or "")


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


def test_what_info_prints_makes_the_stream_again(natsctl: Run, tmp_path: Path) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*", "--max-msgs", "9", "--metadata", "team=sales")
    saved = tmp_path / "orders.json"
    saved.write_text(natsctl("str", "info", "ORDERS", "-j").out)
    before = json.loads(saved.read_text())["config"]
    natsctl("str", "rm", "ORDERS", "-f")
    assert natsctl("str", "add", "ORDERS", "--config", str(saved)).code == 0
    assert natsctl("str", "info", "ORDERS", "-j").json["config"] == before


def test_a_file_is_read_from_stdin_with_a_dash(natsctl: Run) -> None:
    done = natsctl("str", "add", "--config", "-", "-j", stdin=b"name: FROM_STDIN\nsubjects: [x]\nmax_age: 2d\n")
    assert done.json["config"]["max_age"] == 2 * 86400 * 10**9


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


def test_edit_changes_what_was_asked_and_nothing_else(natsctl: Run, tmp_path: Path) -> None:
    natsctl(
        *(
            "str",
            "add",
            "S",
            "--subjects",
            "s.*",
            "--no-ack",
            "--max-msgs",
            "7",
            "--description",
            "d",
            "--metadata",
            "a=b",
        )
    )
    before = natsctl("str", "info", "S", "-j").json["config"]
    done = natsctl("str", "edit", "S", "--max-age", "1d")
    assert done.code == 0
    assert "Maximum Age (max_age): unlimited → 1d0h0m0s" in done.err
    assert "Stream S was updated" in done.err
    after = natsctl("str", "info", "S", "-j").json["config"]
    assert after == {**before, "max_age": 86400 * 10**9}
    file = tmp_path / "patch.yaml"
    file.write_text("max_msgs: 9\n")
    natsctl("str", "edit", "S", "--config", str(file), "-f")
    assert natsctl("str", "info", "S", "-j").json["config"] == {**after, "max_msgs": 9}


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


def test_lists_are_a_table_names_or_json(natsctl: Run) -> None:
    assert natsctl("str", "ls").out == "No Streams defined\n"
    assert natsctl("str", "ls", "-j").json == []
    natsctl("str", "add", "B", "--subjects", "b")
    natsctl("str", "add", "A", "--subjects", "a")
    natsctl("str", "add", "KV_x", "--subjects", "$KV.x.>")
    assert natsctl("str", "ls", "-n").out == "A\nB\n"
    assert natsctl("str", "ls", "-n", "-a", "-j").json == ["A", "B", "KV_x"]
    # As the tool takes its group's flag: before the verb, and with verbs that list nothing.
    assert natsctl("ms", "-a", "ls", "-n", "-j").json == ["A", "B", "KV_x"]
    assert natsctl("str", "-a", "state", "A").code == natsctl("str", "info", "A", "--all").code == 0
    assert natsctl("str", "ls", "-j").json == ["A", "B"]
    assert [one["config"]["name"] for one in natsctl("str", "ls", "-j", "--details").json] == ["A", "B"]
    table = natsctl("stream", "list").out
    assert "╭" in table
    assert " A " in table
    assert natsctl("str", "ls", "--subject", "b", "-n").out == "B\n"


def test_purge_says_how_many_and_shows_the_stream(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*")
    natsctl("pub", "s.a", "x", "--count", "5", "-q", "-J")
    natsctl("pub", "s.b", "x", "-q", "-J")
    assert natsctl("str", "purge", "S", "--subject", "s.b", "-j", "-f").json["purged"] == 1
    assert natsctl("str", "purge", "S", "--keep", "3", "-j", "-f").json["purged"] == 2
    assert natsctl("str", "purge", "S", "--seq", "4", "-f", "-j").json["purged"] == 1
    done = natsctl("str", "purge", "S", "-f")
    assert done.code == 0
    assert "Purged 2 messages from S" in done.err
    assert "Messages: 0" in done.out


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


def test_validate_and_output_create_nothing(natsctl: Run, tmp_path: Path) -> None:
    done = natsctl("str", "add", "S", "--subjects", "s", "--validate")
    assert done.json["name"] == "S"
    path = tmp_path / "s.json"
    natsctl("str", "add", "S", "--subjects", "s", "--output", str(path))
    assert json.loads(path.read_text())["subjects"] == ["s"]
    assert natsctl("str", "info", "S").code == 3


def test_a_backup_comes_back_with_its_messages_and_consumers(natsctl: Run, tmp_path: Path) -> None:
    natsctl("str", "add", "S", "--subjects", "s.*")
    natsctl("con", "add", "S", "C", "--pull")
    natsctl("pub", "s.a", "{{Count}}", "--count", "20", "-q", "-J")
    target = tmp_path / "deep" / "S.tgz"
    done = natsctl("str", "backup", "S", str(target), "--no-progress")
    assert (done.code, done.out) == (0, "")
    assert 'Starting backup of Stream "S" with' in done.err
    assert 'for stream "S" in' in done.err
    assert natsctl("backup", "stream", "S", str(tmp_path / "dir"), "-j").json["stream"] == "S"
    assert natsctl("backup", "restore", "stream", "S", str(target)).code == 4
    natsctl("str", "rm", "S", "-f")
    done = natsctl("str", "restore", "S", str(target), "--no-progress")
    assert done.code == 0
    assert "Starting restore of Stream" in done.err
    assert 'Restored stream "S" in' in done.err
    assert "Messages: 20" in done.out
    assert natsctl("str", "get", "S", "20", "--raw").out == "20"
    assert natsctl("con", "ls", "S", "-n").out == "C\n"
    natsctl("str", "rm", "S", "-f")
    assert natsctl("str", "restore", str(tmp_path / "dir"), "-j").json["state"]["messages"] == 20
    assert natsctl("str", "restore", "T", str(target)).code == 4  # its subjects are taken
    assert natsctl("str", "backup", "NONE", str(tmp_path / "none")).code == 3
    assert natsctl("str", "restore", str(tmp_path / "none"), "-j").code == 2


def test_aliases_and_help_work_and_a_wrong_command_is_told(natsctl: Run) -> None:
    assert natsctl("s", "l").out == natsctl("stream", "ls").out
    assert "--subjects" in natsctl("str", "create", "--help").out
    wrong = natsctl("str", "inffo")
    assert wrong.code == 2
    assert "info" in wrong.err


def test_streams_that_a_cluster_can_not_reach_are_told(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from natsctl.client.manager import Manager
    from natsctl.client.requests import Listing

    async def stream_list(manager: Manager, *, subject: str = "") -> Listing[Any]:
        return Listing([], {"streams": [], "missing": ["LOST\x1b"], "offline": {"OLD": "unsupported"}})

    monkeypatch.setattr(Manager, "stream_list", stream_list)
    done = natsctl("str", "ls", "-j")
    assert (done.code, done.json, done.err) == (0, [], "warning: inaccessible streams: LOST\\x1b, OLD\n")


def test_flags_that_take_something_away_have_no_opposite(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s")
    for flag in ("--no-mirror", "--no-transform", "--no-republish"):
        assert natsctl("str", "edit", "S", flag, "--dry-run").code == 0
        assert natsctl("str", "edit", "S", flag.replace("--no-", "--no-no-"), "--dry-run").code == 2
        assert natsctl("str", "add", "T", flag).code == 2
