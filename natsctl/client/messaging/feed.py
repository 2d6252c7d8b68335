"""Sources of messages to be shown, all read in the same way; messaging/stream_feed.py has those of streams."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from natsctl.client.connection import Subscription
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message


class Feed(Protocol):
    """Messages as they come; an asynchronous context manager that leaves nothing behind."""

    @property
    def ended(self) -> bool:
        """Return whether nothing more will come."""

    def now(self) -> Message | None:
        """Return a message that has come already."""

    async def next(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message, or None when none came in time or the feed has ended."""

    async def __aenter__(self) -> Feed: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class CoreFeed:
    """Messages published on some subjects."""

    ended = False

    def __init__(self, manager: Manager, subjects: Sequence[str], queue: str = "") -> None:
        self._manager, self._subjects, self._queue = manager, subjects, queue
        self._subscription: Subscription | None = None

    async def __aenter__(self) -> CoreFeed:
        connection = self._manager.connection
        self._subscription = await connection.subscribe(*self._subjects, queue=self._queue, lasting=True)
        await connection.flush()
        self.now = self._subscription.now  # type: ignore[method-assign]  # one call less for each message
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._subscription is not None:
            await self._subscription.stop()

    @property
    def dropped(self) -> int:
        """Return messages that came faster than they were read, and are lost."""
        return self._subscription.dropped if self._subscription is not None else 0

    def now(self) -> Message | None:
        """Return a message that has come already."""
        return self._subscription.now() if self._subscription is not None else None

    async def next(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message, or None when none came in time."""
        return await self._subscription.next(timeout_s) if self._subscription is not None else None
