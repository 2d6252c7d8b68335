"""A mixed load of fixed pace: the same work each second on every server, a little of everything that clients do.

`python -m bench.loop` times PINGs beside it. Each kind of work has a connection and a schedule of its own; work that is
late is not made up for, so a server that cannot keep the pace gets less of it, which the counts show.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from bench.measure import ANSWER_WITHIN_S, API, PAYLOAD, api, consumer, snapshot
from tests.support.raw_client import RawClient

BURST: Final = 100
"""Messages that are published, or sent to a subscriber, at once."""
SUBJECTS: Final = 1000
KEYS: Final = 500
FETCH: Final = 500
LINE: Final = b" %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)

Step = Callable[[RawClient, int], Awaitable[object]]
"""One piece of work: on a connection, with its number."""


async def publish(client: RawClient, number: int) -> None:
    """Publish a burst to many subjects; await the last ack."""
    first = number * BURST
    names = [b"mixed.%d" % ((first + offset) % SUBJECTS) for offset in range(BURST)]
    client.send(b"".join([b"PUB " + name + LINE for name in names[:-1]]))
    await client.request(names[-1], PAYLOAD, ANSWER_WITHIN_S)


async def publish_one(client: RawClient, number: int) -> None:
    """Publish a message and await its ack."""
    await client.request(b"mixed.one", PAYLOAD, ANSWER_WITHIN_S)


async def fan_out(client: RawClient, number: int) -> None:
    """Send a burst to a subscriber, which is this client."""
    client.send((b"PUB core.mixed" + LINE) * BURST)
    await client.flush()


async def fetch(client: RawClient, number: int) -> None:
    """Take what is there, at most a batch, and acknowledge it."""
    ended = asyncio.Event()
    acks: list[bytes] = []

    def take(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        if reply.startswith(b"$JS.ACK"):
            acks.append(b"PUB %s 4\r\n+ACK\r\n" % reply)
        if len(acks) == FETCH or not reply:
            ended.set()

    inbox = b"MIXED.fetch.%d" % number
    sid = client.subscribe(inbox, take)
    body = json.dumps({"batch": FETCH, "no_wait": True}).encode()
    client.publish(API + b"CONSUMER.MSG.NEXT.MIXED.reader", body, inbox)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await ended.wait()
    client.unsubscribe(sid)
    client.send(b"".join(acks))


async def put_and_get(client: RawClient, number: int) -> None:
    """Put a key of a bucket and get another."""
    await client.request(b"$KV.MIXED.%d" % (number * 7 % KEYS), PAYLOAD, ANSWER_WITHIN_S)
    await client.request(API + b"DIRECT.GET.KV_MIXED.$KV.MIXED.%d" % (number * 11 % KEYS), b"", ANSWER_WITHIN_S)


async def look(client: RawClient, number: int) -> None:
    """Ask for subjects of a stream, for the list of streams, and for that of consumers."""
    await api(client, b"STREAM.INFO.A", {"subjects_filter": "a.*.x" if number % 2 else "a.17.x"})
    await api(client, b"STREAM.LIST")
    await api(client, b"CONSUMER.LIST.MIXED")


async def read_the_middle(client: RawClient, number: int) -> None:
    """Create a consumer with a wildcard on the large stream, and delete it."""
    await consumer(client, "passing", filter_subject="a.*.x", deliver_policy="by_start_sequence", opt_start_seq=999)
    await api(client, b"CONSUMER.DELETE.A.passing")


async def purge(client: RawClient, number: int) -> None:
    """Purge a subject, then all but the latest messages."""
    await api(client, b"STREAM.PURGE.MIXED", {"filter": f"mixed.{number % SUBJECTS}"})
    await api(client, b"STREAM.PURGE.MIXED", {"keep": 20_000})


async def archive(client: RawClient, number: int) -> None:
    """Receive a snapshot of the large stream."""
    await snapshot(client)


WORK: Final[tuple[tuple[str, float, Step], ...]] = (
    ("bursts published", 0.02, publish),
    ("messages published", 0.01, publish_one),
    ("bursts to a subscriber", 0.02, fan_out),
    ("fetches", 0.05, fetch),
    ("puts and gets", 0.02, put_and_get),
    ("looks", 0.1, look),
    ("consumers", 0.2, read_the_middle),
    ("purges", 0.5, purge),
    ("snapshots", 3.0, archive),
)
"""Kinds of work, each with the seconds between two pieces of it."""


async def load(url: str, seconds: float) -> Counter[str]:
    """Do everything at its pace, once at least, beside a stream A; return how many pieces of each kind were done."""
    done: Counter[str] = Counter()
    ends = time.monotonic() + seconds

    async def keep_doing(name: str, every_s: float, step: Step) -> None:
        client = await RawClient.connect(url)
        client.subscribe(b"core.mixed", lambda *message: None)
        due = time.monotonic()
        while not done[name] or due < ends:
            await step(client, done[name])
            done[name] += 1
            due = max(due + every_s, time.monotonic())
            await asyncio.sleep(min(due, ends) - time.monotonic())
        await client.close()

    client = await RawClient.connect(url)
    await api(client, b"STREAM.CREATE.MIXED", {"name": "MIXED", "subjects": ["mixed.>"]})
    bucket = {"name": "KV_MIXED", "subjects": ["$KV.MIXED.>"], "max_msgs_per_subject": 1, "allow_direct": True}
    await api(client, b"STREAM.CREATE.KV_MIXED", bucket)
    reader = {"durable_name": "reader", "ack_policy": "explicit", "max_ack_pending": 10 * FETCH}
    body = {"stream_name": "MIXED", "config": reader}
    await api(client, b"CONSUMER.DURABLE.CREATE.MIXED.reader", body)
    await asyncio.gather(*(keep_doing(*work) for work in WORK))
    for name in (b"MIXED", b"KV_MIXED"):
        await api(client, b"STREAM.DELETE." + name)
    await client.close()
    return done
