"""The members of a consumer that its parts use: position, journal, deliveries and redeliveries.

`Consumer` provides them. Its parts (acks, delivery, redelivery, advisories) name these protocols instead of `Consumer`,
so that each of them depends only on what it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from natsctl.api.consumer import ConsumerConfig
    from natsctl.broker.account import Account
    from natsctl.jetstream.advisories import ConsumerAdvisories
    from natsctl.jetstream.consumers.consumer_state import ChangeLog, ConsumerState
    from natsctl.jetstream.consumers.delivery_budget import DeliveryBudget
    from natsctl.jetstream.consumers.pending import Undelivered
    from natsctl.jetstream.consumers.redelivery import Redelivery
    from natsctl.jetstream.engine_context import EngineContext
    from natsctl.jetstream.streams.stream_context import StreamContext
    from natsctl.store.errors import StoreError
    from natsctl.store.filters import Filters
    from natsctl.store.steps import Steps

Send: TypeAlias = "Callable[[bytes, bytes, bytes, bytes, int], bool]"
"""Sends subject, ack subject, header and payload at a monotonic time; False when the message cannot be sent now."""


class Journal(Protocol):
    """The journal of a stream, as its consumers use it."""

    def changed(self, consumer: ConsumerContext) -> None:
        """Write one record for the changes that `consumer.log` has gathered, if there are any."""

    def durable(self, consumer: ConsumerContext, callback: Callable[[StoreError | None], None]) -> None:
        """Call back when everything written so far survives a crash, or with the error that prevented it."""

    def expired(self, consumer: ConsumerContext) -> None:
        """Delete a consumer that was not used for its inactive threshold."""


class ConsumerDelivery(Protocol):
    """Pull or push delivery."""

    idle_since_ns: int

    def active(self) -> bool:
        """Return whether a client uses the consumer, for the inactive threshold."""

    def on_request(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: object) -> None:
        """Handle a pull request."""


class ConsumerLifetime(Protocol):
    """Pause and inactive threshold."""

    paused: bool

    def used(self) -> None:
        """Record that a message was acknowledged."""

    def watch(self) -> None:
        """Check again once the consumer was not used for its threshold."""


class ConsumerAcks(Protocol):
    """Acks by position."""

    def through(self, sseq: int, cseq: int) -> None:
        """Acknowledge everything delivered up to `sseq`, which had the consumer sequence `cseq`."""


class ConsumerRetry(Protocol):
    """Redeliveries."""

    def deliver(self, send: Send) -> int:
        """Send the head of the redelivery queue and return its cost, 0 when it cannot be sent now."""

    def delay(self, sseq: int, delay_ns: int) -> None:
        """Restart the ack wait of a pending message from now plus `delay_ns`."""

    def nak(self, sseq: int, cseq: int, named: int, delay_ns: int) -> None:
        """Redeliver a pending message now or after the delay; `named` is the delivery count that the ack named."""

    def advise_gone(self, sseq: int) -> None:
        """Publish the advisory that a pending message left the stream; its entry stays."""

    def messages_gone(self, sseqs: Sequence[int], reason: str) -> Steps[None]:
        """Drop the entries of messages that left the stream, in steps."""


class ConsumerContext(Protocol):
    """One consumer, as its parts and its stream use it."""

    name: str
    config: ConsumerConfig
    filters: Filters
    created_ns: int
    number: int
    engine: EngineContext
    account: Account
    journal: Journal
    state: ConsumerState
    log: ChangeLog
    events: ConsumerAdvisories
    undelivered: Undelivered
    redelivery: Redelivery
    budget: DeliveryBudget
    answers: list[bytes]
    ack_prefix: bytes
    """Beginning of its ack subjects, to the dot before the number of deliveries."""
    ack_form: bytes
    needs_ack: bool
    scheduled: bool
    stopped: bool

    @property
    def stream(self) -> StreamContext:
        """Return the stream."""

    @property
    def delivery(self) -> ConsumerDelivery:
        """Return the pull or push delivery."""

    @property
    def lifetime(self) -> ConsumerLifetime:
        """Return pause and inactive threshold."""

    @property
    def acks(self) -> ConsumerAcks:
        """Return the ack handler."""

    @property
    def retry(self) -> ConsumerRetry:
        """Return the redeliveries."""

    def now_ns(self) -> int:
        """Return the time to store: ns since the epoch, advancing with the monotonic clock."""

    def schedule(self) -> None:
        """Ask the engine for a turn, once."""

    def settle_acks(self) -> None:
        """Apply gathered acks to the ack floor and the stream."""

    def record_ack(self) -> None:
        """Record the time of an ack, or of an event that counts as one."""

    def record_deliveries(self, sseqs: list[int]) -> None:
        """Record first deliveries, ascending."""

    def flow_reply(self) -> bytes:
        """Return a new flow control reply subject."""

    def forgetting(self, gone: Sequence[int]) -> Steps[None]:
        """Drop entries, in steps."""

    def on_messages(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Count messages that became durable: (sequence, subject), ascending."""

    def on_own_messages(self, messages: Sequence[tuple[int, bytes]], number: int) -> None:
        """Count messages that became durable, `number` of which match the filters."""

    def on_removed(self, seq: int, subject: bytes, reason: str) -> None:
        """Forget a message that left the stream; `reason` goes into the advisory."""

    def purged(self, purged: Filters | None = None) -> Steps[None]:
        """Update positions and counts after a purge; None for a purge of every subject."""

    def trimmed(self, gone: AbstractSet[int]) -> Steps[None]:
        """Drop entries of messages that limits removed."""

    def recounting(self) -> Steps[None]:
        """Count the pending messages anew."""
