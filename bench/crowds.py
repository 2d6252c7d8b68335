"""Many streams on one server, many consumers on one stream, many subscriptions: curves of `python -m bench.scale`."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from bench.measure import (
    ANSWER_WITHIN_S,
    API,
    PAYLOAD,
    Row,
    api,
    consumer,
    fetched,
    fill,
    pipelined,
    restarted,
    rss_mb,
    timed,
)
from natsctl.testing.process import ServerProcess
from tests.support.raw_client import RawClient

BUSY: Final = 40_000
"""Messages to the one busy stream among idle ones."""
IDLE_S: Final = 3.0
FOR_ALL: Final = 10
"""Messages that every consumer takes."""
CHUNK: Final = 4000
"""Lines that are sent at once where a million follow each other."""
MANY_FILTERS: Final = 1000


def cpu_s(server: ServerProcess) -> float:
    """Return the processor time that a server has used."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def restored(server: ServerProcess, count: int, shared: bool = False) -> Row:
    """Measure a client that comes back with `count` queue subscriptions, and a message for each.

    Each is on a subject of its own, or all are in one group on one subject where they are `shared`; another client
    asks for PONGs meanwhile. Source: nats.java, AuthViolationDuringReconnectOnFlushTimeoutTest.
    """
    row: Row = {}
    client, other = await RawClient.connect(server.url), await RawClient.connect(server.url)
    worst_s = [0.0]
    watching = asyncio.create_task(_longest_round_trip(other, worst_s))
    came, begin_mb, used_s = 0, rss_mb(server), cpu_s(server)
    done = asyncio.Event()

    def take(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        nonlocal came
        came += 1
        if came == count:
            done.set()

    async def send(act: Callable[[list[bytes]], None]) -> None:
        for start in range(0, count, CHUNK):
            numbers = range(start, min(start + CHUNK, count))
            act([b"test" if shared else b"test_%d" % number for number in numbers])
            await client.flush()

    def publish(subjects: list[bytes]) -> None:
        client.send(b"".join([b"PUB %s 1\r\nx\r\n" % subject for subject in subjects]))

    row["restore_per_s"] = count / await timed(send(lambda subjects: client.subscribe_all(subjects, b"q", take)))
    row["restore, processor"], used_s = cpu_s(server) - used_s, cpu_s(server)
    row["memory of one_kb"] = (rss_mb(server) - begin_mb) * 1024 / count
    row["publish and receive_per_s"] = count / await timed(_until(done, send(publish)))
    row["publish, processor"] = cpu_s(server) - used_s
    row["longest PING meanwhile"], worst_s[0] = worst_s[0], 0.0
    await client.close()
    await asyncio.sleep(IDLE_S)
    watching.cancel()
    await timed(other.flush())
    row["longest PING after its end"] = worst_s[0]
    await other.close()
    return row


async def _until(done: asyncio.Event, work: Awaitable[None]) -> None:
    """Run `work`; return once everything has arrived."""
    await work
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await done.wait()


async def _longest_round_trip(client: RawClient, worst_s: list[float]) -> None:
    """Record the longest round trip since the caller last read it."""
    while True:
        took_s = await timed(client.flush())
        worst_s[0] = max(worst_s[0], took_s)
        await asyncio.sleep(0.005)


def name_of(number: int) -> str:
    """Return the name of a stream; `restarted` waits for the first."""
    return f"S{number}" if number else "A"


async def many_streams(server: ServerProcess, count: int) -> Row:
    """Measure a server with `count` streams, each with a consumer and a message."""
    row: Row = {}
    client = await RawClient.connect(server.url)
    begin_mb = rss_mb(server)

    def create(number: int) -> Awaitable[object]:
        name = name_of(number)
        return api(client, b"STREAM.CREATE." + name.encode(), {"name": name, "subjects": [f"{name}.>"]})

    def consume(number: int) -> Awaitable[object]:
        name, config = name_of(number), {"durable_name": "d", "ack_policy": "explicit"}
        body = {"stream_name": name, "config": config}
        return api(client, b"CONSUMER.DURABLE.CREATE.%s.d" % name.encode(), body)

    def publish(number: int) -> Awaitable[object]:
        return client.request(b"%s.x" % name_of(number).encode(), PAYLOAD, ANSWER_WITHIN_S)

    row["create_per_s"] = count / await pipelined(count, create)
    row["create a consumer each_per_s"] = count / await pipelined(count, consume)
    row["memory of both_kb"] = (rss_mb(server) - begin_mb) * 1024 / count
    row["publish to each_per_s"] = count / await pipelined(count, publish)
    row["open files_count"] = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    row |= await _among_idle(server, client, count)
    await client.close()
    client, row["ready after stop"] = await restarted(server, killed=False)
    await client.close()
    client, row["ready after kill -9"] = await restarted(server, killed=True)
    row["restarted_mb"] = rss_mb(server)
    await client.close()
    return row


async def _among_idle(server: ServerProcess, client: RawClient, count: int) -> Row:
    """Measure the cost of idle streams for other streams and for requests that list them."""
    row: Row = {}
    await asyncio.sleep(1)
    begun_s = cpu_s(server)
    await asyncio.sleep(IDLE_S)
    row["idle processor_share"] = (cpu_s(server) - begun_s) / IDLE_S * 100
    row["publish to one_per_s"] = await fill(client, BUSY, lambda n: b"S1.x")
    last = name_of(count - 1)
    questions: dict[str, tuple[bytes, object]] = {
        "account info": (b"INFO", None),
        "page of names": (b"STREAM.NAMES", {"offset": count // 2}),
        "names by subject": (b"STREAM.NAMES", {"subject": f"{last}.x"}),
        "page of infos": (b"STREAM.LIST", {"offset": count // 2}),
        "info of one stream": (b"STREAM.INFO." + last.encode(), None),
    }
    for what, (subject, body) in questions.items():
        row[what] = min([await timed(api(client, subject, body)) for _ in range(5)])
    return row


async def many_consumers(server: ServerProcess, count: int) -> Row:
    """Measure one stream with `count` durable pull consumers, each on a subject of its own and on one of all."""
    row: Row = {}
    client = await RawClient.connect(server.url)
    await api(client, b"STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"], "max_consumers": count + 1})
    begin_mb = rss_mb(server)

    def create(number: int) -> Awaitable[object]:
        return consumer(client, f"c{number}", filter_subjects=[f"a.{number}.x", "a.all"])

    row["create_per_s"] = count / await pipelined(count, create)
    row["memory of a consumer_kb"] = (rss_mb(server) - begin_mb) * 1024 / count
    row["publish_per_s"] = await fill(client, BUSY, lambda n: b"a.%d.x" % (n % count))
    row["fetch of 1"] = await timed(fetched(client, b"c7", 1))
    row["fetch by each in turn_per_s"] = count / await pipelined(count, lambda n: fetched(client, b"c%d" % n, 1))
    row["message for all"] = await timed(_published_to_all(client)) / FOR_ALL
    row["account info"] = await timed(api(client, b"INFO"))
    row["page of names"] = await timed(api(client, b"CONSUMER.NAMES.A", {"offset": count // 2}))
    row["page of infos"] = await timed(api(client, b"CONSUMER.LIST.A", {"offset": count // 2}))
    row["consumer with 1,000 filters"] = await timed(
        consumer(client, "many", filter_subjects=[f"a.{number}.x" for number in range(MANY_FILTERS)])
    )
    row["its fetch of 1,000"] = await timed(fetched(client, b"many", 1000))
    await client.close()
    client, row["ready after stop"] = await restarted(server, killed=False)
    await client.close()
    client, row["ready after kill -9"] = await restarted(server, killed=True)
    row["fetch of 1 after restart"] = await timed(fetched(client, b"c9", 1))
    await client.close()
    return row


async def _published_to_all(client: RawClient) -> None:
    """Publish a message for every consumer; return once all are stored and counted."""
    for _ in range(FOR_ALL):
        await client.request(b"a.all", PAYLOAD, ANSWER_WITHIN_S)
    await api(client, b"CONSUMER.INFO.A.c1")


async def many_wants(server: ServerProcess, count: int) -> Row:
    """Measure an interest stream with `count` consumers, each of which must ack every message."""
    row: Row = {}
    client = await RawClient.connect(server.url)
    config = {"name": "A", "subjects": ["a.>"], "retention": "interest", "max_consumers": count}
    await api(client, b"STREAM.CREATE.A", config)
    await pipelined(count, lambda n: consumer(client, f"c{n}", filter_subjects=[f"a.{n}.x", "a.all"]))
    row["publish_per_s"] = await fill(client, BUSY, lambda n: b"a.%d.x" % (n % count))
    await api(client, b"STREAM.PURGE.A")
    await _published_to_all(client)
    row["ack by each in turn_per_s"] = count / await pipelined(count, lambda n: _take_and_ack(client, n))
    info = await api(client, b"STREAM.INFO.A")
    state = info["state"]
    assert isinstance(state, dict)
    row["messages left_count"] = state["messages"]
    await client.close()
    return row


async def _take_and_ack(client: RawClient, number: int) -> None:
    """Fetch and acknowledge all messages of every consumer."""
    replies: list[bytes] = []
    came = asyncio.Event()

    def take(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        replies.append(reply)
        if len(replies) == FOR_ALL:
            came.set()

    inbox = b"TAKEN.%d" % number
    sid = client.subscribe(inbox, take)
    client.publish(API + b"CONSUMER.MSG.NEXT.A.c%d" % number, json.dumps({"batch": FOR_ALL}).encode(), inbox)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await came.wait()
    client.unsubscribe(sid)
    for reply in replies[:-1]:
        client.publish(reply, b"+ACK")
    await client.request(replies[-1], b"+ACK", ANSWER_WITHIN_S)
