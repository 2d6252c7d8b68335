"""Commands and programs on a standalone cluster and its Spark Connect server, with a worker killed in the middle.

The cluster is a master and two workers, and the Python of its executors has pyspark and pyarrow and not natsctl. Each
worker is killed with signal 9, and all below it, while its task waits at a gate before the server: it has read or
written part of its messages and cannot end. What a job read or wrote is then compared message by message.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from natsctl.testing.process import ServerProcess
from tests.support import spark_starts
from tests.support.kill_loop import api
from tests.support.raw_client import RawClient
from tests.support.spark_cluster import Gate, StandaloneCluster
from tests.support.spark_kills import SINK, SOURCE, prepare, published, read_all

LONG_S: Final = 900
"""Each job starts a Spark of its own, in half a minute on a busy machine."""
MESSAGES: Final = 22_000
"""Enough for two tasks of a read."""
HOLD_AFTER_BYTES: Final = 300_000
"""What a task reads or writes until it waits: a part of its messages, and more than the driver's requests need."""
ROWS: Final = [[number, *map(bytes.decode, published(number))] for number in range(1, MESSAGES + 1)]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(LONG_S),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes and their connections in /proc"),
]

PROGRAM: Final = """
import json, sys
from pathlib import Path
from natsctl.spark.session import SparkOptions, open_session
from pyspark.sql import SparkSession

read_from, server, written_to, rows, *remote = sys.argv[1:]

def messages(spark, servers):
    reader = spark.read.format("jetstream").options(servers=servers, maxRecordsPerPartition=11_000)
    return reader.load("SPARK_IN").selectExpr("seq", "subject", "string(value) AS value")

plain = SparkSession.builder.remote(remote[0]).getOrCreate() if remote else SparkSession.builder.getOrCreate()
try:
    messages(plain, read_from).collect()
except Exception as failure:
    print(failure)
with open_session() as spark:
    Path(rows).write_text(json.dumps([list(row) for row in messages(spark, read_from).collect()]))
plain.stop()
with open_session(SparkOptions(remote="".join(remote))) as spark:
    copies = messages(spark, server).selectExpr("replace(subject, 'in.', 'out.') AS subject", "value")
    copies.write.format("jetstream").options(servers=written_to).mode("append").save("SPARK_OUT")
"""
NOT_FOUND: Final = (
    "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: jetstream. Make sure the provider name is correct and the "
    "package is properly registered and compatible with your Spark version."
)
PAGE: Final = Path(__file__).parents[2] / "docs" / "spark-where.md"
PROJECT: Final = {
    "spark-pipeline.yml": "name: copy\nstorage: storage\nlibraries: [{{glob: {{include: copy.sql}}}}]\n",
    "natsctl.yml": "streams: [SPARK_IN]\nsinks: {{SPARK_OUT: {{from: copies}}}}\nmaster: {url}\nconf: {conf}\n",
    "copy.sql": "CREATE STREAMING TABLE kept AS SELECT seq, subject, string(value) AS value FROM STREAM SPARK_IN;\n"
    "CREATE TEMPORARY VIEW copies AS\n"
    "SELECT replace(subject, 'in.', 'out.') AS subject, value, string(seq) AS msgId FROM STREAM kept;\n",
}


def settings() -> dict[str, str]:
    return {"spark.executor.memory": "512m", "spark.ui.enabled": "false", **spark_starts.spark_settings()}


def conf() -> list[str]:
    return [word for key, value in settings().items() for word in ("--conf", f"{key}={value}")]


