"""The words of nats.conf: what a value without braces or brackets means, and where it ends.

A word that begins with a digit is a number, a number with a unit, an address, a date, or a text; which one is decided
by the first character that does not fit, as in nats-server (its package conf): `64MB` is a number, `10ms` a text,
`1.5s` and `12-ab` are faults. Every function takes the whole text and the place of the word, and returns the value
and the place after it; a `ConfValueError` says what is wrong, and its caller knows the line.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

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
    """A word that can not be read; `at` is where."""

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at = at


class Word(NamedTuple):
    """A value, the place after it, and whether it names a variable whose value is meant."""

    value: Scalar
    end: int
    variable: bool = False


def bare(text: str, at: int) -> Word:
    """Return the word at `at`, which is not in quotes; raises ConfValueError."""
    found = _DIGITS.match(text, at)
    if found:
        return _number(text, at, found.end())
    if text[at : at + 1] in ("-", ".") and text[at:]:
        raise ConfValueError(
            at, f"expected a digit, not {text[at]!r}" if text[at] == "-" else "a number begins with a digit"
        )
    return _plain(text, at, at)


def _plain(text: str, start: int, at: int) -> Word:
    """Return the text that begins at `start` and goes on at `at`."""
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
    """Return what the escape after a backslash stands for; raises ConfValueError."""
    char = text[at : at + 1]
    if char == "x":
        digits = text[at + 1 : at + 3]
        if not re.fullmatch("[0-9a-fA-F]{2}", digits):
            raise ConfValueError(at, f"\\x needs two hexadecimal digits, not {digits!r}")
        return chr(int(digits, 16)), at + 3
    if char not in _ESCAPES:
        raise ConfValueError(at, f'unknown escape \\{char}: there are \\xXX, \\t, \\n, \\r, \\" and \\\\')
    return _ESCAPES[char], at + 1
