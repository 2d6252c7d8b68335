"""Queries that the server answers: which are understood, and that what is not is left to Spark."""

from __future__ import annotations

import pytest

from natsctl.spark.sql.counted import Facts, counted

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
        ("select distinct subject from S order by 1 desc", ["subject"], [("c",), ("b",), ("a",)]),
        ("select count(*) from S where subject = 'a'", ["count(1)"], [(3,)]),
        ("select subject, count(*) from S where subject in ('a', 'x', 'b', 'a') group by 1", ["subject", "count(1)"],
         [("a", 3), ("b", 1)]),
        ("select count(*) from S where subject = 'x'", ["count(1)"], [(0,)]),
        ("select subject, count(*) from S where subject = 'x' group by 1", ["subject", "count(1)"], []),
        ("select count(*) from S limit 0", ["count(1)"], []),
    ],
)  # fmt: skip
def test_counts_are_answered_as_spark_would(query: str, columns: list[str] | None, rows: list[tuple[object]]) -> None:
    found = counted(query)
    if columns is None:
        assert found is None
    else:
        assert found is not None
        assert (found.columns, found.answer(FACTS)) == (columns, rows)


@pytest.mark.parametrize(
    "query",
    [
        "select * from S",
        "select count(*) from S where seq > 1",
        "select count(*) from S where subject = 'a.*'",
        "select count(*) from S where subject = 'it''s'",
        "select count(*) from S where subject = 'a' or true",
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


def test_an_empty_stream_has_no_first_and_no_last() -> None:
    found = counted("select min(seq), max(seq), count(*), count(distinct subject) from S")
    assert found is not None
    assert found.answer(Facts(0)) == [(None, None, 0, 0)]


def test_subjects_are_ordered_by_their_bytes() -> None:
    found = counted("select subject from S group by subject order by subject")
    assert found is not None
    assert found.answer(Facts(2, subjects={"é": 1, "z": 1, "\U0001f600": 1})) == [("z",), ("é",), ("\U0001f600",)]
