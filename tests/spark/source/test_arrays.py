"""Batches are what PySpark wants of a schema, whatever was stored."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from natsctl.spark.source import arrays
from natsctl.spark.source.arrays import binary_array, int_array
from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.rows import Rows, RowShape, default_schema, row_shape
from tests.spark.source.reads import parsed_schema, said, shape

HEADERS = b"NATS/1.0\r\nA: b\r\nA:c: d\r\nEmpty:\r\n\r\n"
TIME_NS = 1_600_000_000_123_456_789


def rows(*values: bytes, headers: bytes = b"") -> Rows:
    count = len(values)
    return Rows(
        int_array(list(range(1, count + 1))), int_array([TIME_NS] * count), [b"a.b"] * count, [headers] * count, values
    )


def values(wanted: RowShape, *payloads: bytes) -> list[Any]:
    batch = wanted.batch("S", rows(*payloads))
    batch.validate(full=True)
    found: list[Any] = batch.column("value").to_pylist()
    return found


def test_a_message_is_a_row() -> None:
    batch = shape().batch("S", rows(b"\xff\x00", headers=HEADERS))
    batch.validate(full=True)
    pairs = [{"key": "A", "value": b"b"}, {"key": "A", "value": b"c: d"}, {"key": "Empty", "value": b""}]
    moment = dt.datetime(2020, 9, 13, 12, 26, 40, 123456, tzinfo=dt.UTC)
    assert batch.to_pylist() == [
        {"stream": "S", "seq": 1, "subject": "a.b", "timestamp": moment, "headers": pairs, "value": b"\xff\x00"}
    ]


@pytest.mark.parametrize(
    "ddl", ["", "value binary, seq bigint", "stream string", "headers array<struct<key: string, value: binary>>"]
)
def test_batches_have_the_schema_that_pyspark_holds_them_to(ddl: str) -> None:
    schema = parsed_schema(ddl) if ddl else default_schema(said())
    batch = shape(ddl).batch("S", rows(b"x"))
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))


def test_columns_are_found_in_any_case_and_none_are_rows_too() -> None:
    assert shape("SEQ bigint, Value string").batch("S", rows(b"x")).to_pylist() == [{"SEQ": 1, "Value": "x"}]
    assert row_shape(StructType([]), said()).batch("S", rows(b"x", b"y")).num_rows == 2


def test_headers_are_null_where_there_are_none_or_none_are_wanted() -> None:
    blocks = [b"", HEADERS, b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nnothing\r\nA: b\r\n\r\n"]
    some = Rows(int_array([1, 2, 3, 4]), int_array([0] * 4), [b"a"] * 4, blocks, [b""] * 4)
    batch = shape().batch("S", some)
    batch.validate(full=True)
    assert [each and len(each) for each in batch.column("headers").to_pylist()] == [None, 3, None, 1]
    unwanted = shape(includeHeaders="false")
    assert not unwanted.wants_headers
    assert unwanted.batch("S", some).column("headers").to_pylist() == [None] * 4


def test_the_native_module_finds_the_same_headers() -> None:
    blocks = [
        b"x",
        b"",
        HEADERS,
        b"NATS/1.0\r\n\r\n",
        b"A: b",
        b"\r\n:\r\n\xff: \xff",
        b"NATS/1.0\r\n\t a\t:\t b \r\nc:\r",
    ]
    kind = shape().arrow_schema.field("headers").type
    for column in (binary_array(blocks), binary_array(blocks)[2:6], binary_array(blocks)[:0]):
        lists = arrays.header_column(column, kind)
        lists.validate(full=True)
        assert lists.equals(arrays._headers(column, kind))


def test_text_that_is_none_has_marks_in_place_of_what_is_wrong() -> None:
    assert values(shape(valueFormat="text"), "ä".encode(), b"\xff!", b"") == ["ä", "�!", ""]


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("subjct string", "did you mean subject"),
        ("seq string", "seq is bigint"),
        ("value array<int>", "value is binary"),
        ("seq bigint, SEQ bigint", "twice"),
        ("nothing int", "there are stream, seq"),
        ("headers array<struct<key: string, value: binary>> not null", "headers is declared NOT NULL"),
        ("value struct<id: bigint>", r"json_table\(spark, 'ORDERS', 'struct<id:bigint>'\)"),
    ],
)
def test_columns_that_cannot_be_are_told(ddl: str, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        shape(ddl)


# Columns of buffers


def test_columns_are_the_same_beside_pandas_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [b"a", b"", b"ccc"]
    arrow_array = pa.array
    monkeypatch.setattr(arrays.sys, "modules", {"pandas": None})
    beside = binary_array(data)
    monkeypatch.setattr(arrays.sys, "modules", {})
    monkeypatch.setattr(pa, "array", None)
    without = binary_array(data)
    monkeypatch.undo()
    assert beside.equals(without)
    assert without.equals(arrow_array(data, pa.binary()))
    without.validate(full=True)
