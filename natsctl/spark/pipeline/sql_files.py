"""Where in a file of SQL a statement stands, for faults that Spark tells by statement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from natsctl.spark.sql.text import Token, tokens

_KINDS = ("TABLE", "VIEW", "FLOW")
_TABLE = re.compile(
    r"(?:--[^\n]*\n\s*|/\*.*?\*/\s*)*create\s+(?:or\s+\w+\s+)?(?P<kind>(?:streaming\s+)?table|materialized\s+view)\b",
    re.IGNORECASE | re.DOTALL,
)
_POSITION = re.compile(r"line (\d+),? pos \d+")
_DRAWN = re.compile(r"== SQL[^\n]*==\n(.*?)\n-*\^\^\^", re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """One statement as Spark sees it: from right behind the one before; `line` is that place's in the file."""

    text: str
    line: int
    made: tuple[str, ...] = ()
    """The parts of the name of what it makes."""
    filled: tuple[str, ...] = ()
    """The parts of the name of what its flow fills; none without a flow."""
    format: str = ""
    """What USING says."""

    @property
    def name(self) -> str:
        """What it makes, without database."""
        return self.made[-1] if self.made else ""

    @property
    def is_table(self) -> bool:
        """Whether it makes a table, that of a materialized view included."""
        return _TABLE.match(self.text.lstrip()) is not None

    @property
    def is_streaming_table(self) -> bool:
        """Whether it makes a table that streaming flows fill."""
        found = _TABLE.match(self.text.lstrip())
        return found is not None and found["kind"].lower().endswith("table")

    @property
    def first_line(self) -> int:
        """The line of its first word."""
        return self.line + self.text[: len(self.text) - len(self.text.lstrip())].count("\n")


def statements(sql: str) -> list[Statement]:
    """The statements of a file."""
    found = []
    words: list[Token] = []
    begin = 0
    for token in tokens(sql):
        if not token.is_symbol(";"):
            words.append(token)
            continue
        found.append(_statement(sql, begin, token.start, words))
        begin, words = token.end, []
    if words:
        found.append(_statement(sql, begin, len(sql), words))
    return found


def line_of_failure(statement: Statement, text: str) -> int:
    """The line in the file of what Spark says of a statement."""
    position = _POSITION.search(text)
    return statement.line + int(position[1]) - 1 if position else statement.first_line


def line_of_syntax(sql: str, text: str) -> int:
    """The line in the file where Spark does not understand it; 0 where it does not say that.

    Spark draws the statement down to that line, with a mark below, and counts from the statement's begin.
    """
    drawn, position = _DRAWN.search(text), _POSITION.search(text)
    if not drawn or not position:
        return 0
    begin = " ".join(drawn[1].split())
    for statement in statements(sql):
        if " ".join(statement.text.split()).startswith(begin):
            return statement.line + int(position[1]) - 1
    return 0


def _statement(sql: str, begin: int, end: int, words: list[Token]) -> Statement:
    made = next(_names(words), [])
    filled = made if any(word.is_word("AS") for word in words) else []
    if any(word.is_word("FLOW") for word in words[:2]):
        filled = next((_dotted(words[at + 1 :]) for at, word in enumerate(words) if word.is_word("INTO")), [])
    using = [after.name for word, after in pairwise(words) if word.is_word("USING")]
    line = sql.count("\n", 0, begin) + 1
    return Statement(sql[begin:end], line, tuple(made), tuple(filled), using[0] if using else "")


def _names(words: list[Token]) -> Iterator[list[str]]:
    """What a statement creates: the parts of the name behind TABLE, VIEW or FLOW."""
    for at, token in enumerate(words):
        if not token.is_word(*_KINDS):
            continue
        rest = words[at + 1 :]
        while rest and rest[0].is_word("IF", "NOT", "EXISTS"):
            rest = rest[1:]
        if parts := _dotted(rest):
            yield parts


def _dotted(words: list[Token]) -> list[str]:
    """The parts of the name that the words begin with."""
    parts = [words[0].name] if words and words[0].name else []
    while parts and len(words) > 2 and words[1].is_symbol(".") and words[2].name:
        words = words[2:]
        parts.append(words[0].name)
    return parts
