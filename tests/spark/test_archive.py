"""A backup as a table of Spark's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.source.backups import lay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RELEASES = Path(__file__).parents[1] / "jetstream" / "data" / "releases"


def test_spark_reads_a_backup_with_nothing_but_its_path(spark: SparkSession, tmp_path: Path) -> None:
    state = json.loads((RELEASES / "2.15.2.json").read_text())["state"]
    path = lay(tmp_path / "b", (RELEASES / "2.15.2.s2").read_bytes(), state)

    table = spark.read.format("jetstream").option("backup", str(path)).load()
    found = table.selectExpr("count(*)", "min(seq)", "count(distinct subject)").collect()[0]

    assert tuple(found)[:2] == (state["messages"], state["first_seq"])
    assert found[2] == state["num_subjects"]
    assert table.where("seq < 0").count() == 0
    assert [row.stream for row in table.where(f"seq = {state['first_seq']}").collect()] == ["S"]


def test_a_command_hands_on_where_a_backup_is_whatever_folder_spark_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from natsctl.cli import sql

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sql, "backups_by_stream", lambda path: {"ORDERS": path / "orders"})
    found = sql.BackupTables(Path("saved")).options({}, "ORDERS")
    assert found == {"backup": str(tmp_path / "saved" / "orders")}
