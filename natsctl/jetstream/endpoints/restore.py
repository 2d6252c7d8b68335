"""STREAM.RESTORE: a stream arrives as an archive, and becomes visible completely or not at all.

Theory of operation. Chunks arrive as requests on a subject made for the transfer, and are queued. Turns of the engine
read them item by item, so that a chunk with much content does not block the loop. Messages go into a new, provisional
store: the stream is not visible, nothing is synced yet, and a restart finds nothing of it. The store is created with
the first message, because its sequence must be known; an archive that is invalid before leaves no trace. An empty chunk
ends the transfer: the archive must be complete, and the consumers are written to the journal. One commit syncs all of
that and makes the store permanent; then the stream is started as after a restart, and the answer sent. Any failure
deletes the store and is reported with err_code 10062; a stalled transfer is abandoned without an answer. Source:
docs/compatibility.md#snapshots-and-restores.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from natsctl.api import consumer_config
from natsctl.api import stream_config as rules
from natsctl.api.advisories import ActionType, RestoreComplete, RestoreCreate
from natsctl.api.answers import StreamCreateAnswer, StreamRestoreAnswer, as_error
from natsctl.api.archive.archive import (
    ArchivedConsumer,
    ArchivedMessage,
    ArchivedStream,
    ArchiveError,
    CountedRecords,
    Gone,
    Item,
)
from natsctl.api.archive.archive_reader import ArchiveReader
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode, recast
from natsctl.api.consumer_config import check as check_consumer
from natsctl.api.errors import ErrCode
from natsctl.api.headers import LEGACY_MSG_ID
from natsctl.api.requests import StreamRestoreRequest
from natsctl.api.stream import StorageType, StreamConfig, StreamState
from natsctl.api.subjects import SNAPSHOT_RESTORE_PREFIX, is_valid_name
from natsctl.api.times import format_time, parse_time
from natsctl.api.units import SECOND
from natsctl.jetstream import api_level
from natsctl.jetstream.advisories import nuid
from natsctl.jetstream.consumers.consumer_state import Created, encode_record
from natsctl.jetstream.endpoints.consumer_api import bounds_of
from natsctl.jetstream.endpoints.requests import ApiRequest, Outcome, client_info, require
from natsctl.jetstream.endpoints.snapshot import state_of
from natsctl.jetstream.streams.dedupe import IN_USE
from natsctl.jetstream.streams.schedules import is_timed
from natsctl.jetstream.streams.stream import Stream, StreamMeta
from natsctl.jetstream.timers import Alarm
from natsctl.store.errors import StoreError, StreamKeyTakenError
from natsctl.store.steps import Steps
from natsctl.store.stream import StreamStore

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.store.file_commit import Settled


MAX_SEQ: Final = (1 << 62) - 1
"""Highest sequence that is restored; archives use the two bits above it as flags."""
MAX_SUBJECT_BYTES: Final = 65535
"""Longest subject that a frame of the store can hold: its length has 16 bits."""
MAX_CONSUMERS: Final = 100_000
"""Consumers that one archive may hold; they are kept in memory until its end."""
MAX_ENTRIES: Final = 5_000_000
"""Maximum pending and redelivered messages of all consumers together; they are also kept in memory."""
MAX_KNOWN: Final = 4096
"""Valid subjects that are remembered, so that they need not be checked again."""
_SUBJECT: Final = re.compile(rb"[^\s\0]{1,%d}" % MAX_SUBJECT_BYTES).fullmatch
_PLACEHOLDER: Final = b"_"
"""Subject of a message that is stored and removed again if the message with the last sequence is missing."""


class StorageLimitError(StoreError):
    """The archive exceeds the storage limit of the account or the server."""


class Staging:
    def __init__(self, js: JetStreamAccount, config: StreamConfig, state: StreamState) -> None:
        """Take configuration and state from the request; archives of version 1 do not hold the state.

        Messages below the state's first sequence are dropped: block files may still hold messages that limits removed.
        """
        self._js, self._config = js, config
        self._created_ns = 0
        self._entries = 0
        self._lost: StoreError | None = None
        self._newest = self._first_seq = self._last_seq = self._last_ts_ns = 0
        self._expect(state)
        self._usage = js.usage[config.storage]
        self._counted_bytes = self._largest = 0
        self._ids = False
        self._known: set[bytes] = set()
        self._consumers: dict[str, ArchivedConsumer] = {}
        self.store: StreamStore | None = None

    def take(self, item: Item) -> None:
        """Process one item. Raises ArchiveError or StoreError."""
        self._check_kept()
        if isinstance(item, Gone):
            self._gone(item)
        elif isinstance(item, ArchivedConsumer):
            self._consumer(item)
        elif isinstance(item, ArchivedStream):
            self._stream(item)
        elif item and not isinstance(item, CountedRecords):
            self._messages(item)

    def _check_kept(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _refused(self, durable_seq: int, fault: StoreError) -> None:
        self._lost = fault

    def _stream(self, head: ArchivedStream) -> None:
        self._created_ns = head.created_ns
        if head.state is not None:
            self._expect(head.state)
            # As in nats-server, messages of version 2 must respect the payload limit; messages of version 1 need not.
            limits = self._js.engine.broker.options.limits
            own = self._config.max_msg_size
            self._largest = min(limits.max_payload, own if own >= 0 else limits.max_payload)

    def _expect(self, state: StreamState) -> None:
        self._first_seq, self._last_seq = state.first_seq, min(state.last_seq, MAX_SEQ)
        try:
            self._last_ts_ns = max(parse_time(state.last_ts), 0)
        except ValueError as fault:
            raise ArchiveError(f"the state has no valid time: {fault}") from fault

    def _messages(self, messages: Sequence[ArchivedMessage]) -> None:
        """Store messages. Raises ArchiveError, StorageLimitError or StoreError."""
        newest, largest, known = self._newest, self._largest, self._known
        timed: set[int] = set()
        for seq, ts_ns, subject, header, payload in messages:
            if not newest < seq <= MAX_SEQ:
                raise ArchiveError(f"message sequence {seq} out of order")
            newest = seq
            if ts_ns < 0 or (subject not in known and not self._is_subject(subject)):
                raise ArchiveError(f"message {seq} has no valid subject or time")
            if header:
                if not (header.startswith(b"NATS/1.0") and header.endswith(b"\r\n\r\n")):
                    raise ArchiveError(f"message {seq} has no valid header")
                if is_timed(header):
                    timed.add(seq)
                self._ids = self._ids or LEGACY_MSG_ID in header
            if largest and len(header) + len(payload) > largest:
                raise ArchiveError(f"message sequence {seq} exceeds maximum payload size")
        self._newest = newest
        if messages[0].seq < self._first_seq:
            messages = [message for message in messages if message.seq >= self._first_seq]
        if messages:
            store = self.store or self._open(messages[0].seq)
            store.append_copies(messages, timed)
            self._count(store.bytes)

    def _is_subject(self, subject: bytes) -> bool:
        """Return whether a message may have that subject, and remember it if so."""
        if _SUBJECT(subject) is None:
            return False
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known.add(subject)
        return True

    def _count(self, size: int) -> None:
        """Count `size` stored bytes in all as used. Raises StorageLimitError beyond a limit."""
        self._usage.moved(size - self._counted_bytes)
        self._counted_bytes = size
        if self._usage.room < 0:
            raise StorageLimitError("the limit for this storage is reached")

    def _gone(self, gone: Gone) -> None:
        """Remove an earlier message, or record its sequence as the stream's last."""
        if gone.seq > MAX_SEQ:
            raise ArchiveError(f"sequence {gone.seq} is out of order")
        removed = self.store is not None and self.store.remove(gone.seq) is not None
        if not removed and gone.seq > self._last_seq:
            self._last_seq, self._last_ts_ns = gone.seq, max(gone.ts_ns, 0)

    def _consumer(self, consumer: ArchivedConsumer) -> None:
        """Check and keep a consumer; an invalid one ends the restore before the stream exists."""
        name, config = consumer.name, consumer.config
        if not is_valid_name(name) or name in self._consumers or len(self._consumers) >= MAX_CONSUMERS:
            raise ArchiveError(f"consumer {name[:64]!r} can not be restored under its name")
        bounds = bounds_of(self._js)
        refusal = consumer_config.normalise(config, self._config, bounds) or check_consumer(
            config, self._config, bounds
        )
        if refusal is not None:
            raise ArchiveError(f"consumer {name}: {refusal.description}")
        state_of(consumer.progress)
        self._entries += len(consumer.progress.pending) + len(consumer.progress.redelivered)
        if self._entries > MAX_ENTRIES:
            raise ArchiveError(f"its consumers wait for more than {MAX_ENTRIES} acks")
        self._consumers[name] = consumer

    def _open(self, first_seq: int) -> StreamStore:
        """Create the store. Raises ConflictError when the name was taken meanwhile."""
        self._created_ns = self._created_ns or self._js.engine.clock.now_ns()
        meta = StreamMeta(self._created_ns, self._config)
        storage: Literal["memory", "file"] = "memory" if self._config.storage is StorageType.MEMORY else "file"
        key = f"{self._js.name}/{self._config.name}"
        self.store = self._js.engine.store.create(key, meta.encode(), storage, first_seq, provisional=True)
        self.store.refused = self._refused
        return self.store

    def completing(self) -> Steps[None]:
        """Write last sequence, ids and consumers into the store. Raises StoreError."""
        self._check_kept()
        store = self._with_last_seq()
        if self._ids:
            store.append_record(IN_USE, b"")
        for number, consumer in enumerate(self._consumers.values(), 1):
            state = state_of(consumer.progress).encode()
            created_ns = consumer.created_ns or self._js.engine.clock.now_ns()
            body = Created(number, consumer.name, created_ns, encode(consumer.config), state)
            record = encode_record(body)
            store.append_record(record.kind, record.body)
            yield CONSUMER_COST

    def _with_last_seq(self) -> StreamStore:
        """Return the store after raising its last sequence and time to the stream's; that message may be missing."""
        last_seq = max(self._last_seq, self._newest)
        store = self.store or self._open(max(last_seq, 1))
        if last_seq > store.last_seq:
            store.append_copies(((last_seq, self._last_ts_ns, _PLACEHOLDER, b"", b""),))
            store.remove(last_seq)
        return store

    def complete(self, callback: Settled) -> None:
        """Make the store permanent, and call back once it is. Raises StoreError."""
        self._check_kept()
        assert self.store is not None
        self.store.complete(callback)

    def hand_over(self) -> StreamStore:
        """Return the store and stop counting its bytes; its stream counts them from now on."""
        self._uncount()
        store, self.store = self.store, None
        assert store is not None
        return store

    def _uncount(self) -> None:
        self._usage.moved(-self._counted_bytes)
        self._counted_bytes = 0

    def discard(self) -> None:
        self._uncount()
        store, self.store = self.store, None
        if store is not None and store.key in self._js.engine.store.streams:
            self._js.engine.store.delete(store.key)


