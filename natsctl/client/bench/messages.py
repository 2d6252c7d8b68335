"""The commands that publish the messages of a benchmark, made as cheaply as it goes."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Iterable

from natsctl.api import headers
from natsctl.client.bench.load import Load

BLOCK_BYTES = 64 * 1024
"""About what is written at once: enough to be cheap, little enough to keep the others of the process going."""
PACED_S = 0.01
"""Seconds whose messages are sent together where a rate is to be kept."""


def command(subject: bytes, body: bytes, reply: bytes = b"", pairs: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """PUB, or HPUB where there are headers."""
    to = b"%b %b" % (subject, reply) if reply else subject
    block = headers.encode(pairs) if pairs else b""
    if block:
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (to, len(block), len(block) + len(body), block, body)
    return b"PUB %b %d\r\n%b\r\n" % (to, len(body), body)


def body_of(load: Load) -> bytes:
    """The payload that every message has: the one that was given, or noise that does not compress."""
    return random.Random(load.size).randbytes(load.size) if load.payload is None else load.payload


class Maker:
    """Makes the command of the n-th message of a client; those that are all the same are made once."""

    def __init__(self, load: Load, reply: bytes = b"") -> None:
        self.body = body_of(load)
        self._load = load
        self._subject = load.subject.encode()
        self._reply = reply
        self._pairs = [(key.encode(), value.encode()) for key, value in load.headers.items()]
        self._run = uuid.uuid4().hex
        same = not load.multisubject and not load.dedup
        self._same = command(self._subject, self.body, reply, self._pairs) if same else b""

    def subject(self, number: int) -> bytes:
        """The subject of a message: with many subjects its number, or a random one, as last token."""
        load = self._load
        if not load.multisubject:
            return self._subject
        most = load.multisubjectmax
        place = (
            random.randrange(most or load.total) if load.multisubjectrandomize else number % most if most else number
        )
        return b"%b.%d" % (self._subject, place)

    def pairs(self, number: int) -> list[tuple[bytes, bytes]]:
        """The headers of a message."""
        if not self._load.dedup:
            return self._pairs
        return [*self._pairs, (headers.MSG_ID, f"{self._run}-{number}".encode())]

    def one(self, number: int) -> bytes:
        """The command of one message."""
        if self._same:
            return self._same
        return command(self.subject(number), self.body, self._reply, self.pairs(number))

    def many(self, first: int, count: int) -> bytes:
        """The commands of messages that follow each other."""
        return self._same * count if self._same else b"".join(map(self.one, range(first, first + count)))

    @property
    def fitting(self) -> int:
        """How many messages make about one block."""
        return max(1, BLOCK_BYTES // (len(self.body) + len(self._subject) + 32))


class Pace:
    """Keeps a client to its part of the rate, and to the pauses between messages."""

    def __init__(self, load: Load) -> None:
        self._rate = load.throughput / load.clients
        self._sleep_s = load.sleep_ns / 1e9
        self._begin_s = time.monotonic()

    def step(self, most: int) -> int:
        """How many messages may go together."""
        if self._sleep_s:
            return 1
        return max(1, min(most, int(self._rate * PACED_S))) if self._rate else most

    async def rest(self, done: int) -> None:
        """Wait until more than `done` messages may have gone."""
        if self._sleep_s:
            await asyncio.sleep(self._sleep_s)
        if self._rate and (early_s := self._begin_s + done / self._rate - time.monotonic()) > 0:
            await asyncio.sleep(early_s)
