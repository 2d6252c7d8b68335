"""Values of answers as JSON, as CSV and for a person."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from natsctl.cli.render.spark_reports import csv_text
from natsctl.spark.sql.result import Result, json_value, of_arrow, shown

NOON = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)


def test_values_become_json_that_can_be_read_back() -> None:
    assert json_value(b"text \xc3\xa9") == "text é"
    assert json_value(b"\xff\x00") == {"base64": "/wA="}
    assert json_value(float("nan")) == "NaN"
    assert json_value(NOON) == "2026-01-31T12:00:00.000005Z"
    assert json_value([("k", b"v"), ("l", None)]) == {"k": "v", "l": None}
    assert json_value([{"key": "a", "value": b"\xfe"}]) == [{"key": "a", "value": {"base64": "/g=="}}]
    assert (json_value(Decimal("1.50")), json_value(date(2026, 1, 31)), json_value(True)) == (
        "1.50",
        "2026-01-31",
        True,
    )


def test_columns_of_one_name_are_told_apart() -> None:
    assert Result(["a", "a", "a_2"], [(1, 2, 3)]).documents() == [{"a": 1, "a_2": 2, "a_2_2": 3}]


def test_csv_quotes_what_must_be_and_marks_bytes_that_are_no_text() -> None:
    found = Result(["a", "b"], [('say "hi", ok', b"\xff"), (None, [1])])
    assert csv_text(found) == 'a,b\n"say ""hi"", ok",base64:/w==\n,[1]'


def test_headers_and_bytes_are_shown_as_they_are_read() -> None:
    assert shown([{"key": "Color", "value": b"red"}, {"key": "Size", "value": b"\xff"}]) == "Color: red, Size: \\xff"
    assert (shown(None), shown(b"plain"), shown(NOON)) == ("null", "plain", "2026-01-31 12:00:00.000005Z")


def test_texts_of_any_bytes_have_marks_for_what_is_no_text() -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    data = pa.array([b"a\x80", None, "ż".encode()], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 3, data.buffers(), data.null_count)
    nested = pa.StructArray.from_arrays([texts, data, pa.array([1, 2, 3])], ["text", "bytes", "number"])
    listed = pa.ListArray.from_arrays([0, 1, 3, 3], texts)
    mapped = pa.MapArray.from_arrays([0, 1, 1, 1], pa.array(["k"]), texts.slice(0, 1))
    table = pa.table({"text": texts, "nested": nested, "listed": listed, "mapped": mapped})
    found = of_arrow(table)
    assert list(found.rows[0]) == [
        "a\ufffd", {"text": "a\ufffd", "bytes": b"a\x80", "number": 1}, ["a\ufffd"], [("k", "a\ufffd")],
    ]  # fmt: skip
    assert [row[0] for row in found.rows] == ["a\ufffd", None, "ż"]
