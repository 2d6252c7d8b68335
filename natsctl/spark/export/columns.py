"""Messages as columns of a format, and back.

Parquet and Delta keep bytes as they are. JSON and CSV hold text: a payload that is UTF-8 stands in `value` as it is,
any other as base64 (`value_base64` in JSON, `value` with `base64` in the column `encoding` in CSV), so that every byte
comes back. CSV takes base64 also for texts with line ends and other control characters, which its readers treat each in
its own way.
"""

from __future__ import annotations

from collections.abc import Mapping

from natsctl.spark.export.formats import CSV, JSON, Format

TEXT, BASE64 = "text", "base64"
_VALID = "is_valid_utf8(cast({0} as string))"
_HEADER_TEXTS = f"""
transform(headers, pair -> named_struct(
    'key', pair.key,
    'value', if({_VALID.format("pair.value")}, cast(pair.value as string), null),
    'value_base64', if({_VALID.format("pair.value")}, null, base64(pair.value))))"""
HEADERS_OF_TEXTS = "array<struct<key: string, value: string, value_base64: string>>"
_PLAIN_TEXT = f"({_VALID.format('value')} and not rlike(cast(value as string), r'[\\x00-\\x1f\\x7f]'))"

_MESSAGE = {name: name for name in ("stream", "seq", "subject", "timestamp")}
WRITTEN: Mapping[str, Mapping[str, str]] = {
    JSON.name: {
        **_MESSAGE,
        "headers": _HEADER_TEXTS,
        "value": f"if({_VALID.format('value')}, cast(value as string), null)",
        "value_base64": f"if({_VALID.format('value')}, null, base64(value))",
    },
    CSV.name: {
        **_MESSAGE,
        "headers": f"to_json({_HEADER_TEXTS})",
        "value": f"if({_PLAIN_TEXT}, cast(value as string), base64(value))",
        "encoding": f"if({_PLAIN_TEXT}, '{TEXT}', '{BASE64}')",
    },
}
"""Each column of a text format as an expression of the source's columns."""
WHOLE = {**_MESSAGE, "headers": "headers", "value": "value"}
"""The columns of a format that holds bytes."""

_NOTHING = "cast('' as binary)"
DATE = "cast(timestamp as date)"


def written(format: Format, partition_by: str) -> list[str]:
    """What to select from messages for a format, the column to partition by included."""
    columns = dict(WRITTEN.get(format.name, WHOLE))
    if partition_by == "date":
        columns["date"] = DATE
    return [f"{expression} as `{name}`" for name, expression in columns.items()]


def payload_of(columns: Mapping[str, str]) -> str:
    """The payload as bytes, from the columns of a file by their types: `value`, `value_base64`, or both."""
    found = [_bytes_of(columns["value"])] if "value" in columns else []
    if "value_base64" in columns:
        found.append("unbase64(value_base64)")
    elif columns.get("encoding") == "string":
        found = [f"if(encoding = '{BASE64}', unbase64(cast(value as string)), {found[0]})"]
    return f"coalesce({', '.join(found)}, {_NOTHING})"


def _bytes_of(kind: str) -> str:
    """The column `value` as bytes; what has parts becomes JSON, numbers and times become texts."""
    if kind.startswith(("struct", "array", "map")):
        return "cast(to_json(value) as binary)"
    return "cast(value as binary)" if kind in ("binary", "string") else "cast(cast(value as string) as binary)"


def headers_of(columns: Mapping[str, str]) -> str:
    """The headers as the source has them, from the columns of a file by their types; null where it has none."""
    kind = columns.get("headers", "").lower()
    headers = "headers"
    if kind == "string":
        headers, kind = f"from_json(nullif(headers, ''), '{HEADERS_OF_TEXTS}')", HEADERS_OF_TEXTS
    elif kind.startswith("map"):
        headers, kind = "map_entries(headers)", "value:"
    elif not kind.startswith("array"):
        return "cast(null as array<struct<key: string, value: binary>>)"
    values = ["cast(pair.value as binary)"] if "value:" in kind else []
    values += ["unbase64(pair.value_base64)"] if "value_base64:" in kind else []
    value = f"coalesce({', '.join([*values, _NOTHING])})"
    return f"transform({headers}, pair -> named_struct('key', pair.key, 'value', {value}))"
