"""Lines that cannot be meant: each ends with 2, names what is missing or wrong, prints nothing and changes nothing."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import groups_of
from tests.support.commands import Run

pytestmark = pytest.mark.ours("what is wrong is found before a server is asked")


REASONS = {"empty": "empty", "huge": "too large"}
FILLED = (
    "str add S --subjects s.* --allow-direct", "con add S C --pull", "con add S NOACK --pull --ack none",
    "str add HITS --subjects hits.> --allow-counter", "counter incr hits.a", "kv add HELD", "pub s.a x -J -q",
    "kv add B", "kv put B k v", "object add O",
)  # fmt: skip
SAVED = Path(__file__).parent / "backup" / "nats" / "0.5.1" / "ORDERS"
LINES = groups_of("usage_errors.txt")
"""Lines by noun, each with what its error names."""


@pytest.mark.parametrize("group", LINES)
def test_what_is_missing_or_wrong_is_named(
    natsctl: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, group: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in FILLED:
        assert natsctl(*shlex.split(line)).code == 0, line
    before = [natsctl("str", "info", name, "-j").json["state"] for name in ("S", "HITS", "KV_HELD")]
    for line, _, named in (row.replace("{saved}", str(SAVED)).partition("  →  ") for row in LINES[group]):
        done = natsctl(*shlex.split(line))
        assert (done.code, done.out, named in done.err) == (2, "", True), (line, done)
        assert REASONS.get(group, "") in done.err, (line, done)
    assert [natsctl("str", "info", name, "-j").json["state"] for name in ("S", "HITS", "KV_HELD")] == before
    assert natsctl("str", "ls", "-a", "-n").out.split() == ["HITS", "KV_B", "KV_HELD", "OBJ_O", "S"]
    assert list(tmp_path.iterdir()) == []


def test_a_websocket_without_its_package_is_told(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    done = natsctl("-s", "ws://127.0.0.1:1", "str", "ls", "-j")
    assert (done.code, "aiohttp" in done.error["description"]) == (2, True)


def test_an_invalid_subject_in_a_file_is_named(natsctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: BAD\nsubjects: [ok, 'a b']\n")
    for command in ("str add --config", "validate -f", "apply -f"):
        done = natsctl(*command.split(), str(path))
        assert (done.code, "'a b'" in done.err + done.out) == (2, True), (command, done)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("str", "info", "S", "x" * 300 + ". Did you mean y..."),
            "unexpected argument: " + "x" * 300 + ". Did you mean y...",
        ),
        (("str", "ls", "--" + "z" * 300), "unknown flag --" + "z" * 300),
        (("pub", "s.a", "x", "--count", "y" * 300), f"--count: {'y' * 300!r} is not a whole number"),
        (("pub", "s.a", "x", "--count", "-3"), "--count: -3 is not at least 1"),
        (("str", "add", "N", "--storage", "w" * 300), f"not {'w' * 300!r}"),
    ],
)
def test_the_text_of_a_usage_error_is_whole(
    natsctl: Run, words: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    done = natsctl(*words)
    assert (done.code, text in done.err) == (2, True), done.err


def test_backup_in_a_wrong_order_writes_no_folder(
    natsctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    lines = ("backup stream", "backup stream S", "backup str --data", "backup account", "backup restore", "backup con")
    for line in lines:
        done = natsctl(*line.split())
        assert done.code == 2, (line, done)
    assert "natsctl stream backup" in natsctl("backup", "str").err
    assert list(folder.iterdir()) == []
