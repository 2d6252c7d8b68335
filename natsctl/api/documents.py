"""Configuration documents that people write: JSON or YAML, with readable durations, sizes and times, to a model.

A document is a configuration, or a whole info document (as printed by `stream info -j`) with its `config`.
Unknown keys are refused with a suggestion, except in an info document: it may come from a newer server.

There is one reader of texts, of YAML events: it keeps the line of each value, and replaces `${NAME}` in strings. JSON
is checked by the standard library first, and then read as the YAML it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from natsctl.api.errors import UsageError, closest
from natsctl.api.locations import MAX_DEPTH, MAX_VALUES, DocumentNode, LocatedDict, LocatedList, Step, TextError
from natsctl.api.model import INT64_MAX, INT64_MIN, UINT64_MAX, Model, Shape, shape_of
from natsctl.api.times import parse_time
from natsctl.api.units import parse_duration, parse_size

M = TypeVar("M", bound=Model)

_INFO_KEYS: Final = frozenset({"type", "state", "stats", "created", "delivered", "ack_floor", "ts", "cluster"})
_RANGES: Final[dict[str, tuple[int, int]]] = {"int32": (-(2**31), 2**31 - 1), "uint64": (0, UINT64_MAX)}
_NOUNS: Final = {"int": "a whole number", "bool": "true or false", "str": "a text", "bytes": "base64 text"}
_WORDS: Final[dict[str, Callable[[str], int]]] = {"duration": parse_duration, "size": parse_size}
MAX_FAULTS: Final = 1000
"""Mistakes reported of one configuration: a person reads no more, and each suggestion takes time."""
REPORTED: Final = object()
"""Placeholder of a wrong value that was reported already."""


class Untyped(str):
    """A string that a field reads as a number or a boolean if it needs one: the replacement of `${NAME}` in JSON."""

    __slots__ = ("meant",)

    meant: Any
    """The value for a field that is not a text."""


class DocumentFault(NamedTuple):
    """One mistake: the steps that lead to it, the reason, and whether a field has no value because of it."""

    path: tuple[Step, ...]
    reason: str
    lost: bool = True


def load_document(document: Any, model: type[M], origin: str) -> M:
    """Return the model that a document describes. Raises UsageError `ORIGIN:LINE: $.path: expected …, got …`."""
    root, base = DocumentNode(origin, document), tuple[Step, ...]()
    if isinstance(document, dict) and is_info(document):
        document, base = document["config"], ("config",)
    values, faults = read_document(document, model, lenient=bool(base))
    if faults:
        raise UsageError(f"{root.at(*base, *faults[0].path).place}: {faults[0].reason}")
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


_OPEN: Final = "${"
_REFERENCE: Final = re.compile(r"(?P<literal>\$\$\{)|\$\{(?P<body>[^}]*)(?P<close>\}?)")
_BODY: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<how>:[-?])(?P<rest>.*))?", re.DOTALL)
_FORMS: Final = "expected ${NAME}, ${NAME:-default} or ${NAME:?message}, and $${ for a literal ${"


class InterpolationError(ValueError):
    """A `${…}` is malformed, or names a variable that is not set; the message is for users."""


def has_references(text: str) -> bool:
    """Return whether `text` may have references to expand."""
    return _OPEN in text


def is_one_reference(text: str) -> bool:
    """Return whether `text` is one reference and nothing else."""
    match = _REFERENCE.fullmatch(text)
    return match is not None and match["body"] is not None


def escaped(text: str) -> str:
    """Return `text` with its `${` escaped, so that `expanded` returns `text` for any variables."""
    return text.replace(_OPEN, "$${")


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with its references replaced by `values`; these are not expanded again.

    Raises InterpolationError.
    """

    def replace(found: re.Match[str]) -> str:
        return _OPEN if found["literal"] else _value(found, values)

    return _REFERENCE.sub(replace, text)


def _value(found: re.Match[str], values: Mapping[str, str]) -> str:
    """Return the value of one reference. Raises InterpolationError."""
    body = _BODY.fullmatch(found["body"])
    if body is None or not found["close"]:
        raise InterpolationError(f"{found[0]}: {_FORMS}")
    name, how, rest = body["name"], body["how"], body["rest"] or ""
    if _OPEN in rest:
        raise InterpolationError(f"{found[0]}: a default cannot hold another ${{…}}")
    value = values.get(name)
    if value or (value is not None and how is None):
        return value
    if how == ":-":
        return rest
    unset = "is not set" if value is None else "is empty"
    raise InterpolationError(f"{name} {unset}{f': {rest}' if rest else ': set it, or give --var ' + name + '=VALUE'}")


