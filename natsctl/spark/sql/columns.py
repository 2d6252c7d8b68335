"""Which columns of its tables a query can need, so that nothing else is fetched.

Without the payload the server sends headers only. What is found may be more than is needed, never less: a column that
is used is named, unless a star or one of a few clauses stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from natsctl.spark.sql.text import Token, tokens

_BEFORE_STAR = ("SELECT", "DISTINCT", "ALL")
_ALL_COLUMNS = ("NATURAL", "PIVOT", "UNPIVOT", "TABLE", "TRANSFORM", "MAP", "REDUCE", "DESCRIBE", "DESC")
_BEGINNINGS = ("SELECT", "WITH")
_QUERIES = (*_BEGINNINGS, "FROM", "TABLE", "VALUES", "DESCRIBE", "DESC", "EXPLAIN", "SHOW")
EVERYTHING = "select *"
"""A query for which all columns are needed."""


def is_query(statement: str) -> bool:
    """Whether a statement only asks; others may leave views behind that read the tables they name."""
    words = [token for token in tokens(statement) if not token.is_symbol("(")]
    return bool(words) and words[0].is_word(*_QUERIES)


def needed(query: str, columns: Iterable[str]) -> list[str]:
    """Those of `columns` that the query can need, in their order."""
    words = tokens(query)
    known = list(columns)
    if not words or not words[0].is_word(*_BEGINNINGS) or _takes_all(words):
        return known
    used = {token.name.lower() for token in words} | {part.lower() for token in words for part in _parts(token)}
    return [name for name in known if name.lower() in used]


def _parts(token: Token) -> list[str]:
    """A text in backticks may name a column as others see it, `a.b`."""
    return token.name.split(".") if token.kind == "quoted" else []


def _takes_all(words: Sequence[Token]) -> bool:
    for at, token in enumerate(words):
        if token.is_symbol("|>"):
            return True
        if token.is_word(*_ALL_COLUMNS) and not (token.is_word("DESC") and at):
            return True
        if token.is_symbol("*") and _is_star(words, at):
            return True
    return False


def _is_star(words: Sequence[Token], at: int) -> bool:
    """Whether a `*` stands for columns; it may also multiply, or count rows."""
    before = words[at - 1] if at else words[at]
    if before.is_symbol("("):
        return not (at > 1 and words[at - 2].is_word("COUNT") and at + 1 < len(words) and words[at + 1].is_symbol(")"))
    return before.is_symbol(",", ".", "*") or before.is_word(*_BEFORE_STAR)
