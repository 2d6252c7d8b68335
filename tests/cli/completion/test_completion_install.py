"""`natsctl completion install` puts the script where the shell finds it, once."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from natsctl.cli.completion import SCRIPTS
from natsctl.cli.main import run

install = importlib.import_module("natsctl.cli.completion")
Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def completion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(install, "BASH_COMPLETION", ())

    def ask(*words: str) -> tuple[int, str, str]:
        return (run(["completion", *words]), *capsys.readouterr())

    return ask


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_as_it_is_kept(completion: Ask, shell: str) -> None:
    assert completion(shell)[:2] == (0, SCRIPTS[shell])


@pytest.mark.parametrize(
    ("shell", "script", "startup"),
    [
        ("bash", ".local/share/bash-completion/completions/natsctl", ".bashrc"),
        ("zsh", ".local/share/zsh/site-functions/_natsctl", ".zshrc"),
        ("fish", ".config/fish/completions/natsctl.fish", ""),
    ],
)
def test_installing_twice_changes_nothing(
    completion: Ask, tmp_path: Path, shell: str, script: str, startup: str
) -> None:
    if startup:
        (tmp_path / startup).write_text("alias ll='ls -l'")
    planned = json.loads(completion("install", shell, "--dry-run", "-j")[1])
    assert not (tmp_path / script).exists()
    first = json.loads(completion("install", shell, "-j")[1])
    wanted = [str(tmp_path / path) for path in (script, startup) if path]
    assert first["changed"] == wanted == [one["subject"] for one in planned["requests"]]
    assert (tmp_path / script).read_text() == SCRIPTS[shell]
    if startup:
        lines = (tmp_path / startup).read_text().splitlines()
        assert lines[0] == "alias ll='ls -l'"
        assert lines[1].endswith("# natsctl completion")
    assert json.loads(completion("install", shell, "-j")[1])["changed"] == []
    assert "installed already" in completion("install", shell)[1]


def test_bash_finds_the_script_itself_where_its_package_is(
    completion: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "BASH_COMPLETION", ("/",))
    assert json.loads(completion("install", "bash", "-j")[1])["startup"] == ""
    assert not (tmp_path / ".bashrc").exists()


def test_the_shell_is_yours_unless_named(completion: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert json.loads(completion("install", "-j")[1])["shell"] == "fish"
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    code, _, err = completion("install")
    assert (code, "bash, zsh or fish" in err) == (2, True)
