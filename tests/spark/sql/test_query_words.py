"""What a query names: its tables, also those that Spark could not spell, and the columns that it can need."""

from __future__ import annotations

import pytest

from natsctl.api.errors import UsageError
from natsctl.spark.sql.catalogue import STREAM_COLUMNS, Catalogue
from natsctl.spark.sql.columns import needed
from natsctl.spark.sql.relations import quoted, relations
from natsctl.spark.sql.text import split_statements


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
