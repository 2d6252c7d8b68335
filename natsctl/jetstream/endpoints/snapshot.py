"""STREAM.SNAPSHOT: a stream leaves as an archive, chunk by chunk, as fast as the receiver acknowledges.

Theory of operation. A snapshot covers the messages up to the last durable one at the time of the request, and the state
of the consumers then; messages removed meanwhile are missing from it. It waits for interest on the deliver subject,
then runs in the engine's ready queue: each turn it does one step of 1 to 3 ms (reads some messages, hashes some, or
compresses some) and sends full chunks while fewer than the window allows are unacknowledged. So it holds one block of
the archive and one chunk, whatever the stream's size. The last chunk, shorter than the others, has no reply subject; an
empty message with a status ends the transfer. A stream in memory is always saved in version 2: no server can restore
one from version 1. Source: docs/compatibility.md#snapshots-and-restores.

The conversion of a consumer's state to its form in archives is here for both directions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from natsctl.api.advisories import SnapshotComplete, SnapshotCreate
from natsctl.api.answers import StreamSnapshotAnswer
from natsctl.api.archive.archive import ArchivedConsumer, ArchivedStream, ArchiveError, Progress
from natsctl.api.archive.archive_v1 import WriterV1
from natsctl.api.archive.archive_v2 import WriterV2
from natsctl.api.archive.s2 import FrameWriter
from natsctl.api.catalogue import error
from natsctl.api.errors import ErrCode
from natsctl.api.headers import status_line
from natsctl.api.requests import StreamSnapshotRequest
from natsctl.api.stream import StorageType
from natsctl.api.subjects import SNAPSHOT_ACK_PREFIX, is_literal, is_valid_subject
from natsctl.api.times import format_time
from natsctl.api.units import SECOND
from natsctl.jetstream.advisories import nuid
from natsctl.jetstream.consumers.consumer_state import ConsumerState
from natsctl.jetstream.endpoints.requests import ApiRequest, Outcome, client_info, find_stream, reading_request
from natsctl.jetstream.timers import Alarm
from natsctl.store.errors import StoreError
from natsctl.store.file_log import FileLog
from natsctl.store.steps import finish

if TYPE_CHECKING:
    from natsctl.broker.account import SubscriberWatch
    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Subscription
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.consumers.consumer import Consumer
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.message import StoredMessage


def archived(consumer: Consumer) -> ArchivedConsumer:
    return ArchivedConsumer(consumer.name, consumer.config, progress_of(consumer.state), consumer.created_ns)


def progress_of(state: ConsumerState) -> Progress:
    floor = state.floor()
    below = min(map(itemgetter(0), state.pending.values()), default=floor.consumer_seq + 1) - 1  # all of it in C
    return Progress(
        state.delivered_cseq,
        state.delivered_sseq,
        min(floor.consumer_seq, below),
        floor.stream_seq,
        dict(state.pending),
        dict(state.redelivered),
    )


def state_of(progress: Progress) -> ConsumerState:
    """Return the state of a consumer that continues there. Raises ArchiveError for an impossible state."""
    state = ConsumerState(progress.delivered_sseq + 1)
    state.delivered_cseq = progress.delivered_cseq
    below = progress.delivered_cseq
    for sseq, (cseq, ts_ns) in sorted(progress.pending.items()):
        # Servers before 2.10 note the latest delivery, so consumer sequences need not ascend.
        if not 0 < cseq <= progress.delivered_cseq or not 0 < sseq <= progress.delivered_sseq:
            raise ArchiveError(f"message {sseq} is pending, but was never delivered")
        below = min(below, cseq - 1)
        state.pending[sseq] = (cseq, max(ts_ns, 0))
    state.order = deque(state.pending)
    oldest = state.order[0] if state.order else state.delivered_sseq + 1
    state.floor_cseq = min(max(progress.floor_cseq, 0), below)
    state.floor_sseq = min(max(progress.floor_sseq, 0), oldest - 1)
    state.stuck = state.floor_cseq < below
    state.redelivered.update({sseq: count for sseq, count in progress.redelivered.items() if count > 0})
    return state


DEFAULT_CHUNK: Final = 128 << 10
CHUNK_RANGE: Final = (1 << 10, 1 << 20)
DEFAULT_WINDOW: Final = 8 << 20
WINDOW_RANGE: Final = (1 << 10, 32 << 20)
INTEREST_WAIT_NS: Final = 2 * SECOND
"""Maximum wait for a subscription to the deliver subject; then the snapshot sends, as nats-server does."""
FLOW_WAIT_NS: Final = 5 * SECOND
"""Maximum wait for an ack if the window is full."""
READ_MESSAGES: Final = 512
"""Messages read in one step."""
READ_BYTES: Final = 512 << 10
"""Bytes read in one step, unless a single message is larger."""
FRAME_BYTES: Final = 64 << 10
"""Bytes that are compressed together; repetition is found only within them. Source: the format of Snappy's frames."""


def gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join small pieces for the compressor, and yield b"" instead of each that waits for others."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= FRAME_BYTES:
            yield bytes(waiting)
            waiting.clear()
        else:
            yield b""
    yield bytes(waiting)


def snapshot(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    stream = find_stream(js, request.tokens[0])
    wanted = finish(reading_request(js, request, request.body, StreamSnapshotRequest))
    if not is_valid_subject(wanted.deliver_subject) or not is_literal(wanted.deliver_subject):
        return error(ErrCode.SNAPSHOT_DELIVER_SUBJECT_INVALID)
    return request.when_settled([stream.store], lambda kept: _begin(stream, request, wanted))


def _begin(stream: Stream, request: ApiRequest, wanted: StreamSnapshotRequest) -> StreamSnapshotAnswer:
    state = stream.state()
    SnapshotTransfer(stream, wanted, request).start()
    return StreamSnapshotAnswer(config=stream.config, state=state)


def _clamped(value: int, default: int, limits: tuple[int, int]) -> int:
    return min(max(value, limits[0]), limits[1]) if value > 0 else default


class SnapshotTransfer:
    def __init__(self, stream: Stream, wanted: StreamSnapshotRequest, request: ApiRequest) -> None:
        """Record the contents of the archive; nothing is sent before `start` and a turn of the engine."""
        engine = stream.engine
        self._stream, self._engine, self._account = stream, engine, stream.account
        self._to = wanted.deliver_subject.encode()
        limit = max(min(CHUNK_RANGE[1], engine.broker.options.limits.max_payload), CHUNK_RANGE[0])
        self._chunk_bytes = min(_clamped(wanted.chunk_size, DEFAULT_CHUNK, CHUNK_RANGE), limit)
        window = _clamped(wanted.window_size, DEFAULT_WINDOW, WINDOW_RANGE)
        self._max_unacked = max(window // self._chunk_bytes, 1)
        consumers = [] if wanted.no_consumers else stream.consumer_set.visible()
        self._consumers = [archived(consumer) for consumer in consumers]
        self._state = stream.state()
        self._last = (stream.store.last_seq, stream.store.last_ts_ns)
        self._client = client_info(engine.broker, stream.account, request)
        self._start_ns = engine.clock.now_ns()
        self._frames = FrameWriter()
        self._content: Iterator[bytes] | None = None
        self._ready = bytearray()
        self._acks = f"{SNAPSHOT_ACK_PREFIX}.{stream.name}.{nuid(engine.rng)}".encode()
        self._unacked: dict[bytes, int] = {}
        self._index = 0
        self._announced = False
        self._unheard = False
        self._ended = False
        self._alarm = Alarm(engine.timers, self._too_late)
        self._ack_subscription: Subscription | None = None
        self._watch: SubscriberWatch | None = None

    def start(self) -> None:
        """Wait for interest, then send."""
        self._ack_subscription = self._account.subscribe(self._acks + b".>", self._on_ack)
        self._watch = self._account.watch_subscribers(self._to, b"", self._interest_changed)
        self._alarm.set(self._engine.clock.monotonic_ns() + INTEREST_WAIT_NS)
        self._engine.ready(self)

    # Events

    def _is_heard(self) -> bool:
        return self._watch is not None and self._watch.subscribers > 0

    def _interest_changed(self) -> None:
        if self._is_heard():
            if self._content is None:
                self._engine.ready(self)
        elif self._content is not None and not self._unheard:
            self._end(408, "No Interest")

    def _on_ack(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        if self._unacked.pop(subject, None) is not None and not self._ended:
            self._alarm.set(self._engine.clock.monotonic_ns() + FLOW_WAIT_NS)
            self._engine.ready(self)

    def _too_late(self) -> None:
        if self._content is None:
            self._unheard = True
            self._engine.ready(self)
        elif self._unacked:
            self._end(408, "No Flow Response")

    # Turns

    def run(self, budget: int) -> int:
        if self._ended or self._stream.work.defers(self):
            return 0
        if self._stream.js.streams.get(self._stream.name) is not self._stream:
            self._end(500, "stream was deleted")
            return 0
        try:
            return self._advance()
        except StoreError as fault:
            self._end(500, str(fault))
            return 0

    def _advance(self) -> int:
        if not self._announced:
            self._report_progress()
        if self._content is None:
            if not self._unheard and not self._is_heard():
                return 0
            self._alarm.cancel()
            self._content = gathered(self._archive())
        self._send_chunks()
        if len(self._unacked) >= self._max_unacked:
            return 0
        content = next(self._content, None)
        if content is None and len(self._ready) < self._chunk_bytes:
            self._finish()
            return 0
        if content:
            self._ready += self._frames.write(content)
        self._engine.ready(self)
        return READ_MESSAGES

    def _report_progress(self) -> None:
        """Publish the advisory that a snapshot began; the answer to the request was sent before."""
        self._announced = True
        event = SnapshotCreate(stream=self._stream.name, state=self._state, client=self._client)
        self._stream.js.advise(event)

    def _archive(self) -> Iterator[bytes]:
        """Yield the archive in pieces, b"" if a step ended without one."""
        stream = self._stream
        old = self._engine.options.archive_version == 1 and stream.config.storage is StorageType.FILE
        writer: WriterV1 | WriterV2 = WriterV1() if old else WriterV2()
        yield from writer.beginning(ArchivedStream(stream.config, stream.created_ns, self._state), self._consumers)
        last_seq, last_ts_ns = self._last
        next_seq = max(stream.store.first_seq, 1)
        log = stream.store.log
        while messages := self._read(next_seq, last_seq):
            next_seq = messages[-1].seq + 1
            if isinstance(log, FileLog):
                log.release_before(next_seq)
            yield from writer.messages(messages)
            yield b""
        yield from writer.end(last_seq, last_ts_ns)

    def _read(self, next_seq: int, last_seq: int) -> list[StoredMessage]:
        messages = self._stream.store.read_from(next_seq, max_msgs=READ_MESSAGES, max_bytes=READ_BYTES, keep=False)
        while messages and messages[-1].seq > last_seq:
            messages.pop()
        return messages

    def _send_chunks(self) -> None:
        size = self._chunk_bytes
        while len(self._ready) >= size and len(self._unacked) < self._max_unacked:
            self._index += 1
            reply = b"%b.%d.%d" % (self._acks, size, self._index)
            self._unacked[reply] = size
            if len(self._unacked) == 1:
                self._alarm.set(self._engine.clock.monotonic_ns() + FLOW_WAIT_NS)
            with memoryview(self._ready) as ready:
                chunk = bytes(ready[:size])
            del self._ready[:size]
            self._account.publish(self._to, reply, b"", chunk)

    def _finish(self) -> None:
        if self._ready:
            self._account.publish(self._to, b"", b"", bytes(self._ready))
        self._end(204, "")

    def _end(self, status: int, text: str) -> None:
        """Send the final status to the receiver and publish the advisory."""
        if self._ended:
            return
        self._ended = True
        self._alarm.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if self._ack_subscription is not None:
            self._account.unsubscribe(self._ack_subscription)
        self._ready.clear()
        self._account.publish(self._to, b"", status_line(status, text), b"")
        event = SnapshotComplete(
            stream=self._stream.name,
            start=format_time(self._start_ns),
            end=format_time(self._engine.clock.now_ns()),
            client=self._client,
            error=text.lower(),
        )
        self._stream.js.advise(event)
