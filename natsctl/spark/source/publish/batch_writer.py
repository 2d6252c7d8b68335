"""Batch writing: `df.write.format("jetstream").mode("append").save("ORDERS")`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.options.table import BATCH_WRITE
from natsctl.spark.source.publish.alike import publish_rest
from natsctl.spark.source.publish.job import write_job
from natsctl.spark.source.publish.ledger import forget
from natsctl.spark.source.publish.report import report, told
from natsctl.spark.source.publish.task import write_partition


class JetStreamBatchWriter(DataSourceArrowWriter):
    """One write. It is made once and pickled into every attempt of every task, so its id is theirs as well."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Raise OptionError for what cannot be written."""
        if overwrite:
            raise OptionError(
                "a stream cannot be overwritten, since others read it by sequence: use mode('append'), and purge it "
                "before if its messages should go (natsctl stream purge, or nats stream purge)"
            )
        self._job = write_job(options, BATCH_WRITE, schema)
        self._key = self._job.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish one partition; raises JetStreamSourceError unless all of it is stored."""
        context = TaskContext.get()
        return write_partition(self._job, self._key, context.partitionId() if context else 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish rows that have no message yet, log what was written, and clear the ledger of what is never repeated.

        Raises PublishError.
        """
        parts = told(messages)
        done = report(f"write {self._key}", [*parts, publish_rest(self._job, parts)])
        if done.ledger_key and not self._job.write_id:
            forget(self._job.settings, done.ledger_key)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was written before the write failed: it stays, since messages cannot be taken back."""
        report(f"write {self._key}", told(messages), failed=True)
