"""What statements leave behind: which tables later ones must find whole, and which as they were cached."""

from __future__ import annotations

import pytest

from natsctl.spark.sql.catalogue import Catalogue
from natsctl.spark.sql.queries import tables_of
from natsctl.spark.sql.views import Left

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
