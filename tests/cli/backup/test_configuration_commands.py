"""`natsctl backup` and `natsctl restore`: the folder of configuration files, and their exit codes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def _make(natsctl: Run) -> None:
    assert natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*", "--defaults").code == 0
    assert natsctl("con", "add", "ORDERS", "NEW", "--pull", "--filter", "ORDERS.received", "--defaults").code == 0


def _said(text: str) -> list[str]:
    """The lines of a log without their times."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in text.splitlines()]


def test_the_log_lines_are_those_of_the_specification(natsctl: Run, tmp_path: Path) -> None:
    _make(natsctl)
    folder = tmp_path / "js-backup"
    done = natsctl("backup", str(folder))
    assert (done.code, done.out) == (0, "")
    assert _said(done.err) == [
        f"Creating JetStream backup into {folder}",
        f"Stream ORDERS to {folder}/stream_ORDERS.json",
        f"Consumer ORDERS > NEW to {folder}/stream_ORDERS_consumer_NEW.json",
        "Configuration backup complete",
    ]
    done = natsctl("restore", str(folder), "--update-streams")
    assert done.code == 0
    assert _said(done.err) == [
        f"Reading file {folder}/stream_ORDERS.json",
        f"Reading file {folder}/stream_ORDERS_consumer_NEW.json",
        "Updating Stream ORDERS configuration",
        "Restoring Consumer ORDERS > NEW",
    ]


def test_restoring_onto_an_existing_stream_is_a_conflict(natsctl: Run, tmp_path: Path) -> None:
    _make(natsctl)
    assert natsctl("backup", str(tmp_path / "b")).code == 0
    done = natsctl("restore", str(tmp_path / "b"))
    assert (done.code, "--update-streams" in done.err) == (4, True)
    planned = natsctl("restore", str(tmp_path / "b"), "--update-streams", "--dry-run", "-j").json
    assert planned["effect"] == {"streams": 1, "consumers": 1, "updates": ["ORDERS"]}
    assert [one["subject"] for one in planned["requests"]] == ["$JS.API.STREAM.UPDATE.ORDERS"]


def test_data_is_saved_so_that_stream_restore_reads_it(natsctl: Run, tmp_path: Path) -> None:
    _make(natsctl)
    assert natsctl("pub", "ORDERS.received", "hello", "-J").code == 0
    folder = tmp_path / "b"
    assert natsctl("backup", str(folder), "--data", "-j").json["data"] == ["ORDERS"]
    listed = natsctl("backup", "ls", str(folder), "-j").json
    assert [(Path(one["path"]).name, one["form"], one["kind"]) for one in listed] == [
        ("stream_ORDERS.json", "configuration", "stream"),
        ("stream_ORDERS.tgz", "file", "stream"),
        ("stream_ORDERS_consumer_NEW.json", "configuration", "consumer"),
    ]
    assert natsctl("backup", "verify", str(folder)).code == 0
    assert natsctl("str", "rm", "ORDERS", "-f").code == 0
    restored = natsctl("str", "restore", "ORDERS", str(folder / "stream_ORDERS.tgz"), "-j")
    assert restored.json["state"]["messages"] == 1


def test_one_file_of_a_backup_can_be_restored_alone(natsctl: Run, tmp_path: Path) -> None:
    _make(natsctl)
    assert natsctl("backup", str(tmp_path / "b")).code == 0
    assert natsctl("con", "rm", "ORDERS", "NEW", "-f").code == 0
    file = str(tmp_path / "b" / "stream_ORDERS_consumer_NEW.json")
    assert natsctl("restore", "--file", file, "-j").json["consumers"] == ["ORDERS > NEW"]


def test_a_changed_file_is_found_before_anything_is_restored(natsctl: Run, tmp_path: Path) -> None:
    _make(natsctl)
    assert natsctl("backup", str(tmp_path / "b")).code == 0
    assert natsctl("str", "rm", "ORDERS", "-f").code == 0
    path = tmp_path / "b" / "stream_ORDERS.json"
    document = json.loads(path.read_text())
    document["configuration"] = base64.b64encode(b'{"name":"OTHER"}').decode()
    path.write_text(json.dumps(document))
    assert natsctl("restore", str(tmp_path / "b")).code == 1
    assert natsctl("str", "ls", "-n").out == ""
    assert natsctl("backup", "verify", str(tmp_path / "b")).code == 1


@pytest.mark.ours("nats-server has had no stream templates since 2.14")
def test_templates_are_saved_and_come_back(natsctl: Run, tmp_path: Path) -> None:
    made = natsctl("str", "template", "add", "CLIENTS", "--subjects", "CLIENT.*", "--max-streams", "7")
    assert made.code == 0
    assert natsctl("backup", str(tmp_path / "b"), "-j").json["templates"] == ["CLIENTS"]
    assert natsctl("str", "template", "rm", "CLIENTS", "-f").code == 0
    assert natsctl("restore", str(tmp_path / "b"), "-j").json["templates"] == ["CLIENTS"]
    try:
        assert natsctl("str", "template", "info", "CLIENTS", "-j").json["config"]["max_streams"] == 7
    finally:
        assert natsctl("str", "template", "rm", "CLIENTS", "-f").code == 0