Report = Callable[[int, Sequence[Step], str], None]
"""Function for faults that do not end the reading: line, path and reason."""
Expand = Callable[[str], str]
"""Function that replaces the references of a text; raises ValueError."""

_PLAIN_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_INT: Final = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)")
_FLOAT: Final = re.compile(r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?")
_ODD_FLOATS: Final = {
    **{f"{sign}.{word}": float(f"{sign}inf") for sign in ("", "+", "-") for word in ("inf", "Inf", "INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMERIC: Final = frozenset("0123456789+-.")
_REFERENCE_IN_YAML: Final = re.compile(r"""\$?\$\{[^}\n\r"'\\]*\}""")
_BEFORE, _AFTER = "\ue000", "\ue001"
"""Characters of the private use area that `hidden` puts around a reference; it shifts its ASCII by `_PLANE`."""
_PLANE: Final = 0xF0000
_HIDDEN: Final = {code: _PLANE + code for code in range(0x20, 0x7F)}
_SHOWN: Final = {there: code for code, there in _HIDDEN.items()}
_HIDDEN_REFERENCE: Final = re.compile(f"{_BEFORE}([^{_AFTER}]*){_AFTER}")
_TAG: Final = "tag:yaml.org,2002:"
MAX_DIGITS: Final = 400
"""Longer numbers stay strings: no field holds them, and parsing takes quadratic time."""


def plain_value(text: str) -> Any:
    """Return the value of an unquoted scalar: null, true or false, a number, or the text itself."""
    if text in _PLAIN_WORDS:
        return _PLAIN_WORDS[text]
    if text[0] not in _NUMERIC or len(text) > MAX_DIGITS:
        return text
    if _INT.fullmatch(text):
        return _int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return _ODD_FLOATS.get(text, text)


def untyped(text: str) -> Untyped:
    """Return a string that becomes a number or a boolean if a field needs one."""
    value = Untyped(text)
    value.meant = plain_value(text)
    return value


def _int(text: str) -> Any:
    digits = text.replace("_", "")
    sign = -1 if digits[0] == "-" else 1
    body = digits.lstrip("+-").lower()
    base = {"0b": 2, "0x": 16}.get(body[:2], 8 if body[:1] == "0" and len(body) > 1 else 10)
    bare = body[2:] if body[:2] in ("0b", "0x") else body
    return sign * int(bare, base) if bare else text


def is_json(name: str, text: str) -> bool:
    """Return whether a text is to be read as JSON: by the ending of its file's name, else by how it begins."""
    if name.endswith(".json"):
        return True
    return not name.endswith((".yaml", ".yml")) and _JSON_START.match(text) is not None


def read_yaml(text: str, report: Report, expand: Expand | None) -> Iterator[tuple[int, Any]]:
    """Yield each document of a text with its first line; the value of an empty document is None.

    Raises TextError if the text is not YAML or has too many values; documents that were yielded before are valid.
    """
    yield from _EventReader(report, expand, plain_value).documents(text if expand is None else hidden(text), 1)


def read_json(text: str, report: Report, expand: Expand | None) -> Iterator[tuple[int, Any]]:
    """Yield each JSON value of a text with its first line. Raises TextError."""
    reader, line, counted, start = _EventReader(report, expand, json.loads), 1, 0, _skip_blanks(text, 0)
    while start < len(text):
        line, counted = line + text.count("\n", counted, start), start
        try:
            _, end = _JSON_CHECKER.raw_decode(text, start)
        except json.JSONDecodeError as fault:
            near = text[fault.pos : fault.pos + 20].split("\n")[0] or "the end"
            raise TextError(fault.lineno, f"not JSON: {fault.msg[0].lower()}{fault.msg[1:]}, got {near}") from fault
        except ValueError as fault:
            raise TextError(line, f"not JSON: {fault}") from fault
        except RecursionError as fault:
            raise TextError(line, f"more than {MAX_DEPTH} levels of nesting") from fault
        yield from reader.documents(_UNLIKE_YAML.sub(_as_yaml, text[start:end]), line)
        start = _skip_blanks(text, end)


def values_of(text: str, name: str) -> list[Any]:
    """Return the value of each document in JSON or YAML text; the ending of `name` decides if it can be both.

    Raises UsageError with `name` and the line of the first fault.
    """

    def report(line: int, path: Sequence[Step], reason: str) -> None:
        raise TextError(line, reason)

    read = read_json if text.lstrip().startswith(("{", "[")) and is_json(name, text) else read_yaml
    try:
        return [value for _, value in read(text, report, None)]
    except TextError as fault:
        raise UsageError(f"{name}:{fault.line}: {fault.reason}") from fault


_JSON_START: Final = re.compile(r'\s*(?:\{\s*["}]|\[\s*(?:[{\]]|$))')
"""The start of JSON texts that are not hand-written YAML."""
_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_UNLIKE_YAML: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\."
    r"|[\x7f-\x9f\u2028\u2029\ufffe\uffff]"
    r'|"[ \t]*[\r\n][ \t\r\n]*:'
)
"""Parts of JSON that YAML rejects or reads differently, and other escapes, so that a match starts outside of them."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


_JSON_CHECKER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _skip_blanks(text: str, start: int) -> int:
    blanks = _BLANKS.match(text, start)
    return blanks.end() if blanks else start


def _as_yaml(match: re.Match[str]) -> str:
    part = match[0]
    if part[0] == '"':
        return f'":{part[1:-1]}'
    if part[0] != "\\":
        return f"\\u{ord(part):04x}"
    return str(json.loads(f'"{part}"')) if len(part) == 12 else part


def _explained(fault: Any, text: str, first_line: int) -> TextError:
    """Return PyYAML's error as one line, with a hint if a tab indents."""
    mark = fault.problem_mark or fault.context_mark
    line = mark.line if mark is not None else 0
    lines = text.splitlines() or [""]
    near = lines[min(line, len(lines) - 1)]
    context = f" {fault.context}" if fault.context else ""
    begun = fault.context_mark.line if context and fault.context_mark is not None else line
    context += f" that begins on line {begun + first_line}" if begun != line else ""
    reason = f"not YAML: {fault.problem or 'a fault'}{context}"
    if near[: len(near) - len(near.lstrip())].count("\t"):
        reason += ": a tab cannot indent, use spaces"
    return TextError(line + first_line, reason)


def hidden(text: str) -> str:
    """Return `text` with each `${…}` in characters without meaning in YAML, so that it may be within { } and [ ].

    References with quotes or backslashes stay as they are, since they can only be within quoted strings.
    """
    if _BEFORE in text or "${" not in text:
        return text
    return _REFERENCE_IN_YAML.sub(lambda found: _BEFORE + found[0].translate(_HIDDEN) + _AFTER, text)


def shown(text: str) -> str:
    """Return a scalar with its references as written."""
    if _BEFORE not in text:
        return text
    return _HIDDEN_REFERENCE.sub(lambda found: found[1].translate(_SHOWN), text)


class _EventReader:
    """Reader that builds values from the parser events of texts; `plain` reads unquoted scalars."""

    def __init__(self, report: Report, expand: Expand | None, plain: Callable[[str], Any]) -> None:
        import yaml

        self._report = report
        self._expand = expand
        self._plain = plain
        self._events: Any = None
        self._first_line = 1
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._values = 0
        self._path: list[Step] = []
        self._kinds: dict[type[Any], Callable[[Any, int], Any]] = {
            yaml.MappingStartEvent: self._mapping,
            yaml.SequenceStartEvent: self._sequence,
            yaml.AliasEvent: self._alias,
        }
        self._scalar_kind = yaml.ScalarEvent
        self._ends = (yaml.MappingEndEvent, yaml.SequenceEndEvent)

    def documents(self, text: str, first_line: int) -> Iterator[tuple[int, Any]]:
        """Yield each document of a text with its line; the text begins on `first_line`."""
        import yaml

        self._first_line = first_line
        try:
            self._events = events = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
            while events.check_event():
                if type(events.get_event()) is yaml.DocumentStartEvent:
                    self._anchors.clear()
                    event = events.get_event()
                    yield self._line(event), self._value(event, 0)
        except yaml.MarkedYAMLError as fault:
            raise _explained(fault, text, first_line) from fault
        except yaml.YAMLError as fault:
            line = text.count("\n", 0, getattr(fault, "position", 0)) + first_line
            raise TextError(line, f"not YAML: {getattr(fault, 'reason', fault)}") from fault

    def _line(self, event: Any) -> int:
        line: int = event.start_mark.line
        return line + self._first_line

    def _value(self, event: Any, depth: int) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            raise TextError(self._line(event), f"more than {MAX_VALUES:,} values")
        if type(event) is self._scalar_kind:
            value = self._scalar(event)
            if event.anchor:
                self._anchors[event.anchor] = (value, 1)
            return value
        if depth > MAX_DEPTH:
            raise TextError(self._line(event), f"more than {MAX_DEPTH} levels of nesting")
        return self._kinds[type(event)](event, depth)

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if not text and event.style in (">", "|"):
            self._report(self._line(event), self._path, f'an empty block of text: "{event.style}" needs quotes')
            return REPORTED
        plain, tag = event.implicit[0], event.tag
        if self._expand is not None and "${" in (text := shown(text)):
            may_be_empty = ":-" in text  # an empty variable is not null, since null would remove a limit
            try:
                text, plain = self._expand(text), plain and is_one_reference(text)
            except ValueError as fault:
                self._report(self._line(event), self._path, str(fault))
                return REPORTED
            is_null = plain and plain_value(text) is None and (bool(text) or may_be_empty)
            if tag in (None, "!") and not is_null:
                return untyped(text)
        if plain:
            return self._plain(text)
        if tag is None or tag in ("!", f"{_TAG}str"):
            return text
        return self._tagged(event, text)

    def _tagged(self, event: Any, text: str) -> Any:
        value = plain_value(text)
        wanted: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "bool": (bool,)}
        name = event.tag.removeprefix(_TAG)
        if name == "null" and value is None:
            return None
        if name in wanted and isinstance(value, wanted[name]):
            return value
        self._report(self._line(event), self._path, f"a tag that means nothing here: {event.tag}")
        return REPORTED

    def _mapping(self, event: Any, depth: int) -> LocatedDict:
        line = self._line(event)
        self._check_tag(event, "map")
        result, before, next_event = LocatedDict(line), self._values, self._events.get_event
        lines, path, merged = result.lines, self._path, None
        self._open(event)
        while type(key := next_event()) not in self._ends:
            at = self._line(key)
            if type(key) is not self._scalar_kind:
                self._value(key, depth + 1)
                self._report(at, self._path, "a key has to be a text")
                self._value(next_event(), depth + 1)
                continue
            name = shown(key.value)
            path.append(name)
            value = self._value(next_event(), depth + 1)
            path.pop()
            if name == "<<" and key.implicit[0]:
                merged = value
            elif name in lines:
                self._report(at, [*path, name], f"{name} stands here twice, first on line {lines[name]}")
            else:
                result[name] = value
                lines[name] = at
        if merged is not None:
            self._merge(result, merged, line)
        self._close(event, result, before)
        return result

    def _merge(self, into: LocatedDict, merged: Any, line: int) -> None:
        for one in merged if isinstance(merged, LocatedList) else [merged]:
            if not isinstance(one, LocatedDict):
                self._report(line, self._path, "<< takes a mapping, or a list of mappings")
                return
            for key, value in one.items():
                if key not in into:
                    into.put(key, value, one.lines[key])

    def _sequence(self, event: Any, depth: int) -> LocatedList:
        self._check_tag(event, "seq")
        result, before, next_event = LocatedList(self._line(event)), self._values, self._events.get_event
        self._open(event)
        while type(item := next_event()) not in self._ends:
            result.lines.append(self._line(item))
            self._path.append(len(result))
            result.append(self._value(item, depth + 1))
            self._path.pop()
        self._close(event, result, before)
        return result

    def _check_tag(self, event: Any, name: str) -> None:
        if event.tag not in (None, "!", _TAG + name):
            self._report(self._line(event), self._path, f"a tag that means nothing here: {event.tag}")

    def _open(self, event: Any) -> None:
        """Register an anchor before its value is complete, so that an alias within it is refused."""
        if event.anchor:
            self._anchors[event.anchor] = (None, 0)

    def _close(self, event: Any, value: Any, before: int) -> None:
        if event.anchor:
            self._anchors[event.anchor] = (value, self._values - before + 1)

    def _alias(self, event: Any, depth: int) -> Any:
        line = self._line(event)
        value, size = self._anchors.get(event.anchor, (None, -1))
        if size <= 0:
            self._report(line, self._path, "an alias without its anchor" if size else "an alias inside its own anchor")
            return None
        self._values += size
        if self._values > MAX_VALUES:
            raise TextError(line, f"more than {MAX_VALUES:,} values, with the values of aliases")
        return value
