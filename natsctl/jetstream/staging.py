"""A stream that is being restored: its store, which nobody sees yet, and its consumers.

The store is made with the first message, because an archive tells only then where it begins; an archive that is no
archive leaves no trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from natsctl.api.codec import encode
from natsctl.api.stream import StorageType, StreamConfig, StreamState
from natsctl.api.subjects import is_valid_name
from natsctl.jetstream import consumer_config
from natsctl.jetstream import consumer_log as records
from natsctl.jetstream.archive import ArchivedConsumer, ArchivedStream, ArchiveFault, Gone, Item
from natsctl.jetstream.consumer_api import bounds_of
from natsctl.jetstream.consumer_progress import state_of
from natsctl.jetstream.dedupe import IN_USE
from natsctl.jetstream.stream_meta import StreamMeta
from natsctl.store.message import StoredMessage
from natsctl.store.stream import StreamStore

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount

MAX_SEQ: Final = (1 << 62) - 1
"""Highest sequence that is restored; the bits above it mean something else in archives."""
MAX_SUBJECT_BYTES: Final = 65535
MAX_CONSUMERS: Final = 100_000
"""Consumers one archive may hold; they are kept in memory until its end."""


class Staging:
    """What has been taken in so far."""

    def __init__(self, js: JetStreamAccount, config: StreamConfig, state: StreamState) -> None:
        """Note what the client said of the archive: configuration, and the state that version 1 does not hold."""
        self._js, self._config = js, config
        self._created_ns = 0
        self._last_seq = min(state.last_seq, MAX_SEQ)
        self._consumers: dict[str, ArchivedConsumer] = {}
        self.store: StreamStore | None = None

    def take(self, item: Item) -> None:
        """Take one item in. Raises ArchiveFault or StoreError."""
        if isinstance(item, StoredMessage):
            self._message(item)
        elif isinstance(item, Gone):
            self._gone(item.seq)
        elif isinstance(item, ArchivedConsumer):
            self._consumer(item)
        else:
            self._stream(item)

    def _stream(self, head: ArchivedStream) -> None:
        self._created_ns = head.created_ns
        if head.state is not None:
            self._last_seq = min(head.state.last_seq, MAX_SEQ)

    def _message(self, message: StoredMessage) -> None:
        seq, ts_ns, subject, header, payload = message
        if not 0 < seq <= MAX_SEQ or (self.store is not None and seq <= self.store.last_seq):
            raise ArchiveFault(f"sequence {seq} is out of order")
        if not subject or len(subject) > MAX_SUBJECT_BYTES or len(subject.split()) != 1 or ts_ns < 0:
            raise ArchiveFault(f"message {seq} has no valid subject or time")
        if header and not (header.startswith(b"NATS/1.0") and header.endswith(b"\r\n\r\n")):
            raise ArchiveFault(f"message {seq} has no valid header")
        store = self.store or self._open(seq)
        store.append_at(seq, ts_ns, subject, header, payload)

    def _gone(self, seq: int) -> None:
        """Remove a message that came before, or remember that the stream went on to there."""
        if seq > MAX_SEQ:
            raise ArchiveFault(f"sequence {seq} is out of order")
        if self.store is None or self.store.remove(seq) is None:
            self._last_seq = max(self._last_seq, seq)

    def _consumer(self, consumer: ArchivedConsumer) -> None:
        """Check a consumer now, so that a bad one is refused before the stream is there."""
        name, config = consumer.name, consumer.config
        if not is_valid_name(name) or name in self._consumers or len(self._consumers) >= MAX_CONSUMERS:
            raise ArchiveFault(f"consumer {name[:64]!r} can not be restored under its name")
        bounds = bounds_of(self._js)
        refusal = consumer_config.normalise(config, self._config, bounds) or consumer_config.check(
            config, self._config, bounds
        )
        if refusal is not None:
            raise ArchiveFault(f"consumer {name}: {refusal.description}")
        state_of(consumer.progress)
        self._consumers[name] = consumer

    def _open(self, first_seq: int) -> StreamStore:
        """Make the store. Raises StreamExists when the name was taken meanwhile."""
        self._created_ns = self._created_ns or self._js.engine.clock.now_ns()
        meta = StreamMeta(self._created_ns, self._config, restoring=True)
        storage: Literal["memory", "file"] = "memory" if self._config.storage is StorageType.MEMORY else "file"
        key = f"{self._js.name}/{self._config.name}"
        self.store = self._js.engine.store.create(key, meta.encode(), storage, first_seq)
        return self.store

    def complete(self) -> StreamStore:
        """Put what belongs to the end into the store and return it. Raises StoreError."""
        store = self.store or self._open(self._last_seq + 1)
        store.skip_to(self._last_seq)
        store.append_record(IN_USE, b"")
        for number, consumer in enumerate(self._consumers.values(), 1):
            state = state_of(consumer.progress).encode()
            created_ns = consumer.created_ns or self._js.engine.clock.now_ns()
            body = records.Created(number, consumer.name, created_ns, encode(consumer.config), state)
            record = records.encode(body)
            store.append_record(record.kind, record.body)
        store.request_sync()
        return store

    def release(self) -> StreamStore:
        """Write the metadata that makes the stream one like every other."""
        assert self.store is not None
        self.store.set_meta(StreamMeta(self._created_ns, self._config).encode())
        return self.store

    def handed_over(self) -> StreamStore:
        """Return the store for good."""
        store, self.store = self.store, None
        assert store is not None
        return store

    def discard(self) -> None:
        """Delete what was taken in."""
        store, self.store = self.store, None
        if store is not None and store.key in self._js.engine.store.streams:
            self._js.engine.store.delete(store.key)
