"""The syntax of nats.conf: text to nested blocks whose every value knows its file and line.

`key: value`, `key = value` or `key value`; maps in braces, arrays in brackets with commas or line ends between; `#` and
`//` comments; strings bare, in double quotes (with escapes), in single quotes (without) or as a block in parentheses;
integers with size units (`64MB`, `1Ki`), floats, booleans (`true yes on`), `$NAME` for a key of this block, of one
around it, or of the environment; `include file`, relative to the including file. Key names keep their spelling.
Source: the reference's conf package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from natsctl.api.errors import UsageError

MAX_DEPTH: Final = 64
"""Blocks within blocks, includes within includes."""

_UNITS: Final = {
    "": 1, "k": 1000, "kb": 1024, "ki": 1024, "kib": 1024, "m": 1000**2, "mb": 1024**2, "mi": 1024**2, "mib": 1024**2,
    "g": 1000**3, "gb": 1024**3, "gi": 1024**3, "gib": 1024**3, "t": 1000**4, "tb": 1024**4, "ti": 1024**4,
    "tib": 1024**4, "p": 1000**5, "pb": 1024**5, "pi": 1024**5, "pib": 1024**5, "e": 1000**6, "eb": 1024**6,
    "ei": 1024**6, "eib": 1024**6,
}  # fmt: skip
_BOOLEANS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_INTEGER: Final = re.compile(r"([-+]?\d+)([kmgtpe](?:i?b?)?)?\Z", re.IGNORECASE)
_FLOAT: Final = re.compile(r"-?\d+\.\d+\Z")
_BLANK: Final = re.compile(r"(?:[ \t\r]+|#[^\n]*|//[^\n]*)+")
_BETWEEN: Final = re.compile(r"(?:[ \t\r\n,;]+|#[^\n]*|//[^\n]*)+")
_KEY: Final = re.compile(r"[^\s:={}\[\]#\"',;]+")
_BARE: Final = re.compile(r"[^\s{}\[\],;\"'#][^\s{}\[\],;]*")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}


class ConfError(UsageError):
    """A configuration file that can not be read; the text begins with its name and the line."""

    def __init__(self, file: str, line: int, text: str) -> None:
        super().__init__(f"{file}:{line}: {text}")


class Item(NamedTuple):
    """A value and where it stands."""

    value: str | int | float | bool | list[Item] | Block
    file: str
    line: int

    def fault(self, text: str) -> ConfError:
        """Return the error that says what is wrong with this value."""
        return ConfError(self.file, self.line, text)


class Block(dict[str, Item]):
    """Keys and values of one pair of braces, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.variables: set[str] = set()
        """Keys that a `$NAME` referred to; they need not be options."""


def load_file(path: Path, environment: Mapping[str, str]) -> Block:
    """Return what a file says; raises ConfError, OSError where it can not be read."""
    return _Parser(path.read_text(encoding="utf-8", errors="strict"), str(path), path.parent, environment, 0).document()


def load_text(text: str, environment: Mapping[str, str], name: str = "nats.conf", folder: Path = Path()) -> Block:
    """Return what `text` says; includes are looked for in `folder`. Raises ConfError."""
    return _Parser(text, name, folder, environment, 0).document()


