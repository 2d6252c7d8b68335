"""Values of Go templates: constants, truth, comparison and print as Go has them, and the functions that it predefines.

A str holds surrogate escapes for bytes that are no UTF-8; lengths, indices and slices count bytes.
"""

from __future__ import annotations

import ast
import re
import urllib.parse
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from natsctl.api.errors import UsageError


class TemplateError(ValueError):
    """Go refuses the template too, while it is parsed or executed."""


class Foreign(str):
    """Text from another party, such as a request; results of functions on it are foreign too."""

    __slots__ = ()


REFUSED: Final = frozenset(("call", "js"))
"""Functions of Go that are not supported."""
_VERB: Final = re.compile(r"%([-+# 0]*)(\d*)(?:\.(\d*))?(.)?", re.DOTALL)
_ESCAPES: Final = re.compile(r"""\\(?:[abfnrtv\\'"]|x[0-9A-Fa-f]{2}|[0-7]{3}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})""")
_HTML: Final = {"\0": "�", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LARGEST_WIDTH: Final = 1_000_000


def unquoted(text: str) -> Any:
    """Return the text of a string literal of Go, or the number of a character. Raises TemplateError."""
    body = text[1:-1]
    if "\\" in _ESCAPES.sub("", body) or (text[0] == "'" and body == "'"):
        raise TemplateError(f"bad literal {text}")
    value = str(ast.literal_eval(f'"{_ESCAPES.sub(_as_python, body)}"')) if "\\" in body else body
    if text[0] == '"':
        return value
    if len(value) != 1:
        raise TemplateError(f"malformed character constant: {text}")
    return ord(value)


def _as_python(found: re.Match[str]) -> str:
    """Return the escape of a byte as its surrogate, others unchanged."""
    escape = found[0]
    base = {"x": (2, 16)}.get(escape[1], (1, 8) if escape[1].isdigit() else None)
    if base is None:
        return escape
    number = int(escape[base[0] :], base[1])
    return f"\\u{number if number < 0x80 else 0xDC00 + number:04x}"


def read_number(text: str) -> int | float:
    """Return the number of a constant of Go. Raises TemplateError."""
    try:
        if re.fullmatch(r"[+-]?0_?[0-7_]+", text):
            value = int(text, 8)
        elif re.fullmatch(r"[+-]?(?:0[xXbBoO].*|[\d_]+)", text):
            value = int(text, 0)
        else:
            return float(text)
    except ValueError as fault:
        raise TemplateError(f"bad number syntax: {text!r}") from fault
    if not -1 << 63 <= value < 1 << 63:
        raise TemplateError(f"integer overflow: {text!r}")
    return value


def is_true(value: Any) -> bool:
    """Return whether a value is not the zero of its type."""
    return bool(value)


def printed(value: Any) -> str:
    """Return the text that an action writes for a value. Raises UsageError for the data as a whole."""
    if isinstance(value, Mapping):
        raise UsageError("a template prints single values here, not the data as a whole")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if value is None:
        return "<nil>"
    return value if isinstance(value, str) else str(value)


def _float(value: float) -> str:
    """Return a number as Go's %v has it: as short as can be, with an exponent from 1e6 on and below 1e-4."""
    sign, digits, shift = Decimal(repr(value)).normalize().as_tuple()
    power = len(digits) + int(shift) - 1
    if value and not -4 <= power < 6:
        rest = "".join(map(str, digits[1:]))
        return f"{'-' * sign}{digits[0]}{'.' * bool(rest)}{rest}e{power:+03d}"
    return f"{value:.{max(0, -int(shift))}f}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _print(*values: Any) -> str:
    """Return values one behind the other, with a space between two of which neither is a string."""
    out = ""
    for at, value in enumerate(values):
        if at and not isinstance(value, str) and not isinstance(values[at - 1], str):
            out += " "
        out += printed(value)
    return out


def _println(*values: Any) -> str:
    return " ".join(printed(value) for value in values) + "\n"


def _printf(form: str, *values: Any) -> str:
    """Return a format of Go filled in. Raises TemplateError, and UsageError for verbs that are not supported."""
    if not isinstance(form, str):
        raise TemplateError("wrong type of value for printf: expected string")
    left = list(values)

    def one(found: re.Match[str]) -> str:
        flags, width, precision, verb = found.groups()
        if verb == "%":
            return "%"
        if not left or verb is None:
            raise UsageError(f"printf: {found[0]} has no value")
        if int(width or 0) > _LARGEST_WIDTH or int(precision or 0) > _LARGEST_WIDTH:
            raise UsageError(f"printf: {found[0]} is too wide")
        return _formatted(left.pop(0), flags, width, precision, verb)

    text = _VERB.sub(one, form)
    if left:
        raise UsageError("printf: more values than verbs")
    return text


def _formatted(value: Any, flags: str, width: str, precision: str | None, verb: str) -> str:
    exact = f".{precision or 0}" if precision is not None else ""
    number = isinstance(value, int) and not isinstance(value, bool)
    if verb == "v" and not isinstance(value, bool):
        verb = "d" if number else "s" if isinstance(value, str) else "v"
    if (verb in "doxX" and number) or (verb in "eEf" and isinstance(value, float)):
        return str(f"%{flags}{width}{exact}{verb}" % value)
    if verb in "sxXq" and isinstance(value, str):
        shown = {"s": value, "q": _quoted(value)}.get(verb) or _bytes(value).hex()
        shown = shown.upper() if verb == "X" else shown[: int(precision or 0)] if exact else shown
    elif (verb == "c" and number) or (verb == "b" and number):
        shown = chr(value) if verb == "c" else f"{value:b}"
    elif verb in "tv" and isinstance(value, bool | float) and not (verb == "t" and isinstance(value, float)):
        shown = printed(value)
    else:
        raise UsageError(f"printf: %{verb} of {printed(value)} is not supported in templates here")
    filled = shown.ljust(int(width or 0)) if "-" in flags else shown.rjust(int(width or 0))
    return filled.replace(" ", "0", len(filled) - len(shown)) if "0" in flags and "-" not in flags else filled


def _quoted(text: str) -> str:
    """Return a string literal of Go."""
    marks = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b"}
    marks |= {"\f": "\\f", "\v": "\\v"}
    return f'"{"".join(marks.get(one) or (one if one.isprintable() else _escaped(one)) for one in text)}"'


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF or code < 0x80:
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _length(value: Any) -> int:
    if not isinstance(value, str):
        raise TemplateError(f"len of type {type(value).__name__}")
    return len(_bytes(value))


def _index(value: Any, *at: Any) -> Any:
    for one in at:
        if not isinstance(value, str) or not isinstance(one, int) or not 0 <= one < len(_bytes(value)):
            raise TemplateError(f"error calling index: index out of range: {one}")
        value = _bytes(value)[one]
    return value


def _slice(value: Any, *bounds: Any) -> str:
    if not isinstance(value, str) or len(bounds) > 2:
        raise TemplateError("error calling slice: can't slice item")
    raw = _bytes(value)
    start = bounds[0] if bounds else 0
    end = bounds[1] if len(bounds) > 1 else len(raw)
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start <= end <= len(raw):
        raise TemplateError("error calling slice: index out of range")
    return _text(raw[start:end])


def _comparable(one: Any, other: Any) -> None:
    kinds = [
        "bool" if isinstance(value, bool) else "text" if isinstance(value, str) else type(value).__name__
        for value in (one, other)
    ]
    if kinds[0] != kinds[1]:
        raise TemplateError("incompatible types for comparison")


def _equal(one: Any, *others: Any) -> bool:
    if not others:
        raise TemplateError("missing argument for comparison")
    for other in others:
        _comparable(one, other)
        if one == other:
            return True
    return False


def _different(one: Any, other: Any) -> bool:
    return not _equal(one, other)


def _ordered(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compared(one: Any, other: Any) -> bool:
        _comparable(one, other)
        if isinstance(one, bool):
            raise TemplateError("invalid type for comparison")
        return holds(_bytes(one), _bytes(other)) if isinstance(one, str) else holds(one, other)

    return compared


def _given(value: Any) -> Any:
    return "<no value>" if value is None else value


def _html(*values: Any) -> str:
    return "".join(_HTML.get(one, one) for one in _print(*map(_given, values)))


def _urlquery(*values: Any) -> str:
    return urllib.parse.quote_plus(_bytes(_print(*map(_given, values))), safe="")


BUILTINS: Final[Mapping[str, Callable[..., Any]]] = {
    "and": lambda *values: values[-1],
    "or": lambda *values: values[-1],
    "not": lambda value: not is_true(value),
    "eq": _equal,
    "ne": _different,
    "lt": _ordered(lambda one, other: one < other),
    "le": _ordered(lambda one, other: one <= other),
    "gt": _ordered(lambda one, other: one > other),
    "ge": _ordered(lambda one, other: one >= other),
    "len": _length,
    "index": _index,
    "slice": _slice,
    "print": _print,
    "printf": _printf,
    "println": _println,
    "html": _html,
    "urlquery": _urlquery,
}
"""The functions that every template knows; `and` and `or` evaluate no more arguments than they need."""
