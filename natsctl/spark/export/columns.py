"""Messages as columns of a format; `loading.columns` has them back.

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

DATE = "cast(timestamp as date)"


def written(format: Format, partition_by: str) -> list[str]:
    """What to select from messages for a format, the column to partition by included."""
    columns = dict(WRITTEN.get(format.name, WHOLE))
    if partition_by == "date":
        columns["date"] = DATE
    return [f"{expression} as `{name}`" for name, expression in columns.items()]
