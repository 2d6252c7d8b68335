"""Which test uses a command and its flags: found by the words in the sources of the tests."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from natsctl.cli.commands import COMMANDS

FOLDERS = ("tests/cli", "tests/client", "tests/live")
_WORD = re.compile(r"--[a-z][\w-]*|(?<![\w-])-[A-Za-z]\b|[A-Za-z][\w-]*|(?<= )-(?= )")

_ROOMS = {name: getattr(row.command, "module", "").split(".")[2] for name, row in COMMANDS.items()}
"""The folder of each noun: `publish` and its like share one."""


class Part(NamedTuple):
    """A test, or the tables of its file (`name` is then ""), with the words in it."""

    file: str
    name: str
    words: frozenset[str]
    file_words: frozenset[str]


class TestsFound:
    """The tests of commands in a repository."""

    def __init__(self, root: Path) -> None:
        self._parts: list[Part] = []
        for folder in FOLDERS:
            for file in sorted((root / folder).rglob("test_*.py")):
                self._parts += _parts(file, str(file.relative_to(root)))
        self._with_flag: dict[str, list[int]] = defaultdict(list)
        """The places of the parts that have a word which may be a flag."""
        for place, part in enumerate(self._parts):
            for word in part.words:
                if word.startswith("-"):
                    self._with_flag[word].append(place)

    def find(self, noun: Sequence[str], verb: Sequence[str], flags: Sequence[str]) -> str:
        """The test that fits best, as `file::name`, or "": it has one of the flags, the verb and the noun."""
        best, at = 0, None
        places = sorted({place for flag in flags for place in self._with_flag.get(flag, ())})
        for part in [self._parts[place] for place in places] if flags else self._parts:
            score = _score(part, noun, verb, flags)
            if score > best:
                best, at = score, part
        if at is None:
            return ""
        return f"{at.file}::{at.name}" if at.name else at.file


def _score(part: Part, noun: Sequence[str], verb: Sequence[str], flags: Sequence[str]) -> int:
    """How well a part fits; 0 where it does not."""
    if flags and not part.words.intersection(flags):
        return 0
    if noun and not part.file_words.intersection(noun):
        return 0
    if verb and not part.file_words.intersection(verb):
        return 0
    close = bool(noun and part.words.intersection(noun)) + 2 * bool(verb and part.words.intersection(verb))
    if not flags and verb and close < 2:
        return 0
    of_noun = bool(noun) and (f"/{noun[0]}" in part.file or f"/{_ROOMS.get(noun[0])}/" in part.file)
    return 1 + 4 * close + 2 * bool(part.name) + 3 * of_noun


def _parts(file: Path, name: str) -> list[Part]:
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    file_words = _words(source) | _words(name.replace("_", " ").replace("/", " "))
    found, tables = [], []
    for one in tree.body:
        text = _source(source, one)
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.startswith("test_"):
            found.append(Part(name, one.name, _words(text), file_words))
        else:
            tables.append(text)
    return [*found, Part(name, "", _words("\n".join(tables)), file_words)]


def _source(source: str, node: ast.stmt) -> str:
    """The lines of a statement, with the decorators of a function."""
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    return "\n".join(source.split("\n")[first - 1 : node.end_lineno])


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text))
