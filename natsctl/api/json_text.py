"""JSON parsed with the line of each value, for documents whose faults are reported by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from json import JSONDecodeError
from json.decoder import scanstring  # type: ignore[attr-defined]  # json's own reader of strings, not in its types
from typing import Any, Final

from natsctl.api.documents import REPORTED, Step, Untyped
from natsctl.api.errors import UsageError
from natsctl.api.locations import MAX_DEPTH, MAX_VALUES, LocatedDict, LocatedList, TextError
from natsctl.api.yaml_text import Expand, Report, plain_value, read_yaml

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_ATOM: Final = re.compile(
    r"-?(?:0|[1-9][0-9]{0,399})(?P<float>\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)?|[a-zA-Z]+"
)
_MEMBER: Final = re.compile(
    r'[ \t\r\n]*"([^"\\\x00-\x1f]*)"[ \t\r\n]*:[ \t\r\n]*'
    r'(?:"([^"\\\x00-\x1f]*)"|(-?(?:0|[1-9][0-9]{0,17}))(?![0-9.eE])|(true|false|null)(?![a-zA-Z]))[ \t\r\n]*([,}])'
)
"""A key with a simple value, and the separator behind it."""
_WORDS: Final = {"true": True, "false": False, "null": None}


def read_json(text: str, report: Report, expand: Expand | None) -> Iterator[tuple[int, Any]]:
    """Yield the line and the value of each document in a text. Raises TextError where the text is no JSON."""
    reader = _Reader(text, report, expand)
    while not reader.at_end():
        yield reader.line(), reader.value(0)


class _Reader:
    """A parser of one text; `_at` is its position, `_line` the line of the position `_counted`."""

    def __init__(self, text: str, report: Report, expand: Expand | None) -> None:
        self._text = text
        self._report = report
        self._expand = expand
        self._at = 0
        self._line = 1
        self._counted = 0
        self._values = 0
        self._path: list[Step] = []

    def line(self) -> int:
        """Return the line of the current position."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def at_end(self) -> bool:
        """Skip blanks and return whether the text ends there."""
        return self._next() == ""

    def _next(self) -> str:
        """Skip blanks and return the character there without consuming it, "" at the end."""
        found = _BLANK.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _fail(self, reason: str) -> TextError:
        near = self._text[self._at : self._at + 20].split("\n")[0]
        return TextError(self.line(), f"not JSON: {reason}{f', got {near}' if near else ', got the end'}")

    def value(self, depth: int) -> Any:
        """Consume and return the value that begins here."""
        first = self._next()
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            most = f"{MAX_VALUES:,} values" if self._values > MAX_VALUES else f"{MAX_DEPTH} levels of nesting"
            raise TextError(self.line(), f"more than {most}")
        if first == '"':
            return self._expanded(self._string())
        if first == "{":
            return self._object(depth)
        return self._list(depth) if first == "[" else self._atom()

    def _atom(self) -> Any:
        found = _ATOM.match(self._text, self._at)
        if found is None or (found[0][0].isalpha() and found[0] not in _WORDS):
            raise self._fail("expected a value")
        self._at = found.end()
        if found[0] in _WORDS:
            return _WORDS[found[0]]
        return float(found[0]) if found["float"] else int(found[0])

    def _string(self) -> str:
        text: str
        try:
            text, self._at = scanstring(self._text, self._at + 1, True)
        except JSONDecodeError as fault:
            self._at = fault.pos
            raise TextError(self.line(), f"not JSON: {fault.msg}") from fault
        return text

    def _expanded(self, text: str) -> Any:
        if self._expand is None or "${" not in text:
            return text
        try:
            expanded = self._expand(text)
            value = Untyped(expanded)
            value.meant = plain_value(expanded)
            return value
        except ValueError as fault:
            self._report(self.line(), self._path, str(fault))
            return REPORTED

    def _object(self, depth: int) -> LocatedDict:
        result = LocatedDict(self.line())
        self._at += 1
        if self._next() == "}":
            self._at += 1
            return result
        while not self._simple_members(result):
            if self._next() != '"':
                raise self._fail("expected a key in quotes")
            line, key = self.line(), self._string()
            if self._next() != ":":
                raise self._fail("expected : behind a key")
            self._at += 1
            self._path.append(key)
            self._keep(result, key, self.value(depth + 1), line)
            self._path.pop()
            if self._ends("}"):
                break
        return result

    def _simple_members(self, result: LocatedDict) -> bool:
        """Consume members with simple values (texts, integers, words); return whether the object ends behind them."""
        text, plain = self._text, self._expand is None
        while self._values < MAX_VALUES and (found := _MEMBER.match(text, self._at)) is not None:
            key, string, number, word, end = found.groups()
            if string is not None and not plain and "${" in string:
                return False
            value = string if string is not None else _WORDS[word] if word else int(number)
            self._at = found.start(1)
            line = self.line()
            self._at = found.end()
            self._values += 1
            if key in result.lines:
                self._keep(result, key, value, line)
            else:
                result[key] = value
                result.lines[key] = line
            if end == "}":
                return True
        return False

    def _keep(self, result: LocatedDict, key: str, value: Any, line: int) -> None:
        if key in result.lines:
            path = self._path if self._path[-1:] == [key] else [*self._path, key]
            self._report(line, path, f"{key} stands here twice, first on line {result.lines[key]}")
            return
        result[key] = value
        result.lines[key] = line

    def _list(self, depth: int) -> LocatedList:
        result = LocatedList(self.line())
        self._at += 1
        if self._next() == "]":
            self._at += 1
            return result
        while True:
            self._next()
            result.lines.append(self.line())
            self._path.append(len(result))
            result.append(self.value(depth + 1))
            self._path.pop()
            if self._ends("]"):
                return result

    def _ends(self, close: str) -> bool:
        """Consume a comma or `close`, and return whether it was `close`."""
        found = self._next()
        if found not in (",", close) or not found:
            raise self._fail(f"expected , or {close}")
        self._at += 1
        return found == close


def values_of(text: str, name: str) -> list[Any]:
    """Return the value of each document in JSON or YAML text; the ending of `name` decides where both would do.

    Raises UsageError with `name` and the first fault's line.
    """
    try:
        if text.lstrip().startswith(("{", "[")):
            try:
                return _read(read_json, text)
            except TextError:
                if name.endswith(".json"):
                    raise
                # YAML may start in the same way.
        return _read(read_yaml, text)
    except TextError as fault:
        raise UsageError(f"{name}:{fault.line}: {fault.reason}") from fault


def _read(read: Any, text: str) -> list[Any]:
    def report(line: int, path: Sequence[Step], reason: str) -> None:
        raise TextError(line, reason)

    return [value for _, value in read(text, report, None)]
