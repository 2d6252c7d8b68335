"""Tokens of JSON text as Spark's parser sees them, also where the text is malformed.

Theory of operation. `from_json` reads its text with Jackson and continues after an error inside a field, so that the
fields behind a fault depend on where the reader stopped and on what it was about to read. This reader stops at the same
characters and keeps the same state: a name is read with the first characters of its value, a string is read only when
it is asked for, and a value whose beginning is malformed leaves the name without one. Source: jackson-core 2.19,
ReaderBasedJsonParser.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

NAME: Final = "name"
STRING: Final = "string"
INT: Final = "int"
FLOAT: Final = "float"
WORDS: Final = {"t": "true", "f": "false", "n": "null"}
CLOSED: Final = {"}": "{", "]": "["}

MAX_DEPTH: Final = 1000
"""Deepest nesting of objects and arrays. Source: Jackson's StreamReadConstraints."""
MAX_DIGITS: Final = 1000
"""Most digits of one number. Source: Jackson's StreamReadConstraints."""
MAX_WORD_CHARS: Final = 256
"""Characters of a malformed word that are skipped. Source: Jackson's ErrorReportConfiguration."""

NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?(?=[^0-9.eE])")
PLAIN: Final = re.compile(r'[^"\'\\\x00-\x1f]*')
QUOTED: Final = re.compile(r'([^"\\\x00-\x1f]*)"')
"""A string behind its first quote, without escapes and control characters."""
FIRST_FIELD: Final = re.compile(rf"[ \t\r\n]*\"{QUOTED.pattern}[ \t\r\n]*:[ \t\r\n]*([^\x00-\x20/])")
NEXT_FIELD: Final = re.compile(f"[ \t\r\n]*,{FIRST_FIELD.pattern}")
"""The usual spelling of a field behind another, up to the first character of its value."""
DIGITS: Final = "0123456789"
FIRST_DIGITS: Final = frozenset(DIGITS)
ESCAPES: Final = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\"}
HEX: Final = {**{char: int(char, 16) for char in "0123456789abcdef"}, **{char: int(char, 16) for char in "ABCDEF"}}
NAME_STARTS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
NAME_PARTS: Final = NAME_STARTS | {"Nd", "Mc", "Mn", "Cf"}
"""Categories of characters that names in Java begin with and are made of."""
BASE64: Final = {char: at for at, char in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}
PADDING: Final = "="


class MalformedJSONError(ValueError):
    """Text is no JSON, or a value does not fit its type."""


@dataclass(frozen=True)
class Grammar:
    """Departures from JSON's grammar that are accepted, by the names of Spark's options."""

    comments: bool = False
    unquoted_names: bool = False
    single_quotes: bool = True
    leading_zeros: bool = False
    non_numeric_numbers: bool = True
    any_escapes: bool = False
    control_chars: bool = False


class Scope:
    """An object, an array, or the top level (`kind` "")."""

    __slots__ = ("kind", "name", "started")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name: str | None = None
        self.started = False


