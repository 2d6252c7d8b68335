"""Work that makes Spark load what commands need: an archive of classes has those that were loaded once.

Rows come from a data source in Python, as those of streams do, without any server.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "natsctl_training"
ROWS = 100

_SCHEMA = "stream string, seq bigint, subject string, timestamp timestamp, value binary"
_QUERIES = (
    "select subject, count(*) as messages, max(seq) from training where seq > 5 group by 1 order by 2 desc limit 5",
    "select date_trunc('minute', timestamp), sum(length(value)) from training group by 1",
    "select cast(value as string) as text, get_json_object(cast(value as string), '$.id') from training limit 3",
    "select from_json(cast(value as string), 'id bigint').id as id from training where subject like 'ORDERS.%'",
    "select a.subject, count(distinct b.seq) from training a join training b on a.seq = b.seq group by 1",
    "select percentile_approx(length(value), 0.5), count_if(subject rlike 'new') from training",
)


class TrainingReader(DataSourceReader):
    """Reads the same rows in each of two partitions."""

    def partitions(self) -> list[InputPartition]:
        """Two partitions, told apart by their number."""
        return [InputPartition(number) for number in range(2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One batch of rows."""
        columns = [
            pa.array(["ORDERS"] * ROWS),
            pa.array(range(ROWS), pa.int64()),
            pa.array(["ORDERS.new"] * ROWS),
            pa.array(range(ROWS), pa.timestamp("us", tz="UTC")),
            pa.array([b'{"id": 1}'] * ROWS, pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, ["stream", "seq", "subject", "timestamp", "value"])


class TrainingSource(DataSource):
    """A table that is not stored anywhere."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> str:
        """The columns, like a stream's."""
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads them."""
        return TrainingReader()


def train(session: SparkSession) -> None:
    """Run what commands run: queries, files written and read, one streaming query."""
    session.dataSource.register(TrainingSource)
    session.sql(f"create or replace temporary view training using {NAME}")
    for query in _QUERIES:
        session.sql(query).collect()
    session.sql(_QUERIES[0]).toArrow()
    with tempfile.TemporaryDirectory(prefix="natsctl-spark-") as folder:
        for form in ("parquet", "json", "csv"):
            where = str(Path(folder) / form)
            table = session.sql("select seq, subject, cast(value as string) as value from training")
            table.write.format(form).save(where)
            session.read.format(form).load(where).groupBy("subject" if form != "csv" else "_c1").count().collect()
        stream = session.readStream.schema("seq bigint, subject string, value string").parquet(f"{folder}/parquet")
        to = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        to.trigger(availableNow=True).start(f"{folder}/streamed").awaitTermination()
