"""SQL expressions that turn the columns of any tool's files into messages: payload, headers and message ids.

Columns with an unknown meaning are refused, or fail when read: nothing is skipped, and no text is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.api.stream import StreamConfig
from natsctl.spark.files.file_export import BASE64

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


HEADERS: Final = "array<struct<key: string, value: binary>>"
_PAIRS: Final = "array<struct<key: string, value: string, value_base64: string>>"
_PAIRS_BEGIN, _PAIRS_END = "array<struct<", ">>"
_BYTES: Final = ("binary", "string")
_NOTHING: Final = "cast('' as binary)"
_STRICT: Final = "map('mode', 'FAILFAST')"
_TEXTS: Final = ("value", "headers")
"""The JSON columns that are read as text: numbers keep their digits, objects their order and nulls."""


def spelled(schema: StructType) -> StructType:
    """Return the schema that Spark found in JSON, with payload and headers as texts.

    `headers` is always in it: Spark does not report a column of empty objects.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    found = [field for field in schema.fields if field.name.lower() not in _TEXTS]
    names = {field.name.lower(): field.name for field in schema.fields}
    texts = [names[name] for name in _TEXTS if name in names] + ["headers"] * ("headers" not in names)
    return StructType([*found, *(StructField(name, StringType()) for name in texts)])


def payload_of(columns: Mapping[str, str]) -> str:
    """Return the payload as bytes, from the columns of a file by their types: `value`, `value_base64`, or both."""
    found = [_bytes_of(columns["value"])] if "value" in columns else []
    if "value_base64" in columns:
        found.append(_of_base64("value_base64"))
    elif columns.get("encoding") == "string":
        found = [f"if(encoding = '{BASE64}', {_of_base64('value')}, {found[0]})"]
    return f"coalesce({', '.join(found)}, {_NOTHING})"


def _bytes_of(kind: str) -> str:
    """Return the column `value` as bytes: structs, arrays and maps become JSON, numbers and times text."""
    if kind.startswith(("struct", "array", "map")):
        return "cast(to_json(value) as binary)"
    return "cast(value as binary)" if kind in _BYTES else "cast(cast(value as string) as binary)"


def _of_base64(expression: str) -> str:
    """Return the expression that decodes base64; it fails for any other text."""
    return f"to_binary(cast({expression} as string), '{BASE64}')"


def headers_of(columns: Mapping[str, str]) -> str:
    """Return the headers in the source's form, from the columns of a file by their types; null without headers.

    They are pairs of key and value, a map, or JSON of either; the values of a map may be lists. Raises UsageError for
    a column of anything else.
    """
    kind = columns.get("headers", "void").lower()
    if kind == "void":
        return f"cast(null as {HEADERS})"
    if kind == "string":
        return _of_json("headers")
    if kind in ("map<string,string>", "map<string,binary>"):
        return _of_pairs("map_entries(headers)", ["value"])
    if held := _values_of_pairs(kind):
        return _of_pairs("headers", held)
    if kind.startswith(("struct<", "map<", _PAIRS_BEGIN)) and "binary" not in kind:
        return _of_json("to_json(headers)")
    raise UsageError(
        f"the column headers is {kind}: cannot be converted to headers",
        hint="it has to be pairs of key and value, a map, or JSON of either",
    )


def _values_of_pairs(kind: str) -> list[str]:
    """Return the fields with the values of a list of pairs; none for anything else."""
    if not kind.startswith(_PAIRS_BEGIN):
        return []
    fields = dict(one.partition(":")[::2] for one in kind[len(_PAIRS_BEGIN) : -len(_PAIRS_END)].split(","))
    held: list[str] = [name for name in ("value", "value_base64") if name in fields]
    fits = fields.get("key") == "string" and fields.get("value", "string") in _BYTES
    return held if fits and fields.get("value_base64", "string") == "string" else []


