"""STREAM.RESTORE: a stream arrives as an archive and becomes visible as a whole, or not at all.

Theory of operation. Chunks come as requests to a subject of their own and are queued; turns of the engine read them,
item by item, so that a chunk with much content does not block the loop. Messages go into a store of their own, whose
metadata says that it is being restored: it is not visible, and a server that finds it at its start deletes it. An empty
chunk ends the transfer. Then the archive must be complete; the consumers go into the journal; once all that is durable
the final metadata follows, and once that is durable too, the stream is started exactly as after a restart, and only
then the answer is sent. Any failure deletes the store and is reported to the client with 10062; a stalled transfer is
abandoned. Source: docs/compatibility.md#snapshots-and-restores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from natsctl.api.advisories import ActionType, RestoreComplete, RestoreCreate
from natsctl.api.answers import StreamCreateAnswer, StreamRestoreAnswer, as_error
from natsctl.api.archive.archive import ArchiveError, Item
from natsctl.api.archive.archive_reader import ArchiveReader
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode, recast
from natsctl.api.config import stream_config as rules
from natsctl.api.err_codes import ErrCode
from natsctl.api.requests import StreamRestoreRequest
from natsctl.api.stream import StorageType, StreamConfig
from natsctl.api.subjects import SNAPSHOT_RESTORE_PREFIX
from natsctl.api.times import format_time
from natsctl.api.units import SECOND
from natsctl.jetstream import api_level
from natsctl.jetstream.alarm import Alarm
from natsctl.jetstream.archive.staging import Staging, StorageLimitError
from natsctl.jetstream.consumers.consumer_events import nuid
from natsctl.jetstream.endpoints.client_info import client_info
from natsctl.jetstream.endpoints.requests import ApiRequest, Outcome
from natsctl.store.errors import StoreError, StreamExistsError

if TYPE_CHECKING:
    from natsctl.broker.session import Session
    from natsctl.jetstream.account import JetStreamAccount
    from natsctl.jetstream.stream import Stream

STALL_NS: Final = 5 * SECOND
"""Longest time that a restore waits for the next chunk."""
MAX_QUEUED_BYTES: Final = 64 << 20
"""Chunks that may wait to be read; a client that waits for answers never has more than one."""
MAX_UNSYNCED_MESSAGES: Final = 20_000
"""Messages that may wait for a commit before the answers to chunks wait too."""
MAX_UNSYNCED_BYTES: Final = 16 << 20
"""And bytes of them."""
RUN_ITEMS: Final = 1024
"""Messages one restore takes in per turn: 3 to 5 ms."""
PAUSE_ITEMS: Final = 256
"""Messages that a step of decoding or hashing counts as, or a batch of few large messages."""


def restore(js: JetStreamAccount, request: ApiRequest) -> Outcome:
    """Serve STREAM.RESTORE."""
    wanted = request.decoded(StreamRestoreRequest)
    name, config = request.tokens[0], wanted.config
    config.name = config.name or name
    if config.name != name:
        return error(ErrCode.STREAM_MISMATCH)
    if "/" in name or "\\" in name:
        return error(ErrCode.STREAM_NAME_CONTAINS_PATH_SEPARATORS)
    refusal = _refuse(js, config)
    if refusal is not None:
        return refusal
    if name in js.offline.reasons():
        return js.no_stream(name)
    if name in js.streams or f"{js.name}/{name}" in js.engine.store.streams:
        return error(ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED)
    try:
        return StreamRestoreAnswer(deliver_subject=Restore(js, config, wanted, request).start())
    except ArchiveError as fault:
        return error(ErrCode.STREAM_RESTORE, err=str(fault))


def _refuse(js: JetStreamAccount, config: StreamConfig) -> ApiError | None:
    """Return why there can be no stream of this configuration; it is normalised on the way."""
    refusal = rules.settle(js.draft(config))
    if refusal is None and config.num_replicas > 1:
        return error(ErrCode.STREAM_REPLICAS_NOT_SUPPORTED)
    return refusal or js.refuse_stream(config)


class Restore:
    """One transfer."""

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
        """Subscribe to chunks and return the subject."""
        self._subscription = self._js.account.subscribe(self._subject.encode(), self._on_chunk)
        event = RestoreCreate(stream=self._config.name, client=self._client)
        self._js.advise(event.subject(), event)
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
        """Process up to `budget` items of the waiting chunks."""
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
            except StreamExistsError:
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
                self._taken_in(reply)
        if self._chunks and self._failure is None and not self._ending:
            self._engine.ready(self)
        return taken

    def _read(self, chunk: bytes, budget: int) -> int:
        """Process items of one chunk and return their number; `_reading` is None when it holds no more."""
        self._reading = self._reading or self._reader.read(chunk)
        taken = 0
        for item in self._reading:
            self._staging.take(item)
            taken += max(len(item), PAUSE_ITEMS) if isinstance(item, Sequence) else 1
            if taken >= budget:
                return taken
        self._reading = None
        return taken

    def _taken_in(self, reply: bytes) -> None:
        """Answer a chunk, once the store is not far behind."""
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
        store.on_durable(settled)

    # The end

    def _finish(self, reply: bytes) -> None:
        """Make everything durable, then visible."""
        self._ending = True
        self._alarm.cancel()
        refusal = self._refuse_now()
        if refusal is not None:
            self._fail_with(refusal, reply)
            return
        try:
            store = self._staging.complete()
            store.on_durable(partial(self._stored, reply))
        except StreamExistsError:
            self._fail_with(error(ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED), reply)
        except StoreError as fault:
            self._fail(str(fault), reply)

    def _stored(self, reply: bytes, fault: StoreError | None) -> None:
        """Write the final metadata, after messages and journal are durable."""
        if fault is not None:
            self._fail(str(fault), reply)
            return
        try:
            self._staging.release().on_durable(partial(self._released, reply))
        except StoreError as failed:
            self._fail(str(failed), reply)

    def _released(self, reply: bytes, fault: StoreError | None) -> None:
        """Serve the stream, after the final metadata is durable."""
        refusal = self._refuse_now()
        if fault is not None:
            self._fail(str(fault), reply)
        elif refusal is not None:
            self._fail_with(refusal, reply)
        else:
            self._adopt(reply)

    def _refuse_now(self) -> ApiError | None:
        if self._config.name in self._js.streams:
            return error(ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED)
        return self._js.refuse_stream(self._config)

    def _adopt(self, reply: bytes) -> None:
        stream: Stream = self._js.adopt(self._staging.handed_over())
        stream.recover()
        stream.work.begin(stream.limits.enforcing(), lambda done: self._served(stream, reply))

    def _served(self, stream: Stream, reply: bytes) -> None:
        """Publish the advisory and send the answer."""
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
        """Delete the data of a client that is gone, without an answer, as nats-server does."""
        self._failure = error(ErrCode.STREAM_RESTORE, err="no chunk came for too long")
        self._staging.discard()
        self._js.account.unsubscribe(self._subscription)
        self._alarm.cancel()

    def _fail(self, reason: str, reply: bytes) -> None:
        self._fail_with(error(ErrCode.STREAM_RESTORE, err=reason), reply)

    def _fail_with(self, failure: ApiError, reply: bytes) -> None:
        """Delete the received data and answer the error; the subject stays a while, for clients that send on."""
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
        """End the transfer and publish the advisory."""
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
        self._js.advise(event.subject(), event)
