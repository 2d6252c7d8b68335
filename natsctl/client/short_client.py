"""nats-py's core client with a short way for messages; imported through the door, client/nats_py.py, alone.

nats-py puts each message into a queue of its subscription, from which a task calls back, and keeps one value of a
repeated header. `ShortClient` hands subject, reply, body and header block to the function that waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from nats.aio.client import Client
from nats.errors import FlushTimeoutError

from natsctl.client.quick_parser import QuickParser, Taker

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription


class ShortClient(Client):
    """A client whose messages go straight to who waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.takers: dict[int, Taker] = {}
        self._ps: Any = QuickParser(self._ps, self._subs, self.takers)
        self._quick = self._ps

    @property
    def error_line(self) -> str:
        """The last -ERR of the server, as it came."""
        return str(self._quick.error_line.decode(errors="replace"))

    async def listen(self, subject: str, queue: str, taker: Taker) -> Subscription:
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
        """End a connection that broke; that it cannot even be closed any more is no news, and nobody would hear it."""
        with contextlib.suppress(OSError):
            await super()._process_op_err(e)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """Tell at once that the connection has ended; nats-py tells after waits that may be long or fail."""
        if do_cbs and not self.is_closed and self._closed_cb is not None:
            await self._closed_cb()
        await super()._close(status, do_cbs)
