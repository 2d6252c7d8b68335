"""Every command there is, from the tables of nouns and verbs: what must hold whatever the command does."""

import hashlib
import io
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natsctl.cli.framework.command_line import command_of
from natsctl.cli.framework.nouns import every_command
from tests.cli.conftest import groups_of
from tests.support.commands import Run

WORDS, INSTEAD = (
    dict(line.split("  →  ") if "  →  " in line else (line.removesuffix("  →"), "") for line in lines)
    for lines in groups_of("every_command.txt").values()
)
"""Arguments by metavar: what exists, so that a command gets as far as it can; whole arguments of some commands."""
APART = ("tour", "server run", "events", "rtt")
"""What starts servers, or takes its time by its nature; tested by themselves."""
ENDING = {"--wait": "50ms", "--count": "1"}
"""What makes those end that wait for something."""
ALLOWED = {0, 1, 2, 3, 4, 5, 6, 7, 10}


LEAVES = [(name, verb.function) for name, verb in every_command() if name not in APART and verb.function]


def _words(name: str, function: Run, timeout: str = "500ms") -> list[str]:
    """The command with what it needs, made to end, to ask nothing, and to change nothing."""
    command = command_of(function)
    valued = {spelling for spelling, takes_value in command.flags.items() if takes_value}
    switches = command.flags.keys() - valued
    arguments = [one.declared.metavar for one in command.arguments]
    given = [WORDS[known] for one in arguments if (known := one.removesuffix("...")) in WORDS]
    words = [*name.split(), *(shlex.split(INSTEAD[name]) if name in INSTEAD else given)]
    words += [flag for flag in ("--force", "--json") if flag in switches]
    words += [word for flag, value in ENDING.items() if flag in valued for word in (flag, value)]
    return [*words, "--dry-run", "--timeout", timeout]


class _Silent(io.TextIOWrapper):
    """A stdin that nobody writes to: whoever reads it would wait for ever."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())

    def read(self, *_: Any) -> str:
        raise AssertionError("stdin was read")

    readline = read

    @property
    def buffer(self) -> Any:
        raise AssertionError("stdin was read")


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
    }


def _without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_clock(one) for key, one in value.items() if key != "ts"}
    return [_without_clock(one) for one in value] if isinstance(value, list) else value


@pytest.fixture
def state(
    natsctl: Run, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Any]:
    """Tells all that is on the server, in the folder and in the configuration of a person; caches do not count."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    for name in ("XDG_CONFIG_HOME", "HOME", "ZDOTDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("content")
    for line in (
        "str add S --subjects s.*", "con add S C --pull", "pub s.a hello --count 3 -J -q", "kv add B --history 3",
        "kv put B k v", "kv put B k w", "object add O", "object put O file.txt", "str backup S saved.tgz",
        "str add CNT --subjects cnt.* --allow-counter", "counter increment cnt.a 5", "backup saved",
        "account backup saved-account", "ctx add c1 --server x:1", "ctx add c2 --server x:2", "ctx select c2",
    ):  # fmt: skip
        assert natsctl(*shlex.split(line)).code == 0, line

    def told() -> Any:
        streams = natsctl("str", "ls", "-a", "-j", "--details").json
        consumers = [natsctl("con", "ls", one["config"]["name"], "-j", "--details").json for one in streams]
        return _without_clock([streams, consumers]), _files(tmp_path)

    return told


def test_no_command_changes_anything_or_reads_stdin_in_a_dry_run(
    natsctl: Run, state: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With -j each ends with JSON on stdout, or with one error object on stderr and nothing on stdout."""
    faults, previewed = [], 0
    before, noun = state(), ""
    for name, function in LEAVES:
        words = _words(name, function)
        if noun != (noun := name.split()[0]):
            assert state() == before, f"a command before natsctl {name} changed something"
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", _Silent())
            done = natsctl(*words)
        if fault := _fault(done, "--json" in words):
            faults.append(f"natsctl {' '.join(words)}: {fault}")
        previewed += '"dry_run": true' in done.out
    assert state() == before
    assert faults == []
    assert previewed > 65


def _fault(done: Any, json_asked: bool) -> str:
    if done.code not in ALLOWED:
        return f"exit code {done.code}: {done.err}"
    if "unexpected" in done.err or "Traceback" in done.err:
        return done.err
    if not json_asked:
        return "" if done.out or done.err else "it said nothing"
    if done.code in (0, 10):
        return _not_json(done.out)
    if done.out:  # a check tells what is critical in its answer
        return _not_json(done.out)
    try:
        error = json.loads(done.err.splitlines()[-1])["error"]
    except (ValueError, KeyError, IndexError):
        return f"no error object: {done.err!r}"
    return "" if error["description"] else "an error without description"


def _not_json(text: str) -> str:
    try:
        json.loads(text)
    except ValueError:
        try:
            return "" if [json.loads(line) for line in text.splitlines()] else "no document"
        except ValueError:
            return f"not JSON: {text[:200]!r}"
    return ""
