"""Values of command lines: read without Typer and pydantic, and the same as Typer reads them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from natsctl.cli.framework.commands import every_command
from natsctl.cli.framework.globals import Dash, take_out
from natsctl.cli.framework.output import json_text
from natsctl.cli.framework.parameters import NEEDED, Argument, Command, Context, Option, Parameter, command_of


def _sample(
    text: Annotated[str | None, Argument()] = None,
    number: Annotated[int, Option("--number", min=0, max=10)] = 3,
    share: Annotated[float | None, Option("--share")] = None,
    many: Annotated[list[str] | None, Option("--many", "-m")] = None,
    switch: Annotated[bool, Option("--switch", "-w")] = False,
    state: Annotated[bool | None, Option("--state/--no-state")] = None,
    file: Annotated[Path, Option("--file", metavar="FILE")] = Path("x"),
) -> dict[str, Any]:
    return {"text": text, "number": number, "share": share, "many": many or None} | {
        "switch": switch,
        "state": state,
        "file": file,
    }


def _by_typer(command: Any, words: list[str]) -> Any:
    try:
        with command.make_context("x", list(words)) as context:
            return command.invoke(context)
    except typer.BadParameter as failure:
        return type(failure).__name__, failure.param.name if failure.param else None


def _unread(command: Any) -> Any:
    """Return Typer's command as Typer has made it, with its own readers of values."""
    for parameter in command.params:
        parameter.__dict__.pop("get_runtime_param", None)
    return command


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a"],
        ["b c", "--number", "0"],
        ["a", "--number=10", "--share", "0.5", "--many", "x", "-m", "y", "--switch", "--state"],
        ["--no-state", "--share=-1", "--file", "a/../b"],
        ["-w", "--", "-x"],
        ["--file", "--switch", "--many", "-w"],
        ["-", "--state", "--no-state", "--number", "1", "--number", "2"],
        ["--number", "11"],
        ["--number", "-1"],
        ["--number", "x"],
        ["--number", "1.5"],
        ["--share", "x"],
    ],
)
def test_values_and_refusals_are_those_of_typer(words: list[str]) -> None:
    typers = _by_typer(_unread(Command(_sample).by_typer), words)
    assert _by_typer(Command(_sample).by_typer, words) == typers
    command = Command(_sample)
    values = command.values(take_out(words, command.flags)[1])
    if isinstance(typers, dict):
        assert values is not None
        assert _sample(**values) == typers
    else:
        assert values is None


@pytest.mark.parametrize(
    "words",
    [["-wm", "x"], ["-mx"], ["--switch=yes"], ["--nope"], ["a", "b"], ["--many"], [""], ["-m=x"], ["--numbe", "1"]],
)
def test_unusual_words_are_left_to_typer(words: list[str]) -> None:
    command = Command(_sample)
    assert command.values(take_out(words, command.flags)[1]) is None


LEAVES = [(name, verb.function) for name, verb in every_command() if verb.function]


def _text(one: Parameter) -> str:
    for text in ("7", "2", "99", "x"):
        try:
            one.read(text)
        except ValueError:
            continue
        return text
    raise AssertionError(one.name)


def _lines(command: Command) -> list[list[str]]:
    """Return lines that give the arguments only, every flag by its first spelling, and every flag by its last."""
    arguments = [one for one in command.parameters if isinstance(one.declared, Argument)]
    options = [(one, list(one.declared.spellings)) for one in command.parameters if isinstance(one.declared, Option)]
    needed = [_text(one) for one in arguments]
    lines = [needed + [word for one, spellings in options if one.default is NEEDED for word in (spellings[0], "7")]]
    for at in (0, -1):
        line: list[str] = []
        for one, spellings in options:
            spelling = spellings[at]
            value = [] if one.is_switch else [_text(one)]
            joined = at and value and spelling.startswith("--")
            line += [f"{spelling}={value[0]}"] * (1 + one.several) if joined else [spelling, *value]
        lines.append([*line, *needed, *(["more"] if arguments and arguments[-1].several else [])])
    return lines


def test_every_command_is_called_as_typer_calls_it() -> None:
    """Each command with all of its flags: the values are the same, an absent list being empty or None."""
    checked = 0
    for name, function in LEAVES:
        command = Command(_recorder_of(function))
        for line in _lines(command):
            read = command.values(take_out(line, command.flags)[1])
            assert read is not None, (name, line)
            typers = _by_typer(command.by_typer, line)
            assert {key: one or None for key, one in typers.items()} == {key: one or None for key, one in read.items()}
            assert {key: type(one) for key, one in typers.items() if one not in ((), None)} == {
                key: type(one) for key, one in read.items() if one is not None
            }, name
            checked += 1
    assert checked > 300


def _recorder_of(function: Callable[..., Any]) -> Any:
    """Return a function with the same parameters that returns what it is called with, but for the context."""

    def record(**values: Any) -> dict[str, Any]:
        return {key: value for key, value in values.items() if not hasattr(value, "obj")}

    known = command_of(function)
    record.parameters = known.parameters  # type: ignore[attr-defined]
    record.hints = {"ctx": Context}  # type: ignore[attr-defined]
    return record


def test_a_lone_dash_stays_one() -> None:
    command = Command(_sample)
    values = command.values(take_out(["-"], command.flags)[1])
    assert values is not None
    assert isinstance(values["text"], Dash)


@pytest.mark.parametrize(
    "document",
    [
        {"a": [1, True, None, 'ä\x7f\n\u2028"\\/'], "b": {}, "c": [], "d": [{}, [[]]]},
        {"a": 2**63, "b": -(2**63), "c": 2**64},
        {"a": 1e16, "b": 1e-7, "c": 0.5},
        [],
        "x\0",
        {"a": "\ud800"},
        {1: 2},
    ],
    ids=str,
)
def test_json_is_the_same_with_and_without_orjson(document: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import orjson

    asked = json.dumps(document) if isinstance(document, str) else document
    for one_line in (False, True):
        shown = json_text(asked, one_line=one_line)
        with monkeypatch.context() as without:
            without.delitem(sys.modules, "orjson")
            assert json_text(asked, one_line=one_line) == shown
        sys.modules["orjson"] = orjson
