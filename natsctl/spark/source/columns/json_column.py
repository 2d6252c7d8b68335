"""JSON payloads as a column of structs: in bulk, and one by one where something does not fit.

Theory of operation. Payloads go to Arrow's JSON reader as lines. It refuses a whole block for one that does not fit,
so a refused run is halved until few are left, and those are read by Python's own parser. A payload could count as no
row where it is no object, which is looked at before, or as two where it is several, which the count of rows shows.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.json as arrow_json

FEW: Final = 32
"""So many rows are read one by one rather than halved again."""
NOTHING: Final = frozenset({b"", b"null"})


class Misfit(Exception):
    """A row does not fit the schema; `row` counts from 0."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def json_column(payloads: Sequence[bytes], kind: pa.StructType, *, strict: bool) -> pa.StructArray:
    """One struct for each payload.

    Null where a payload is empty or `null`, or no JSON object; a field that does not fit is null. With `strict` both
    raise Misfit.
    """
    bulk = _bulk_type(kind)
    parts = _parsed(payloads, kind, bulk, strict, 0) if payloads else []
    return pa.concat_arrays(parts) if parts else pa.array([], kind)


def _parsed(
    payloads: Sequence[bytes], kind: pa.StructType, bulk: pa.StructType | None, strict: bool, first: int
) -> list[pa.StructArray]:
    """The structs of a run of payloads, in parts."""
    if bulk is not None:
        whole = _in_bulk(payloads, kind, bulk)
        if whole is not None:
            return [whole]
        if len(payloads) > FEW:
            middle = len(payloads) // 2
            return [
                *_parsed(payloads[:middle], kind, bulk, strict, first),
                *_parsed(payloads[middle:], kind, bulk, strict, first + middle),
            ]
    return [pa.array([_row(each, kind, strict, first + at) for at, each in enumerate(payloads)], kind)]


def _in_bulk(payloads: Sequence[bytes], kind: pa.StructType, bulk: pa.StructType) -> pa.StructArray | None:
    """The structs, or None where something does not fit."""
    data = b"\n".join(payloads)
    if data.count(b"\n") != len(payloads) - 1 or not all(each[:1] == b"{" for each in payloads):
        return None
    parsing = arrow_json.ParseOptions(explicit_schema=pa.schema(list(bulk)), unexpected_field_behavior="ignore")
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    try:
        table = arrow_json.read_json(pa.BufferReader(data), reading, parsing)
        if len(table) != len(payloads):
            return None
        columns = [table.column(at).combine_chunks().cast(kind.field(at).type) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(columns, fields=list(kind))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None


def _bulk_type(kind: pa.DataType) -> Any:
    """The type that Arrow's reader is asked for and that casts to `kind`; None where there is no such."""
    if pa.types.is_struct(kind):
        if len({kind.field(at).name for at in range(kind.num_fields)}) < kind.num_fields or not kind.num_fields:
            return None
        types = [_bulk_type(kind.field(at).type) for at in range(kind.num_fields)]
        if None in types:
            return None
        return pa.struct([pa.field(kind.field(at).name, each) for at, each in enumerate(types)])
    if pa.types.is_list(kind):
        inner = _bulk_type(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_date32(kind):
        return pa.string()
    plain = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_decimal)
    return kind if any(test(kind) for test in (*plain, pa.types.is_timestamp)) else None


def _row(payload: bytes, kind: pa.StructType, strict: bool, row: int) -> dict[str, Any] | None:
    """One payload as a struct; raises Misfit with `strict`."""
    if payload.strip() in NOTHING:
        return None
    try:
        found = json.loads(payload, parse_float=Decimal)
    except (ValueError, RecursionError) as failure:
        if strict:
            raise Misfit(row, f"it is no JSON: {failure}") from None
        return None
    if not isinstance(found, dict):
        if strict:
            raise Misfit(row, "it is no JSON object")
        return None
    try:
        fitted: dict[str, Any] = _struct(found, kind, strict)
    except ValueError as failure:
        raise Misfit(row, str(failure)) from None
    return fitted


def _struct(found: Any, kind: pa.StructType, strict: bool) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError("an object is expected")
    return {field.name: _fitted(found.get(field.name), field.type, strict, field.name) for field in kind}


def _fitted(found: Any, kind: pa.DataType, strict: bool, name: str) -> Any:
    """A value as Arrow takes it for that type; null where it does not fit, and ValueError with `strict`."""
    if found is None:
        return None
    try:
        if pa.types.is_struct(kind):
            return _struct(found, kind, strict)
        if pa.types.is_list(kind):
            return [_fitted(each, kind.value_type, strict, name) for each in _of(list, found)]
        if pa.types.is_map(kind):
            items = _of(dict, found).items()
            return [(key, _fitted(each, kind.item_type, strict, name)) for key, each in items]
        convert = next((convert for test, convert in CONVERSIONS if test(kind)), None)
        if convert is None:
            raise ValueError(f"JSON is not read as {kind}")
        value = convert(found)
        pa.scalar(value, kind)  # whether it is in the type's range
    except (ValueError, TypeError, OverflowError, InvalidOperation, pa.ArrowException) as failure:
        if strict:
            raise ValueError(f"field {name}: {failure}") from None
        return None
    return value


def _of(kind: type, found: Any) -> Any:
    """The value, if it is of that type and no truth value in a number's place; raises ValueError."""
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise ValueError(f"{json.dumps(found, default=str)[:60]} does not fit")
    return found


def _float(found: Any) -> float:
    return float(found if isinstance(found, Decimal) else _of(int, found))


def _decimal(found: Any) -> Decimal:
    return found if isinstance(found, Decimal) else Decimal(found if isinstance(found, str) else _of(int, found))


def _text(found: Any) -> str:
    return found if isinstance(found, str) else json.dumps(found, separators=(",", ":"), default=_number)


def _number(value: Decimal) -> float:
    return float(value)


def _moment(found: Any) -> datetime:
    moment = datetime.fromisoformat(_of(str, found))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _local_moment(found: Any) -> datetime:
    return datetime.fromisoformat(_of(str, found)).replace(tzinfo=None)


def _day(found: Any) -> date:
    return date.fromisoformat(_of(str, found))


def _bytes(found: Any) -> bytes:
    try:
        return base64.b64decode(_of(str, found), validate=True)
    except binascii.Error as failure:
        raise ValueError(str(failure)) from None


def _truth(found: Any) -> bool:
    return bool(_of(bool, found))


def _whole(found: Any) -> int:
    return int(_of(int, found))


def _is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


CONVERSIONS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...]] = (
    (pa.types.is_boolean, _truth),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _text),
    (_is_moment, _moment),
    (pa.types.is_timestamp, _local_moment),
    (pa.types.is_date32, _day),
    (pa.types.is_binary, _bytes),
)
"""How one JSON value becomes one of a type."""
