"""Clients of core NATS: publishers, subscribers, and a service that answers."""

from __future__ import annotations

import asyncio
import time

from natsctl.client.bench.client import Client
from natsctl.client.bench.messages import Maker, Pace, body_of, command

SILENCE_S = 10.0
"""After the first message, how long a subscriber waits for the next: what was dropped never comes."""
QUEUE = "natsctl-bench"


async def publish(client: Client) -> None:
    """Send the messages; it ends when the server has read all of them."""
    make = Maker(client.load)
    await client.start()
    await send(client, make)
    await client.link.flush()
    client.tally.end()


async def send(client: Client, make: Maker) -> None:
    """Send the messages in blocks, and count them."""
    pace, size = Pace(client.load), len(make.body)
    most, done = pace.step(make.fitting), 0
    while done < client.share:
        step = min(most, client.share - done)
        await client.link.write(make.many(client.first + done, step))
        done += step
        client.tally.add(step, step * size)
        await pace.rest(done)


async def subscribe(client: Client) -> None:
    """Receive the messages; the clock starts with the first one."""
    load, tally = client.load, client.tally
    subject = f"{load.subject}.*" if load.multisubject else load.subject

    share = client.share

    def take(subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        if not tally.msgs:
            tally.begin()
        if tally.msgs < share:  # others may publish more than was asked for
            tally.add(1, len(body))

    await client.link.listen(subject, take, tally)
    await client.start()
    wait_s = load.wait_ns / 1e9
    await tally.reach(share, wait_s or SILENCE_S, wait_s or None)
    tally.end()


async def serve(client: Client) -> None:
    """Answer requests, shared with the other clients; the clock starts with the first one.

    The clients together end after all messages, whoever got how many: those that still wait are stopped then.
    """
    load, tally, loop = client.load, client.tally, asyncio.get_running_loop()
    body = body_of(load)

    def take(subject: bytes, reply: bytes, header: bytes, asked: bytes) -> None:
        if not tally.msgs:
            tally.begin()
        answer = command(reply, body)
        if load.sleep_ns:
            loop.call_later(load.sleep_ns / 1e9, client.link.post, answer)
        else:
            client.link.post(answer)
        tally.add(1, len(body))
        tally.end_ns = time.monotonic_ns()

    await client.link.listen(load.subject, take, tally, queue=QUEUE)
    await client.start()
    wait_s = load.wait_ns / 1e9 or None
    await tally.reach(client.load.total, wait_s, wait_s)
    await client.link.flush()
