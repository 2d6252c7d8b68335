"""The words of a query, as far as it must be understood to know which streams and columns it names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["word", "quoted", "string", "number", "symbol"]

_TOKEN = re.compile(
    r"""
      (?P<gap>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>'(?:\\.|''|[^'\\])*'|"(?:\\.|""|[^"\\])*")
    | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<word>[^\W\d]\w*)
    | (?P<symbol>\|>|<=>|[<>!=]=|<>|\|\||::|->|.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, literal or sign and where it stands; `text` is as it was written."""

    kind: Kind
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of those keywords, given in capitals."""
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        """Whether it is one of those signs."""
        return self.kind == "symbol" and self.text in symbols

    @property
    def name(self) -> str:
        """The identifier that a word or a text in backticks stands for; "" for anything else."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" else ""

    @property
    def literal(self) -> str | None:
        """The value of a string without escapes; None for one that has some, or that is no string."""
        inner = self.text[1:-1]
        if self.kind != "string" or "\\" in inner or self.text[0] in inner:
            return None
        return inner


def tokens(query: str) -> list[Token]:
    """The words of a query without comments; what can be no SQL comes out as signs, for Spark to refuse."""
    found: list[Token] = []
    for match in _TOKEN.finditer(query):
        group = str(match.lastgroup)
        if group != "gap":
            kind: Kind = "string" if group == "raw" else group  # type: ignore[assignment]  # the groups are the kinds
            found.append(Token(kind, match.group(), match.start(), match.end()))
    return found


def quote(name: str) -> str:
    """The identifier as Spark reads it, whatever it is made of."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: str) -> str:
    """A text as Spark reads it in a query."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def split_statements(text: str) -> list[str]:
    """The statements of a text, each without its semicolon; empty ones are left out."""
    found, begin = [], 0
    for token in tokens(text):
        if token.is_symbol(";"):
            found.append(text[begin : token.start])
            begin = token.end
    return [one.strip() for one in [*found, text[begin:]] if tokens(one)]
