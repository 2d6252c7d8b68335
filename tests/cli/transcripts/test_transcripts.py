"""The same lines on both tools: equal success, equal stdout of --raw and JSON, and the same left on the server.

The tool's side is recorded (played.py); where `nats` is on PATH one group of it is played again, so that the record is
known to be its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.testing.process import ServerProcess
from tests.cli.transcripts.played import RECORDED, by_program, groups, in_process, played

RECORD: dict[str, Any] = json.loads(RECORDED.read_text())
DIFFERING: dict[str, str] = {
    "nats req nobody.there x --raw": "a request that nobody answers is a failure, exit 5",
    "nats con next ORDERS NEW --term --raw": "--raw is bodies alone: the tool names a terminated message below it",
}
"""Lines that end differently on purpose, and why."""


def test_every_line_is_recorded() -> None:
    lines = groups()
    assert sum(map(len, lines.values())) >= 200
    recorded = {name: [one["line"] for one in group["done"]] for name, group in RECORD.items()}
    assert recorded == {name: [line.text for line in group] for name, group in lines.items()}
    assert DIFFERING.keys() <= {text for group in recorded.values() for text in group}


@pytest.mark.parametrize("group", list(groups()))
def test_natsctl_does_what_the_tool_did(
    natsctl: Callable[..., Any],
    shared_server: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    play = in_process(shared_server.url)
    ours, theirs = played(groups()[group], play, play), RECORD[group]
    for our, their in zip(ours["done"], theirs["done"], strict=True):
        assert (our == their) is (our["line"] not in DIFFERING), (our, their)
    assert ours["left"].keys() == theirs["left"].keys()
    for stream, kept in theirs["left"].items():
        assert ours["left"][stream] == kept


@pytest.mark.reference("nats")
def test_the_record_is_what_the_tool_does(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "reference") as server:
        again = played(groups()["request"], by_program(["nats"], server.url), in_process(server.url))
    assert again == RECORD["request"]
