"""docs/natscli.md: every command and flag of the `nats` tool, the same here, different on purpose, or not here.

`tests/cli/natscli-0.5.1.json` has the facts of the tool, read from its own help. `natscli_differences.json` beside it
has the differences that are on purpose, with their reasons. The rest is the same: test_natscli_equality.py runs it.
`python -m tests.support.generated_docs` writes the page.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from natsctl.cli.framework.command_line import Parameter, command_of
from natsctl.cli.framework.globals import GLOBAL_FLAGS
from natsctl.cli.framework.nouns import NOUNS
from natsctl.cli.framework.parameters import Option
from natsctl.cli.framework.verbs import Verb

NATS_SERVER_FLAGS = "server run"
"""Command whose flags are those of nats-server, which Typer does not read."""


def parameters(verb: Verb) -> Sequence[Parameter]:
    """Return the arguments and flags of a command, or of a group that runs without a verb."""
    return command_of(verb.function).parameters if verb.function else ()


@dataclass(slots=True)
class Node:
    """A command of ours: its words, its flags by spelling, and those below it."""

    names: tuple[str, ...]
    row: Verb | None
    path: str = ""
    below: dict[str, Node] = field(default_factory=dict)
    _flags: dict[str, str] | None = None

    @property
    def flags(self) -> dict[str, str]:
        """Return the first spelling of every flag by each of its spellings; of a group, of all commands below it."""
        if self._flags is None:
            self._flags = {
                spelling: next(iter(one.declared.spellings)) if on else spelling
                for one in (parameters(self.row) if self.row and self.path != NATS_SERVER_FLAGS else ())
                if isinstance(one.declared, Option)
                for spelling, on in one.declared.spellings.items()
            }
            for node in self.below.values():
                self._flags |= node.flags
        return self._flags


def our_tree() -> Node:
    """Return all commands, below a root that has the flags of every command."""
    root = Node((), None, _flags={spelling: spelling for flag in GLOBAL_FLAGS for spelling in flag.spellings})
    for noun in NOUNS:
        node = _node(noun.words, noun, noun.name)
        root.below |= dict.fromkeys(node.names, node)
    return root


def _node(names: tuple[str, ...], row: Verb, path: str) -> Node:
    node = Node(names, row, path)
    for verb in row.verbs:
        node.below |= dict.fromkeys(verb.words, _node(verb.words, verb, f"{path} {verb.name}"))
    return node


class Row(NamedTuple):
    """One row: the words of the tool and ours, the reason against it, and the difference."""

    theirs: str
    ours: str
    reason: str
    note: str = ""

    @property
    def kind(self) -> str:
        """Return `same`, `differs on purpose` or `not here`; "" for a row without a counterpart or reason."""
        if self.ours:
            return "differs on purpose" if self.note else "same"
        return "not here" if self.reason else ""


def facts_of(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return aliases and flags, spelled as help shows them, of each command; "" has the flags of every command."""
    facts: dict[str, dict[str, Any]] = {"": {"aliases": [], "flags": _spelled(document["global_flags"])}}
    for path, fact in document["commands"].items():
        facts[path] = {"aliases": fact.get("aliases", []), "flags": _spelled(fact.get("flags", {}))}
    for path in document["commands"]:
        above = path.rpartition(" ")[0]
        if above:
            facts[above]["group"] = True
    return facts


