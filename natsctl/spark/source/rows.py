"""The table's columns: their Spark and Arrow types, the columns that are wanted, and batches of them.

Schemas may be DDL text. PySpark's own parser is in the JVM, out of reach of the processes that plan a read, so that the
text is parsed here.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    FractionalType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from natsctl.spark.source.arrays import binary_array, header_column, int_array, repeated_text, text_array
from natsctl.spark.source.errors import JetStreamSourceError, OptionError
from natsctl.spark.source.json_column import json_column, json_fault
from natsctl.spark.source.json_rows import JsonSettings
from natsctl.spark.source.json_times import DateFormat, LocalFormat, TimestampFormat
from natsctl.spark.source.json_tokens import Grammar
from natsctl.spark.source.link import ack_prefix, deliveries_of, place_of
from natsctl.spark.source.payload_compression import DecompressionError, decompressed

WORDS: Final = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:])")

PLAIN: Final[dict[str, type[DataType]]] = {
    "boolean": BooleanType,
    "tinyint": ByteType, "byte": ByteType,
    "smallint": ShortType, "short": ShortType,
    "int": IntegerType, "integer": IntegerType,
    "bigint": LongType, "long": LongType,
    "float": FloatType, "real": FloatType,
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp": TimestampType, "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
}  # fmt: skip
DECIMAL: Final = frozenset({"decimal", "dec", "numeric"})


def parsed_schema(text: str) -> StructType:
    """Return a schema of DDL (`id bigint, total double`), of `struct<…>`, or of Spark's JSON; raises OptionError."""
    if text.lstrip().startswith("{"):
        try:
            return StructType.fromJson(json.loads(text))
        except (ValueError, KeyError, TypeError) as failure:
            raise OptionError(f"the schema is not Spark's JSON of a struct: {failure}") from None
    reader = _Reader(text)
    if [word.lower() for word in reader.words[:2]] == ["struct", "<"]:
        kind = reader.type()
        reader.end()
        return kind if isinstance(kind, StructType) else StructType()
    fields = reader.fields()
    reader.end()
    return StructType(fields)


class _Reader:
    """Words of a DDL text, taken from the left."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[str] = []
        self.at = 0
        end = 0
        while text[end:].strip():
            found = WORDS.match(text, end)
            if found is None:
                raise OptionError(f"the schema {text!r} cannot be read from {text[end:].strip()[:20]!r} on")
            self.words.append(found[1])
            end = found.end()

    def fields(self) -> list[StructField]:
        """Parse fields separated by commas."""
        found = [self._field()]
        while self._next(","):
            found.append(self._field())
        return found

    def type(self) -> DataType:
        """Return one type."""
        name = self._take("a type").lower()
        if name in PLAIN:
            return PLAIN[name]()
        if name in DECIMAL:
            numbers = self._numbers()
            return DecimalType(*numbers[:2])
        if name in ("varchar", "char"):
            self._numbers()
            return StringType()
        if name in ("array", "map", "struct"):
            return self._nested(name)
        raise OptionError(f"the schema {self.text!r} has the type {name!r}, which Spark does not know")

    def end(self) -> None:
        """Raise OptionError where something is left."""
        if self.at < len(self.words):
            raise OptionError(f"the schema {self.text!r} cannot be read from {self.words[self.at]!r} on")

    def _nested(self, name: str) -> DataType:
        self._must("<")
        kind: DataType
        if name == "array":
            kind = ArrayType(self.type())
        elif name == "map":
            key = self.type()
            self._must(",")
            kind = MapType(key, self.type())
        else:
            kind = StructType([] if self._sees(">") else self.fields())
        self._must(">")
        return kind

    def _field(self) -> StructField:
        name = self._take("a column's name")
        self._next(":")
        kind = self.type()
        nullable = True
        if self._next("not"):
            self._must("null")
            nullable = False
        if self._next("comment"):
            self._take("a comment")
        bare = name[1:-1].replace("``", "`") if name.startswith("`") else name
        return StructField(bare, kind, nullable)

    def _numbers(self) -> list[int]:
        """Parse numbers in parentheses, if they follow."""
        found: list[int] = []
        if self._next("("):
            while not self._next(")"):
                word = self._take("a number")
                if word.isdigit():
                    found.append(int(word))
                elif word != ",":
                    raise OptionError(f"the schema {self.text!r} has {word!r} where a number is expected")
        return found

    def _sees(self, word: str) -> bool:
        return self.at < len(self.words) and self.words[self.at].lower() == word

    def _next(self, word: str) -> bool:
        found = self._sees(word)
        self.at += found
        return found

    def _must(self, word: str) -> None:
        if not self._next(word):
            raise OptionError(f"the schema {self.text!r} lacks a {word!r}")

    def _take(self, what: str) -> str:
        if self.at >= len(self.words):
            raise OptionError(f"the schema {self.text!r} ends where {what} is expected")
        self.at += 1
        return self.words[self.at - 1]


HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

JSON_TYPES: Final = (
    BinaryType,
    BooleanType,
    DateType,
    FractionalType,
    IntegralType,
    StringType,
    TimestampType,
    TimestampNTZType,
)
"""Types of single values that JSON is read as."""

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


class SchemaMismatchError(JetStreamSourceError):
    """A payload is not what `valueSchema` says, and the mode is FAILFAST."""

    code = "JETSTREAM_VALUE"


class ValueOptions(Protocol):
    """The options of a read that concern columns: those whose names begin with `value`, those of JSON, and
    includeHeaders."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True)
