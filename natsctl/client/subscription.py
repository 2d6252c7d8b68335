"""A running subscription.

nats-py's task calls `take` for each message; it is kept here until somebody reads it. When `MAX_KEPT` messages are
kept, `take` waits, nats-py's own queue fills, and beyond its limits (512 Ki messages, 128 MiB) it drops messages,
which `dropped` counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from natsctl.client.message import Message, to_message
from natsctl.client.nats_py import failure_class

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsSubscription

MAX_KEPT = 4096


class Subscription:
    """Messages as they arrive: iterate it, or wait for the `next` one.

    `watched` is a subject published to for these messages; if the server refuses that, reading fails.
    """

    def __init__(self, subject: str, limit: int, on_stop: Callable[[Subscription], None]) -> None:
        self.subject = subject
        self.watched = ""
        self.dropped = 0
        self._limit = limit
        self._on_stop = on_stop
        self._inner: NatsSubscription | None = None
        self._kept: deque[Message] = deque()
        self._read = 0
        self._failure: Exception | None = None
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()

    def attach(self, inner: NatsSubscription) -> None:
        """Know nats-py's object, to end it later."""
        self._inner = inner

    def owns(self, inner: object) -> bool:
        """Whether nats-py's object is this subscription's."""
        return inner is self._inner

    async def take(self, msg: Msg) -> None:
        """Keep a message that arrived; waits while there is no room."""
        while len(self._kept) >= MAX_KEPT:
            self._room.clear()
            await self._room.wait()
        self._kept.append(to_message(msg))
        self._arrived.set()

    def fail(self, failure: Exception) -> None:
        """After the messages that are kept, raise `failure` at whoever reads."""
        self._failure = failure
        self._arrived.set()

    @property
    def finished(self) -> bool:
        """Whether `limit` messages were read."""
        return 0 < self._limit <= self._read

    async def next(self, timeout_s: float | None = None) -> Message | None:
        """The next message, or None when none came in time; raises what ended the subscription."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._kept:
                    if self._failure is not None:
                        raise self._failure
                    self._arrived.clear()
                    await self._arrived.wait()
        if not self._kept:
            return None
        self._read += 1
        message = self._kept.popleft()
        self._room.set()
        return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self.finished:
            message = await self.next()
            if message is not None:
                yield message

    async def stop(self) -> None:
        """End the subscription; what has arrived and was not read is dropped."""
        self._on_stop(self)
        self._kept.clear()
        self._room.set()
        with contextlib.suppress(failure_class(), OSError):
            if self._inner is not None:
                await self._inner.unsubscribe()
