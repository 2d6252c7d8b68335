"""docs/natscli.md: every command and flag of the `nats` tool, the same here, different on purpose, or not here.

`tests/cli/natscli-0.5.1.json` has the facts of the tool, made of what it says of itself, `natscli_differences.json`
beside it what is spelled otherwise, means something else or is left out, and why. Everything else is found: a command
answers to the same words, a flag has the same name, and a test uses them. `python -m natsctl.cli.generate` writes the
page.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from natsctl.cli.commands import COMMANDS
from natsctl.cli.generate.tests_found import TestsFound
from natsctl.cli.generate.tree import NATS_SERVER_FLAGS, parameters
from natsctl.cli.globals import GLOBAL_FLAGS
from natsctl.cli.nouns import NOUNS
from natsctl.cli.verbs import Verb


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
        """The first spelling of every flag by each of its spellings; of a group, of all that is below it."""
        if self._flags is None:
            self._flags = {
                spelling: one.opts[0] if spelling in one.opts else spelling
                for one in (parameters(self.row) if self.row and self.path != NATS_SERVER_FLAGS else ())
                if one.param_type_name == "option"
                for spelling in (*one.opts, *one.secondary_opts)
            }
            for node in self.below.values():
                self._flags |= node.flags
        return self._flags


def our_tree() -> Node:
    """All commands, below a root that has the flags of every command."""
    root = Node((), None, _flags={spelling: spelling for flag in GLOBAL_FLAGS for spelling in flag.spellings})
    for noun in NOUNS:
        node = _node(noun.words, COMMANDS[noun.name], noun.name)
        root.below |= dict.fromkeys(node.names, node)
    return root


def _node(names: tuple[str, ...], row: Verb, path: str) -> Node:
    """Return a row of a table with all that is below it."""
    node = Node(names, row, path)
    for verb in row.verbs:
        node.below |= dict.fromkeys(verb.words, _node(verb.words, verb, f"{path} {verb.name}"))
    return node


class Row(NamedTuple):
    """One row: what the tool has, what we have, the test of it or the reason against it, and what differs here."""

    theirs: str
    ours: str
    test: str
    reason: str
    note: str = ""

    @property
    def kind(self) -> str:
        """Return `same`, `differs on purpose` or `not here`; "" for what nothing is known of yet."""
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
    """The rows, made from the facts of the tool, our tree and the differences that were written by hand."""

    def __init__(self, facts: Mapping[str, Any], differences: Mapping[str, Any], tests: TestsFound) -> None:
        self._facts = facts
        self._commands: Mapping[str, Any] = differences["commands"]
        self._flags: Mapping[str, Any] = differences["flags"]
        self._fallbacks: Mapping[str, str] = differences["tests"]
        self._tests = tests
        self._root = our_tree()
        self.used: set[str] = set()
        """The keys of the differences that a row was made with."""

    def rows(self) -> Iterator[tuple[str, list[Row]]]:
        """The rows by command of the tool, "" for the flags of every command."""
        for path, fact in self._facts.items():
            yield path, list(self._of_command(path, fact))

    def _of_command(self, path: str, fact: Mapping[str, Any]) -> Iterator[Row]:
        said = self._difference(path)
        words = said.get("ours", path).split()
        node = self._resolved(words)
        flags = fact.get("flags", [])
        if node is None or "reason" in said:
            yield from (
                Row(one.strip(), "", "", said.get("reason", "")) for one in (path, *(f"{path} {f}" for f in flags))
            )
            return
        if path:
            test = "" if fact.get("group") else self._test(path, node, ())
            yield Row(path, self._named(words), test, "", said.get("note", ""))
        for flag in flags:
            yield self._of_flag(path, node, flag)

    def _difference(self, path: str) -> Mapping[str, Any]:
        """What was written about a command or one above it."""
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
        """The words with the first names of our commands."""
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
            return Row(f"{path} {flag}".strip(), "", "", said["reason"])
        ours = said.get("ours", "")
        missing = [word for word in ours.split() if word.startswith("-") and word not in known]
        if missing and ours:
            return Row(f"{path} {flag}".strip(), "", "", "")
        if not ours:
            if spellings[-1] not in known:
                return Row(f"{path} {flag}".strip(), "", "", "")
            negated = long.startswith("--[no-]") and f"--no-{spellings[-1][2:]}" in known
            shorts = [word for word in spellings[:-1] if known.get(word) == known.get(spellings[-1]) or word in known]
            ours = " ".join([*shorts, f"--[no-]{spellings[-1][2:]}" if negated else spellings[-1]])
        names = [word.replace("--[no-]", "--") for word in (*spellings, *ours.split()) if word.startswith("-")]
        note = said.get("note", "")
        if not note and long.startswith("--[no-]") and f"--no-{spellings[-1][2:]}" not in known:
            note = "has no `--no-` form: it is off unless it is given"
        return Row(f"{path} {flag}".strip(), ours, self._test(path, node, names), "", note)

    def _flag_difference(self, path: str, flag: str) -> Mapping[str, Any]:
        """What was written about a flag of this command, of all below one above it (`server *`), or of all (`*`)."""
        words = path.split()
        above = [f"{' '.join(words[:count])} * {flag}" for count in range(len(words), 0, -1)]
        for key in (f"{path} {flag}".strip(), *above, f"* {flag}"):
            if key in self._flags:
                self.used.add(key)
                return dict(self._flags[key])
        return {}

    def _test(self, path: str, node: Node, flags: Iterator[str] | tuple[str, ...] | list[str]) -> str:
        noun = self._resolved((self._commands.get(path, {}).get("ours", path)).split()[:1]) if path else None
        found = self._tests.find(noun.names if noun else (), node.names if path else (), tuple(flags))
        if found or not flags:
            return found
        # A flag without a test of its own is taken, at least.
        words = path.split()
        for n in range(len(words), -1, -1):
            key = " ".join(words[:n])
            if key in self._fallbacks:
                self.used.add(key)
                return self._fallbacks[key]
        return ""


def page(root: Path) -> str:
    """The text of docs/natscli.md."""
    comparison = compared(root)
    every = list(comparison.rows())
    kinds = Counter(row.kind for _, rows in every for row in rows)
    lines = [
        "# From `nats` to `natsctl`",
        "",
        "Every command and flag of the `nats` tool 0.5.1, and what it is in natsctl:",
        "",
        f"* *same* ({kinds['same']:,}): the same words do the same; a test that uses them is named.",
        f"* *differs on purpose* ({kinds['differs on purpose']:,}): spelled otherwise or with another result, and how.",
        f"* *not here* ({kinds['not here']:,}): left out, and why.",
        "",
        "`python -m natsctl.cli.generate` makes this page of what the tool says of itself",
        "(`tests/cli/natscli-0.5.1.json`), of natsctl's own commands, and of the reasons in",
        "`tests/cli/natscli_differences.json`.",
        "",
    ]
    for path, rows in every:
        if not rows:
            continue
        head = ["| `nats` | `natsctl` | | |", "|---|---|---|---|"]
        lines += [f"## {path or 'flags of every command'}", "", *head]
        lines += [f"| {_code(row.theirs)} | {_code(row.ours)} | {row.kind} | {_link(row)} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


@functools.cache
def compared(root: Path) -> Comparison:
    """The comparison of what the repository holds."""
    folder = root / "tests" / "cli"
    facts = facts_of(json.loads((folder / "natscli-0.5.1.json").read_text(encoding="utf-8")))
    differences = json.loads((folder / "natscli_differences.json").read_text(encoding="utf-8"))
    return Comparison(facts, differences, TestsFound(root))


def _code(text: str) -> str:
    return f"`{text}`" if text else "–"


def _link(row: Row) -> str:
    said = (row.note or row.reason).replace("|", "\\|")
    if not row.test:
        return said
    file, _, name = row.test.partition("::")
    return f"{f'{said}; ' if said else ''}[{name or Path(file).stem}](../{file})"
