"""Configuration documents that people write: parsed JSON or YAML to a model, with readable durations, sizes and times.

A document is a configuration, or a whole info document (as printed by `stream info -j`) with its `config`.
Unknown keys are refused with a suggestion, except in an info document: it may come from a newer server.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from natsctl.api.errors import UsageError, closest
from natsctl.api.model import INT64_MAX, INT64_MIN, UINT64_MAX, Model, Shape, shape_of
from natsctl.api.times import parse_time
from natsctl.api.units import parse_duration, parse_size

M = TypeVar("M", bound=Model)
Step = str | int

_INFO_KEYS: Final = frozenset({"type", "state", "stats", "created", "delivered", "ack_floor", "ts", "cluster"})
_RANGES: Final[dict[str, tuple[int, int]]] = {"int32": (-(2**31), 2**31 - 1), "uint64": (0, UINT64_MAX)}
_NOUNS: Final = {"int": "a whole number", "bool": "true or false", "str": "a text", "bytes": "base64 text"}
_WORDS: Final[dict[str, Callable[[str], int]]] = {"duration": parse_duration, "size": parse_size}
MAX_FAULTS: Final = 1000
"""Mistakes reported of one configuration: a person reads no more, and each suggestion takes time."""
REPORTED: Final = object()
"""Placeholder of a wrong value that was reported already."""


class Untyped(str):
    """A text that counts as a number or a switch where one is wanted: the replacement of `${NAME}` in JSON."""

    __slots__ = ("meant",)

    meant: Any
    """The value for a field that is not a text."""


class DocumentFault(NamedTuple):
    """One mistake: the steps that lead to it, the reason, and whether a field has no value because of it."""

    path: tuple[Step, ...]
    reason: str
    lost: bool = True


def load_document(document: Any, model: type[M], origin: str) -> M:
    """Return the model that a document describes. Raises UsageError `ORIGIN: $.path: expected …, got …`."""
    base: tuple[Step, ...] = ()
    if isinstance(document, dict) and is_info(document):
        document, base = document["config"], ("config",)
    values, faults = read_document(document, model, lenient=bool(base))
    if faults:
        raise UsageError(f"{origin}: {path_text((*base, *faults[0].path))}: {faults[0].reason}")
    return msgspec.convert(values, model)


def is_info(document: Mapping[str, Any]) -> bool:
    """Return whether a document is a server's information about an asset: its configuration is below `config`."""
    return isinstance(document.get("config"), dict) and bool(_INFO_KEYS & document.keys())


def read_document(
    document: Any, model: type[Model], *, lenient: bool = False
) -> tuple[dict[str, Any], list[DocumentFault]]:
    """Return the fields of a document with values as on the wire, and its faults in their order.

    Fields with a fault or null are left out. The fault of a value that is REPORTED has no reason. `lenient` keeps
    unknown keys with their values.
    """
    reader = _DocumentReader(lenient)
    values = reader.read(document, shape_of(model), ())
    return ({} if values is REPORTED else values), reader.faults