class Rows:
    """Messages as they are read, column by column; columns that a shape does not want may be empty."""

    seqs: pa.Int64Array
    times_ns: pa.Int64Array | None
    subjects: Sequence[bytes] | pa.Array
    headers: Sequence[bytes] | pa.Array
    """Whole header blocks, empty where a message has none; empty as a whole where none has."""
    values: Sequence[bytes] | pa.Array
    replies: Sequence[bytes] = ()
    """The subjects to acknowledge, where a durable consumer delivered the messages."""


@dataclass(frozen=True)
class RowShape:
    """The columns that are wanted, in their order, and the conversion of payloads."""

    names: tuple[str, ...]
    """Names from `SCHEMA_FIELDS`, in the order of `arrow_schema`, which may spell them in another case."""
    arrow_schema: pa.Schema
    value_format: str = "binary"
    mode: str = "permissive"
    """The treatment of a row whose payload is malformed: `permissive`, `failfast` or `dropmalformed`."""
    json: JsonSettings = field(default_factory=JsonSettings)
    include_headers: bool = True
    compression: str = "none"
    """Compression of payloads, as `payloadCompression` names it."""

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
        """Return whether header blocks are needed: as a column, or for what they say of the payload."""
        listed = self.include_headers and "headers" in self.names
        return listed or (self.compression == "auto" and self.wants_value)

    def batch(self, stream: str, rows: Rows) -> pa.RecordBatch:
        """Return the rows as Spark wants them; raises SchemaMismatchError."""
        if self.compression != "none" and self.wants_value:
            rows = self._decompressed(stream, rows)
        value, dropped = self._values(stream, rows) if self.wants_value else (None, ())
        columns = [
            value if name == "value" else self._column(name, field.type, stream, rows)
            for name, field in zip(self.names, self.arrow_schema, strict=True)
        ]
        if not columns:
            nothing = pa.Array.from_buffers(pa.struct([]), len(rows.seqs), [None])
            return pa.RecordBatch.from_struct_array(nothing)
        batch = pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)
        return batch.filter(_others(dropped, len(rows.seqs))) if dropped else batch

    def _column(self, name: str, kind: pa.DataType, stream: str, rows: Rows) -> pa.Array:
        if name == "seq":
            return rows.seqs
        if name == "subject":
            return text_array(rows.subjects)
        if name == "timestamp":
            return pc.divide(rows.times_ns, int_array([1000])[0]).view(kind)
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
            raise SchemaMismatchError(f"message {at}: {damage}; valueMode PERMISSIVE gives null") from damage
        return replace(rows, values=plain.fill_null(b"") if self.value_format == "json" else plain)

    def _values(self, stream: str, rows: Rows) -> tuple[pa.Array, Collection[int]]:
        """Return the column `value`, and the rows that are to be left out."""
        if self.value_format == "text":
            return text_array(rows.values), ()
        if self.value_format != "json":
            return rows.values if isinstance(rows.values, pa.Array) else binary_array(rows.values), ()
        payloads = rows.values.to_pylist() if isinstance(rows.values, pa.Array) else rows.values
        kind = self.arrow_schema.field(self.names.index("value")).type
        column, malformed = json_column(payloads, kind, self.json)
        if malformed and self.mode == "failfast":
            first = malformed[0]
            raise SchemaMismatchError(
                f"message {stream} {rows.seqs[first].as_py()} does not fit valueSchema: "
                f"{json_fault(payloads[first], kind, self.json)}; valueMode PERMISSIVE gives null, DROPMALFORMED "
                "leaves the row out"
            )
        return column, malformed if self.mode == "dropmalformed" else ()


