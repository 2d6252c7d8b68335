"""Strict reading of requests: nats-server's reasons for unknown fields and values of a wrong type, in document order.

Texts that are not JSON, or not a time, are refused exactly when nats-server refuses them, with a different reason.
"""

import re
from collections.abc import Collection, Iterator
from itertools import islice
from json import JSONDecodeError
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from natsctl.api.codec import go_quote
from natsctl.api.consumer import PriorityPolicy
from natsctl.api.json_steps import ITEMS, ITEMS_COST, SMALL_TEXT, reading_json
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
_ABSENT: Final = object()
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


_decoder = msgspec.json.Decoder(float_hook=_Float)


MAX_PLAIN: Final = 16 << 10
"""Maximum size of the options of a system request; they are read in one go."""


def read_strict(raw: bytes, model: type[Model] | Shape, unknown: bool = False) -> dict[str, Any]:
    """Return the builtins of a request as `model` takes them: exact keys, no nulls. Raises DecodeError.

    With `unknown`, keys that the model does not have are ignored.

    Several values in a row are read one over the other, and an empty text reads as nothing, as Go's decoder does.
    """
    return finish(_merging(decode_values(raw), model, unknown))


def read_plain(raw: bytes, model: type[Model] | Shape) -> dict[str, Any]:
    """Return the builtins of one JSON value as `read_strict` does, unknown keys ignored. Raises DecodeError.

    As Go's Unmarshal, it refuses no value and two values. It refuses a text above `MAX_PLAIN`, too.
    """
    if len(raw) > MAX_PLAIN:
        raise DecodeError(f"more than {MAX_PLAIN} bytes")
    return finish(reading_values(decode_values(raw), model, plain=True))


def reading_values(values: list[Any], model: type[Model] | Shape, plain: bool) -> Steps[dict[str, Any]]:
    """Return the builtins of decoded values, as `read_strict` or `read_plain`. Raises DecodeError."""
    if plain and len(values) != 1:
        raise DecodeError(f"syntax error: {len(values)} JSON values instead of one")
    return (yield from _merging(values, model, unknown=plain))


def _merging(values: list[Any], model: type[Model] | Shape, unknown: bool) -> Steps[dict[str, Any]]:
    result: dict[str, Any] = {}
    shape = model if isinstance(model, Shape) else shape_of(model)
    values.reverse()
    number = 0
    while values:  # and none is kept: freeing very many at once takes long
        value, number = values.pop(), number + 1
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
    if len(raw) <= SMALL_TEXT:
        try:
            return [_decoder.decode(raw)]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    try:
        return (yield from reading_json(raw.decode("utf-8", "replace"), _Float))
    except JSONDecodeError as fault:
        raise DecodeError(f"syntax error at character {fault.pos + 1}: {fault.msg}") from fault


class _UnreadItems(NamedTuple):
    """The elements of a list or map, by their place, or the `fields` of an object that are still to be read."""

    items: Iterator[tuple[Any, Any]]
    result: list[Any] | dict[str, Any]
    shape: Shape
    """The shape of the elements, or of the object."""
    owner: str
    path: Path
    fields: bool


class _RequestReader:
    """Reader of one value by its shape. It raises the first fault in the order of the document."""

    def __init__(self, unknown: bool) -> None:
        self._unknown = unknown
        self._unread: list[_UnreadItems] = []
        """What this step leaves, in the order of the document."""
        self._budget = ITEMS
        """Items that this step may still read."""

    def reading(self, value: Any, shape: Shape) -> Steps[Any]:
        """Return a value read as `shape`, in steps."""
        result, fault, current = None, None, None
        waiting: list[_UnreadItems] = []
        while True:
            self._budget = ITEMS
            try:
                if current is None:
                    result = self.value(value, shape, "", ())
                else:
                    self._read_some(current)
            except DecodeError as later:  # than the fault in an unread item before it
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

    def _read_some(self, unread: _UnreadItems) -> None:
        """Read items as the budget allows, and keep the others."""
        if unread.fields:
            for key, item in islice(unread.items, max(self._budget, 0)):
                self._budget -= 1
                self._field(key, item, unread)
                if self._budget <= 0:
                    break
        else:
            self._read_elements(unread)
        if self._budget <= 0:
            self._unread.append(unread)

    def _read_elements(self, unread: _UnreadItems) -> None:
        items, result, shape, owner, path, _ = unread
        texts = _text_fields(shape)
        for place, item in islice(items, max(self._budget, 0)):
            self._budget -= 1
            waiting = len(self._unread)
            if not (texts and type(item) is dict and item.keys() <= texts and set(map(type, item.values())) <= _TEXT):
                item = _ZEROS.get(shape.kind, _ABSENT) if item is None else self.value(item, shape, owner, path)
            if item is _ABSENT:
                continue
            if shape.kind == "struct" and shape.python is not None and len(self._unread) == waiting:
                item = msgspec.convert(item, shape.python)  # here: all elements at once would take long
            if isinstance(result, list):
                result.append(item)
            else:
                result[place] = item
            if self._budget <= 0:
                break

    def value(self, value: Any, shape: Shape, owner: str, path: Path) -> Any:
        """Return `value` read as `shape`, or _ABSENT for null; `reading` goes on with long lists and objects in it."""
        if shape.kind == "enum":
            return self._enum(value, shape, owner, path)
        if value is None:
            return _ABSENT
        if shape.human == "time":
            return self._time(value)
        result: list[Any] | dict[str, Any] = {}
        if shape.kind == "struct" and isinstance(value, dict):
            unread = _UnreadItems(iter(value.items()), result, shape, shape.go.removeprefix("server."), path, True)
        elif shape.kind == "list" and isinstance(value, list):
            if _are_plain(value, shape.elements()):
                return value
            result = []
            unread = _UnreadItems(iter(enumerate(value)), result, shape.elements(), owner, path, False)
        elif shape.kind == "dict" and isinstance(value, dict):
            if _are_plain(value.values(), shape.elements()):
                return value
            unread = _UnreadItems(iter(value.items()), result, shape.elements(), owner, path, False)
        else:
            return self._scalar(value, shape, owner, path)
        self._read_some(unread)
        return result

    def _field(self, key: str, item: Any, unread: _UnreadItems) -> None:
        """Read a field of an object; keys match without regard to case when they do not match exactly."""
        fields = unread.shape.fields
        name = key if key in fields else key.lower()
        if name not in fields:
            if not self._unknown:
                self._refuse(f"json: unknown field {go_quote(key)}")
            return
        known = fields[name]
        if type(item) is str and known.shape.kind == "str" and not known.shape.human:
            read = item
        else:
            read = self.value(item, known.shape, unread.owner, (*unread.path, known.embedded, name))
        if read is not _ABSENT:
            unread.result[name] = read  # type: ignore[call-overload]  # a dict

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
        try:
            raw = msgspec.json.encode(value, enc_hook=lambda number: msgspec.Raw(number.text.encode())).decode()
        except RecursionError:
            raw = "[" if isinstance(value, list) else "{"
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
