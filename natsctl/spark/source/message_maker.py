"""Arrow batches of rows as messages that are ready to send, and the roles of a frame's columns in a message.

Rows as JSON text are written as by Spark's `to_json`: nulls are left out, bytes are Base64.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, MapType, StringType, StructType

from natsctl.spark.source.arrays import binary_array, int_array
from natsctl.spark.source.errors import OptionError, PublishError
from natsctl.spark.source.messages import FIRST_LINE, ID, Messages, RowIds, binary, constant, header_blocks, joined
from natsctl.spark.source.source_options import Options

MSG_ID = "msgId"
EXPECTED = {
    "expectedLastSeq": "Nats-Expected-Last-Sequence",
    "expectedLastSubjectSeq": "Nats-Expected-Last-Subject-Sequence",
}
"""Columns of numbers that become headers; a row with null has no such header."""
READ_ONLY = ("stream", "seq", "timestamp")
"""Columns that only reading has: the server sets them."""


@dataclass(frozen=True)
class Roles:
    """Names of the columns; empty if the frame has no such column."""

    subject: str
    fixed_subject: str
    value: str
    fields: tuple[str, ...]
    """Columns that together are the payload, as one JSON object; empty with a column `value`."""
    json_value: bool
    """Whether the payload has to be written as JSON first."""
    headers: str
    msg_id: str
    expected: tuple[tuple[str, str], ...]
    """Column and header."""
    order: tuple[str, ...]
    """Sort columns of a task's rows."""
    origin: tuple[str, ...] = ()
    """Columns of stream and sequence from reading; they distinguish rows of equal content."""
    tombstones: bool = False
    """Whether a null payload becomes a delete marker."""


class _MessageColumns:
    """The columns of a frame by their names in lower case; `taken` are the ones that have a role."""

    def __init__(self, schema: StructType) -> None:
        self.names = schema.names
        self.kinds: dict[str, tuple[str, DataType]] = {f.name.lower(): (f.name, f.dataType) for f in schema.fields}
        self.taken: set[str] = set()
        if len(self.kinds) < len(schema.fields):
            raise OptionError("two columns have names that differ in case only; rename one")

    def take(self, name: str, *kinds: type[DataType], keep: bool = False) -> str:
        """Return the column of that name, empty without one; its type must be one of `kinds`."""
        if name.lower() not in self.kinds:
            return ""
        column, kind = self.kinds[name.lower()]
        if kinds and not isinstance(kind, kinds):
            wanted = " or ".join(sorted({"bigint" if k is IntegralType else k.typeName() for k in kinds}))
            raise OptionError(f"column {column} is {kind.simpleString()}, and must be {wanted}; cast it")
        if not keep:
            self.taken.add(column)
        return column

    def origin(self) -> tuple[str, ...]:
        """Return the columns of stream and sequence if both have the types that reading gives them, else none."""
        found = [self.kinds.get(name, ("", None)) for name in READ_ONLY[:2]]
        fits = isinstance(found[0][1], StringType) and isinstance(found[1][1], IntegralType)
        return tuple(column for column, _ in found) if fits else ()

    def left(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in self.taken)


def write_roles(schema: StructType, options: Options) -> Roles:
    """Return the roles of a frame's columns. Raises OptionError that names a column that cannot be written."""
    columns = _MessageColumns(schema)
    whole = "value" not in columns.kinds and options["valueFormat"] == "json"
    fixed = options["subject"] or ""
    subject = "" if fixed and whole else columns.take("subject", StringType)
    if not (subject or fixed):
        raise OptionError("no column `subject` and no option `subject`: where should the messages go?")
    headers = columns.take("headers", ArrayType, MapType)
    if headers:
        _check_headers(headers, columns.kinds["headers"][1])
    msg_id = _msg_id(columns, options["msgIdColumn"] or "", whole)
    expected = tuple((columns.take(name, IntegralType), header) for name, header in EXPECTED.items())
    order = _order(columns, options["orderBy"] or (), whole)
    if not whole:
        for name in READ_ONLY:
            columns.take(name)
    value = columns.take("value", StringType, BinaryType, StructType, ArrayType, MapType)
    fields = columns.left()
    _check_payload(value, fields, whole)
    text = bool(value) and isinstance(columns.kinds["value"][1], (StringType, BinaryType))
    if text and options["valueFormat"] == "json":
        raise OptionError(
            "option valueFormat: json makes a payload of the other columns, and the frame has a column `value`: drop "
            "one of them"
        )
    return Roles(
        subject="" if fixed else subject,
        fixed_subject=fixed,
        value=value,
        fields=fields,
        json_value=not text,
        headers=headers,
        msg_id=msg_id,
        expected=tuple(pair for pair in expected if pair[0]),
        order=order,
        origin=() if whole else columns.origin(),
        tombstones=_tombstones(options, value),
    )


