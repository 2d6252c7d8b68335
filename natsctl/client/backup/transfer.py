"""Transfers of one stream: their progress, and retries on a new connection after a broken one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, ProtocolError, UnreachableError
from natsctl.client.connection import ConnectionLostError
from natsctl.client.manager import Manager


@dataclass(slots=True)
class TransferProgress:
    """Progress of a transfer: `archive_bytes` have crossed the wire, `total_bytes` is the stream's size as reported.

    `attempt` counts from 1. Each begins at the start, because neither server can continue in the middle.
    """

    stream: str
    total_bytes: int
    archive_bytes: int = 0
    chunks: int = 0
    attempt: int = 1
    started_s: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_s

    def again(self) -> None:
        self.archive_bytes = self.chunks = 0
        self.attempt += 1


OnProgress = Callable[[TransferProgress], None]
Say = Callable[[str], None]


def ignore_progress(progress: TransferProgress) -> None:
    """Show nothing."""


def mute(text: str) -> None:
    """Show nothing."""


T = TypeVar("T")

RETRIES = 3
"""Attempts after the first, unless `--retries` is given."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 8.0
"""Pauses between attempts: the first, doubled each time up to the longest."""
PATIENCE_S = 60.0
"""Maximum time for a cluster to elect leaders after a server has died."""
UNAVAILABLE = frozenset((ErrCode.CLUSTER_NOT_AVAIL, ErrCode.CLUSTER_NOT_LEADER, ErrCode.STREAM_OFFLINE))
"""Errors while a cluster has no leader: JetStream unavailable, no leader of a stream, stream offline."""
PAUSE_S = 0.5
"""Pause between two attempts within `PATIENCE_S`."""


def may_come_back(failure: NatsctlError, manager: Manager) -> bool:
    """Return whether the request may succeed on another server, or after an election.

    False if only one server was named: its loss is reported.
    """
    if len(manager.connection.target.urls) < 2:
        return False
    if isinstance(failure, ApiResponseError):
        return failure.err_code in UNAVAILABLE
    return isinstance(failure, UnreachableError)


class TransferInterruptedError(ProtocolError):
    """A transfer ended before it was whole; another attempt may succeed."""


class TransferTimeoutError(UnreachableError):
    """The server stopped answering during a transfer; another attempt may succeed."""


class RetryingManager:
    """A manager that reopens a lost connection; concurrent transfers share it."""

    def __init__(self, manager: Manager, *, retries: int = RETRIES, say: Say = mute) -> None:
        self.manager = manager
        self.retries = retries
        self.say = say

    async def run(self, what: str, work: Callable[[Manager], Awaitable[T]]) -> T:
        """Return the result of `work`, repeated after a lost connection; the notice to the user names it as `what`.

        Raises the error of the last attempt, and at once one that another attempt would not change.
        """
        for attempt in range(self.retries + 1):
            manager = self.manager
            try:
                return await work(manager)
            except NatsctlError as failure:
                broken = (
                    isinstance(failure, TransferInterruptedError | TransferTimeoutError | ConnectionLostError)
                    or manager.connection.lost
                )
                elects = not broken and may_come_back(failure, manager)
                if not (broken or elects) or attempt == self.retries:
                    raise
                self.say(f"{failure.text}: beginning {what} again ({attempt + 1} of {self.retries})")
            if elects:
                await asyncio.sleep(min(FIRST_WAIT_S * 2**attempt, LONGEST_WAIT_S))
            await self.renew(attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`, repeated while a cluster recovers from a lost server; it must be idempotent."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await work()
            except NatsctlError as failure:
                if time.monotonic() >= until_s or not may_come_back(failure, self.manager):
                    raise
            await self.renew()
            await asyncio.sleep(PAUSE_S)

    async def renew(self, attempt: int = 0) -> Manager:
        """Return the manager, its connection opened again if it was lost.

        Raises UnreachableError if no server can be reached.
        """
        wait_s = min(FIRST_WAIT_S * 2**attempt, LONGEST_WAIT_S)
        for left in range(self.retries, -1, -1):
            if not self.manager.connection.lost:
                break
            try:
                await self.manager.connection.reopen()
            except UnreachableError:
                if not left:
                    raise
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
        return self.manager
