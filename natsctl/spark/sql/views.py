"""The tables of a query as temporary views of a Spark session, with the columns that it needs and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from natsctl.spark.sql.catalogue import BUCKET_COLUMNS, BUCKET_STREAM, STREAM_COLUMNS, SUBJECTS, Table
from natsctl.spark.sql.columns import needed
from natsctl.spark.sql.text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "jetstream"
PUSHDOWN = "filterPushdown"
"""What lets the server do its part of WHERE; sessions of natsctl allow it."""
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
    """The schema of those columns, in DDL."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def read_stream(spark: SparkSession, options: Mapping[str, str], columns: list[str]) -> DataFrame:
    """The messages that the options tell of, with those columns."""
    schema = schema_of(columns or [_ALWAYS])
    return spark.read.format(FORMAT).schema(schema).options(**{PUSHDOWN: "true", **options}).load()


class Views:
    """Makes views in a session, and makes them anew only for a query that needs more columns."""

    def __init__(self, spark: SparkSession, locate: Locate, *, on_server: bool) -> None:
        self._spark, self._locate, self._on_server = spark, locate, on_server
        self._made: dict[str, frozenset[str]] = {}

    def make(self, tables: list[Table], query: str) -> None:
        """Have a view of each table that the query names."""
        for table in tables:
            if table.kind == "subjects":
                self._subjects_of(table).createOrReplaceTempView(quote(table.name))
                continue
            columns = needed(query, BUCKET_COLUMNS if table.kind == "bucket" else STREAM_COLUMNS)
            if not self._has(table, columns):
                frame = self._bucket(table, columns) if table.kind == "bucket" else self._stream(table, columns)
                frame.createOrReplaceTempView(quote(table.name))
                self._made[table.name.lower()] = frozenset(columns)

    def _has(self, table: Table, columns: list[str]) -> bool:
        """Whether the view is there, with those columns and without the costly ones if they are not needed."""
        made = self._made.get(table.name.lower())
        return made is not None and made >= {*columns} and ("value" in columns or "value" not in made)

    def _stream(self, table: Table, columns: list[str]) -> DataFrame:
        return read_stream(self._spark, self._locate(table.stream), columns)

    def _bucket(self, table: Table, columns: list[str]) -> DataFrame:
        """A row for every revision of a key that the bucket keeps."""
        sources = {source for name in columns for source in BUCKET_COLUMNS[name]}
        frame = read_stream(self._spark, self._locate(table.stream), [one for one in STREAM_COLUMNS if one in sources])
        return frame.selectExpr(*(f"{_MADE[name]} as {name}" for name in columns or ["revision"]))

    def _subjects_of(self, table: Table) -> DataFrame:
        """A row for every subject; of a server the counts alone are asked for."""
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
