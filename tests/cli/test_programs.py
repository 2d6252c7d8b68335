"""Programs named natsctl-NAME are commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from natsctl.cli.framework.programs import programs
from natsctl.cli.main import run


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    make(folder, "hello", '#!/bin/sh\necho "hello $# $1 $2 $NATS_URL"\ncat\nexit 42\n')
    return folder


def make(folder: Path, name: str, text: str) -> None:
    file = folder / f"natsctl-{name}"
    file.write_text(text)
    file.chmod(0o755)


def natsctl(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "natsctl", *words]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, input="from stdin\n", timeout=60
    )


def test_a_program_has_the_words_stdin_environment_and_exit_code_of_its_command(on_path: Path) -> None:
    done = natsctl("hello", "two words", "--json", NATS_URL="nats://there")
    assert (done.returncode, done.stdout) == (42, "hello 2 two words --json nats://there\nfrom stdin\n"), done.stderr
    assert natsctl("help", "hello").stdout.startswith("hello 1 --help ")


def test_programs_stand_in_help_and_are_what_may_have_been_meant(
    on_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    make(on_path, "stream", "#!/bin/sh\necho not me\n")
    make(on_path, "UPPER", "#!/bin/sh\n")
    (on_path / "natsctl-note").write_text("not to be run")
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "Programs on PATH:" in shown
    assert shown.count(str(on_path)) == 1
    assert f"hello  {on_path}/natsctl-hello" in " ".join(shown.split()).replace("hello ", "hello  ")
    assert run(["helo"]) == 2
    assert 'did you mean "hello"' in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(on_path / "nowhere"))
    assert run(["--help"]) == 0
    assert "Programs" not in capsys.readouterr().out


def test_a_command_of_natsctl_is_never_another_program(on_path: Path) -> None:
    make(on_path, "errors", "#!/bin/sh\necho not me\n")
    make(on_path, "err", "#!/bin/sh\necho not me\n")
    for word in ("errors", "err"):
        done = natsctl(word, "lookup", "10059")
        assert (done.returncode, "not me" in done.stdout) == (0, False)


@pytest.mark.parametrize("word", ("../hello", "hello/", "a/../hello", "hel lo", "-", "HELLO", "Ä"))
def test_what_is_no_name_is_no_program(on_path: Path, capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert run([word]) == 2
    assert "unknown" in capsys.readouterr().err


def test_flags_that_the_program_would_not_see_are_refused(on_path: Path) -> None:
    done = natsctl("--server", "nats://there", "hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert "NATS_URL" in done.stderr


def test_a_program_that_can_not_be_run_is_told_with_its_path(on_path: Path) -> None:
    make(on_path, "broken", "no line that says what runs it\n")
    done = natsctl("broken")
    assert (done.returncode, f"{on_path}/natsctl-broken cannot be run" in done.stderr) == (1, True)


def test_of_two_programs_with_one_name_the_first_on_path_counts(
    on_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "hello", "#!/bin/sh\n")
    make(tmp_path, "other", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{on_path}{os.pathsep}{tmp_path}")
    assert programs() == {"hello": f"{on_path}/natsctl-hello", "other": f"{tmp_path}/natsctl-other"}