def _others(rows: Collection[int], size: int) -> pa.BooleanArray:
    """Return a mask of the rows that are not among those."""
    kept = bytearray(b"\x01" * size)
    for at in rows:
        kept[at] = 0
    return pa.Array.from_buffers(pa.uint8(), size, [None, pa.py_buffer(kept)]).cast(pa.bool_())


def json_settings(options: ValueOptions) -> JsonSettings:
    """Return how JSON is read; the names are those of `from_json`."""
    return JsonSettings(
        Grammar(
            comments=options["allowComments"],
            unquoted_names=options["allowUnquotedFieldNames"],
            single_quotes=options["allowSingleQuotes"],
            leading_zeros=options["allowNumericLeadingZeros"],
            non_numeric_numbers=options["allowNonNumericNumbers"],
            any_escapes=options["allowBackslashEscapingAnyCharacter"],
            control_chars=options["allowUnquotedControlChars"],
        ),
        options["columnNameOfCorruptRecord"],
        TimestampFormat(options["timestampFormat"] or "", options["timeZone"]),
        LocalFormat(options["timestampNTZFormat"] or ""),
        DateFormat(options["dateFormat"] or ""),
    )


_METADATA: Final[dict[str, Callable[[Sequence[bytes]], pa.Array]]] = {
    "consumer": lambda replies: text_array([ack_prefix(each).rsplit(b".", 1)[-1] for each in replies]),
    "delivered": lambda replies: int_array([deliveries_of(each) for each in replies]),
    "pending": lambda replies: int_array([place_of(each).pending for each in replies]),
    "reply": text_array,
}
"""The columns of `METADATA_FIELDS`, out of the subjects to acknowledge."""


def default_schema(options: ValueOptions, *, metadata: bool = False) -> StructType:
    """Return all columns, with the type of `value` that the options ask for; raises OptionError."""
    more = METADATA_FIELDS if metadata else ()
    return StructType([*SCHEMA_FIELDS[:-1], StructField("value", _value_type(options)), *more])


