"""The command line's core: commands, global options, exit codes, streams, signals, and the session of a command."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from natsctl import __version__
from natsctl.api.errors import ExitCode, UnreachableError, UsageError
from natsctl.cli.framework.command_line import find, leading, take_out, wants_json
from natsctl.cli.framework.nouns import BY_WORD, NOUNS
from natsctl.cli.framework.output import error_object, exit_code_of, render_error
from natsctl.cli.framework.session import GlobalOptions, Session
from natsctl.cli.main import run
from natsctl.testing.process import ServerProcess
from tests.support.commands import Run


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_and_alias_has_help(noun: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for word in noun.words:
        for words in ([word, "--help"], [word, "-h"], ["help", word]):
            assert run(words) == 0
            assert f"Usage: natsctl {noun.name}" in capsys.readouterr().out


@pytest.mark.ours("options of the command line")
def test_global_options_stand_before_or_after_the_command(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = os.environ["NATS_URL"].removeprefix("nats://")
    monkeypatch.delenv("NATS_URL")
    for line in (f"-s {bare} stream ls -n", f"stream -s {bare} ls -n", f"str ls -n --server={bare} --timeout 3s"):
        assert natsctl(*line.split()).code == 0


def test_an_unexpected_failure_is_one_line_and_exit_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode(words: list[str]) -> int:
        raise KeyError("surprise")

    monkeypatch.setattr("natsctl.cli.main.dispatch", explode)
    assert run(["stream", "ls"]) == ExitCode.FAILED
    assert capsys.readouterr().err == "natsctl: error: unexpected KeyError: 'surprise'\n"
    assert run(["stream", "ls", "--trace"]) == ExitCode.FAILED
    assert "Traceback" in capsys.readouterr().err


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
    "stream info ORDERS -j", "stream ls -n", "stream ls -n -j", "consumer info ORDERS NEW -j", "consumer ls ORDERS -n",
    "publish ORDERS.new hello -q", "publish ORDERS.new hello -J -j -H Nats-Msg-Id:1", "kv put CONFIG key value -j",
    "kv get CONFIG key --raw", "kv get CONFIG key -j", "kv ls -n",
    "publish ORDERS.new hello -J", "stream ls", "consumer ls ORDERS", "kv ls", "request $JS.API.INFO x --raw",
)  # fmt: skip
"""Command lines that a plain server is asked without what is slow to import."""
SLOW = {
    "asyncio", "base64", "dataclasses", "importlib", "inspect", "msgspec", "nats", "orjson", "pathlib",
    "prompt_toolkit", "questionary", "rich", "selectors", "shutil", "socket", "ssl", "subprocess", "tempfile",
    "threading", "typer", "typing", "yaml",
}  # fmt: skip
COMPLETION = "__complete zsh stream add X --st"
SLOWEST = {"asyncio", "dataclasses", "nats", "questionary", "rich", "typer", "yaml"}
"""What a completion does without."""


@pytest.mark.ours("what is imported depends on no server")
def test_a_plain_server_is_asked_without_what_is_slow_to_import(natsctl: Run) -> None:
    for line in ("str add ORDERS --subjects ORDERS.*", "con add ORDERS NEW --pull", "kv add CONFIG"):
        assert natsctl(*line.split()).code == 0
    code = (
        "import sys; from natsctl.cli.main import run; slow = set(sys.argv[1].split());\n"
        "for line in sys.argv[2:]:\n"
        "    print(line, run(line.split()), *sorted(slow & set(sys.modules)), file=sys.stderr)"
    )
    words, environment = [" ".join(SLOW), *PLAIN, COMPLETION], {**os.environ, "NATSCTL_COMPLETION_MS": "20000"}
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, env=environment)
    *told, completed = [line for line in done.stderr.splitlines() if "Published" not in line]
    assert told == [f"{line} 0" for line in PLAIN]
    assert SLOWEST.isdisjoint(completed.removeprefix(COMPLETION).split()) and "--storage\t" in done.stdout
    assert '"config"' in done.stdout
    assert '"seq": 2' in done.stdout
    assert '"value": "value"' in done.stdout


ALIKE = pytest.mark.ours("a session is the same on any server")


@pytest.fixture
def session(shared_server: ServerProcess) -> Iterator[Session]:
    one = Session(GlobalOptions(server=shared_server.url))
    yield one
    one.close()


def _client_id(session: Session) -> int:
    async def look(manager: Any) -> int:
        await manager.connection.flush()
        return int(manager.connection.info["client_id"])

    return session.run(look)


@ALIKE
def test_every_run_of_a_command_uses_one_connection(session: Session) -> None:
    assert _client_id(session) == _client_id(session)


@ALIKE
def test_a_connection_that_rested_too_long_is_made_anew(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _client_id(session)
    monkeypatch.setattr("natsctl.cli.framework.session.MAX_REST_S", -1.0)
    assert _client_id(session) != first


@ALIKE
def test_a_connection_that_was_lost_at_rest_is_made_anew(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsctl.cli.framework.session.UNSEEN_REST_S", -1.0)
    first = _client_id(session)
    assert _client_id(session) == first
    session.run(lambda manager: manager.connection.close())
    assert _client_id(session) != first


def test_a_server_that_ends_meanwhile_is_unreachable(server: ServerProcess) -> None:
    session = Session(GlobalOptions(server=server.url, timeout=0.5))
    try:
        _client_id(session)
        server.stop()
        with pytest.raises(UnreachableError):
            _client_id(session)
    finally:
        session.close()


@pytest.mark.parametrize("terminals", [(True, True), (True, False), (False, True)])
def test_questions_need_both_terminals_and_no_refusal(
    terminals: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: terminals[0], raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminals[1], raising=False)
    assert Session().interactive is all(terminals)
    assert not Session(GlobalOptions(no_input=True)).interactive
    monkeypatch.setenv("NATSCTL_NO_INPUT", "1")
    assert not Session().interactive


def test_global_options_are_taken_out_wherever_they_stand() -> None:
    words = ["info", "-s", "h:1", "ORDERS", "--trace", "--timeout=3s", "-j"]
    given, left = take_out(words, {"-j": False})
    assert left.all == ["info", "ORDERS", "-j"]
    assert given == {"server": "h:1", "trace": True, "timeout": 3.0}


def test_a_commands_own_flag_wins_and_its_value_is_never_a_flag() -> None:
    words = ["-s", "5", "--subject", "--trace", "--server=x"]
    given, left = take_out(words, {"-s": True, "--subject": True})
    assert left.all == ["-s", "5", "--subject", "--trace"]
    assert given == {"server": "x"}


@pytest.mark.parametrize(
    ("words", "sorted_words"),
    [
        ("-a ls -n", "ls -a -n"),
        ("cluster -a balance X", "cluster balance -a X"),
        ("-s ls ls", "ls -s ls"),
        ("--subject a.b ls", "ls --subject a.b"),
        ("--subject=a.b ls", "ls --subject=a.b"),
        ("info ORDERS -j", "info ORDERS -j"),
        ("-a ORDERS", "-a ORDERS"),
        ("-- ls", "-- ls"),
        ("NOPE ls", "NOPE ls"),
    ],
)
def test_flags_before_a_verb_are_the_verbs(words: str, sorted_words: str) -> None:
    rows, left = find(BY_WORD["stream"], words.split())
    assert [*(row.name for row in rows[1:]), *left] == sorted_words.split()


def test_words_after_two_dashes_stay() -> None:
    given, left = take_out(["a", "--", "--trace", "-j"], {})
    assert (given, left.all, left.arguments) == ({}, ["a", "--", "--trace", "-j"], ["a", "--trace", "-j"])
    assert not wants_json(["pub", "a", "--", "-j"])
    assert wants_json(["str", "ls", "--json"])


@pytest.mark.parametrize(
    "words", [["--timeout", "0"], ["--timeout"], ["--trace=yes"], ["--timeout", "-1s"], ["--nope"]]
)
def test_a_bad_global_option_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(UsageError):
        leading(words)
