"""Plain JSON records, read many at a time by Arrow's JSON reader.

Theory of operation. Arrow's reader is quick, and differs from Spark's `from_json` in times, in decimals, in numbers
that stand for texts, in what it makes of a fault. So a regular expression, made of the schema, is matched against each
record, and only those that it takes whole are given to Arrow: objects whose values are spelled such that both make the
same of them. Whether a record is taken depends on its bytes alone. A second expression also takes values that Arrow
reads once they are quoted: seconds since 1970, times without a zone, numbers and booleans where texts are wanted.

What no regular expression sees is a name that stands twice. Arrow refuses such records, and with them all that it was
given: then those that seem to have one are not taken, halves of the others are tried, and a few that are left are not
taken either.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import not_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from natsctl.spark.source.arrays import MAX_BYTES, binary_array, int_scalar, one_row
from natsctl.spark.source.json_rows import WHOLE_BITS, JsonSettings
from natsctl.spark.source.json_times import Fixed, zone_of

MIN_RECORDS: Final = 512
"""Records for which it pays to compile an expression: that takes 1 to 2 ms for a handful of fields."""
FEW: Final = 8
"""Records that Arrow refuses together are not tried apart any more."""
SEPARATOR: Final = b"\0"
"""Stands in no record that is taken."""
LINES: Final = bytes.maketrans(b"\n\r" + SEPARATOR, b"  \n")

# Bytes, as regular expressions in Latin-1 see them
B: Final = r"[ \t\r\n]*"
ASCII: Final = r"[\x20\x21\x23-\x5b\x5d-\x7f]"
BEYOND_ASCII: Final = (
    r"[\xc2-\xdf][\x80-\xbf]|(?:\xe0[\xa0-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]|\xed[\x80-\x9f]|"
    r"(?:\xf0[\x90-\xbf]|[\xf1-\xf3][\x80-\xbf]|\xf4[\x80-\x8f])[\x80-\xbf])[\x80-\xbf]"
)
"""Characters of several bytes in well-formed UTF-8."""
X: Final = "[0-9a-fA-F]"
ESCAPE: Final = (
    rf'\\(?:["\\/bfnrt]|u(?:[0-9a-cA-CefEF]{X}{{3}}|[dD](?:[0-7]{X}{{2}}|[89abAB]{X}{{2}}\\u[dD][c-fC-F]{X}{{2}})))'
)
"""Surrogates in pairs only."""
TEXT: Final = f'"(?:{ASCII}|{BEYOND_ASCII}|{ESCAPE})*"'
NUMBER: Final = r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?"
SCALAR: Final = f"(?:{TEXT}|{NUMBER}|true|false|null)"

DAY: Final = "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
"""A day that exists in any year."""
CLOCK: Final = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
MOMENT: Final = f"(?:197[1-9]|19[89][0-9]|2[01][0-9]{{2}})-{DAY}{CLOCK}"
"""A moment in a year whose nanoseconds fit into 64 bits, and are not negative in any zone."""
ZONE: Final = "(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])"
SECONDS: Final = "(?:0|[1-9][0-9]{0,11}|[1-8][0-9]{12})"
"""A number of seconds whose microseconds fit into 64 bits."""
SPELLED: Final = (
    r"(?:0|-?[1-9][0-9]{0,37}|-?[1-9][0-9]{0,6}\.(?:0|[0-9]{0,7}[1-9])|-?0\.(?:0|0{0,2}[1-9](?:[0-9]{0,5}[1-9])?)|"
    "true|false)"
)
"""The numbers that Java spells as they stand there."""

WHOLE: Final = {
    8: "(?:0|-?(?:[1-9][0-9]?|1[01][0-9]|12[0-7]))",
    16: "(?:0|-?(?:[1-9][0-9]{0,3}|[12][0-9]{4}))",
    32: "(?:0|-?(?:[1-9][0-9]{0,8}|1[0-9]{9}|20[0-9]{8}))",
    64: "(?:0|-?[1-9][0-9]{0,17})",
}
"""Numbers of so many bits, though not all of them; zero has no sign."""
FLOAT: Final = r"(?:0|-?[1-9][0-9]{0,17}|-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18}(?:[eE][+-]?%s)?|[eE][+-]?%s))"
"""With the digits of an exponent to be filled in."""
UNCLEAN: Final = re.compile(r'["\\\x00-\x1f]')
"""Stands in names that are never spelled as they are."""
OBJECT: Final = (r"\{", r"\}")
ARRAY: Final = (r"\[", r"\]")
ANY_OF_BOTH: Final = (r"[\[{]", r"[\]}]")
UNKNOWN_DEPTH: Final = 4
"""Deepest nesting of objects and arrays in fields that the schema does not have."""


class PlainRecords:
    """A reader of the plain records of one schema."""

    def __init__(self, kind: pa.StructType, settings: JsonSettings) -> None:
        self._kind = kind
        self._read_as = pa.schema([pa.field(each.name, _arrow_type(each.type)) for each in _read_fields(kind)])
        self._quoted = [f'"{name}"'.encode() for name in self._read_as.names]
        spelling = _Spelling(settings)
        texts, moments = _quotable(kind, settings)
        tried = [(spelling.record(kind, frozenset()), _Quoting("", ""))]
        if texts or moments:
            bare = _after_names(texts | moments, "-?[0-9][0-9.]*|true|false")
            zoneless = _after_names(moments, f'"{MOMENT}') + '"' if spelling.is_utc and moments else ""
            tried.append((spelling.record(kind, texts | moments), _Quoting(bare, zoneless)))
        self._patterns = [each for each in tried if self._read_as.names and _compiles(each[0])]

    def read(self, payloads: Sequence[bytes]) -> tuple[list[int], list[pa.StructArray]]:
        """Return the places of the records that were taken, and a struct for each of them in some pieces."""
        taken: list[int] = []
        found: list[pa.StructArray] = []
        left, raw = list(range(len(payloads))), None
        for pattern, quoting in self._patterns:
            if len(left) < MIN_RECORDS:
                break
            if raw is None:
                raw = binary_array([payloads[at] for at in left] if taken else payloads)
            fits = pc.match_substring_regex(raw, pattern).to_pylist()
            if True in fits:
                for places, structs in self._by_halves(list(compress(left, fits)), payloads, quoting):
                    taken += places
                    found.append(structs)
                left, raw = list(compress(left, map(not_, fits))), None
        return taken, found

    def _by_halves(
        self, places: list[int], payloads: Sequence[bytes], quoting: _Quoting
    ) -> Iterator[tuple[list[int], pa.StructArray]]:
        """Yield what Arrow takes of some records, with their places."""
        if not places:
            return
        text = SEPARATOR.join([payloads[at] for at in places]).translate(LINES)
        try:
            yield places, self._by_arrow(quoting.applied(text), len(places))
        except pa.ArrowInvalid:
            once = [at for at in places if not self._repeats(payloads[at])]
            if len(once) < len(places):
                yield from self._by_halves(once, payloads, quoting)
                return
            middle = len(places) // 2
            if middle >= FEW:
                yield from self._by_halves(places[:middle], payloads, quoting)
                yield from self._by_halves(places[middle:], payloads, quoting)

    def _repeats(self, payload: bytes) -> bool:
        """Return whether a name stands twice in a record, in whatever object, or perhaps as a value."""
        return any(payload.count(name) > 1 for name in self._quoted)

    def _by_arrow(self, text: pa.Buffer, size: int) -> pa.StructArray:
        """Return a struct for each line; raises pa.ArrowInvalid where something is in the way."""
        if len(text) >= MAX_BYTES:
            raise pa.ArrowInvalid("the records are too large for one block")
        table = pj.read_json(
            pa.BufferReader(text),
            pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
            pj.ParseOptions(explicit_schema=self._read_as, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != size:
            raise pa.ArrowInvalid("not every line is a record")
        columns = {name: table.column(name).combine_chunks() for name in self._read_as.names}
        return _struct(self._kind, columns, size, None)


@dataclass(frozen=True)
class _Quoting:
    """The changes of records before Arrow reads them, as regular expressions; empty for nothing."""

    bare: str
    zoneless: str

    def applied(self, text: bytes) -> pa.Buffer:
        row = one_row(text)
        for added, replacement in ((self.zoneless, r'\1\2Z"'), (self.bare, r'\1"\2"')):
            row = pc.replace_substring_regex(row, added, replacement) if added else row
        return row.buffers()[2]


def _after_names(names: Iterable[str], value: str) -> str:
    """Return an expression of a value, its second group, behind one of the names, the first."""
    return f'("(?:{"|".join(map(_escaped, sorted(names)))})"{B}:{B})({value})'


# Expressions


class _Spelling:
    """Regular expressions of plain values."""

    def __init__(self, settings: JsonSettings) -> None:
        self._settings = settings
        self.is_utc = zone_of(settings.timestamps.zone) == Fixed(0)

    def record(self, kind: pa.StructType, loose: Collection[str]) -> str:
        """Return the expression of a record."""
        return rf"\A{B}{_items(self._field(kind, loose), *OBJECT)}{B}\z"

    def _field(self, kind: pa.StructType, loose: Collection[str]) -> str:
        fields = [kind.field(at) for at in range(kind.num_fields)]
        named = [each for each in fields if not UNCLEAN.search(each.name)]
        values = [f'"{_escaped(each.name)}"{B}:{B}(?:null{self._value(each.type, loose, each.name)})' for each in named]
        unknown = f'"{_other({each.name.encode() for each in named})}"{B}:{B}{UNKNOWN}'
        return f"(?:{'|'.join([*values, unknown])}){B}"

    def _value(self, kind: pa.DataType, loose: Collection[str], name: str = "") -> str:
        """Return alternatives to null, each behind a bar."""
        if not _is_read(kind):
            return ""
        if pa.types.is_struct(kind):
            return f"|{_items(self._field(kind, loose), *OBJECT)}"
        if pa.types.is_list(kind):
            return f"|{_items(f'(?:null{self._value(kind.value_type, loose)}){B}', *ARRAY)}"
        if pa.types.is_string(kind):
            return f"|{TEXT}|{SPELLED}" if name in loose else f"|{TEXT}"
        if pa.types.is_timestamp(kind):
            return self._moment(kind, name in loose)
        if pa.types.is_date32(kind):
            return "" if self._settings.dates.pattern else f'|"(?:1[6-9]|2[0-9])[0-9]{{2}}-{DAY}"'
        if pa.types.is_decimal(kind):
            return _decimal(kind)
        if pa.types.is_boolean(kind):
            return "|true|false"
        exponent = "[0-9]" if pa.types.is_float32(kind) else "[0-9]{1,2}"
        return f"|{WHOLE[WHOLE_BITS[kind]]}" if kind in WHOLE_BITS else f"|{FLOAT % (exponent, exponent)}"

    def _moment(self, kind: pa.TimestampType, is_loose: bool) -> str:
        if kind.tz is None:
            return "" if self._settings.local_timestamps.pattern else f'|"{MOMENT}"'
        if self._settings.timestamps.pattern:
            return ""
        zone = f"{ZONE}?" if is_loose and self.is_utc else ZONE
        return f'|"{MOMENT}{zone}"' + (f"|{SECONDS}" if is_loose else "")


def _items(item: str, begin: str, end: str) -> str:
    """Return an expression of an object or array, with its item in it once: large ones take long to compile.

    It also takes some texts that are no JSON, which end at a comma or go on behind the end. In these the character
    behind is an error to any parser, so that Arrow refuses them whatever comes next.
    """
    return rf"{begin}{B}(?:{end}|(?:{item}(?:,{B}|{end}))+)"


def _unknown(depth: int) -> str:
    """Return an expression of any value."""
    if not depth:
        return SCALAR
    return f"(?:{SCALAR}|{_items(f'(?:{TEXT}{B}:{B})?{_unknown(depth - 1)}{B}', *ANY_OF_BOTH)})"


UNKNOWN: Final = _unknown(UNKNOWN_DEPTH)


def _decimal(kind: pa.Decimal128Type) -> str:
    digits = kind.precision - kind.scale
    whole = f"(?:0|[1-9][0-9]{{0,{digits - 1}}})" if digits else "0"
    number = "-?" + whole + (rf"(?:\.[0-9]{{1,{kind.scale}}})?" if kind.scale else "")
    return f'|{number}|"{number}"'


def _quotable(kind: pa.StructType, settings: JsonSettings) -> tuple[set[str], set[str]]:
    """Return the names that are texts wherever they stand in the schema, and those that are moments."""
    kinds: dict[str, set[str]] = {}
    level: list[pa.DataType] = [kind]
    while level:
        each = level.pop()
        if pa.types.is_list(each) or pa.types.is_map(each):
            level.append(each.value_type if pa.types.is_list(each) else each.item_type)
        for at in range(each.num_fields) if pa.types.is_struct(each) else ():
            field = each.field(at)
            kinds.setdefault(field.name, set()).add(str(field.type))
            level.append(field.type)
    named = {name: found for name, found in kinds.items() if not UNCLEAN.search(name)}
    texts = {name for name, found in named.items() if found == {str(pa.string())}}
    moments = {name for name, found in named.items() if found == {str(pa.timestamp("us", "UTC"))}}
    return texts, set() if settings.timestamps.pattern else moments


def _escaped(name: str) -> str:
    return "".join([rf"\x{byte:02x}" for byte in name.encode()])


def _other(names: set[bytes]) -> str:
    """Return an expression of names in ASCII but for those."""
    heads = sorted({name[0] for name in names if name and name[0] < 0x80})
    excluded = "".join([rf"\x{head:02x}" for head in heads])
    parts = [rf'[^\x00-\x1f"\\\x80-\xff{excluded}]{ASCII}*']
    parts += [rf"\x{head:02x}" + _other({name[1:] for name in names if name[:1] == bytes([head])}) for head in heads]
    return f"(?:{'|'.join(parts)})" + ("" if b"" in names else "?")


def _compiles(pattern: str) -> bool:
    """Return whether Arrow takes an expression; that of a very wide schema may be too large."""
    try:
        pc.match_substring_regex(binary_array([b""]), pattern)
    except pa.ArrowInvalid:
        return False
    return True


# Arrays


def _is_read(kind: pa.DataType) -> bool:
    """Return whether Arrow reads values of a type as they are meant; of others only null is taken."""
    if pa.types.is_struct(kind):
        return bool(_read_fields(kind))
    if pa.types.is_list(kind):
        return _is_read(kind.value_type)
    return not pa.types.is_map(kind) and not pa.types.is_binary(kind)


def _read_fields(kind: pa.StructType) -> list[pa.Field]:
    return [kind.field(at) for at in range(kind.num_fields) if _is_read(kind.field(at).type)]


def _arrow_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's reader is given."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _arrow_type(each.type)) for each in _read_fields(kind)])
    if pa.types.is_list(kind):
        return pa.list_(_arrow_type(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_date32(kind) else kind


def _struct(kind: pa.StructType, columns: dict[str, pa.Array], size: int, valid: pa.Buffer | None) -> pa.StructArray:
    """Return a struct of the columns, with null in place of those that are not there."""
    fields = [kind.field(at) for at in range(kind.num_fields)]
    children = [
        _converted(each.type, columns[each.name]) if each.name in columns else pa.nulls(size, each.type)
        for each in fields
    ]
    return pa.StructArray.from_buffers(kind, size, [valid], children=children)


def _converted(kind: pa.DataType, found: pa.Array) -> pa.Array:
    """Return what Arrow's reader found as an array of the type; raises pa.ArrowInvalid."""
    if pa.types.is_struct(kind):
        columns = {each.name: found.field(each.name) for each in _read_fields(kind)}
        return _struct(kind, columns, len(found), found.buffers()[0])
    if pa.types.is_list(kind):
        items = _converted(kind.value_type, found.values)
        return pa.Array.from_buffers(kind, len(found), found.buffers()[:2], children=[items])
    if not pa.types.is_timestamp(kind):
        return found.cast(kind)
    nanoseconds = pa.timestamp("ns", kind.tz)
    digits = pc.ascii_is_decimal(found)
    if not pc.any(digits).as_py():
        return found.cast(nanoseconds).cast(kind, safe=False)
    nothing = pa.nulls(1, pa.string())[0]
    seconds = pc.if_else(digits, found, nothing).cast(pa.int64())
    moments = pc.if_else(digits, nothing, found).cast(nanoseconds).cast(kind, safe=False)
    return pc.coalesce(moments, pc.multiply(seconds, int_scalar(1_000_000)).view(kind))
