"""What may stand in place of a word: commands, flags, fixed values, files, contexts, and names that a server has."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.candidates import ANY_FILE, candidates, shown, split
from natsctl.cli.nouns import NOUNS
from tests.cli.conftest import eventually

Run = Callable[..., Any]
LONG_S = 20.0


def words(*typed: str) -> list[str]:
    """The candidates for the last of the words, with all the time there is."""
    return [one.word for one in candidates(typed, time.monotonic() + LONG_S)]


def test_commands_are_completed_by_name_and_where_no_name_fits_by_alias() -> None:
    assert words("") == [noun.name for noun in NOUNS]
    assert words("str") == ["stream"]
    assert words("ctx") == ["ctx"]
    assert words("stream", "inf") == ["info"]
    assert words("str", "ne") == ["new"]
    assert words("stream", "cluster", "step") == ["step-down"]
    assert words("nope", "") == []
    assert words("stream", "nope", "") == []


def test_flags_are_those_of_the_command_and_of_every_command() -> None:
    assert words("stream", "add", "X", "--st") == ["--storage"]
    assert words("stream", "add", "X", "--no-al")[:1] == ["--no-allow-batch"]
    assert "--server" in words("--ser")
    assert "--creds" in words("stream", "ls", "--cr")
    assert words("stream", "ls", "--storage") == []


def test_values_of_flags_are_completed_behind_a_blank_and_behind_an_equals_sign() -> None:
    assert words("stream", "add", "X", "--storage", "") == ["file", "memory"]
    assert words("stream", "add", "X", "--storage=f") == ["--storage=file"]
    assert words("consumer", "add", "S", "C", "--ack", "ex") == ["explicit"]
    assert words("stream", "add", "X", "--max-age", "") == []
    assert words("stream", "add", "X", "--config", "") == [ANY_FILE]
    assert words("stream", "add", "X", "--config=or") == [ANY_FILE]


def test_contexts_schemas_and_errors_need_no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    for name in ("prod", "lab"):
        (folder / f"{name}.json").write_text("{}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert words("context", "select", "") == ["lab", "prod"]
    assert words("--context", "p") == ["prod"]
    assert words("stream", "ls", "--context=l") == ["--context=lab"]
    assert words("errors", "lookup", "1005")[:1] == ["10050"]
    assert "stream_configuration" in words("schema", "info", "stream_conf")
    assert words("completion", "install", "") == ["bash", "zsh", "fish"]


def test_names_are_those_that_the_server_has(natsctl: Run) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    natsctl("str", "add", "OTHER", "--subjects", "other.>")
    natsctl("con", "add", "ORDERS", "NEW", "--pull")
    natsctl("pub", "ORDERS.new", "x", "-J")
    natsctl("kv", "add", "CFG")
    natsctl("kv", "put", "CFG", "a.b", "1")
    natsctl("kv", "add", "COPY", "--mirror", "CFG")
    natsctl("object", "add", "FILES")
    natsctl("object", "put", "FILES", "-", "--name", "the file", stdin=b"x")
    assert words("stream", "info", "") == ["ORDERS", "OTHER"]
    assert words("stream", "info", "OR") == ["ORDERS"]
    assert words("stream", "info", "KV_") == ["KV_CFG", "KV_COPY"]
    assert words("consumer", "info", "ORDERS", "") == ["NEW"]
    assert words("consumer", "info", "--json", "ORDERS", "N") == ["NEW"]
    assert words("publish", "ORDERS.") == ["ORDERS.*", "ORDERS.new"]
    assert words("consumer", "add", "ORDERS", "X", "--filter", "a,ORDERS.n") == ["a,ORDERS.new"]
    assert words("kv", "get", "") == ["CFG", "COPY"]
    assert words("kv", "get", "CFG", "a") == ["a.b"]
    assert eventually(lambda: words("kv", "get", "COPY", "a")) == ["a.b"]  # once the server has copied it
    assert words("object", "get", "FILES", "") == ["the file"]
    for name in ("KV_CFG", "KV_COPY", "OBJ_FILES"):
        natsctl("str", "rm", name, "-f")


def test_a_server_that_is_named_is_the_one_that_is_asked(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    there = os.environ["NATS_URL"]
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    assert words("stream", "info", "-s", there, "") == ["ORDERS"]
    assert words(f"--server={there}", "stream", "info", "") == ["ORDERS"]


def test_without_a_server_there_is_silence_and_no_server_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("NATS_URL", "NATS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NATSCTL_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("natsctl.client.servers.DEFAULT_URL", "nats://127.0.0.1:1")
    assert words("stream", "info", "") == []
    assert words("stream", "info", "-s", "wss://127.0.0.1:1", "") == []
    assert words("stream", "info", "--creds", "/nonexistent", "") == []
    assert not (tmp_path / "data").exists()


def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_a_person_waits(begun: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        patient, done = (
            begun("__complete", "zsh", "stream", "info", "", env={**os.environ, "NATS_URL": url, **limit})
            for limit in ({"NATSCTL_COMPLETION_MS": "600000"}, {"NATSCTL_COMPLETION_MS": "300"})
        )
        assert done.communicate(timeout=60) == ("", "")
        assert (done.returncode, patient.poll()) == (0, None)


def test_nothing_slow_is_loaded() -> None:
    program = (
        "import sys; from natsctl.cli.main import run; run(['__complete', 'zsh', 'stream', 'add', 'X', '--st']);"
        "print(sorted({'typer', 'nats', 'rich', 'asyncio', 'questionary', 'yaml', 'dataclasses', 'inspect'}"
        " & set(sys.modules)), file=sys.stderr)"
    )
    environment = {**os.environ, "NATSCTL_COMPLETION_MS": "20000"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True, env=environment
    )
    assert done.stdout.startswith("--storage\t")
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("natsctl str info OR", ["str", "info", "OR"]),
        ("natsctl ", [""]),
        ("natsctl pub 'a b' \"c", ["pub", "a b", "c"]),
        (r"natsctl kv get B a\ b", ["kv", "get", "B", "a b"]),
        ("natsctl pub '' x", ["pub", "", "x"]),
    ],
)
def test_a_line_of_bash_is_split_as_bash_splits_it(line: str, expected: list[str]) -> None:
    assert split(line) == expected


def test_bash_is_given_what_it_puts_behind_its_last_break() -> None:
    from natsctl.cli.candidates import Candidate

    def for_bash(line: str, *found: str, breaks: str = "=:") -> str:
        return shown([Candidate(one) for one in found], "bash", line, breaks)

    assert for_bash("natsctl str add --storage=f", "--storage=file") == "file\n"
    assert for_bash("natsctl str add --storage=f", "--storage=file", breaks="") == "--storage=file\n"
    assert for_bash("natsctl obj get B th", "the file", "$x") == "the\\ file\n\\$x\n"
    assert for_bash('natsctl obj get B "th', "the file") == "the file\n"
    assert shown([Candidate("a", "b\nc"), Candidate("\x1b[1m")], "zsh", "", "") == "a\tb c\n"


def test_what_commands_declare_is_kept_as_data(tmp_path: Path) -> None:
    from natsctl.cli.candidates import COMMANDS

    tables = {file.stem: json.loads(file.read_text()) for file in COMMANDS.glob("*.json")}
    assert set(tables) == {noun.name for noun in NOUNS}
