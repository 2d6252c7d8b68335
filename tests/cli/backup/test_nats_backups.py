"""Backups that the nats tool has made, in releases from 0.1.6 on, and what the tool makes of ours.

The folders below nats/ are named after the tool: 0.1.6 and 0.2.4 saved them from nats-server 2.10.26 (version 1), 0.4.0
from 2.15.1 (version 2 under the older name) and 0.5.1 from 2.15.2. Each ORDERS has messages 1, 2, 4, 5 and 6, and a
consumer that has had the first two of them acknowledged.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from natsctl.testing.done import Done

SAVED = Path(__file__).parent / "nats"
RELEASES = sorted(path.name for path in SAVED.iterdir())
SEQUENCES = [1, 2, 4, 5, 6]


@pytest.fixture
def offline(command: Callable[[str], Callable[..., Done]]) -> Callable[..., Done]:
    """Runs a command line where no server is."""
    return command("nats://127.0.0.1:9")


def test_there_are_backups_of_four_releases() -> None:
    assert RELEASES == ["0.1.6", "0.2.4", "0.4.0", "0.5.1"]


@pytest.mark.parametrize("release", RELEASES)
def test_backups_of_each_release_of_the_tool_are_read(offline: Callable[..., Done], release: str) -> None:
    folder = SAVED / release
    verdict = offline("backup", "verify", str(folder), "-j")
    assert (verdict.code, verdict.json["whole"]) == (0, True)
    listed = offline("backup", "ls", str(folder), "-j")
    version = 1 if release in ("0.1.6", "0.2.4") else 2
    assert (listed.code, {one["archive"] for one in listed.json}) == (0, {version})
    orders = str(folder / "ORDERS")
    assert [one["seq"] for one in offline("backup", "cat", orders, "-j").lines] == SEQUENCES
    assert offline("backup", "cat", orders, "--seq", "4", "--raw").out.strip() == "order 4 of the day"
    (consumer,) = offline("backup", "inspect", orders, "-j").json["consumers"]
    assert (consumer["name"], consumer["ack_floor"], consumer["pending"]) == ("NEW", 2, 0)


@pytest.mark.parametrize("release", RELEASES)
def test_backups_of_each_release_of_the_tool_are_restored(natsctl: Callable[..., Done], release: str) -> None:
    if release == "0.1.6":
        assert natsctl("str", "restore", str(SAVED / release / "ORDERS"), "-j").code == 0
    else:
        assert natsctl("account", "restore", str(SAVED / release), "-j").code == 0
        assert natsctl("kv", "get", "CONFIG", "a", "--raw").out.strip() == "b"
    state = natsctl("str", "info", "ORDERS", "-j").json["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (5, 1, 6)
    assert natsctl("con", "next", "ORDERS", "NEW", "--raw").out.strip() == "order 4 of the day"


@pytest.mark.skipif(shutil.which("nats") is None, reason="the nats tool is not on PATH")
def test_the_tool_validates_and_restores_what_was_saved_here(natsctl: Callable[..., Done], tmp_path: Path) -> None:
    assert natsctl("str", "restore", str(SAVED / "0.5.1" / "ORDERS"), "-j").code == 0
    target = tmp_path / "ORDERS"
    assert natsctl("str", "backup", "ORDERS", str(target)).code == 0
    assert (target / "stream.arc.s2").exists()

    def nats(*words: str) -> str:
        done = subprocess.run(["nats", *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "OK: 8 entries, 1 consumers, 5 messages" in nats("backup", "validate", str(target))
    assert "First Sequence: 1" in nats("backup", "info", str(target))
    assert natsctl("str", "rm", "ORDERS", "-f").code == 0
    nats("backup", "restore", "stream", str(target), "--no-progress")
    assert natsctl("str", "info", "ORDERS", "-j").json["state"]["messages"] == 5


def test_an_edited_backup_is_valid_for_the_tool(offline: Callable[..., Done], tmp_path: Path) -> None:
    target = tmp_path / "FEW"
    assert offline("backup", "edit", str(SAVED / "0.2.4" / "ORDERS"), str(target), "--seq", "2-4").code == 0
    assert json.loads((target / "manifest.json").read_text())["files"][1]["name"] == "stream.arc.s2"
    assert offline("backup", "verify", str(target)).code == 0
    if shutil.which("nats") is not None:
        done = subprocess.run(["nats", "backup", "validate", str(target)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