class Jobs:
    """Jobs on a cluster that copy from one stream into another, on a server of natsctl."""

    def __init__(self, cluster: StandaloneCluster, url: str, folder: Path) -> None:
        self.cluster = cluster
        self.url = url
        self._folder = folder

    def run(self, *command: str, gates: Sequence[Gate]) -> str:
        """Run a command, kill a worker at each gate in turn, and return what it prints."""
        log_path = self._folder / "job.log"
        with log_path.open("wb") as log:
            job = subprocess.Popen(
                command,
                env=self.cluster.environment(),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        with job:
            try:
                for gate in gates:
                    self.cluster.fill_up()  # what was killed before is replaced while the job starts or goes on
                    self.cluster.kill_worker_at(gate, job)
                    gate.open()
                output, _ = job.communicate()
            except RuntimeError as failure:
                failure.add_note(log_path.read_text())
                raise
            finally:
                job.kill()
        assert job.returncode == 0, f"{log_path.read_text()}\n{self.cluster.log()}"
        return output.decode()

    def natsctl(self, *arguments: str) -> str:
        """Run natsctl and kill a worker while it reads."""
        with Gate(self.url, "read", HOLD_AFTER_BYTES) as gate:
            return self.run(sys.executable, "-m", "natsctl", "-s", gate.url, *arguments, gates=[gate])

    def run_program(self, *command: str, remote: Sequence[str] = ()) -> str:
        """Run PROGRAM, kill a worker while it reads and one while it writes, and compare what it read and wrote."""
        program, rows = self._folder / "program.py", self._folder / "rows"
        program.write_text(PROGRAM)
        with Gate(self.url, "read", HOLD_AFTER_BYTES) as read, Gate(self.url, "written", HOLD_AFTER_BYTES) as written:
            arguments = [str(program), read.url, self.url, written.url, str(rows), *remote]
            output = self.run(*command, *arguments, gates=[read, written])
        assert sorted(json.loads(rows.read_text())) == ROWS
        assert self.copies() == COPIES
        return output

    def copies(self) -> list[tuple[str, str]]:
        """Return subject and payload of all messages of the sink, and remove them."""
        return asyncio.run(self._copies())

    async def _copies(self) -> list[tuple[str, str]]:
        client = await RawClient.connect(self.url)
        messages: list[tuple[str, str]] = []
        await read_all(client, SINK, lambda each: messages.append((each.subject.decode(), each.payload.decode())))
        await api(client, b"STREAM.PURGE." + SINK.encode())
        await client.close()
        return sorted(messages)


QUERY: Final = f"SELECT seq, subject, string(value) AS value FROM {SOURCE}"


def rows_of(table: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    return sorted([row["seq"], row["subject"], row["value"]] for row in table)


COPIES: Final = sorted((subject.replace("in.", "out."), payload) for _, subject, payload in ROWS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
    assert cluster.processes() == []


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with the streams."""

    async def fill(url: str) -> None:
        client = await RawClient.connect(url)
        await prepare(client, MESSAGES)
        await client.close()

    with ServerProcess(tmp_path_factory.mktemp("server")) as server:
        asyncio.run(fill(server.url))
        yield server.url


@pytest.fixture
def jobs(cluster: StandaloneCluster, filled: str, tmp_path: Path) -> Jobs:
    return Jobs(cluster, filled, tmp_path)


def test_a_program_reads_and_writes_though_spark_looks_for_formats_in_a_python_without_natsctl(jobs: Jobs) -> None:
    submit = [str(jobs.cluster.home / "bin" / "spark-submit"), "--master", jobs.cluster.url, *conf()]
    output = jobs.run_program(*submit, "--conf", f"spark.pyspark.driver.python={sys.executable}")
    assert NOT_FOUND in output
    assert NOT_FOUND in PAGE.read_text().replace("\n", " ")


def test_sql_on_a_cluster(jobs: Jobs) -> None:
    answer = jobs.natsctl("sql", QUERY, "--limit", "0", "-j", "--master", jobs.cluster.url, *conf())
    assert rows_of(json.loads(answer)) == ROWS


def test_export_on_a_cluster(jobs: Jobs, tmp_path: Path) -> None:
    from pyarrow import parquet

    jobs.natsctl("stream", "export", SOURCE, str(tmp_path / "files"), "--master", jobs.cluster.url, *conf())
    rows = parquet.read_table(tmp_path / "files").to_pylist()
    assert rows_of({**row, "value": row["value"].decode()} for row in rows) == ROWS


def test_a_pipeline_on_a_cluster(jobs: Jobs, tmp_path: Path) -> None:
    from pyarrow import parquet

    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text.format(url=jobs.cluster.url, conf=json.dumps(settings())))
    jobs.natsctl("pipeline", "run", str(tmp_path), "--once")
    rows = parquet.read_table(tmp_path / "tables" / "kept").to_pylist()
    assert rows_of(rows) == ROWS
    assert jobs.copies() == COPIES


@pytest.mark.skipif(find_spec("grpc") is None, reason="the extra `pipelines` is not installed")
def test_spark_connect_on_a_cluster(jobs: Jobs) -> None:
    with jobs.cluster.connect_server(*conf()) as place:
        output = jobs.run_program(sys.executable, remote=[place])
        answer = jobs.natsctl("sql", QUERY, "--limit", "0", "-j", "--remote", place)
    assert NOT_FOUND in output
    assert rows_of(json.loads(answer)) == ROWS