class JsonTokens:
    """A reader of one text; `token` is the current token, "" before the first and after the last."""

    def __init__(self, text: str, grammar: Grammar) -> None:
        self.text = text
        self.end = len(text)
        self.at = 0
        self.grammar = grammar
        self.token = ""
        self._value = ""
        """The token behind a name, "" where its beginning is malformed."""
        self._unread = False
        """Whether the current string is still to be read."""
        self._held = ""
        self._scopes = [Scope("")]

    # Tokens

    def next(self) -> str:
        """Go to the next token and return it, "" at the end; raise MalformedJSONError."""
        if self.token == NAME:
            token, self._value = self._value, ""
            if token in ("{", "["):
                self._open(token)
            self.token = token
            return token
        if self._unread:
            self._unread = False
            self._read_string('"')
        scope = self._scopes[-1]
        if scope.kind == "{":
            found = (NEXT_FIELD if scope.started else FIRST_FIELD).match(self.text, self.at)
            if found:
                self.at = found.end()
                scope.started = True
                scope.name = found[1]
                self.token = NAME
                self._value = self._value_at(found[2])
                return NAME
        char = self._after_blanks()
        if not char:
            if len(self._scopes) > 1:
                raise MalformedJSONError("the text ends within an object or an array")
            self.token = ""
            return ""
        if char in CLOSED:
            return self._close(char)
        if scope.kind and scope.started:
            char = self._after_comma(char)
        scope.started = True
        if scope.kind != "{":
            token = self._value_at(char)
            if token in ("{", "["):
                self._open(token)
            self.token = token
            return token
        scope.name = self._name_at(char)
        self.token = NAME
        self._value = self._value_at(self._after_colon())
        return NAME

    def skip_children(self) -> None:
        """Go to the end of the object or array that begins here; raise MalformedJSONError."""
        depth = int(self.token in ("{", "["))
        while depth:
            token = self.next()
            if not token:
                raise MalformedJSONError("the text ends within an object or an array")
            depth += (token in ("{", "[")) - (token in CLOSED)

    @property
    def name(self) -> str | None:
        """The name of the field that the current token belongs to, None in an array."""
        at = -2 if self.token in ("{", "[") and len(self._scopes) > 1 else -1
        return self._scopes[at].name

    @property
    def string(self) -> str:
        """The text of a string or number; raise MalformedJSONError."""
        if self._unread:
            self._unread = False
            self._held = self._read_string('"')
        return self._held

    def _open(self, kind: str) -> None:
        self._scopes.append(Scope(kind))
        if len(self._scopes) > MAX_DEPTH + 1:
            raise MalformedJSONError(f"objects and arrays are nested deeper than {MAX_DEPTH}")

    def _close(self, char: str) -> str:
        if self._scopes[-1].kind != CLOSED[char]:
            raise MalformedJSONError(f"{char!r} closes nothing at character {self.at}")
        self._scopes.pop()
        self.token = char
        return char

    # Blanks

    def _take(self) -> str:
        if self.at >= self.end:
            raise MalformedJSONError("the text ends within a value")
        self.at += 1
        return self.text[self.at - 1]

    def _after_blanks(self) -> str:
        """Return the next character that is no blank, "" at the end."""
        while self.at < self.end:
            char = self.text[self.at]
            self.at += 1
            if char == "/":
                self._comment()
            elif char > " ":
                return char
            elif char not in " \t\r\n":
                raise self._unexpected(char)
        return ""

    def _comment(self) -> None:
        if not self.grammar.comments:
            raise self._unexpected("/")
        kind = self._take()
        if kind == "/":
            ends = [at for at in (self.text.find("\n", self.at), self.text.find("\r", self.at)) if at >= 0]
            self.at = min(ends) + 1 if ends else self.end
        elif kind == "*":
            close = self.text.find("*/", self.at)
            self.at = close + 2 if close >= 0 else self.end
            if close < 0:
                raise MalformedJSONError("the text ends within a comment")
        else:
            raise self._unexpected(kind)

    def _after_comma(self, char: str) -> str:
        if char != ",":
            raise self._unexpected(char)
        found = self._after_blanks()
        if not found:
            raise MalformedJSONError("the text ends behind a comma")
        return found

    def _after_colon(self) -> str:
        char = self._after_blanks()
        if char and char != ":":
            raise self._unexpected(char)
        char = self._after_blanks() if char else ""
        if not char:
            raise MalformedJSONError("the text ends behind a name")
        return char

    def _unexpected(self, char: str) -> MalformedJSONError:
        return MalformedJSONError(f"{char!r} is not expected at character {self.at}")

    # Names and strings

    def _name_at(self, char: str) -> str:
        if char == '"' or (char == "'" and self.grammar.single_quotes):
            return self._read_string(char)
        if not self.grammar.unquoted_names or not _is_field_char(char):
            raise self._unexpected(char)
        begin = self.at - 1
        while self.at < self.end and _is_field_char(self.text[self.at]):
            self.at += 1
        return self.text[begin : self.at]

    def _read_string(self, quote: str) -> str:
        plain = QUOTED.match(self.text, self.at) if quote == '"' else None
        if plain:
            self.at = plain.end()
            return plain[1]
        parts: list[str] = []
        while True:
            found = PLAIN.match(self.text, self.at)
            self.at = found.end() if found else self.at
            parts.append(found[0] if found else "")
            char = self._take()
            if char == quote:
                return "".join(parts)
            if char == "\\":
                char = self._escaped()
            elif char < " " and not self.grammar.control_chars:
                raise MalformedJSONError(f"the control character {char!r} stands in a string")
            parts.append(char)

    def _escaped(self) -> str:
        char = self._take()
        if char in ESCAPES:
            return ESCAPES[char]
        if char != "u":
            if self.grammar.any_escapes or (char == "'" and self.grammar.single_quotes):
                return char
            raise MalformedJSONError(f"{char!r} cannot be escaped")
        code = 0
        for _ in range(4):
            char = self._take()
            digit = HEX.get(chr(ord(char) & 0xFF))
            if digit is None:
                raise self._unexpected(char)
            code = code << 4 | digit
        return chr(code)

    def binary(self) -> bytes:
        """Return the bytes of a string in base64; raise MalformedJSONError."""
        if not self._unread:
            return _base64_bytes(iter(self._held))
        found = _base64_bytes(self._base64_chars(), self)
        self._unread = False
        return found

    def _base64_chars(self) -> Iterator[str]:
        while (char := self._take()) != '"':
            yield self._escaped() if char == "\\" else char

    # Values

    def _value_at(self, char: str) -> str:
        if char == '"':
            self._unread = True
            return STRING
        if char in "{[":
            return char
        if char in WORDS:
            self._match(WORDS[char])
            return WORDS[char]
        if char in DIGITS or (char == "-" and self.text[self.at : self.at + 1] in FIRST_DIGITS):
            return self._number()
        if char == "'" and self.grammar.single_quotes:
            self._held = self._read_string(char)
            return STRING
        if char in "NI":
            return self._not_a_number("NaN" if char == "N" else "Infinity", 1)
        if char in "+-":
            return self._signed_word(char)
        if unicodedata.category(char) in NAME_STARTS:
            self._invalid_word(char)
        raise self._unexpected(char)

    def _match(self, word: str, matched: int = 1) -> None:
        for expected in word[matched:]:
            if self.at >= self.end or self.text[self.at] != expected:
                self._invalid_word(word[:matched])
            self.at += 1
            matched += 1
        if self.at < self.end and self.text[self.at] >= "0" and _is_name_char(self.text[self.at]):
            self._invalid_word(word)

    def _invalid_word(self, begun: str) -> NoReturn:
        size = len(begun)
        begin = self.at
        while self.at < self.end and _is_name_char(self.text[self.at]) and size < MAX_WORD_CHARS:
            self.at += 1
            size += 1
        raise MalformedJSONError(f"{(begun + self.text[begin : self.at])[:40]!r} is no value")

    def _not_a_number(self, word: str, matched: int) -> str:
        self._match(word, matched)
        if not self.grammar.non_numeric_numbers:
            raise MalformedJSONError(f"{word} is no value")
        self._held = word
        return FLOAT

    def _signed_word(self, sign: str) -> str:
        if self._take() == "I":
            char = self._take()
            if char in "Nn":
                return self._not_a_number(f"{sign}{'INF' if char == 'N' else 'Infinity'}", 3)
        raise MalformedJSONError(f"no digit follows {sign!r}")

    def _number(self) -> str:
        begin = self.at - 1
        found = NUMBER.match(self.text, begin)
        if found is None or found.end() - begin >= MAX_DIGITS:
            return self._unusual_number(begin)
        self.at = found.end()
        self._held = found[0]
        return INT if found[1] is None and found[2] is None else FLOAT

    def _unusual_number(self, begin: int) -> str:
        """Read a number that is long, has leading zeros, is malformed, or ends with the text.

        After a malformed number the position is behind its first point or `e`, or behind the wrong character if it
        begins with 0 or ends with the text.
        """
        first = begin + (self.text[begin] == "-")
        at = self._after_digits(first)
        zero = self.text[first] == "0"
        whole = self.text[first:at]
        if zero and len(whole) > 1:
            if not self.grammar.leading_zeros:
                raise MalformedJSONError("a number begins with 0")
            whole = whole.lstrip("0") or "0"
        behind, parts, mark = at, [], 0
        for marks, signs in ((".", ""), ("eE", "+-")):
            if at >= self.end or self.text[at] not in marks:
                parts.append(0)
                continue
            at += 1
            mark = mark or at
            at += at < self.end and signs != "" and self.text[at] in signs
            close = self._after_digits(at)
            if close == at:
                self.at = min(at + 1, self.end) if zero or at >= self.end else mark
                raise MalformedJSONError("a number has no digit behind its point or its e")
            parts.append(close - at)
            at = close
        self.at = at
        absent = -parts.count(0) if zero or at >= self.end else 0
        if len(whole) + (sum(parts) + absent if any(parts) else 0) > MAX_DIGITS:
            raise MalformedJSONError(f"a number has more than {MAX_DIGITS} digits")
        self._held = self.text[begin:first] + whole + self.text[behind:at]
        return FLOAT if any(parts) else INT

    def _after_digits(self, at: int) -> int:
        """Return the position behind the digits at `at`."""
        while at < self.end and self.text[at] in DIGITS:
            at += 1
        return at


