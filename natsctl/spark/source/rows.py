"""The table's columns: their Spark and Arrow types, the requested columns, and batches of them.

Payloads that publishers compressed are decompressed. A payload is a whole stream of its format. Snappy
and S2 come as single blocks (what `snappy.Encode` and `s2.Encode` make in Go, and Kafka's clients in other languages)
or framed; a magic number distinguishes them. With `auto` a message's header `Content-Encoding` names the format, and
a message without it is taken as it is.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator, Sequence
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

from natsctl.api.archive.s2_rewrite import S2BlockError, as_snappy, decoded_size
from natsctl.spark.source.arrays import (
    binary_array,
    bytes_column,
    header_column,
    int64_column,
    int_array,
    int_scalar,
    repeated_text,
    text_array,
)
from natsctl.spark.source.errors import JetStreamSourceError, OptionError
from natsctl.spark.source.link import ack_prefix, deliveries_of, place_of
from natsctl.spark.source.source_options import Options, from_json_hint

MAX_BYTES: Final = 64 << 20
"""Maximum bytes of a payload: servers accept up to 64 MiB, and a small payload may claim a thousand times its size."""
ENCODING: Final = "content-encoding"
IDENTITY: Final = "identity"

_STREAMED: Final = {"zstd": "zstd", "lz4": "lz4", "brotli": "brotli", "br": "brotli"}
"""Formats that Arrow reads piece by piece, by the names that they have in options and headers."""
_ZLIB_BITS: Final = {"gzip": 31, "zlib": 15, "deflate": 15}
"""zlib's number of a format."""
_MAGIC: Final = (b"\xff\x06\x00\x00sNaPpY", b"\xff\x06\x00\x00S2sTwO")
_BLOCK, _PLAIN, _SKIPPED = 0x00, 0x01, 0x80
_CHECKSUM_BYTES: Final = 4


class DecompressionError(JetStreamSourceError):
    """A payload is not in its declared compression; `row` is its row."""

    code = "JETSTREAM_VALUE"

    def __init__(self, text: str, row: int = 0) -> None:
        super().__init__(text)
        self.row = row

    def __str__(self) -> str:
        return self.text


def decompressed(
    payloads: Sequence[bytes], headers: Sequence[bytes], compression: str, *, strict: bool
) -> pa.BinaryArray:
    """Return the payloads as they were; null for one that is damaged.

    With `strict` that raises DecompressionError instead.

    `headers` are whole blocks, or empty if no message has headers.
    """
    found: list[bytes] = []
    broken: list[int] = []
    for row, payload in enumerate(payloads):
        named = compression if compression != "auto" else encoding_of(headers[row] if len(headers) else b"")
        try:
            found.append(_plain(payload, named))
            broken.append(0)
        except (DecompressionError, S2BlockError, OSError, zlib.error, ValueError) as fault:
            if strict:
                raise DecompressionError(f"its payload is not {named}: {getattr(fault, 'text', fault)}", row) from fault
            found.append(b"")
            broken.append(1)
    values = binary_array(found)
    if not any(broken):
        return values
    return pc.if_else(pc.equal(int_array(broken), int_scalar(1)), pa.nulls(1, pa.binary())[0], values)


def encoding_of(headers: bytes) -> str:
    """Return the format that a header block names, in lower case; `identity` without one."""
    for line in headers.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == ENCODING.encode():
            return value.strip().lower().decode(errors="replace") or IDENTITY
    return IDENTITY


def _plain(payload: bytes, named: str) -> bytes:
    if named == IDENTITY or not payload:  # a message without a payload, such as a marker, has nothing to compress
        return payload
    if named in _ZLIB_BITS:
        return _inflated(payload, _ZLIB_BITS[named])
    if named in ("snappy", "s2"):
        return _snappy(payload)
    if named in _STREAMED:
        return _streamed(payload, _STREAMED[named])
    raise DecompressionError(f"{named!r} is no compression that is known here")


def _inflated(payload: bytes, bits: int) -> bytes:
    found: list[bytes] = []
    left, rest = MAX_BYTES, payload
    while rest:
        machine = zlib.decompressobj(bits)
        part = machine.decompress(rest, left + 1)
        found.append(part)
        left -= len(part)
        _check_size(left)
        if not machine.eof:
            raise DecompressionError("it ends too early")
        rest = machine.unused_data
    return b"".join(found)


def _streamed(payload: bytes, kind: str) -> bytes:
    with pa.input_stream(pa.py_buffer(payload), compression=kind) as stream:
        found = bytes(stream.read(MAX_BYTES + 1))
    _check_size(MAX_BYTES - len(found))
    return found


def _snappy(payload: bytes) -> bytes:
    if not payload.startswith(_MAGIC):
        return _block(payload)
    found, left = list[bytes](), MAX_BYTES
    for kind, body in _chunks(payload):
        if kind in (_BLOCK, _PLAIN):
            content = body[_CHECKSUM_BYTES:]
            found.append(_block(content) if kind == _BLOCK else content)
            left -= len(found[-1])
            _check_size(left)
        elif kind < _SKIPPED:
            raise DecompressionError(f"a frame is of the unknown type 0x{kind:02x}")
    return b"".join(found)


def _chunks(payload: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at + 1 : at + 4], "little")
        if end > len(payload):
            raise DecompressionError("a frame is cut")
        yield payload[at], payload[at + 4 : end]
        at = end


def _block(block: bytes) -> bytes:
    """Return the content of one block, of Snappy or of S2."""
    size = decoded_size(block)[0]
    codec: Callable[..., bytes] = pa.Codec("snappy").decompress
    try:
        return bytes(codec(block, size, asbytes=True))
    except OSError:
        return bytes(codec(b"".join(as_snappy(block)), size, asbytes=True))


def _check_size(left: int) -> None:
    if left < 0:
        raise DecompressionError(f"it is of more than {MAX_BYTES >> 20} MiB")


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

    @classmethod
    def of(cls, columns: Sequence[bytes | None]) -> Rows:
        """Return the messages that the native module has read."""
        seqs, times, *texts = columns
        pairs = zip(texts[::2], texts[1::2], strict=True)
        subjects, headers, values = (() if ends is None else bytes_column(ends, data or b"") for ends, data in pairs)
        return cls(int64_column(seqs or b""), int64_column(times or b""), subjects, headers, values)


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
        elif column.dataType.simpleString() != known[name].simpleString():  # null or not is the same
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
