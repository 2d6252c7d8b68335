"""`natsctl backup`, `natsctl restore` and their exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.main import run


def _make(url: str) -> None:
    assert run(["-s", url, "str", "add", "ORDERS", "--subjects", "ORDERS.*", "--defaults"]) == 0
    assert run(["-s", url, "con", "add", "ORDERS", "NEW", "--pull", "--filter", "ORDERS.received", "--defaults"]) == 0


@pytest.mark.both
def test_the_log_lines_are_those_of_the_specification(
    server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _make(server.url)
    capsys.readouterr()
    folder = tmp_path / "js-backup"
    assert run(["-s", server.url, "backup", str(folder)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in said.err.splitlines()] == [
        f"Creating JetStream backup into {folder}",
        f"Stream ORDERS to {folder}/stream_ORDERS.json",
        f"Consumer ORDERS > NEW to {folder}/stream_ORDERS_consumer_NEW.json",
        "Configuration backup complete",
    ]
    assert run(["-s", server.url, "restore", str(folder), "--update-streams"]) == 0
    assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in capsys.readouterr().err.splitlines()] == [
        f"Reading file {folder}/stream_ORDERS.json",
        f"Reading file {folder}/stream_ORDERS_consumer_NEW.json",
        "Updating Stream ORDERS configuration",
        "Restoring Consumer ORDERS > NEW",
    ]


@pytest.mark.both
def test_restoring_onto_an_existing_stream_is_a_conflict(
    server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _make(server.url)
    assert run(["-s", server.url, "backup", str(tmp_path / "b")]) == 0
    assert run(["-s", server.url, "restore", str(tmp_path / "b")]) == 4
    assert "--update-streams" in capsys.readouterr().err


@pytest.mark.both
def test_data_is_saved_so_that_stream_restore_reads_it(
    server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _make(server.url)
    assert run(["-s", server.url, "pub", "ORDERS.received", "hello"]) == 0
    capsys.readouterr()
    assert run(["-s", server.url, "backup", str(tmp_path / "b"), "--data", "-j"]) == 0
    assert json.loads(capsys.readouterr().out)["data"] == ["ORDERS"]
    assert run(["-s", server.url, "str", "rm", "ORDERS", "-f"]) == 0
    assert run(["-s", server.url, "str", "restore", "ORDERS", str(tmp_path / "b" / "stream_ORDERS.tgz"), "-j"]) == 0
    assert json.loads(capsys.readouterr().out)["state"]["messages"] == 1


@pytest.mark.both
def test_one_file_of_a_backup_can_be_restored_alone(
    server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _make(server.url)
    assert run(["-s", server.url, "backup", str(tmp_path / "b")]) == 0
    assert run(["-s", server.url, "con", "rm", "ORDERS", "NEW", "-f"]) == 0
    capsys.readouterr()
    file = str(tmp_path / "b" / "stream_ORDERS_consumer_NEW.json")
    assert run(["-s", server.url, "restore", "--file", file, "-j"]) == 0
    assert json.loads(capsys.readouterr().out)["consumers"] == ["ORDERS > NEW"]
