"""Reading and writing through Spark, one session for all of it: noop sinks, so that nothing but the source is paid.

Spark's Java compiles as it does when it is started without flags.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import register_pickle_by_value

from bench.spark import rows
from bench.spark.direct import WRITTEN_SHARE, Figures, make
from bench.spark.spent import Spent, spent_by
from natsctl.spark.files.direct_export import export_direct
from natsctl.spark.files.file_export import FileTarget, export
from natsctl.spark.files.file_formats import PARQUET
from natsctl.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

PARTS = 2
FEWER = 10
"""The cost of a query that reads nothing is subtracted: by another query on so much less."""
FEW = "{}: a query on few"
"""The name of that."""
TIMES = 3
"""Runs of each, of which the one that took the least CPU counts: other work on the machine only adds.

The queries take turns, so that none of them has a Java that has compiled more than another's.
"""
WARM_UPS = 3
"""Java compiles what runs often; what is measured is what a query on a large stream pays."""


def measure_through_spark(spark: SparkSession, server: ServerProcess, number: int, folder: Path) -> Figures:
    """The floor, reads of ORDERS and of its backup, and a write of rows from memory into SPARK."""
    register_pickle_by_value(rows)  # type: ignore[no-untyped-call]  # cloudpickle has no types
    spark.dataSource.register(rows.MemorySource)
    spark.dataSource.register(rows.ArrowSource)
    url, pid = server.url, server.pid

    def memory(wanted: int, source: type[rows.MemorySource] = rows.ArrowSource) -> DataFrame:
        found = spark.read.format(source.name()).option("messages", str(wanted))
        return found.option("parts", str(PARTS)).load()

    def some(wanted: int) -> DataFrameReader:
        found = spark.read.format("jetstream").option("minPartitions", str(PARTS))
        return found.option("endingOffsets", f'{{"ORDERS": {wanted}}}')

    def stream(wanted: int) -> DataFrame:
        return some(wanted).option("servers", url).load("ORDERS")

    def backup(wanted: int) -> DataFrame:
        return some(wanted).option("backup", str(folder / "backup")).load()

    figures = Figures()
    make(url, "SPARK")
    files = Files(spark, url, folder)
    queries: dict[str, Callable[[int], None]] = {
        "Spark's floor, rows in memory": lambda wanted: _drop(memory(wanted, rows.MemorySource)),
        "Spark's floor, Arrow in memory": lambda wanted: _drop(memory(wanted)),
        "Spark reads a stream": lambda wanted: _drop(stream(wanted)),
        "Spark reads a backup": lambda wanted: _drop(backup(wanted)),
        "Spark groups Arrow in memory": lambda wanted: _group(memory(wanted)),
        "Spark groups a stream": lambda wanted: _group(stream(wanted)),
        "Spark, Arrow in memory to Parquet": lambda wanted: files.write(memory(wanted)),
        "Spark, a stream to Parquet": lambda wanted: files.write(stream(wanted)),
        "stream export, to Parquet": files.export,
        "stream export by Spark, to Parquet": files.export_by_spark,
        "Spark writes a stream": lambda wanted: _write(memory(wanted), url),
    }
    most = {name: number // WRITTEN_SHARE if "writes" in name else number for name in queries}
    for _ in range(WARM_UPS):
        for name, work in queries.items():
            work(most[name])
    fewer, whole = (
        {name: Spent(inf, inf) for name in queries},
        {name: Spent(inf, inf) for name in queries},
    )
    for _ in range(TIMES):
        for name, work in queries.items():
            for least, messages in ((fewer, most[name] // FEWER), (whole, most[name])):
                spent = spent_by(partial(work, messages), pid)
                least[name] = min(least[name], spent, key=lambda each: each.cpu_s)
    for name in queries:
        figures[name] = most[name] - most[name] // FEWER, whole[name] - fewer[name]
        figures[FEW.format(name)] = most[name] // FEWER, fewer[name]
    return figures | measure_duckdb(files.exported, number)


class Files:
    """Writes of Parquet, by Spark itself and as `natsctl stream export` does, with Spark and without."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self._spark, self._url = spark, url
        self._rows = str(folder / "rows")
        self.exported = folder / "orders.parquet"

    def write(self, frame: DataFrame) -> None:
        frame.write.mode("overwrite").parquet(self._rows)

    def export(self, wanted: int) -> None:
        """Export as the command does, up to 10 million messages."""
        export_direct(self._options(wanted), "ORDERS", FileTarget(str(self.exported), PARQUET, force=True), _ignored)

    def export_by_spark(self, wanted: int) -> None:
        target = FileTarget(str(self.exported), PARQUET, force=True)
        export(self._spark, {**self._options(wanted), "minPartitions": str(PARTS)}, "ORDERS", target)

    def _options(self, wanted: int) -> dict[str, str]:
        options = {"servers": self._url, "endingOffsets": f'{{"ORDERS": {wanted}}}', "stream": "ORDERS"}
        return options | {"failOnDataLoss": "false"}


def _ignored(_: int) -> None:
    """Take the progress of an export."""


def measure_duckdb(file: Path, number: int) -> Figures:
    """Count and group the exported Parquet with DuckDB, and write it anew; nothing where DuckDB is not installed."""
    if find_spec("duckdb") is None:
        return Figures()
    duckdb: Any = import_module("duckdb")
    group = f"SELECT subject, count(*) FROM '{file}' GROUP BY subject"
    copy = f"COPY (SELECT * FROM '{file}') TO '{file}.copy' (FORMAT parquet)"
    return {
        "DuckDB groups the exported Parquet": (number, spent_by(lambda: duckdb.sql(group).fetchall())),
        "DuckDB, Parquet to Parquet": (number, spent_by(lambda: duckdb.sql(copy))),
    }


def _drop(frame: DataFrame) -> None:
    """Have Spark produce all rows, and throw them away."""
    frame.write.format("noop").mode("overwrite").save()


def _group(frame: DataFrame) -> None:
    """Have Spark count all rows by subject."""
    frame.groupBy("subject").count().write.format("noop").mode("overwrite").save()


def _write(frame: DataFrame, url: str) -> None:
    """Have Spark write the rows; headers are never null, as docs/spark.md asks for."""
    wanted = frame.selectExpr("'SPARK.x' as subject", "coalesce(headers, array()) as headers", "value")
    wanted.write.format("jetstream").option("servers", url).mode("append").save("SPARK")
