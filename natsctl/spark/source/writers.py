"""Writers of batches and of streaming queries; a task publishes the rows of a partition, all acknowledged.

`df.write.format("jetstream").mode("append").save("ORDERS")`, `df.writeStream.format("jetstream").start("ORDERS")`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from natsctl.spark.source.acknowledged import Acknowledged, Acknowledgement, Suspects
from natsctl.spark.source.alike import publish_rest
from natsctl.spark.source.errors import JetStreamSourceError, OptionError
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import JetStreamApi
from natsctl.spark.source.ledger import Ledger, forget, look_up
from natsctl.spark.source.link import Link
from natsctl.spark.source.message_maker import MessageMaker
from natsctl.spark.source.messages import Messages, RowIds, Stored
from natsctl.spark.source.publisher import Publisher
from natsctl.spark.source.source_options import BATCH_WRITE, STREAM_WRITE
from natsctl.spark.source.spark_api import DataSourceStreamArrowWriter
from natsctl.spark.source.write_job import WriteJob, WrittenMessages, report, task_reports, write_job

SORTED_ROWS = 10_000
"""Rows of a batch after a sort, the same number as Spark's."""
WORTH_ASKING_ROWS = 1000
"""In a task's first batch: with fewer rows, the stream's subjects are not worth a request."""
RESTART_NEEDS_S = 120
"""The time that a driver may take to end, start again and come to its last batch; nats-server's own default window."""


def write_partition(job: WriteJob, key: str, partition: int, batches: Iterable[pa.RecordBatch]) -> WrittenMessages:
    """Publish rows and return the result once all of them are acknowledged.

    `key` is the same for all attempts of this write or micro-batch, and of no other. Raises JetStreamSourceError.
    """
    begun = time.monotonic()
    rows = iter(_sorted((batch for batch in batches if batch.num_rows), job.roles.order))
    first = next(rows, None)
    if first is None:
        return WrittenMessages(ledger_key=key if job.idempotence == "ledger" else "")
    with Link.open(job.settings) as link:
        ask = first.num_rows >= WORTH_ASKING_ROWS
        with closing(Suspects(job.settings, job.stream)) as suspects:
            written = _Writing(job, link, key, partition, suspects, ask=ask).write(first, rows)
        written.seconds = time.monotonic() - begun
        written.warnings += _window_warnings(job, link, written, partition)
    return written