CONSUMER_COST: Final = 8
"""Cost of writing a consumer, in messages examined."""
STALL_NS: Final = 5 * SECOND
"""Maximum wait of a restore for the next chunk."""
MAX_QUEUED_BYTES: Final = 64 << 20
"""Bytes of chunks that may wait to be read; a client that waits for each answer has one chunk there."""
MAX_UNSYNCED_MESSAGES: Final = 20_000
"""Messages that may wait for a commit; above it the answer to a chunk waits for the commit."""
MAX_UNSYNCED_BYTES: Final = 8 << 20
"""Bytes of messages that may wait for a commit, with the same effect."""
RUN_ITEMS: Final = 1024
"""Items that one restore processes in a turn: 3 to 5 ms."""
PAUSE_ITEMS: Final = 256
"""Items that a batch of messages counts as at least: a step of decoding or hashing, or few large messages."""


def restore(js: JetStreamAccount, request: ApiRequest) -> Steps[Outcome]:
    wanted = request.decoded(StreamRestoreRequest)
    name, config = request.tokens[0], wanted.config
    config.name = config.name or name
    if config.name != name:
        return error(ErrCode.STREAM_MISMATCH)
    if "/" in name or "\\" in name:
        return error(ErrCode.STREAM_NAME_CONTAINS_PATH_SEPARATORS)
    require((yield from _refusing(js, config)))
    if name in js.offline.reasons():
        return js.no_stream(name)
    if name in js.streams or f"{js.name}/{name}" in js.engine.store.streams:
        return error(ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED)
    try:
        return StreamRestoreAnswer(deliver_subject=Restore(js, config, wanted, request).start())
    except ArchiveError as fault:
        return error(ErrCode.STREAM_RESTORE, err=str(fault))


