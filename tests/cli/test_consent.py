"""Every command that can lose something: it wants --force or an answer at a terminal, and sends nothing without.

Each command of the tables of nouns and verbs has a line in consent.txt; a new one without either
fails the first test.
"""

import io
import os
import shlex
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from natsctl.cli.framework.nouns import every_command
from natsctl.client.auth.nsc_store import NscStore
from natsctl.client.auth.operators import new_operator
from natsctl.client.connection import Connection
from natsctl.client.one_shot import PlainConnection
from tests.cli.conftest import groups_of
from tests.support.commands import Run

pytestmark = pytest.mark.ours("consent is asked for before any request: no server differs")


class Row(NamedTuple):
    """A line that loses something; `first` are lines that make what it needs, `looks` whether it may look first.

    `ends` says whether it is done with --force here, on one server without a system account.
    """

    line: str
    first: tuple[str, ...] = ()
    looks: bool = False
    ends: bool = True
    flag: str = "--force"


def losing() -> dict[str, list[Row]]:
    """What can lose something, in an order in which each line finds what it needs."""
    found: dict[str, list[Row]] = {}
    for text in groups_of("consent.txt")["losing"]:
        path, line, options, first = text.split("  →  ")
        lines = () if first == "-" else tuple(first.split(" ; "))
        flag = "--yes" if "yes" in options else "--force"
        found.setdefault(path, []).append(Row(line, lines, "looks" in options, "stays" not in options, flag))
    return found


LOSING = losing()
HARMLESS = groups_of("consent.txt")["harmless"]
"""What removes nothing, or only what it made itself; what stores or acknowledges does what it was asked to."""
READS = {"INFO", "NAMES", "LIST", "GET", "DIRECT"}
FIRST = (
    "stream add S --subjects s.* --max-msgs 50", "pub s.a x --count 9 -J -q", "pub s.b x -J -q",
    "consumer add S C --pull --filter s.a", "stream backup S saved.tgz", "account backup saved-account",
    "stream add T --subjects t.* --max-msgs 1", "backup saved", "stream edit T --max-msgs 9 -f",
    "pub t.a x --count 5 -J -q", "kv add B --history 3", "kv put B k v", "kv put B k w", "object add O",
    "object put O file.txt",
    "apply -f documents.yaml", "pub cnt x --count 5 -J -q", "context add c1 --server x:1", "pipeline init shop",
)  # fmt: skip


def test_every_command_is_known_to_lose_something_or_to_be_harmless() -> None:
    assert sorted([*LOSING, *HARMLESS]) == sorted(path for path, _ in every_command())


class _Terminal(io.TextIOWrapper):
    """A stdin that says it is a terminal, at which nobody may be asked."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())

    def isatty(self) -> bool:
        return True

    def read(self, *_: Any) -> str:
        raise AssertionError("a question was asked")

    readline = read

    def fileno(self) -> int:
        raise AssertionError("a question was asked")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    for kind, name in product((Connection, PlainConnection), ("publish", "request")):
        method = getattr(kind, name)

        def watched(self: Any, subject: str, *rest: Any, _method: Any = method, **named: Any) -> Any:
            found.append(subject)
            return _method(self, subject, *rest, **named)

        monkeypatch.setattr(kind, name, watched)
    return found


def _save_operator() -> None:
    """Store an operator whose account APP has something of everything."""
    operator = new_operator("OP")
    account = operator.add_account("APP")
    source = operator.account("SYSTEM").subject
    account.nats["exports"] = [{"name": "ex", "subject": "ex", "type": "stream"}]
    account.nats["imports"] = [{"name": "im", "subject": "im", "account": source, "type": "stream"}]
    account.add_signing_key({"role": "reader", "template": {}})
    NscStore.of_environment(os.environ).save(operator)


@pytest.fixture
def filled(natsctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    _save_operator()
    Path("file.txt").write_text("x" * 2000)
    Path("small.json").write_text('{"max_bytes": 100}')
    Path("documents.yaml").write_text("name: CNT\nsubjects: [cnt]\n")
    Path("fewer.yaml").write_text("name: CNT\nsubjects: [cnt]\nmax_msgs: 2\n")

    def run(line: str) -> Any:
        return natsctl(*shlex.split(line))

    for line in FIRST:
        done = run(line)
        assert done.code == 0, (line, done.err)
    yield run
    run("stream template rm T -f --missing-ok")


def _changing(sent: list[str]) -> list[str]:
    return [subject for subject in sent if READS.isdisjoint(subject.split("."))]


def test_nothing_is_lost_where_nobody_can_be_asked(
    filled: Run, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal, and at one with --no-input or -j: exit 2, the flag is named, and nothing changes."""
    rows = [row for rows in LOSING.values() for row in rows]
    for line in [line for row in rows for line in row.first]:
        assert filled(line).code == 0, line
    for row in rows:
        for mode in ("", " --no-input", " -j"):
            sent.clear()
            with monkeypatch.context() as patch:
                if mode:
                    patch.setattr(sys, "stdin", _Terminal())
                    patch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
                done = filled(row.line + mode)
            what = f"natsctl {row.line}{mode}: {done} sent {sent}"
            assert (done.code, done.out, row.flag in done.err) == (2, "", True), what
            assert _changing(sent) == [], what
            assert row.looks or sent == [], what


def test_with_its_flag_each_is_done(filled: Run, sent: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr("natsctl.cli.pipeline.runs._run", lambda *_: ran.append(_))
    for row in [row for rows in LOSING.values() for row in rows]:
        for line in row.first:
            assert filled(line).code == 0, line
        sent.clear()
        done = filled(f"{row.line} {row.flag}")
        what = f"natsctl {row.line} {row.flag}: {done}"
        assert "cannot ask" not in done.err, what
        if row.ends:
            assert done.code == 0, what
            assert _changing(sent) != [], what
    assert ran, "pipeline run did not begin"
    assert filled("stream ls -a -n").out.split() == ["KV_B", "OBJ_O", "SEALED"]


@pytest.mark.parametrize("mode", ["", " --no-input", " -j"])
def test_what_loses_nothing_goes_on(filled: Run, mode: str) -> None:
    for line in (
        "consumer pause S C 1h", "consumer resume S C", "stream edit S --max-msgs 40", "stream edit S --max-age 1y",
        "consumer edit S C --description x", "kv edit B --history 9", "stream gaps S",
    ):  # fmt: skip
        done = filled(line + mode)
        assert (done.code, "cannot ask" in done.err) == (0, False), (line, done)


def test_a_dry_run_asks_nothing_and_shows_what_would_go(filled: Run) -> None:
    done = filled("stream edit S --max-msgs 3 --dry-run -j")
    assert (done.code, done.json["effect"]["messages_removed"]) == (10, 7)
    assert filled("stream purge S --dry-run -j").json["effect"]["messages"] == 10
    assert filled("stream info S -j").json["state"]["messages"] == 10


def test_a_refused_edit_says_what_would_be_lost(filled: Run) -> None:
    done = filled("stream edit S --max-msgs 3 -j")
    assert (done.code, "removes 7 of 10 messages, the oldest first" in done.error["description"]) == (2, True)
    assert "removes 4 of 5 messages, the oldest first" in filled("restore saved --update-streams").err
