"""Every flag of the `nats` tool that has a counterpart is taken there, with a value of its kind."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from natsctl.api.errors import UsageError
from natsctl.cli.flags import Flagged
from natsctl.cli.globals import leading
from natsctl.cli.parameters import command_of
from natsctl.cli.verbs import Verb
from tests.support.command_pages import ROOT
from tests.support.natscli_page import NATS_SERVER_FLAGS, Node, compared, facts_of, our_tree, parameters

SAMPLES = {
    "N": "1",
    "PERCENT": "50",
    "DURATION": "10s",
    "SIZE": "10MB",
    "TIME": "2026-01-31T12:00:00Z",
    "TIME|DURATION": "1h",
    "KEY=VALUE": "a=b",
    "KEY:VALUE": "a:b",
    "NAME|JSON": "OTHER",
    "COLORS": "double",
    "SCHEME": "double",
    "SEQ": "1",
    "FILE": "/dev/null",
}
"""A value for each metavar; any other is text, or the first of the words that it lists."""
FACTS: dict[str, dict[str, Any]] = facts_of(json.loads((ROOT / "tests/cli/natscli-0.5.1.json").read_text()))
LEFT_OUT = [
    path
    for path, said in json.loads((ROOT / "tests/cli/natscli_differences.json").read_text())["commands"].items()
    if "reason" in said
]


def _taken() -> Iterator[tuple[str, str, str]]:
    """Where each counterpart is, and the flag as it is written: a group's flag with every command below that has it."""
    for path, rows in compared(ROOT).rows():
        for row in rows:
            if row.ours and row.theirs.startswith(f"{path} ".lstrip()) and " -" in f" {row.ours}":
                for word in row.ours.split():
                    if word.startswith("-"):
                        yield path, row.theirs, word.replace("--[no-]", "--")
                    if word.startswith("--[no-]"):
                        yield path, row.theirs, word.replace("--[no-]", "--no-")


@functools.cache
def _rows() -> list[tuple[str, str, str]]:
    """Found by the first test: whoever collects tests needs none of it."""
    return sorted(set(_taken()))


@pytest.mark.parametrize("noun", ["", *sorted({path.split()[0] for path in FACTS if path} - {*LEFT_OUT})])
def test_every_flag_that_has_a_counterpart_is_taken(noun: str) -> None:
    rows = [(path, flag) for path, _, flag in _rows() if path.split()[:1] == noun.split()]
    assert rows or not any(fact.get("flags") for path, fact in FACTS.items() if path.split()[:1] == noun.split())
    for path, flag in rows:
        places = [verb for verb in _commands(path) if flag in _declared(verb)]
        if places:
            _take(places[0], flag)
        else:
            _take_everywhere(flag)


@pytest.mark.parametrize("noun", sorted({path.split()[0] for path in FACTS if path}))
def test_every_command_answers_to_the_words_of_the_tool(noun: str) -> None:
    node = our_tree()
    for path, fact in FACTS.items():
        if path.split()[:1] != [noun] or any(f"{path} ".startswith(f"{key} ") for key in LEFT_OUT):
            continue
        found = node
        for word in path.split():
            found = found.below[word]
        assert {path.split()[-1], *fact.get("aliases", ())} <= set(found.names), path


def _commands(path: str) -> list[Verb]:
    """Return the command, or those of a group."""
    node = our_tree()
    for word in path.split():
        node = node.below[word]

    def leaves(one: Node) -> Iterator[Verb]:
        if one.row and one.row.function and one.path != NATS_SERVER_FLAGS:
            yield one.row
        for below in {id(below): below for below in one.below.values()}.values():
            yield from leaves(below)

    return list(leaves(node)) if path else []


def _declared(verb: Verb) -> dict[str, Any]:
    return {name: one for one in parameters(verb) for name in (*one.opts, *one.secondary_opts)}


def _take(verb: Verb, flag: str) -> None:
    function = verb.function
    assert function is not None
    command = command_of(function).by_typer
    declared = _declared(verb)[flag]
    words = [flag] if declared.is_flag else [flag, _sample(str(declared.metavar))]
    # Arguments are left out: the flag is what is read here, by Typer and then by the table that it stands in.
    _, _, order = command.make_parser(command.context_class(command)).parse_args(args=list(words))
    assert declared.name in [one.name for one in order]
    if isinstance(function, Flagged):
        row = next((one for one in function._table if one.parameter == declared.name), None)
        if row is not None and not row.kind.switch:
            row.read([words[-1]] if row.kind.gather else words[-1])


def _take_everywhere(flag: str) -> None:
    from natsctl.cli.globals import GLOBAL_FLAGS

    found = next(one for one in GLOBAL_FLAGS if flag in one.spellings)
    given, rest = leading([flag, *([_sample(found.metavar)] if found.metavar else []), "stream"])
    assert (found.name in given, rest) == (True, ["stream"])


def _sample(metavar: str) -> str:
    bare = metavar.strip("[]").partition("[")[0]
    if bare in SAMPLES:
        return SAMPLES[bare]
    first = bare.partition("|")[0]
    return first if re.fullmatch(r"[a-z0-9_-]+", first) else SAMPLES.get(first, "x")


def test_a_value_of_the_wrong_kind_is_not_taken() -> None:
    with pytest.raises(UsageError):
        leading(["--timeout", "soon"])
