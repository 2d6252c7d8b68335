"""The options of one server's JetStream, and objects that watch the clock, request faults and open batches.

`ClockWatch` suspends expiry by age for `HOLD_NS` after a jump of the wall clock, so that an operator can react. Each
check compares the wall clock with the monotonic one. A machine that was suspended looks like a jump too; its messages
expire a little later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from natsctl.api.account import AccountLimits
from natsctl.api.times import Clock

if TYPE_CHECKING:
    from natsctl.store.errors import StoreError


JUMP_NS: Final = 5 * 60 * 1_000_000_000
"""A difference between the clocks that grew by more than this between two checks is a jump."""

HOLD_NS: Final = 60 * 1_000_000_000
"""Time after a jump during which nothing expires."""


class ClockWatch:
    """Detection of jumps of the wall clock; a jump suspends expiry."""

    def __init__(self, clock: Clock, notice: Callable[[str], None]) -> None:
        """Watch `clock`; `notice` is called with a sentence when it jumps."""
        self._clock = clock
        self._notice = notice
        self._apart_ns = clock.now_ns() - clock.monotonic_ns()
        self._held_until_ns = 0

    def held_until_ns(self) -> int:
        """Return the monotonic time until which nothing may expire; 0 when nothing is held."""
        now_ns = self._clock.monotonic_ns()
        apart_ns = self._clock.now_ns() - now_ns
        jump_ns, self._apart_ns = apart_ns - self._apart_ns, apart_ns
        if abs(jump_ns) > JUMP_NS:
            self._held_until_ns = now_ns + HOLD_NS
            self._notice(
                f"the clock jumped by {jump_ns / 1e9:+.0f} s: no message expires by age for {HOLD_NS // 10**9} s"
            )
        return self._held_until_ns if now_ns < self._held_until_ns else 0


REQUEST_FAULT_NS: Final = 1_000_000_000
"""Min time between two log lines about the same request. Source: nats-server, startRateLimitLogExpiration."""
MAX_REQUEST_FAULTS: Final = 50
"""Lines about requests in that time; more are left out."""
MAX_FAULT_LENGTH: Final = 1024
"""Maximum characters of such a line: it names a field, possibly as long as a message."""


class RequestFaults:
    """The log of requests that are not as their model has them, limited: a client can send many."""

    def __init__(self, clock: Clock, notice: Callable[[str], None]) -> None:
        """`notice` is called with each line that is to be logged."""
        self._clock = clock
        self._notice = notice
        self._began_ns = 0
        self._lines: set[str] = set()

    def log(self, line: str) -> None:
        """Log a line, unless it was logged just now or too many were."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._began_ns >= REQUEST_FAULT_NS:
            self._began_ns, self._lines = now_ns, set()
        line = line[:MAX_FAULT_LENGTH]
        if line not in self._lines and len(self._lines) < MAX_REQUEST_FAULTS:
            self._lines.add(line)
            self._notice(line)


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of atomic and fast batches. Source: nats-server, stream.go, for all but the bytes."""

    timeout_ns: int = 10_000_000_000
    """Time that a batch stays open without a message."""
    atomic_size: int = 1000
    """Messages of one atomic batch."""
    atomic_of_stream: int = 50
    atomic_of_server: int = 1000
    fast_of_stream: int = 1000
    fast_of_server: int = 50_000
    staged_bytes_of_stream: int = 128 * 1024 * 1024
    """Memory for messages of atomic batches that are not committed; nats-server keeps them on disk."""
    staged_bytes_of_server: int = 512 * 1024 * 1024


class OpenBatches:
    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self.atomic = 0
        self.fast = 0
        self.staged_bytes = 0


class Runnable(Protocol):
    """A part that can wait in the ready queue."""

    def run(self, budget: int) -> int:
        """Deliver up to `budget` messages and return how many went; ask again with `Engine.ready` if there is more."""


class DurableChange(Protocol):
    """Something on its way to the disk, or off it."""

    def on_durable(self, callback: Callable[[StoreError | None], None], /) -> None:
        """Call back once its creation (or removal) is durable, or with the error that prevents it."""


class JetStreamOptions(msgspec.Struct, kw_only=True):
    """The operator's settings: limits of the whole server and of its accounts. Sizes are bytes."""

    max_memory: int = -1
    max_storage: int = -1
    """Limits of all messages kept in memory and on disk; 0 or less: none."""
    domain: str = ""
    accounts: dict[str, AccountLimits] | None = None
    """Accounts with JetStream and their limits, in addition to accounts enabled by their own configuration.

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
    strict: bool = True
    """Requests with unknown fields are refused."""
    archive_version: int = 2
    """Format of snapshots: 2 (written and read from 2.15 on) or 1 (read by every server)."""
