"""Values of command lines: sorted without Typer, and as Typer sorts them."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest

from natsctl.api.errors import UsageError
from natsctl.cli.auth.account_settings import Removed
from natsctl.cli.framework.command_line import NEEDED, Command, Parameter, command_of, take_out
from natsctl.cli.framework.irregular_lines import sorted_by_typer
from natsctl.cli.framework.nouns import every_command
from natsctl.cli.framework.output import json_text
from natsctl.cli.framework.parameters import Argument, Option


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


def _lists(values: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--number", "11"], "--number: 11 is not at least 0 and at most 10"),
        (["--number", "-1"], "--number: -1 is not at least 0 and at most 10"),
        (["--number", "x"], "--number: 'x' is not a whole number"),
        (["--number", "1.5"], "--number: '1.5' is not a whole number"),
        (["--number", f"{2**63}"], f"--number: {2**63} is too large: it can be at most 10"),
        (["--share", "x"], "--share: 'x' is not a number"),
        (["--many", ""], "--many is empty"),
        ([""], "text is empty"),
    ],
)
def test_a_value_that_cannot_be_read_is_named(words: list[str], fault: str) -> None:
    command = Command(_sample)
    with pytest.raises(UsageError) as failure:
        command.values(take_out(words, command.flags)[1], "natsctl x")
    assert (str(failure.value), failure.value.hint) == (fault, "see natsctl x --help")


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["-wm", "x"], {"switch": True, "many": ["x"]}),
        (["-mx"], {"many": ["x"]}),
        (["-m=x"], {"many": ["=x"]}),
        (["--switch=yes"], "--switch"),
        (["--nope"], "unknown flag --nope"),
        (["--numbe", "1"], "unknown flag --numbe"),
        (["a", "b"], "unexpected argument: b"),
        (["--many"], "--many"),
    ],
)
def test_words_out_of_order_are_left_to_typer(words: list[str], result: Any) -> None:
    command = Command(_sample)
    kept = take_out(words, command.flags)[1]
    assert command.sorted(kept) is None
    if isinstance(result, dict):
        assert command.values(kept).items() >= result.items()
    else:
        with pytest.raises(UsageError, match=result):
            command.values(kept)


LEAVES = [(name, verb.function) for name, verb in every_command() if verb.function]


def _text(one: Parameter) -> str:
    for text in ("7", "2", "99", "7s", "k=v", "x", "dark"):
        try:
            one.read([text] if one.several else text)
        except UsageError:
            continue
        return text
    raise AssertionError(one.name)


def _full_lines(command: Command) -> list[list[str]]:
    """Return lines that give the arguments only, every flag by its first spelling, and every flag by its last."""
    options = [(one, list(one.declared.spellings)) for one in command.options]
    needed = [_text(one) for one in command.arguments]
    lines = [needed + [word for one, spellings in options if one.default is NEEDED for word in (spellings[0], "7")]]
    for at in (0, -1):
        line: list[str] = []
        for one, spellings in options:
            spelling = spellings[at]
            value = [] if one.is_switch else [_text(one)]
            joined = at and value and spelling.startswith("--")
            line += [f"{spelling}={value[0]}"] * (1 + one.several) if joined else [spelling, *value]
        lines.append(
            [
                *line,
                *needed,
                *([_text(command.arguments[-1])] if command.arguments and command.arguments[-1].several else []),
            ]
        )
    return lines


def test_every_line_is_sorted_as_typer_sorts_it() -> None:
    """Each command with all of its flags."""
    checked = 0
    for name, function in LEAVES:
        command = command_of(function)
        for line in _full_lines(command):
            kept = take_out(line, command.flags)[1]
            assert command.sorted(kept) == _lists(sorted_by_typer(command.parameters, list(kept.all), name)), name
            assert command.values(kept).keys() == {one.name for one in command.parameters}
            checked += 1
    assert checked > 300


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
        {"a": [Removed("é")]},
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
