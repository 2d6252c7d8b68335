"""Rows as JSON text, the way Spark's `to_json` writes them: what is null is left out, bytes are Base64."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

_SINGLE = "f"  # in place of a Struct, which cannot travel to executors with the code


def json_objects(batch: pa.RecordBatch, fields: Sequence[str]) -> list[bytes]:
    """Return one object per row out of several columns."""
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
    """Return a value as JSON knows it; `kind` tells maps from lists of pairs, which pyarrow shows alike."""
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
    """Return the number with no more digits than 32 bits need: 0.1 for what is 0.10000000149011612 in 64."""
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