def _refusing(js: JetStreamAccount, config: StreamConfig) -> Steps[ApiError | None]:
    """Return the reason that no stream of this configuration can be created; normalises it."""
    refusal = yield from rules.settling(js.draft(config))
    if refusal is None and config.num_replicas > 1:
        return error(ErrCode.STREAM_REPLICAS_NOT_SUPPORTED)
    return refusal or (yield from js.refusing_stream(config))


class Restore:
    def __init__(
        self, js: JetStreamAccount, config: StreamConfig, wanted: StreamRestoreRequest, request: ApiRequest
    ) -> None:
        engine = js.engine
        self._js, self._engine, self._config = js, engine, config
        self._subject = f"{SNAPSHOT_RESTORE_PREFIX}.{config.name}.{nuid(engine.rng)}"
        self._client = client_info(engine.broker, js.account, request)
        self._start_ns = engine.clock.now_ns()
        self._reader = ArchiveReader()
        self._staging = Staging(js, config, wanted.state)
        self._chunks: deque[tuple[bytes, bytes]] = deque()
        self._queued_bytes = 0
        self._bytes = 0
        self._reading: Iterator[Item] | None = None
        self._failure: ApiError | None = None
        self._ending = False
        self._syncing = False
        self._alarm = Alarm(engine.timers, self._stalled)

    def start(self) -> str:
        self._subscription = self._js.account.subscribe(self._subject.encode(), self._on_chunk)
        event = RestoreCreate(stream=self._config.name, client=self._client)
        self._js.advise(event)
        self._wait()
        return self._subject

    def _wait(self) -> None:
        self._alarm.set(self._engine.clock.monotonic_ns() + STALL_NS)

    # Chunks

    def _on_chunk(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        self._wait()
        if self._failure is not None:
            self._answer(reply, self._failure)
            return
        if self._ending:
            return
        self._queued_bytes += len(payload)
        self._chunks.append((payload, reply))
        if not reply:
            self._fail(
                f"restore for stream '{self._js.name} > {self._config.name}' requires reply subject for each chunk",
                reply,
            )
        elif self._queued_bytes > MAX_QUEUED_BYTES:
            self._fail("chunks arrive faster than they are read, wait for their answers", reply)
        else:
            self._engine.ready(self)

    def run(self, budget: int) -> int:
        taken = 0
        budget = min(budget, RUN_ITEMS)
        while self._chunks and taken < budget and self._failure is None and not self._ending:
            chunk, reply = self._chunks[0]
            try:
                if not chunk:
                    self._reader.finish()
                    self._finish(reply)
                    break
                more = self._read(chunk, budget - taken)
            except StorageLimitError:
                self._fail_with(
                    error(
                        ErrCode.MEMORY_RESOURCES_EXCEEDED
                        if self._config.storage is StorageType.MEMORY
                        else ErrCode.STORAGE_RESOURCES_EXCEEDED
                    ),
                    reply,
                )
                break
            except StreamKeyTakenError:
                self._fail_with(error(ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED), reply)
                break
            except (ArchiveError, StoreError) as fault:
                self._fail(str(fault), reply)
                break
            taken += more
            if self._reading is None:
                self._chunks.popleft()
                self._queued_bytes -= len(chunk)
                self._bytes += len(chunk)
                self._acknowledge(reply)
        if self._chunks and self._failure is None and not self._ending:
            self._engine.ready(self)
        return taken

    def _read(self, chunk: bytes, budget: int) -> int:
        """Process items of one chunk and return their number; at its end set `_reading` to None."""
        self._reading = self._reading or self._reader.read(chunk)
        taken = 0
        for item in self._reading:
            self._staging.take(item)
            taken += max(len(item), PAUSE_ITEMS) if isinstance(item, Sequence) else 1
            if taken >= budget:
                return taken
        self._reading = None
        return taken

    def _acknowledge(self, reply: bytes) -> None:
        """Answer a processed chunk, at once or when the store has committed its messages."""
        store = self._staging.store
        if store is None or (
            store.last_seq - store.durable_seq <= MAX_UNSYNCED_MESSAGES and store.waiting_bytes <= MAX_UNSYNCED_BYTES
        ):
            self._js.account.publish(reply, b"", b"", b"")
            return

        def settled(fault: StoreError | None) -> None:
            self._syncing = False
            self._wait()
            if fault is not None:
                self._fail(str(fault), reply)
            else:
                self._js.account.publish(reply, b"", b"", b"")

        self._syncing = True
        store.on_settled(settled)

    # The end

    def _finish(self, reply: bytes) -> None:
        """Make everything durable, then visible."""
        self._ending = True
        self._alarm.cancel()
        self._js.work.begin(self._completing(), partial(self._completed, reply))

    def _completing(self) -> Steps[ApiError | None]:
        try:
            refusal = yield from self._refusing_now()
            if refusal is None:
                yield from self._staging.completing()
            return refusal
        except StreamKeyTakenError:
            return error(ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED)
        except StoreError as fault:
            return error(ErrCode.STREAM_RESTORE, err=str(fault))

    def _completed(self, reply: bytes, refusal: ApiError | None) -> None:
        if refusal is not None:
            self._fail_with(refusal, reply)
            return
        try:
            self._staging.complete(partial(self._stored, reply))
        except StoreError as fault:
            self._fail(str(fault), reply)

    def _stored(self, reply: bytes, fault: StoreError | None) -> None:
        """Serve the stream, after it is durable."""
        if fault is not None:
            self._fail(str(fault), reply)
        else:
            self._js.work.begin(self._claiming(), partial(self._adopt, reply))

    def _refusing_now(self) -> Steps[ApiError | None]:
        if self._config.name in self._js.streams:
            return error(ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED)
        return (yield from self._js.refusing_stream(self._config))

    def _claiming(self) -> Steps[ApiError | None]:
        """Claim the subjects; return why the stream cannot be served."""
        refusal = yield from self._refusing_now()
        return refusal or (yield from self._js.claiming(self._config))

    def _adopt(self, reply: bytes, refusal: ApiError | None) -> None:
        if refusal is not None:
            self._fail_with(refusal, reply)
            return
        stored = self._staging.hand_over()
        meta = StreamMeta(StreamMeta.decode(stored.meta).created_ns, self._config)
        stream = self._js.add_stored(stored, meta)
        stream.work.begin(self._serving(stream), lambda done: self._served(stream, reply))

    def _serving(self, stream: Stream) -> Steps[None]:
        stream.work.shut()
        yield from stream.following()
        yield from stream.recovering()
        yield from stream.limits.enforcing()

    def _served(self, stream: Stream, reply: bytes) -> None:
        stream.advise(ActionType.CREATE)
        self._close(failed=False)
        if reply:
            answer = recast(stream.info(), StreamCreateAnswer)
            api_level.show(answer, self._engine.broker.options.version)
            self._js.account.publish(reply, b"", b"", encode(answer))

    def _stalled(self) -> None:
        if self._failure is not None:
            self._js.account.unsubscribe(self._subscription)
        elif self._chunks or self._syncing:
            self._wait()
        else:
            self._abandon()

    def _abandon(self) -> None:
        """Delete the data of a client that sends no more, without an answer, as nats-server does."""
        self._failure = error(ErrCode.STREAM_RESTORE, err="no chunk came for too long")
        self._staging.discard()
        self._js.account.unsubscribe(self._subscription)
        self._alarm.cancel()

    def _fail(self, reason: str, reply: bytes) -> None:
        self._fail_with(error(ErrCode.STREAM_RESTORE, err=reason), reply)

    def _fail_with(self, failure: ApiError, reply: bytes) -> None:
        """Delete the received data and answer the error; the subject stays for STALL_NS, for clients that send on."""
        if self._failure is not None:
            return
        self._failure = failure
        self._staging.discard()
        waiting = {reply: None} | {late: None for _, late in self._chunks}
        self._chunks.clear()
        self._queued_bytes = 0
        self._reading = None
        self._close(failed=True)
        for each in waiting:
            self._answer(each, failure)
        self._wait()

    def _answer(self, reply: bytes, failure: ApiError) -> None:
        if reply:
            self._js.account.publish(reply, b"", b"", encode(as_error(StreamCreateAnswer, failure, {})))

    def _close(self, failed: bool) -> None:
        self._alarm.cancel()
        if not failed:
            self._js.account.unsubscribe(self._subscription)
        event = RestoreComplete(
            stream=self._config.name,
            start=format_time(self._start_ns),
            end=format_time(self._engine.clock.now_ns()),
            bytes=self._bytes,
            client=self._client,
        )
        self._js.advise(event)