def path_text(path: Sequence[Step]) -> str:
    """Return how faults spell a path: `$.subjects[0]`."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


class _DocumentReader:
    """A reader of values by their shape that collects the mistakes."""

    def __init__(self, lenient: bool) -> None:
        self.faults: list[DocumentFault] = []
        self.lenient = lenient

    def _fail(self, path: tuple[Step, ...], reason: str) -> Any:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(DocumentFault(path, reason))
        return REPORTED

    def read(self, value: Any, shape: Shape, path: tuple[Step, ...]) -> Any:
        """Return the builtins that `msgspec.convert` takes for `shape`, or REPORTED."""
        if value is REPORTED:
            return self._fail(path, "")
        if shape.kind == "struct":
            return self._struct(value, shape, path)
        if shape.kind == "list":
            return self._list(value, shape.elements(), path)
        if shape.kind == "dict":
            return self._dict(value, shape.elements(), path)
        if shape.kind == "enum":
            return self._enum(value, shape, path)
        if shape.human:
            return self._words(value, shape, path)
        return self._scalar(value, shape, path)

    def _list(self, value: Any, item: Shape, path: tuple[Step, ...]) -> Any:
        if not isinstance(value, list):
            return self._fail(path, f"expected a list, got {_shown(value)}")
        read = [self.read(one, item, (*path, index)) for index, one in enumerate(value)]
        return [one for one in read if one is not REPORTED]

    def _dict(self, value: Any, item: Shape, path: tuple[Step, ...]) -> Any:
        if not isinstance(value, dict):
            return self._fail(path, f"expected an object, got {_shown(value)}")
        read = {str(key): self.read(one, item, (*path, str(key))) for key, one in value.items() if one is not None}
        return {key: one for key, one in read.items() if one is not REPORTED}

    def _struct(self, value: Any, shape: Shape, path: tuple[Step, ...]) -> Any:
        if not isinstance(value, dict):
            return self._fail(path, f"expected an object, got {_shown(value)}")
        result = {}
        for key, item in value.items():
            known = shape.fields.get(key)
            if known is None:
                if self.lenient:
                    result[key] = item
                elif len(self.faults) < MAX_FAULTS:
                    reason = f"unknown key{did_you_mean(str(key), shape.fields)}"
                    self.faults.append(DocumentFault((*path, str(key)), reason, lost=False))
            elif item is not None:
                read = self.read(item, known.shape, (*path, key))
                if read is not REPORTED:
                    result[key] = read
        return result

    def _enum(self, value: Any, shape: Shape, path: tuple[Step, ...]) -> Any:
        text = value.lower().replace(" ", "_") if isinstance(value, str) else value
        if not isinstance(text, str) or text not in shape.python._value2member_map_:
            choices = [member.value for member in shape.python if member.value]
            return self._fail(path, f"expected one of {', '.join(choices)}, got {_shown(value)}")
        return text

    def _words(self, value: Any, shape: Shape, path: tuple[Step, ...]) -> Any:
        """Read a duration, size or time, in readable form or as on the wire."""
        if shape.human == "time":
            text = value.isoformat() if hasattr(value, "isoformat") else value
            return self._time(text, path)
        if not isinstance(value, str):
            return self._scalar(value, shape, path, f"{_NOUNS['int']} or a {shape.human}")
        try:
            number = int(value) if value.lstrip("-").isdecimal() else _WORDS[shape.human](value)
        except ValueError as error:
            return self._fail(path, str(error))
        return self._scalar(number, shape, path)

    def _time(self, value: Any, path: tuple[Step, ...]) -> Any:
        if not isinstance(value, str):
            return self._fail(path, f"expected a time such as 2026-01-31T12:00:00Z, got {_shown(value)}")
        try:
            parse_time(value)
        except ValueError as error:
            return self._fail(path, str(error))
        return str(value)

    def _scalar(self, value: Any, shape: Shape, path: tuple[Step, ...], noun: str = "") -> Any:
        noun = noun or _NOUNS[shape.kind]
        if isinstance(value, Untyped) and shape.kind != "str":
            value = value.meant
        if shape.kind == "int":
            return self._int(value, shape, path, noun)
        if not isinstance(value, bool if shape.kind == "bool" else str):
            return self._fail(path, f"expected {noun}, got {_shown(value)}")
        return str(value) if isinstance(value, Untyped) else value

    def _int(self, value: Any, shape: Shape, path: tuple[Step, ...], noun: str) -> Any:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if not whole or isinstance(value, bool):
            return self._fail(path, f"expected {noun}, got {_shown(value)}")
        low, high = _RANGES.get(shape.go, (INT64_MIN, INT64_MAX))
        if not low <= value <= high:
            return self._fail(path, f"expected {noun} from {low} to {high}, got {value}")
        return int(value)


def did_you_mean(key: str, known: Iterable[str]) -> str:
    """Return the suggestion for an unknown key, "" if none is similar."""
    near = closest(key, known)
    return f", did you mean {near[0]}?" if near else ""


def _shown(value: Any) -> str:
    """Return a value as messages show it: scalars as JSON, at most 60 characters."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, float):
        return str(value)
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= 60 else text[:57] + "…"
