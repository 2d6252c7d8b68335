"""The table's columns: their Spark and Arrow types, the requested columns, and batches of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from natsctl.spark.source.arrays import binary_array, header_column, int_array, int_scalar, repeated_text, text_array
from natsctl.spark.source.errors import JetStreamSourceError, OptionError
from natsctl.spark.source.link import ack_prefix, deliveries_of, place_of
from natsctl.spark.source.payload_compression import DecompressionError, decompressed
from natsctl.spark.source.source_options import Options, from_json_hint

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

SCHEMA_FIELDS: Final = (
    StructField("stream", StringType()),
    StructField("seq", LongType()),
    StructField("subject", StringType()),
    StructField("timestamp", TimestampType()),
    StructField("headers", HEADERS),
    StructField("value", BinaryType()),
)
"""All columns, in the order that they have without a schema of the user's."""

METADATA_FIELDS: Final = (
    StructField("consumer", StringType()),
    StructField("delivered", LongType()),
    StructField("pending", LongType()),
    StructField("reply", StringType()),
)
"""Columns of messages that a durable consumer delivered: its name, the number of deliveries, the messages pending after
it, and its ack subject."""


class DamagedPayloadError(JetStreamSourceError):
    """A payload cannot be decompressed, and the mode is FAILFAST."""

    code = "JETSTREAM_VALUE"


@dataclass(frozen=True)
class Rows:
    """Messages as they are read, column by column; columns that a shape does not want may be empty."""

    seqs: pa.Int64Array
    times_ns: pa.Int64Array | None
    subjects: Sequence[bytes] | pa.Array
    headers: Sequence[bytes] | pa.Array
    """Whole header blocks, empty for messages without; an empty column if no message has headers."""
    values: Sequence[bytes] | pa.Array
    replies: Sequence[bytes] = ()
    """The subjects to acknowledge, if a durable consumer delivered the messages."""


@dataclass(frozen=True)
class RowShape:
    """The columns that are wanted, in their order, and the conversion of payloads."""

    names: tuple[str, ...]
    """Names from `SCHEMA_FIELDS`, in the order of `arrow_schema`, possibly in another case."""
    arrow_schema: pa.Schema
    value_format: str = "binary"
    mode: str = "permissive"
    """The treatment of a payload that cannot be decompressed: `permissive` (null) or `failfast`."""
    include_headers: bool = True
    compression: str = "none"
    tombstones: bool = False
    """Whether the payload of a delete marker is null."""

    @property
    def wants_value(self) -> bool:
        """Return whether payloads are needed at all; without, servers send headers only."""
        return "value" in self.names

    @property
    def wants_replies(self) -> bool:
        """Return whether a column is made of the subjects that acknowledge."""
        return any(name in _METADATA for name in self.names)

    @property
    def wants_headers(self) -> bool:
        """Return whether header blocks are needed: as a column, or for facts about the payload."""
        listed = self.include_headers and "headers" in self.names
        return listed or (self.wants_value and (self.compression == "auto" or self.tombstones))

    def batch(self, stream: str, rows: Rows) -> pa.RecordBatch:
        """Return the rows as Spark wants them; raises DamagedPayloadError."""
        if self.compression != "none" and self.wants_value:
            rows = self._decompressed(stream, rows)
        columns = [
            self._column(name, field.type, stream, rows)
            for name, field in zip(self.names, self.arrow_schema, strict=True)
        ]
        if not columns:
            nothing = pa.Array.from_buffers(pa.struct([]), len(rows.seqs), [None])
            return pa.RecordBatch.from_struct_array(nothing)
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)

    def _column(self, name: str, kind: pa.DataType, stream: str, rows: Rows) -> pa.Array:
        if name == "value":
            return self._values(rows)
        if name == "seq":
            return rows.seqs
        if name == "subject":
            return text_array(rows.subjects)
        if name == "timestamp":
            return pc.divide(rows.times_ns, int_scalar(1000)).view(kind)
        if name == "stream":
            return repeated_text(stream, len(rows.seqs))
        if name in _METADATA:
            return _METADATA[name](rows.replies)
        if not self.include_headers or not len(rows.headers):
            return pa.nulls(len(rows.seqs), kind)
        return header_column(rows.headers if isinstance(rows.headers, pa.Array) else binary_array(rows.headers), kind)

    def _decompressed(self, stream: str, rows: Rows) -> Rows:
        """Return the rows with payloads as they were before they were compressed; None for one that is damaged."""
        headers = rows.headers.to_pylist() if isinstance(rows.headers, pa.Array) else rows.headers
        values = rows.values.to_pylist() if isinstance(rows.values, pa.Array) else rows.values
        try:
            plain = decompressed(values, headers, self.compression, strict=self.mode == "failfast")
        except DecompressionError as damage:
            at = f"{stream} {rows.seqs[damage.row].as_py()}"
            raise DamagedPayloadError(f"message {at}: {damage}; valueMode PERMISSIVE gives null") from damage
        return replace(rows, values=plain)

    def _values(self, rows: Rows) -> pa.Array:
        if self.value_format == "text":
            values = text_array(rows.values)
        else:
            values = rows.values if isinstance(rows.values, pa.Array) else binary_array(rows.values)
        if not self.tombstones or not len(rows.headers):
            return values
        headers = rows.headers if isinstance(rows.headers, pa.Array) else binary_array(rows.headers)
        return pc.if_else(pc.match_substring_regex(headers, DELETE_MARKER), pa.nulls(1, values.type)[0], values)