class _Writing:
    def __init__(self, job: WriteJob, link: Link, key: str, partition: int, suspects: Suspects, *, ask: bool) -> None:
        """Prepare a task; with `ask`, request the stream's subjects from the server."""
        self._key = key
        self._stored = Stored()
        if job.idempotence == "ledger":
            self._stored = Ledger(link, job.settings, job.stream).begin(key, job.run, partition)
        self._ids = None if job.idempotence == "none" else RowIds(key, job.message_ids, partition)
        self._maker = MessageMaker(job.roles, self._ids, job.stream, int(link.info.get("max_payload", 0)))
        if ask:
            self._maker.taken(_subjects_of(job, link))
        self._acknowledged = Acknowledged(suspects) if self._ids and self._ids.of_content else None
        self._with_ledger = job.idempotence == "ledger"
        look = partial(look_up, job.settings, job.stream, key) if self._with_ledger else None
        self._publisher = Publisher(link, job.limits, job.stream, self._acknowledged, look)

    def write(self, first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> WrittenMessages:
        rows = 0
        for batch in _chained(first, rest):
            rows += batch.num_rows
            for messages in self._maker.messages(batch):
                self._publisher.publish(self._missing(messages) if len(self._stored.ids) else messages)
        self._publisher.finish()
        done = self._publisher
        return WrittenMessages(
            messages=done.messages,
            duplicates=done.duplicates,
            skipped=rows - done.messages,
            bytes=done.bytes,
            retries=done.retries,
            first_seq=done.first_seq,
            last_seq=done.last_seq,
            stream=done.stream,
            ledger_key=self._key if self._with_ledger else "",
            warnings=self._stored.warnings,
            acknowledgement=self._acknowledgement(),
        )

    def _missing(self, messages: Messages) -> Messages:
        """Return the messages that the ledger does not show to be stored."""
        places = self._stored.places(messages)
        if self._acknowledged is not None:
            self._acknowledged.found(messages, places)
        return messages.where(pc.invert(pc.is_in(messages.ids, value_set=self._stored.ids))) if places else messages

    def _acknowledgement(self) -> Acknowledgement:
        if self._acknowledged is None or self._ids is None:
            return Acknowledgement()
        return self._acknowledged.report(self._ids.repeated())


def _subjects_of(job: WriteJob, link: Link) -> tuple[str, ...]:
    """Return the subjects of the target stream; none if unknown.

    No other stream of its domain listens to the same; one of another domain may.
    """
    if not job.stream or job.settings.api_prefix != ServerSettings.api_prefix:
        return ()
    try:
        config = JetStreamApi(link, job.settings).stream_info(job.stream)["config"]
    except JetStreamSourceError:
        return ()  # a login that may publish need not be allowed to ask
    return tuple(config.get("subjects") or ())


def _window_warnings(job: WriteJob, link: Link, written: WrittenMessages, partition: int) -> tuple[str, ...]:
    """Return warnings of a duplicate window that may end before messages are sent again."""
    if job.idempotence != "ids" or not written.stream or (partition and written.seconds < RESTART_NEEDS_S / 2):
        return ()
    try:
        config = JetStreamApi(link, job.settings).stream_info(written.stream)["config"]
    except JetStreamSourceError:
        return ()  # a login that may publish need not be allowed to ask
    window_s = config.get("duplicate_window", 0) / 1e9
    if window_s >= max(RESTART_NEEDS_S, 2 * written.seconds):
        return ()
    return (
        f"{written.stream} knows message ids for {window_s:g} s, and this took {written.seconds:.0f} s: messages "
        "sent again after that are stored twice. Make duplicate_window longer, or set idempotence=ledger.",
    )


def _sorted(batches: Iterable[pa.RecordBatch], columns: tuple[str, ...]) -> Iterable[pa.RecordBatch]:
    """Return the batches unchanged, or all rows of the task in memory and sorted; nulls come last."""
    if not columns:
        return batches
    kept = list(batches)
    if not kept:
        return []
    table = pa.Table.from_batches(kept).sort_by([(column, "ascending") for column in columns])
    ordered: list[pa.RecordBatch] = table.to_batches(max_chunksize=SORTED_ROWS)
    return ordered


def _chained(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


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
        """Publish rows that have no message yet, log the result, and clear obsolete entries of the ledger.

        Raises PublishError.
        """
        parts = task_reports(messages)
        done = report(f"write {self._key}", [*parts, publish_rest(self._job, parts)])
        if done.ledger_key and not self._job.write_id:
            forget(self._job.settings, done.ledger_key)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the messages written before the write failed: they stay, because publishing cannot be undone."""
        report(f"write {self._key}", task_reports(messages), failed=True)


_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
"""Local properties of the tasks of a micro-batch; both are in the checkpoint, and the same after a restart."""


class JetStreamStreamWriter(DataSourceStreamArrowWriter):
    """A writer of micro-batches; Spark makes one for each on the driver, and pickles it into the tasks."""

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
        """Publish rows that have no message yet, log the result, and clear the ledger of the previous batch.

        Spark has committed that one by now. Raises PublishError.
        """
        parts = task_reports(messages)
        done = report(f"batch {batchId}", [*parts, publish_rest(self._job, parts)])
        query, _, _ = done.ledger_key.rpartition(".")
        if query and batchId > 0:
            forget(self._job.settings, f"{query}.{batchId - 1}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the messages written before the batch failed: they stay, and are not stored again by a retry."""
        report(f"batch {batchId}", task_reports(messages), failed=True)
