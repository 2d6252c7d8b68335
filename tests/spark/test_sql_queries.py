"""What a query names: its tables, also those that Spark could not spell, and the columns that it can need.

Values of answers as JSON, as CSV and for a person.

What is told of a statement before any Spark is started.
"""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from natsctl.api.errors import NotFoundError, UsageError
from natsctl.cli import sql
from natsctl.cli.render.spark_reports import csv_text
from natsctl.spark.sql_queries import (
    QueryResult,
    check_changes_nothing,
    check_named,
    json_value,
    listed,
    of_arrow,
    shown,
    unknown_table,
)
from natsctl.spark.sql_tables import (
    STREAM_COLUMNS,
    Catalogue,
    is_query,
    needed,
    quoted,
    reads_once,
    relations,
    split_statements,
)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("select * from ORDERS", ["ORDERS"]),
        ("select * from my-stream, `other one` o where a = b", ["my-stream", "other one"]),
        ("select 1 from A a join B-2 b on a.seq = b.seq left join (select * from C) c using (seq)", ["A", "B-2", "C"]),
        ("with x as (select * from ORDERS) select * from x", ["ORDERS", "x"]),
        ("select * from 2024-orders where subject in (select subject from ORDERS$subjects)",
         ["2024-orders", "ORDERS$subjects"]),
        ("select 'from NOT', \"from NEITHER\" -- from COMMENT\n/* from OTHER */ from REAL", ["REAL"]),
        ("select count(*) from range(10)", []),
        ("select * from (A join B on true), C limit 3", ["A", "B", "C"]),
        ("select seq, subject from A order by seq, subject", ["A"]),
        ("describe my-stream", ["my-stream"]),
        ("desc extended A", ["A"]),
        ("describe table extended A", ["A"]),
        ("show columns in A-b", ["A-b"]),
        ("describe function count", []),
        ("describe query select 1 from A", ["A"]),
        ("show tables in A", []),
        ("select 1 from order, select s left join group g on true where true order by 1", ["order", "select", "group"]),
    ],
)  # fmt: skip
def test_tables_are_found_where_tables_stand(query: str, names: list[str]) -> None:
    assert [one.name for one in relations(query)] == names


def test_names_that_spark_would_refuse_are_quoted_and_nothing_else_is_changed() -> None:
    query = "select a-b, 'my-stream' from %s m, x where m.seq in (select seq from `my-stream`) -- my-stream"
    assert quoted(query % "my-stream", {"my-stream"}.__contains__) == query % "`my-stream`"


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("select count(*) from A", ""),
        ("select subject, seq * 2 from A where VALUE is null", "seq subject value"),
        ("select a.`subject`, count( * ) from A a group by 1", "subject"),
        ("select * from A", "all"),
        ("select a.*, 1 from A a", "all"),
        ("select count(distinct *) from A", "all"),
        ("select seq, * from A", "all"),
        ("select seq from A natural join B", "all"),
        ("from A select seq", "all"),
        ("from A |> where seq > 1", "all"),
        ("select seq from A order by seq desc", "seq"),
        ("with x as (select timestamp from A) select max(timestamp) from x", "timestamp"),
        ("describe A", "all"),
    ],
)
def test_no_column_is_left_out_that_a_query_can_need(query: str, columns: str) -> None:
    assert needed(query, STREAM_COLUMNS) == (list(STREAM_COLUMNS) if columns == "all" else columns.split())


def test_a_name_is_a_stream_before_a_bucket_and_its_case_counts_only_where_there_are_several() -> None:
    catalogue = Catalogue(["ORDERS", "KV_config", "KV_ORDERS", "Mixed", "MIXED"])
    assert [catalogue.find(name) and catalogue.find(name).kind for name in ("ORDERS", "config", "orders$SUBJECTS")] == [
        "stream", "bucket", "subjects",
    ]  # fmt: skip
    assert catalogue.find("orders").stream == "ORDERS"
    assert catalogue.find("Mixed").stream == "Mixed"
    assert catalogue.find("nothing") is None
    with pytest.raises(UsageError, match="MIXED or Mixed"):
        catalogue.find("mixed")
    with pytest.raises(UsageError, match="ignores the case of names"):
        catalogue.find_all(["Mixed", "MIXED"])


def test_statements_end_at_semicolons_outside_of_texts() -> None:
    assert split_statements("set a = ';'; -- no;\nselect 1;;") == ["set a = ';'", "-- no;\nselect 1"]
    assert all(map(is_query, ("(select 1)", "show views")))
    assert not any(map(is_query, ("create temp view v as select 1", "cache table A"))), "they leave something behind"


