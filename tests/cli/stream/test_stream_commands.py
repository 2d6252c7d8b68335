"""`stream add`, `edit`, `copy` and their like: exit codes, merges, replacements, editors, dry runs, older servers."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import NatsctlError
from natsctl.client.asset_config import settled
from natsctl.client.manager import CONSUMER_LEVELS, STREAM_LEVELS, check_level, required_level_of
from tests.support.commands import Run

EXAMPLES = Path(__file__).parents[3] / "examples" / "configs"


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


def test_a_file_makes_a_stream_and_flags_and_name_win(natsctl: Run) -> None:
    path = str(EXAMPLES / "orders.json")
    assert natsctl("str", "add", "--config", path, "-j").json["config"]["name"] == "ORDERS"
    other = natsctl("str", "add", "OTHER", "--config", path, "--subjects", "o.>", "--max-age", "1d", "-j")
    config = other.json["config"]
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


@pytest.mark.ours("files and editors on this side")
@pytest.mark.parametrize(
    "text",
    [
        "kind: Stream\nname: A\nsubjects: [a]\n",
        "streams: {B: {subjects: [b]}}\n",
        "name: A\nsubjects: [a]\n---\nname: B\nsubjects: [b]\n",
    ],
)
def test_a_set_of_documents_is_for_apply(natsctl: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "set.yaml"
    path.write_text(text)
    assert natsctl("str", "add", "C", "--subjects", "c").code == 0
    for command in ("str add D", "str edit C", "con add C D", "con edit C D"):
        refused = natsctl(*command.split(), "--config", str(path))
        assert (refused.code, f"natsctl apply {path}" in refused.err.replace("\n  ", " ")) == (2, True)


@pytest.mark.ours("files and editors on this side")
@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("bad.json", "{", ":1: not JSON"),
        ("bad.json", "[1]", ": $: expected an object"),
        ("bad.yaml", "", ": $: expected an object, but there is nothing"),
        ("bad.json", '{"name": "S",\n"max_age": "soon"}', ":2: $.max_age: "),
        ("bad.json", '{"name": "S", "subjects": "x"}', ":1: $.subjects: "),
        ("bad.yaml", "name: S\nsources:\n- name: T\n  fitler_subject: t\n", ":4: $.sources[0].fitler_subject: "),
        ("bad.json", '{"state": {},\n"config": {"name": "S", "new": 1,\n"max_age": "x"}}', ":3: $.config.max_age: "),
        ("bad.yaml", "a: [", ":2: not YAML"),
        ("bad.yaml", "name: BAD\nsubjects:\n- >\n", ':3: an empty block of text: ">" needs quotes'),
        (
            "bad.json",
            '{\n// all\n"name": "BAD"}',
            ":2: not JSON: expecting property name enclosed in double quotes, got //",
        ),
    ],
)
def test_a_fault_of_a_file_has_its_line_path_and_reason(
    natsctl: Run, tmp_path: Path, file: str, text: str, reason: str
) -> None:
    path = tmp_path / file
    path.write_text(text)
    done = natsctl("str", "add", "--config", str(path))
    assert done.code == 2
    assert f"{file}{reason}" in done.err


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


def test_a_copy_takes_the_configuration_and_the_flags(natsctl: Run) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*", "--max-age", "1y", "--no-ack")
    done = natsctl("str", "cp", "ORDERS", "ARCHIVE", "--subjects", "ORDERS_ARCVHIVE.*", "--max-age", "2y")
    assert done.err == "Stream ARCHIVE was created\n"
    config = natsctl("str", "info", "ARCHIVE", "-j").json["config"]
    assert (config["subjects"], config["no_ack"]) == (["ORDERS_ARCVHIVE.*"], True)
    assert config["max_age"] == 2 * 31536000 * 10**9
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


RICH = shlex.split(
    "str add S --subjects s.* --no-ack --compression s2 --max-msgs 7 --no-allow-direct --metadata a=b"
    " --metadata team.name=x --republish-source s.* --republish-destination r.{{wildcard(1)}} --description d"
    " --allow-rollup --max-bytes 5000000000"
)


def config(natsctl: Run, stream: str = "S") -> dict[str, Any]:
    found: dict[str, Any] = natsctl("str", "info", stream, "-j").json["config"]
    return found


def test_an_edit_touches_neither_acks_nor_compression_nor_sizes(natsctl: Run) -> None:
    natsctl(*RICH)
    before = config(natsctl)
    assert (before["no_ack"], before["compression"], before["max_bytes"]) == (True, "s2", 5_000_000_000)
    natsctl("str", "edit", "S", "--description", "other", "-f")
    assert config(natsctl) == {**before, "description": "other"}


def test_fields_are_taken_away_by_name_flag_and_path(natsctl: Run) -> None:
    natsctl(*RICH)
    done = natsctl("str", "edit", "S", "--unset", "description,max-msgs", "--unset", "metadata.team.name", "-f")
    assert "  Maximum Messages (max_msgs): 7 → unlimited\n" in done.err
    after = config(natsctl)
    assert (after.get("description"), after["max_msgs"]) == (None, -1)
    assert {key for key in after["metadata"] if not key.startswith("_nats.")} == {"a"}
    wrong = natsctl("str", "edit", "S", "--unset", "max_massages", "-f")
    assert (wrong.code, "max_msgs" in wrong.err) == (2, True)


def test_republishing_ends_and_an_explicit_zero_is_no_limit(natsctl: Run) -> None:
    natsctl(*RICH)
    assert natsctl("str", "edit", "S", "--no-republish", "--max-msgs", "0", "-f").code == 0
    after = config(natsctl)
    assert "republish" not in after
    assert after["max_msgs"] == -1


def test_a_file_is_merged_or_with_a_name_replaces_everything_it_leaves_out(natsctl: Run, tmp_path: Path) -> None:
    natsctl(*RICH)
    before = config(natsctl)
    patch = tmp_path / "patch.yaml"
    patch.write_text("max_age: 1d  # for people\nmax_bytes: 5GiB\n")
    natsctl("str", "edit", "S", "--config", str(patch), "-f")
    assert config(natsctl) == {**before, "max_age": 86400 * 10**9, "max_bytes": 5 * 2**30}
    patch.write_text("name: S\nsubjects: [s.*]\ndescription: whole\n")
    done = natsctl("str", "edit", "S", "--config", str(patch), "-f")
    assert '  Description (description): "' in done.err
    assert '" → "whole"\n' in done.err
    changed = {line.strip().partition(":")[0] for line in done.err.splitlines() if " → " in line}
    changed = {name.partition("(")[2].rstrip(")") or name for name in changed}
    assert changed == {
        *("description", "max_msgs", "max_bytes", "max_age", "no_ack", "compression", "republish.src"),
        *("republish.dest", "allow_rollup_hdrs", "metadata.a", "metadata.team.name"),
    }
    patch.write_text("subjects: [s.*]\ndescription: whole\n")
    again = natsctl("str", "edit", "S", "--config", str(patch), "--replace", "--dry-run")
    assert (again.code, again.out) == (0, "No difference in configuration\n")


def test_what_info_prints_replaces_a_stream_without_difference(natsctl: Run, tmp_path: Path) -> None:
    natsctl(*RICH)
    natsctl("str", "add", "T", "--source", "S")
    natsctl("str", "add", "M", "--mirror", "S")
    for name in ("S", "T", "M"):
        saved = tmp_path / f"{name}.json"
        saved.write_text(natsctl("str", "info", name, "-j").out)
        assert natsctl("str", "edit", name, "--config", str(saved), "--dry-run").code == 0, name
        assert natsctl("str", "edit", name, "--dry-run").code == 0, name


def test_sources_are_changed_by_name_and_keep_their_filters(natsctl: Run) -> None:
    for name in ("A", "B"):
        natsctl("str", "add", name, "--subjects", f"{name}.*")
    natsctl("str", "add", "T", "--source", '{"name": "A", "filter_subject": "A.x"}')
    assert natsctl("str", "edit", "T", "--source", "A", "--source", "B", "-f").code == 0
    assert config(natsctl, "T")["sources"] == [{"name": "A", "filter_subject": "A.x"}, {"name": "B"}]


def test_adding_what_exists_is_fine_where_that_was_said(natsctl: Run) -> None:
    first = natsctl("str", "add", "S", "--subjects", "s", "--if-not-exists", "-j")
    assert first.code == 0
    again = natsctl("str", "add", "S", "--subjects", "other", "--max-msgs", "1", "--if-not-exists")
    assert (again.code, "exists already" in again.err) == (0, True)
    assert config(natsctl)["subjects"] == ["s"]
    same = natsctl("str", "add", "S", "--subjects", "s")
    assert same.code == 0
    assert natsctl("str", "cp", "S", "S2", "--subjects", "t", "--if-not-exists").code == 0


def test_streams_of_buckets_are_changed_with_a_warning(natsctl: Run) -> None:
    natsctl("str", "add", "KV_b", "--subjects", "$KV.b.>")
    done = natsctl("str", "edit", "KV_b", "--max-msgs", "5", "-f")
    assert (done.code, "belongs to the key-value bucket b" in done.err) == (0, True)
    assert natsctl("str", "edit", "KV_b", "--max-msgs", "6", "-f", "-j").err == ""


def test_a_copy_never_begins_sealed_and_keeps_acks_off(natsctl: Run) -> None:
    natsctl("str", "add", "S", "--subjects", "s", "--no-ack")
    natsctl("str", "seal", "S", "-f")
    assert natsctl("str", "cp", "S", "T", "--subjects", "t").code == 0
    assert (config(natsctl, "T")["sealed"], config(natsctl, "T")["no_ack"]) == (False, True)


@pytest.mark.ours("files and editors on this side")
def test_a_written_configuration_is_for_its_owner_only(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    assert natsctl("str", "add", "S", "--subjects", "s", "--output", str(path)).code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["name"] == "S"
    assert natsctl("str", "add", "S", "--subjects", "s", "--output", "-").json["subjects"] == ["s"]
    assert natsctl("str", "add", "S", "--subjects", "s", "--validate").json["name"] == "S"
    assert natsctl("str", "info", "S").code == 3


def test_fields_of_a_newer_level_are_sent_with_it(natsctl: Run) -> None:
    done = natsctl("str", "add", "S", "--subjects", "s", "--allow-batch", "--dry-run", "-j")
    assert done.json["requests"][0]["headers"] == {"Nats-Required-Api-Level": ["2"]}
    assert natsctl("str", "add", "S", "--subjects", "s", "--allow-batch", "--allow-fast", "--allow-msg-ttl").code == 0


class OldServer:
    def __init__(self) -> None:
        self.connection = self
        self.info = {"version": "2.11.0"}

    async def account_info(self) -> Any:
        class Value:
            value = type("Info", (), {"api": type("Api", (), {"level": 1})})

        return Value


async def test_an_older_server_is_named_with_the_field_that_it_lacks() -> None:
    manager: Any = OldServer()
    needed = await check_level(manager, {"allow_msg_ttl": True}, STREAM_LEVELS, "Stream S")
    assert needed == {"Nats-Required-Api-Level": "1"}
    assert await check_level(manager, {"allow_atomic": False}, STREAM_LEVELS, "Stream S") is None
    with pytest.raises(NatsctlError, match=r"allow_batched needs JetStream API level 3, the server 2\.11\.0 has 1"):
        await check_level(manager, {"allow_batched": True}, STREAM_LEVELS, "Stream S")


def test_levels_are_found_in_lists_too() -> None:
    sources = [{"name": "A"}, {"name": "B", "consumer": {"name": "c"}}]
    assert required_level_of({"sources": sources}, STREAM_LEVELS).level == 4
    assert required_level_of({"persist_mode": "default"}, STREAM_LEVELS).level == 0
    assert required_level_of({"priority_groups": ["a"]}, CONSUMER_LEVELS) == (1, "priority_groups")


def test_what_a_server_fills_in_is_no_change() -> None:
    live = {"name": "S", "max_msgs": -1, "duplicate_window": 5, "unknown": 1}
    assert settled(live, dict(live)) == live
    assert settled(live, {"name": "S", "unknown": 1})["duplicate_window"] == 120 * 10**9
    assert settled(live, {**live, "max_msgs": 0})["max_msgs"] == -1
