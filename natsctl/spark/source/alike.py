"""Equal rows in several tasks: the driver publishes rows that do not have their own message yet.

Theory of operation. A row's id is `<digest of its content>.<number of equal rows before it in its task>`, so tasks with
the same row give it the same id, and the stream keeps one message for all of them. The sequences show that: each task
reports the sequences that acknowledged its rows. A sequence reported by n tasks represents n rows, but n - 1 of them
have no message. They get the following ids, counted from the highest number in any task. All ids of a write are then
`<digest>`, `<digest>.1`, … up to the number of rows with that content, for any distribution of rows over tasks, and
also if all of it is repeated.

The content of such a row is in the tasks' reports, or else is read from the stream. Only the reports are kept in memory
(less than a byte a row), with one window of sequences, and a number for each content that is published here; with the
ledger also the ids and sequences of all messages stored since the batch began.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from natsctl.spark.source.acknowledged import Acknowledgement, repeated, unpack, windows
from natsctl.spark.source.arrays import binary_array, int_array
from natsctl.spark.source.errors import PublishError
from natsctl.spark.source.fetch import read_range
from natsctl.spark.source.fetch_task import FetchLimits, ReadRange
from natsctl.spark.source.ledger import look_up
from natsctl.spark.source.link import Link
from natsctl.spark.source.messages import Messages, Stored, binary, digest_of, digests_of, header_blocks, id_of
from natsctl.spark.source.publisher import Publisher
from natsctl.spark.source.rows import HEADERS, RowShape, arrow_schema
from natsctl.spark.source.write_job import WriteJob, WrittenMessages

READ_TOGETHER: Final = 1000
"""Maximum distance to the next requested sequence that is read in the same request."""
_COLUMNS: Final = StructType(
    [
        StructField("seq", LongType()),
        StructField("subject", StringType()),
        StructField("headers", HEADERS),
        StructField("value", BinaryType()),
    ]
)

Row = tuple[bytes, bytes, bytes, bytes]
"""Digest, subject, headers and payload of one row."""


def publish_rest(job: WriteJob, parts: Sequence[WrittenMessages | None]) -> WrittenMessages | None:
    """Publish the rows that lack their own message; returns None if each row has one.

    Raises PublishError if a message that represents several rows cannot be read any more, or if the stream has
    lost acknowledged messages.
    """
    written = [part for part in parts if part is not None]
    found = _Doubled([part.acknowledgement for part in written])
    key = next((part.ledger_key for part in written if part.ledger_key), "")
    rest: _Rest | None = None
    try:
        for stream, seqs in found.by_window():
            rest = rest or _Rest(job, key, found)
            rest.publish(stream, seqs)
        return rest.finish() if rest else None
    finally:
        if rest:
            rest.close()


class _Doubled:
    """The sequences that represent several rows, and the tasks' reports about them."""

    def __init__(self, reports: Sequence[Acknowledgement]) -> None:
        self._reports = reports

    def by_window(self) -> Iterator[tuple[str, list[int]]]:
        """Yield a stream and sequences in ascending order; one that represents n rows comes n - 1 times."""
        for stream in sorted({name for report in self._reports for name in report.streams}):
            stands = [report.streams[stream] for report in self._reports if stream in report.streams]
            for window in windows([{**each.stored, **each.duplicates} for each in stands]):
                stored = [unpack(window, each.stored[window]) for each in stands if window in each.stored]
                if len(stored) > 1 and (twice := repeated(stored)):
                    raise PublishError(
                        f"{stream} acknowledged two messages with sequence {twice[0]}: it lost messages or was "
                        "recreated during the write; write the rows again"
                    )
                others = [unpack(window, each.duplicates[window]) for each in stands if window in each.duplicates]
                if others and (seqs := repeated(stored + others)):
                    yield stream, seqs

    def times(self) -> tuple[pa.BinaryArray, pa.Int64Array]:
        """Return the contents that occur several times in a task, with the maximum count of any task."""
        texts = b"".join(report.repeated[0] for report in self._reports)
        numbers = array("q")
        for report in self._reports:
            numbers.frombytes(report.repeated[1])
        if not numbers:
            return binary_array([]), int_array([])
        width = len(digest_of(texts))
        digests = pa.Array.from_buffers(pa.binary(width), len(numbers), [None, pa.py_buffer(texts)]).cast(pa.binary())
        table = pa.Table.from_arrays([digests, int_array(numbers)], ["digest", "times"])
        most = table.group_by("digest", use_threads=False).aggregate([("times", "max")]).combine_chunks()
        return _only(most.column("digest")), _only(most.column("times_max"))

    def claimed(self, stream: str) -> pa.Int64Array:
        """Return all sequences of a stream that represent a row of any task."""
        found = [
            unpack(window, data)
            for report in self._reports
            if stream in report.streams
            for packed in (report.streams[stream].stored, report.streams[stream].duplicates)
            for window, data in packed.items()
        ]
        return pa.concat_arrays(found) if found else int_array([])

    def rows(self) -> dict[tuple[str, int], Row]:
        """Return the rows that tasks have reported with contents, by place."""
        return {
            (stream, seq): (digest, suspect.subject, suspect.headers, suspect.payload)
            for report in self._reports
            for digest, suspect in report.suspects.items()
            for stream, seq in suspect.seqs
        }