def _tombstones(options: Options, value: str) -> bool:
    if options["tombstones"] and not value:
        raise OptionError("option tombstones needs a column `value`")
    return bool(options["tombstones"])


def _msg_id(columns: _MessageColumns, named: str, whole: bool) -> str:
    """Return the column of the ids; a column named by the option is also part of a JSON payload."""
    found = columns.take(named or MSG_ID, StringType, IntegralType, keep=bool(named) and whole)
    if named and not found:
        raise OptionError(f"option msgIdColumn: the frame has no column {named}; it has {', '.join(columns.names)}")
    return found


def _order(columns: _MessageColumns, named: tuple[str, ...], whole: bool) -> tuple[str, ...]:
    """Return the columns to sort by; they need no other meaning, and keep one that they have."""
    found = tuple(columns.take(name, keep=whole or name.lower() == "value") for name in named)
    for name, column in zip(named, found, strict=True):
        if not column:
            raise OptionError(f"option orderBy: the frame has no column {name}; it has {', '.join(columns.names)}")
    return found


def _check_payload(value: str, fields: tuple[str, ...], whole: bool) -> None:
    if value and fields:
        raise OptionError(
            f"no place in a message for the columns {', '.join(fields)}: drop them, or leave out the column `value` "
            f"and set valueFormat=json to send them as one JSON object"
        )
    if not value and not (whole and fields):
        raise OptionError(
            "no column `value`: name the payload `value`, or set valueFormat=json to send the columns that have no "
            "other meaning as one JSON object"
        )


def _check_headers(name: str, kind: DataType) -> None:
    """Accept a map, or an array of key and value as reading returns it."""
    texts = (StringType, BinaryType)
    if isinstance(kind, MapType):
        fits = isinstance(kind.keyType, StringType) and isinstance(kind.valueType, texts)
    else:
        entry = kind.elementType if isinstance(kind, ArrayType) else None
        fits = (
            isinstance(entry, StructType)
            and [each.lower() for each in entry.names] == ["key", "value"]
            and isinstance(entry.fields[0].dataType, StringType)
            and isinstance(entry.fields[1].dataType, texts)
        )
    if not fits:
        raise OptionError(
            f"column {name} is {kind.simpleString()}, and must be array<struct<key:string,value:binary>> or "
            f"map<string,string>"
        )


_SINGLE = "f"  # instead of a Struct: that cannot be sent to executors with the code


def json_objects(batch: pa.RecordBatch, fields: Sequence[str]) -> list[bytes]:
    columns = [json_values(batch.column(name)) for name in fields]
    names = [json.dumps(name) for name in fields]
    return [
        (
            "{" + ",".join(f"{name}:{text}" for name, text in zip(names, row, strict=True) if text != "null") + "}"
        ).encode()
        for row in zip(*columns, strict=True)
    ]


