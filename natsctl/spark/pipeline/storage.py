"""The storage of a pipeline under a name that Spark keeps as it is.

Of a path with a space or another sign that URLs escape, Spark's pipelines make the escaped one, and would write
checkpoints to a folder beside the project. On this machine they are given a link to it for the while.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from natsctl.spark.paths import local_path, spark_path
from natsctl.spark.pipeline.faults import Fault, PipelineFaults
from natsctl.spark.session.sessions import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from natsctl.spark.pipeline.project import Project

_ESCAPED: Final = re.compile(r"[\s\x00-\x1f\x7f\"<>\[\]{}|\\^`%#?]")
_HERE: Final = ("localhost", "127.0.0.1")


@contextlib.contextmanager
def named_storage(spark: SparkSession, project: Project) -> Iterator[str]:
    """The storage's URL for an update. Raises PipelineFaults where it is on another machine, under no such name."""
    folder = local_path(project.storage)
    if folder is None or not _ESCAPED.search(project.storage):
        yield project.storage
        return
    if not _is_here(spark):
        told = f"storage: Spark elsewhere keeps no checkpoints in {folder}: its name has signs that URLs escape"
        raise PipelineFaults([Fault(project.specification.name, 1, told)])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="natsctl-pipeline-") as place:
        link = Path(place) / "storage"
        link.symlink_to(folder, target_is_directory=True)
        yield spark_path(link)


def _is_here(spark: SparkSession) -> bool:
    """Whether drivers and tasks of the session run on this machine."""
    if is_remote(spark) and cast(Any, spark).client.host not in _HERE:
        return False
    return (spark.conf.get("spark.master", "") or "").startswith("local")
