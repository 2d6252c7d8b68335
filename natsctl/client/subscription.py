"""A running subscription.

The connection calls `take` for each message; it is kept here until somebody reads it. What comes when `MAX_KEPT`
messages or `MAX_KEPT_BYTES` are kept is dropped, which `dropped` counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from natsctl.client.message import Message, to_message
from natsctl.client.nats_py import failure_class

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription as NatsSubscription

MAX_KEPT = 512 * 1024
MAX_KEPT_BYTES = 128 * 1024 * 1024


class Subscription:
    """Messages as they arrive: iterate it, or wait for the `next` one.

    It may listen on `more` subjects than one; what comes on them stays in the order it came.
    `watched` is a subject published to for these messages; if the server refuses that, reading fails.
    """

    def __init__(
        self,
        subject: str,
        limit: int,
        on_stop: Callable[[Subscription], None],
        more: Sequence[str] = (),
        *,
        queue: str = "",
        lasting: bool = False,
    ) -> None:
        self.subject = subject
        self.subjects = (subject, *more)
        self.queue = queue
        self.lasting = lasting
        """Whether it goes on with another server when the connection was lost."""
        self.watched = ""
        self.dropped = 0
        self._limit = limit
        self._on_stop = on_stop
        self._inner: list[NatsSubscription] = []
        self._kept: deque[Message] = deque()
        self._kept_bytes = 0
        self._taken = self._read = 0
        self._failure: Exception | None = None
        self._arrived = asyncio.Event()

    def attach(self, inner: NatsSubscription) -> None:
        """Know one of nats-py's objects, to end it later."""
        self._inner.append(inner)

    def detach(self) -> None:
        """Forget nats-py's objects of a connection that was lost."""
        self._inner.clear()

    @property
    def left(self) -> int:
        """How many messages it still waits for, 0 where there is no limit."""
        return max(self._limit - self._taken, 1) if self._limit else 0

    @property
    def sid(self) -> int:
        """The number by which the server knows its first subject, 0 before it is there."""
        return int(self._inner[0]._id) if self._inner else 0

    def take(self, subject: bytes, reply: bytes, body: bytes, block: bytes | None) -> None:
        """Keep a message that arrived, or count it as dropped where too many wait."""
        self._taken += 1
        if len(self._kept) >= MAX_KEPT or self._kept_bytes > MAX_KEPT_BYTES:
            self.dropped += 1
            return
        self._kept.append(to_message(subject, reply, body, block))
        self._kept_bytes += len(body)
        if not self._arrived.is_set():
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
        if not self._kept:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._wait()
        message = self.now()
        if message is None and self._failure is not None:
            raise self._failure
        return message

    async def _wait(self) -> None:
        while not self._kept and self._failure is None:
            self._arrived.clear()
            await self._arrived.wait()

    def now(self) -> Message | None:
        """The next message if one has come already."""
        if not self._kept:
            return None
        self._read += 1
        message = self._kept.popleft()
        self._kept_bytes -= len(message.body)
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
        with contextlib.suppress(failure_class(), OSError):
            for inner in self._inner:
                await inner.unsubscribe()
