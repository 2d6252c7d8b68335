"""Reading and writing through Spark, one session for all of it: noop sinks, so that nothing but the source is paid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.cloudpickle import register_pickle_by_value

from bench.spark import rows
from bench.spark.direct import Figures, make
from bench.spark.spent import spent_by
from natsctl.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = 2
WARM_UPS = 2
"""Java compiles what runs often; what is measured is what a query on a large stream pays."""


def measure_through_spark(spark: SparkSession, server: ServerProcess, number: int, folder: Path) -> Figures:
    """The floor, reads of ORDERS and of its backup, and a write of rows from memory into SPARK."""
    register_pickle_by_value(rows)  # type: ignore[no-untyped-call]  # cloudpickle has no types
    spark.dataSource.register(rows.MemorySource)
    url, pid = server.url, server.pid

    def memory() -> DataFrame:
        return spark.read.format("memory_rows").option("messages", str(number)).option("parts", str(PARTS)).load()

    def stream(wanted: int = number) -> DataFrame:
        found = spark.read.format("jetstream").option("servers", url).option("minPartitions", str(PARTS))
        return found.option("endingOffsets", f'{{"ORDERS": {wanted}}}').load("ORDERS")

    def backup() -> DataFrame:
        return (
            spark.read.format("jetstream").option("backup", str(folder / "backup")).option("minPartitions", str(PARTS))
        ).load()

    for _ in range(WARM_UPS):
        _drop(memory())
        _drop(stream(number // 5))
    figures = Figures()
    figures["Spark's floor, rows in memory"] = number, spent_by(lambda: _drop(memory()), pid)
    figures["Spark reads a stream"] = number, spent_by(lambda: _drop(stream()), pid)
    figures["Spark reads a backup"] = number, spent_by(lambda: _drop(backup()), pid)
    make(url, "SPARK")
    figures["Spark writes a stream"] = number, spent_by(lambda: _write(memory(), url), pid)
    return figures


def _drop(frame: DataFrame) -> None:
    """Have Spark produce all rows, and throw them away."""
    frame.write.format("noop").mode("overwrite").save()


def _write(frame: DataFrame, url: str) -> None:
    wanted = frame.selectExpr("'SPARK.x' as subject", "headers", "value")
    wanted.write.format("jetstream").option("servers", url).mode("append").save("SPARK")
