"""The tables of a query as temporary views of a Spark session, with the columns that it needs and no others.

Views and cached tables that a statement leaves behind are remembered, as later statements read through them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from natsctl.spark.sql.catalogue import (
    BUCKET_COLUMNS,
    BUCKET_STREAM,
    EVERYTHING,
    STREAM_COLUMNS,
    SUBJECTS,
    Table,
    is_query,
    needed,
)
from natsctl.spark.sql.relations import Token, quote, reads_once, relations, tokens

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_LEAVE_TEXTS = ("CREATE", "CACHE", "ALTER", "DECLARE")
_END_ALL = (("CLEAR", "CACHE"), ("REFRESH",))
"""The beginnings of statements that end all caching."""


class Left:
    """Tables that later statements must find whole, and those that must stay as they were."""

    def __init__(self) -> None:
        self._behind: dict[str, Table] = {}
        """Tables that views and functions made so far may read, with any column and more than once."""
        self._cached: dict[str, set[str]] = {}
        """Cached tables and views, and the tables that they were read from: Spark finds them again by these."""
        self._functions = False

    def behind(self, tables: Sequence[Table], statement: str) -> list[Table]:
        """Return the tables that a statement may read through what was made before; it names `tables` itself."""
        words = tokens(statement)
        known = {table.name.lower() for table in tables}
        unseen = self._functions or any(word.is_word("IDENTIFIER") for word in words)
        if not unseen and not _leaves_text(words) and known and known >= _names(statement):
            return []
        return [*self._behind.values()]

    def kept(self) -> set[str]:
        """Return the names of tables that stay as they were, since what is cached was read from them."""
        return set().union(*self._cached.values())

    def note(self, tables: Iterable[Table], statement: str) -> None:
        """Record the effects of a statement that was run; it names `tables` itself."""
        words = tokens(statement)
        if any(_begins(words, *ending) for ending in _END_ALL):
            self._cached.clear()
        elif _begins(words, "UNCACHE"):
            self._cached.pop(words[-1].name.lower(), None)
        elif _leaves_text(words):
            self._functions = self._functions or any(word.is_word("FUNCTION") for word in words)
            self._behind |= {table.name.lower(): table for table in tables}
            if _begins(words, "CACHE"):
                self._note_cached({table.name.lower() for table in tables}, statement)

    def _note_cached(self, tables: set[str], statement: str) -> None:
        target, *inside = [named.name.lower() for named in relations(statement)]
        of_views = not {*(inside or [target])} <= tables
        self._cached[target] = tables | ({*self._behind} if of_views else set())


def _names(statement: str) -> set[str]:
    return {named.name.lower() for named in relations(statement)}


def _begins(words: Sequence[Token], *beginning: str) -> bool:
    return len(words) >= len(beginning) and all(
        word.is_word(said) for word, said in zip(words, beginning, strict=False)
    )


def _leaves_text(words: Sequence[Token]) -> bool:
    """Return whether a statement may leave behind a text that Spark reads anew wherever it is named."""
    return bool(words) and words[0].is_word(*_LEAVE_TEXTS)


FORMAT = "jetstream"
PUSHDOWN = "filterPushdown"
"""The option that lets the server do its part of WHERE; sessions of natsctl allow it."""
TYPES = {
    "stream": "string",
    "seq": "bigint",
    "subject": "string",
    "timestamp": "timestamp",
    "headers": "array<struct<key: string, value: binary>>",
    "value": "binary",
}
_COUNTED = "subject string, messages bigint"
_ALWAYS = "seq"
"""The column that is read where a query needs none: the cheapest that every message has."""

Locate = Callable[[str], Mapping[str, str]]
"""The options of the data source for a stream."""


def schema_of(columns: list[str]) -> str:
    """Return the schema of those columns, in DDL."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def read_stream(
    spark: SparkSession, options: Mapping[str, str], columns: list[str], *, pushdown: bool = False
) -> DataFrame:
    """Return the messages that the options describe, with those columns.

    With `pushdown` the server does its part of WHERE. Spark keeps that for every other use of the same frame, so it is
    for frames of which one query takes one look.
    """
    schema = schema_of(columns or [_ALWAYS])
    asked = {PUSHDOWN: "true", **options} if pushdown else options
    return spark.read.format(FORMAT).schema(schema).options(**asked).load()


class Views:
    """Views in a session, made anew for each statement: Spark plans the read of a view once for all its uses.

    What is cached stays cached only while the views that it was read from are the same, so those are not made anew.
    """

    def __init__(self, spark: SparkSession, locate: Locate, *, on_server: bool) -> None:
        self._spark, self._locate, self._on_server = spark, locate, on_server
        self._left = Left()
        self._made: set[str] = set()

    def make(self, tables: list[Table], statement: str) -> None:
        """Make a view of each table that the statement names, or that views of its own name."""
        behind = {table.name.lower(): table for table in self._left.behind(tables, statement)}
        kept = self._left.kept() & self._made
        pushdown = is_query(statement) and reads_once(statement)
        for name, table in ({table.name.lower(): table for table in tables} | behind).items():
            if name not in kept:
                query, pushed = (EVERYTHING, False) if name in behind else (statement, pushdown)
                self._frame(table, query, pushed).createOrReplaceTempView(quote(table.name))
                self._made.add(name)

    def note(self, tables: list[Table], statement: str) -> None:
        """Record that a statement which names those tables was run."""
        self._left.note(tables, statement)

    def _frame(self, table: Table, query: str, pushdown: bool) -> DataFrame:
        if table.kind == "subjects":
            return self._subjects_of(table)
        if table.kind == "bucket":
            return self._bucket(table, needed(query, BUCKET_COLUMNS), pushdown)
        columns = needed(query, STREAM_COLUMNS)
        return read_stream(self._spark, self._locate(table.stream), columns, pushdown=pushdown)

    def _bucket(self, table: Table, columns: list[str], pushdown: bool) -> DataFrame:
        """Return a row for every revision of a key that the bucket keeps."""
        sources = {source for name in columns for source in BUCKET_COLUMNS[name]}
        wanted = [one for one in STREAM_COLUMNS if one in sources]
        frame = read_stream(self._spark, self._locate(table.stream), wanted, pushdown=pushdown)
        return frame.selectExpr(*(f"{_MADE[name]} as {name}" for name in columns or ["revision"]))

    def _subjects_of(self, table: Table) -> DataFrame:
        """Return a row for every subject; of a server the counts alone are asked for."""
        if self._on_server:
            options = self._locate(table.stream + SUBJECTS)
            return self._spark.read.format(FORMAT).schema(_COUNTED).options(**options).load()
        frame = read_stream(self._spark, self._locate(table.stream), ["subject"])
        return frame.groupBy("subject").count().withColumnRenamed("count", "messages")


def _header(key: str) -> str:
    return f"cast(try_element_at(filter(headers, pair -> pair.key = '{key}'), -1).value as string)"


_OPERATION = f"""
case when coalesce({_header("KV-Operation")}, '') != ''
     then case when {_header("KV-Operation")} in ('DEL', 'PURGE') then {_header("KV-Operation")} else 'PUT' end
     else case {_header("Nats-Marker-Reason")}
          when 'MaxAge' then 'PURGE' when 'Purge' then 'PURGE' when 'Remove' then 'DEL' else 'PUT' end
end"""
_MADE = {
    "bucket": f"substr(stream, {len(BUCKET_STREAM) + 1})",
    "key": "regexp_replace(subject, r'^\\$KV\\.[^.]*\\.', '')",
    "revision": "seq",
    "operation": _OPERATION,
    "timestamp": "timestamp",
    "value": "value",
}
