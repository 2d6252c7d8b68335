"""One task of a write: the rows of a partition, published and acknowledged."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from natsctl.spark.source.connection.api import JetStreamApi
from natsctl.spark.source.connection.link import Link
from natsctl.spark.source.connection.settings import ServerSettings
from natsctl.spark.source.errors import JetStreamSourceError
from natsctl.spark.source.publish.acknowledged import Acknowledged, Acknowledgement
from natsctl.spark.source.publish.ids import RowIds
from natsctl.spark.source.publish.job import WriteJob, Written
from natsctl.spark.source.publish.ledger import Ledger, look_up
from natsctl.spark.source.publish.message_maker import MessageMaker
from natsctl.spark.source.publish.messages import Messages, Stored
from natsctl.spark.source.publish.publisher import Publisher
from natsctl.spark.source.publish.suspects import Suspects

SORTED_ROWS = 10_000
"""Rows of a batch behind a sort, as many as Spark puts into one."""
WORTH_ASKING_ROWS = 1000
"""In a task's first batch: where there are fewer, what the stream listens to is not worth a request."""
RESTART_NEEDS_S = 120
"""The time that a driver may take to end, start again and come to its last batch; nats-server's own default window."""


def write_partition(job: WriteJob, key: str, partition: int, batches: Iterable[pa.RecordBatch]) -> Written:
    """Publish rows and return what was written once all of it is acknowledged.

    `key` is the same for all attempts of this write or micro-batch, and of no other. Raises JetStreamSourceError.
    """
    begun = time.monotonic()
    rows = iter(_sorted(_with_rows(batches), job.roles.order))
    first = next(rows, None)
    if first is None:
        return Written(ledger_key=key if job.idempotence == "ledger" else "")
    with Link.open(job.settings) as link:
        ask = first.num_rows >= WORTH_ASKING_ROWS
        with closing(Suspects(job.settings, job.stream)) as suspects:
            written = _Writing(job, link, key, partition, suspects, ask=ask).write(first, rows)
        written.seconds = time.monotonic() - begun
        written.warnings += _window_warnings(job, link, written, partition)
    return written


class _Writing:
    """The state of one task that writes."""

    def __init__(self, job: WriteJob, link: Link, key: str, partition: int, suspects: Suspects, *, ask: bool) -> None:
        """`ask` has the server say to which subjects the stream listens."""
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

    def write(self, first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Written:
        """Publish all and wait until it is stored."""
        rows = 0
        for batch in _chained(first, rest):
            rows += batch.num_rows
            for messages in self._maker.messages(batch):
                self._publisher.publish(self._missing(messages) if len(self._stored.ids) else messages)
        self._publisher.finish()
        done = self._publisher
        return Written(
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
    """Return the subjects of the stream that has to take the messages; none where they cannot be known.

    No other stream of its domain listens to the same; one of another domain may.
    """
    if not job.stream or job.settings.api_prefix != ServerSettings.api_prefix:
        return ()
    try:
        config = JetStreamApi(link, job.settings).stream_info(job.stream)["config"]
    except JetStreamSourceError:
        return ()  # a login that may publish need not be allowed to ask
    return tuple(config.get("subjects") or ())


def _window_warnings(job: WriteJob, link: Link, written: Written, partition: int) -> tuple[str, ...]:
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
        f"{written.stream} knows message ids for {window_s:g} s, and this took {written.seconds:.0f} s: what is sent "
        f"again later than that is stored twice. Make duplicate_window longer, or set idempotence=ledger.",
    )


def _with_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch for batch in batches if batch.num_rows)


def _sorted(batches: Iterable[pa.RecordBatch], columns: tuple[str, ...]) -> Iterable[pa.RecordBatch]:
    """Batches as they are, or all rows of the task in memory and in order; nulls come last."""
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
