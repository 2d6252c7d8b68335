"""Hostile JSON records, and a comparison of how natsctl and Spark's `from_json` read them.

    python -m tests.spark.source.hostile_json --rows 100000 --rounds 10 --seed 7

compares that many records, by the default options and by `VARIANTS` in turn, and prints those that are read otherwise;
the exit code is 1 if there are any. Spelling of numbers in texts is that of Java 19 and newer.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from natsctl.spark.source.json_column import java_text, json_column
from natsctl.spark.source.json_plain import PlainRecords
from natsctl.spark.source.rows import arrow_schema, json_settings, parsed_schema
from natsctl.spark.source.source_options import BATCH_READ, Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = (
    "b boolean, y tinyint, h smallint, i int, l bigint, f float, d double, s string, u string, t timestamp, "
    "z timestamp_ntz, e date, x binary, c decimal(10,2), w decimal(38,10), a array<int>, r array<string>, "
    "k array<array<double>>, m map<string, int>, g map<string, struct<i: int, s: string>>, "
    "o struct<i: int, s: string, c: decimal(5,1), a: array<struct<l: bigint>>, m: map<string, boolean>>, "
    "v array<struct<i: int, t: timestamp>>, _corrupt_record string"
)
NAMES: Final = (*"byhilfdsutzexcwarkmgov", "other", "_corrupt_record")
TEXTS: Final = (
    "", " ", "a", "héllo", "\U0001f600", "quote\\\"s", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "x\\ude00y",
    "\\ude00\\ud83d", "\\n\\t\\/\\b\\f\\r\\\\", "\\u0000\\u001f\\u007f", "\\'", "\\x", "\\u12", "\\u12g4", "tab\there",
    "new\nline", "\x00", "NaN", "INF", "+INF", "-INF", "Infinity", "+Infinity", "-Infinity", "nan", "true", "null",
    "1", "1.5", "-7", "1e3", "+1", ".5", "5.", "1_000", " 1", "1 ", "12345678901234567890123", "99999999.995",
    "99999999.994", "-0.005", "0x10", "aGk=", "aGk", "aA==", "aA=", "a Gk=", " aGk= ", "aGk=aGk=", "a", "aGk\\u003d",
    "aG\\/k", "a-_=", "====", "aGkx", "1,234.5", ",",
)  # fmt: skip
TIMES: Final = (
    "2026-11-23T05:52:01Z", "2026-11-23T05:52:01.123456789Z", "2026-11-23T05:52:01.1+02:00", "2026-11-23 05:52:01",
    "2026-11-23T05:52:01.123456-0330", "2026-11-23T05:52", "2026-11-23T05", "2026-11-23T", "2026-11-23", "2026-11",
    "2026", "1-1-1", "2026-1-2", "2026-02-29", "2024-02-29", "0000-01-01", "-0044-03-15", "+12026-01-01",
    "99999-12-31", "2026-11-23T24:00:00Z", "2026-11-23T23:59:60Z", "2026-11-23T5:2:1Z", " 2026-11-23T05:52:01Z ",
    "2026-11-23t05:52:01z", "2026-11-23T05:52:01 Europe/Berlin", "2026-03-29T02:30:00 Europe/Berlin",
    "2026-10-25T02:30:00Europe/Berlin", "2026-11-23T05:52:01 UTC", "2026-11-23T05:52:01UTC+1",
    "2026-11-23T05:52:01GMT+01:00", "2026-11-23T05:52GMT+01:00", "2026-11-23T05:52:01 PST", "2026-11-23T05:52:01+1:00",
    "2026-11-23T05:52:01+01:0", "2026-11-23T05:52:01+18:01", "2026-11-23T05:52:01 Nowhere/City",
    "2026-11-23T05:52:01.", "2026-11-23T05:52:01..5Z", "2026-11-23T05:52:01.5.5", "20261123T055201Z", "2026-W01-1",
    "1890-01-01T00:00:00 Europe/Berlin", "1582-10-10", "300000-01-01T00:00:00Z", "290000-01-01T00:00:00Z",
    "-290000-01-01T00:00:00Z", "123", "-5", "12345678", "-99999999", "1764000000", "T", "Z",
    "2026-11-23T05:52:01\\u005a", "2026-11-23T05:52:01+00:00:30", "2026-11-23T05:52:01+003030", "٢٠٢٦-01-01",
    "1234567-01-01", "12345678-01-01", "2026-11-23 anything", "2026-11-23Tanything", "2026-13-01", "2026-00-10",
    "9999-12-31T23:59:59.999999999Z",
)  # fmt: skip
NUMBERS: Final = (
    "0", "-0", "1", "-1", "127", "128", "200", "255", "256", "-128", "-129", "32767", "32768", "-32768", "-32769",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "9223372036855", "9223372036854", "-9223372036856",
    "123456789012345678901234567890", "1764000000", "1764000000123", "0.0", "-0.0", "1.0", "1.5", "0.1", "12.345",
    "12.335", "-12.345", "99999999.99", "99999999.995", "99999999.994", "100000000", "1e2", "1E+2", "1e-2", "1.5e300",
    "1e400", "-1e400", "1e-400", "123.456e1", "3.4028235e38", "3.4028236e38", "16777217", "16777217.0",
    "1.00000005960464477540", "1.00000005960464477539", "1.00000017881393432617", "1.00000017881393432618",
    "9007199254740993", "1e7", "9999999.0", "0.001", "0.00099", "NaN", "Infinity", "-Infinity", "+Infinity", "INF",
    "-INF", "+INF", "+1", "01", "-01", "00", ".5", "5.", "1.x", "1e", "1e+", "-", "--1", "1-", "0x10", "1_000",
    "1" * 999, "1" * 1000, "1" * 1001, "0." + "3" * 999, "0." + "3" * 1000, "1e0000000001", "0e99", "-0e0", "4.9e-324",
    "1.17549435e-38", "1e-46",
)  # fmt: skip
WORDS: Final = (
    "true",
    "false",
    "null",
    "True",
    "nul",
    "truex",
    "true1",
    "undefined",
    "nullnull",
    "N",
    "I",
    "'one'",
    "",
)
NESTED: Final = (
    "{}", "[]", "[1,2,3]", '["a","b"]', "[null]", "[1,null,2]", '[1,"x",3]', "[[1.5],[],null]", '[[1,"NaN"],[2]]',
    "[[1],2]", '{"i":1,"s":"x"}', '{"i":"x","s":"ok"}', '{"i":1,"i":2}', '{"i":"x","i":3}', '{"k":1,"k":2}',
    '{"k":"x","j":2}', '{"i":1,"s":{"deep":[1.50,{"z":null}]}}', '{"s":[1,2.0,"\\u0001\\ud83d\\ude00"]}',
    '{"c":123456.7}', '{"c":12.34}', '{"a":[{"l":1},{"l":"x"},{"l":3}],"i":5}', '{"a":[{"l":1},7],"i":5}',
    '{"m":{"p":true,"q":false}}', '{"m":{"p":1},"i":6}', '{"k":{"i":1,"s":"a"},"j":{"i":"x","s":"b"}}',
    '{"k":{"i":1},"j":3}', '{"k":null}', '[{"i":1,"t":"2026-01-01"},{"i":"x"}]', '[{"i":1},null,{"t":5}]',
    '[{"i":1},[2]]', '{"i":1', '[1,2', '[1,]', "[,1]", '{"i":1,}', '{"i" 1}', '{"i":}', "{1:2}", "{i:1}", "[1 2]",
    "[1.,2]", "[0.,2]", "[2,1.,5]", "[2,0.,5]", "[2,1.x,5]", "[2,tru,5]", "[2,nul5]", "[1}", '{"i":1]', "['a',\"b\"]",
    "{'i':1}", '{"":1}', '{"i":/**/1}', "[1//x\n]", "[" * 40 + "]" * 40, '{"i":' * 30 + "1" + "}" * 30, '[1,"\\x",2]',
    '["a","\\ud800"]', '[1,"a\tb",2]', '{"s":"\\ud800"}', '{"é":1,"i":2}', "[-]", "[-,1]", "[+1]", "[NaN,1]", "[NaNa]",
)  # fmt: skip
GARBAGE: Final = ("", "", "", " ", "\n", "x", "}", "]", '{"i":1}', ",", "null", "\x00", "//", "#", "\ufeff")
BLANKS: Final = ("", "", "", "", " ", "  ", "\n  ", "\t", "\r\n", "\x0b", "\u00a0")
NEAR_NAMES: Final = (*"byhilfdsutzecwarkovmgx", "bb", "other", "_corrupt_record", "sé", "\x7f", "")
NEAR_TEXTS: Final = (
    "a", "order 7", "é", "\U0001f600", "\u2028", "\x7f", "\ufffe", '\\"', "\\\\", "\\n", "\\u00e9", "\\u0000",
    "\\ud83d\\ude00", "2026-11-23T05:52:01", ":", "{", "]", '\\"i\\":', "\\ud800", "\\'", "\t", '","i":5,"', '"',
)  # fmt: skip
"""The last five are odd."""
WHOLE: Final = (
    "", " ", "\n\t ", "null", "true", "1", '"x"', "[]", '[{"i":1}]', "{", "}", "{}", " {} ", "\ufeff{}", "\x1e{}", "x",
    "//", "/**/{}", '{"a":' * 500 + "1" + "}" * 500, "[" * 2000, '{"other":' + "[" * 999 + "]" * 999 + ',"i":1}',
    '{"i":2,"other":' + "[" * 1200, '{"other":' + "[" * 1000 + "]" * 1000 + ',"i":1}', "{'i':1,'s':'it\\'s \"x\"'}",
    '{"i":1}{"i":2}', '{"i":1} trailing',
)  # fmt: skip


DEFAULTS: Final[Mapping[str, str]] = {}
VARIANTS: Final[tuple[Mapping[str, str], ...]] = (
    {"timeZone": "America/New_York", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"},
    {
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSSSSS]XXX",
        "timestampNTZFormat": "yyyy-M-d['T'H[:m]]",
        "dateFormat": "yyyy-MM-dd",
        "allowNumericLeadingZeros": "true",
        "allowUnquotedFieldNames": "true",
    },
    {
        "allowComments": "true",
        "allowBackslashEscapingAnyCharacter": "true",
        "allowUnquotedControlChars": "true",
        "timeZone": "+05:30",
    },
)
"""Options by which records are compared as well."""


def payloads(count: int, seed: int) -> list[bytes]:
    """Return records, the same for the same seed; some are clean, and a third is plain or just not."""
    rng = random.Random(seed)
    whole = [each.encode() for each in WHOLE]
    return (whole + [_record(rng) for _ in range(count - len(whole))])[:count]


def _record(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.1:
        return _clean(rng)
    if kind < 0.4:
        return _nearly_plain(rng)
    blank = rng.choice(BLANKS) if rng.random() < 0.5 else ""
    fields = (f"{blank}{_name(rng)}{blank}:{blank}{_value(rng)}{blank}" for _ in range(rng.randint(1, 5)))
    data = (blank + "{" + ",".join(fields) + "}" + rng.choice(GARBAGE)).encode("utf-8", "replace")
    if rng.random() < 0.25:
        data = _broken(data, rng)
    return data


def _clean(rng: random.Random) -> bytes:
    number = rng.randint(-(10**6), 10**6)
    moment = f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:00:{rng.randint(0, 59):02}"
    moment += f".{rng.randint(0, 10**9):09}Z"
    return (
        f'{{"l":{number},"s":"order {number}","t":"{moment}","d":{number / 8},"c":{number}.25,"b":true,'
        f'"a":[1,{number % 100}],"o":{{"i":{number},"s":"x"}},"m":{{"k{number}":{number}}},"e":"{moment[:10]}"}}'
    ).encode()


def _nearly_plain(rng: random.Random) -> bytes:
    """Return a record of the kind that Arrow reads, at the limits of that and beyond."""
    near = Near(rng, rng.choice((0, 0, 0, 0.1, 0.5)))
    names = rng.sample(NEAR_NAMES, rng.randint(1, 6))
    if rng.random() < 0.03:
        names.append(names[0])
    text = near.object(names)
    data = f"{rng.choice(('', '', '', ' ', near.blank))}{text}{rng.choice(('', '', '', near.blank, 'x'))}".encode()
    return _broken(data, rng) if rng.random() < 0.07 else data


class Near:
    """Makes values that are plain, except for a share of odd ones."""

    def __init__(self, rng: random.Random, odd: float) -> None:
        self._rng, self._odd = rng, odd
        self.blank = rng.choice(("", "", "", " ", "\n  ", "\t", "\r\n"))

    def object(self, names: Sequence[str]) -> str:
        """Return an object with those names."""
        blank = self.blank
        fields = [f'"{name}"{blank}:{blank}{self.value(name[:1] or "x")}{blank}' for name in names]
        return f"{{{blank}{f',{blank}'.join(fields)}}}"

    def value(self, name: str) -> str:
        """Return a value for the type of the field."""
        rng, blank, inner = self._rng, self.blank, {"a": "i", "r": "s", "k": "j"}
        if rng.random() < self._odd / 4:
            return _value(rng)
        if rng.random() < 0.04:
            return "null"
        if name in inner:
            items = [self.value(inner[name]) for _ in range(rng.randint(0, 3))]
            return f"[{blank}{f'{blank},{blank}'.join(items)}{blank}]"
        if name in "ov":
            found = self.object(rng.sample(("i", "s", "c", "other", "io"), rng.randint(1, 4)))
            return found if name == "o" else f"[{found},{blank}{found}]"
        if name in "su" and rng.random() < 0.7:
            return f'"{"".join(rng.choice(NEAR_TEXTS[: None if self._chance() else -5]) for _ in range(3))}"'
        if name in "bjmg_x":
            words = (
                ("true", "false") if name == "b" else ("[]", "[ 1.5 ]", "[2,null,-0.5e1]") if name == "j" else ("null",)
            )
            return rng.choice(NESTED if self._chance() else words)
        return self.time(name) if name in "tze" else self.number(name)

    def _chance(self) -> bool:
        return self._rng.random() < self._odd

    def _one(self, plain: Sequence[Any], odd: Sequence[Any]) -> Any:
        return self._rng.choice(odd if self._chance() else plain)

    def time(self, name: str) -> str:
        """Return a date, a moment with or without a zone, or a number of seconds."""
        if name == "t" and self._rng.random() < 0.15:
            return str(
                self._one((0, 5, 1_764_000_000, 10**12, 8_999_999_999_999), (9_000_000_000_000, 10**18, -5, "1.5"))
            )
        month, day = self._one(
            ((1, 31), (2, 28), (4, 30), (12, 31), (6, 7)), ((2, 29), (4, 31), (13, 1), (9, 0), (1, 32))
        )
        text = f"{self._one((1971, 1999, 2024, 2026, 2199), (1582, 1969, 1970, 2200, 2262))}-{month:02}-{day:02}"
        if name == "e" or self._chance():
            return f'"{text}"'
        clocks = ("00:00:00", "23:59:59", "05:52:01"), ("24:00:00", "05:52:60", "05:52", "05:60:00")
        fractions = ("", ".1", ".123", ".123456", ".1234567", ".999999999"), (".", ".1234567891", ".12x")
        zones = ("Z", "+02:00", "-17:59"), ("+18:00", "+0200", " UTC", "z")
        zone = "" if name == "z" or self._rng.random() < 0.2 else self._one(*zones)
        return f'"{text}{self._rng.choice("T ")}{self._one(*clocks)}{self._one(*fractions)}{zone}"'

    def number(self, name: str) -> str:
        """Return a number at a limit of whole numbers, of decimals, or of what Java spells as it stands."""
        sign = "-" if self._rng.random() < 0.3 else ""
        most = {"y": 127, "h": 29_999, "i": 2_099_999_999, "l": 10**18 - 1, "c": 99_999_999}.get(name, 10**18 - 1)
        if name in "yhil" or self._rng.random() < 0.5:
            plain = [
                each for each in (1, 7, 99, 127, 29_999, 2_099_999_999, 99_999_999, 10**17, 10**18 - 1) if each <= most
            ]
            return sign + str(
                self._one(plain, (0, 128, 32_767, 32_768, 2**31 - 1, 2**31, 10**18, 2**63, 10**37, 10**38))
            )
        whole = self._one(("0", "5", "123", "9999999", "99999999"), ("10000000", str(10**17), str(10**18), "00"))
        if name == "c":
            return f"{sign}{whole}.{self._one(('0', '5', '50', '05'), ('005', '125', '1e1'))}"
        fractions = ("0", "5", "05", "001", "0012", "123456", "12345678"), ("50", "0001", "123456789", "1" * 18, "")
        exponent = self._rng.choice(("", "e5", "E-7", "e+10", "e9", "e99", "e100", "e-0")) if self._chance() else ""
        return f"{sign}{whole}.{self._one(*fractions)}{exponent}"


def _name(rng: random.Random) -> str:
    name = rng.choice(NAMES)
    kind = rng.random()
    return (
        f"'{name}'"
        if kind < 0.05
        else name
        if kind < 0.07
        else f'"\\u{ord(name[0]):04x}"'
        if kind < 0.1
        else f'"{name}"'
    )


def _value(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.25:
        return f'"{rng.choice(TEXTS)}"'
    if kind < 0.5:
        return f'"{rng.choice(TIMES)}"'
    if kind < 0.72:
        return rng.choice(NUMBERS)
    return rng.choice(NESTED) if kind < 0.94 else rng.choice(WORDS)


def _broken(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([rng.choice(b"\"'\\{}[]:,/#x0 \t\n\x01\x7f")]) + data[at:]
    if kind == 2:
        return (
            data[:at]
            + rng.choice([b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xf0\x9f\x98", b"\xe2\x82", b"\xc0\x80", b"\xed\xa0"])
            + data[at:]
        )
    return data[:at] + data[at + 1 :]


def by_spark(spark: SparkSession, records: Sequence[bytes], *variants: Mapping[str, str]) -> list[list[Any]]:
    """Return what `from_json` makes of the records by each of some options."""
    from pyspark.sql import functions

    table = spark.createDataFrame(pa.table({"at": range(len(records)), "value": pa.array(records, pa.binary())}))
    text = table.value.cast("string")
    columns = [
        functions.from_json(text, SCHEMA, {"timeZone": "UTC", **said}).alias(str(at))
        for at, said in enumerate(variants)
    ]
    found = table.select("at", *columns).toArrow().sort_by("at")
    return [comparable(found.column(str(at)).combine_chunks()) for at in range(len(variants))]


def plain_share(records: Sequence[bytes], said: Mapping[str, str] = DEFAULTS) -> float:
    """Return the share of records that Arrow reads."""
    return len(PlainRecords(_kind(), json_settings(Options(said, BATCH_READ))).read(records)[0]) / len(records)


def by_natsctl(
    records: Sequence[bytes], said: Mapping[str, str] = DEFAULTS, *, together: int | None = None
) -> list[Any]:
    """Return what natsctl makes of them, of so many at a time."""
    kind, settings, step = _kind(), json_settings(Options(said, BATCH_READ)), together or len(records)
    pieces = [json_column(records[at : at + step], kind, settings)[0] for at in range(0, len(records), step)]
    found = pa.concat_arrays(pieces)
    found.validate(full=True)
    return comparable(found)


def _kind() -> pa.StructType:
    return arrow_schema(parsed_schema(f"value struct<{SCHEMA}>")).field(0).type


def comparable(rows: pa.StructArray) -> list[Any]:
    """Return rows as texts, in which what is no number is equal to itself, and no text has to be UTF-8."""
    found = []
    for row in rows.cast(_plain(rows.type)).to_pylist():
        if row and row.get("_corrupt_record"):
            row["_corrupt_record"] = java_text(row["_corrupt_record"])
        found.append(None if row is None else str({name: each for name, each in row.items() if each is not None}))
    return found


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type with bytes for texts, and numbers for times and dates, of which Python knows too few."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(at).name, _plain(kind.field(at).type)) for at in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.binary(), _plain(kind.item_type))
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def main() -> int:
    """Compare as many records as arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    said = parser.parse_args()
    from natsctl.spark.session import SparkOptions, open_session

    wrong = 0
    ways = (DEFAULTS, *VARIANTS)
    with open_session(SparkOptions(master="local[2]")) as spark:
        for at in range(said.rounds):
            way = ways[at % len(ways)]
            records = payloads(said.rows, said.seed + at)
            for record, theirs, ours in zip(
                records, *by_spark(spark, records, way), by_natsctl(records, way), strict=True
            ):
                if theirs != ours:
                    wrong += 1
                    if wrong <= 40:
                        print(f"{record!r} by {way}\n  from_json {theirs}\n  natsctl   {ours}")
    print(f"{said.rows * said.rounds} records, {wrong} read otherwise")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
