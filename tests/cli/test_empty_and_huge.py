"""Bad input in words: what is empty, beyond 64 bits, negative or no subject is named, and nothing is done."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
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
    assert "too large" in done.error["description"]


def test_a_websocket_without_its_package_is_told(natsctl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "aiohttp", None)
    done = natsctl("-s", "ws://127.0.0.1:1", "str", "ls", "-j")
    assert (done.code, "aiohttp" in done.error["description"]) == (2, True)


@pytest.mark.parametrize(
    "line",
    [
        "str purge S --older-than -1h -f",
        "kv compact B --older-than -1h -f",
        "str view S --since -1h",
        "str add N --subjects n --max-age -1h",
        "str edit S --dupe-window -5s -f",
        "con add S N --pull --wait -5s",
        "kv add N --ttl -5s",
        "object add N --ttl -5s",
        "--timeout -5s str ls",
    ],
)
def test_a_negative_duration_is_refused_and_removes_nothing(stored: Run, line: str) -> None:
    words = shlex.split(line)
    done = stored(*words, "-j")
    assert (done.code, done.out) == (2, ""), done
    flag = words[next(at for at, word in enumerate(words) if word in ("-1h", "-5s")) - 1]
    assert flag in done.error["description"]
    assert stored("str", "info", "S", "-j").json["state"]["messages"] == 3


def test_a_number_out_of_range_is_refused_by_its_flag_and_nothing_is_sent(stored: Run) -> None:
    for line, fault in (
        ("str add N --subjects n --max-msgs -5", "--max-msgs: expected at least -1"),
        ("str edit S --max-consumers -2 -f", "--max-consumers: expected at least -1"),
        ("str add N --subjects n --max-msg-size 3GB", "--max-msg-size: expected at most 2147483647 bytes"),
        ("str add N --subjects n --replicas -1", "--replicas: expected a number that is not negative"),
        ("str edit S --subjects '' -f", "--subjects: it is empty"),
        ("str purge S --seq 0 -f", "--seq: 0 is not at least 1"),
        ("str purge '' -f", "STREAM is empty"),
        ("con add S N --pull --deliver 99999999999999999999", "--deliver: 99999999999999999999 is too large"),
        ("con add S N --target t --bps -1", "--bps: expected a number that is not negative"),
        ("con edit S C --max-pending -7 -f", "--max-pending: expected at least -1"),
        ("con fetch S C --batch 0", "--batch: 0 is not at least 1"),
        ("kv add N --max-value-size 3GB", "--max-value-size: expected at most 2147483647 bytes"),
        ("object add N --replicas -1", "--replicas: expected a number that is not negative"),
    ):
        done = stored(*shlex.split(line), "-j")
        assert (done.code, done.out) == (2, ""), done
        assert done.error["description"].startswith(fault), done.err
    assert stored("str", "info", "S", "-j").json["state"]["messages"] == 3


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("str add N --subjects ok,a..b", "'a..b': it has an empty token"),
        ("str add --config bad.json", "'a..b': it has an empty token"),
        ("str add --config bad.yaml", "'a b': it contains blanks"),
        ("str edit S --subjects a.>.b -f", "'a.>.b'"),
        ("str purge S --subject a..b -f", "'a..b'"),
        ("con add S N --pull --filter a..b", "'a..b'"),
        ("con edit S C --filter a..b -f", "'a..b'"),
        ("validate -f bad.yaml", "'a b'"),
        ("apply -f bad.yaml", "'a b'"),
    ],
)
def test_an_invalid_subject_is_named(
    stored: Run, line: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text('{"name": "BAD", "subjects": ["ok", "a..b"]}')
    Path("bad.yaml").write_text("name: BAD\nsubjects: [ok, 'a b']\n")
    done = stored(*shlex.split(line))
    assert (done.code, named in done.err + done.out) == (2, True), done


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
    stored: Run, words: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    done = stored(*words)
    assert (done.code, text in done.err) == (2, True), done.err


def test_backup_in_a_wrong_order_writes_no_folder(stored: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    lines = ("backup stream", "backup stream S", "backup str --data", "backup account", "backup restore", "backup con")
    for line in lines:
        done = stored(*line.split())
        assert done.code == 2, (line, done)
    assert "natsctl stream backup" in stored("backup", "str").err
    assert list(folder.iterdir()) == []
