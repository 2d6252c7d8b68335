"""JSON payloads are read as `from_json` reads them, each by itself; tests/spark/test_reading.py compares the two."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from natsctl.spark.source import json_column
from natsctl.spark.source.arrays import int_array
from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.json_column import JsonColumn
from natsctl.spark.source.json_plain import PlainRecords
from natsctl.spark.source.json_rows import JsonSettings, plain_text, single, spelled_double
from natsctl.spark.source.json_times import DateFormat, Fixed, LocalFormat, TimestampFormat, zone_of
from natsctl.spark.source.rows import Rows, SchemaMismatchError, arrow_schema, parsed_schema
from tests.spark.source.hostile_json import by_natsctl, payloads, plain_share
from tests.spark.source.reads import shape

ALL_TYPES = "id bigint, on date, at timestamp, s struct<a: array<int>>, d decimal(10,2), t string, f double, b boolean"
GOOD = b'{"id":0,"t":"good"}'
UTC = dt.UTC


def table(ddl: str, *payloads: bytes, **options: str) -> list[dict[str, Any]]:
    """The columns seq and value of messages from 1 on."""
    wanted = shape(f"seq bigint, value struct<{ddl}>", **options)
    size = len(payloads)
    batch = wanted.batch("S", Rows(int_array(range(1, size + 1)), None, [b"a"] * size, [b""] * size, payloads))
    batch.validate(full=True)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def values(ddl: str, *payloads: bytes, **options: str) -> list[Any]:
    return [row["value"] for row in table(ddl, *payloads, **options)]


def test_json_is_a_struct() -> None:
    payload = (
        b'{"id":1,"on":"2020-01-02","at":"2020-01-01T02:00:00+01:00","s":{"a":[1,null]},"d":1.5,"t":"x","f":1,"b":true}'
    )
    (found,) = values(ALL_TYPES, payload)
    assert (found["id"], found["on"], found["s"], found["t"]) == (1, dt.date(2020, 1, 2), {"a": [1, None]}, "x")
    assert found["at"] == dt.datetime(2020, 1, 1, 1, tzinfo=UTC)
    assert (str(found["d"]), found["f"], found["b"]) == ("1.50", 1.0, True)


def test_types_of_nested_and_binary_values() -> None:
    payload = b'{"m":{"x":1,"x":2,"y":null},"b":"aGk=","n":"2020-01-01T00:00:00"}'
    (found,) = values("m map<string, int>, b binary, n timestamp_ntz", payload)
    assert found == {"m": [("x", 1), ("x", 2), ("y", None)], "b": b"hi", "n": dt.datetime(2020, 1, 1)}


ODD = {
    b"": None,
    b" \n": None,
    b"null": {"id": None, "t": None},
    b"[1]": {"id": None, "t": None},
    b"{": {"id": None, "t": None},
    b'{"id":1}{"id":2}': {"id": 1, "t": None},
    b'{"id":\n3}': {"id": 3, "t": None},
    b' {"id": 4, "other": 5}': {"id": 4, "t": None},
    b'{"id":"x","t":"y"}': {"id": None, "t": "y"},
    b'{"id":1.5,"t":"y"}': {"id": None, "t": "y"},
    b'{"id":true}': {"id": None, "t": None},
    b'{"id":99999999999999999999}': {"id": None, "t": None},
    b'{"id":1,"t":{"a": [1.50, "x"]}}': {"id": 1, "t": '{"a":[1.5,"x"]}'},
    b'{"id":1,"t":7}': {"id": 1, "t": "7"},
    b'{"id":1,"id":2}': {"id": 2, "t": None},
    b"{'id':1}": {"id": 1, "t": None},
    b'{"t":"\xff"}': {"id": None, "t": "\ufffd"},
    b"\xff": {"id": None, "t": None},
}


@pytest.mark.parametrize("payload", ODD)
def test_what_does_not_fit_is_null_and_changes_nothing_else(payload: bytes) -> None:
    found = values("id bigint, t string", *[GOOD] * 50, payload, *[GOOD] * 70)
    assert found[50] == ODD[payload]
    assert found[:50] + found[51:] == [{"id": 0, "t": "good"}] * 120


def test_records_alone_are_those_among_others() -> None:
    records = payloads(700, 3)
    assert plain_share(records) > 0.03, "some are read by Arrow, and all alone are not"
    alone = by_natsctl(records, together=1)
    assert alone == by_natsctl(records) == by_natsctl(records[::-1])[::-1]


PLAIN = {
    "clean": b'{"id":%d,"at":"2026-11-23T05:52:01.123Z","t":"x","d":1.5,"s":{"a":[1,null]}}',
    "nanoseconds": b'{"id":%d,"at":"2026-11-23T05:52:01.123456789Z","on":"2026-11-23"}',
    "offsets": b'{"at":"2026-11-23 05:52:01-03:30","id":%d,"f":1e3,"b":true}',
    "no zone": b'{"id":%d,"at":"2026-11-23T05:52:01.5"}',
    "seconds since 1970": b'{"id":%d,"at":1764000000}',
    "numbers for texts": b'{"id":%d,"t":12.5}',
    "booleans for texts": b'{"t":true,"id":%d}',
    "pretty": b'{\r\n  "id": %d,\n  "t": "x \\ud83d\\ude00"\n}\n',
    "more fields": b'{"id":%d,"idx":[{"at":1}],"i":{"t":[[2]]}}',
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_records_are_read_by_arrow_as_they_are_alone(name: str) -> None:
    kind = arrow_schema(parsed_schema(f"value struct<{ALL_TYPES}>")).field(0).type
    columns = JsonColumn(kind, JsonSettings())
    records = [PLAIN[name] % number for number in range(600)]
    taken, _ = PlainRecords(kind, JsonSettings()).read(records)
    assert len(taken) == 600
    found, malformed = columns.column(records)
    assert not malformed
    assert pa.concat_arrays([columns.column([record])[0] for record in records[::50]]).equals(found.take(taken[::50]))


def test_a_name_that_stands_twice_costs_its_neighbours_nothing_but_time() -> None:
    records = [b'{"id":%d}' % number for number in range(600)]
    records[77] = b'{"id":1,"t":"x","id":2}'
    records[78] = b'{"id":1,'
    found = values("id bigint, t string", *records)
    assert found[77:79] == [{"id": 2, "t": "x"}, {"id": None, "t": None}]
    assert found[:77] + found[79:] == [{"id": number, "t": None} for number in range(600) if number not in (77, 78)]


def test_cut_off_records_and_repeated_names_are_read_as_token_by_token(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = (
        arrow_schema(parsed_schema("v struct<id int, t string, s struct<a int, b string>, l array<int>>")).field(0).type
    )
    records = [
        b'{"id":1,"t":"x","s":{"a":1,"b":"y"},"l":[1,2]}',
        b'{"t":"x","id":"no","s":{"a":3,"a":4}}',
        b'{"l":["no"],"t":null,"u":{"id":9},"id":7}',
        b'{"s":{"a":"no"},"t":"z","t":5}',
        b"{}",
    ]
    cut = [each[:at] for each in records for at in range(1, len(each))]
    joined = [one[:-1] + b"," + other[1:] for one in records for other in records]
    thrice = [one[:-1] + b"," + other[1:] for one in joined[::3] for other in records[:3]]
    given = [*cut, *joined, *thrice]
    found, malformed = JsonColumn(kind, JsonSettings()).column(given)
    by_tokens = JsonColumn(kind, JsonSettings())
    monkeypatch.setattr(by_tokens, "_scan", lambda text, begin: json_column._refuse(text))
    monkeypatch.setattr(by_tokens, "_plain", PlainRecords(pa.struct([]), JsonSettings()))
    monkeypatch.setattr(json_column, "ENDS_WITHIN", re.compile("(?!)"))
    expected, also_malformed = by_tokens.column(given)
    assert found.to_pylist() == expected.to_pylist()
    assert malformed == also_malformed
    assert len(cut) < len(malformed) < len(given)


def test_names_are_read_however_they_are_spelled() -> None:
    odd = ["a b", 'a"b', "é", "éa", "i", "id", "x.y", "[x]"]
    ddl = ", ".join(f"`{name}` int" for name in odd)
    records = [json.dumps({name: at, f"{name}_": {"i": 1}}, ensure_ascii=False).encode() for at, name in enumerate(odd)]
    (found,) = values(ddl, b"{%b}" % b",".join(record[1:-1] for record in records))
    assert found == {name: at for at, name in enumerate(odd)}
    among = values(ddl, *(record for record in records for _ in range(100)))
    assert among == [
        {each: at if each == name else None for each in odd} for at, name in enumerate(odd) for _ in range(100)
    ]


def test_a_date_that_is_too_far_away_ends_no_query() -> None:
    kind = arrow_schema(parsed_schema("value struct<e date, i int>")).field(0).type
    records = [b'{"e":"9999999-01-01","i":1}', b'{"e":"-9999999","i":2}']
    found, malformed = JsonColumn(kind, JsonSettings()).column(records)
    assert found.field("i").to_pylist() == [1, 2]
    assert found.field("e").is_null().to_pylist() == [True, False]
    assert malformed == [0]


def test_a_decimal_that_is_too_wide_ends_no_query() -> None:
    found = values(
        "d decimal(5,2), t string", b'{"d":1234.5,"t":"x"}', b'{"d":999.994}', b'{"d":999.995}', b'{"d":1e400}'
    )
    assert found[0] == {"d": None, "t": "x"}
    assert [row["d"] for row in found[1:]] == [Decimal("999.99"), None, None]


def test_commas_in_texts_of_decimals_are_passed_over() -> None:
    found = values("d decimal(10,2)", b'{"d":"12,345.5"}', b'{"d":"-,1"}', b'{"d":","}')
    assert [row["d"] for row in found] == [Decimal("12345.50"), Decimal(-1), None]


MALFORMED = [b"[1]", b"{", b'{"id":1.5}', b'{"id":"x"}', b'{"id":"x","id":1}', b"null"]


@pytest.mark.parametrize("payload", MALFORMED)
def test_modes(payload: bytes) -> None:
    payloads = (GOOD, payload, b"", GOOD)
    with pytest.raises(SchemaMismatchError, match="message S 2 does not fit valueSchema"):
        table("id bigint", *payloads, valueMode="FAILFAST")
    kept = table("id bigint", *payloads, valueMode="DROPMALFORMED")
    assert kept == [{"seq": 1, "value": {"id": 0}}, {"seq": 3, "value": None}, {"seq": 4, "value": {"id": 0}}]
    found = values("id bigint, bad string", *payloads, columnNameOfCorruptRecord="bad")
    assert [row and row["bad"] for row in found] == [None, payload.decode(), None, None]


def test_the_text_of_a_malformed_record_may_stand_anywhere() -> None:
    found = values("_corrupt_record string, id int", b'{"id":1}', b'{"id":"\xff"}')
    assert found == [{"_corrupt_record": None, "id": 1}, {"_corrupt_record": '{"id":"\ufffd"}', "id": None}]


LENIENT = {
    "allowComments": (b'{/*x*/"id":1}', b'{"id":1// x\n}'),
    "allowUnquotedFieldNames": (b"{id:1}",),
    "allowNumericLeadingZeros": (b'{"id":01}', b'{"id":0001}'),
    "allowBackslashEscapingAnyCharacter": (b'{"\\id":1}',),
    "allowUnquotedControlChars": (b'{"a\tb":1,"id":1}',),
}


@pytest.mark.parametrize("name", LENIENT)
def test_departures_from_json_are_allowed_one_by_one(name: str) -> None:
    assert values("id int", *LENIENT[name]) == [{"id": None}] * len(LENIENT[name])
    assert values("id int", *LENIENT[name], **{name: "true"}) == [{"id": 1}] * len(LENIENT[name])


def test_departures_from_json_are_forbidden_one_by_one() -> None:
    assert values("d double", b'{"d":NaN}', b'{"d":"NaN"}', allowNonNumericNumbers="false") == [{"d": None}] * 2
    assert values("id int", b"{'id':1}", allowSingleQuotes="false") == [{"id": None}]


def test_values_have_no_limit_but_those_of_spark() -> None:
    deep = b'{"other":' + b"[" * 999 + b"]" * 999 + b',"id":1}'
    digits = b'{"id":1,"other":%b}'
    found = values("id int", deep, deep.replace(b"[]", b"[[]]"), digits % (b"1" * 1000), digits % (b"1" * 1001))
    assert found == [{"id": 1}, {"id": None}, {"id": 1}, {"id": None}]


# Times


def micros(text: str, pattern: str = "", zone: str = "UTC") -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=TimestampFormat(pattern, zone).micros(text))


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2026-11-23T05:52:01.123456789Z", "UTC", "2026-11-23T05:52:01.123456+00:00"),
        ("2026-11-23T05:52:01.5+02:00", "UTC", "2026-11-23T03:52:01.500000+00:00"),
        ("2026-11-23 05:52", "Europe/Berlin", "2026-11-23T04:52:00+00:00"),
        ("2026-03-29T02:30:00", "Europe/Berlin", "2026-03-29T01:30:00+00:00"),
        ("2026-10-25T02:30:00", "Europe/Berlin", "2026-10-25T00:30:00+00:00"),
        ("2026-11-23T05:52:01 PST", "UTC", "2026-11-23T13:52:01+00:00"),
        ("2026-11-23T05:52GMT+01:00", "UTC", None),
        ("2026-11", "UTC", "2026-11-01T00:00:00+00:00"),
        ("2026-11-23T24:00:00Z", "UTC", None),
        ("2026-02-29", "UTC", None),
        ("yesterday", "UTC", None),
    ],
)
def test_times_are_those_of_casts(text: str, zone: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match=r"no time|there is no"):
            micros(text, zone=zone)
    else:
        assert micros(text, zone=zone).isoformat() == expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("dd.MM.yyyy HH:mm", "23.11.2026 05:52", "2026-11-23T05:52:00+00:00"),
        ("yyyyMMddHHmmssSSS", "20261123055201123", "2026-11-23T05:52:01.123000+00:00"),
        ("yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX", "2026-11-23T05:52:01+01:00", "2026-11-23T04:52:01+00:00"),
        ("yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX", "2026-11-23T05:52:01.25Z", "2026-11-23T05:52:01.250000+00:00"),
        ("d MMM yy h:mm a", "3 nov 26 12:05 pm", "2026-11-03T12:05:00+00:00"),
        ("MMMM d, yyyy", "November 23, 2026", "2026-11-23T00:00:00+00:00"),
        ("HH:mm VV", "05:52 Europe/Berlin", "1970-01-01T04:52:00+00:00"),
        ("dd.MM.yyyy", "31.02.2026", None),
        ("dd.MM.yyyy", "1.2.2026", None),
    ],
)
def test_times_by_a_pattern(pattern: str, text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match=r"there is no|is not like"):
            micros(text, pattern)
    else:
        assert micros(text, pattern).isoformat() == expected


def test_patterns_count_for_their_columns() -> None:
    payload = json.dumps({"at": "23.11.2026", "n": "2026|11", "on": "11/23/26"}).encode()
    said = {"timestampFormat": "dd.MM.yyyy", "timestampNTZFormat": "yyyy|MM", "dateFormat": "MM/dd/yy"}
    (found,) = values("at timestamp, n timestamp_ntz, on date", payload, timeZone="+02:00", **said)
    assert found["at"] == dt.datetime(2026, 11, 22, 22, tzinfo=UTC)
    assert (found["n"], found["on"]) == (dt.datetime(2026, 11, 1), dt.date(2026, 11, 23))


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


def test_zones_are_those_of_java() -> None:
    offsets = {"Z": 0, "UTC": 0, "+1": 3600, "-0330": -12600, "+01:02:03": 3723, "GMT+2": 7200, "EST": -18000}
    assert {name: zone_of(name) for name in offsets} == {name: Fixed(offset) for name, offset in offsets.items()}
    for name in ("", "z", "+18:01", "+100", "Nowhere/City", "posixrules", "../etc"):
        with pytest.raises(ValueError, match="is no"):
            zone_of(name)
    assert zone_of("Europe/Berlin").offset_s(100_000 * 365 * 86_400) in (3600, 7200)


def test_dates_of_before_and_after() -> None:
    days = DateFormat().days
    assert [days("1970-01-02"), days("0000-01-01"), days("-5"), days("2026-11-23 x")] == [1, -719_528, -5, 20_780]
    assert days("-10000000") == -9_999_807
    assert [days("5881580-07-11"), days("-5877641-06-23")] == [2**31 - 1, -(2**31)]
    for text in ("2026-13-01", "5881580-07-12", "-5877641-06-22"):
        with pytest.raises(ValueError, match="is no date"):
            days(text)
    with pytest.raises(ValueError, match="without a zone"):
        LocalFormat().micros("2026-11-23T00:00:00Z")


def test_numbers_and_texts_are_spelled_as_in_java() -> None:
    doubles = {"1": "1.0", "0.001": "0.001", "1e-4": "1.0E-4", "9999999": "9999999.0", "1e7": "1.0E7", "-0.0": "-0.0"}
    doubles |= {"4.9e-324": "4.9E-324", "1e23": "1.0E23", "123456.789e3": "1.23456789E8", "1e999": '"Infinity"'}
    assert {text: spelled_double(text) for text in doubles} == doubles
    assert single("1.00000005960464477540") == 1.0000001192092896
    assert single("1.00000005960464477539") == 1.0
    assert plain_text("\ud83d\ude00 \ud83d!") == "\U0001f600 ?!"