DELETE_MARKER: Final = r"(?i)\r\n(?:KV-Operation: *(?:DEL|PURGE) *\r\n|Nats-Marker-Reason:)"
"""Headers of a deleted key, and of the marker that a server leaves for expired, purged or removed messages."""

_METADATA: Final[dict[str, Callable[[Sequence[bytes]], pa.Array]]] = {
    "consumer": lambda replies: text_array([ack_prefix(reply).rsplit(b".", 1)[-1] for reply in replies]),
    "delivered": lambda replies: int_array([deliveries_of(reply) for reply in replies]),
    "pending": lambda replies: int_array([place_of(reply).pending for reply in replies]),
    "reply": text_array,
}
"""The columns of `METADATA_FIELDS`, out of the subjects to acknowledge."""


def default_schema(options: Options, *, metadata: bool = False) -> StructType:
    """Return all columns, with the type of `value` that the options ask for; raises OptionError."""
    more = METADATA_FIELDS if metadata else ()
    value_type = StringType() if options["valueFormat"] == "text" else BinaryType()
    return StructType([*SCHEMA_FIELDS[:-1], StructField("value", value_type), *more])


def row_shape(schema: StructType, options: Options, *, metadata: bool = False) -> RowShape:
    """Return the shape of a schema of any columns in any order; raises OptionError for unknown ones.

    The column `value` may be declared as string and is then text.
    """
    known = {field.name: field.dataType for field in (*SCHEMA_FIELDS, *(METADATA_FIELDS if metadata else ()))}
    names = tuple(_known_name(field.name, known) for field in schema)
    value_format = str(options["valueFormat"])
    for column, name in zip(schema, names, strict=True):
        if name == "value":
            value_format = _format_of(column.dataType)
        elif not _same(column.dataType, known[name]):
            raise OptionError(f"column {name} is {known[name].simpleString()}, not {column.dataType.simpleString()}")
        elif name == "headers" and not column.nullable:
            raise OptionError("column headers is declared NOT NULL, but is null for messages without headers")
        if name == "value" and not column.nullable and options["tombstones"]:
            raise OptionError("column value is declared NOT NULL, but with tombstones it is null for delete markers")
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    mode = str(options["valueMode"])
    return RowShape(
        names,
        arrow_schema(schema),
        value_format,
        mode,
        bool(options["includeHeaders"]),
        str(options["payloadCompression"]),
        bool(options["tombstones"]),
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that PySpark holds batches of a source to, times in UTC."""
    zone = "timezone" in inspect.signature(to_arrow_schema).parameters  # releases before 4.3 mean UTC without a word
    return to_arrow_schema(schema, timezone="UTC") if zone else to_arrow_schema(schema)


def _known_name(name: str, known: dict[str, DataType]) -> str:
    """Return a column's name as `SCHEMA_FIELDS` spells it; raises OptionError for one that is not there."""
    if name.lower() not in known:
        near = get_close_matches(name.lower(), known, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise OptionError(f"there is no column {name}; {meant}")
    return name.lower()


def _format_of(kind: DataType) -> str:
    """Return the conversion of payloads for the type that `value` was given."""
    if isinstance(kind, StructType):
        raise OptionError(f"column value is binary or string: {from_json_hint(kind.simpleString())}")
    formats = {BinaryType: "binary", StringType: "text"}
    if type(kind) not in formats:
        raise OptionError(f"column value is binary or string, not {kind.simpleString()}")
    return formats[type(kind)]


def _same(one: DataType, other: DataType) -> bool:
    """Return whether two types hold the same, whatever may be null in them."""
    return one.simpleString() == other.simpleString()
