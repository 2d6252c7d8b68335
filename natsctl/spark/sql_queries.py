"""Queries on one session of Spark, and their results as JSON, cells of CSV and texts for a terminal.

A query finds its tables as views, and its mistakes are reported with suggestions. Statements that would change a stream
or read a missing table are refused before Spark is started.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from natsctl.api.errors import NotFoundError, UsageError
from natsctl.spark.sql_tables import (
    EVERYTHING,
    Catalogue,
    Locate,
    SqlTable,
    Token,
    Views,
    name_at,
    quote,
    quoted,
    relations,
    split_statements,
    tokens,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


BASE64 = "base64"


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A result: its columns, its rows, the numeric columns (`numbers`), and whether rows were left out (`more`)."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    numbers: frozenset[str] = frozenset()
    more: bool = False

    def documents(self) -> list[dict[str, Any]]:
        """Return the rows as JSON objects; of columns with the same name the second is called `name_2`."""
        names = unique(self.columns)
        return [{name: json_value(value) for name, value in zip(names, row, strict=True)} for row in self.rows]

    def cut(self, limit: int | None) -> QueryResult:
        """Return the same with `limit` rows at most; None for all."""
        if limit is None or len(self.rows) <= limit:
            return self
        return QueryResult(self.columns, self.rows[:limit], self.numbers, more=True)


def of_arrow(table: pa.Table) -> QueryResult:
    """Return the rows of an Arrow table."""
    import pyarrow as pa

    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    numbers = frozenset(field.name for field in table.schema if any(is_kind(field.type) for is_kind in kinds))
    columns = [_values(column) for column in table.columns]
    return QueryResult(list(table.column_names), list(zip(*columns, strict=True)), numbers)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, with replacement characters in text that is not UTF-8 (Spark allows it)."""
    try:
        values: list[Any] = column.to_pylist()
        return values
    except UnicodeDecodeError:
        return [_marked(column.type, value) for value in column.cast(_of_bytes(column.type)).to_pylist()]


def _of_bytes(kind: pa.DataType) -> pa.DataType:
    """Return the type with bytes instead of text."""
    import pyarrow as pa

    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_map(kind):
        return pa.map_(_of_bytes(kind.key_type), _of_bytes(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_of_bytes(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _of_bytes(field.type)) for field in kind])
    return kind


