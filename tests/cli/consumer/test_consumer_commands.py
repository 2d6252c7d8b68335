"""How consumers are made, copied, changed and read, as a script does it."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import groups_of
from tests.support.commands import Run

EXAMPLES = Path(__file__).parents[3] / "examples" / "configs"


def test_a_push_consumer_takes_its_defaults(orders: Run) -> None:
    done = orders("con", "add", "ORDERS", "MONITOR", "--target", "monitor.ORDERS", "--filter", "", "--deliver", "last")
    assert done.code == 0
    assert "Delivery Subject: monitor.ORDERS" in done.out
    config = orders("con", "info", "ORDERS", "MONITOR", "-j").json["config"]
    assert (config["ack_policy"], config["deliver_policy"]) == ("none", "last")
    assert "filter_subject" not in config


@pytest.mark.parametrize("file", ["orders_new.json", "orders_dispatch.json", "monitor.json", "monitor.yaml"])
def test_a_file_makes_a_consumer_and_what_info_prints_makes_it_again(orders: Run, file: str, tmp_path: Path) -> None:
    done = orders("con", "add", "ORDERS", "--config", str(EXAMPLES / file), "-j")
    name = done.json["name"]
    assert name == done.json["config"]["durable_name"]
    saved = tmp_path / "info.json"
    saved.write_text(orders("con", "info", "ORDERS", name, "-j").out)
    assert orders("con", "add", "ORDERS", "--config", str(saved)).code == 0
    assert orders("con", "add", "--config", str(saved)).code == 0, "the file says which stream"
    renamed = orders("con", "add", "ORDERS", "OTHER", "--config", str(saved), "-j").json
    assert (renamed["name"], renamed["config"]["durable_name"]) == ("OTHER", "OTHER")


def test_a_consumer_that_does_not_exist_is_never_replaced_by_another(orders: Run) -> None:
    orders("con", "add", "ORDERS", "DISPATCH", "--pull")
    for words in (("info",), ("state",), ("rm", "-f"), ("next",), ("sub",), ("events",), ("edit", "--wait", "1s")):
        done = orders("con", words[0], "ORDERS", "DISPTCH", *words[1:])
        assert (done.code, done.out) == (3, ""), words
        assert 'did you mean "DISPATCH"?' in done.err
    assert 'did you mean "ORDERS"?' in orders("con", "ls", "ORDRES").err
    assert orders("con", "info", "ORDERS", "NONE", "-j").error["err_code"] == 10014


def test_next_shows_line_headers_body_and_ack_on_stdout(orders: Run) -> None:
    orders("con", "add", "ORDERS", "C", "--pull", "--ack", "explicit")
    orders("pub", "ORDERS.processed", "order 1", "-H", "K:v", "-q", "-J")
    done = orders("con", "next", "ORDERS", "C")
    head = "--- received on ORDERS.processed / tries: 1 / cons seq: 1 / str seq: 1 / pending: 0"
    assert (
        re.sub(r" / at \d\d:\d\d:\d\d\n", "\n", done.out, count=1)
        == f"{head}\n\nHeaders:\n\n  K: v\n\nData:\n\norder 1\n\nAcknowledged message\n\n"
    )
    assert (done.code, done.err) == (0, "")
    info = orders("con", "info", "ORDERS", "C", "-j").json
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, 1)


def test_next_can_leave_refuse_and_end_a_message(orders: Run) -> None:
    orders("con", "add", "ORDERS", "C", "--pull", "--wait", "1h")
    orders("pub", "ORDERS.a", "x", "-q")
    assert "Negative Acknowledged message" in orders("con", "next", "ORDERS", "C", "--nak").out
    again = orders("con", "next", "ORDERS", "C", "--no-ack", "-j").lines[0]
    assert (again["deliveries"], again["text"], again["stream_seq"]) == (2, "x", 1)
    assert orders("con", "info", "ORDERS", "C", "-j").json["num_ack_pending"] == 1
    orders("pub", "ORDERS.a", "y", "-q")
    assert "Terminated message" in orders("con", "next", "ORDERS", "C", "--term").out
    assert orders("con", "info", "ORDERS", "C", "-j").json["num_ack_pending"] == 1


def test_a_consumer_without_acks_is_read_without_one(orders: Run) -> None:
    orders("con", "add", "ORDERS", "ALL", "--pull", "--ack", "none")
    orders("pub", "ORDERS.a", "x", "-q", "-J")
    done = orders("con", "next", "ORDERS", "ALL")
    assert done.code == 0
    assert "No acknowledgment: the consumer asks for none" in done.out
    assert "Acknowledged" not in done.out
    assert "--nak" in orders("con", "next", "ORDERS", "ALL", "--nak").err


def test_a_push_consumer_is_not_pulled_from(orders: Run) -> None:
    orders("con", "add", "ORDERS", "P", "--target", "out")
    done = orders("con", "next", "ORDERS", "P")
    assert done.code == 2
    assert "con sub" in done.err


def test_an_ephemeral_consumer_needs_no_name(orders: Run) -> None:
    info = orders("con", "add", "ORDERS", "--ephemeral", "--pull", "-j").json
    assert info["name"]
    assert "durable_name" not in info["config"]


def config_of(run: Run, name: str) -> dict[str, Any]:
    config: dict[str, Any] = run("con", "info", "ORDERS", name, "-j").json["config"]
    return config


def test_a_backoff_is_linear_or_what_was_listed(orders: Run) -> None:
    words = ("--backoff-steps", "4", "--backoff-min", "1s", "--backoff-max", "5s")
    orders("con", "add", "ORDERS", "LINEAR", "--backoff", "linear", *words)
    orders("con", "add", "ORDERS", "LISTED", "--backoff", "1s,1m", "--max-deliver", "9")
    linear, listed = config_of(orders, "LINEAR"), config_of(orders, "LISTED")
    assert (linear["backoff"], linear["max_deliver"]) == ([10**9, 2 * 10**9, 3 * 10**9, 4 * 10**9], 5)
    assert (listed["backoff"], listed["max_deliver"]) == ([10**9, 60 * 10**9], 9)
    orders("con", "edit", "ORDERS", "LISTED", "--backoff", "none", "-f")
    assert "backoff" not in config_of(orders, "LISTED")


def test_an_existing_consumer_is_a_conflict_or_left_alone(orders: Run) -> None:
    orders("con", "add", "ORDERS", "C", "--max-deliver", "5")
    done = orders("con", "add", "ORDERS", "C", "--max-deliver", "6")
    assert (done.code, "--if-not-exists" in done.err) == (4, True)
    left = orders("con", "add", "ORDERS", "C", "--max-deliver", "6", "--if-not-exists", "-j")
    assert (left.code, left.json["config"]["max_deliver"]) == (0, 5)
    made = orders("con", "add", "ORDERS", "D", "--if-not-exists", "-j")
    assert (made.code, made.json["name"]) == (0, "D")
    missing = orders("con", "add", "NOPE", "D", "--if-not-exists")
    assert missing.code == 3


@pytest.mark.ours("files and editors on this side")
@pytest.mark.parametrize("key", ["stream", "stream_name"])
def test_a_file_may_say_which_stream(orders: Run, tmp_path: Path, key: str) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({key: "ORDERS", "durable_name": "C", "ack_policy": "explicit", "ack_wait": "10s"}))
    done = orders("con", "add", "--config", str(file), "-j")
    assert (done.code, done.json["stream_name"], done.json["config"]["ack_wait"]) == (0, "ORDERS", 10 * 10**9)
    nested = tmp_path / "d.yaml"
    nested.write_text(f"{key}: ORDERS\nconfig:\n  durable_name: D\n  ack_policy: explicit\n")
    assert orders("con", "add", "--config", str(nested)).code == 0
    file.write_text(json.dumps({"stream": "A", "stream_name": "B", "durable_name": "C"}))
    assert orders("con", "add", "--config", str(file)).code == 2


@pytest.mark.ours("files and editors on this side")
def test_names_of_fields_in_the_technical_preview_are_read(orders: Run, tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    old = {"delivery_subject": "out.old", "stream_seq": 1, "start_time": "0001-01-01T00:00:00Z"}
    file.write_text(json.dumps({**old, "durable_name": "OLD", "deliver_policy": "by_start_sequence"}))
    done = orders("con", "add", "ORDERS", "--config", str(file))
    assert done.code == 0
    assert "delivery_subject is read as deliver_subject" in done.err
    after = config_of(orders, "OLD")
    assert (after["deliver_subject"], after["opt_start_seq"], "opt_start_time" in after) == ("out.old", 1, False)
    file.write_text(json.dumps({**old, "deliver_subject": "out.new", "durable_name": "NEW"}))
    done = orders("con", "add", "ORDERS", "--config", str(file), "--validate", "-j")
    assert done.json["deliver_subject"] == "out.new"
    assert "delivery_subject is ignored: deliver_subject is given too" in done.err
    file.write_text(json.dumps({"durable_name": "NEW", "deliver_subjekt": "x"}))
    assert orders("con", "add", "ORDERS", "--config", str(file)).code == 2


@pytest.mark.ours("files and editors on this side")
def test_an_editor_changes_what_the_person_changed(
    orders: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders("con", "add", "ORDERS", "C", "--max-deliver", "5", "--wait", "90s", "--description", "d")
    before = config_of(orders, "C")
    copy = tmp_path / "seen"
    script = tmp_path / "editor"
    script.write_text(f'#!/bin/sh\ncp "$1" {copy}\nsed -i \'s/^ack_wait:.*/ack_wait: 2m/; /^description:/d\' "$1"\n')
    script.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(script))
    monkeypatch.delenv("VISUAL", raising=False)
    done = orders("con", "edit", "ORDERS", "C", "-i", "-f")
    assert done.code == 0, done.err
    assert "ack_wait: 1m30s" in copy.read_text()
    assert "# max_batch:" in copy.read_text(), "what is not set is offered"
    after = config_of(orders, "C")
    assert (after["ack_wait"], "description" in after) == (120 * 10**9, False)
    del before["description"]
    assert {**after, "ack_wait": 0} == {**before, "ack_wait": 0}


@pytest.mark.ours("files and editors on this side")
@pytest.mark.parametrize(("edit", "code"), [("s/^max_deliver.*/max_delivery: 7/", 2), ("s/.*//", 2), ("", 0)])
def test_a_faulty_empty_or_untouched_document_changes_nothing(
    orders: Run, monkeypatch: pytest.MonkeyPatch, edit: str, code: int
) -> None:
    orders("con", "add", "ORDERS", "C", "--max-deliver", "5")
    before = config_of(orders, "C")
    monkeypatch.setenv("VISUAL", f"sed -i '{edit}'" if edit else "true")
    assert orders("con", "edit", "ORDERS", "C", "-i").code == code
    assert config_of(orders, "C") == before


def test_a_copy_leaves_out_what_the_server_noted(orders: Run) -> None:
    orders("con", "add", "ORDERS", "A", "--metadata", "a=b", "--overflow-groups", "g")
    done = orders("con", "cp", "ORDERS", "A", "B", "--description", "copied", "--dry-run", "-j")
    config = done.json["requests"][0]["body"]["config"]
    assert (config["metadata"], config["name"], config["description"]) == ({"a": "b"}, "B", "copied")
    assert "pause_until" not in config


PULL, PUSH, CHANGED = (
    [(tuple(shlex.split(words)), json.loads(wanted)) for words, wanted in (row.split("  →  ") for row in rows)]
    for rows in groups_of("consumer/flags.txt").values()
)
"""Flags of pull and push consumers, and of edits, each with the fields that it sets."""


def check(done: Any, wanted: dict[str, Any]) -> None:
    assert done.code == 0, done.err
    config = done.json["config"]
    own = {key: value for key, value in (config.get("metadata") or {}).items() if not key.startswith("_nats.")}
    config["metadata"] = own
    assert {key: config.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(("words", "wanted"), [*PULL, *CHANGED])
def test_a_flag_sets_its_field_in_a_new_pull_consumer_and_in_a_copy(
    orders: Run, words: tuple[str, ...], wanted: dict[str, Any]
) -> None:
    check(orders("con", "add", "ORDERS", "C", *words, "-j"), wanted)
    orders("con", "add", "ORDERS", "PLAIN")
    check(orders("con", "cp", "ORDERS", "PLAIN", "COPY", *words, "-j"), wanted)


@pytest.mark.parametrize(("words", "wanted"), PUSH)
def test_a_flag_sets_its_field_in_a_new_push_consumer_and_in_a_copy(
    orders: Run, words: tuple[str, ...], wanted: dict[str, Any]
) -> None:
    check(orders("con", "add", "ORDERS", "C", "--target", "out", *words, "-j"), wanted)
    orders("con", "add", "ORDERS", "PLAIN", "--target", "plain")
    check(orders("con", "cp", "ORDERS", "PLAIN", "COPY", "--target", "copy", *words, "-j"), wanted)


@pytest.mark.parametrize(("words", "wanted"), CHANGED)
def test_a_flag_changes_its_field(orders: Run, words: tuple[str, ...], wanted: dict[str, Any]) -> None:
    orders("con", "add", "ORDERS", "C")
    check(orders("con", "edit", "ORDERS", "C", *words, "-f", "-j"), wanted)


def test_a_push_consumer_gets_another_target(orders: Run) -> None:
    orders("con", "add", "ORDERS", "C", "--target", "out")
    check(orders("con", "edit", "ORDERS", "C", "--target", "other", "-f", "-j"), {"deliver_subject": "other"})
