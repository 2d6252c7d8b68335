"""The syntax of nats.conf: text to nested blocks; every value knows its file and line.

`key: value`, `key = value` or `key value`; maps in braces, arrays in brackets; pairs and items are parted by commas or
line ends, pairs by `;` too; `#` and `//` comments; strings bare, in double quotes (with escapes), in single quotes
(without) or as a block in parentheses; integers with units (`64MB`, `1Ki`), floats, dates, booleans (`true yes on`);
`$NAME` for a key of this block, of one around it, or of the environment; `include file`, relative to the including
file. Key names keep their spelling.

The accepted language is nats-server's (its package conf). It is read character by character: a key ends at a blank, `:`
or `=` and nowhere else, a bare text at a blank, line end or one of `,;]}'`. Two things differ: an array may end in a
bare number (`[1]`), and there are limits.

A scalar that begins with a digit is a number, a number with a unit, an address, a date, or a text, decided by the first
character that does not fit, as in nats-server: `64MB` is a number, `10ms` a text, `1.5s` and `12-ab` are faults.
Functions of scalars take the whole text and the place where the scalar begins, and return its value and the place
behind it; a `ConfValueError` has the fault, and the caller knows the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.server.files import MAX_BYTES, read_file

_K: Final = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4, "p": 1000**5, "e": 1000**6}
_UNITS: Final[dict[str, int]] = _K | {
    letter + ending: 1024 ** (power + 1) for power, letter in enumerate("kmgtpe") for ending in ("b", "i", "ib")
}
_BOOLEANS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_PLAIN: Final = re.compile(r"[^\n\r;,\]} \t'\\]*")
_DIGITS: Final = re.compile(r"-?[0-9]+")
_FLOAT: Final = re.compile(r"\.[0-9]+")
_ADDRESS: Final = re.compile(r"[0-9.:-]*")
_UNIT: Final = re.compile(r"[kmgtpe][bi]*", re.IGNORECASE)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_ENDS: Final = frozenset("\n\r},; \t")
_LARGEST: Final = (1 << 63) - 1

Scalar = str | int | float | bool | datetime


class ConfValueError(Exception):
    """A malformed scalar; `at` is its place in the text."""

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at = at


class Word(NamedTuple):
    """A value, the place after it, and whether it is the name of a variable."""

    value: Scalar
    end: int
    variable: bool = False


def bare(text: str, at: int) -> Word:
    match = _DIGITS.match(text, at)
    if match:
        return _number(text, at, match.end())
    if text[at : at + 1] in ("-", ".") and text[at:]:
        raise ConfValueError(
            at, f"expected a digit, not {text[at]!r}" if text[at] == "-" else "a number begins with a digit"
        )
    return _plain(text, at, at)


def _plain(text: str, start: int, at: int) -> Word:
    parts, since = list[str](), start
    while True:
        match = _PLAIN.match(text, at)
        assert match is not None  # it matches nothing, too
        at = match.end()
        if text[at : at + 1] != "\\":
            break
        parts.append(text[since:at])
        piece, at = escape(text, at + 1)
        parts.append(piece)
        since = at
    word = "".join(parts) + text[since:at]
    if text[at : at + 1] == "'":
        return Word(word, at + 1)
    if parts:
        return Word(word, at)
    if word.lower() in _BOOLEANS:
        return Word(_BOOLEANS[word.lower()], at)
    return Word(word[1:], at, variable=True) if word.startswith("$") else Word(word, at)


def _number(text: str, start: int, at: int) -> Word:
    after = text[at : at + 1]
    if after == ".":
        return _float(text, start, at)
    unit = _UNIT.match(text, at)
    if unit:
        return _with_unit(text, start, at, unit.end())
    if text[start] == "-":
        return Word(_integer(text, start, at, ""), at)
    if after == "-":
        return _date(text, start)
    if after in _ENDS or after in ("", "]"):
        return Word(_integer(text, start, at, ""), at)
    return _plain(text, start, at + 1)


def _with_unit(text: str, start: int, at: int, end: int) -> Word:
    if text[end : end + 1] and text[end] not in _ENDS:
        return _plain(text, start, end)
    return Word(_integer(text, start, at, text[at:end]), end)


def _integer(text: str, start: int, end: int, unit: str) -> int:
    factor = _UNITS.get(unit.lower())
    if factor is None:
        raise ConfValueError(start, f"unknown unit {unit!r}")
    if end - start > len(str(_LARGEST)) + 1 or abs(number := int(text[start:end]) * int(factor)) > _LARGEST:
        raise ConfValueError(start, f"integer '{text[start:end][:40]}{unit}' is out of the range")
    return number


def _float(text: str, start: int, at: int) -> Word:
    fraction = _FLOAT.match(text, at)
    if not fraction:
        raise ConfValueError(at, "a number needs a digit after its '.'")
    end = fraction.end()
    if text[end : end + 1] == ".":
        address = _ADDRESS.match(text, end)
        assert address is not None  # the dot is there
        return Word(text[start : address.end()], address.end())
    number = float(text[start:end])
    if number in (float("inf"), float("-inf")):
        raise ConfValueError(start, f"float '{text[start : start + 40]}' is out of the range")
    return Word(number, end)


def _date(text: str, start: int) -> Word:
    date = _DATE.match(text, start)
    if not date:
        raise ConfValueError(
            start, "digits and '-' are the beginning of a date such as 2026-01-31T00:00:00Z; quote other texts"
        )
    try:
        return Word(datetime.strptime(date.group(), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC), date.end())
    except ValueError:
        raise ConfValueError(start, f"expected Zulu formatted DateTime, but got '{date.group()}'") from None


def quoted(text: str, at: int) -> tuple[str, int]:
    """Return the text in the quotes that open at `at`; only double ones have escapes. Raises ConfValueError."""
    quote, since, start, parts = text[at], at + 1, at, list[str]()
    at += 1
    while at < len(text):
        if text[at] == quote:
            return "".join(parts) + text[since:at], at + 1
        if text[at] == "\\" and quote == '"':
            parts.append(text[since:at])
            piece, at = escape(text, at + 1)
            parts.append(piece)
            since = at
        else:
            at += 1
    raise ConfValueError(start, "the string that opens here is never closed")


def escape(text: str, at: int) -> tuple[str, int]:
    char = text[at : at + 1]
    if char == "x":
        digits = text[at + 1 : at + 3]
        if not re.fullmatch("[0-9a-fA-F]{2}", digits):
            raise ConfValueError(at, f"\\x needs two hexadecimal digits, not {digits!r}")
        return chr(int(digits, 16)), at + 3
    if char not in _ESCAPES:
        raise ConfValueError(at, f'unknown escape \\{char}: there are \\xXX, \\t, \\n, \\r, \\" and \\\\')
    return _ESCAPES[char], at + 1


MAX_DEPTH: Final = 64
"""Blocks within blocks, includes within includes, variables of the environment within variables."""


_SPACE: Final = re.compile(r"\s*")
_GAP: Final = re.compile(r"[ \t]*")
_COMMENT: Final = re.compile(r"(?:#|//)[^\n\r]*")
_KEY: Final = re.compile(r"[^\s:=][^\s:=]*")
_INCLUDED: Final = re.compile(r"[^\n\r;} \t']*")
_PARENTHESIS_END: Final = re.compile(r"(?<=\n)\)(?=\n|\Z)")


class ConfError(UsageError):
    """A malformed configuration file; the text begins with its name and the line."""

    def __init__(self, file: str, line: int, text: str) -> None:
        super().__init__(f"{file}:{line}: {text}")


class ConfItem(NamedTuple):
    value: str | int | float | bool | datetime | list[ConfItem] | ConfBlock
    file: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def fault(self, text: str) -> ConfError:
        return ConfError(self.file, self.line, text)


class ConfBlock(dict[str, ConfItem]):
    def __init__(self) -> None:
        super().__init__()
        self.variables: set[str] = set()
        """Keys that a `$NAME` referred to; they need not be options."""


def load_file(path: Path, environment: Mapping[str, str]) -> ConfBlock:
    return load_text(_read(path), environment, str(path), path.parent)


def load_text(text: str, environment: Mapping[str, str], name: str = "nats.conf", folder: Path = Path()) -> ConfBlock:
    """Return the block of `text`; includes are relative to `folder`. Raises ConfError."""
    return _Parser(text, name, folder, environment).document()


def _read(path: Path) -> str:
    content = read_file(path)
    if len(content) > MAX_BYTES:
        raise ConfError(str(path), 1, f"the file has more than {MAX_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfError(str(path), line, "Parse error: the file is not UTF-8 text") from None


class _Parser:
    def __init__(
        self,
        text: str,
        name: str,
        folder: Path,
        environment: Mapping[str, str],
        depth: int = 0,
        asked: frozenset[str] = frozenset(),
    ) -> None:
        self._text = text
        self._name = name
        self._folder = folder
        self._environment = environment
        self._depth = depth
        self._asked = asked
        """Variables of the environment that are being read: one of them again is a circle."""
        self._at = 0
        self._counted = (0, 1)
        """A place and its line, from where later ones are counted."""
        self._scopes: list[ConfBlock] = []

    def document(self) -> ConfBlock:
        try:
            if "\0" in self._text:
                raise ConfValueError(self._text.index("\0"), "a zero byte is no text")
            return self._document()
        except ConfValueError as fault:
            line = self._line(fault.at)
            raise ConfError(self._name, line, f"Parse error on line {line}: '{fault}'") from None

    def _document(self) -> ConfBlock:
        block = ConfBlock()
        self._scopes.append(block)
        while not self._ended():
            if self._take("{"):
                self._pairs(block)
            elif self._peek() == "}" and not self._text[self._at + 1 :].strip():
                break  # one brace too many at the very end is let be, like nats-server
            else:
                self._pair(block, top=True)
                self._end_of_value("}", "a top-level value")
        return block

    # Places

    def _line(self, at: int) -> int:
        seen, line = self._counted if self._counted[0] <= at else (0, 1)
        line += self._text.count("\n", seen, at)
        self._counted = (at, line)
        return line

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, literal: str) -> bool:
        if self._text.startswith(literal, self._at):
            self._at += len(literal)
            return True
        return False

    def _ended(self) -> bool:
        """Skip blanks, line ends and comments; return whether nothing follows."""
        while True:
            self._skip(_SPACE)
            before = self._at
            self._skip(_COMMENT)
            if self._at == before:
                return self._at >= len(self._text)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        if self._depth >= MAX_DEPTH:
            raise ConfValueError(self._at, "too many blocks within blocks")
        self._depth += 1
        yield
        self._depth -= 1

    def _end_of_value(self, closing: str, what: str) -> None:
        """Skip the end of a pair or an item; `closing` is left to the caller, but for the top level's."""
        self._skip(_GAP)
        self._skip(_COMMENT)
        char = self._peek()
        if not char or char in "\n\r," or (char == ";" and closing == "}"):
            self._at += len(char)
        elif char != closing:
            raise ConfValueError(self._at, f"expected {what} to end with a new line or a comma, not {char!r}")
        elif len(self._scopes) == 1 and what == "a top-level value":
            self._at += 1

    # Blocks

    def _block(self) -> ConfBlock:
        block = ConfBlock()
        with self._deeper():
            self._scopes.append(block)
            self._pairs(block)
            self._scopes.pop()
        return block

    def _pairs(self, block: ConfBlock) -> None:
        """Read pairs into `block` up to its closing brace."""
        opened = self._at - 1
        while not self._ended():
            if self._take("}"):
                return
            self._pair(block, top=False)
            self._end_of_value("}", "a value")
        raise ConfValueError(opened, "the block that opens here is never closed with '}'")

    def _pair(self, block: ConfBlock, *, top: bool) -> None:
        at = self._at
        key = self._key()
        if key.lower() == "include" and self._text[at] not in "\"'" and self._peek().isspace():
            included = self._include()
            block.update(included)
            block.variables |= included.variables
            return
        line = self._line(self._at)
        self._skip(_SPACE)
        separated = self._take(":") or self._take("=")
        self._skip(_GAP if top else _SPACE)
        char = self._peek()
        if (not char and not (top and separated)) or (char and char in ("\n\r" if top else "},")):
            raise ConfValueError(at, f"{key!r} has no value")
        block[key] = ConfItem(self._value(), self._name, line)

    def _key(self) -> str:
        if self._peek() in ('"', "'"):
            end = self._text.find(self._peek(), self._at + 1)
            if end < 0:
                raise ConfValueError(self._at, "the key that opens here is never closed")
            key, self._at = self._text[self._at + 1 : end], end + 1
            return key
        match = _KEY.match(self._text, self._at)
        if not match or match.group()[0] in "/,;]":
            raise ConfValueError(self._at, f"expected a key, not {self._peek()!r}")
        self._at = match.end()
        return match.group()

    def _include(self) -> ConfBlock:
        self._skip(_GAP)
        at, char = self._at, self._peek()
        if not char or char in "[{(\\-\n\r" or char.isdigit():
            raise ConfValueError(at, "include needs the name of a file")
        if char in "\"'":
            end = self._text.find(char, at + 1)
            if end < 0:
                raise ConfValueError(at, "the name that opens here is never closed")
            name, self._at = self._text[at + 1 : end], end + 1
        else:
            self._skip(_INCLUDED)
            name = self._text[at : self._at]
            self._take("'")
        if self._depth >= MAX_DEPTH:
            raise ConfValueError(at, "too many includes within includes")
        path = self._folder / name.lstrip("/")  # nats-server joins the names, whatever the second one begins with
        try:
            text = _read(path)
        except (OSError, ValueError) as error:
            raise ConfError(self._name, self._line(at), f"error parsing include file '{name}', {error}") from None
        return _Parser(text, str(path), path.parent, self._environment, self._depth + 1).document()

    # Values

    def _value(self) -> str | int | float | bool | datetime | list[ConfItem] | ConfBlock:
        char = self._peek()
        if char == "{":
            self._at += 1
            return self._block()
        if char == "[":
            self._at += 1
            return self._array()
        if char == "(":
            return self._parenthesised()
        if char and char in "\"'":
            text, self._at = quoted(self._text, self._at)
            return text
        word = bare(self._text, self._at)
        value = self._variable(str(word.value)) if word.variable else word.value
        self._at = word.end
        return value

    def _array(self) -> list[ConfItem]:
        opened, items = self._at - 1, list[ConfItem]()
        with self._deeper():
            while not self._ended():
                if self._take("]"):
                    return items
                if self._peek() == ",":
                    raise ConfValueError(self._at, "a comma without a value before it")
                line = self._line(self._at)
                items.append(ConfItem(self._value(), self._name, line))
                self._end_of_value("]", "an item")
        raise ConfValueError(opened, "the array that opens here is never closed with ']'")

    def _parenthesised(self) -> str:
        end = _PARENTHESIS_END.search(self._text, self._at)
        if end is None:
            raise ConfValueError(self._at, "the text that opens here is never closed with ')' on a line of its own")
        text, self._at = self._text[self._at + 1 : end.start()], end.end()
        return text

    def _variable(self, name: str) -> str | int | float | bool | datetime | list[ConfItem] | ConfBlock:
        if name.startswith("2a$"):  # no variable, a bcrypt hash
            return f"${name}"
        for scope in reversed(self._scopes):
            item = scope.get(name)
            if item is not None:
                scope.variables.add(name)
                return item.value
        if name in self._asked or len(self._asked) >= MAX_DEPTH:
            raise ConfValueError(self._at, f"variable reference cycle for '{name}'")
        if name in self._environment:
            text = f"pk={self._environment[name]}"
            inner = _Parser(text, f"${name}", Path(), self._environment, self._depth + 1, self._asked | {name})
            item = inner.document().get("pk")
            if item is not None:
                return item.value
        raise ConfValueError(self._at, f"variable reference for '{name}' can not be found")
