"""Streaming writing: `df.writeStream.format("jetstream").start("ORDERS")`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.options.table import STREAM_WRITE
from natsctl.spark.source.publish.alike import publish_rest
from natsctl.spark.source.publish.job import write_job
from natsctl.spark.source.publish.ledger import forget
from natsctl.spark.source.publish.report import report, told
from natsctl.spark.source.publish.task import write_partition
from natsctl.spark.source.spark_api import DataSourceStreamArrowWriter

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
"""What Spark gives the tasks of a micro-batch; both are in the checkpoint, and the same after a restart."""


class JetStreamStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches; one object is made for each, on the driver, and pickled into its tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Raise OptionError for what cannot be written."""
        if overwrite:
            raise OptionError(
                "outputMode complete replaces the whole result with each batch, and a stream is never replaced: use "
                "append, or write each batch of outputMode update by foreachBatch"
            )
        self._job = write_job(options, STREAM_WRITE, schema)
        self._fallback = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish one partition of a micro-batch; raises JetStreamSourceError unless all of it is stored."""
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        query = (context.getLocalProperty(_QUERY) if context else None) or self._fallback
        batch = (context.getLocalProperty(_BATCH) if context else None) or "0"
        return write_partition(self._job, f"{query}.{batch}", partition, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish rows that have no message yet, log what was written, and clear the ledger of the batch before.

        Spark has committed that one by now. Raises PublishError.
        """
        parts = told(messages)
        done = report(f"batch {batchId}", [*parts, publish_rest(self._job, parts)])
        query, _, _ = done.ledger_key.rpartition(".")
        if query and batchId > 0:
            forget(self._job.settings, f"{query}.{batchId - 1}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log what was written before the batch failed: it stays, and is not stored again when the batch is tried."""
        report(f"batch {batchId}", told(messages), failed=True)