def _of_pairs(pairs: str, held: list[str]) -> str:
    """Return the headers of a list of pairs with the values in those fields."""
    values = {"value": "cast(pair.value as binary)", "value_base64": _of_base64("pair.value_base64")}
    value = f"coalesce({', '.join([*(values[name] for name in held), _NOTHING])})"
    key = "coalesce(pair.key, raise_error('a header has no key'))"
    return f"transform({pairs}, pair -> named_struct('key', {key}, 'value', {value}))"


def _of_json(text: str) -> str:
    """Return the headers that JSON means: a list of pairs, or an object of texts or of lists of texts."""
    pair = "named_struct('key', one.key, 'value', {}, 'value_base64', cast(null as string))"
    lists = f"map_entries(from_json({text}, 'map<string,array<string>>'))"
    many = f"flatten(transform({lists}, one -> transform(one.value, value -> {pair.format('value')})))"
    single = f"map_entries(from_json({text}, 'map<string,string>', {_STRICT}))"
    one_each = f"transform({single}, one -> {pair.format('one.value')})"
    found = f"""case when trim({text}) = '' then null
        when startswith(trim({text}), '{{') then coalesce({many}, {one_each})
        else from_json({text}, '{_PAIRS}', {_STRICT}) end"""
    return _of_pairs(found, ["value", "value_base64"])


MSG_ID: Final = "Nats-Msg-Id"
IDS: Final = ("auto", "seq", "own")
"""Message ids: auto is the message's own, or stream and sequence if that is missing or occurs twice; seq is stream
and sequence; own is the message's own or none."""


class ServerHeader(NamedTuple):
    """Headers that a server acts on, or that only a server may set: the name that is shown, and a pattern.

    Servers accept only this spelling. A stream with the setting `taken_with` gets them unchanged.
    """

    name: str
    pattern: str
    taken_with: str = ""


SERVER_HEADERS: Final = (
    ServerHeader("Nats-Expected-…", "Nats-Expected-.*"),  # conditions of the first publish: the copy would fail them
    ServerHeader("Nats-Batch-…", "Nats-Batch-.*"),  # parts of a batch that is over
    ServerHeader("Nats-Rollup", "Nats-Rollup"),  # would remove existing messages
    ServerHeader("Nats-Incr", "Nats-Incr"),  # would count again
    ServerHeader("Nats-Trace-…", "Nats-Trace-(?:Dest|Only|Hop)"),  # would be traced, and with Only not stored
    ServerHeader("Nats-Stream-Source", "Nats-Stream-Source"),  # refused: only servers set it, on sourced messages
    ServerHeader("Nats-Scheduler", "Nats-Scheduler"),  # refused: only servers set it, on messages of a schedule
    ServerHeader("Nats-Schedule-Next", "Nats-Schedule-Next"),  # the same
    ServerHeader("Nats-TTL", "Nats-TTL", "allow_msg_ttl"),
    ServerHeader("Nats-Schedule", "Nats-Schedule", "allow_msg_schedules"),
)


def left_out(config: StreamConfig) -> tuple[ServerHeader, ...]:
    return tuple(one for one in SERVER_HEADERS if not (one.taken_with and getattr(config, one.taken_with)))


def kept(omitted: Sequence[ServerHeader]) -> str:
    """Return the expression of the headers to send: a list, empty for messages without headers.

    It is never null: after each row Spark (4.3) counts the bytes of its Arrow batch, and for that visits all rows since
    the last list that was not null: 27 us for each row without headers.
    """
    return f"coalesce(filter(headers, pair -> not rlike(pair.key, '{_any(omitted)}')), cast(array() as {HEADERS}))"


def _any(some: Sequence[ServerHeader]) -> str:
    return f"^(?:{'|'.join(one.pattern for one in some)})$"


def has(some: Sequence[ServerHeader]) -> str:
    """Return the expression of 1 for a message with any of those headers, else of 0."""
    return f"if(exists(headers, pair -> rlike(pair.key, '{_any(some)}')), 1, 0)"


OWN_ID = f"cast(try_element_at(filter(headers, pair -> pair.key = '{MSG_ID}'), 1).value as string)"
"""The message's own id, or null."""
PLACE = "concat(stream, ':', seq)"
"""The id made of the message's stream and sequence; null if one is unknown."""
