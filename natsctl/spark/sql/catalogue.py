"""The tables of a server: streams, their subjects, and buckets; and the columns that a query can need of them.

Without the payload the server sends headers only. More columns may be found than are needed, never fewer: a column that
is used is named, unless a star or one of a few clauses stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from natsctl.api.errors import UsageError
from natsctl.spark.sql.relations import Token, tokens

TableKind = Literal["stream", "subjects", "bucket"]

SUBJECTS = "$subjects"
BUCKET_STREAM = "KV_"
STREAM_COLUMNS = ("stream", "seq", "subject", "timestamp", "headers", "value")
BUCKET_COLUMNS = {
    "bucket": ("stream",),
    "key": ("subject",),
    "revision": ("seq",),
    "operation": ("headers",),
    "timestamp": ("timestamp",),
    "value": ("value",),
}
"""The columns of a bucket, each with what of the stream it is made of."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table by the name that a query gives it."""

    name: str
    kind: TableKind
    stream: str


class Catalogue:
    """Tables by name, found as written or else without regard to case."""

    def __init__(self, streams: Iterable[str]) -> None:
        self.streams = sorted(streams)
        self._exact: dict[str, tuple[TableKind, str]] = {}
        for stream in self.streams:
            if stream.startswith(BUCKET_STREAM):
                self._exact[stream.removeprefix(BUCKET_STREAM)] = ("bucket", stream)
        for stream in self.streams:
            self._exact[stream] = ("stream", stream)
            self._exact[stream + SUBJECTS] = ("subjects", stream)
        self._folded: dict[str, list[str]] = {}
        for name in self._exact:
            self._folded.setdefault(name.lower(), []).append(name)

    def find(self, name: str) -> Table | None:
        """Return the table of that name; raises UsageError where several differ only in the case of letters."""
        if name in self._exact:
            return Table(name, *self._exact[name])
        near = self._folded.get(name.lower(), [])
        if len(near) > 1:
            raise UsageError(f"{name} may be {' or '.join(sorted(near))}", hint="write it with the same letters")
        return Table(name, *self._exact[near[0]]) if near else None

    def find_all(self, names: Iterable[str]) -> list[Table]:
        """Return the tables among the names, each once; others are names that a query has of its own, or mistakes.

        Raises UsageError for two that differ in the case of letters alone, which Spark takes for one.
        """
        found: dict[str, Table] = {}
        for name in names:
            table = self.find(name)
            if table is None:
                continue
            other = found.setdefault(name.lower(), table)
            if other.stream != table.stream:
                raise UsageError(
                    f"{other.stream} and {table.stream} cannot be in one query: Spark tells no case of letters apart"
                )
        return list(found.values())

    @property
    def names(self) -> list[str]:
        """Every name there is, for suggestions."""
        return list(self._exact)


_BEFORE_STAR = ("SELECT", "DISTINCT", "ALL")
_ALL_COLUMNS = ("NATURAL", "PIVOT", "UNPIVOT", "TABLE", "TRANSFORM", "MAP", "REDUCE", "DESCRIBE", "DESC")
_BEGINNINGS = ("SELECT", "WITH")
_QUERIES = (*_BEGINNINGS, "FROM", "TABLE", "VALUES", "DESCRIBE", "DESC", "EXPLAIN", "SHOW")
EVERYTHING = "select *"
"""A query for which all columns are needed."""


def is_query(statement: str) -> bool:
    """Return whether a statement only asks; others may leave views behind that read the tables they name."""
    words = [token for token in tokens(statement) if not token.is_symbol("(")]
    return bool(words) and words[0].is_word(*_QUERIES)


def needed(query: str, columns: Iterable[str]) -> list[str]:
    """Return those of `columns` that the query can need, in their order."""
    words = tokens(query)
    known = list(columns)
    if not words or not words[0].is_word(*_BEGINNINGS) or _takes_all(words):
        return known
    used = {token.name.lower() for token in words} | {part.lower() for token in words for part in _parts(token)}
    return [name for name in known if name.lower() in used]


def _parts(token: Token) -> list[str]:
    """Return the parts of a text in backticks, which may be a column with its table, `a.b`; none of other words."""
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
    """Return whether a `*` stands for columns; it may also multiply, or count rows."""
    before = words[at - 1] if at else words[at]
    if before.is_symbol("("):
        return not (at > 1 and words[at - 2].is_word("COUNT") and at + 1 < len(words) and words[at + 1].is_symbol(")"))
    return before.is_symbol(",", ".", "*") or before.is_word(*_BEFORE_STAR)
