"""The command line's core: finding commands, global options, exit codes, what goes to which stream."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from natsctl import __version__
from natsctl.api.errors import ExitCode
from natsctl.cli.main import run
from natsctl.cli.nouns import NOUNS
from natsctl.cli.output import error_object, exit_code_of, render_error

Run = Callable[..., Any]


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_and_alias_has_help(noun: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for word in (noun.name, *noun.aliases):
        for words in ([word, "--help"], [word, "-h"], ["help", word]):
            assert run(words) == 0
            assert f"Usage: natsctl {noun.name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["strem", "ls"], '"stream"'),
        (["stream", "inof"], '"info"'),
        (["stream", "ls", "--subjct", "x"], '"--subject"'),
        (["stream", "ls", "--timout", "1s"], '"--timeout"'),
        (["--srver", "x", "stream", "ls"], '"--server"'),
    ],
)
def test_a_misspelt_word_is_a_usage_error_with_what_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert meant in said.err


def test_global_options_stand_before_or_after_the_command(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = os.environ["NATS_URL"].removeprefix("nats://")
    monkeypatch.delenv("NATS_URL")
    for line in (f"-s {bare} stream ls -n", f"stream -s {bare} ls -n", f"str ls -n --server={bare} --timeout 3s"):
        assert natsctl(*line.split()).code == 0


def test_trace_shows_requests_on_stderr_and_keeps_stdout(natsctl: Run) -> None:
    done = natsctl("--trace", "account", "info", "-j")
    assert done.json["limits"]
    assert ">>> $JS.API.INFO" in done.err
    assert "<<< $JS.API.INFO" in done.err


def test_an_unexpected_failure_is_one_line_and_exit_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode(words: list[str]) -> int:
        raise KeyError("surprise")

    monkeypatch.setattr("natsctl.cli.main._dispatch", explode)
    assert run(["stream", "ls"]) == ExitCode.FAILED
    assert capsys.readouterr().err == "natsctl: error: unexpected KeyError: 'surprise'\n"
    assert run(["stream", "ls", "--trace"]) == ExitCode.FAILED
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.ours("signals do not reach a server")
def test_ctrl_c_is_exit_130_and_silent(natsctl: Run, begun: Run) -> None:
    process = begun("sub", "news")
    assert "Subscribing" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, "")
    assert "Traceback" not in err


@pytest.mark.ours("a pipe does not reach a server")
def test_a_reader_that_has_gone_is_no_error(natsctl: Run) -> None:
    line = f"{sys.executable} -m natsctl account info -j | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert (done.stderr, done.stdout.strip()) == ("", "0")


@pytest.mark.parametrize("code", list(ExitCode))
def test_a_failures_own_exit_code_is_the_one_that_is_used(code: ExitCode) -> None:
    failure = type("Failure", (Exception,), {"exit_code": int(code)})()
    assert exit_code_of(failure) is code


def test_an_error_text_cannot_drive_the_terminal() -> None:
    from natsctl.api.errors import UsageError

    assert "\x1b" not in render_error(UsageError("bad \x1b[2J name"), as_json=False)
    assert error_object(UsageError("x", hint="y"))["error"]["hint"] == "y"


PLAIN = (
    "stream info ORDERS -j",
    "stream ls -n",
    "stream ls -n -j",
    "consumer info ORDERS NEW -j",
    "consumer ls ORDERS -n",
    "publish ORDERS.new hello -q",
    "publish ORDERS.new hello -J -j -H Nats-Msg-Id:1",
    "kv put CONFIG key value -j",
    "kv get CONFIG key --raw",
    "kv get CONFIG key -j",
    "kv ls -n",
)
"""Command lines that a plain server is asked without what is slow to import."""
SLOW = {"asyncio", "dataclasses", "inspect", "msgspec", "nats", "orjson", "rich", "ssl", "typer", "yaml"}


@pytest.mark.ours("what is imported depends on no server")
def test_a_plain_server_is_asked_without_what_is_slow_to_import(natsctl: Run) -> None:
    for line in ("str add ORDERS --subjects ORDERS.*", "con add ORDERS NEW --pull", "kv add CONFIG"):
        assert natsctl(*line.split()).code == 0
    code = (
        "import sys; from natsctl.cli.main import run; slow = set(sys.argv[2].split());\n"
        "for line in sys.argv[3:]:\n"
        "    print(line, run(['-s', sys.argv[1], *line.split()]), *sorted(slow & set(sys.modules)), file=sys.stderr)"
    )
    words = [os.environ["NATS_URL"], " ".join(SLOW), *PLAIN]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.stderr.splitlines() == [f"{line} 0" for line in PLAIN]
    assert '"config"' in done.stdout
    assert '"seq": 2' in done.stdout
    assert '"value": "value"' in done.stdout
