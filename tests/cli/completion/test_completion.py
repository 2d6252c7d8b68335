"""Completion: what may stand in place of a word, the scripts, and the shells themselves at a pseudo-terminal."""

import importlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.completion import script as script_of
from natsctl.cli.framework import name_cache, server_names
from natsctl.cli.framework.candidates import ANY_FILE, candidates, shown, split
from natsctl.cli.framework.name_cache import NameCache
from natsctl.cli.framework.nouns import NOUNS
from natsctl.client.one_shot import open_one_shot
from natsctl.client.servers import Target, TargetKind
from natsctl.client.settings import Settings
from tests.cli.conftest import eventually
from tests.support.commands import Run

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


@pytest.mark.ours("completion asks by requests that other tests hold to both servers")
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


@pytest.mark.ours("completion asks by requests that other tests hold to both servers")
def test_a_server_that_is_named_is_the_one_that_is_asked(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    there = os.environ["NATS_URL"]
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    assert words("stream", "info", "-s", there, "") == ["ORDERS"]
    assert words(f"--server={there}", "stream", "info", "") == ["ORDERS"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    urls: list[str] = []

    def opened(target: Any, deadline_s: float) -> Any:
        urls.append(target.urls[0])
        return open_one_shot(target, deadline_s)

    monkeypatch.setattr(server_names, "open_one_shot", opened)
    return urls


@pytest.mark.ours("completion asks by requests that other tests hold to both servers")
def test_names_of_the_last_minute_need_no_server(
    natsctl: Run, asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    assert words("stream", "info", "") == words("stream", "info", "ORD") == ["ORDERS"]
    assert words("stream", "info", "X") == []  # a name that is not known may be new
    natsctl("str", "info", "ORDERS")
    assert words("stream", "info", "ORD") == ["ORDERS"] and len(asked) == 2
    [file] = (folder := tmp_path / "natsctl" / "completion").iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    file.chmod(0o644)
    assert words("stream", "info", "") == ["ORDERS"] and len(asked) == 3
    natsctl("str", "add", "ORDERS2", "--subjects", "other.>")
    assert words("stream", "info", "ORD") == ["ORDERS", "ORDERS2"] and len(asked) == 4
    monkeypatch.setattr(name_cache.time, "time", lambda now=time.time: now() + name_cache.KEPT_S)
    assert words("stream", "info", "") == ["ORDERS", "ORDERS2"] and len(asked) == 5


def test_names_are_kept_for_one_context_address_and_login(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of one account")
    files = dict.fromkeys(("creds", "nkey", "cert", "key"), str(secret))
    target = Target(TargetKind.NAMED, ("nats://h",), "context lab", Settings(**files))
    changed = [{name: "other"} for name, value in target.settings._asdict().items() if isinstance(value, str)]
    others = [target._replace(settings=target.settings._replace(**change)) for change in changed]
    others += [target._replace(urls=("nats://u:p@h",)), target._replace(origin="context prod")]
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    NameCache(target, environment).keep("q", ["ORDERS"])
    assert NameCache(target, environment).names("q") == ["ORDERS"] and len(others) > 15
    assert all(NameCache(other, environment).names("q") is None for other in others)
    secret.write_text("of another account")
    assert NameCache(target, environment).names("q") is None


def test_the_file_of_names_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_cache, "MAX_FILE_BYTES", 1000)
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    for number in range(name_cache.MAX_FILES + 10):
        cache = NameCache(Target(TargetKind.NAMED, (f"nats://h{number}",), "", Settings()), environment)
        for query in "abc":
            cache.keep(query, ["X" * 400])
        cache.keep("d", ["X" * 2000])
    assert cache.names("c") == ["X" * 400] and cache.names("a") is cache.names("d") is None
    files = list(Path(name_cache.cache_folder(environment)).iterdir())
    assert 1 < len(files) <= name_cache.MAX_FILES and all(file.stat().st_size <= 1000 for file in files)
    files[0].write_text("damaged")
    name_cache.forget_names(environment)
    assert not list(Path(name_cache.cache_folder(environment)).iterdir())


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
    from natsctl.cli.framework.candidates import Candidate

    def for_bash(line: str, *found: str, breaks: str = "=:") -> str:
        return shown([Candidate(one) for one in found], "bash", line, breaks)

    assert for_bash("natsctl str add --storage=f", "--storage=file") == "file\n"
    assert for_bash("natsctl str add --storage=f", "--storage=file", breaks="") == "--storage=file\n"
    assert for_bash("natsctl obj get B th", "the file", "$x") == "the\\ file\n\\$x\n"
    assert for_bash('natsctl obj get B "th', "the file") == "the file\n"
    assert shown([Candidate("a", "b\nc"), Candidate("\x1b[1m")], "zsh", "", "") == "a\tb c\n"


install = importlib.import_module("natsctl.cli.completion")


@pytest.fixture
def completion(offline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(install, "BASH_COMPLETION", ())
    return partial(offline, "completion")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_as_it_is_kept(completion: Run, shell: str) -> None:
    assert completion(shell)[:2] == (0, script_of(shell))


@pytest.mark.parametrize(
    ("shell", "script", "startup"),
    [
        ("bash", ".local/share/bash-completion/completions/natsctl", ".bashrc"),
        ("zsh", ".local/share/zsh/site-functions/_natsctl", ".zshrc"),
        ("fish", ".config/fish/completions/natsctl.fish", ""),
    ],
)
def test_installing_twice_changes_nothing(
    completion: Run, tmp_path: Path, shell: str, script: str, startup: str
) -> None:
    if startup:
        (tmp_path / startup).write_text("alias ll='ls -l'")
    planned = json.loads(completion("install", shell, "--dry-run", "-j")[1])
    assert not (tmp_path / script).exists()
    first = json.loads(completion("install", shell, "-j")[1])
    wanted = [str(tmp_path / path) for path in (script, startup) if path]
    assert first["changed"] == wanted == [one["subject"] for one in planned["requests"]]
    assert (tmp_path / script).read_text() == script_of(shell)
    if startup:
        lines = (tmp_path / startup).read_text().splitlines()
        assert lines[0] == "alias ll='ls -l'"
        assert lines[1].endswith("# natsctl completion")
    assert json.loads(completion("install", shell, "-j")[1])["changed"] == []
    assert "installed already" in completion("install", shell)[1]


def test_bash_finds_the_script_itself_where_its_package_is(
    completion: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "BASH_COMPLETION", ("/",))
    assert json.loads(completion("install", "bash", "-j")[1])["startup"] == ""
    assert not (tmp_path / ".bashrc").exists()


def test_the_shell_is_yours_unless_named(completion: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert json.loads(completion("install", "-j")[1])["shell"] == "fish"
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    code, _, err = completion("install")
    assert (code, "bash, zsh or fish" in err) == (2, True)


WITHIN_S = 60
START = {
    "bash": (
        ["--norc", "--noprofile", "-i"],
        "PS1='ready> '; bind 'set enable-bracketed-paste off'; source '{script}'",
    ),
    "zsh": (["-f", "-i"], "PS1='ready> '; autoload -Uz compinit; compinit -u -d '{script}.dump'; source '{script}'"),
    "fish": (["--no-config", "-i"], "function fish_prompt; echo 'ready> '; end; source '{script}'"),
}


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, tmp_path: Path, natsctl: Run) -> Iterator[Any]:
    name = request.param
    pexpect = pytest.importorskip("pexpect")
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    natsctl("str", "add", "ORDERS", "--subjects", "ORDERS.*")
    script = tmp_path / f"natsctl.{name}"
    script.write_text(script_of(name))
    arguments, setup = START[name]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "dumb" if name != "fish" else "xterm",
        "NATSCTL_COMPLETION_MS": "20000",
    }
    child = pexpect.spawn(name, arguments, env=environment, encoding="utf-8", timeout=WITHIN_S, dimensions=(40, 200))
    child.sendline(setup.format(script=script))
    child.sendline("echo go''ing")
    child.expect_exact("going")
    yield child
    child.close(force=True)


@pytest.mark.ours("completion asks by requests that other tests hold to both servers")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("natsctl strea\tinf\tORD\t", "stream info ORDERS"),
        ("natsctl stream add X --storage=f\t", "--storage=file"),
    ],
)
def test_a_tab_completes_commands_values_and_names(shell: Any, typed: str, completed: str) -> None:
    for part in typed.split("\t")[:-1]:
        shell.send(f"{part}\t")
    shell.send("\x01echo got \r")  # to the beginning of the line, so that the shell says what it has
    shell.expect_exact(f"got natsctl {'' if 'stream info' in completed else 'stream add X '}{completed}")
