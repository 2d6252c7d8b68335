"""A streaming query that reads through a durable consumer and acknowledges committed batches: at least once.

Theory of operation. When Spark asks for the end of a batch, the driver pulls the messages of the batch and puts them
into its parts. So a retried task, a recomputed stage and a second pass over the frame of a `foreachBatch` see the same
rows, and tasks need no connection to the server. A batch is acknowledged as a whole when Spark is done with it: by
`commit`, or when the next batch begins at its end, whichever comes first; Spark never commits the last batch of a run.

An offset has the number of pulled messages; they cannot be read again by it. So if another run of the query pulled a
batch and did not finish it, the batch is empty when Spark repeats it: its messages were not acknowledged, are delivered
again, and become part of a later batch. This happens immediately if the offset has their sequences: they are then
nacked for the run that ended. Otherwise it happens after their ack wait. A batch that was finished but not
acknowledged, because the driver died in between, is delivered again as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from natsctl.spark.source.arrays import int_array
from natsctl.spark.source.durable import NAK, About, Delivery, Durable, Receipts, acknowledge, publish_all
from natsctl.spark.source.errors import OptionError, ServerUnreachableError
from natsctl.spark.source.frames import Deliveries
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import Asking
from natsctl.spark.source.link import Message, ack_prefix, place_of, read_frames
from natsctl.spark.source.offsets import VERSION
from natsctl.spark.source.rows import Rows, RowShape
from natsctl.spark.source.spark_api import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from natsctl.spark.source.stream_reader import Admission, lag_metrics

MAX_MESSAGES: Final = 100_000
MAX_BYTES: Final = 64 << 20
"""Default limits of a batch: it is in the memory of the driver and of its tasks."""
PART_MESSAGES: Final = 5_000
PART_BYTES: Final = 8 << 20
"""Limits of a task; Spark sends no task of more than 128 MiB."""
ROWS: Final = 10_000
NO_INBOX: Final = b" "
"""No subject begins with it: a part has no statuses among its deliveries."""
NO_DELIVERY: Final = "a part holds something else than deliveries"
MAX_RUNS: Final = 1_000
"""Maximum runs of sequences in an offset: 20 KB of a checkpoint."""
_WAITING: Final = ("num_pending", "num_ack_pending")
_log = logging.getLogger("pyspark_jetstream")


@dataclass(frozen=True)
class Taken:
    """The progress of a query, as Spark's checkpoint keeps it."""

    messages: int = 0
    """Total deliveries to the query, redeliveries included."""
    again: int = 0
    """The number of these that had been delivered before."""
    created: str = ""
    """The consumer's creation time: distinguishes it from another of its name."""
    prefix: str = ""
    """Prefix of the ack subjects of the last batch."""
    held: tuple[tuple[int, int], ...] = ()
    """The stream sequences of the last batch, as first and last of each run; none if there are too many."""


@dataclass(frozen=True)
class HeldPart(InputPartition):
    """Messages as delivered: the frames of each pull, after its subscription."""

    pulls: tuple[tuple[bytes, bytes], ...]


@dataclass
class Batch:
    """A batch that was pulled and is not acknowledged."""

    start: Taken
    end: Taken
    deliveries: list[Delivery] = field(default_factory=list)


class JetStreamAckedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming reader: the driver pulls the messages, tasks decode them."""

    def __init__(
        self, settings: ServerSettings, durable: Durable, shape: RowShape, admission: Admission, parts: int
    ) -> None:
        self._durable = durable
        self._shape = shape
        self._admission = admission
        self._parts = parts
        self._asking = Asking(settings, resolve=True)
        self._settings = settings
        self._receipts: Receipts | None = None
        self._about: About | None = None
        self._batch: Batch | None = None
        self._left: int | None = None
        """The number of messages that a run of `availableNow` may still take; None without such an end."""

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query; raises ConsumerUnfitError if the consumer is not readable."""
        self._seen()
        return encode(self._durable, Taken())

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query with the consumer's present messages; deliveries to others may come again, and count."""
        self._seen()
        status = self._asking(self._durable.status)
        self._left = None if status is None else sum(int(status.get(name) or 0) for name in _WAITING)

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._admission.default

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Acknowledge the batch that ended at the start, and pull the next; the start itself if nothing came."""
        stood = parse(self._durable, start)
        if self._batch is not None and self._batch.start == stood:
            return encode(self._durable, self._batch.end)
        self.commit(start)
        if self._batch is not None:
            raise OptionError(
                f"the query goes on at {stood.messages}, and a batch up to {self._batch.end.messages} is not done: a "
                "reader with ackMode serves one query only"
            )
        deliveries = self._pulled(limit)
        if not deliveries:
            return start
        end = self._after(stood, deliveries)
        self._batch = Batch(stood, end, deliveries)
        return encode(self._durable, end)

    def _pulled(self, limit: ReadLimit) -> list[Delivery]:
        about = self._seen()
        limited = not isinstance(limit, ReadAllAvailable)
        most = (self._admission.most if limited else None) or MAX_MESSAGES
        most_bytes = (self._admission.most_bytes if limited else None) or MAX_BYTES
        found: dict[int, Delivery] = {}
        more, size = True, 0
        while more and len(found) < most and size < most_bytes and self._left != 0:
            wanted = min(most - len(found), most if self._left is None else self._left)
            pull = partial(self._durable.pull, about=about, most=wanted, most_bytes=most_bytes - size)
            pulled, more = self._asking(pull)
            found.update((each.seq, each) for each in pulled)
            size += sum(len(each.frame) for each in pulled)
            if self._left is not None:
                self._left -= len(pulled)
            self._hold([each.reply for each in found.values()])
        return list(found.values())

    def _after(self, stood: Taken, deliveries: Sequence[Delivery]) -> Taken:
        created = self._seen().created
        prefixes = {ack_prefix(delivery.reply) for delivery in deliveries}
        held = runs(sorted(delivery.seq for delivery in deliveries))
        kept = created and len(prefixes) == 1 and len(held) <= MAX_RUNS
        return Taken(
            stood.messages + len(deliveries),
            stood.again + sum(delivery.again for delivery in deliveries),
            created if kept else "",
            prefixes.pop().decode() if kept else "",
            held if kept else (),
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the messages of a batch; none if another run of the query pulled it and did not finish it."""
        before, until = parse(self._durable, start), parse(self._durable, end)
        if before == until:
            return []
        if self._batch is None or self._batch.end != until:
            self._give_back(until, until.messages - before.messages)
            return []
        return [*_parts(self._batch.deliveries, self._parts)]

    def _give_back(self, until: Taken, messages: int) -> None:
        """Nack the messages of a run of the query that ended, so that they are redelivered immediately."""
        about = self._seen()
        named = bool(until.held) and until.created == about.created
        _log.warning(
            "%s messages that %s had delivered when the query ended are delivered again%s: this batch is empty",
            messages,
            self._durable.name,
            "" if named else " when their ack wait is over",
        )
        if named:
            seqs = (seq for first, last in until.held for seq in range(first, last + 1))
            replies = [f"{until.prefix}.1.{seq}.{seq}.1.0".encode() for seq in seqs]
            self._asking(lambda api: publish_all(api.link, replies, NAK))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, HeldPart):
            for sid, frames in partition.pulls:
                for rows in self._rows(sid, frames):
                    yield self._shape.batch(self._durable.stream, rows)

    def _rows(self, sid: bytes, frames: bytes) -> Iterator[Rows]:
        """Yield the messages of a pull, one by one only if ack subjects are a requested column."""
        if self._shape.wants_replies:
            yield from rows_of(frames)
            return
        cut = Deliveries(NO_INBOX, sid, values=self._shape.wants_value, headers=self._shape.wants_headers)
        window = cut.window(frames)
        if window.rows is None or window.others or window.rest:
            raise ServerUnreachableError(NO_DELIVERY)
        yield window.rows

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge the batch that ends there; no-op for another one."""
        done = parse(self._durable, end)
        if self._batch is not None and self._batch.end == done:
            acknowledge(self._asking, [delivery.reply for delivery in self._batch.deliveries])
            self._batch = None
            self._hold(())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the consumer's backlog: messages not delivered, not acknowledged, and redelivered."""
        status = self._asking(self._durable.status)
        if status is None:
            return None
        left = {name: int(status.get(name) or 0) for name in (*_WAITING, "num_redelivered")}
        return {
            **encode(self._durable, self._batch.end if self._batch else Taken()),
            "consumer": left,
            "metrics": lag_metrics([left["num_pending"]]),
        }

    def stop(self) -> None:
        """Close the connections; unacknowledged messages are redelivered."""
        if self._receipts is not None:
            self._receipts.close()
        self._receipts = None
        self._asking.close()

    def _hold(self, replies: Sequence[bytes]) -> None:
        if self._receipts is None:
            self._receipts = Receipts(self._settings)
        self._receipts.hold(replies, self._seen().ack_wait_s)

    def _seen(self) -> About:
        """Return the consumer's facts (looked up once); `createConsumer` creates it."""
        if self._about is None:
            self._about = self._asking(self._durable.about)
        return self._about


