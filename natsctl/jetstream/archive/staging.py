"""A stream that is being restored: its store, which is not visible yet, and its consumers.

The store is created with the first message, because the start of an archive is known only then; an invalid archive
leaves no trace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from natsctl.api.archive.archive import ArchivedConsumer, ArchivedMessage, ArchivedStream, ArchiveError, Gone, Item
from natsctl.api.codec import encode
from natsctl.api.config import consumer_config
from natsctl.api.config.consumer_check import check as check_consumer
from natsctl.api.headers import LEGACY_MSG_ID
from natsctl.api.stream import StorageType, StreamConfig, StreamState
from natsctl.api.subjects import is_valid_name
from natsctl.api.times import parse_time
from natsctl.jetstream.consumers import consumer_log as records
from natsctl.jetstream.consumers.consumer_create import bounds_of
from natsctl.jetstream.consumers.consumer_progress import state_of
from natsctl.jetstream.publish.dedupe import IN_USE
from natsctl.jetstream.stream_meta import StreamMeta
from natsctl.jetstream.timed.timed_messages import is_timed
from natsctl.store.errors import StoreError
from natsctl.store.stream import StreamStore

if TYPE_CHECKING:
    from natsctl.jetstream.account import JetStreamAccount

MAX_SEQ: Final = (1 << 62) - 1
"""Highest sequence that is restored; the bits above it mean something else in archives."""
MAX_SUBJECT_BYTES: Final = 65535
MAX_CONSUMERS: Final = 100_000
"""Consumers one archive may hold; they are kept in memory until its end."""
MAX_ENTRIES: Final = 5_000_000
"""Pending and redelivered messages of all of them together, for the same reason."""
MAX_KNOWN: Final = 4096
"""Subjects that need no second look."""
_SUBJECT: Final = re.compile(rb"[^\s\0]{1,%d}" % MAX_SUBJECT_BYTES).fullmatch
_PLACEHOLDER: Final = b"_"
"""Subject of the message that is stored and removed again where the stream's last one is gone."""


class StorageLimitError(StoreError):
    """The account, or the server, may not store that much."""


class Staging:
    """The data received so far."""

    def __init__(self, js: JetStreamAccount, config: StreamConfig, state: StreamState) -> None:
        """Record the client's description of the archive: configuration, and the state, which version 1 does not hold.

        Its first sequence counts: block files may still hold messages that limits have dropped.
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
        elif item:
            self._messages(item)

    def _check_kept(self) -> None:
        """Raise StoreError when a commit could not keep received messages."""
        if self._lost is not None:
            raise self._lost

    def _refused(self, durable_seq: int, fault: StoreError) -> None:
        self._lost = fault

    def _stream(self, head: ArchivedStream) -> None:
        self._created_ns = head.created_ns
        if head.state is not None:
            self._expect(head.state)
            # Version 2 is read like messages of clients, version 1 like what was on disk.
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
        """Store messages. Raises StorageLimitError where the account or the server has no room for them."""
        newest, first_seq, largest, store = self._newest, self._first_seq, self._largest, self.store
        known = self._known
        for seq, ts_ns, subject, header, payload in messages:
            if not newest < seq <= MAX_SEQ:
                raise ArchiveError(f"message sequence {seq} out of order")
            newest = seq
            if ts_ns < 0 or (subject not in known and not self._is_subject(subject)):
                raise ArchiveError(f"message {seq} has no valid subject or time")
            timed = False
            if header:
                if not (header.startswith(b"NATS/1.0") and header.endswith(b"\r\n\r\n")):
                    raise ArchiveError(f"message {seq} has no valid header")
                timed = is_timed(header)
                self._ids = self._ids or LEGACY_MSG_ID in header
            if largest and len(header) + len(payload) > largest:
                raise ArchiveError(f"message sequence {seq} exceeds maximum payload size")
            if seq >= first_seq:
                store = store or self._open(seq)
                store.append_at(seq, ts_ns, subject, header, payload, timed)
        self._newest = newest
        if store is not None:
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
        """Count stored bytes as used. Raises StorageLimitError beyond a limit."""
        self._usage.moved(size - self._counted_bytes)
        self._counted_bytes = size
        if self._usage.room < 0:
            raise StorageLimitError("the limit for this storage is reached")

    def _gone(self, gone: Gone) -> None:
        """Remove a message that came before, or remember that the stream went on to there."""
        if gone.seq > MAX_SEQ:
            raise ArchiveError(f"sequence {gone.seq} is out of order")
        removed = self.store is not None and self.store.remove(gone.seq) is not None
        if not removed and gone.seq > self._last_seq:
            self._last_seq, self._last_ts_ns = gone.seq, max(gone.ts_ns, 0)

    def _consumer(self, consumer: ArchivedConsumer) -> None:
        """Check a consumer now, so that a bad one is refused before the stream is there."""
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
        """Create the store. Raises StreamExistsError when the name was taken meanwhile."""
        self._created_ns = self._created_ns or self._js.engine.clock.now_ns()
        meta = StreamMeta(self._created_ns, self._config, restoring=True)
        storage: Literal["memory", "file"] = "memory" if self._config.storage is StorageType.MEMORY else "file"
        key = f"{self._js.name}/{self._config.name}"
        self.store = self._js.engine.store.create(key, meta.encode(), storage, first_seq)
        self.store.refused = self._refused
        return self.store

    def complete(self) -> StreamStore:
        """Write last sequence, ids and consumers into the store and return it. Raises StoreError."""
        self._check_kept()
        store = self._with_last_seq()
        if self._ids:
            store.append_record(IN_USE, b"")
        for number, consumer in enumerate(self._consumers.values(), 1):
            state = state_of(consumer.progress).encode()
            created_ns = consumer.created_ns or self._js.engine.clock.now_ns()
            body = records.Created(number, consumer.name, created_ns, encode(consumer.config), state)
            record = records.encode(body)
            store.append_record(record.kind, record.body)
        store.request_sync()
        return store

    def _with_last_seq(self) -> StreamStore:
        """Return the store with the stream's last sequence and time, whose message may be gone."""
        last_seq = max(self._last_seq, self._newest)
        store = self.store or self._open(max(last_seq, 1))
        if last_seq > store.last_seq:
            store.append_at(last_seq, self._last_ts_ns, _PLACEHOLDER, b"", b"")
            store.remove(last_seq)
        return store

    def release(self) -> StreamStore:
        """Write the metadata that makes the stream one like every other. Raises StoreError."""
        self._check_kept()
        assert self.store is not None
        self.store.set_meta(StreamMeta(self._created_ns, self._config).encode())
        return self.store

    def handed_over(self) -> StreamStore:
        """Hand over the store; its stream counts its bytes from here on."""
        self._count_no_more()
        store, self.store = self.store, None
        assert store is not None
        return store

    def _count_no_more(self) -> None:
        self._usage.moved(-self._counted_bytes)
        self._counted_bytes = 0

    def discard(self) -> None:
        """Delete the received data."""
        self._count_no_more()
        store, self.store = self.store, None
        if store is not None and store.key in self._js.engine.store.streams:
            self._js.engine.store.delete(store.key)