@pytest.mark.parametrize(
    ("query", "once"),
    [
        ("select seq from A where seq < 5", True),
        ("select 1 from A join B on true join (select * from C where seq = 1) c", True),
        ("with x as (select * from A where seq < 5) select * from x", True),
        ("(select seq from A) union all (select seq from B)", True),
        ("select seq from A where seq = 1 union all select seq from a where seq = 2", False),
        ("with x as (select * from A) select * from x join x y", False),
        ("select (select count(*) from A where seq < 5), (select count(*) from A)", False),
        ("select seq from A where seq > (select max(seq) from B where B.seq < A.seq)", False),
        ("select 1 from A, lateral (select max(pair.value) from explode(headers) as t (pair))", False),
    ],
)
def test_a_table_that_spark_may_look_at_twice_is_known(query: str, once: bool) -> None:
    assert reads_once(query) is once


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


def test_headers_and_bytes_are_shown_as_they_are_read() -> None:
    assert shown([{"key": "Color", "value": b"red"}, {"key": "Size", "value": b"\xff"}]) == "Color: red, Size: \\xff"
    assert (shown(None), shown(b"plain"), shown(NOON)) == ("null", "plain", "2026-01-31 12:00:00.000005Z")
    found = QueryResult(["a", "b"], [('say "hi", ok', b"\xff"), (None, [1])])
    assert csv_text(found) == 'a,b\n"say ""hi"", ok",base64:/w==\n,[1]'
    assert QueryResult(["a", "a", "a_2"], [(1, 2, 3)]).documents() == [{"a": 1, "a_2": 2, "a_2_2": 3}]


def test_texts_of_any_bytes_have_marks_for_what_is_no_text() -> None:
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


CATALOGUE = Catalogue(["ORDERS", "my-stream", "KV_config"])


def suggest(name: str, names: list[str]) -> str:
    return f"not one of {len(names)}"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("drop table ORDERS", "natsctl stream rm ORDERS"),
        ("DROP VIEW IF EXISTS `my-stream`", "natsctl stream rm my-stream"),
        ("select 1; insert into my-stream values (1)", "natsctl stream import my-stream"),
        ("insert overwrite table orders select 1", "natsctl stream import ORDERS"),
        ("delete from ORDERS where seq = 1", "natsctl stream purge ORDERS"),
        ("truncate table config", "natsctl stream purge KV_config"),
        ("update ORDERS set seq = 1", "cannot be changed"),
    ],
)
def test_no_statement_changes_a_stream(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="queries change no") as told:
        check_changes_nothing(text, CATALOGUE)
    assert hint in str(told.value.hint)


def test_no_view_takes_the_name_of_a_stream_and_what_a_query_made_itself_is_its_own() -> None:
    for text in ("orders as select 1", "if not exists `my-stream` (a) as x"):
        with pytest.raises(UsageError, match=r"there is a stream (orders|my-stream) already"):
            check_changes_nothing(f"select 1; CREATE OR REPLACE TEMPORARY VIEW {text}", CATALOGUE)
    for text in ("drop view v", "create temp view v as select * from ORDERS", "insert into v select 1", "drop"):
        check_changes_nothing(text, CATALOGUE)


@pytest.mark.parametrize(
    "text", ["select seq from ORDES", "SELECT * FROM my-strem m where seq > 1;", "select 1 from `a b`"]
)
def test_a_table_that_cannot_be_there_is_told_at_once(text: str) -> None:
    with pytest.raises(NotFoundError, match="there is no stream, bucket or view"):
        check_named(text, CATALOGUE, suggest)
    told = unknown_table("my-stream", CATALOGUE, suggest)  # which the query names in a text
    assert (str(told).startswith("my-stream stands where"), told.hint) == (True, "write FROM `my-stream`")


@pytest.mark.parametrize(
    "text",
    [
        "select seq from orders",
        "select 1 from my-stream",
        "select * from values 1, 2",
        "select * from range(3)",
        "select * from parquet.`/x`",
        "select * from spark_catalog.default.t",
        "with t as (select 1) select * from t",
        "create temp view t as select 1; select * from t",
        "select extract(day from timestamp) from ORDERS",
        "select extract(day from x)",
        "select 1 is distinct from x",
        "select * from (select 1) t",
        "select * from x join y",
        "show views",
    ],
)
def test_what_may_be_a_table_is_left_to_spark(text: str) -> None:
    check_named(text, CATALOGUE, suggest)


def test_tables_are_listed() -> None:
    found = listed("show  Tables;", CATALOGUE)
    assert ("ORDERS$subjects", "subjects") in found.rows
    assert ("config", "bucket") in found.rows
    assert listed("show tables in x", CATALOGUE) is None
    assert listed("select 1", CATALOGUE) is None


def test_a_command_tells_spark_where_a_backup_is_in_whatever_folder_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sql, "backups_by_stream", lambda path: {"ORDERS": path / "orders"})
    assert sql.BackupTables(Path("saved")).options({}, "ORDERS") == {"backup": str(tmp_path / "saved" / "orders")}