def _is_name_char(char: str) -> bool:
    """Return whether a character can be part of a name in Java."""
    return (
        unicodedata.category(char) in NAME_PARTS or char < "\x09" or "\x0e" <= char < "\x1c" or "\x7f" <= char < "\xa0"
    )


def _is_field_char(char: str) -> bool:
    """Return whether a character can be part of a name without quotes."""
    return char > " " and (char in "@#*-+" or _is_name_char(char))


def _base64_bytes(chars: Iterator[str], tokens: JsonTokens | None = None) -> bytes:
    """Return the bytes that characters encode; raise MalformedJSONError.

    Where padding is missing, `tokens` stays before the closing quote.
    """
    found = bytearray()
    while True:
        char = next(chars, "")
        while char and char <= " ":
            char = next(chars, "")
        if not char:
            return bytes(found)
        bits = _six_bits(char) << 6 | _six_bits(next(chars, ""))
        for more in (1, 2):
            char = next(chars, "")
            if not char and tokens is not None:
                tokens.at -= 1
            if char == PADDING:
                if more == 1 and next(chars, "") != PADDING:
                    raise MalformedJSONError("base64 lacks its padding")
                found += (bits >> (4 if more == 1 else 2)).to_bytes(more, "big")
                break
            bits = bits << 6 | _six_bits(char)
        else:
            found += bits.to_bytes(3, "big")


def _six_bits(char: str) -> int:
    if char not in BASE64:
        raise MalformedJSONError(f"{char!r} is no base64")
    return BASE64[char]
