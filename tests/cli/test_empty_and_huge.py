"""Empty words and numbers beyond 64 bits: a script's variable that nobody set must never mean everything."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def stored(natsctl: Run) -> Run:
    for line in (
        "str add S --subjects s.*",
        "con add S C --pull",
        "pub s.a hello -J -q --count 3",
        "kv add B",
        "kv put B k v",
        "object add O",
    ):
        assert natsctl(*shlex.split(line)).code == 0
    return natsctl


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("str purge S --subject '' -f", "--subject"),
        ("str purge S --older-than '' -f", "--older-than"),
        ("str purge '' -f", "STREAM"),
        ("str rm '' -f", "STREAM"),
        ("con rm S '' -f", "CONSUMER"),
        ("kv del B '' -f", "KEY"),
        ("kv purge B '' -f", "KEY"),
        ("object del O '' -f", "OBJECT"),
        ("str view S --since ''", "--since"),
        ("backup ''", "FOLDER"),
        ("str backup S ''", "TARGET"),
        ("pub '' x", "SUBJECT"),
        ("str ls --server ''", "--server"),
        ("--context '' str ls", "--context"),
        ("str ls --js-domain=", "--js-domain"),
    ],
)
def test_an_empty_word_is_told_and_never_means_everything(stored: Run, line: str, named: str) -> None:
    done = stored(*shlex.split(line), "-j")
    assert (done.code, done.out) == (2, "")
    assert named in done.error["description"]
    assert "empty" in done.error["description"]
    assert stored("str", "info", "S", "-j").json["state"]["messages"] == 3
    assert stored("kv", "get", "B", "k", "--raw").out.strip() == "v"
    assert stored("con", "ls", "S", "-n").out == "C\n"


@pytest.mark.parametrize("line", ["pub s.a ''", "req s.a ''", "kv put B k ''", "str edit S --description '' -f"])
def test_bodies_values_and_descriptions_may_be_empty(stored: Run, line: str) -> None:
    assert stored(*shlex.split(line)).code == 0


@pytest.mark.parametrize(
    "line",
    [
        "str view S --id {}",
        "str rmm S {} -f",
        "str get S {}",
        "str purge S --keep {} -f",
        "con reset S C --sequence {} -f",
        "str add N --subjects n --max-msgs {}",
        "con add S N --max-deliver {}",
        "kv add N --history {}",
    ],
)
def test_a_number_of_more_than_64_bits_is_a_usage_error_that_names_the_flag(stored: Run, line: str) -> None:
    done = stored(*shlex.split(line.format(2**63)), "-j")
    assert done.code == 2, done
    flag = next((word for word in line.split() if word.startswith("--") and word not in ("--subjects",)), "SEQ")
    assert flag in done.error["description"]


def test_a_revision_that_has_gone_is_not_answered_with_its_own_key(stored: Run) -> None:
    done = stored("kv", "revert", "B", "k", "7", "-f")
    assert done.code == 3
    assert "did you mean" not in done.err
    assert "kv history B k" in done.err


def test_a_websocket_without_its_package_is_told(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "aiohttp", None)
    done = natsctl("-s", "ws://127.0.0.1:1", "str", "ls", "-j")
    assert (done.code, "aiohttp" in done.error["description"]) == (2, True)
