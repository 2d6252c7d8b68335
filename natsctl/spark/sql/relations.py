"""Which tables a query names, where it names them, and the query with their names as Spark can read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from natsctl.spark.sql.text import Token, quote, tokens

_BEFORE_TABLES = ("FROM", "JOIN", "TABLE")
_AFTER_TABLES = (
    "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT", "WINDOW",
    "CLUSTER", "SORT", "DISTRIBUTE", "OFFSET",
)  # fmt: skip
_ENDS_NAME = (",", "(", ")", ";")


@dataclass(frozen=True, slots=True)
class Named:
    """A table by the name that a query gives it, and where that stands."""

    name: str
    start: int
    end: int


def relations(query: str) -> list[Named]:
    """What stands in the query where tables do: tables, and names that the query itself gives to a part of it.

    A name without backticks may hold signs that Spark would refuse, such as `-` or `$`: nothing else can be meant where
    a table is expected.
    """
    return list(_relations(tokens(query)))


def _relations(words: Sequence[Token]) -> Iterator[Named]:
    clauses = [False]
    """For each open parenthesis, whether tables are being listed in it."""
    expected, at = False, 0
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
        elif token.is_word(*_AFTER_TABLES):
            clauses[-1] = expected = False
        elif expected:
            run = _run(words, at)
            expected = token.is_word("LATERAL", "ONLY")
            after = words[at + len(run)] if at + len(run) < len(words) else token
            if (name := _name(run)) and not expected and not after.is_symbol("("):
                yield Named(name, run[0].start, run[-1].end)
            at += len(run) - 1
        at += 1


def _run(words: Sequence[Token], at: int) -> Sequence[Token]:
    """The words from `at` on with nothing between them: what a name without backticks is made of."""
    end = at + 1
    while end < len(words) and words[end].start == words[end - 1].end and not words[end].is_symbol(*_ENDS_NAME):
        end += 1
    return words[at:end]


def _name(run: Sequence[Token]) -> str:
    if len(run) == 1:
        return run[0].name or (run[0].text if run[0].kind == "number" else "")
    if any(one.kind in ("quoted", "string") for one in run):
        return ""
    return "".join(one.text for one in run)


def quoted(query: str, is_table: Callable[[str], bool]) -> str:
    """The query with the names of tables in backticks."""
    parts, end = [], 0
    for named in relations(query):
        if is_table(named.name):
            parts += [query[end : named.start], quote(named.name)]
            end = named.end
    return "".join([*parts, query[end:]])
