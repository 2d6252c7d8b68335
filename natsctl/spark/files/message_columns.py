"""Messages from the columns of files of any tool: payload, headers, and the ids that messages get.

Columns that are not understood for sure are refused, or fail where they are read: nothing is passed over, and no text
becomes another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.spark.files.file_export import BASE64

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from natsctl.api.stream import StreamConfig


HEADERS: Final = "array<struct<key: string, value: binary>>"
_PAIRS: Final = "array<struct<key: string, value: string, value_base64: string>>"
_PAIRS_BEGIN, _PAIRS_END = "array<struct<", ">>"
_BYTES: Final = ("binary", "string")
_NOTHING: Final = "cast('' as binary)"
_STRICT: Final = "map('mode', 'FAILFAST')"
_TEXTS: Final = ("value", "headers")
"""The columns of JSON that are read as they are spelled: numbers keep their digits, objects their order and nulls."""


def spelled(schema: StructType) -> StructType:
    """Return the schema that Spark found in JSON, with what a message is made of as texts.

    Headers are asked for in any case: Spark does not report objects without a name in them.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    found = [one for one in schema.fields if one.name.lower() not in _TEXTS]
    names = {one.name.lower(): one.name for one in schema.fields}
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
    """Return the column `value` as bytes; what has parts becomes JSON, numbers and times become texts."""
    if kind.startswith(("struct", "array", "map")):
        return "cast(to_json(value) as binary)"
    return "cast(value as binary)" if kind in _BYTES else "cast(cast(value as string) as binary)"


def _of_base64(expression: str) -> str:
    """Return the bytes that a text of base64 means; it fails at what is none."""
    return f"to_binary(cast({expression} as string), '{BASE64}')"


def headers_of(columns: Mapping[str, str]) -> str:
    """Return the headers as the source has them, from the columns of a file by their types; null where it has none.

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
        f"the column headers is {kind}, which no headers can be made of",
        hint="it has to be pairs of key and value, a map, or JSON of either",
    )


def _values_of_pairs(kind: str) -> list[str]:
    """Return the fields that hold the values of a list of pairs; none where it is something else."""
    if not kind.startswith(_PAIRS_BEGIN):
        return []
    fields = dict(one.partition(":")[::2] for one in kind[len(_PAIRS_BEGIN) : -len(_PAIRS_END)].split(","))
    held: list[str] = [name for name in ("value", "value_base64") if name in fields]
    fits = fields.get("key") == "string" and fields.get("value", "string") in _BYTES
    return held if fits and fields.get("value_base64", "string") == "string" else []


def _of_pairs(pairs: str, held: list[str]) -> str:
    """Return the headers that a list of pairs means, whose values are in those fields."""
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
"""The ids of messages: their own unless one occurs twice, else by former place; by place always; their own only."""


class Obeyed(NamedTuple):
    """Headers that a server obeys, or that only a server may set: by the name that is shown, and a pattern.

    Servers know them in this spelling alone. A stream with the setting `taken_with` takes them in the meaning that they
    had.
    """

    name: str
    pattern: str
    taken_with: str = ""


OBEYED: Final = (
    Obeyed("Nats-Expected-…", "Nats-Expected-.*"),  # conditions of then, to which the copy would be held
    Obeyed("Nats-Batch-…", "Nats-Batch-.*"),  # parts of a batch that is over
    Obeyed("Nats-Rollup", "Nats-Rollup"),  # would remove what is there
    Obeyed("Nats-Incr", "Nats-Incr"),  # would count again
    Obeyed("Nats-Trace-…", "Nats-Trace-(?:Dest|Only|Hop)"),  # would be traced, and with Only not stored
    Obeyed("Nats-Stream-Source", "Nats-Stream-Source"),  # refused: servers say so of what they copy
    Obeyed("Nats-Scheduler", "Nats-Scheduler"),  # refused: servers say so of what they publish by a schedule
    Obeyed("Nats-Schedule-Next", "Nats-Schedule-Next"),  # the same
    Obeyed("Nats-TTL", "Nats-TTL", "allow_msg_ttl"),
    Obeyed("Nats-Schedule", "Nats-Schedule", "allow_msg_schedules"),
)


def left_out(config: StreamConfig) -> tuple[Obeyed, ...]:
    """Return the headers that a stream must not be sent again."""
    return tuple(one for one in OBEYED if not (one.taken_with and getattr(config, one.taken_with)))


def kept(left: Sequence[Obeyed]) -> str:
    """Return the expression of the headers that are sent: a list, empty where a message has none of them.

    It is never null: for each row Spark (4.3) counts the bytes of its batch of Arrow, and goes through all rows of the
    batch since the last list that was not null: 27 us for each row without headers.
    """
    return f"coalesce(filter(headers, pair -> not rlike(pair.key, '{_any(left)}')), cast(array() as {HEADERS}))"


def _any(some: Sequence[Obeyed]) -> str:
    """Return a regular expression of the names of all of them."""
    return f"^(?:{'|'.join(one.pattern for one in some)})$"


def has(some: Sequence[Obeyed]) -> str:
    """Return the expression of 1 for a message that has any of those headers, of 0 for one that has none."""
    return f"if(exists(headers, pair -> rlike(pair.key, '{_any(some)}')), 1, 0)"


OWN_ID = f"cast(try_element_at(filter(headers, pair -> pair.key = '{MSG_ID}'), 1).value as string)"
"""The id that a message has of its own, null where it has none."""
PLACE = "concat(stream, ':', seq)"
"""The id by where a message was before; null where that is not known."""
