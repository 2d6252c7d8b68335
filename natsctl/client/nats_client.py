"""nats-py's core client with a faster path for messages; imported through client/nats_py.py only.

nats-py matches regular expressions against a buffer that it shortens for each message, awaits a coroutine for each,
puts it into a queue of its subscription, from which a task calls back, and keeps one value of a repeated header. With
many messages that is most of a command's work. `QuickParser` parses a whole read at once and leaves all but messages to
nats-py's parser; `ShortClient` hands subject, reply, body and header block to the function that waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from nats.aio.client import Client
from nats.errors import FlushTimeoutError

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription


MessageHandler: TypeAlias = Callable[[bytes, bytes, bytes, bytes | None], None]
"""Called with subject, reply, body and header block of a message."""

MAX_LINE_BYTES = 1024 * 1024
"""The longest line before a payload; INFO of a large cluster is the longest that servers send."""


class QuickParser:
    """Replacement of nats-py's parser: messages go to their handlers, all else to nats-py's own parser."""

    def __init__(self, inner: Any, subscriptions: Mapping[int, Any], takers: Mapping[int, MessageHandler]) -> None:
        self._inner = inner
        self._subscriptions = subscriptions
        self._takers = takers
        self._parts: list[bytes] = []
        self._missing = 0
        self.error_line = b""
        """The last -ERR of the server as it came: nats-py tells it in lower case."""

    @property
    def buf(self) -> bytes:
        """Return the bytes of an incomplete command."""
        return b"".join(self._parts) or bytes(self._inner.buf)

    def reset(self) -> None:
        """Forget half of a command, as before a reconnect."""
        self._parts, self._missing = [], 0
        self._inner.reset()

    async def parse(self, data: bytes = b"") -> None:
        """Take what has arrived. Raises nats-py's ProtocolError."""
        if len(data) < self._missing:
            self._parts.append(data)
            self._missing -= len(data)
            return
        if self._parts:
            data = b"".join((*self._parts, data))
        self._missing = 0
        try:
            at = await self._commands(data)
        except (ValueError, IndexError):
            raise _protocol_error() from None
        if at + MAX_LINE_BYTES < len(data) and not self._missing:
            raise _protocol_error()
        self._parts = [data[at:]] if at < len(data) else []

    async def _commands(self, data: bytes) -> int:
        """Take every whole command in `data`, and return where the rest begins."""
        at, size, takers, subscriptions = 0, len(data), self._takers, self._subscriptions
        while (end := data.find(b"\r\n", at)) >= 0:
            words = data[at:end].split(b" ")
            begin = end + 2
            if words[0] == b"MSG":
                header_end, reply_at = begin, 4
            elif words[0] == b"HMSG":
                header_end, reply_at = begin + int(words[-2]), 5
            else:
                if words[0] == b"-ERR":
                    self.error_line = data[at:end]
                await self._inner.parse(data[at:begin])
                at = begin
                continue
            stop = begin + int(words[-1])
            if stop + 2 > size:
                self._missing = stop + 2 - size
                break
            number = int(words[2])
            take, subscription = takers.get(number), subscriptions.get(number)
            if take is not None and subscription is not None:
                subscription._received += 1
                reply = words[3] if len(words) > reply_at else b""
                take(words[1], reply, data[header_end:stop], data[begin:header_end] or None)
            at = stop + 2
        return at


def _protocol_error() -> Exception:
    failure: type[Exception] = importlib.import_module("nats.errors").ProtocolError
    return failure()


class ShortClient(Client):
    """A client whose messages go straight to who waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.takers: dict[int, MessageHandler] = {}
        self._ps: Any = QuickParser(self._ps, self._subs, self.takers)
        self._quick = self._ps

    @property
    def error_line(self) -> str:
        """Return the last -ERR of the server, as it came."""
        return str(self._quick.error_line.decode(errors="replace"))

    async def listen(self, subject: str, queue: str, taker: MessageHandler) -> Subscription:
        """Subscribe, and give each message to `taker`."""
        # The number that nats-py gives next; a message may come before `subscribe` returns.
        self.takers[self._sid + 1] = taker
        return await self.subscribe(subject, queue=queue)

    async def send(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        """Send a message with a header block."""
        size, whole = len(block), len(block) + len(body)
        lead = b"HPUB %b %b %d %d\r\n" % (subject, reply, size, whole)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(body)
        await self._send_command(b"%b%b%b\r\n" % (lead, block, body))
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """Send a PING behind all that is still to be sent.

        nats-py writes it at once, so that its answer says nothing about what was published before.
        """
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(b"PING\r\n")
        await self._flush_pending()

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """Kick the flusher, and with `force_flush` wait for it; nats-py drops a Ctrl-C that meets it there."""
        queue, flusher = self._flush_queue, self._flusher_task
        if queue is None or queue.full() or flusher is None or flusher.done():
            return await super()._flush_pending(force_flush)
        kicked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.put_nowait(kicked)
        if force_flush:
            # The flusher sets the result, which must not be cancelled under its hands.
            done, _ = await asyncio.wait((kicked,), timeout=self._flush_timeout)
            if not done:
                await self._error_cb(FlushTimeoutError())
        return kicked

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self.takers.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _process_op_err(self, e: Exception) -> None:
        """Close a broken connection, ignoring a socket that is closed already."""
        with contextlib.suppress(OSError):
            await super()._process_op_err(e)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """Report the end of the connection at once; nats-py does so after waits that may be long or fail."""
        if do_cbs and not self.is_closed and self._closed_cb is not None:
            await self._closed_cb()
        await super()._close(status, do_cbs)