class _Parser:
    """One file, read from the front."""

    def __init__(self, text: str, name: str, folder: Path, environment: Mapping[str, str], depth: int) -> None:
        self._text = text
        self._name = name
        self._folder = folder
        self._environment = environment
        self._depth = depth
        self._at = 0
        self._scopes: list[Block] = []

    def document(self, scopes: tuple[Block, ...] = ()) -> Block:
        """Return the whole file as one block."""
        self._scopes.extend(scopes)
        text, start = self._text, self._skip(_BETWEEN)
        if text[start : start + 1] == "{":
            self._at = start + 1
            block = self._block("}")
            if self._skip(_BETWEEN) < len(text):
                raise self._fault("nothing may follow the closing brace of the file")
            return block
        return self._block("")

    # Places

    def _fault(self, text: str) -> ConfError:
        return ConfError(self._name, self._line(), text)

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()
        return self._at

    def _take(self, literal: str) -> bool:
        if self._text.startswith(literal, self._at):
            self._at += len(literal)
            return True
        return False

    # Blocks

    def _block(self, end: str) -> Block:
        if len(self._scopes) > MAX_DEPTH:
            raise self._fault("too many blocks within blocks")
        opened, block = self._line(), Block()
        self._scopes.append(block)
        while self._skip(_BETWEEN) < len(self._text):
            if end and self._take(end):
                self._scopes.pop()
                return block
            self._pair(block)
        if end:
            raise ConfError(self._name, opened, f"the block that opens here is never closed with {end!r}")
        self._scopes.pop()
        return block

    def _pair(self, block: Block) -> None:
        key = self._key()
        self._skip(_BLANK)
        if key.lower() == "include" and self._text[self._at : self._at + 1] not in (":", "="):
            included = self._include()
            block.update(included)
            block.variables |= included.variables
            return
        if self._take(":") or self._take("="):
            self._skip(_BLANK)
        line = self._line()
        if self._at >= len(self._text) or self._text[self._at] in "\n}],;":
            raise self._fault(f"{key!r} has no value")
        block[key] = Item(self._value(key), self._name, line)

    def _key(self) -> str:
        quote = self._text[self._at]
        if quote in "\"'":
            return self._quoted(quote)
        found = _KEY.match(self._text, self._at)
        if not found:
            raise self._fault(f"expected a key, not {quote!r}")
        self._at = found.end()
        return found.group()

    def _include(self) -> Block:
        line, name = self._line(), self._value("include")
        if not isinstance(name, str):
            raise ConfError(self._name, line, "include needs the name of a file")
        if self._depth >= MAX_DEPTH:
            raise ConfError(self._name, line, "too many includes within includes")
        path = self._folder / name
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfError(self._name, line, f"cannot include {path}: {error}") from error
        parser = _Parser(text, str(path), path.parent, self._environment, self._depth + 1)
        return parser.document(tuple(self._scopes))

    # Values

    def _value(self, key: str) -> str | int | float | bool | list[Item] | Block:
        if self._take("{"):
            return self._block("}")
        if self._take("["):
            return self._array(key)
        if self._take("("):
            return self._parenthesised()
        quote = self._text[self._at]
        return self._quoted(quote) if quote in "\"'" else self._bare(key)

    def _array(self, key: str) -> list[Item]:
        opened, items = self._line(), list[Item]()
        if len(self._scopes) + self._depth > MAX_DEPTH:
            raise self._fault("too many blocks within blocks")
        self._depth += 1
        while self._skip(_BETWEEN) < len(self._text):
            if self._take("]"):
                self._depth -= 1
                return items
            line = self._line()
            items.append(Item(self._value(key), self._name, line))
        raise ConfError(self._name, opened, "the array that opens here is never closed with ']'")

    def _parenthesised(self) -> str:
        opened = self._line()
        end = re.compile(r"^[ \t]*\)[ \t\r]*$", re.MULTILINE).search(self._text, self._at)
        if end is None:
            raise ConfError(
                self._name, opened, "the text that opens here is never closed with ')' on a line of its own"
            )
        text, self._at = self._text[self._at : end.start()], end.end()
        return text.strip("\n")

    def _quoted(self, quote: str) -> str:
        opened = self._line()
        self._at += 1
        parts: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == quote:
                return "".join(parts)
            if char == "\\" and quote == '"':
                parts.append(self._escape())
            else:
                parts.append(char)
        raise ConfError(self._name, opened, "the string that opens here is never closed")

    def _escape(self) -> str:
        char = self._text[self._at : self._at + 1]
        self._at += 1
        if char == "x":
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            try:
                return chr(int(digits, 16))
            except ValueError:
                raise self._fault(f"\\x needs two hexadecimal digits, not {digits!r}") from None
        if char not in _ESCAPES:
            raise self._fault(f"unknown escape \\{char}")
        return _ESCAPES[char]

    def _bare(self, key: str) -> str | int | float | bool | list[Item] | Block:
        found = _BARE.match(self._text, self._at)
        if not found:
            raise self._fault(f"expected a value for {key!r}, not {self._text[self._at]!r}")
        text = found.group()
        value = self._variable(text[1:]) if text.startswith("$") and not text.startswith("$2") else scalar(text)
        self._at = found.end()
        return value

    def _variable(self, name: str) -> str | int | float | bool | list[Item] | Block:
        for scope in reversed(self._scopes):
            item = scope.get(name)
            if item is not None:
                scope.variables.add(name)
                return item.value
        if name in self._environment:
            text = self._environment[name]
            return load_text(f"v: {text}", {}, f"${name}")["v"].value if text else ""
        raise self._fault(f"variable reference for {name!r} can not be found")


def scalar(text: str) -> str | int | float | bool:
    """Return what a bare word means."""
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    number = _INTEGER.match(text)
    if number:
        return int(number[1]) * _UNITS[(number[2] or "").lower()]
    return float(text) if _FLOAT.match(text) else text