def _marked(kind: pa.DataType, value: Any) -> Any:
    """Convert a value of the type `_of_bytes(kind)` to `kind`."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return value.decode("utf-8", "replace")
    if pa.types.is_map(kind):
        return [(_marked(kind.key_type, key), _marked(kind.item_type, item)) for key, item in value]
    if pa.types.is_list(kind):
        return [_marked(kind.value_type, item) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _marked(field.type, value[field.name]) for field in kind}
    return value


def unique(names: Sequence[str]) -> list[str]:
    """Return the names, with a number after each that occurred before."""
    found: list[str] = []
    for name in names:
        number, free = 1, name
        while free in found:
            number += 1
            free = f"{name}_{number}"
        found.append(free)
    return found


def json_value(value: Any) -> Any:
    """Return a value as JSON: bytes as text if they are UTF-8, else `{"base64": …}`; times in RFC 3339."""
    if isinstance(value, bytes):
        text = text_of(value)
        return {BASE64: base64.b64encode(value).decode()} if text is None else text
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: json_value(item) for name, item in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return {str(json_value(key)): json_value(item) for key, item in value}
        return [json_value(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value if value is None or isinstance(value, bool | int | float | str) else _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def text_of(payload: bytes) -> str | None:
    """Return a payload as text; None if it is not UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def cell(value: Any) -> str:
    """Return a value as a cell of CSV: bytes that are not UTF-8 as `base64:…`, structures as JSON, null as ""."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        text = text_of(value)
        return f"{BASE64}:{base64.b64encode(value).decode()}" if text is None else text
    plain = json_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def shown(value: Any) -> str:
    r"""Return a value for a person: bytes as text with `\xff` for invalid ones, headers as `key: value`.

    Control characters are not escaped.
    """
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, list) and value and all(isinstance(one, dict) and {*one} == {"key", "value"} for one in value):
        return ", ".join(f"{one['key']}: {shown(one['value'])}" for one in value)
    if isinstance(value, datetime):
        return value.isoformat(" ").replace("+00:00", "Z")
    return cell(value)


Suggest = Callable[[str, list[str]], str]
"""Returns a suggestion for an unknown name, from the known ones."""

_CHANGES: Final = {
    "INSERT": "natsctl stream import {} FILE stores messages",
    "MERGE": "natsctl stream import {} FILE stores messages",
    "UPDATE": "messages cannot be changed",
    "DELETE": "natsctl stream purge {} removes messages",
    "TRUNCATE": "natsctl stream purge {} removes messages",
    "DROP": "natsctl stream rm {} removes it",
    "ALTER": "natsctl stream edit {} changes it",
}
"""First words of statements that change something, and the natsctl command to use instead."""
_BEFORE_TARGETS: Final = ("INTO", "OVERWRITE", "FROM", "TABLE", "VIEW", "IF", "EXISTS")


_FIRST_WORDS: Final = (
    "SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "SET", "RESET",
    "CREATE", "REPLACE", "DECLARE", "EXECUTE", "USE", "CACHE", "UNCACHE", "CLEAR", "REFRESH", "ANALYZE", "COMMENT",
    "CALL", "BEGIN", "ADD", "LIST", "LOAD", "MSCK", "REPAIR", "GRANT", "REVOKE", "EXPORT", "IMPORT", "LOCK", "UNLOCK",
    "START", "COMMIT", "ROLLBACK", "DFS", *_CHANGES,
)  # fmt: skip
_PAIRS: Final = {")": "(", "]": "["}


def check_form(text: str, suggest: Suggest) -> None:
    """Raise UsageError for obvious syntax errors: quotes, brackets, the first word, SELECT * without FROM."""
    for number, statement in enumerate(split_statements(text)):
        words, open_ = tokens(statement), []
        for word in words:
            if word.is_symbol("'", '"', "`"):
                raise UsageError(f"the query has an open {word.text}")
            if word.is_symbol("(", "["):
                open_.append(word.text)
            elif word.is_symbol(*_PAIRS) and (not open_ or open_.pop() != _PAIRS[word.text]):
                raise UsageError(f"the query has a {word.text} too many")
        if open_:
            raise UsageError(f"the query has an open {open_[-1]}")
        first = words[0]
        if number == 0 and not first.is_symbol("(") and not first.is_word(*_FIRST_WORDS):
            hint = suggest(first.text, [name.lower() for name in _FIRST_WORDS])
            raise UsageError(f"no SQL statement begins with {first.text}", hint=hint)
        if [word.text.upper() for word in words[:2]] == ["SELECT", "*"] and not any(map(_is_from, words)):
            raise UsageError("SELECT * needs FROM and a table")


def _is_from(word: Token) -> bool:
    return word.is_word("FROM")


def unknown_table(name: str, catalogue: Catalogue, suggest: Suggest) -> NotFoundError:
    """Return the failure of a query with an unknown table, or with a table in an unsupported place."""
    if name in catalogue.names:
        text = f"{name} stands where natsctl looks for no table, such as IDENTIFIER and EXECUTE IMMEDIATE"
        return NotFoundError(text, hint=f"write FROM {quote(name)}")
    hint = suggest(name, catalogue.names) or "natsctl str ls -a shows the streams"
    return NotFoundError(f"there is no stream, bucket or view {name}", hint=hint)


def check_changes_nothing(text: str, catalogue: Catalogue) -> None:
    """Raise UsageError for a statement that would change a stream or a bucket, or take its name."""
    for statement in split_statements(text):
        words = tokens(statement)
        _check_name_is_free(words, catalogue)
        instead = _CHANGES.get(words[0].text.upper()) if words[0].kind == "word" else None
        if instead is None:
            continue
        target = next((index for index, word in enumerate(words) if index and not word.is_word(*_BEFORE_TARGETS)), None)
        table = catalogue.find(name_at(words, target)) if target is not None else None
        if table is not None:
            raise UsageError(f"queries change no {table.kind}", hint=instead.format(table.stream))


def _check_name_is_free(words: Sequence[Token], catalogue: Catalogue) -> None:
    """Raise UsageError for a view with the name of a stream or bucket: it would hide that."""
    kinds = [index for index, word in enumerate(words) if word.is_word("VIEW", "AS")]
    if not words[0].is_word("CREATE") or not kinds or words[kinds[0]].is_word("AS"):
        return
    at = next((at for at in range(kinds[0] + 1, len(words)) if not words[at].is_word("IF", "NOT", "EXISTS")), None)
    table = catalogue.find(name_at(words, at)) if at is not None else None
    if table is not None:
        raise UsageError(f"there is a {table.kind} {table.name} already", hint="give the view another name")


def check_named(text: str, catalogue: Catalogue, suggest: Suggest) -> None:
    """Raise NotFoundError if a query reads a single table that does not exist; Spark checks other queries."""
    words = tokens(text.rstrip().rstrip(";"))
    named = relations(text)
    if len(named) != 1 or not words[0].is_word("SELECT") or any(word.is_symbol(";") for word in words):
        return
    froms = [index for index, word in enumerate(words) if word.is_word("FROM")]
    if len(froms) != 1 or words[froms[0] - 1].is_word("DISTINCT") or _depth(words[: froms[0]]):
        return
    name = named[0].name
    begins = froms[0] + 1 < len(words) and words[froms[0] + 1].start == named[0].start
    if begins and "." not in name and name.upper() != "VALUES" and catalogue.find(name) is None:
        raise unknown_table(name, catalogue, suggest)


def _depth(words: Sequence[Token]) -> int:
    return sum(word.is_symbol("(") - word.is_symbol(")") for word in words)


def listed(text: str, catalogue: Catalogue) -> QueryResult | None:
    """Return the answer to SHOW TABLES (Spark knows only the tables that were read); None for anything else."""
    words = [word for word in tokens(text) if not word.is_symbol(";")]
    if len(words) != 2 or not (words[0].is_word("SHOW") and words[1].is_word("TABLES")):
        return None
    found = [catalogue.find(name) for name in sorted(catalogue.names)]
    return QueryResult(["tableName", "kind"], [(table.name, table.kind) for table in found if table is not None])


NO_TABLE, NO_COLUMN = "TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVED_COLUMN"
_PLAIN = re.compile(r"\w+|.*\..*")
"""Names that are not quoted: identifiers, and names with their catalogue before them."""


class Queries:
    """Queries of a session; `suggest` proposes an existing name for an unknown one.

    `schemas` are the types of JSON payloads, by the table's name in lower case.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalogue: Catalogue,
        locate: Locate,
        suggest: Suggest,
        *,
        on_server: bool = True,
        schemas: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._spark, self._catalogue, self._suggest = spark, catalogue, suggest
        self._views = Views(spark, locate, on_server=on_server, schemas=schemas)

    def run(self, text: str, limit: int | None = None) -> QueryResult:
        """Return the rows of the last statement, `limit` at most. Raises NotFoundError, UsageError, or Spark's."""
        frame = self._last(text)
        found = of_arrow((frame if limit is None else frame.limit(limit + 1)).toArrow())
        return found.cut(limit)

    def explain(self, text: str) -> str:
        """Return Spark's plan for the last statement."""
        rows = self._last(text, "explain formatted ").collect()
        return "\n".join(str(row[0]) for row in rows).strip()

    def _last(self, text: str, asked: str = "") -> DataFrame:
        """Return the answer to the last statement with `asked` before it, after those before it."""
        *before, last = split_statements(text)
        for statement in before:
            self._frame(statement)
        return self._frame(last, asked)

    def _frame(self, statement: str, asked: str = "") -> DataFrame:
        from pyspark.errors import AnalysisException

        tables = tables_of(statement, self._catalogue)
        known = {table.name for table in tables}
        query = quoted(statement, lambda name: name in known or _PLAIN.fullmatch(name) is None)
        self._views.make(tables, query)
        try:
            frame = self._spark.sql(asked + query)
        except AnalysisException as failure:
            if failure.getCondition() == NO_TABLE:
                raise self._unknown(failure.getMessageParameters() or {}) from failure
            if not str(failure.getCondition()).startswith(NO_COLUMN):
                raise
        else:
            self._views.note(tables, query)
            return frame
        self._views.make(tables, EVERYTHING)  # Spark then proposes the nearest of them
        return self._spark.sql(asked + query)

    def _unknown(self, parameters: Mapping[str, Any]) -> NotFoundError:
        name = str(parameters.get("relationName", "")).replace("`", "")
        return unknown_table(name, self._catalogue, self._suggest)


def tables_of(query: str, catalogue: Catalogue) -> list[SqlTable]:
    """Return the tables of a query that are streams or buckets. Raises UsageError."""
    return catalogue.find_all(named.name for named in relations(query))
