"""Cuts messages out of what a server sends, in place of nats-py's parser, which keeps everything else.

nats-py matches regular expressions against a buffer that it shortens for each message, and awaits a coroutine for each;
with many messages that is most of what a command does. Here a whole read is gone through once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Taker: TypeAlias = Callable[[bytes, bytes, bytes, bytes | None], None]
"""What is called with subject, reply, body and header block of a message."""

MAX_LINE_BYTES = 1024 * 1024
"""The longest line before a payload; INFO of a large cluster is the longest that servers send."""


class QuickParser:
    """Gives messages to their takers and the rest to nats-py's own parser; a drop-in for it."""

    def __init__(self, inner: Any, subscriptions: Mapping[int, Any], takers: Mapping[int, Taker]) -> None:
        self._inner = inner
        self._subscriptions = subscriptions
        self._takers = takers
        self._parts: list[bytes] = []
        self._missing = 0
        self.error_line = b""
        """The last -ERR of the server as it came: nats-py tells it in lower case."""

    @property
    def buf(self) -> bytes:
        """What has arrived and is no whole command yet."""
        return b"".join(self._parts) or bytes(self._inner.buf)

    def reset(self) -> None:
        """Forget half of a command, as before connecting anew."""
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
