"""nats-py's core client with a faster path for messages; imported through client/nats_py.py only.

nats-py matches regular expressions against a buffer that it shortens for each message, awaits a coroutine for each,
puts it into a queue of its subscription for a task that calls back, and keeps one value of a repeated header. With many
messages that is nearly all of a command's work. `QuickParser` parses a whole read at once and leaves all but messages
to nats-py's parser; `ShortClient` hands subject, reply, body and header block to the function that waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from nats.aio.client import Client, __version__
from nats.aio.subscription import Subscription
from nats.errors import FlushTimeoutError

from natsctl.wire.client import (
    INFO_VERB,
    NO_CREDENTIALS,
    TlsNotOfferedError,
    checked_info,
    encode_login,
    encode_pub,
    read_info,
    starts_tls,
)
from natsctl.wire.server_frames import LINE_END, BrokenFrameError, FrameBuffer, frames

MessageHandler: TypeAlias = Callable[[bytes, bytes, bytes, bytes], None]
"""Called with subject, reply, header block and body of a message; the header block is empty without headers."""


class QuickParser:
    """Replacement of nats-py's parser: messages go to their handlers, all else to nats-py's own parser."""

    def __init__(self, inner: Any, handlers: Mapping[bytes, MessageHandler]) -> None:
        """Take `handlers` by sid; messages of other subscriptions are dropped."""
        self._inner = inner
        self._handlers = handlers
        self._buffer = FrameBuffer()
        self.error_line = b""
        """The last -ERR of the server as it came: nats-py changes it to lower case."""

    @property
    def buf(self) -> bytes:
        return self._buffer.kept or bytes(self._inner.buf)

    def reset(self) -> None:
        """Forget half of a command, as before a reconnect."""
        self._buffer.clear()
        self._inner.reset()

    async def parse(self, data: bytes = b"") -> None:
        """Hand on all whole frames in `data` and the kept bytes. Raises nats-py's ProtocolError."""
        data = self._buffer.join(data)
        at, handler_of = 0, self._handlers.get
        try:
            for end, sid, subject, reply, headers, body in frames(data):
                if sid:
                    if (handler := handler_of(sid)) is not None:
                        handler(subject, reply, headers, body)
                else:
                    if subject.startswith(b"-ERR"):
                        self.error_line = subject
                    elif subject.startswith(INFO_VERB):
                        read_info(subject)
                    await self._inner.parse(subject + LINE_END)
                at = end
        except (BrokenFrameError, ValueError):
            raise _protocol_error() from None
        self._buffer.keep(data, at)


def _protocol_error() -> Exception:
    failure: type[Exception] = importlib.import_module("nats.errors").ProtocolError
    return failure()


class ShortClient(Client):
    """A client that passes messages directly to the waiting functions."""

    def __init__(self) -> None:
        super().__init__()
        self.handlers: dict[bytes, MessageHandler] = {}
        """Handlers of the subscriptions, by sid."""
        self._ps: Any = QuickParser(self._ps, self.handlers)
        self._quick = self._ps
        self.credentials = NO_CREDENTIALS

    @property
    def _server_info(self) -> dict[str, Any]:
        """Return INFO; nats-py sets it when it has read the first one, and reports a failure of that as bad JSON."""
        return self._info

    @_server_info.setter
    def _server_info(self, info: Any) -> None:
        if not isinstance(info, dict):
            raise ValueError("INFO without an object")
        self._info = checked_info(info)

    @property
    def error_line(self) -> str:
        """Return the last -ERR of the server, as it came."""
        return str(self._quick.error_line.decode(errors="replace"))

    async def _connect_to_server(self, s: Any) -> None:
        """Open a connection; a WebSocket in clear text (never upgraded) only without TLS."""
        if s.uri.scheme == "ws":
            starts_tls({}, wanted="tls" in self.options)
        await super()._connect_to_server(s)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Decide on TLS when the first INFO of a connection is read; nats-py upgrades if INFO requires it."""
        server: Any = self._current_server
        transport: Any = self._transport
        if initial_connection and server.uri.scheme != "ws":
            secured = self.options["tls_handshake_first"] or server.uri.scheme == "wss"
            try:
                if starts_tls(info, wanted="tls" in self.options, secured=secured):
                    info["tls_required"] = True
            except TlsNotOfferedError:
                transport.close()
                raise
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        info = self._server_info
        return encode_login(
            self.credentials,
            info,
            name=self.options["name"] or "",
            version=__version__,
            tls=bool(info.get("tls_required")),
        )

    async def listen(self, subject: str, queue: str, handler: MessageHandler, limit: int = 0) -> Subscription:
        """Subscribe, and call `handler` with each message; after `limit` of them, if above 0, the server ends it."""
        # The number that nats-py gives next; a message may come before `subscribe` returns.
        number = self._sid + 1
        self.handlers[b"%d" % number] = self._counting(number, handler) if limit else handler
        subscription = await self.subscribe(subject, queue=queue)
        if limit:
            await subscription.unsubscribe(limit)
        return subscription

    def _counting(self, number: int, handler: MessageHandler) -> MessageHandler:
        """Return `handler` counting messages for nats-py: it requests the rest when it reconnects."""

        def handle(subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
            if (subscription := self._subs.get(number)) is not None:
                subscription._received += 1
            handler(subject, reply, headers, body)

        return handle

    async def send(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(body)
        await self._send_command(encode_pub(subject, reply, block, body))
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """Send a PING after everything that is still to be sent.

        nats-py writes it at once, so that its answer says nothing about earlier messages.
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
            # The flusher sets the result; it must not be cancelled before.
            done, _ = await asyncio.wait((kicked,), timeout=self._flush_timeout)
            if not done:
                await self._error_cb(FlushTimeoutError())
        return kicked

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self.handlers.pop(b"%d" % sid, None)
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
