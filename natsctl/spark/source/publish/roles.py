"""Which column of a frame is what in a message."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.options.options import Options

MSG_ID = "msgId"
EXPECTED = {
    "expectedLastSeq": "Nats-Expected-Last-Sequence",
    "expectedLastSubjectSeq": "Nats-Expected-Last-Subject-Sequence",
}
"""Columns of numbers that become headers; a row whose number is null has no such header."""
READ_ONLY = ("stream", "seq", "timestamp")
"""Columns that reading gives and writing leaves to the server."""


@dataclass(frozen=True)
class Roles:
    """Names of the columns; empty where the frame has no such column."""

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
    """Columns by which a task sorts its rows."""
    origin: tuple[str, ...] = ()
    """The columns of stream and sequence that reading gave, which tell rows apart that are alike."""


class _Columns:
    """The columns of a frame by their names without case, and which of them have a meaning by now."""

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
        """Return the columns of stream and sequence, if both are there as reading gives them; none otherwise."""
        found = [self.kinds.get(name, ("", None)) for name in READ_ONLY[:2]]
        fits = isinstance(found[0][1], StringType) and isinstance(found[1][1], IntegralType)
        return tuple(column for column, _ in found) if fits else ()

    def left(self) -> tuple[str, ...]:
        """Return what has no meaning of its own."""
        return tuple(name for name in self.names if name not in self.taken)


def write_roles(schema: StructType, options: Options) -> Roles:
    """Return what the columns of a frame mean; raises OptionError for what cannot be written, naming the column."""
    columns = _Columns(schema)
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
    )


def _msg_id(columns: _Columns, named: str, whole: bool) -> str:
    """Return the column of the ids; one that was named by an option is part of a JSON payload nevertheless."""
    found = columns.take(named or MSG_ID, StringType, IntegralType, keep=bool(named) and whole)
    if named and not found:
        raise OptionError(f"option msgIdColumn: the frame has no column {named}; it has {', '.join(columns.names)}")
    return found


def _order(columns: _Columns, named: tuple[str, ...], whole: bool) -> tuple[str, ...]:
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
    """Take a map, or what reading gives: an array of key and value."""
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
