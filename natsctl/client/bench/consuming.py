"""Clients that read from consumers with pull requests: one after the other, or always enough of them under way."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from typing import Any

from natsctl.api import endpoints, headers
from natsctl.api.errors import NatsctlError
from natsctl.client.bench.client import Client, failed_status
from natsctl.client.bench.messages import command
from natsctl.client.messaging.messages import ACK

ENDED = (b"NATS/1.0 404", b"NATS/1.0 408")
"""How status messages begin that end a pull request for which there was nothing more."""
ORDERED_INACTIVE_NS = 60_000_000_000
"""How long the server keeps an ordered consumer whose client has vanished."""


class Reader:
    """Reads a client's share from a consumer, acknowledging as it is asked for.

    With double acks a message counts once the server has confirmed its ack.
    """

    def __init__(self, client: Client, consumer: str, acks: str, *, refill: bool) -> None:
        load, connection = client.load, client.manager.connection
        self._client, self._acks, self._refill = client, acks, refill
        self._subject = endpoints.CONSUMER_MSG_NEXT.subject(
            load.stream, consumer, prefix=connection.target.api_prefix
        ).encode()
        self._inbox, self._ack_inbox = client.new_inbox(), client.new_inbox()
        self._double = load.doubleack and acks != "none"
        self._unconfirmed: deque[tuple[int, int]] = deque()
        self._uncovered = [0, 0]
        self.got = 0
        self.asked = 0

    async def listen(self) -> None:
        """Be ready for messages."""
        client = self._client
        await client.link.listen(self._inbox.decode(), self._take, client.tally)
        if self._double:
            await client.link.listen(self._ack_inbox.decode(), self._confirmed, client.tally)

    def pull(self, messages: int) -> None:
        """Ask for so many."""
        self.asked += messages
        wanted = {"batch": messages, "expires": int((self._client.idle_s + 1) * 1e9)}
        self._client.link.post(command(self._subject, json.dumps(wanted).encode(), self._inbox))

    def _take(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        client = self._client
        if header.startswith(b"NATS/1.0 "):
            self._status(header)
            return
        self.got += 1
        self.asked -= 1
        if self.got == 1 and self._refill:
            client.tally.begin()
        self._acknowledge(reply, len(body))
        if self._refill and self.asked <= client.load.batch // 2:
            more = min(client.load.batch, client.share - self.got) - self.asked
            if more > 0:
                self.pull(more)

    def _status(self, header: bytes) -> None:
        if not header.startswith(ENDED):
            self._client.tally.fail(failed_status(self._subject.decode(), header))
            return
        self.asked -= int(headers.get(header, headers.PENDING_MESSAGES) or self.asked)
        if self._refill and not self.asked and self.got < self._client.share:
            self.pull(min(self._client.load.batch, self._client.share - self.got))

    def _acknowledge(self, reply: bytes, size: int) -> None:
        """Ack a message, with `all` the last one of half a batch for all before it, and count what needs no more."""
        client = self._client
        if not self._double:
            client.tally.add(1, size)
        if self._acks == "none":
            return
        self._uncovered[0] += 1
        self._uncovered[1] += size
        every = max(1, client.load.batch // 2) if self._acks == "all" else 1
        if self._uncovered[0] < every and self.asked and self.got < client.share:
            return
        if self._double:
            self._unconfirmed.append((self._uncovered[0], self._uncovered[1]))
        self._uncovered = [0, 0]
        client.link.post(command(reply, ACK, self._ack_inbox if self._double else b""))

    def _confirmed(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        if header.startswith(b"NATS/1.0 "):
            self._client.tally.fail(failed_status("the consumer's acks", header))
        elif self._unconfirmed:
            self._client.tally.add(*self._unconfirmed.popleft())


async def consume(client: Client) -> None:
    """Read from the durable consumer, with pull requests renewed when half of a batch has come."""
    await _flow(client, client.load.consumer, client.load.acks)


async def _flow(client: Client, consumer: str, acks: str) -> None:
    reader = Reader(client, consumer, acks, refill=True)
    await reader.listen()
    await client.start()
    reader.pull(min(client.load.batch, client.share))
    await client.tally.reach(client.share, client.idle_s, client.idle_s)
    client.tally.end()
    await client.link.flush()


async def fetch(client: Client) -> None:
    """Read from the durable consumer batch by batch; the latency is that of a batch."""
    reader, tally = Reader(client, client.load.consumer, client.load.acks, refill=False), client.tally
    await reader.listen()
    await client.start()
    done = 0
    while done < client.share:
        step = min(client.load.batch, client.share - done)
        before = time.perf_counter_ns()
        reader.pull(step)
        done += step
        await tally.reach(done, client.idle_s, client.idle_s)
        tally.latencies.add(time.perf_counter_ns() - before)
    tally.end()
    await client.link.flush()


async def ordered(client: Client) -> None:
    """Read everything through a consumer of its own that needs no acks, and remove it."""
    load, manager = client.load, client.manager
    config: dict[str, Any] = {
        "ack_policy": "none",
        "deliver_policy": "all",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": ORDERED_INACTIVE_NS,
    }
    if load.filter:
        config["filter_subjects"] = list(load.filter)
    consumer = str((await manager.consumer_create(load.stream, config)).raw["name"])
    try:
        await _flow(client, consumer, "none")
    finally:
        with contextlib.suppress(NatsctlError):
            await manager.consumer_delete(load.stream, consumer)