def encode(durable: Durable, taken: Taken) -> dict[str, Any]:
    said: dict[str, Any] = {"consumer": durable.name, "taken": taken.messages, "again": taken.again}
    if taken.held:
        said |= {"created": taken.created, "acks": taken.prefix, "held": [list(run) for run in taken.held]}
    return {"v": VERSION, "acked": {durable.stream: said}}


def parse(durable: Durable, said: Mapping[str, Any]) -> Taken:
    """Return the offset of a checkpoint; raises OptionError for one of another consumer, or of a read without it."""
    found = (said.get("acked") or {}).get(durable.stream) if said.get("v") == VERSION else None
    if not isinstance(found, dict) or found.get("consumer") != durable.name:
        raise OptionError(
            f"the checkpoint is not of a query that reads {durable.stream} through its consumer {durable.name}: give "
            "the query a checkpoint of its own"
        )
    held = tuple((int(first), int(last)) for first, last in found.get("held") or ())
    return Taken(int(found["taken"]), int(found["again"]), found.get("created", ""), found.get("acks", ""), held)


def runs(seqs: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending sequences as first and last of each run without a gap."""
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return tuple(found)


def _parts(deliveries: Sequence[Delivery], wanted: int) -> Iterator[HeldPart]:
    """Yield the deliveries in parts: the requested number, or more if a part would be too large."""
    size = max(min(-(-len(deliveries) // wanted), PART_MESSAGES), 1)
    part: list[Delivery] = []
    held = 0
    for delivery in deliveries:
        if part and (len(part) >= size or held + len(delivery.frame) > PART_BYTES):
            yield _part(part)
            part, held = [], 0
        part.append(delivery)
        held += len(delivery.frame)
    yield _part(part)


def _part(deliveries: Sequence[Delivery]) -> HeldPart:
    pulls = groupby(deliveries, key=attrgetter("sid"))
    return HeldPart(tuple((sid, b"".join(each.frame for each in of_pull)) for sid, of_pull in pulls))


def rows_of(frames: bytes) -> Iterator[Rows]:
    """Yield the messages of whole frames, so many at a time; raises ServerUnreachableError for invalid deliveries."""
    at, each = 0, read_frames(frames)
    while at < len(frames):
        messages: list[Message] = []
        while at < len(frames) and len(messages) < ROWS:
            at, message = next(each, (at, b""))
            if not isinstance(message, Message):
                raise ServerUnreachableError(NO_DELIVERY)
            messages.append(message)
        places = [place_of(message.reply) for message in messages]
        yield Rows(
            int_array([place.seq for place in places]),
            int_array([place.time_ns for place in places]),
            [message.subject for message in messages],
            [message.headers for message in messages],
            [message.body for message in messages],
            [message.reply for message in messages],
        )
