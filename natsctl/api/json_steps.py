"""JSON texts of clients, read in steps.

No text, whatever it holds, takes long in one turn: `reading_json` yields after each `ITEMS` values. A C decoder reads a
text in one go, and a megabyte of floats, empty lists or broken UTF-8 takes it up to half a second.
"""

import re
from collections.abc import Callable
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # left out of typeshed
from typing import Any, Final

from natsctl.api.subject_index import Steps

SMALL_TEXT: Final = 4096
"""Bytes of JSON that are read in one go: some milliseconds, whatever they hold."""
ITEMS: Final = 256
"""Values that one step reads."""
ITEMS_COST: Final = 128
MAX_DEPTH: Final = 10_000
"""Containers within each other. Source: Go, encoding/json."""
TEXT_STEP: Final = 1 << 16
"""Characters of a text with escaped surrogates that one step repairs."""
MAX_INT_DIGITS: Final = 40
"""An integer with more is beyond every range."""

_token_at: Final = re.compile(
    r'[ \t\r\n]*+(?:(?P<number>(-?(?:0|[1-9][0-9]*+))((?:\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+))|'
    r'(?P<word>true|false|null)|(?P<mark>["\[\]{},:]))'
).match  # fmt: skip
_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_WORDS: Final = {"true": True, "false": False, "null": None}


class JsonPairs(list[tuple[str, Any]]):
    """The keys and values of an object, as in the text."""


def reading_json(text: str, number: Callable[[str], Any] = float, pairs: bool = False) -> Steps[list[Any]]:
    """Return each of the JSON values that follow one another. Raises JSONDecodeError for the first fault.

    `number` reads the numbers with a fraction, an exponent or too many digits. With `pairs`, an object is `JsonPairs`.
    Lone surrogates are read as U+FFFD, as Go does.
    """
    values: list[Any] = []
    waiting: list[tuple[Any, str | None]] = []
    holder: Any = values
    key: str | None = None
    """Key of the next value of an object, "" before it; None in a list."""
    keyed, first, value = False, True, None
    position = items = 0
    while True:
        items += 1
        if items >= ITEMS:
            yield ITEMS_COST
            items = 0
        match = _token_at(text, position)
        if match is None:
            end = _end_of_blanks(text, position)
            if waiting or end < len(text):
                raise JSONDecodeError("unexpected character" if end < len(text) else "unexpected end", text, end)
            return values
        kind, token, position = match.lastgroup, match.group(match.lastgroup or 0), match.end()
        if key is not None and not keyed:
            if token == '"':
                key, position = scanstring(text, position)
                if not key.isascii():
                    key = yield from _repairing(key)
                match = _token_at(text, position)
                if match is None or match["mark"] != ":":
                    raise JSONDecodeError("expecting a colon", text, position)
                position, keyed = match.end(), True
                continue
            if token != "}" or not first:
                raise JSONDecodeError("expecting a key", text, match.start())
            value = holder
            holder, key = waiting.pop()
        elif token == '"':
            value, position = scanstring(text, position)
            if not value.isascii():
                value = yield from _repairing(value)
        elif kind == "number":
            whole = not match[3] and len(token) <= MAX_INT_DIGITS
            value = int(token) if whole else number(token)
        elif kind == "word":
            value = _WORDS[token]
        elif token in ("[", "{"):
            if len(waiting) >= MAX_DEPTH:
                raise JSONDecodeError("exceeded max depth", text, position)
            waiting.append((holder, key))
            holder, key = ([], None) if token == "[" else (JsonPairs() if pairs else {}, "")
            keyed, first = False, True
            continue
        elif token == "]" and first and waiting:
            value = holder
            holder, key = waiting.pop()
        else:
            raise JSONDecodeError("expecting a value", text, match.start())
        while True:  # the value is whole: add it, and end the containers that end after it
            if key is None:
                holder.append(value)
            elif pairs:
                holder.append((key, value))
            else:
                holder[key] = value
            first, keyed = False, False
            if not waiting:
                break
            match = _token_at(text, position)
            token = match["mark"] if match is not None else None
            if match is None or token not in (",", "]" if key is None else "}"):
                raise JSONDecodeError("expecting a comma or an end", text, position)
            position = match.end()
            if token == ",":
                break
            value = holder
            holder, key = waiting.pop()
            items += 1


def _end_of_blanks(text: str, position: int) -> int:
    blanks = _BLANKS.match(text, position)
    return blanks.end() if blanks else position


def _repairing(text: str) -> Steps[str]:
    """Return a text with lone surrogates replaced."""
    if _SURROGATE.search(text) is None:
        return text
    parts = []
    for start in range(0, len(text), TEXT_STEP):
        parts.append(_SURROGATE.sub("\ufffd", text[start : start + TEXT_STEP]))
        yield ITEMS_COST
    return "".join(parts)
