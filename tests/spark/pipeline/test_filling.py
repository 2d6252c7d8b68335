"""Flows into tables of files: Spark would leave rows out where another flow has filled them."""

from __future__ import annotations

from pathlib import Path

import pytest

from natsctl.spark.pipeline.checkpoints import Progress
from natsctl.spark.pipeline.graph import Filling, TableName, left_by_others, shared, table_name


def filling(flow: str, table: TableName = ("default", "kept"), line: int = 1) -> Filling:
    return Filling(flow, table, "a.sql", line)


def begun(checkpoints: Path, flow: str, batch: int) -> Progress:
    """A flow of the table `kept` that has begun that batch."""
    folder = checkpoints / "spark_catalog" / "default" / "kept" / flow / "0"
    return Progress(flow, "kept", folder, batch, batch, 0, {})


def log(table: Path, *batches: str) -> None:
    (table / "_spark_metadata").mkdir(parents=True)
    for name in batches:
        (table / "_spark_metadata" / name).touch()


def test_a_second_flow_into_a_table_is_a_fault() -> None:
    (fault,) = shared([filling("one"), filling("other", ("default", "else")), filling("two", line=7)])
    assert str(fault).startswith("a.sql:7: two: kept has the flow one")
    (fault,) = shared([filling("more"), filling("kept", line=7)])
    assert str(fault).startswith("a.sql:1: more: kept has the flow kept")


@pytest.mark.parametrize(
    ("flow", "batches", "told"),
    [
        ("kept", ("0", ".0.crc", "1"), False),
        ("Kept", ("9.compact", "10"), True),
        ("KEPT", ("0",), False),
        ("renamed", ("0",), True),
        ("renamed", (), False),
    ],
)
def test_a_flow_does_not_go_on_behind_batches_that_it_has_not_made(
    tmp_path: Path, flow: str, batches: tuple[str, ...], told: bool
) -> None:
    log(tmp_path / "tables" / "kept", *batches)
    faults = [*left_by_others([filling(flow)], tmp_path / "tables", [begun(tmp_path / "storage", "kept", 1)])]
    assert [fault.hint for fault in faults] == (["--full-refresh kept fills it anew"] if told else [])


def test_tables_of_one_name_in_two_databases_are_two(tmp_path: Path) -> None:
    log(tmp_path / "Sales.db" / "kept", "0")
    here, there = filling("kept", table_name(["kept"], None)), filling("kept", table_name(["Sales", "Kept"], None))
    assert [*shared([here, there])] == []
    assert [*left_by_others([here], tmp_path, [])] == []
    assert len([*left_by_others([there], tmp_path, [])]) == 1


def test_a_name_without_a_database_is_of_the_projects() -> None:
    assert table_name(["T"], "Sales") == table_name(["spark_catalog", "sales", "t"], None) == ("sales", "t")
