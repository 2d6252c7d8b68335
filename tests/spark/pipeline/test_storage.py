"""The storage of a pipeline under the name that Spark is told."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from natsctl.spark.paths import local_path, spark_path
from natsctl.spark.pipeline.project import PipelineError, Project, find_project
from natsctl.spark.pipeline.scaffold import write_project
from natsctl.spark.pipeline.update import named_storage


def project(folder: Path) -> Project:
    write_project(folder, "ORDERS")
    return find_project(folder)


def spark(master: str) -> Any:
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: master))


def test_a_name_that_spark_keeps_is_told_as_it_is(tmp_path: Path) -> None:
    made = project(tmp_path / "zażółć-1_2")
    with named_storage(spark("spark://elsewhere:7077"), made) as told:
        assert told == made.storage == spark_path(tmp_path / "zażółć-1_2" / "storage")


@pytest.mark.parametrize("name", ["a b", "50%20", "a#b", "a?b", "a[1]"])
def test_any_other_is_reached_through_a_link_while_it_is_needed(tmp_path: Path, name: str) -> None:
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
