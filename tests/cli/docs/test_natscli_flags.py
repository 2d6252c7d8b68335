"""Every flag of the `nats` tool that has a counterpart is taken there; test_core_values.py reads each flag."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from natsctl.cli.globals import GLOBAL_FLAGS
from tests.support.command_pages import ROOT
from tests.support.natscli_page import Node, compared, facts_of, our_tree, parameters

FACTS: dict[str, dict[str, Any]] = facts_of(json.loads((ROOT / "tests/cli/natscli-0.5.1.json").read_text()))
EVERYWHERE = {spelling for flag in GLOBAL_FLAGS for spelling in flag.spellings}
LEFT_OUT = [
    path
    for path, said in json.loads((ROOT / "tests/cli/natscli_differences.json").read_text())["commands"].items()
    if "reason" in said
]
"""Commands of the tool that are not here."""


@functools.cache
def rows() -> set[tuple[str, str]]:
    """The commands of the tool, each with the flags that it has here; found by the first test."""
    return {
        (path, spelling)
        for path, rows in compared(ROOT).rows()
        for row in rows
        if row.ours and row.theirs.startswith(f"{path} ".lstrip()) and " -" in f" {row.ours}"
        for word in row.ours.split()
        if word.startswith("-")
        for spelling in ({word.replace("--[no-]", "--"), word.replace("--[no-]", "--no-")})
    }


def taken(path: str) -> set[str]:
    def below(node: Node) -> Iterator[str]:
        if node.row and node.row.function:
            for one in parameters(node.row):
                yield from (*one.opts, *one.secondary_opts)
        for one in {id(found): found for found in node.below.values()}.values():
            yield from below(one)

    return (
        set(below(functools.reduce(lambda node, word: node.below[word], path.split(), our_tree()))) if path else set()
    )


@pytest.mark.parametrize("noun", ["", *sorted({path.split()[0] for path in FACTS if path} - {*LEFT_OUT})])
def test_every_flag_that_has_a_counterpart_is_taken(noun: str) -> None:
    found = [(path, flag) for path, flag in rows() if path.split()[:1] == noun.split()]
    assert found or not any(fact.get("flags") for path, fact in FACTS.items() if path.split()[:1] == noun.split())
    assert [(path, flag) for path, flag in found if flag not in taken(path) | EVERYWHERE] == []


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
