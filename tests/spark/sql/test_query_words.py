"""What a query names: its tables, also those that Spark could not spell, and the columns that it can need."""

from __future__ import annotations

import pytest

from natsctl.api.errors import UsageError
from natsctl.spark.sql.catalogue import STREAM_COLUMNS, Catalogue, is_query, needed
from natsctl.spark.sql.relations import quoted, reads_once, relations, split_statements


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


def test_names_that_spark_would_refuse_are_written_in_backticks_and_nothing_else_is_changed() -> None:
    query = "select a-b, 'my-stream' from my-stream m, x where m.seq in (select seq from `my-stream`) -- my-stream"
    assert quoted(query, {"my-stream"}.__contains__) == (
        "select a-b, 'my-stream' from `my-stream` m, x where m.seq in (select seq from `my-stream`) -- my-stream"
    )


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
    with pytest.raises(UsageError, match="no case of letters"):
        catalogue.find_all(["Mixed", "MIXED"])


def test_statements_end_at_semicolons_outside_of_texts() -> None:
    assert split_statements("set a = ';'; -- no;\nselect 1;;") == ["set a = ';'", "-- no;\nselect 1"]


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


@pytest.mark.parametrize(
    ("statement", "asks"),
    [("(select 1)", True), ("show views", True), ("create temp view v as select 1", False), ("cache table A", False)],
)
def test_statements_that_may_leave_views_behind_are_known(statement: str, asks: bool) -> None:
    assert is_query(statement) is asks
