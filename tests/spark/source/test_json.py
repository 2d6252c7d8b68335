"""Payloads of valueFormat=json are read as `from_json` reads them, each by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsctl.spark.source.arrays import int_array
from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.json_column import java_text, json_column
from natsctl.spark.source.json_plain import PlainRecords
from natsctl.spark.source.rows import Rows, SchemaMismatchError, arrow_schema, json_settings, parsed_schema
from natsctl.spark.source.source_options import BATCH_READ, Options
from tests.spark.source.reads import shape
from tests.support import tiers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "b boolean, y tinyint, h smallint, i int, l bigint, f float, d double, s string, t timestamp, n timestamp_ntz, "
    "e date, x binary, c decimal(10,2), w decimal(38,10), a array<int>, m map<string, int>, "
    "o struct<i: int, s: string, c: decimal(5,1), a: array<struct<l: bigint>>>, _corrupt_record string"
)
NAMES = "byhilfdstnexcwamo"
VALUES_WITHOUT_BLANKS = """
true false null nul truex undefined N 'one' 0 -0 1 127 128 -129 32768 2147483648 9223372036854775808
1.0 1.5 12.345 12.335 -12.345 99999999.995 99999999.994 1e2 1e-2 1e400 1e-400 3.4028236e38 16777217
1.00000005960464477540 1.00000017881393432617 9007199254740993 9999999.0 0.00099 1764000000
NaN Infinity -INF +INF +1 01 .5 5. 1e+ - 0x10 1_000 1e0000000001 4.9e-324 1.17549435e-38
"""
VALUES = (
    *VALUES_WITHOUT_BLANKS.split(),
    *("1" * 1000, "1" * 1001, "0." + "3" * 1000, "{}", "[]", "[1,null,2]", '[1,"x",3]', '["a","b"]', "[[1.5],[]]"),
    *('{"i":1,"s":"x"}', '{"i":"x","s":"ok"}', '{"i":"x","i":3}', '{"k":1,"k":2}', '{"c":123456.7}', '{"i":1', "[1,2"),
    *('{"i":1,"s":{"deep":[1.50,{"z":null}]}}', '{"a":[{"l":1},{"l":"x"}],"i":5}', '{"a":[{"l":1},7],"i":5}'),
    *("[1,]", "[,1]", '{"i" 1}', "{1:2}", "{i:1}", "[2,1.,5]", "[2,nul5]", "[1}", "{'i':1}", '{"i":/**/1}', "[1//x\n]"),
)
TEXTS_WITHOUT_BLANKS = """
NaN INF Infinity true null 1 1.5 1e3 +1 .5 1_000 99999999.995 aGk= aGk aGk=aGk= a-_= ====
2026-11-23T05:52:01Z 2026-11-23T05:52:01.123456789Z 2026-11-23T05:52:01.1+02:00 2026-11-23T05:52
2026-11-23T 2026-11-23 2026-11 2026 1-1-1 2026-02-29 0000-01-01 -0044-03-15 +12026-01-01 99999-12-31
2026-11-23T24:00:00Z 2026-11-23T23:59:60Z 2026-11-23t05:52:01z 2026-03-29T02:30:00Europe/Berlin
2026-11-23T05:52:01UTC+1 2026-11-23T05:52GMT+01:00 2026-11-23T05:52:01+18:01 2026-11-23T05:52:01.
1890-01-01T00:00:00Europe/Berlin 1582-10-10 300000-01-01T00:00:00Z 123 -5 -99999999 2026-13-01
23.11.2026 31.02.2026 1.2.2026 23.11.2026T05 9999999-01-01 2026-11-23T05:52:01\\u005a
"""
TEXTS = (
    *TEXTS_WITHOUT_BLANKS.split(),
    *("", " ", "a", "héllo", 'quote\\"s', "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\u12", "\\x", "\\'", "tab\there"),
    *(" 1", "1,234.5", ",", "a Gk=", "2026-11-23 05:52:01", "2026-11-23T05:52:01 Europe/Berlin", "2026-11-23 anything"),
)
WHOLE = (
    *("", " ", "\n\t ", "null", "true", "1", '"x"', "[]", '[{"i":1}]', "{", "}", "{}", " {} ", "\ufeff{}", "x", "//"),
    *('{"i":1}{"i":2}', '{"i":1} trailing', "{'i':1,'s':'it\\'s \"x\"'}", '{"l":1,"i":2,"i":"x","s":"y"}', "/**/{}"),
    *('{"z":' + "[" * 1000 + "]" * 1000 + ',"i":1}', '{"i":2,"z":' + "[" * 1200, '{\r\n  "i": 1,\n  "s": "x"\n}\n'),
    *('{"i":7,"t":"2026-11-23T05:52:01.5","s":12.5,"z":[{"i":1}]}', '{"s":"\\u0069","\\u0069":1}', '{"ab":1,"i":2}'),
)
RECORDS = [
    *(text.encode() for text in WHOLE),
    *(f'{{"{name}":{value},"s":"kept"}}'.encode() for name in NAMES for value in VALUES),
    *(f'{{"i":1,"{name}":"{text}"}}'.encode() for name in NAMES for text in TEXTS),
    *(b'{"s":"%b"}' % odd for odd in (b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xf0\x9f\x98", b"\x00", b"\x7f")),
]
WAYS: list[Mapping[str, str]] = [
    {},
    {"timeZone": "America/New_York", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"},
    {
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSSSSS]XXX",
        "timestampNTZFormat": "yyyy-M-d['T'H[:m]]",
        "dateFormat": "dd.MM.yyyy",
        "allowNumericLeadingZeros": "true",
        "allowUnquotedFieldNames": "true",
    },
    {
        "allowComments": "true",
        "allowBackslashEscapingAnyCharacter": "true",
        "allowUnquotedControlChars": "true",
        "timeZone": "+05:30",
    },
]


def by_natsctl(records: Sequence[bytes], way: Mapping[str, str], step: int = 0) -> list[Any]:
    """What natsctl makes of the records, of `step` of them at a time."""
    kind, settings = kind_of(SCHEMA), json_settings(Options(way, BATCH_READ))
    size = step or len(records) or 1
    found = [json_column(records[at : at + size], kind, settings)[0] for at in range(0, len(records), size)]
    whole = pa.concat_arrays(found) if found else pa.array([], kind)
    whole.validate(full=True)
    return comparable(whole)


def kind_of(ddl: str) -> pa.StructType:
    return arrow_schema(parsed_schema(f"value struct<{ddl}>")).field(0).type


def comparable(rows: pa.StructArray) -> list[Any]:
    """Rows as texts, in which NaN equals NaN, and no text has to be UTF-8."""
    found = []
    for row in rows.cast(without_times(rows.type)).to_pylist():
        if row and row.get("_corrupt_record"):
            row["_corrupt_record"] = java_text(row["_corrupt_record"])
        found.append(None if row is None else str({name: each for name, each in row.items() if each is not None}))
    return found


def without_times(kind: pa.DataType) -> pa.DataType:
    """The type with bytes for texts, and numbers for times and dates, of which Python knows too few."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(kind.field(at).name, without_times(kind.field(at).type)) for at in range(len(kind))])
    if pa.types.is_map(kind):
        return pa.map_(pa.binary(), without_times(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, without_times(kind.value_type)))
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def test_records_are_read_as_from_json_reads_them(spark: SparkSession) -> None:
    from pyspark.sql import functions

    plain, _ = PlainRecords(kind_of(SCHEMA), json_settings(Options({}, BATCH_READ))).read(RECORDS)
    assert 200 < len(plain) < len(RECORDS) / 2, "both of our readers are compared"
    table = spark.createDataFrame(pa.table({"at": range(len(RECORDS)), "value": pa.array(RECORDS, pa.binary())}))
    columns = [
        functions.from_json(table.value.cast("string"), SCHEMA, {"timeZone": "UTC", **way}).alias(str(at))
        for at, way in enumerate(WAYS)
    ]
    found = table.select("at", *columns).toArrow().sort_by("at")
    for at, way in enumerate(WAYS):
        theirs = comparable(found.column(str(at)).combine_chunks())
        rows = zip(RECORDS, theirs, by_natsctl(RECORDS, way), strict=True)
        assert [row for row in rows if row[1] != row[2]][:3] == [], way


