"""Values of JSON text by a schema, one text at a time, as Spark's `from_json` gives them.

A value that does not fit its type leaves null, or what of it does fit, and the whole record counts as malformed; what
follows a fault is read as Spark's parser reads it. Values are made for Arrow's buffers: times and dates are whole
numbers, decimals are whole numbers of their last digit, structs are tuples, and maps are lists of pairs. Source: Spark
4.3, JacksonParser and FailureSafeParser.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from natsctl.spark.source.json_times import DateFormat, LocalFormat, TimestampFormat
from natsctl.spark.source.json_tokens import FLOAT, INT, NAME, STRING, Grammar, JsonTokens, MalformedJSONError

Value = Any
"""A value as this module makes it."""
Read = Callable[[JsonTokens], Value]

CORRUPT_RECORD: Final = "_corrupt_record"
FALSE_TRUE: Final = {"true": True, "false": False}
WHOLE_BITS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
NOT_FINITE: Final = frozenset({"NaN", "+INF", "+Infinity", "Infinity", "-INF", "-Infinity"})
SHORT: Final = 18
"""Digits of a whole number that fits into 64 bits in any case."""
MAX_EXPONENT: Final = (1 << 31) - 1
"""Largest exponent of a decimal in Java."""

BIG_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
SURROGATES: Final = re.compile("[\ud800-\udfff]")
PAIRS: Final = re.compile("([\ud800-\udbff])([\udc00-\udfff])")
QUOTED: Final = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
ESCAPED: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
EXACT: Final = Context(prec=1100, rounding=ROUND_HALF_UP, Emax=10**17, Emin=-(10**17))


class PartialValueError(MalformedJSONError):
    """A part of a value does not fit; `value` has null in its place."""

    def __init__(self, value: Value, why: str) -> None:
        super().__init__(why)
        self.value = value


@dataclass(frozen=True)
class JsonSettings:
    """The options of `from_json`, without the mode."""

    grammar: Grammar = field(default_factory=Grammar)
    corrupt_record: str = CORRUPT_RECORD
    timestamps: TimestampFormat = field(default_factory=TimestampFormat)
    local_timestamps: LocalFormat = field(default_factory=LocalFormat)
    dates: DateFormat = field(default_factory=DateFormat)


class RecordReader:
    """A reader of records of one schema, without the field of malformed records."""

    def __init__(self, kind: pa.StructType, settings: JsonSettings) -> None:
        self._settings = settings
        self._size = kind.num_fields
        self._fields = self._of_struct(kind)

    def record(self, text: str) -> tuple[tuple[Value, ...] | None, str]:
        """Return the fields, None for a text of blanks, and why the record is malformed, "" if it is not."""
        tokens = JsonTokens(text, self._settings.grammar)
        try:
            if not tokens.next():
                return None, ""
            if tokens.token != "{":
                return (None,) * self._size, "it is no JSON object"
            return _object(tokens, self._fields, self._size), ""
        except PartialValueError as partial:
            return partial.value, str(partial)
        except MalformedJSONError as failure:
            return (None,) * self._size, str(failure)

    def _of_struct(self, kind: pa.StructType) -> dict[str | None, tuple[int, Read]]:
        return {kind.field(at).name: (at, self._of(kind.field(at).type)) for at in range(kind.num_fields)}

    def _of(self, kind: pa.DataType) -> Read:
        """Return what reads a value of a type from its first token or from its name; it raises MalformedJSONError."""
        read = self._nested(kind) or self._scalar(kind)

        def value(tokens: JsonTokens) -> Value:
            token = tokens.next() if tokens.token == NAME else tokens.token
            return None if token in ("", "null") else read(tokens)

        return value

    def _nested(self, kind: pa.DataType) -> Read | None:
        if pa.types.is_struct(kind):
            fields, size = self._of_struct(kind), kind.num_fields
            return lambda tokens: _object(tokens, fields, size) if tokens.token == "{" else _misfit(tokens, kind)
        if pa.types.is_list(kind):
            item = self._of(kind.value_type)
            return lambda tokens: _array(tokens, item) if tokens.token == "[" else _misfit(tokens, kind)
        if pa.types.is_map(kind):
            item = self._of(kind.item_type)
            return lambda tokens: _map(tokens, item) if tokens.token == "{" else _misfit(tokens, kind)
        return None

    def _scalar(self, kind: pa.DataType) -> Read:
        if pa.types.is_string(kind):
            return lambda tokens: plain_text(tokens.string) if tokens.token == STRING else _spelled(tokens)
        if pa.types.is_binary(kind):
            return lambda tokens: tokens.binary() if tokens.token == STRING else _misfit(tokens, kind)
        if pa.types.is_boolean(kind):
            return lambda tokens: FALSE_TRUE[tokens.token] if tokens.token in FALSE_TRUE else _misfit(tokens, kind)
        by_token: dict[str, Callable[[str], Value]]
        if kind in WHOLE_BITS:
            bits = WHOLE_BITS[kind]
            by_token = {INT: lambda text: whole(int(text), bits)}
        elif pa.types.is_floating(kind):
            number = single if pa.types.is_float32(kind) else double
            by_token = {INT: number, FLOAT: number}
            if self._settings.grammar.non_numeric_numbers:
                by_token[STRING] = not_finite
        elif pa.types.is_decimal(kind):
            decimal = decimal_of(kind)
            by_token = {INT: decimal, FLOAT: decimal, STRING: decimal}
        elif pa.types.is_date32(kind):
            by_token = {STRING: self._settings.dates.days}
        elif kind.tz is None:
            by_token = {STRING: self._settings.local_timestamps.micros}
        else:
            by_token = {STRING: self._settings.timestamps.micros, INT: lambda text: epoch_micros(int(text))}

        def read(tokens: JsonTokens) -> Value:
            convert = by_token.get(tokens.token)
            if convert is None or not tokens.string:
                return _misfit(tokens, kind)
            try:
                return convert(tokens.string)
            except MalformedJSONError:
                raise
            except (ValueError, OverflowError, InvalidOperation):
                return _misfit(tokens, kind)

        return read


def _misfit(tokens: JsonTokens, kind: pa.DataType) -> Value:
    """Raise MalformedJSONError for the current token."""
    shown = tokens.string if tokens.token in (STRING, INT, FLOAT) else tokens.token
    raise MalformedJSONError(f"field {tokens.name}: {shown[:60]!r} is no {kind}")


def _object(tokens: JsonTokens, fields: dict[str | None, tuple[int, Read]], size: int) -> tuple[Value, ...]:
    row: list[Value] = [None] * size
    why = ""
    while tokens.next() not in ("}", ""):
        found = fields.get(tokens.name)
        if found is None:
            tokens.skip_children()
            continue
        try:
            row[found[0]] = found[1](tokens)
        except PartialValueError as partial:
            why = why or str(partial)
            row[found[0]] = partial.value
        except MalformedJSONError as failure:
            why = why or str(failure)
            tokens.skip_children()
    if why:
        raise PartialValueError(tuple(row), why)
    return tuple(row)


def _array(tokens: JsonTokens, item: Read) -> list[Value]:
    found: list[Value] = []
    why = ""
    while tokens.next() not in ("]", ""):
        try:
            found.append(item(tokens))
        except PartialValueError as partial:
            why = why or str(partial)
            found.append(partial.value)
    if why:
        raise PartialValueError(found, why)
    return found


def _map(tokens: JsonTokens, item: Read) -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    part_fault = whole_fault = ""
    while tokens.next() not in ("}", ""):
        key = plain_text(tokens.name or "")
        try:
            found.append((key, item(tokens)))
        except PartialValueError as partial:
            part_fault = part_fault or str(partial)
            found.append((key, partial.value))
        except MalformedJSONError as failure:
            whole_fault = whole_fault or str(failure)
            tokens.skip_children()
    if whole_fault:
        raise MalformedJSONError(whole_fault)
    if part_fault:
        raise PartialValueError(found, part_fault)
    return found


# Numbers


def whole(number: int, bits: int) -> int:
    """Return a number of so many bits; one of 8 bits may also be unsigned. Raise MalformedJSONError."""
    least, most = -(1 << bits - 1), (1 << (8 if bits == 8 else bits - 1)) - 1
    if not least <= number <= most:
        raise MalformedJSONError(f"{number} does not fit into {bits} bits")
    return (number - least) % (1 << bits) + least


def double(text: str) -> float:
    """Return a number of 64 bits; a zero without a fraction has no sign."""
    return float(int(text)) if len(text) <= SHORT and text.lstrip("-").isdigit() else float(text)


def single(text: str) -> float:
    """Return the nearest number of 32 bits; whole numbers of more than 64 bits are rounded twice, as in Java."""
    found = double(text)
    if not math.isfinite(found):
        return found
    low, high = _rounded(math.nextafter(found, -math.inf)), _rounded(math.nextafter(found, math.inf))
    if low == high or (text.lstrip("-").isdigit() and not -(1 << 63) <= int(text) < 1 << 63):
        return _rounded(found)
    exact = Decimal(text).compare(Decimal(found))
    return _rounded(found) if exact == 0 else low if exact < 0 else high


def _rounded(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def not_finite(text: str) -> float:
    """Return the number of a text such as `NaN`, which is none of digits; raise MalformedJSONError."""
    if text not in NOT_FINITE:
        raise MalformedJSONError(f"{text[:60]!r} is no number")
    return float(text)


def epoch_micros(seconds: int) -> int:
    """Return microseconds of seconds since 1970; those that are too many wrap around, as in Spark.

    Raise MalformedJSONError.
    """
    micros = whole(seconds, 64) * 1_000_000
    return (micros + (1 << 63)) % (1 << 64) - (1 << 63)


def decimal_of(kind: pa.Decimal128Type) -> Callable[[str], int]:
    """Return what makes a decimal's number of last digits, rounded half up, of a text; it raises MalformedJSONError.

    Commas anywhere in a text are passed over.
    """
    precision, scale = kind.precision, kind.scale

    def decimal(text: str) -> int:
        text = text.replace(",", "")
        if not BIG_DECIMAL.fullmatch(text):
            raise MalformedJSONError(f"{text[:60]!r} is no decimal")
        exact = Decimal(text)
        exponent = exact.as_tuple().exponent
        if not isinstance(exponent, int) or abs(exponent) > MAX_EXPONENT:
            raise MalformedJSONError(f"{text[:60]!r} is no decimal")
        if exact and exact.adjusted() >= precision - scale:
            raise MalformedJSONError(f"{text[:60]} does not fit into {kind}")
        digits = int(exact.scaleb(scale, EXACT).quantize(Decimal(1), context=EXACT))
        if abs(digits) >= 10**precision:
            raise MalformedJSONError(f"{text[:60]} does not fit into {kind}")
        return digits

    return decimal


# Texts


def plain_text(text: str) -> str:
    """Return the text with surrogates joined, and with ? for single ones."""
    if text.isascii() or not SURROGATES.search(text):
        return text
    return SURROGATES.sub("?", PAIRS.sub(_joined, text))


def _joined(pair: re.Match[str]) -> str:
    return chr(0x10000 + (ord(pair[1]) - 0xD800 << 10) + ord(pair[2]) - 0xDC00)


def quoted(text: str) -> str:
    """Return a text as JSON, as Jackson writes it."""
    return f'"{QUOTED.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if char in ESCAPED:
        return ESCAPED[char]
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04X}"
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


def spelled_double(text: str) -> str:
    """Return a number with a fraction as Java spells it, in quotes where it is not finite."""
    number = float(text)
    if not math.isfinite(number):
        return '"NaN"' if math.isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"'
    if number == 0:
        return "-0.0" if math.copysign(1, number) < 0 else "0.0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    if len(digits) == 1:  # Java takes the nearest of two digits
        sign, digits, exponent = Decimal(f"{number:.1e}").normalize().as_tuple()
    spelled = "".join(map(str, digits))
    point = len(spelled) + int(exponent)
    if -2 <= point <= 7:
        spelled = spelled.ljust(point, "0") if point > 0 else "0" * (1 - point) + spelled
        point = max(point, 1)
        body = f"{spelled[:point]}.{spelled[point:] or '0'}"
    else:
        body = f"{spelled[0]}.{spelled[1:] or '0'}E{point - 1}"
    return f"-{body}" if sign else body


def _spelled(tokens: JsonTokens) -> str:
    """Return the current value, of any kind but a string, as JSON without blanks."""
    if tokens.token in ("}", "]"):
        raise MalformedJSONError(f"{tokens.token} is no value")
    parts: list[str] = []
    depth = 0
    while True:
        token = tokens.token
        if parts and token not in ("}", "]") and parts[-1] not in ("{", "[", ":"):
            parts.append(",")
        parts.append(_spelled_token(tokens))
        if token == NAME:
            parts.append(":")
        depth += (token in ("{", "[")) - (token in ("}", "]"))
        if not depth or not tokens.next():
            return plain_text("".join(parts))


def _spelled_token(tokens: JsonTokens) -> str:
    token = tokens.token
    if token == NAME:
        return quoted(tokens.name or "")
    if token == STRING:
        return quoted(tokens.string)
    if token == INT:
        return str(int(tokens.string))
    return spelled_double(tokens.string) if token == FLOAT else token