def _spelled(flags: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = []
    for name, fact in flags.items():
        short = f"-{chr(fact['short'])} " if "short" in fact else ""
        found.append(f"{short}{'--[no-]' if fact.get('negatable') else '--'}{name}")
    return found


class Comparison:
    """The rows of the page, made from the facts of the tool, our commands and the differences written by hand."""

    def __init__(self, facts: Mapping[str, Any], differences: Mapping[str, Any]) -> None:
        self._facts = facts
        self._commands: Mapping[str, Any] = differences["commands"]
        self._flags: Mapping[str, Any] = differences["flags"]
        self._root = our_tree()
        self.used: set[str] = set()
        """The keys of the differences that a row was made with."""

    def rows(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield the rows by command of the tool, "" for the flags of every command."""
        for path, fact in self._facts.items():
            yield path, list(self._of_command(path, fact))

    def _of_command(self, path: str, fact: Mapping[str, Any]) -> Iterator[Row]:
        said = self._difference(path)
        words = said.get("ours", path).split()
        node = self._resolved(words)
        flags = fact.get("flags", [])
        if node is None or "reason" in said:
            yield from (Row(one.strip(), "", said.get("reason", "")) for one in (path, *(f"{path} {f}" for f in flags)))
            return
        if path:
            yield Row(path, self._named(words), "", said.get("note", ""))
        for flag in flags:
            yield self._of_flag(path, node, flag)

    def _difference(self, path: str) -> Mapping[str, Any]:
        for key in (path, *(path.rsplit(" ", cut)[0] for cut in range(1, path.count(" ") + 1))):
            if key in self._commands and (key == path or "reason" in self._commands[key]):
                self.used.add(key)
                return dict(self._commands[key])
        return {}

    def _resolved(self, words: list[str]) -> Node | None:
        node: Node | None = self._root
        for word in words:
            node = node.below.get(word) if node is not None else None
        return node

    def _named(self, words: list[str]) -> str:
        node, named = self._root, []
        for word in words:
            node = node.below[word]
            named.append(node.names[0])
        return " ".join(named)

    def _of_flag(self, path: str, node: Node, flag: str) -> Row:
        long = flag.split()[-1]
        spellings = [word.replace("--[no-]", "--") for word in flag.split()]
        said = self._flag_difference(path, spellings[-1])
        known = {**self._root.flags, **node.flags}
        if "reason" in said:
            return Row(f"{path} {flag}".strip(), "", said["reason"])
        ours = said.get("ours", "")
        missing = [word for word in ours.split() if word.startswith("-") and word not in known]
        if missing and ours:
            return Row(f"{path} {flag}".strip(), "", "")
        if not ours:
            if spellings[-1] not in known:
                return Row(f"{path} {flag}".strip(), "", "")
            negated = long.startswith("--[no-]") and f"--no-{spellings[-1][2:]}" in known
            shorts = [word for word in spellings[:-1] if known.get(word) == known.get(spellings[-1]) or word in known]
            ours = " ".join([*shorts, f"--[no-]{spellings[-1][2:]}" if negated else spellings[-1]])
        note = said.get("note", "")
        if not note and long.startswith("--[no-]") and f"--no-{spellings[-1][2:]}" not in known:
            note = "has no `--no-` form: it is off unless it is given"
        return Row(f"{path} {flag}".strip(), ours, "", note)

    def _flag_difference(self, path: str, flag: str) -> Mapping[str, Any]:
        """Return the entry for a flag of this command, of all below one above it (`server *`), or of all (`*`)."""
        words = path.split()
        above = [f"{' '.join(words[:count])} * {flag}" for count in range(len(words), 0, -1)]
        for key in (f"{path} {flag}".strip(), *above, f"* {flag}"):
            if key in self._flags:
                self.used.add(key)
                return dict(self._flags[key])
        return {}


def natscli_page(root: Path) -> str:
    comparison = compared(root)
    every = list(comparison.rows())
    kinds = Counter(row.kind for _, rows in every for row in rows)
    lines = [
        "# From `nats` to `natsctl`",
        "",
        "Every command and flag of the `nats` tool 0.5.1, and what it is in natsctl:",
        "",
        f"* *same* ({kinds['same']:,}): the same words do the same: `tests/cli/docs/natscli_cases.yaml` has lines",
        "  with each, which a test runs with both tools and compares (status, JSON keys, what is stored).",
        f"* *differs on purpose* ({kinds['differs on purpose']:,}): spelled otherwise or with another result, and how.",
        f"* *not here* ({kinds['not here']:,}): left out, and why.",
        "",
        "`python -m tests.support.generated_docs` makes this page from the help of the tool",
        "(`tests/cli/natscli-0.5.1.json`), natsctl's own commands, and the reasons in",
        "`tests/cli/natscli_differences.json`.",
        "",
    ]
    for path, rows in every:
        if not rows:
            continue
        head = ["| `nats` | `natsctl` | | |", "|---|---|---|---|"]
        lines += [f"## {path or 'flags of every command'}", "", *head]
        lines += [f"| {_code(row.theirs)} | {_code(row.ours)} | {row.kind} | {_why(row)} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


@functools.cache
def compared(root: Path) -> Comparison:
    folder = root / "tests" / "cli"
    facts = facts_of(json.loads((folder / "natscli-0.5.1.json").read_text(encoding="utf-8")))
    differences = json.loads((folder / "natscli_differences.json").read_text(encoding="utf-8"))
    return Comparison(facts, differences)


def _code(text: str) -> str:
    return f"`{text}`" if text else "–"


def _why(row: Row) -> str:
    return (row.note or row.reason).replace("|", "\\|")
