"""What sessions of Spark Connect have in common, in a Spark such as runs in background."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from natsctl.spark.session.connect import Remote, has_source, remote_session
from natsctl.spark.session.doctor import MESSAGES, write_backup
from natsctl.spark.session.spark_options import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.skipif(find_spec("grpc") is None, reason="the extra `pipelines` is not installed"),
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are looked for in /proc"),
]


@pytest.fixture
def served(spark: SparkSession) -> Iterator[Remote]:
    """The Spark of the tests as a server."""
    machine = cast(Any, spark)._jvm
    context = cast(Any, spark.sparkContext)._jsc.sc()
    settings = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
    for key, value in settings.items():
        context.conf().set(key, value)
    service = getattr(getattr(machine.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    service.start(context)
    try:
        yield Remote(f"sc://127.0.0.1:{service.localPort()}", has_source=True)
    finally:
        nothing = getattr(getattr(machine.scala, "None$"), "MODULE$")
        service.stop(nothing, nothing)


def test_a_second_session_starts_no_python_process(spark: SparkSession, served: Remote, tmp_path: Path) -> None:
    write_backup(tmp_path)
    java = cast(Any, spark)._jvm.java.lang.ProcessHandle.current().pid()
    daemons = []
    for _ in range(2):
        with remote_session(served, SparkOptions()) as session:
            assert has_source(session), "the data source is known without being sent"
            table = session.read.format("jetstream").schema("seq bigint").option("backup", str(tmp_path)).load()
            assert table.where("seq > 1").count() == MESSAGES - 1
        daemons.append(children(java))
    assert daemons[0]
    assert daemons[1] == daemons[0]


def children(pid: int) -> set[int]:
    """The processes that a process has started."""
    while True:
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        with suppress(OSError):  # of a thread that has ended meanwhile, whose children another one has now
            return {int(word) for task in tasks for word in task.read_text().split()}
