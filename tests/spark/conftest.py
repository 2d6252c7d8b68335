"""One Spark session for all tests of a process, where PySpark and a Java are there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from natsctl.spark.session import SparkOptions, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_TIMEOUT_S = 300
"""A session starts in ten seconds alone, and in a minute while everything else on two cores is tested too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of Spark the time that they need on a busy machine."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores of this machine; what it writes by itself goes to a folder of the tests."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        pytest.skip("the extra `spark` is not installed")
    folder = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
    }
    with _no_contexts(folder), open_session(SparkOptions(master="local[2]", conf=tuple(conf.items()))) as session:
        yield session


@contextmanager
def _no_contexts(folder: Path) -> Iterator[None]:
    """The environment without the user's contexts and servers, for the processes that Spark starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("NATS_")]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        yield