class _Rest:
    """A publisher of rows, each with the next id of its content."""

    def __init__(self, job: WriteJob, key: str, found: _Doubled) -> None:
        if job.roles.expected:
            raise PublishError(
                f"rows that are alike expect the same sequence ({job.roles.expected[0][0]}): only one of them can be "
                "stored; give rows ids of their own, or drop the repeated ones"
            )
        self._job = job
        self._reported = found.rows()
        self._digests, self._times = found.times()
        self._next: dict[bytes, int] = {}
        self._rows = 0
        look = partial(look_up, job.settings, job.stream, key) if key else None
        stored = look() if look else Stored()
        self._warnings = stored.warnings
        self._known = _Known(stored, found.claimed(stored.stream))
        self._link = Link.open(job.settings)
        self._publisher = Publisher(self._link, job.limits, job.stream, look=look)
        self._expected = f"Nats-Expected-Stream: {job.stream}\r\n".encode() if job.stream else b""

    def close(self) -> None:
        self._link.close()

    def publish(self, stream: str, seqs: list[int]) -> None:
        wanted = Counter(seqs)
        here = [seq for seq in wanted if (stream, seq) in self._reported]
        self._send([self._reported[stream, seq] for seq in here for _ in range(wanted[seq])])
        missing = sorted(wanted.keys() - set(here))
        while missing:
            size = next(
                (at for at in range(1, len(missing)) if missing[at] > missing[at - 1] + READ_TOGETHER), len(missing)
            )
            self._publish_read(stream, {seq: wanted[seq] for seq in missing[:size]})
            missing = missing[size:]

    def finish(self) -> WrittenMessages:
        """Wait until all is stored; return the addition to the sums of the tasks (these have counted the rows)."""
        self._publisher.finish()
        done = self._publisher
        return WrittenMessages(
            duplicates=done.duplicates - self._rows,
            retries=done.retries,
            first_seq=done.first_seq,
            last_seq=done.last_seq,
            stream=done.stream,
            warnings=self._warnings,
        )

    def _publish_read(self, stream: str, wanted: dict[int, int]) -> None:
        name = stream.partition(" ")[0]
        shape = RowShape(tuple(_COLUMNS.names), arrow_schema(_COLUMNS))
        left = set(wanted)
        for batch in read_range(self._job.settings, ReadRange(name, min(wanted), max(wanted)), FetchLimits(), shape):
            some = batch.filter(pc.is_in(batch.column(0), value_set=int_array(sorted(left))))
            if some.num_rows:
                seqs = some.column(0).to_pylist()
                left.difference_update(seqs)
                self._send([row for seq, row in zip(seqs, _rows(name, some), strict=True) for _ in range(wanted[seq])])
        if left:
            raise PublishError(_gone(name, min(left), len(left)))

    def _send(self, rows: list[Row]) -> None:
        """Publish rows in parts of a window, except rows with an unclaimed message in the ledger."""
        size = max(self._job.limits.window, 1)
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            self._rows += len(some)
            digests = [row[0] for row in some]
            self._begin(digests)
            some = [row for row in some if not self._known.take(row[0])]
            ids = self._ids([row[0] for row in some])
            subjects, headers, payloads = (binary_array([row[at] for row in some]) for at in range(1, 4))
            self._publisher.publish(Messages(subjects, headers, payloads, binary_array(ids), self._expected))

    def _begin(self, digests: list[bytes]) -> None:
        """Find the first free numbers of contents: after the numbers of any task and of the ledger."""
        fresh = [digest for digest in dict.fromkeys(digests) if digest not in self._next]
        if fresh:
            places = pc.index_in(binary_array(fresh), value_set=self._digests).to_pylist()
            known = self._known.look_up(fresh)
            for digest, place, stored in zip(fresh, places, known, strict=True):
                self._next[digest] = max(1 if place is None else self._times[place].as_py(), stored)

    def _ids(self, digests: list[bytes]) -> list[bytes]:
        ids = []
        for digest in digests:
            ids.append(id_of(digest, self._next[digest]))
            self._next[digest] += 1
        return ids


