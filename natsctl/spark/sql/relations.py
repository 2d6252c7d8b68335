"""The words of a query, as far as needed to find the tables that it names and write them as Spark can read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
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
        """Return whether it is one of those keywords, given in capitals."""
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        """Return whether it is one of those signs."""
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
    """Return the words of a query without comments; what can be no SQL comes out as signs, for Spark to refuse."""
    found: list[Token] = []
    for match in _TOKEN.finditer(query):
        group = str(match.lastgroup)
        if group != "gap":
            kind: Kind = "string" if group == "raw" else group  # type: ignore[assignment]  # the groups are the kinds
            found.append(Token(kind, match.group(), match.start(), match.end()))
    return found


def quote(name: str) -> str:
    """Return the identifier as Spark reads it, whatever it is made of."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: str) -> str:
    """Return a text as Spark reads it in a query."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def split_statements(text: str) -> list[str]:
    """Return the statements of a text, each without its semicolon; empty ones are left out."""
    found, begin = [], 0
    for token in tokens(text):
        if token.is_symbol(";"):
            found.append(text[begin : token.start])
            begin = token.end
    return [one.strip() for one in [*found, text[begin:]] if tokens(one)]


_BEFORE_TABLES = ("FROM", "JOIN", "TABLE")
_AFTER_TABLES = (
    "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT", "WINDOW",
    "CLUSTER", "SORT", "DISTRIBUTE", "OFFSET",
)  # fmt: skip
_BEFORE_QUERIES = ("FROM", "JOIN", "AS", "UNION", "INTERSECT", "EXCEPT", "MINUS", "ALL", "DISTINCT")
_OF_DESCRIBE = ("TABLE", "EXTENDED", "FORMATTED")
_DESCRIBED = ("FUNCTION", "QUERY", "DATABASE", "SCHEMA", "NAMESPACE", "CATALOG", "SELECT", "WITH", "VALUES")
"""The words behind DESCRIBE with which no name of a table follows at once."""
_ENDS_NAME = (",", "(", ")", ";")


@dataclass(frozen=True, slots=True)
class Named:
    """A table by the name that a query gives it, and where that stands."""

    name: str
    start: int
    end: int


def relations(query: str) -> list[Named]:
    """Return the names in places of tables: tables, and names that the query itself gives to a part of it.

    A name without backticks may hold signs that Spark would refuse, such as `-` or `$`: nothing else can be meant where
    a table is expected.
    """
    return list(_relations(tokens(query)))


def reads_once(query: str) -> bool:
    """Return whether Spark has no cause to look at a table of the query twice.

    It has where a name is there twice, or where a subquery may depend on the rows around it, which Spark then copies.
    """
    names = [named.name.lower() for named in relations(query)]
    return len({*names}) == len(names) and not _has_dependent_query(tokens(query))


def _has_dependent_query(words: Sequence[Token]) -> bool:
    """Return whether a query stands in parentheses where no table and no member of a union can."""
    return any(
        opening.is_symbol("(") and inner.is_word("SELECT", "WITH", "FROM") and not before.is_word(*_BEFORE_QUERIES)
        for before, opening, inner in zip(words, words[1:], words[2:], strict=False)
    )


def _relations(words: Sequence[Token]) -> Iterator[Named]:
    clauses = [False]
    """For each open parenthesis, whether tables are listed in it."""
    at = _beginning(words)
    expected = at > 0
    while at < len(words):
        token = words[at]
        if token.is_symbol("("):
            clauses.append(expected)
        elif token.is_symbol(")"):
            clauses = clauses[:-1] or [False]
            expected = False
        elif token.is_word(*_BEFORE_TABLES):
            clauses[-1] = expected = True
        elif token.is_symbol(","):
            expected = clauses[-1]
        elif token.is_word(*_AFTER_TABLES) and not (expected and _can_be_name(words, at)):
            clauses[-1] = expected = False
        elif expected:
            run = _run(words, at)
            expected = token.is_word("LATERAL", "ONLY")
            after = words[at + len(run)] if at + len(run) < len(words) else token
            if (name := _name(run)) and not expected and not after.is_symbol("("):
                yield Named(name, run[0].start, run[-1].end)
            at += len(run) - 1
        at += 1


def _beginning(words: Sequence[Token]) -> int:
    """Return the number of words before the table of DESCRIBE or SHOW COLUMNS; 0 for other statements."""
    if len(words) > 3 and words[0].is_word("SHOW") and words[1].is_word("COLUMNS") and words[2].is_word("IN"):
        return 3
    if not words or not words[0].is_word("DESCRIBE", "DESC"):
        return 0
    at = next((at for at, word in enumerate(words) if at and not word.is_word(*_OF_DESCRIBE)), 0)
    return 0 if words[at].is_word(*_DESCRIBED) else at


def _can_be_name(words: Sequence[Token], at: int) -> bool:
    """Return whether a keyword is a name, as no clause can begin there: behind FROM, JOIN or a comma."""
    return at > 0 and not words[at - 1].is_symbol("(")


def _run(words: Sequence[Token], at: int) -> Sequence[Token]:
    """Return the words from `at` on with nothing between them: what a name without backticks is made of."""
    end = at + 1
    while end < len(words) and words[end].start == words[end - 1].end and not words[end].is_symbol(*_ENDS_NAME):
        end += 1
    return words[at:end]


def name_at(words: Sequence[Token], at: int) -> str:
    """Return the name of a table that stands there; "" where none can."""
    return _name(_run(words, at))


def _name(run: Sequence[Token]) -> str:
    if len(run) == 1:
        return run[0].name or (run[0].text if run[0].kind == "number" else "")
    if any(one.kind in ("quoted", "string") for one in run):
        return ""
    return "".join(one.text for one in run)


def quoted(query: str, is_table: Callable[[str], bool]) -> str:
    """Return the query with the names of tables in backticks."""
    parts, end = [], 0
    for named in relations(query):
        if is_table(named.name):
            parts += [query[end : named.start], quote(named.name)]
            end = named.end
    return "".join([*parts, query[end:]])
