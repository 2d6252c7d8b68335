"""The members of a stream that its parts use: store, configuration, account, clocks, and each other.

`Stream` provides them. Its parts (publish path, limits, expiry, retention, mirror and sources, direct gets) name these
protocols instead of `Stream`, so that each of them depends only on what it calls.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from natsctl.api.advisories import Advised
    from natsctl.api.catalogue import ApiError
    from natsctl.api.stream import StreamConfig
    from natsctl.broker.account import Account
    from natsctl.broker.session import Session
    from natsctl.jetstream.consumers.consumer_context import ConsumerContext
    from natsctl.jetstream.consumers.consumer_router import ConsumerRouter
    from natsctl.jetstream.consumers.retention import FilterClaim
    from natsctl.jetstream.engine_context import EngineContext
    from natsctl.jetstream.quota import AccountUsage
    from natsctl.jetstream.streams.pending_message import PendingMessage, PublishAcks
    from natsctl.jetstream.work import Work
    from natsctl.store.filters import Filters
    from natsctl.store.message import Copy, RemovedMessage
    from natsctl.store.steps import Steps
    from natsctl.store.stream import StreamStore


class StreamAccount(Protocol):
    """The account of a stream."""

    router: ConsumerRouter
    work: Work

    @property
    def streams(self) -> Mapping[str, StreamContext]:
        """Return the streams of the account by name."""

    def advise(self, subject: str, event: Advised) -> None:
        """Publish an advisory, if it has a subscriber."""


class DuplicateWindow(Protocol):
    """The message ids of the duplicate window."""

    @property
    def last_id(self) -> bytes:
        """Return the id of the last stored message, empty when it had none."""

    def find(self, msg_id: bytes) -> int:
        """Return the sequence under which `msg_id` is remembered, 0 when it is not."""

    def are_new(self, ids: Sequence[bytes]) -> bool:
        """Return whether none of these ids is remembered, empty or repeated."""

    def stored(self, seq: int, msg_id: bytes) -> None:
        """Remember the id of a message that was stored, if it has one. Raises StoreError."""

    def stored_together(self, first_seq: int, ids: Sequence[bytes]) -> None:
        """Remember the ids, all new, of messages that were stored under sequences from `first_seq` on."""

    def message_gone(self, seq: int) -> None:
        """Keep the id of a message that was removed."""

    def forget_above(self, seq: int) -> None:
        """Forget the ids of messages above `seq`."""

    def records(self) -> list[tuple[int, bytes]]:
        """Return the journal records of the window."""


class InterestIndex(Protocol):
    """The consumers of a stream by the subjects that they take."""

    def announce(self, stored: Sequence[tuple[int, bytes]]) -> None:
        """Pass messages that became durable, ascending, to the consumers that take them."""

    def overlapping(self, patterns: Sequence[bytes]) -> Steps[dict[ConsumerContext, None]]:
        """Return the consumers whose filters overlap some patterns."""


class RetentionPolicies(Protocol):
    """Interest and work queue retention."""

    removes: bool

    @property
    def interest(self) -> InterestIndex:
        """Return the consumers by the subjects that they take."""

    def refuses(self, subject: bytes) -> bool:
        """Return whether a message on `subject` is not kept because no consumer would take it."""

    def acked(self, seqs: Iterable[int]) -> None:
        """Remove acknowledged messages that no other consumer waits for."""

    def committed(self) -> None:
        """Continue a sweep that waited for messages to become durable."""

    def consumer_added(self, consumer: ConsumerContext, claim: FilterClaim | None = None) -> None:
        """Add a new consumer."""

    def consumer_updated(self, consumer: ConsumerContext, claim: FilterClaim | None = None) -> None:
        """Apply a consumer's new configuration."""

    def consumer_deleted(self, consumer: ConsumerContext) -> None:
        """Drop a consumer that was deleted."""

    def consumer_reset(self) -> None:
        """Examine every message again after a consumer was reset."""


class CounterTotals(Protocol):
    """The last messages of counters."""

    def last(self, subject: bytes) -> tuple[bytes, bytes] | None:
        """Return header and payload of a counter's last message, durable or not; None if there is none."""