class _Known:
    """Messages that the ledger shows to be stored, by the digest of their content."""

    def __init__(self, stored: Stored, claimed: pa.Int64Array) -> None:
        """Index the stored messages; `claimed` are the sequences that already represent a row of a task."""
        free = pc.invert(pc.is_in(stored.seqs, value_set=claimed))
        table = pa.Table.from_arrays([digests_of(stored.ids), free.cast(pa.int64())], ["digest", "free"])
        counts = table.group_by("digest", use_threads=False).aggregate([("free", "count"), ("free", "sum")])
        self._digests = _only(counts.column("digest"))
        self._counts, self._free = _only(counts.column("free_count")), _only(counts.column("free_sum"))
        self._left: dict[bytes, int] = {}
        """The messages that do not represent a row yet, for each looked-up content."""

    def look_up(self, digests: list[bytes]) -> list[int]:
        places = pc.index_in(binary_array(digests), value_set=self._digests).to_pylist()
        for digest, place in zip(digests, places, strict=True):
            self._left[digest] = 0 if place is None else self._free[place].as_py()
        return [0 if place is None else self._counts[place].as_py() for place in places]

    def take(self, digest: bytes) -> bool:
        """Assign a free message to a row of this content; return False if none is left."""
        if self._left[digest]:
            self._left[digest] -= 1
            return True
        return False


def _rows(stream: str, batch: pa.RecordBatch) -> Iterator[Row]:
    blocks, ids = header_blocks(batch.column(2))
    columns = (binary(batch.column(1)), blocks, batch.column(3))
    for row in range(batch.num_rows):
        own = ids[row].as_py() if ids is not None else None
        if not own:
            raise PublishError(_gone(stream, batch.column(0)[row].as_py(), 1))
        subject, block, payload = (column[row].as_py() for column in columns)
        yield digest_of(own), subject, block, payload


def _gone(stream: str, seq: int, number: int) -> str:
    """Return a text for messages that cannot be read any more."""
    more = f", and {number - 1} more like it," if number > 1 else ""
    return (
        f"message {seq} of {stream}{more} represents equal rows of several tasks, and was removed before these "
        "could be published: give rows ids of their own (msgIdColumn), or keep the columns stream and seq"
    )


def _only(column: pa.ChunkedArray) -> pa.Array:
    if not column.num_chunks:
        return pa.array([], column.type)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
