"""Strict reading of requests: nats-server's reasons for unknown fields and values of a wrong type, in document order.

Texts that are not JSON, or not a time, are refused exactly when nats-server refuses them, with a different reason.
"""

import json
import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from natsctl.api.codec import go_quote
from natsctl.api.consumer import PriorityPolicy
from natsctl.api.model import INT64_MAX, INT64_MIN, UINT64_MAX, Model, Shape, shape_of
from natsctl.api.requests import ConsumerAction
from natsctl.api.stream import DiscardPolicy, PersistMode, StoreCompression
from natsctl.api.subject_index import Steps, finish
from natsctl.api.times import canonical_time, parse_time

_RANGES: Final = {
    "int": (INT64_MIN, INT64_MAX),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (INT64_MIN, INT64_MAX),
    "uint64": (0, UINT64_MAX),
    "time.Duration": (INT64_MIN, INT64_MAX),
}
_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-](?:[01]\d|2[0-4]):(?:[0-5]\d|60))", re.ASCII
)
_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_LONGEST_INT: Final = 40
"""Digits of an integer; one with more is beyond every range."""
_ABSENT: Final = object()
_SURROGATES: Final = (
    r"\\\\|(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_ZEROS: Final[dict[str, Any]] = {"int": 0, "bool": False, "str": "", "bytes": "", "struct": {}}
"""Value of null in a list or map of these kinds."""
_STRING: Final = Shape(kind="str", go="string")


Path = tuple[str, ...]
"""The names of fields that lead to a value; empty ones do not show."""


class _Float:
    """A number with a fraction or exponent: no field takes one, and error texts quote it as it was written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class DecodeError(Exception):
    """The first fault of a request."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decoder = msgspec.json.Decoder(float_hook=_Float)
_lenient_decoder = json.JSONDecoder(
    parse_float=_Float,
    parse_int=lambda text: int(text) if len(text) <= _LONGEST_INT else _Float(text),
    parse_constant=_refuse_constant,
)


def read_strict(raw: bytes, model: type[Model] | Shape, unknown: bool = False) -> dict[str, Any]:
    """Return the builtins of a request as `model` takes them: exact keys, no nulls. Raises DecodeError.

    With `unknown`, keys that the model does not have are ignored.

    Several values in a row are read one over the other, and an empty text reads as nothing, as Go's decoder does.
    """
    return finish(_merging(decode_values(raw), model, unknown))


def read_plain(raw: bytes, model: type[Model] | Shape) -> dict[str, Any]:
    """Return the builtins of one JSON value as `read_strict` does, unknown keys ignored. Raises DecodeError.

    As Go's Unmarshal, it refuses no value and two values.
    """
    return read_values(decode_values(raw), model, plain=True)


def read_values(values: list[Any], model: type[Model] | Shape, plain: bool) -> dict[str, Any]:
    """Return the builtins of decoded values, as `read_strict` or `read_plain`. Raises DecodeError."""
    return finish(reading_values(values, model, plain))


def reading_values(values: list[Any], model: type[Model] | Shape, plain: bool) -> Steps[dict[str, Any]]:
    """Read values in steps."""
    if plain and len(values) != 1:
        raise DecodeError(f"syntax error: {len(values)} JSON values instead of one")
    return (yield from _merging(values, model, unknown=plain))


def _merging(values: list[Any], model: type[Model] | Shape, unknown: bool) -> Steps[dict[str, Any]]:
    result: dict[str, Any] = {}
    shape = model if isinstance(model, Shape) else shape_of(model)
    for number, value in enumerate(values, 1):
        canonical = yield from _RequestReader(unknown).reading(value, shape)
        if canonical is not _ABSENT:
            result.update(canonical)
        if not number % ITEMS:
            yield ITEMS_COST
    return result


def decode_values(raw: bytes) -> list[Any]:
    """Run all steps of `decoding_values`."""
    return finish(decoding_values(raw))


def decoding_values(raw: bytes) -> Steps[list[Any]]:
    """Return each of the JSON values that follow one another in `raw`. Raises DecodeError for the first fault.

    Broken UTF-8 and lone surrogates are read as U+FFFD, as Go does.
    """
    try:
        return [_decoder.decode(raw)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    text, values = _repaired(raw), []
    at = _skip_blanks(text, 0)
    try:
        while at < len(text):
            value, at = _lenient_decoder.raw_decode(text, at)
            values.append(value)
            at = _skip_blanks(text, at)
            if not len(values) % ITEMS:
                yield ITEMS_COST
    except json.JSONDecodeError as fault:
        raise DecodeError(f"syntax error at character {fault.pos + 1}: {fault.msg}") from fault
    except ValueError as fault:
        raise DecodeError(f"syntax error: {fault}") from fault
    except RecursionError as fault:
        raise DecodeError("exceeded max depth") from fault
    return values


def _skip_blanks(text: str, at: int) -> int:
    """Return the position of the first character from `at` on that is not blank."""
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _repaired(raw: bytes) -> str:
    """Return a text with broken UTF-8 and lone surrogates replaced by U+FFFD."""
    return re.sub(
        _SURROGATES,
        lambda match: match[0] if match[1] or match[0] == "\\\\" else "\\ufffd",
        raw.decode("utf-8", "replace"),
    )


ITEMS: Final = 1024
"""Elements of a list or map that are read in one step, unless all are of one plain type."""
ITEMS_COST: Final = 256


class _UnreadElements(NamedTuple):
    """The elements of a list or map that are still to be read, by their place."""

    items: Iterator[tuple[Any, Any]]
    result: list[Any] | dict[str, Any]
    shape: Shape
    owner: str
    path: Path


class _RequestReader:
    """Reader of one value by its shape. It raises the first fault in the order of the document."""

    __slots__ = ("_unknown", "_unread")

    def __init__(self, unknown: bool) -> None:
        self._unknown = unknown
        self._unread: list[_UnreadElements] = []
        """Elements of long lists and maps, in the order of the document."""

    def reading(self, value: Any, shape: Shape) -> Steps[Any]:
        """Return a value read as `shape`, in steps if it holds long lists."""
        result, fault, current = None, None, None
        waiting: list[_UnreadElements] = []
        while True:
            try:
                if current is None:
                    result = self.value(value, shape, "", ())
                elif self._read_some(current):
                    self._unread.append(current)
            except DecodeError as later:  # than the fault in an unread element before it
                fault, waiting = later, []
            waiting, self._unread = self._unread + waiting, []
            if not waiting:
                break
            current = waiting.pop(0)
            yield ITEMS_COST
        if fault is not None:
            raise fault
        return result

    def _refuse(self, text: str) -> NoReturn:
        raise DecodeError(text)

    def _read_some(self, unread: _UnreadElements) -> bool:
        """Read some elements; return whether there may be more."""
        items, result, shape, owner, path = unread
        texts, part = _text_fields(shape), [*islice(items, ITEMS)]
        for place, item in part:
            if not (texts and type(item) is dict and item.keys() <= texts and set(map(type, item.values())) <= _TEXT):
                item = _ZEROS.get(shape.kind, _ABSENT) if item is None else self.value(item, shape, owner, path)
            if item is _ABSENT:
                continue
            if isinstance(result, list):
                result.append(item)
            else:
                result[place] = item
        return len(part) == ITEMS

    def value(self, value: Any, shape: Shape, owner: str, path: Path) -> Any:
        """Return `value` read as `shape`, or _ABSENT for null; `reading` goes on with long lists in it."""
        if shape.kind == "enum":
            return self._enum(value, shape, owner, path)
        if value is None:
            return _ABSENT
        if shape.human == "time":
            return self._time(value)
        if shape.kind == "struct" and isinstance(value, dict):
            return self._struct(value, shape, path)
        if shape.kind == "list" and isinstance(value, list):
            if _are_plain(value, shape.elements()):
                return value
            unread = _UnreadElements(enumerate(value), [], shape.elements(), owner, path)
        elif shape.kind == "dict" and isinstance(value, dict):
            if _are_plain(value.values(), shape.elements()):
                return value
            unread = _UnreadElements(iter(value.items()), {}, shape.elements(), owner, path)
        else:
            return self._scalar(value, shape, owner, path)
        if self._read_some(unread):
            self._unread.append(unread)
        return unread.result

    def _struct(self, value: dict[str, Any], shape: Shape, path: Path) -> Any:
        """Read an object key by key; keys match without regard to case when they do not match exactly."""
        result = {}
        owner = shape.go.removeprefix("server.")
        for key, item in value.items():
            name = key if key in shape.fields else key.lower()
            if name not in shape.fields:
                if not self._unknown:
                    self._refuse(f"json: unknown field {go_quote(key)}")
                continue
            known = shape.fields[name]
            if type(item) is str and known.shape.kind == "str" and not known.shape.human:
                result[name] = item
                continue
            read = self.value(item, known.shape, owner, (*path, known.embedded, name))
            if read is not _ABSENT:
                result[name] = read
        return result

    def _scalar(self, value: Any, shape: Shape, owner: str, path: Path) -> Any:
        if shape.kind == "int" and isinstance(value, int) and not isinstance(value, bool):
            low, high = _RANGES[shape.go]
            if low <= value <= high:
                return value
        elif isinstance(value, {"bool": bool, "str": str, "bytes": str}.get(shape.kind, ())):
            return value
        return self._refuse(_type_fault(value, shape, owner, path))

    def _enum(self, value: Any, shape: Shape, owner: str, path: Path) -> Any:
        text = value.lower() if shape.python is DiscardPolicy and isinstance(value, str) else value
        if isinstance(text, str) and text in shape.python._value2member_map_:
            return text
        if shape.python is PersistMode and value == "":
            return PersistMode.DEFAULT.value
        if shape.python is StoreCompression and value is not None and not isinstance(value, str):
            return self._refuse(_type_fault(value, _STRING, owner, path))
        raw = msgspec.json.encode(value, enc_hook=lambda number: msgspec.Raw(number.text.encode())).decode()
        if shape.python is StoreCompression:
            return self._refuse("unknown compression algorithm")
        if shape.python is PriorityPolicy:
            return self._refuse(f"unknown priority policy: {raw}")
        if shape.python is ConsumerAction:
            return self._refuse(f"unknown consumer action: {raw}")
        return self._refuse(f"can not unmarshal {go_quote(raw)}")

    def _time(self, value: Any) -> Any:
        if not isinstance(value, str):
            return self._refuse("Time.UnmarshalJSON: input is not a JSON string")
        fault = _time_fault(value)
        return self._refuse(fault) if fault else canonical_time(value)


_TEXT: Final = {str}


def _text_fields(shape: Shape) -> frozenset[str]:
    """Return the names of the fields that are read as they stand if they are texts."""
    fields = shape.fields.items() if shape.kind == "struct" else ()
    return frozenset(name for name, known in fields if known.shape.kind == "str" and not known.shape.human)


def _are_plain(values: Collection[Any], shape: Shape) -> bool:
    """Return whether all elements of a list or map are texts or numbers as they are to be: there may be very many."""
    if shape.human or not values:
        return False
    if shape.kind == "int" and set(map(type, values)) == {int}:
        low, high = _RANGES[shape.go]
        return bool(low <= min(values) and max(values) <= high)
    return shape.kind == "str" and set(map(type, values)) == _TEXT


def _type_fault(value: Any, shape: Shape, owner: str, path: Path) -> str:
    """Return Go's text for a value of the wrong type; numbers are quoted only if a number was expected."""
    if isinstance(value, bool):
        what = "bool"
    elif isinstance(value, int | _Float):
        what = "number"
        if shape.kind == "int":
            what = f"number {value.text if isinstance(value, _Float) else value}"
    else:
        what = "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
    if not owner:
        return f"json: cannot unmarshal {what} into Go value of type {shape.go}"
    field = ".".join(filter(None, path))
    return f"json: cannot unmarshal {what} into Go struct field {owner}.{field} of type {shape.go}"


def _time_fault(text: str) -> str:
    """Return why a text is not a time as Go parses it, or nothing."""
    if _RFC3339.fullmatch(text):
        try:
            parse_time(text)
            return ""
        except ValueError:
            pass
    return f"parsing time {go_quote(text)}: not a time of RFC 3339"
