"""JSON payloads as a column of structs, each payload as Spark's `from_json` reads it.

Theory of operation. Plain records are read by Arrow, many at a time (`json_plain`). Others are read by Python's own
scanner where they are well-formed objects, and values are looked at column by column: what does not fit its type is
null, as far as that is all that Spark makes of it. Of a name that stands twice in a record the last value counts, if
all of them fit. Spark keeps nothing of a record that ends within itself, but outside of any object or array in it.
Any other record that is malformed, or has a fault that changes how Spark reads what follows, is read again, alone, by
`json_rows`. Each reader takes only what the next would read the same, so that a payload's neighbours do not change its
value.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa

from natsctl.spark.source.arrays import MAX_BYTES, binary_array, int_array
from natsctl.spark.source.json_plain import PlainRecords
from natsctl.spark.source.json_rows import (
    WHOLE_BITS,
    JsonSettings,
    RecordReader,
    Value,
    decimal_of,
    epoch_micros,
    not_finite,
    plain_text,
    quoted,
    single,
    spelled_double,
    whole,
)
from natsctl.spark.source.json_times import Memo
from natsctl.spark.source.json_tokens import MAX_DEPTH, MAX_DIGITS

AT_ONCE: Final = 1024
"""Records that are objects of Python at a time: more of them cost the garbage collector a third more."""
NONE: Final = type(None)
NOTHING: Final[dict[str, Any]] = {}
BLANKS: Final = " \t\r\n"
CODES: Final = {pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q", pa.float32(): "f", pa.float64(): "d"}
"""Format characters of Python's module `struct`."""
ENDS_WITHIN: Final = re.compile(r"\{[^{}\[]*")
"""A text that begins an object, and ends before that does or another value with parts begins."""
LONG_NUMBER: Final = re.compile(rf"[0-9.eE+-]{{{MAX_DIGITS}}}")
SURROGATE_BYTES: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


class _Fraction(str):
    """The text of a number with a fraction, an exponent, or no finite value."""

    __slots__ = ()


class _UnusualRecordError(Exception):
    """A record is left to `RecordReader`."""


@dataclass(frozen=True, slots=True)
class _Faults:
    """Values that do not fit, by their places in a list."""

    unusual: set[int] = field(default_factory=set)
    """Values that are left to `RecordReader`."""
    nulls: set[int] = field(default_factory=set)
    """Values that become null."""
    partials: set[int] = field(default_factory=set)
    """Values of which a part becomes null."""


class _Repeated(dict[str, Any]):
    """An object in which names stand more than once, with the last value of each."""

    __slots__ = ("earlier",)
    earlier: list[dict[str, Any]]
    """The other values, in objects in which no name stands twice."""


Fit = Callable[[list[Any], _Faults], list[Value]]
"""Makes values of what the scanner found, None for what does not fit, and adds that to the faults."""