def json_values(column: pa.Array) -> list[str]:
    """Return one text per row; `null` for null."""
    kind = column.type
    return [json.dumps(_plain(value, kind), separators=(",", ":")) for value in column.to_pylist()]


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value for JSON; `kind` distinguishes maps from lists of pairs, because pyarrow returns both alike."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if pa.types.is_struct(kind):
        parts = {field.name: _plain(value[field.name], field.type) for field in kind}
        return {name: part for name, part in parts.items() if part is not None}
    if pa.types.is_map(kind):
        return {str(_plain(key, kind.key_type)): _plain(each, kind.item_type) for key, each in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    if pa.types.is_float32(kind) and math.isfinite(value):
        return _single(value)
    return _simple(value)


def _single(value: float) -> float:
    """Return the number with the digits that 32 bits need: 0.1 for 0.10000000149011612."""
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return next(near for near in map(float, texts) if struct.unpack(_SINGLE, struct.pack(_SINGLE, near))[0] == value)


def _simple(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, Decimal):
        near = float(value)
        return near if Decimal(repr(near)) == value else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds" if value.microsecond % 1000 == 0 else "microseconds")
    if isinstance(value, (date, time)):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else str(value)


SLICE_BYTES = 64 << 20
"""Max size of a batch that is converted at once; Arrow joins texts up to 2 GiB."""
_NO_SUBJECT = r"^$|[\s\x0b]|^\.|\.\.|\.$|(?:^|\.)[*>](?:\.|$)"
"""Subjects that no server stores, or that end early on the wire; servers accept other control characters."""
_NO_TARGET = r"^\$(?:JS|SYS)\."
"""Messages to the API's subjects would be executed, not stored."""
_KV_OPERATION = r"(?i)(?:^|\r\n)KV-Operation:"


class MessageMaker:
    """The messages of the rows of one partition."""

    def __init__(self, roles: Roles, ids: RowIds | None, stream: str, max_bytes: int) -> None:
        """Prepare; `ids` makes ids for rows without one; `stream` is the only one that may store them, "" for any.

        `max_bytes` is the server's limit for headers and payload together.
        """
        self._roles = roles
        self._ids = ids
        self._expected = f"Nats-Expected-Stream: {stream}\r\n".encode() if stream else b""
        self._taken = ""
        self._max_bytes = max_bytes

    def taken(self, patterns: Sequence[str]) -> None:
        self._taken = subjects_regex(patterns)

    def messages(self, batch: pa.RecordBatch) -> Iterator[Messages]:
        """Yield the messages of a batch in order; raises PublishError for an invalid row."""
        rows = max(1, batch.num_rows * SLICE_BYTES // max(batch.nbytes, SLICE_BYTES))
        for start in range(0, batch.num_rows, rows):
            yield self._made(batch.slice(start, rows))

    def _made(self, batch: pa.RecordBatch) -> Messages:
        subjects, covered = self._subjects(batch)
        payloads = self._payloads(batch)
        headers, own_ids = self._headers(batch)
        if self._roles.msg_id:
            column = batch.column(self._roles.msg_id)
            given = binary(column.cast(pa.string()))
            own_ids = given if own_ids is None else pc.coalesce(given, own_ids)
        content = (subjects, b"\n", headers, b"\n", payloads)
        ids = self._all_ids(own_ids, lambda: joined(*self._origin(batch), *content), batch.num_rows)
        self._check_sizes(subjects, headers, payloads, ids)
        repeatable = not self._roles.expected
        made = None
        if self._ids and self._ids.of_content:
            made = pc.is_valid(ids) if own_ids is None else pc.is_null(own_ids)
        return Messages(subjects, headers, payloads, ids, self._expected, covered, repeatable, made)

    def _origin(self, batch: pa.RecordBatch) -> Iterator[pa.BinaryArray | bytes]:
        """Yield the origin of each row, if the frame still has it."""
        for name in self._roles.origin:
            yield batch.column(name).cast(pa.string()).cast(pa.binary()).fill_null(constant(b""))
            yield b"\n"

    def _subjects(self, batch: pa.RecordBatch) -> tuple[pa.BinaryArray, bool]:
        if self._roles.fixed_subject:
            column = binary_array([self._roles.fixed_subject.encode()]).cast(pa.string())
        else:
            column = batch.column(self._roles.subject).cast(pa.string())
        distinct = column.unique()
        if distinct.null_count:
            raise PublishError("a row has no subject: its column is null")
        for pattern, fault in ((_NO_SUBJECT, "is no subject to publish to"), (_NO_TARGET, "belongs to the server")):
            wrong = distinct.filter(pc.match_substring_regex(distinct, pattern))
            if len(wrong):
                raise PublishError(f"{wrong[0].as_py()!r} {fault}")
        covered = bool(self._taken) and pc.all(pc.match_substring_regex(distinct, self._taken)).as_py()
        subjects = binary(column)
        return (pa.repeat(subjects[0], batch.num_rows) if self._roles.fixed_subject else subjects), covered

    def _payloads(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """Return the payloads: null becomes an empty payload, or the text null in JSON."""
        if self._roles.fields:
            return binary_array(json_objects(batch, self._roles.fields))
        column = batch.column(self._roles.value)
        if self._roles.json_value:
            null = "" if self._roles.tombstones else "null"
            return binary_array([(null if text == "null" else text).encode() for text in json_values(column)])
        return binary(column).fill_null(constant(b""))

    def _headers(self, batch: pa.RecordBatch) -> tuple[pa.BinaryArray, pa.BinaryArray | None]:
        blocks: list[pa.BinaryArray] = []
        for column, header in self._roles.expected:
            numbers = batch.column(column).cast(pa.string()).cast(pa.binary())
            blocks.append(joined(f"{header}: ".encode(), numbers, b"\r\n").fill_null(constant(b"")))
        ids = None
        if self._roles.headers:
            text, ids = header_blocks(batch.column(self._roles.headers))
            blocks.append(text)
        if self._roles.tombstones:
            missing = pc.is_null(batch.column(self._roles.value))
            if self._roles.headers:  # such as one that was read from another stream
                marked = pc.match_substring_regex(blocks[-1], _KV_OPERATION)
                missing = pc.and_(missing, pc.invert(marked))
            blocks.append(pc.if_else(missing, constant(b"KV-Operation: DEL\r\n"), constant(b"")))
        if not blocks:
            return pa.repeat(constant(b""), batch.num_rows), ids
        return (joined(*blocks) if len(blocks) > 1 else blocks[0]), ids

    def _all_ids(self, own: pa.BinaryArray | None, contents: Callable[[], pa.BinaryArray], rows: int) -> pa.BinaryArray:
        """Return the rows' own ids, or generated ones for rows without."""
        if own is not None and pc.any(pc.match_substring_regex(own, r"[\r\n]|^$")).as_py():
            raise PublishError("a message id is empty or has a line end")
        if own is not None and not own.null_count:
            return own
        made = self._ids.of(rows, contents) if self._ids else pa.nulls(rows, pa.binary())
        return made if own is None else pc.coalesce(own, made)

    def _check_sizes(self, subjects: pa.BinaryArray, *parts: pa.BinaryArray) -> None:
        """Raise PublishError for a message that is too large, before the server ends the connection over it."""
        size = int_array([len(FIRST_LINE) + len(ID) + 4 + len(self._expected)])[0]
        for part in parts:
            size = pc.add(size, pc.binary_length(part).fill_null(int_array([0]).cast(pa.int32())[0]).cast(pa.int64()))
        if self._max_bytes and (largest := pc.max(size).as_py() or 0) > self._max_bytes:
            subject = subjects[size.to_pylist().index(largest)].as_py().decode()
            raise PublishError(f"{subject}: a message of {largest} bytes; the server takes {self._max_bytes} at most")


def subjects_regex(patterns: Sequence[str]) -> str:
    """Return a regular expression for the subjects that a stream listens to; empty without subjects."""
    tokens = {"*": r"[^.]+", ">": r".+"}
    ways = [r"\.".join(tokens.get(token) or re.escape(token) for token in pattern.split(".")) for pattern in patterns]
    return f"^(?:{'|'.join(ways)})$" if ways else ""
