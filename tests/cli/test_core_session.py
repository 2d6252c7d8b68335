"""The session: one connection for a command, made anew after a long rest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from natsctl.api.errors import UnreachableError, UsageError
from natsctl.cli.commands import COMMANDS
from natsctl.cli.globals import leading, take_out, wants_json
from natsctl.cli.session import GlobalOptions, Session, data_folder
from natsctl.cli.verbs import find
from natsctl.testing.process import ServerProcess

ALIKE = pytest.mark.ours("a session is the same on any server")


@pytest.fixture
def session(shared_server: ServerProcess) -> Iterator[Session]:
    """A session of a command on the server."""
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
    monkeypatch.setattr("natsctl.cli.session.MAX_REST_S", -1.0)
    assert _client_id(session) != first


@ALIKE
def test_a_connection_that_was_lost_at_rest_is_made_anew(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsctl.cli.session.UNSEEN_REST_S", -1.0)
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


def test_a_session_that_never_connected_closes_quietly() -> None:
    Session().close()


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


def test_the_data_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "natsctl"
    monkeypatch.setenv("NATSCTL_DATA", str(tmp_path / "mine"))
    assert data_folder() == tmp_path / "mine"


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
    rows, left = find(COMMANDS["stream"], words.split())
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
