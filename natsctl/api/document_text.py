"""JSON and YAML read with the line of each value, and `${NAME}` references in their strings.

There is one reader, of YAML events. JSON is checked by the standard library first, and then read as the YAML it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from natsctl.api.documents import REPORTED, Step, Untyped
from natsctl.api.errors import UsageError
from natsctl.api.locations import MAX_DEPTH, MAX_VALUES, LocatedDict, LocatedList, TextError

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
    found = _REFERENCE.fullmatch(text)
    return found is not None and found["body"] is not None


def escaped(text: str) -> str:
    """Return `text` with its `${` escaped, so that `expanded` returns `text` for any variables."""
    return text.replace(_OPEN, "$${")


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with its references replaced by `values`, which are not expanded again.

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

_WORDS: Final = {
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
"""Characters of the private use area that `hidden` puts around a reference, whose ASCII it shifts by `_PLANE`."""
_PLANE: Final = 0xF0000
_HIDDEN: Final = {code: _PLANE + code for code in range(0x20, 0x7F)}
_SHOWN: Final = {there: code for code, there in _HIDDEN.items()}
_HIDDEN_REFERENCE: Final = re.compile(f"{_BEFORE}([^{_AFTER}]*){_AFTER}")
_TAG: Final = "tag:yaml.org,2002:"
MAX_DIGITS: Final = 400
"""Longer numbers stay strings: no field holds them, and parsing takes quadratic time."""


def plain_value(text: str) -> Any:
    """Return the value of an unquoted scalar: null, true or false, a number, or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC or len(text) > MAX_DIGITS:
        return text
    if _INT.fullmatch(text):
        return _int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return _ODD_FLOATS.get(text, text)


def untyped(text: str) -> Untyped:
    """Return a string that becomes a number or a boolean where a field needs one."""
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
            raise TextError(line, f"more than {MAX_VALUES:,} values, aliases counted as what they stand for")
        return value