class JsonColumn:
    """A reader of JSON into columns of one type, whose field for malformed records, if it has one, holds their text."""

    def __init__(self, kind: pa.StructType, settings: JsonSettings) -> None:
        self._kind = kind
        fields = [kind.field(at) for at in range(kind.num_fields)]
        self._corrupt = next((at for at, each in enumerate(fields) if each.name == settings.corrupt_record), None)
        self._fields = [each for at, each in enumerate(fields) if at != self._corrupt]
        self._fits = [_fit(each.type, settings) for each in self._fields]
        self._reader = RecordReader(pa.struct(self._fields), settings)
        self._plain = PlainRecords(pa.struct(self._fields), settings)
        constant = _Fraction if settings.grammar.non_numeric_numbers else _refuse
        self._repeats: list[_Repeated] = []
        """Objects with repeated keys in the record that is being scanned."""
        decoder = json.JSONDecoder(object_pairs_hook=self._object, parse_float=_Fraction, parse_constant=constant)
        self._scan: Callable[[str, int], tuple[Any, int]] = vars(decoder)["scan_once"]

    def column(self, payloads: Sequence[bytes]) -> tuple[pa.StructArray, list[int]]:
        """Return one struct for each payload, null for blank ones, and the rows that are malformed."""
        plain, found = self._plain.read(payloads)
        if not plain:
            return self._one_by_one(payloads)
        pieces = [self._with_corrupt(each) for each in found]
        if len(plain) == len(payloads) and len(pieces) == 1:
            return pieces[0], []
        taken = set(plain)
        others = [at for at in range(len(payloads)) if at not in taken]
        structs, malformed = self._one_by_one([payloads[at] for at in others])
        order = [0] * len(payloads)
        for at, place in enumerate(chain(plain, others)):
            order[place] = at
        return pa.concat_arrays([*pieces, structs]).take(int_array(order)), [others[at] for at in malformed]

    def _with_corrupt(self, plain: pa.StructArray) -> pa.StructArray:
        """Return plain records with the field for malformed ones."""
        if self._corrupt is None:
            return plain
        columns = plain.flatten()
        columns.insert(self._corrupt, pa.nulls(len(plain), self._kind.field(self._corrupt).type))
        return pa.StructArray.from_buffers(self._kind, len(plain), [None], children=columns)

    def _one_by_one(self, payloads: Sequence[bytes]) -> tuple[pa.StructArray, list[int]]:
        columns: list[list[Value]] = [[] for _ in self._fields]
        malformed: list[int] = []
        blank: set[int] = set()
        for first in range(0, len(payloads), AT_ONCE):
            faults = self._append(payloads[first : first + AT_ONCE], columns)
            found = faults.nulls | faults.partials
            for at in faults.unusual:
                record, why = self._reader.record(java_text(payloads[first + at]))
                if record is None:
                    blank.add(first + at)
                (found.add if why else found.discard)(at)
                for column, value in zip(columns, record or (None,) * len(columns), strict=True):
                    column[first + at] = value
            malformed += [first + at for at in sorted(found)]
        if self._corrupt is not None:
            texts: list[Value] = [None] * len(payloads)
            for at in malformed:
                texts[at] = java_text(payloads[at])
            columns.insert(self._corrupt, texts)
        valid = [at not in blank for at in range(len(payloads))] if blank else None
        return _struct_array(self._kind, columns, valid, len(payloads)), malformed

    def fault(self, payload: bytes) -> str:
        """Return why a payload is malformed, "" if it is not."""
        return self._reader.record(java_text(payload))[1]

    def _append(self, payloads: Sequence[bytes], columns: list[list[Value]]) -> _Faults:
        """Append what is in the payloads, and return what of it does not fit."""
        faults = _Faults()
        objects = [self._scanned(payload, at, faults) for at, payload in enumerate(payloads)]
        repeated = [(at, each) for at, each in enumerate(objects) if type(each) is _Repeated]
        rows = [at for at, each in repeated for _ in each.earlier]
        objects += [earlier for _, each in repeated for earlier in each.earlier]
        for each_field, fit, column in zip(self._fields, self._fits, columns, strict=True):
            name = each_field.name
            column += fit([each.get(name) for each in objects], faults)[: len(payloads)]
        if repeated:
            _leave_repeated([at for at, _ in repeated], rows, len(payloads), faults)
        return faults

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            found = _repeated(pairs)
            self._repeats.append(found)
        return found

    def _scanned(self, payload: bytes, at: int, faults: _Faults) -> dict[str, Any]:
        """Return what is in an object; nothing where it is cut off, or left to `RecordReader`."""
        self._repeats.clear()
        try:
            text = java_text(payload)
            begin = 0 if text[:1] == "{" else len(text) - len(text.lstrip(BLANKS))
            found, _ = self._scan(text, begin)
        except (ValueError, StopIteration, RecursionError, _UnusualRecordError):
            found = None
            if ENDS_WITHIN.fullmatch(text):
                faults.nulls.add(at)
                return NOTHING
        if self._repeats:
            inner = len(self._repeats) > 1 or found is not self._repeats[0]
            found = None if inner else found
        elif type(found) is not dict:
            found = None
        if found is None or (len(text) > MAX_DIGITS and _exceeds(text, found)):
            faults.unusual.add(at)
            return NOTHING
        record: dict[str, Any] = found
        return record


