"""What is told of a statement before any Spark is started."""

from __future__ import annotations

import pytest

from natsctl.api.errors import UsageError
from natsctl.spark.sql.catalogue import Catalogue
from natsctl.spark.sql.queries import UnknownTableError, check_changes_nothing, check_named, listed, unknown_table

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


@pytest.mark.parametrize(
    "text",
    [
        "create temp view orders as select 1",
        "select 1; CREATE OR REPLACE TEMPORARY VIEW if not exists `my-stream` (a) as x",
    ],
)
def test_no_view_takes_the_name_of_a_stream(text: str) -> None:
    with pytest.raises(UsageError, match=r"there is a stream (orders|my-stream) already"):
        check_changes_nothing(text, CATALOGUE)


@pytest.mark.parametrize(
    "text",
    [
        "drop view v",
        "create temp view v as select * from ORDERS",
        "create temp view",
        "insert into v select * from ORDERS",
        "drop",
    ],
)
def test_what_a_query_made_itself_is_its_own(text: str) -> None:
    check_changes_nothing(text, CATALOGUE)


@pytest.mark.parametrize(
    "text", ["select seq from ORDES", "SELECT * FROM my-strem m where seq > 1;", "select 1 from `a b`"]
)
def test_a_table_that_cannot_be_there_is_told_at_once(text: str) -> None:
    with pytest.raises(UnknownTableError, match="there is no stream, bucket or view"):
        check_named(text, CATALOGUE, suggest)


def test_a_stream_that_a_query_names_in_a_text_is_not_said_to_be_missing() -> None:
    told = unknown_table("my-stream", CATALOGUE, suggest)
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
    assert found is not None
    assert ("ORDERS$subjects", "subjects") in found.rows
    assert ("config", "bucket") in found.rows
    assert listed("show tables in x", CATALOGUE) is None
    assert listed("select 1", CATALOGUE) is None
