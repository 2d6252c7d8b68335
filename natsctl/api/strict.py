"""Strict reading of requests: every fault nats-server's JSON decoder finds, in document order and with its text."""

import re
from typing import Any, Final

import msgspec

from natsctl.api.consumer import PriorityPolicy
from natsctl.api.model import INT64_MAX, INT64_MIN, UINT64_MAX, Model
from natsctl.api.requests import ConsumerAction
from natsctl.api.shapes import Shape, shape_of
from natsctl.api.stream import DiscardPolicy, PersistMode, StoreCompression
from natsctl.api.syntax import JSONSyntaxError, go_quote, quote_char, split_values
from natsctl.api.times import canonical_time, parse_time

_RANGES: Final = {
    "int": (INT64_MIN, INT64_MAX),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (INT64_MIN, INT64_MAX),
    "uint64": (0, UINT64_MAX),
    "time.Duration": (INT64_MIN, INT64_MAX),
}
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_NOTHING: Final = "unexpected end of JSON input"
_ABSENT: Final = object()
_SURROGATES: Final = (
    r"\\\\|(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_ZEROS: Final[dict[str, Any]] = {"int": 0, "bool": False, "str": "", "bytes": "", "struct": {}}
"""Value of null in a list or map of these kinds."""
_STRING: Final = Shape(kind="str", go="string")


class _Float:
    """A number with a fraction or exponent: no field takes one, and error texts quote it as it was written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class DecodeError(Exception):
    """The first thing wrong with a request, in nats-server's words."""


_decoder = msgspec.json.Decoder(float_hook=_Float)


def read_strict(raw: bytes, model: type[Model] | Shape, unknown: bool = False) -> dict[str, Any]:
    """Return the builtins of a request as `model` takes them: exact keys, no nulls. Raises DecodeError.

    With `unknown`, keys that the model does not have are passed over.

    Several values in a row are read one over the other, and an empty text reads as nothing, as Go's decoder does.
    """
    result: dict[str, Any] = {}
    shape = model if isinstance(model, Shape) else shape_of(model)
    for value in _values(raw):
        reader = _Reader(unknown)
        canonical = reader.value(value, shape, "", "")
        if reader.fault:
            raise DecodeError(reader.fault)
        if canonical is not _ABSENT:
            result.update(canonical)
    return result


def read_plain(raw: bytes, model: type[Model] | Shape) -> dict[str, Any]:
    """Return the builtins of one JSON value as `read_strict` does, unknown keys passed over. Raises DecodeError.

    That is Go's Unmarshal, whose texts have no offsets, and which refuses no value and two values.
    """
    try:
        first, *others = split_values(raw)
    except ValueError:
        raise DecodeError(_NOTHING) from None
    except JSONSyntaxError as fault:
        text = str(fault).partition(" at offset ")[0]
        raise DecodeError(_NOTHING if text == "unexpected EOF" else text) from fault
    if others:
        raise DecodeError(f"invalid character {quote_char(others[0][0])} after top-level value")
    return read_strict(first, model, unknown=True)


def _values(raw: bytes) -> list[Any]:
    try:
        return [_decoder.decode(raw)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return [_decoder.decode(_repaired(part)) for part in split_values(raw)]
    except JSONSyntaxError as fault:
        raise DecodeError(str(fault)) from fault
    except RecursionError as fault:
        raise DecodeError("exceeded max depth") from fault
    except msgspec.MsgspecError as fault:
        raise DecodeError(str(fault)) from fault


def _repaired(value: bytes) -> str:
    """Return a value with broken UTF-8 and lone surrogates replaced by U+FFFD, as Go reads it."""
    return re.sub(
        _SURROGATES,
        lambda match: match[0] if match[1] or match[0] == "\\\\" else "\\ufffd",
        value.decode("utf-8", "replace"),
    )


class _Reader:
    """Reader of one value by its shape, which keeps the first fault; Go continues after most of them."""

    __slots__ = ("_unknown", "fault")

    def __init__(self, unknown: bool) -> None:
        self._unknown = unknown
        self.fault = ""

    def _save(self, text: str) -> Any:
        self.fault = self.fault or text
        return _ABSENT

    def value(self, value: Any, shape: Shape, owner: str, path: str) -> Any:
        """Return what `shape` makes of `value`, or _ABSENT for null and for what is wrong."""
        if shape.kind == "enum":
            return self._enum(value, shape, owner, path)
        if value is None:
            return _ABSENT
        if shape.human == "time":
            return self._time(value)
        if shape.kind == "struct" and isinstance(value, dict):
            return self._struct(value, shape, path)
        if shape.kind == "list" and isinstance(value, list):
            items = (self._element(item, shape.elements(), owner, path) for item in value)
            return [item for item in items if item is not _ABSENT]
        if shape.kind == "dict" and isinstance(value, dict):
            pairs = ((key, self._element(item, shape.elements(), owner, path)) for key, item in value.items())
            return {key: item for key, item in pairs if item is not _ABSENT}
        return self._scalar(value, shape, owner, path)

    def _element(self, value: Any, shape: Shape, owner: str, path: str) -> Any:
        return _ZEROS.get(shape.kind, _ABSENT) if value is None else self.value(value, shape, owner, path)

    def _struct(self, value: dict[str, Any], shape: Shape, path: str) -> Any:
        """Read an object key by key; keys match without regard to case when they do not match exactly."""
        result = {}
        owner = shape.go.removeprefix("server.")
        for key, item in value.items():
            name = key if key in shape.fields else next((f for f in shape.fields if f == key.lower()), "")
            if not name:
                if not self._unknown:
                    self._save(f"json: unknown field {go_quote(key)}")
                continue
            known = shape.fields[name]
            inner = ".".join(part for part in (path, known.embedded, name) if part)
            read = self.value(item, known.shape, owner, inner)
            if read is not _ABSENT:
                result[name] = read
        return result

    def _scalar(self, value: Any, shape: Shape, owner: str, path: str) -> Any:
        if shape.kind == "int" and isinstance(value, int) and not isinstance(value, bool):
            low, high = _RANGES[shape.go]
            if low <= value <= high:
                return value
        elif (shape.kind == "bool" and isinstance(value, bool)) or (shape.kind in ("str", "bytes") and _is_str(value)):
            return value
        return self._save(_type_fault(value, shape, owner, path))

    def _enum(self, value: Any, shape: Shape, owner: str, path: str) -> Any:
        text = value.lower() if shape.python is DiscardPolicy and isinstance(value, str) else value
        if isinstance(text, str) and text in shape.python._value2member_map_:
            return text
        if shape.python is PersistMode and value == "":
            return PersistMode.DEFAULT.value
        if shape.python is StoreCompression and value is not None and not isinstance(value, str):
            return self._save(_type_fault(value, _STRING, owner, path))
        raw = msgspec.json.encode(value, enc_hook=lambda number: msgspec.Raw(number.text.encode())).decode()
        if shape.python is StoreCompression:
            return self._save("unknown compression algorithm")
        if shape.python is PriorityPolicy:
            return self._save(f"unknown priority policy: {raw}")
        if shape.python is ConsumerAction:
            return self._save(f"unknown consumer action: {raw}")
        return self._save(f"can not unmarshal {go_quote(raw)}")

    def _time(self, value: Any) -> Any:
        if not isinstance(value, str):
            return self._save("Time.UnmarshalJSON: input is not a JSON string")
        fault = _time_fault(value)
        return self._save(fault) if fault else canonical_time(value)


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


def _type_fault(value: Any, shape: Shape, owner: str, path: str) -> str:
    """Return Go's text for a value of the wrong type; numbers are quoted only where a number was wanted."""
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
    return f"json: cannot unmarshal {what} into Go struct field {owner}.{path} of type {shape.go}"


def _time_fault(text: str) -> str:
    """Return Go's text for a time it cannot parse, or nothing."""
    rest = text
    for layout in ("2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"):
        digits = layout.isdigit()
        if not (rest[: len(layout)].isdecimal() if digits else rest.startswith(layout)) or len(rest) < len(layout):
            return _unparsed(text, rest, layout)
        rest = rest[len(layout) :]
    if rest[:1] in (".", ","):
        rest = rest[1:].lstrip("0123456789")
    if rest != "Z" and not (rest[:1] in ("+", "-") and len(rest) == 6 and rest[3] == ":"):
        return _unparsed(text, rest, "Z07:00")
    return _range_fault(text, rest)


def _unparsed(text: str, rest: str, layout: str) -> str:
    return f"parsing time {go_quote(text)} as {go_quote(_LAYOUT)}: cannot parse {go_quote(rest)} as {go_quote(layout)}"


def _range_fault(text: str, zone: str) -> str:
    """Return Go's text for a well-formed time with a number out of range, or nothing."""
    parts = (("month", text[5:7], 1, 12), ("hour", text[11:13], 0, 23), ("minute", text[14:16], 0, 59))
    for name, digits, low, high in (*parts, ("second", text[17:19], 0, 59)):
        if not low <= int(digits) <= high:
            return f"parsing time {go_quote(text)}: {name} out of range"
    if zone != "Z":
        for name, digits, high in (("hour", zone[1:3], 24), ("minute", zone[4:6], 60)):
            if not digits.isdecimal() or int(digits) > high:
                return f"parsing time {go_quote(text)}: time zone offset {name} out of range"
    try:
        parse_time(text)
    except ValueError:
        return f"parsing time {go_quote(text)}: day out of range"
    return ""
