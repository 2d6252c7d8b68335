"""Queries that the server answers: which are understood, and that what is not is left to Spark.

What statements leave behind: which tables later ones must find whole, and which as they were cached.
"""

import pytest

from natsctl.spark.counted_queries import Facts, counted
from natsctl.spark.sql_queries import tables_of
from natsctl.spark.sql_tables import Catalogue, Left

FACTS = Facts(6, 1, 9, {"a": 3, "b": 1, "c": 2})


@pytest.mark.parametrize(
    ("query", "columns", "rows"),
    [
        ("select count(*) from S", ["count(1)"], [(6,)]),
        ("SELECT COUNT(1) AS n FROM S;", ["n"], [(6,)]),
        ("select count(seq), count(distinct subject) from S", ["count(seq)", "count(DISTINCT subject)"], [(6, 3)]),
        ("select min(seq) a, max(seq) from S", ["a", "max(seq)"], [(1, 9)]),
        ("select subject, count(*) from S group by 1", ["subject", "count(1)"], [("a", 3), ("b", 1), ("c", 2)]),
        ("select count(*) n, subject s from S group by subject order by n desc limit 2", ["n", "s"],
         [(3, "a"), (2, "c")]),
        ("select subject from S group by all order by count(*)", None, None),
        ("select subject, count(*) from S group by subject order by count(*) asc", ["subject", "count(1)"],
         [("b", 1), ("c", 2), ("a", 3)]),
        ("select subject from S group by 1 order by 1 desc", ["subject"], [("c",), ("b",), ("a",)]),
        ("select count(*) from S limit 0", ["count(1)"], []),
    ],
)  # fmt: skip
def test_counts_are_answered_as_spark_would(query: str, columns: list[str] | None, rows: list[tuple[object]]) -> None:
    found = counted(query)
    if columns is None:
        assert found is None
    else:
        assert (found.columns, found.answer(FACTS)) == (columns, rows)


def test_an_empty_stream_has_no_ends_and_subjects_are_ordered_by_their_bytes() -> None:
    found = counted("select min(seq), max(seq), count(*), count(distinct subject) from S")
    assert found.answer(Facts(0)) == [(None, None, 0, 0)]
    found = counted("select subject from S group by subject order by subject")
    assert found.answer(Facts(2, subjects={"é": 1, "z": 1, "\U0001f600": 1})) == [("z",), ("é",), ("\U0001f600",)]


@pytest.mark.parametrize(
    "query",
    [
        "select * from S",
        "select count(*) from S where seq > 1",
        "select count(*) from S where subject = 'a'",
        "select distinct subject from S",
        "select count(*) from S, T",
        "select count(*) from S s",
        "select count(*) + 1 from S",
        "select count(headers) from S",
        "select max(seq) from S where subject = 'a'",
        "select subject, max(seq) from S group by 1",
        "select subject, count(*) from S",
        "select subject, count(*) from S group by 2",
        "select subject, count(*) from S group by 1 having count(*) > 1",
        "select count(*) from S group by 1",
        "select distinct count(*) from S",
        "select count(*) from (select * from S)",
        "select count(*) from S tablesample (10 percent)",
        "select count(*) from S; select 1",
        "select subject, count(*) from S group by 1 order by 2 nulls last",
        "select subject, count(*) from S group by 1 order by 3",
        "with S as (select 1) select count(*) from S",
        "select count(distinct seq) from S",
        "select count(*) from S union select 1",
        "selec count(*) from S",
        "",
    ],
)
def test_whatever_else_is_asked_is_left_to_spark(query: str) -> None:
    assert counted(query) is None


CATALOGUE = Catalogue(["ORDERS", "OTHER"])


def after(*statements: str) -> Left:
    left = Left()
    for statement in statements:
        left.note(tables_of(statement, CATALOGUE), statement)
    return left


@pytest.mark.parametrize(
    ("before", "query", "names"),
    [
        ("set a.b=1", "select count(*) from v", []),
        ("create temp view v as select * from ORDERS", "select seq from v", ["ORDERS"]),
        ("create temp view v as select * from ORDERS", "select seq from OTHER join v using (seq)", ["ORDERS"]),
        ("create temp view v as select * from ORDERS", "create temp view w as select * from OTHER", ["ORDERS"]),
        ("create temp view v as select * from ORDERS", "select max(seq) from orders", []),
        ("create temp view v as select * from ORDERS", "select 1 from ORDERS, identifier('v')", ["ORDERS"]),
        ("create temp function f() return select max(seq) from ORDERS", "select f() from OTHER", ["ORDERS"]),
    ],
)
def test_tables_are_whole_only_where_a_statement_may_read_them_through_a_view(
    before: str, query: str, names: list[str]
) -> None:
    assert [table.name for table in after(before).behind(tables_of(query, CATALOGUE), query)] == names


@pytest.mark.parametrize(
    ("statements", "kept"),
    [
        ("create temp view v as select * from ORDERS", ""),
        ("cache table Orders", "orders"),
        ("cache lazy table c as select seq from ORDERS", "orders"),
        ("create temp view v as select * from ORDERS; create temp view w as select * from v; cache table w", "orders"),
        ("create temp view v as select * from ORDERS; cache table c as select * from v", "orders"),
        ("create temp view v as select * from ORDERS; cache table OTHER", "other"),
        ("cache table ORDERS; cache table OTHER; uncache table ORDERS", "other"),
        ("cache table ORDERS; uncache table if exists `orders`", ""),
        ("cache table ORDERS; clear cache", ""),
        ("cache table ORDERS; refresh table ORDERS", ""),
    ],
)
def test_tables_stay_as_they_were_while_what_was_read_from_them_is_cached(statements: str, kept: str) -> None:
    assert after(*statements.split("; ")).kept() == set(kept.split())
