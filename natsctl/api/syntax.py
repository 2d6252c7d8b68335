"""Errors of a text that is not JSON, in the words of Go's encoding/json; read after decoding has failed."""

from typing import Final

_BLANKS: Final = b" \t\r\n"
_LITERALS: Final = {0x74: b"true", 0x66: b"false", 0x6E: b"null"}
_ESCAPES: Final = b'"\\/bfnrt'
_HEX: Final = b"0123456789abcdefABCDEF"
_DIGITS: Final = b"0123456789"
MAX_DEPTH: Final = 10_000
"""Deepest nesting Go reads."""


class JSONSyntaxError(Exception):
    """The text of Go's error, with the server's `at offset N`."""


def split_values(raw: bytes) -> list[bytes]:
    """Return each of the JSON values that follow one another in `raw`. Raises JSONSyntaxError for the first fault."""
    scanner, values = _Scanner(raw), []
    while (start := scanner.skip_blanks()) < len(raw):
        scanner.value()
        values.append(raw[start : scanner.at])
    return values


class _Scanner:
    """Reads one value at a time without building it; `stack` holds the closing bracket of each open container."""

    __slots__ = ("at", "raw", "stack")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0
        self.stack: list[int] = []

    def skip_blanks(self) -> int:
        """Move past blanks and return the position."""
        while self.at < len(self.raw) and self.raw[self.at] in _BLANKS:
            self.at += 1
        return self.at

    def _next(self) -> int:
        """Return the byte after blanks; raises at the end of the text."""
        self.skip_blanks()
        return self._here()

    def _here(self) -> int:
        if self.at >= len(self.raw):
            raise JSONSyntaxError("unexpected EOF")
        return self.raw[self.at]

    def _fault(self, where: str) -> JSONSyntaxError:
        return JSONSyntaxError(f"invalid character {quote_char(self.raw[self.at])} {where} at offset {self.at + 1}")

    def value(self) -> None:
        """Read a whole value, containers included."""
        self._begin_value()
        while self.stack:
            self._after_element()

    def _begin_value(self) -> None:
        """Read a scalar, or open containers up to the first scalar in them or an empty one."""
        while (byte := self._next()) in b"{[":
            if not self._open(byte):
                return
        if byte == 0x22:
            self._string()
        elif byte in _LITERALS:
            self._literal(_LITERALS[byte])
        elif byte == 0x2D or byte in _DIGITS:
            self._number()
        else:
            raise self._fault("looking for beginning of value")

    def _open(self, byte: int) -> bool:
        """Open a container, with the first key; return False where it is empty, and closed again."""
        closing = 0x7D if byte == 0x7B else 0x5D
        if len(self.stack) >= MAX_DEPTH:
            raise JSONSyntaxError("exceeded max depth")
        self.at += 1
        self.stack.append(closing)
        if self._next() == closing:
            self.at += 1
            self.stack.pop()
            return False
        if closing == 0x7D:
            self._key()
        return True

    def _key(self) -> None:
        """Read a key and its colon."""
        if self._next() != 0x22:
            raise self._fault("looking for beginning of object key string")
        self._string()
        if self._next() != 0x3A:
            raise self._fault("after object key")
        self.at += 1

    def _after_element(self) -> None:
        """Read what follows an element: a comma and the next one, or the end of its container."""
        closing = self.stack[-1]
        byte = self._next()
        if byte == closing:
            self.at += 1
            self.stack.pop()
        elif byte != 0x2C:
            raise self._fault("after object key:value pair" if closing == 0x7D else "after array element")
        else:
            self.at += 1
            if closing == 0x7D:
                self._key()
            self._begin_value()

    def _string(self) -> None:
        self.at += 1
        while (byte := self._here()) != 0x22:
            if byte < 0x20:
                raise self._fault("in string literal")
            self.at += 1
            if byte == 0x5C:
                self._escape()
        self.at += 1

    def _escape(self) -> None:
        byte = self._here()
        if byte == 0x75:
            for _ in range(4):
                self.at += 1
                if self._here() not in _HEX:
                    raise self._fault("in \\u hexadecimal character escape")
        elif byte not in _ESCAPES:
            raise self._fault("in string escape code")
        self.at += 1

    def _literal(self, word: bytes) -> None:
        for expected in word:
            if self._here() != expected:
                raise self._fault(f"in literal {word.decode()} (expecting {quote_char(expected)})")
            self.at += 1

    def _number(self) -> None:
        if self.raw[self.at] == 0x2D:
            self.at += 1
            if self._here() not in _DIGITS:
                raise self._fault("in numeric literal")
        if self.raw[self.at] == 0x30:
            self.at += 1
        else:
            self._digits()
        if self._peek() == 0x2E:
            self.at += 1
            if self._here() not in _DIGITS:
                raise self._fault("after decimal point in numeric literal")
            self._digits()
        if self._peek() in (0x65, 0x45):
            self.at += 1
            if self._here() in b"+-":
                self.at += 1
            if self._here() not in _DIGITS:
                raise self._fault("in exponent of numeric literal")
            self._digits()

    def _digits(self) -> None:
        while self._peek() in _DIGITS:
            self.at += 1

    def _peek(self) -> int:
        """Return the byte here, or a blank at the end of the text."""
        return self.raw[self.at] if self.at < len(self.raw) else 0x20


def quote_char(byte: int) -> str:
    """Return a byte in single quotes as Go's error texts do."""
    if byte == 0x27:
        return "'\\''"
    if byte == 0x22:
        return "'\"'"
    return f"'{go_quote(chr(byte))[1:-1]}'"


_GO_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def go_quote(text: str) -> str:
    """Return `text` as Go's %q writes it."""
    out = []
    for char in text:
        if char in _GO_ESCAPES:
            out.append(_GO_ESCAPES[char])
        elif char.isprintable():
            out.append(char)
        elif ord(char) < 0x80:
            out.append(f"\\x{ord(char):02x}")
        else:
            out.append(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
    return '"' + "".join(out) + '"'
