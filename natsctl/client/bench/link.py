"""A connection of nats-py with a quick way in and out, for clients that must not be slower than the server.

A connection spends some 5 µs of processor time on a message that it sends, and as much on one that it receives; most
servers are quicker. Here whole blocks of commands are written at once (below 0.5 µs a message), and messages of
subscriptions that were taken over are cut out of what arrives without regular expressions, tasks or queues (2.5 µs).
Login, TLS, PING and errors stay with nats-py: it is given everything else that arrives, byte for byte.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import NatsctlError, UnreachableError
from natsctl.client.bench.tally import Tally

if TYPE_CHECKING:
    from natsctl.client.connection import Connection
    from natsctl.client.subscription import Subscription

Take = Callable[[bytes, bytes, bytes, bytes], None]
"""Subject, reply, header block and payload of a message."""

FLUSH_S = 120.0
"""Seconds that a server gets for what it has not read yet at the end of a run."""


class Link:
    """Commands out and messages in on one connection; taken apart with it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # The insides of nats-py, as this room alone may: everything that goes around them must know them.
        client: Any = connection._client
        self._client = client
        self._inner = client._ps
        self._takers: dict[bytes, Take] = {}
        self._parts: list[bytes] = [bytes(self._inner.buf)] if self._inner.buf else []
        self._missing = 0
        self._posted: list[bytes] = []
        self._guards: list[asyncio.Task[Any]] = []
        self._inner.reset()
        client._ps = self

    # -- out

    async def write(self, block: bytes) -> None:
        """Send commands, and let other tasks run; raises UnreachableError when the connection has ended."""
        try:
            self._client._transport.write(block)
            await self._client._transport.drain()
        except (OSError, AttributeError):
            await self.connection.flush()
            raise UnreachableError(f"the connection to {self.connection.target.shown} was lost") from None
        await asyncio.sleep(0)

    def post(self, block: bytes) -> None:
        """Send a command together with the others of this turn of the loop."""
        if not self._posted:
            asyncio.get_running_loop().call_soon(self._send_posted)
        self._posted.append(block)

    def _send_posted(self) -> None:
        block, self._posted = b"".join(self._posted), []
        if self._client._transport is not None:
            self._client._transport.write(block)

    async def flush(self) -> None:
        """Return once the server has read everything; raises NotAuthorisedError for a subject that it refused."""
        await self.connection.flush(FLUSH_S)

    # -- in

    async def listen(self, subject: str, take: Take, tally: Tally, queue: str = "") -> None:
        """Hand every message on a subject to `take`; what ends the subscription fails the tally."""
        subscription = await self.connection.subscribe(subject, queue=queue)
        self._takers[str(subscription.sid).encode()] = take
        guard = asyncio.create_task(_watch(subscription, take))
        guard.add_done_callback(lambda done: _pass_on(done, tally))
        self._guards.append(guard)

    async def close(self) -> None:
        """Stop watching the subscriptions; the connection stays."""
        for guard in self._guards:
            guard.cancel()
        with contextlib.suppress(asyncio.CancelledError, NatsctlError):
            await asyncio.gather(*self._guards, return_exceptions=True)

    def reset(self) -> None:
        """Forget half of a message, as nats-py's parser must when it connects anew."""
        self._parts, self._missing = [], 0
        self._inner.reset()

    async def parse(self, data: bytes) -> None:
        """Take what has arrived: called by nats-py's reader in place of its own parser's."""
        if len(data) < self._missing:
            self._parts.append(data)
            self._missing -= len(data)
            return
        if self._parts:
            data = b"".join((*self._parts, data))
        self._missing = 0
        at = await self._messages(data)
        self._parts = [data[at:]] if at < len(data) else []

    async def _messages(self, data: bytes) -> int:
        """Take every whole message and command in `data`; returns where the rest begins."""
        at, size, takers = 0, len(data), self._takers
        while (end := data.find(b"\r\n", at)) >= 0:
            words = data[at:end].split(b" ")
            verb = words[0]
            if verb == b"MSG":
                header_end = begin = end + 2
                reply_at = 4
            elif verb == b"HMSG":
                begin = end + 2
                header_end = begin + int(words[-2])
                reply_at = 5
            else:
                await self._inner.parse(data[at : end + 2])
                at = end + 2
                continue
            stop = begin + int(words[-1])
            if stop + 2 > size:
                self._missing = stop + 2 - size
                break
            take = takers.get(words[2])
            if take is None:
                await self._inner.parse(data[at : stop + 2])
            else:
                reply = words[3] if len(words) > reply_at else b""
                take(words[1], reply, data[begin:header_end], data[header_end:stop])
            at = stop + 2
        return at


async def _watch(subscription: Subscription, take: Take) -> None:
    """Raise what ends the subscription; what came before it was taken over is handed on."""
    while True:
        message = await subscription.next()
        if message is not None:
            take(message.subject.encode(), message.reply.encode(), b"", message.body)


def _pass_on(done: asyncio.Task[Any], tally: Tally) -> None:
    if not done.cancelled() and (failure := done.exception()) is not None:
        tally.fail(failure)