class PublishPath(Protocol):
    """The publish path of a stream."""

    acks: PublishAcks

    @property
    def totals(self) -> CounterTotals:
        """Return the last messages of counters."""

    @property
    def copies_plainly(self) -> bool:
        """Return whether storing a mirrored message has no further effect."""

    def publish(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Handle one published message."""

    def take(self, message: PendingMessage) -> None:
        """Check and store one message, or keep it for a batch."""

    def map_subject(self, message: PendingMessage) -> None:
        """Apply the stream's subject transform."""

    def store_checked(self, message: PendingMessage) -> ApiError | int:
        """Store a checked message and return its sequence, or the reason against it."""

    def append_silently(self, subject: bytes, payloads: list[bytes]) -> ApiError | int:
        """Store messages that need no check and no ack, and return the last sequence."""

    def store_batch(self, messages: Sequence[PendingMessage]) -> None:
        """Store checked messages together or not at all."""

    def store_own(self, message: PendingMessage) -> int:
        """Store a message that the server made and return its sequence. Raises StoreError."""

    def store_sourced(self, subject: bytes, header: bytes, payload: bytes) -> bool:
        """Store a message of a source; False when it is refused for now."""

    def store_mirrored(
        self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes, timed: bool = False
    ) -> None:
        """Store a message of the origin under its own sequence and time. Raises StoreError."""

    def store_copies(self, messages: Sequence[Copy]) -> None:
        """Store messages of the origin that have no header."""


class ContentLimits(Protocol):
    """The limits on a stream's contents."""

    any: bool

    def refuse(self, subject: bytes, header: bytes, payload: bytes) -> ApiError | None:
        """Return the reason why discard new refuses a message, or None."""


class TtlIndex(Protocol):
    """The messages that max_age spares."""

    def spares(self, seq: int) -> bool:
        """Return whether max_age spares a message."""

    def spared_below(self, seq: int) -> bool:
        """Return whether max_age spares a message below `seq`."""


class TimedIndex(Protocol):
    """TTLs and schedules."""

    @property
    def ttl(self) -> TtlIndex:
        """Return the messages that max_age spares."""

    @property
    def loading(self) -> bool:
        """Return whether messages stored before the start are still to be read."""

    def listeners(self) -> list[Callable[[int, PendingMessage], None]]:
        """Return the callbacks for stored messages."""

    def committed(self, durable_seq: int) -> None:
        """Continue work that waited for messages to become durable."""

    def records(self) -> list[tuple[int, bytes]]:
        """Return the journal records of schedules."""


class Expirer(Protocol):
    """The max_age of a stream."""

    def catch_up(self) -> None:
        """Expire what is due after a restart."""

    def committed(self) -> None:
        """Start the timer for new messages."""


class Markers(Protocol):
    """Delete markers."""

    ttl_ns: int

    def expire(self, seq: int, reason: str) -> None:
        """Remove one durable message that has expired, and leave a marker where the stream wants one."""


class JournalSource(Protocol):
    """A part with records in the stream's journal."""

    def records(self) -> list[tuple[int, bytes]]:
        """Return the records for a rewritten journal."""


class Origins(Protocol):
    """The mirror and the sources of a stream."""

    @property
    def sources(self) -> JournalSource:
        """Return the sources."""

    def taken(self, lag: int) -> None:
        """Answer direct gets for the origin, once the mirror lags behind by only a few messages."""


class DirectGets(Protocol):
    """The direct gets of a stream."""

    def caught_up(self, pending: int) -> None:
        """Answer for the origin from now on, if the mirror lacks only a few of its messages."""


class StreamJournal(Protocol):
    """The journal that consumers share with the duplicate window, schedules and sources."""

    def rewrite_if_large(self) -> None:
        """Rewrite the journal if it has grown much larger than its contents. Raises StoreError."""


class StreamContext(Protocol):
    """One stream, as its parts use it."""

    name: str
    config: StreamConfig
    created_ns: int
    store: StreamStore
    engine: EngineContext
    account: Account
    usage: AccountUsage
    work: Work

    @property
    def js(self) -> StreamAccount:
        """Return the account's JetStream."""

    @property
    def consumers(self) -> Mapping[str, ConsumerContext]:
        """Return the consumers by name."""

    @property
    def consumer_count(self) -> int:
        """Return the number of consumers that lists show."""

    @property
    def consumer_set(self) -> StreamJournal:
        """Return the owner of the journal."""

    @property
    def dedupe(self) -> DuplicateWindow:
        """Return the duplicate window."""

    @property
    def retention(self) -> RetentionPolicies:
        """Return interest and work queue retention."""

    @property
    def pipeline(self) -> PublishPath:
        """Return the publish path."""

    @property
    def limits(self) -> ContentLimits:
        """Return the limits on the contents."""

    @property
    def timed(self) -> TimedIndex:
        """Return TTLs and schedules."""

    @property
    def expiry(self) -> Expirer:
        """Return max_age."""

    @property
    def markers(self) -> Markers:
        """Return delete markers."""

    @property
    def upstreams(self) -> Origins:
        """Return mirror and sources."""

    @property
    def direct_get(self) -> DirectGets:
        """Return the direct gets."""

    def removed(self, gone: RemovedMessage, reason: str) -> None:
        """Inform the other parts that one message was removed."""

    def remove(self, seq: int, erase: bool = False) -> bool:
        """Remove one message and return whether it existed. Raises StoreError."""

    def purge(self, filters: Filters | None = None, below_seq: int = 0, keep: int = 0) -> int:
        """Remove messages as `StreamStore.purge` does and return their number. Raises StoreError."""

    def purging(self, filters: Filters | None = None, below_seq: int = 0, keep: int = 0) -> Steps[int]:
        """Purge in steps; a job of `work`."""

    def trimmed(self, seqs: array[int]) -> Steps[None]:
        """Inform the other parts that limits removed messages, ascending."""

    def recounting(self) -> Steps[None]:
        """Count the pending messages of every consumer anew."""

    def count_bytes(self) -> None:
        """Update the bytes that account and server count as used."""