def json_column(payloads: Sequence[bytes], kind: pa.StructType, settings: JsonSettings) -> tuple[pa.Array, list[int]]:
    """Return one struct for each payload, null for blank ones, and the rows that are malformed."""
    column: JsonColumn = COLUMNS[kind, settings]
    return column.column(payloads)


def json_fault(payload: bytes, kind: pa.StructType, settings: JsonSettings) -> str:
    """Return why a payload is malformed, "" if it is not."""
    column: JsonColumn = COLUMNS[kind, settings]
    return column.fault(payload)


def _column_of(key: tuple[pa.StructType, JsonSettings]) -> JsonColumn:
    return JsonColumn(*key)


COLUMNS: Final = Memo(_column_of, 16)


def _exceeds(text: str, found: dict[str, Any]) -> bool:
    """Return whether a large record may be over a limit of numbers or depth, which Python's scanner does not have."""
    if LONG_NUMBER.search(text):
        return True
    depth = 0
    level: list[Any] = [found]
    many = text.count("{") + text.count("[") > MAX_DEPTH
    while level and many:
        depth += 1
        items = chain.from_iterable(each.values() if type(each) is dict else each for each in level)
        level = [each for each in items if type(each) is dict or type(each) is list]
    return depth > MAX_DEPTH


def java_text(payload: bytes) -> str:
    """Return the payload as text, with U+FFFD where Java has it in place of what is no UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return SURROGATE_BYTES.sub(b"\xff", payload).decode(errors="replace")


def _repeated(pairs: list[tuple[str, Any]]) -> _Repeated:
    found = _Repeated()
    found.earlier = []
    for name, value in pairs:
        if name in found:
            place = next((each for each in found.earlier if name not in each), None)
            if place is None:
                found.earlier.append(place := {})
            place[name] = found[name]
        found[name] = value
    return found


def _leave_repeated(repeated: list[int], rows: list[int], count: int, faults: _Faults) -> None:
    """Leave records with a name twice to `RecordReader` where any value of theirs has a fault.

    `rows` are the records that the objects behind the first `count` are of.
    """
    faulty = faults.unusual | faults.nulls | faults.partials
    faults.unusual.update(at for at in repeated if at in faulty)
    faults.unusual.update(row for at, row in enumerate(rows, count) if at in faulty)
    for places in (faults.unusual, faults.nulls, faults.partials):
        places.difference_update(range(count, count + len(rows)))


def _refuse(_: str) -> Any:
    raise _UnusualRecordError


# Values that fit


def _fit(kind: pa.DataType, settings: JsonSettings) -> Fit:
    """Return the function that converts values to a type."""
    if pa.types.is_struct(kind):
        return _structs(kind, settings)
    if pa.types.is_list(kind):
        return _lists(_fit(kind.value_type, settings))
    if pa.types.is_map(kind):
        return _maps(_fit(kind.item_type, settings))
    if pa.types.is_boolean(kind):
        return lambda found, faults: _of_type(found, bool, faults)
    if kind in WHOLE_BITS:
        return _whole_numbers(WHOLE_BITS[kind])
    by_type: dict[type, Callable[[Any], Value]]
    if pa.types.is_string(kind):
        by_type = {str: str, int: str, _Fraction: spelled_double, bool: _spelled, dict: _spelled, list: _spelled}
    elif pa.types.is_floating(kind):
        by_type = {int: float, _Fraction: float}
        if pa.types.is_float32(kind):
            by_type = {int: lambda number: single(str(number)), _Fraction: single}
        if settings.grammar.non_numeric_numbers:
            by_type[str] = not_finite
    elif pa.types.is_decimal(kind):
        decimal = decimal_of(kind)
        by_type = {int: lambda number: decimal(str(number)), _Fraction: decimal, str: decimal}
    elif pa.types.is_date32(kind):
        by_type = {str: settings.dates.days}
    elif pa.types.is_binary(kind):
        by_type = {str: _binary}
    elif kind.tz is None:
        by_type = {str: settings.local_timestamps.micros}
    else:
        by_type = {str: settings.timestamps.micros, int: epoch_micros}
    plain = str if pa.types.is_string(kind) else NONE
    return lambda found, faults: _converted(found, by_type, frozenset({plain, NONE}), faults)


def _of_type(found: list[Any], kind: type, faults: _Faults) -> list[Any]:
    """Return the values with None in place of those that are of another type."""
    types = frozenset({kind, NONE})
    if types.issuperset(map(type, found)):
        return found
    faults.nulls.update(at for at, each in enumerate(found) if type(each) not in types)
    return [each if type(each) in types else None for each in found]


def _converted(
    found: list[Any], by_type: Mapping[type, Callable[[Any], Value]], plain: frozenset[type], faults: _Faults
) -> list[Value]:
    if plain.issuperset(map(type, found)):
        return found
    values: list[Value] = []
    for at, each in enumerate(found):
        value = None
        if each is not None:
            try:
                value = by_type[type(each)](each)
            except (OverflowError, RecursionError, _UnusualRecordError):
                faults.unusual.add(at)
            except (KeyError, ValueError, ArithmeticError):
                faults.nulls.add(at)
        values.append(value)
    return values


def _whole_numbers(bits: int) -> Fit:
    most = 1 << bits - 1

    def fit(found: list[Any], faults: _Faults) -> list[Value]:
        values = _of_type(found, int, faults)
        present = [each for each in values if each is not None]
        if not present or (min(present) >= -most and max(present) < most):
            return values
        return _converted(values, {int: lambda number: whole(number, bits)}, frozenset({NONE}), faults)

    return fit


def _structs(kind: pa.StructType, settings: JsonSettings) -> Fit:
    names = [kind.field(at).name for at in range(kind.num_fields)]
    fits = [_fit(kind.field(at).type, settings) for at in range(kind.num_fields)]

    def fit(found: list[Any], faults: _Faults) -> list[Value]:
        objects = _of_type(found, dict, faults)
        inner = _Faults(faults.unusual, faults.partials, faults.partials)
        columns = [
            each([(value or NOTHING).get(name) for value in objects], inner)
            for name, each in zip(names, fits, strict=True)
        ]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(objects))
        return [None if value is None else row for value, row in zip(objects, rows, strict=True)]

    return fit


def _lists(item: Fit) -> Fit:
    """Return the function that converts lists; Spark reads the rest of a list after a misfit as if it were outside."""

    def fit(found: list[Any], faults: _Faults) -> list[Value]:
        lists = _of_type(found, list, faults)
        groups, inner = _regrouped(lists, item)
        faults.unusual.update(inner.unusual, inner.nulls)
        faults.partials.update(inner.partials)
        return groups

    return fit


def _maps(item: Fit) -> Fit:
    """Return the function that converts maps; a map with a value that does not fit is null."""

    def fit(found: list[Any], faults: _Faults) -> list[Value]:
        maps = _of_type(found, dict, faults)
        groups, inner = _regrouped([each and each.values() for each in maps], item)
        faults.unusual.update(inner.unusual)
        faults.nulls.update(inner.nulls)
        faults.partials.update(inner.partials)
        return [
            None if each is None or at in inner.nulls else list(zip(map(plain_text, each), values, strict=True))
            for at, (each, values) in enumerate(zip(maps, groups, strict=True))
        ]

    return fit


def _regrouped(groups: list[Any], item: Fit) -> tuple[list[Value], _Faults]:
    """Return the groups with their items as values, and the groups that have faults in them."""
    faults = _Faults()
    items = item(list(chain.from_iterable(each for each in groups if each)), faults)
    ends = list(accumulate((len(each) if each else 0 for each in groups), initial=0))
    found = [None if each is None else items[ends[at] : ends[at + 1]] for at, each in enumerate(groups)]
    by_group = [{bisect_right(ends, at) - 1 for at in each} for each in (faults.unusual, faults.nulls, faults.partials)]
    return found, _Faults(*by_group)


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise _UnusualRecordError from None


def _spelled(value: Any) -> str:
    """Return a value as JSON without blanks, as Spark spells it."""
    if isinstance(value, _Fraction):
        return spelled_double(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return f"{{{','.join([f'{quoted(name)}:{_spelled(each)}' for name, each in value.items()])}}}"
    if isinstance(value, list):
        return f"[{','.join([_spelled(each) for each in value])}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


# Arrow's buffers


def _array(kind: pa.DataType, values: list[Value]) -> pa.Array:
    """Return values as an array, without `pyarrow.array` (see `arrays`)."""
    size = len(values)
    valid = [each is not None for each in values] if None in values else None
    if pa.types.is_struct(kind):
        rows = [each or (None,) * kind.num_fields for each in values]
        columns = [list(each) for each in zip(*rows, strict=True)] if rows else [[] for _ in range(kind.num_fields)]
        return _struct_array(kind, columns, valid, size)
    mask = _bits(valid)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        groups = [each or () for each in values]
        offsets = _offsets(groups)
        items = list(chain.from_iterable(groups))
        child = _entries(kind, items) if pa.types.is_map(kind) else _array(kind.value_type, items)
        return pa.Array.from_buffers(kind, size, [mask, offsets], children=[child])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        data = [_bytes(each) for each in values]
        return pa.Array.from_buffers(kind, size, [mask, *binary_array(data).buffers()[1:]])
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, size, [mask, _bits([bool(each) for each in values])])
    present = values if valid is None else [0 if each is None else each for each in values]
    if pa.types.is_decimal(kind):
        packed = b"".join([each.to_bytes(16, "little", signed=True) for each in present])
    else:
        code = CODES.get(kind) or ("i" if pa.types.is_date32(kind) else "q")
        packed = struct.pack(f"{size}{code}", *present)
    return pa.Array.from_buffers(kind, size, [mask, pa.py_buffer(packed)])


def _struct_array(kind: pa.StructType, columns: list[list[Value]], valid: list[bool] | None, size: int) -> pa.Array:
    children = [_array(kind.field(at).type, column) for at, column in enumerate(columns)]
    return pa.Array.from_buffers(kind, size, [_bits(valid)], children=children)


def _entries(kind: pa.MapType, pairs: list[tuple[str, Value]]) -> pa.StructArray:
    keys = _array(kind.key_type, [key for key, _ in pairs])
    items = _array(kind.item_type, [item for _, item in pairs])
    return pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])


def _bytes(value: str | bytes | None) -> bytes:
    if not isinstance(value, str):
        return value or b""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return plain_text(value).encode()


def _bits(values: list[bool] | None) -> pa.Buffer | None:
    if values is None:
        return None
    bits = pa.Array.from_buffers(pa.uint8(), len(values), [None, pa.py_buffer(bytes(values))])
    return bits.cast(pa.bool_()).buffers()[1]


def _offsets(groups: list[Any]) -> pa.Buffer:
    ends = list(accumulate(map(len, groups), initial=0))
    if ends[-1] > MAX_BYTES:
        raise pa.ArrowCapacityError(f"a column of {ends[-1]} items is too large")
    return pa.py_buffer(struct.pack(f"{len(ends)}i", *ends))