def row_shape(schema: StructType, options: ValueOptions, *, metadata: bool = False) -> RowShape:
    """Return the shape of a schema, which may be any of the columns in any order; raises OptionError for others.

    The column `value` may be declared as string or as a struct: that alone makes it text or JSON.
    """
    known = {field.name: field.dataType for field in (*SCHEMA_FIELDS, *(METADATA_FIELDS if metadata else ()))}
    names = tuple(_known_name(field.name, known) for field in schema)
    value_format = str(options["valueFormat"])
    for column, name in zip(schema, names, strict=True):
        if name == "value":
            value_format = _format_of(column.dataType)
            if value_format == "json":
                _check_json(column, name)
                _check_corrupt_record(column.dataType, options["columnNameOfCorruptRecord"])
        elif not _same(column.dataType, known[name]):
            raise OptionError(f"column {name} is {known[name].simpleString()}, not {column.dataType.simpleString()}")
        elif name == "headers" and not column.nullable:
            raise OptionError("column headers is declared NOT NULL, and is null where a message has none")
    if len(set(names)) < len(names):
        raise OptionError(f"the schema names a column twice: {', '.join(names)}")
    mode = str(options["valueMode"])
    headers = bool(options["includeHeaders"])
    return RowShape(names, arrow_schema(schema), value_format, mode, json_settings(options), headers)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that PySpark holds batches of a source to, times in UTC."""
    zone = "timezone" in inspect.signature(to_arrow_schema).parameters  # releases before 4.3 mean UTC without a word
    return to_arrow_schema(schema, timezone="UTC") if zone else to_arrow_schema(schema)


def _value_type(options: ValueOptions) -> DataType:
    """Return the type of `value` by the options."""
    said = options["valueSchema"]
    if options["valueFormat"] == "text":
        return StringType()
    if options["valueFormat"] != "json":
        return BinaryType()
    if not said:
        raise OptionError("valueFormat json needs valueSchema, such as 'id bigint, total double'")
    return _nullable(said if isinstance(said, StructType) else parsed_schema(str(said)))


def _nullable(kind: DataType) -> DataType:
    """Return the type with null allowed everywhere: a payload may lack any field."""
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _nullable(each.dataType)) for each in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _nullable(kind.valueType))
    return kind


def _known_name(name: str, known: dict[str, DataType]) -> str:
    """Return a column's name as `SCHEMA_FIELDS` spells it; raises OptionError for one that is not there."""
    if name.lower() not in known:
        near = get_close_matches(name.lower(), known, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise OptionError(f"there is no column {name}; {meant}")
    return name.lower()


def _format_of(kind: DataType) -> str:
    """Return the conversion of payloads for the type that `value` was given."""
    formats = {BinaryType: "binary", StringType: "text", StructType: "json"}
    if type(kind) not in formats:
        raise OptionError(f"column value is binary, string (text) or a struct (JSON), not {kind.simpleString()}")
    return formats[type(kind)]


def _check_json(field: StructField, path: str) -> None:
    """Raise OptionError for a field that JSON cannot fill, or that has no place for what a payload lacks."""
    if not field.nullable:
        raise OptionError(f"column {path} is declared NOT NULL, and what a payload lacks or does not fit is null")
    kind = field.dataType
    while isinstance(kind, ArrayType | MapType):
        if isinstance(kind, MapType) and not isinstance(kind.keyType, StringType):
            raise OptionError(f"column {path} is {kind.simpleString()}, and in JSON the keys of a map are strings")
        kind = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
    if not isinstance(kind, StructType):
        if not isinstance(kind, JSON_TYPES):
            raise OptionError(f"column {path} is {kind.simpleString()}, which JSON is not read as here")
        return
    if len(set(kind.names)) < len(kind.names):
        raise OptionError(f"column {path} names a field twice: {', '.join(kind.names)}")
    for each in kind:
        _check_json(each, f"{path}.{each.name}")


def _check_corrupt_record(kind: DataType, name: str) -> None:
    """Raise OptionError where the field of malformed records is no text."""
    for each in kind if isinstance(kind, StructType) else ():
        if each.name == name and not isinstance(each.dataType, StringType):
            raise OptionError(f"field {name} holds the text of malformed records: it is string")


def _same(one: DataType, other: DataType) -> bool:
    """Return whether two types hold the same, whatever may be null in them."""
    return one.simpleString() == other.simpleString()
