"""Frames of streams: their columns, and JSON payloads as structs.

JSON is parsed by Spark's own `from_json` in the plan, above the scan. All other columns, filters on them, offsets and
checkpoints are the same as without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
STREAM_COLUMNS = tuple(TYPES)
_ALWAYS = "seq"
"""The column to read if a query needs none: the cheapest one of every message."""


def schema_of(columns: Sequence[str]) -> str:
    """Return the schema of those columns, in DDL."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def read_stream(
    spark: SparkSession, options: Mapping[str, str], columns: Sequence[str], *, pushdown: bool = False
) -> DataFrame:
    """Return the messages that the options describe, with those columns.

    With `pushdown` the server does its part of WHERE. Spark keeps that for every other use of the same frame, so it is
    for frames that one query uses once.
    """
    schema = schema_of(columns or [_ALWAYS])
    asked = {PUSHDOWN: "true", **options} if pushdown else options
    return spark.read.format(FORMAT).schema(schema).options(**asked).load()


JSON_OPTIONS: Final = frozenset(
    {
        "mode",
        "columnnameofcorruptrecord",
        "timestampformat",
        "timestampntzformat",
        "dateformat",
        "timezone",
        "locale",
        "enabledatetimeparsingfallback",
        "allowcomments",
        "allowunquotedfieldnames",
        "allowsinglequotes",
        "allownumericleadingzeros",
        "allownonnumericnumbers",
        "allowbackslashescapinganycharacter",
        "allowunquotedcontrolchars",
        "maxnestingdepth",
        "maxnumlen",
        "maxstringlen",
        "primitivesasstring",
        "prefersdecimal",
    }
)
"""Options of `from_json`, in lower case; none of them is an option of the data source."""


def json_table(
    spark: SparkSession,
    stream: str,
    schema: str | StructType,
    *,
    streaming: bool = False,
    columns: Sequence[str] = (),
    **options: str,
) -> DataFrame:
    """Return a stream as a table whose column `value` is a struct, parsed by Spark's `from_json`.

    `schema` is the type of the payloads, as DDL such as `id bigint, total double` or as a StructType. `options` are
    options of `from_json` (`mode`, `columnNameOfCorruptRecord`, `timestampFormat`, …) and of the format
    `jetstream` (`servers`, `subject`, `startingOffsets`, …). With `columns`, the server sends only what these need.

    In mode PERMISSIVE, the default, fields that do not fit are null, and a field `_corrupt_record string` of the schema
    holds the text of a malformed payload; mode FAILFAST fails the query. Times without a zone are in the session's zone
    unless `timeZone` is given. The value of an empty payload is null.
    """
    source_options, json_options = split_json_options(options)
    reader = (spark.readStream if streaming else spark.read).format(FORMAT).options(**source_options)
    if columns:
        reader = reader.schema(schema_of(columns))
    frame = reader.load(stream)
    return frame if columns and "value" not in columns else parse_json_value(frame, schema, json_options)


def split_json_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of the data source, and the options of `from_json`."""
    source_options = {name: value for name, value in options.items() if name.lower() not in JSON_OPTIONS}
    return source_options, {name: value for name, value in options.items() if name not in source_options}


def parse_json_value(frame: DataFrame, schema: str | StructType, options: Mapping[str, str]) -> DataFrame:
    """Return the frame with its column `value` parsed by `from_json`."""
    from pyspark.sql import functions

    parsed = functions.from_json(functions.col("value").cast("string"), schema, dict(options) or None)
    return frame.withColumn("value", parsed)
