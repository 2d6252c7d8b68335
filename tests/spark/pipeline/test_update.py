"""Flows into tables of files: Spark would leave rows out where another flow has filled them.

The storage of a pipeline under the name that Spark is told.
"""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from natsctl.spark.files.file_formats import local_path, spark_path
from natsctl.spark.pipeline.checkpoints import CheckpointProgress
from natsctl.spark.pipeline.graph import Filling, TableName, left_by_others, shared, table_name
from natsctl.spark.pipeline.project import PipelineError, Project, find_project, write_project
from natsctl.spark.pipeline.update import named_storage


def filling(flow: str, table: TableName = ("default", "kept"), line: int = 1) -> Filling:
    return Filling(flow, table, "a.sql", line)


def begun(checkpoints: Path, flow: str, batch: int) -> CheckpointProgress:
    """A flow of the table `kept` that has begun that batch."""
    folder = checkpoints / "spark_catalog" / "default" / "kept" / flow / "0"
    return CheckpointProgress(flow, "kept", folder, batch, batch, 0, {})


def log(table: Path, *batches: str) -> None:
    (table / "_spark_metadata").mkdir(parents=True)
    for name in batches:
        (table / "_spark_metadata" / name).touch()


def test_a_second_flow_into_a_table_is_a_fault() -> None:
    (fault,) = shared([filling("one"), filling("other", ("default", "else")), filling("two", line=7)])
    assert str(fault).startswith("a.sql:7: two: kept has the flow one")
    (fault,) = shared([filling("more"), filling("kept", line=7)])
    assert str(fault).startswith("a.sql:1: more: kept has the flow kept")


def test_tables_of_one_name_in_two_databases_are_two(tmp_path: Path) -> None:
    assert table_name(["T"], "Sales") == table_name(["spark_catalog", "sales", "t"], None) == ("sales", "t")
    log(tmp_path / "Sales.db" / "kept", "0")
    here, there = filling("kept", table_name(["kept"], None)), filling("kept", table_name(["Sales", "Kept"], None))
    assert [*shared([here, there]), *left_by_others([here], tmp_path, [])] == []
    assert len([*left_by_others([there], tmp_path, [])]) == 1


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
    assert [fault.hint for fault in faults] == (["--full-refresh kept refills it"] if told else [])


def project(folder: Path) -> Project:
    write_project(folder, "ORDERS")
    return find_project(folder)


def spark(master: str) -> Any:
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: master))


@pytest.mark.parametrize("name", ["a b", "50%20", "a#b", "a?b", "a[1]"])
def test_any_other_is_reached_through_a_link_while_it_is_needed(tmp_path: Path, name: str) -> None:
    kept = project(tmp_path / "zażółć-1_2")
    with named_storage(spark("spark://elsewhere:7077"), kept) as told:
        assert told == kept.storage == spark_path(tmp_path / "zażółć-1_2" / "storage")
    with named_storage(spark("local[2]"), project(tmp_path / name)) as told:
        place = cast(Path, local_path(told))
        assert name not in told
        (place / "_checkpoints").mkdir()
    assert (tmp_path / name / "storage" / "_checkpoints").is_dir()
    assert not place.exists()


def test_a_cluster_is_not_told_of_a_folder_that_it_would_not_use(tmp_path: Path) -> None:
    with pytest.raises(PipelineError), named_storage(spark("spark://elsewhere:7077"), project(tmp_path / "a b")):
        pass
    elsewhere = dataclasses.replace(project(tmp_path / "c d"), storage="s3a://bucket/a b")
    with named_storage(spark("spark://elsewhere:7077"), elsewhere) as told:
        assert told == "s3a://bucket/a b"
