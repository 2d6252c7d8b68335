"""Publishers that send a batch of messages before they wait for what the stream says."""

from __future__ import annotations

import time
import uuid

from natsctl.api import headers
from natsctl.client.bench.client import Client, refusal
from natsctl.client.bench.messages import Maker, Pace, command


async def publish_async(client: Client) -> None:
    """Send a batch, wait for all its acks, send the next; the latency is that of a batch."""
    inbox, tally, subject = client.new_inbox(), client.tally, client.load.subject
    make = Maker(client.load, inbox)
    size = len(make.body)

    def take(_subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        failure = refusal(subject, header, body)
        if failure is not None:
            tally.fail(failure)
        else:
            tally.add(1, size)

    await client.link.listen(inbox.decode(), take, tally)
    await client.start()
    pace, done = Pace(client.load), 0
    while done < client.share:
        step = min(client.load.batch, client.share - done)
        before = time.perf_counter_ns()
        for part in range(0, step, make.fitting):
            await client.link.write(make.many(client.first + done + part, min(make.fitting, step - part)))
        done += step
        await tally.reach(done, client.idle_s, client.idle_s)
        tally.latencies.add(time.perf_counter_ns() - before)
        await pace.rest(done)
    tally.check()
    tally.end()


async def publish_atomic(client: Client) -> None:
    """Send a batch that is stored as a whole or not at all, wait for its ack, send the next."""
    inbox, tally, load = client.new_inbox(), client.tally, client.load
    make, last = Maker(load, inbox), 0
    size = len(make.body)

    def take(_subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        failure = refusal(load.subject, header, body)
        if failure is not None:
            tally.fail(failure)
        elif body:
            tally.add(last, last * size)

    await client.link.listen(inbox.decode(), take, tally)
    await client.start()
    pace, done = Pace(load), 0
    while done < client.share:
        last = min(load.batch, client.share - done)
        before = time.perf_counter_ns()
        await client.link.write(_batch(make, client.first + done, last, inbox))
        done += last
        await tally.reach(done, client.idle_s, client.idle_s)
        tally.latencies.add(time.perf_counter_ns() - before)
        await pace.rest(done)
    tally.end()


def _batch(make: Maker, first: int, count: int, inbox: bytes) -> bytes:
    """The commands of one atomic batch; only the message that commits it asks for an answer."""
    name = uuid.uuid4().hex.encode()
    commands = []
    for place in range(1, count + 1):
        number = first + place - 1
        pairs = [*make.pairs(number), (headers.BATCH_ID, name), (headers.BATCH_SEQUENCE, b"%d" % place)]
        if place == count:
            pairs.append((headers.BATCH_COMMIT, b"1"))
        commands.append(command(make.subject(number), make.body, inbox if place == count else b"", pairs))
    return b"".join(commands)
