"""A Spark session for all tests of a process, and requests to the servers that they share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from natsctl.spark.session import SparkOptions, open_session
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.link import Link
from natsctl.testing.process import ServerProcess
from tests.support import spark_starts
from tests.support.servers import server, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["server", "started"]
SPARK_TIMEOUT_S = 300
"""A session starts in ten seconds alone, and in a minute on a machine with much else to do."""
INSTALLED = find_spec("pyspark") is not None and find_spec("pyarrow") is not None


class WithoutSpark(pytest.Module):
    def collect(self) -> list[pytest.Item]:
        pytest.skip("the extra `spark` is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return None if INSTALLED else WithoutSpark.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of Spark the time that they need on a busy machine."""
    for item in items:
        needs_spark = "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("spark")
        if needs_spark and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores of this machine; what it writes by itself goes to a folder of the tests."""
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
        patch.setenv("XDG_CACHE_HOME", str(spark_starts.CACHE_HOME))
        yield


@pytest.fixture
def settings(server: ServerProcess) -> ServerSettings:
    return ServerSettings(urls=(server.url,), retries=3, retry_interval_s=0.05, timeout_s=30.0)


@pytest.fixture
def api(settings: ServerSettings) -> Iterator[JetStreamApi]:
    with Link.open(settings) as link:
        yield JetStreamApi(link, settings)
