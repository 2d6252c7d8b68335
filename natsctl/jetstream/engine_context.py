"""The services that one server's JetStream offers to its accounts, streams and consumers.

`Engine` provides them. Code below it names this protocol, so that each part can be read and tested without the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from natsctl.api.account import AccountLimits
from natsctl.api.clock import Clock
from natsctl.api.stream import StorageType
from natsctl.jetstream.publish.batch_limits import BatchLimits, OpenBatches

if TYPE_CHECKING:
    from natsctl.broker.broker import Broker
    from natsctl.jetstream.clock_watch import ClockWatch
    from natsctl.jetstream.timers import Timers
    from natsctl.jetstream.usage import ServerUsage
    from natsctl.store.errors import StoreError
    from natsctl.store.store import Store
    from natsctl.store.stream import StreamStore


class Rng(Protocol):
    """The part of random.Random that JetStream draws from."""

    def random(self) -> float:
        """Return a number from 0 up to, not including, 1."""

    def getrandbits(self, k: int, /) -> int:
        """Return a number of `k` random bits."""

    def choices(self, population: Sequence[str], *, k: int) -> list[str]:
        """Return `k` of `population`, each time any of them."""


class Runnable(Protocol):
    """A part that can wait in the ready queue."""

    def run(self, budget: int) -> int:
        """Deliver up to `budget` messages and return how many went; ask again with `Engine.ready` if there is more."""


class DurableChange(Protocol):
    """Something on its way to the disk, or off it."""

    def on_durable(self, callback: Callable[[StoreError | None], None], /) -> None:
        """Call back once it is there (or gone) for good, or with the error that prevents it."""


class JetStreamOptions(msgspec.Struct, kw_only=True):
    """The operator's settings: limits of the whole server and of its accounts. Sizes are bytes."""

    max_memory: int = -1
    max_storage: int = -1
    """Limits of all messages kept in memory and on disk; 0 or less: none."""
    domain: str = ""
    accounts: dict[str, AccountLimits] | None = None
    """The accounts that have JetStream, with their limits, beside those whose own configuration gives it to them.

    None: every account, without limits.
    """
    max_duplicate_window_ns: int = 0
    """Largest duplicate window a stream may have; 0: no limit."""
    max_ack_pending: int = 0
    """Largest max_ack_pending a consumer may have; 0: no limit."""
    max_request_batch: int = 0
    """Largest batch a consumer may allow its pull requests; 0: no limit."""
    default_max_consumers: int = 1000
    """Consumers of a stream where neither stream nor account has a limit; 0 or less: none."""
    batches: BatchLimits = msgspec.field(default_factory=BatchLimits)
    archive_version: int = 2
    """Format of snapshots: 2, which servers from 2.15 on write and read, or 1, which every server reads."""


class DiskFullReporter(Protocol):
    """Advisories about a full disk."""

    def met(self, stream: str) -> None:
        """Report that a stream could not be written for lack of room."""


class EngineContext(Protocol):
    """The store, clocks, timers and ready queue of one server's JetStream."""

    store: Store
    broker: Broker
    clock: Clock
    rng: Rng
    options: JetStreamOptions
    timers: Timers
    notice: Callable[[str], None]
    clock_watch: ClockWatch
    open_batches: OpenBatches
    closed: dict[StreamStore, None]
    usage: dict[StorageType, ServerUsage]

    @property
    def disk_full(self) -> DiskFullReporter:
        """Return the advisories about a full disk."""

    @property
    def offline(self) -> dict[str, str]:
        """Return the reasons why stored streams are not served, by key."""

    def ready(self, runnable: Runnable) -> None:
        """Run `runnable` in the next turn, once, however often it is called."""

    def settle_acks(self) -> None:
        """Apply the acks that were gathered in this turn."""

    def reserved(self, storage: StorageType) -> int:
        """Return the sum of max_bytes over all accounts."""

    def forget_unreadable(self, key: str) -> None:
        """Stop listing a stream as offline, because it is about to be deleted."""

    def remove_streams(self, account: str) -> Sequence[DurableChange]:
        """Remove every stream of an account and return the removals under way."""
