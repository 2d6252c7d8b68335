"""A client that does nothing wrong: it talks to itself, counts what came back, and notes how long that took."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

HELLO: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'


class Citizen(asyncio.Protocol):
    """One connection with one subscription, on which it receives what it publishes."""

    def __init__(self, number: int, latencies: list[float]) -> None:
        """Prepare client `number`; round trips in seconds go to `latencies`."""
        self.number = number
        self.sent = 0
        self.received = 0
        self.faults: list[str] = []
        self.closed = False
        self._latencies = latencies
        self._tail = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello and subscribe."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(HELLO + b"SUB c.%d 1\r\nPING\r\n" % self.number)

    def publish(self, random_source: random.Random) -> None:
        """Send one message of some size to oneself; it begins with the time."""
        body = b"%d " % time.perf_counter_ns() + b"x" * random_source.randrange(200)
        self._transport.write(b"PUB c.%d %d\r\n%b\r\n" % (self.number, len(body), body))
        self.sent += 1

    def data_received(self, data: bytes) -> None:
        """Count messages, answer pings, note errors."""
        lines = (self._tail + data).split(b"\r\n")
        self._tail = lines.pop()
        for line in lines:
            verb = line[:4]
            if line.startswith(b"PING"):
                self._transport.write(b"PONG\r\n")
            elif verb == b"-ERR":
                self.faults.append(line.decode())
            elif line[:1].isdigit():
                self._latencies.append((time.perf_counter_ns() - int(line.partition(b" ")[0])) / 1e9)
                self.received += 1

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end, which is a fault when it was not asked for."""
        if not self.closed:
            self.faults.append(f"connection lost: {exc}")

    def close(self) -> None:
        """Leave."""
        self.closed = True
        self._transport.close()
