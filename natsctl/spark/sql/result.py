"""The rows of an answer, and their values as JSON, as cells of CSV and as texts for a person."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

BASE64 = "base64"


@dataclass(frozen=True, slots=True)
class Result:
    """An answer: its columns, its rows, which columns are numbers; `more` is whether rows were left out."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    numbers: frozenset[str] = frozenset()
    more: bool = False

    def documents(self) -> list[dict[str, Any]]:
        """Return the rows as JSON objects; of columns with the same name the second is called `name_2`."""
        names = unique(self.columns)
        return [{name: json_value(value) for name, value in zip(names, row, strict=True)} for row in self.rows]

    def cut(self, limit: int | None) -> Result:
        """Return the same with `limit` rows at most; None for all."""
        if limit is None or len(self.rows) <= limit:
            return self
        return Result(self.columns, self.rows[:limit], self.numbers, more=True)


def of_arrow(table: pa.Table) -> Result:
    """Return the rows of a table of Arrow."""
    import pyarrow as pa

    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    numbers = frozenset(field.name for field in table.schema if any(is_kind(field.type) for is_kind in kinds))
    columns = [_values(column) for column in table.columns]
    return Result(list(table.column_names), list(zip(*columns, strict=True)), numbers)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; in texts, which for Spark may be any bytes, marks replace what is no UTF-8."""
    try:
        found: list[Any] = column.to_pylist()
        return found
    except UnicodeDecodeError:
        return [_marked(column.type, value) for value in column.cast(_of_bytes(column.type)).to_pylist()]


def _of_bytes(kind: pa.DataType) -> pa.DataType:
    """Return the type with bytes in place of texts."""
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
    """Return a value of the type with bytes as one of the type."""
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
    """Return the names, each changed until it is none before it."""
    found: list[str] = []
    for name in names:
        number, free = 1, name
        while free in found:
            number += 1
            free = f"{name}_{number}"
        found.append(free)
    return found


def json_value(value: Any) -> Any:
    """Return a value as JSON: bytes as text where they are UTF-8, else `{"base64": …}`; times in RFC 3339."""
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
        return moment_text(value)
    return value if value is None or isinstance(value, bool | int | float | str) else _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def moment_text(value: datetime) -> str:
    """Return a time as RFC 3339 in UTC; one without a zone has none here either."""
    return value.isoformat().replace("+00:00", "Z")


def text_of(payload: bytes) -> str | None:
    """Return a payload as text; None where it is not UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def cell(value: Any) -> str:
    """Return a value as a cell of CSV: bytes that are no text as `base64:…`, structures as JSON, null as ""."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        text = text_of(value)
        return f"{BASE64}:{base64.b64encode(value).decode()}" if text is None else text
    plain = json_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def shown(value: Any) -> str:
    r"""Return a value as a person reads it: bytes as text with `\xff` for what is none, headers as `key: value`.

    Not yet harmless for a terminal.
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
