"""Configuration documents that people write: parsed JSON or YAML to a model, with durations, sizes and times as words.

A document is a configuration, or a whole info document (as `stream info -j` prints it), of which `config` is taken.
Unknown keys are refused with a suggestion, apart from those in an info document, which a newer server may have made.
"""

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from natsctl.api.errors import UsageError
from natsctl.api.model import INT64_MAX, INT64_MIN, UINT64_MAX, Model
from natsctl.api.shapes import Shape, shape_of
from natsctl.api.times import parse_time
from natsctl.api.units import parse_duration, parse_size

M = TypeVar("M", bound=Model)

_INFO_KEYS: Final = frozenset({"type", "state", "stats", "created", "delivered", "ack_floor", "ts", "cluster"})
_RANGES: Final[dict[str, tuple[int, int]]] = {"int32": (-(2**31), 2**31 - 1), "uint64": (0, UINT64_MAX)}
_NOUNS: Final = {"int": "a whole number", "bool": "true or false", "str": "a text", "bytes": "base64 text"}
_WORDS: Final[dict[str, Callable[[str], int]]] = {"duration": parse_duration, "size": parse_size}


def load_document(document: Any, model: type[M], origin: str) -> M:
    """Return the model a document describes; raises UsageError `ORIGIN: $.path: expected …, got …`."""
    path, made_by_server = "$", False
    if isinstance(document, dict) and isinstance(document.get("config"), dict) and _INFO_KEYS & document.keys():
        document, path, made_by_server = document["config"], "$.config", True
    reader = _DocumentReader(origin, made_by_server)
    return msgspec.convert(reader.read(document, shape_of(model), path), model)


class _DocumentReader:
    """Walks a document beside the shape it should have and stops at the first fault."""

    def __init__(self, origin: str, lenient: bool) -> None:
        self.origin = origin
        self.lenient = lenient

    def _fail(self, path: str, reason: str) -> NoReturn:
        raise UsageError(f"{self.origin}: {path}: {reason}")

    def read(self, value: Any, shape: Shape, path: str) -> Any:
        """Return the builtins `msgspec.convert` takes for `shape`."""
        if shape.kind == "struct":
            return self._struct(value, shape, path)
        if shape.kind == "list":
            if not isinstance(value, list):
                self._fail(path, f"expected a list, got {_say(value)}")
            return [self.read(item, shape.elements(), f"{path}[{index}]") for index, item in enumerate(value)]
        if shape.kind == "dict":
            if not isinstance(value, dict):
                self._fail(path, f"expected an object, got {_say(value)}")
            return {str(key): self.read(item, shape.elements(), f"{path}.{key}") for key, item in value.items()}
        if shape.kind == "enum":
            return self._enum(value, shape, path)
        if shape.human:
            return self._words(value, shape, path)
        return self._scalar(value, shape, path)

    def _struct(self, value: Any, shape: Shape, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._fail(path, f"expected an object, got {_say(value)}")
        result = {}
        for key, item in value.items():
            known = shape.fields.get(key)
            if known is None:
                if not self.lenient:
                    self._fail(f"{path}.{key}", f"unknown key{_did_you_mean(str(key), shape)}")
            elif item is not None:
                result[key] = self.read(item, known.shape, f"{path}.{key}")
        return result

    def _enum(self, value: Any, shape: Shape, path: str) -> str:
        choices = [member.value for member in shape.python if member.value]
        text = value.lower().replace(" ", "_") if isinstance(value, str) else value
        if text not in shape.python._value2member_map_:
            self._fail(path, f"expected one of {', '.join(choices)}, got {_say(value)}")
        return str(text)

    def _words(self, value: Any, shape: Shape, path: str) -> Any:
        """Read a duration, size or time: words, or the number or text of the wire."""
        if shape.human == "time":
            text = value.isoformat() if hasattr(value, "isoformat") else value
            return self._time(text, path)
        if not isinstance(value, str):
            return self._scalar(value, shape, path, f"{_NOUNS['int']} or a {shape.human}")
        try:
            number = int(value) if value.lstrip("-").isdecimal() else _WORDS[shape.human](value)
        except ValueError as error:
            self._fail(path, str(error))
        return self._scalar(number, shape, path)

    def _time(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            self._fail(path, f"expected a time such as 2026-01-31T12:00:00Z, got {_say(value)}")
        try:
            parse_time(value)
        except ValueError as error:
            self._fail(path, str(error))
        return value

    def _scalar(self, value: Any, shape: Shape, path: str, noun: str = "") -> Any:
        noun = noun or _NOUNS[shape.kind]
        if shape.kind == "int":
            return self._int(value, shape, path, noun)
        if not isinstance(value, bool if shape.kind == "bool" else str):
            self._fail(path, f"expected {noun}, got {_say(value)}")
        return value

    def _int(self, value: Any, shape: Shape, path: str, noun: str) -> int:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if not whole or isinstance(value, bool):
            self._fail(path, f"expected {noun}, got {_say(value)}")
        low, high = _RANGES.get(shape.go, (INT64_MIN, INT64_MAX))
        if not low <= value <= high:
            self._fail(path, f"expected {noun} from {low} to {high}, got {value}")
        return int(value)


def _did_you_mean(key: str, shape: Shape) -> str:
    """Return the suggestion for an unknown key, or nothing."""
    import difflib

    near = difflib.get_close_matches(key.lower(), list(shape.fields), n=1, cutoff=0.6)
    return f", did you mean {near[0]}?" if near else ""


def _say(value: Any) -> str:
    """Return a value as a person wrote it, cut to a readable length."""
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