cuts = st.builds(lambda record, at: record[: at % (len(record) + 1)], st.sampled_from(RECORDS), st.integers(0, 99))


@tiers.examples(100)
@given(st.lists(st.one_of(st.sampled_from(RECORDS), cuts), max_size=60), st.sampled_from(WAYS))
def test_records_alone_are_those_among_others(records: list[bytes], way: Mapping[str, str]) -> None:
    assert by_natsctl(records, way, step=1) == by_natsctl(records, way) == by_natsctl(records[::-1], way)[::-1]


def table(ddl: str, *payloads: bytes, **options: str) -> list[dict[str, Any]]:
    """The columns seq and value of messages from 1 on."""
    wanted = shape(f"seq bigint, value struct<{ddl}>", **options)
    size = len(payloads)
    rows: list[dict[str, Any]] = wanted.batch(
        "S", Rows(int_array(range(1, size + 1)), None, [b"a"] * size, [b""] * size, payloads)
    ).to_pylist()
    return rows


@pytest.mark.parametrize("payload", [b"[1]", b"{", b'{"id":1.5}', b'{"id":"x"}', b'{"id":"x","id":1}', b"null"])
def test_modes(payload: bytes) -> None:
    payloads = (b'{"id":0,"t":"good"}', payload, b"", b'{"id":0}')
    with pytest.raises(SchemaMismatchError, match="message S 2 does not fit valueSchema"):
        table("id bigint", *payloads, valueMode="FAILFAST")
    kept = table("id bigint", *payloads, valueMode="DROPMALFORMED")
    assert kept == [{"seq": 1, "value": {"id": 0}}, {"seq": 3, "value": None}, {"seq": 4, "value": {"id": 0}}]
    found = table("id bigint, bad string", *payloads, columnNameOfCorruptRecord="bad")
    assert [row["value"] and row["value"]["bad"] for row in found] == [None, payload.decode(), None, None]


@pytest.mark.parametrize(
    ("name", "said", "why"),
    [
        ("timestampFormat", "yyyy-MM-dd EEE", "'EEE' is not read here"),
        ("dateFormat", "yyyy[-MM", "is no pattern"),
        ("timeZone", "Europe/Atlantis", "is no zone"),
        ("valueMode", "strict", "one of permissive, failfast, dropmalformed"),
    ],
)
def test_wrong_options_are_refused(name: str, said: str, why: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}: .*{why}"):
        shape("value struct<id: int>", **{name: said})


def test_types_that_json_is_not_read_as_are_refused() -> None:
    fields = [{"name": "v", "type": "variant", "nullable": True, "metadata": {}}]
    with pytest.raises(OptionError, match=r"value\.v is variant, which JSON is not read as"):
        shape(valueFormat="json", valueSchema=json.dumps({"type": "struct", "fields": fields}))
