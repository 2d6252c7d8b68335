"""nats.py's consumers, unmodified, on both servers, where clients and servers go away and come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy

from natsctl.testing.process import ServerProcess
from tests.support import patient_client

pytestmark = pytest.mark.both


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[Client]:
    connection = await patient_client.connect(server.url)
    yield connection
    await connection.close()


async def test_a_durable_goes_on_where_it_was_after_the_server_was_stopped(server: ServerProcess) -> None:
    first = await patient_client.connect(server.url, allow_reconnect=False)
    js = first.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    for number in range(5):
        await js.publish("s", b"%d" % number)
    worker = await js.pull_subscribe("s", "W")
    for message in await worker.fetch(2, timeout=20):
        await message.ack_sync()
    server.stop()
    await first.close()
    server.start()
    second = await patient_client.connect(server.url)
    worker = await second.jetstream().pull_subscribe("s", "W")
    assert [message.data for message in await worker.fetch(3, timeout=20)] == [b"2", b"3", b"4"]
    await second.close()


async def test_unacked_messages_come_again_after_ack_wait_until_max_deliver(client: Client) -> None:
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    await js.publish("s", b"1")
    config = ConsumerConfig(ack_wait=0.3, max_deliver=2)
    worker = await js.pull_subscribe("s", "W", config=config)
    tries = [(await worker.fetch(1, timeout=20))[0].metadata.num_delivered for _ in range(2)]
    assert tries == [1, 2]
    with pytest.raises(NatsTimeout):
        await worker.fetch(1, timeout=0.8)


async def test_a_delayed_nak_comes_again_after_the_others(client: Client) -> None:
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    for number in range(3):
        await js.publish("s", b"%d" % number)
    worker = await js.pull_subscribe("s", "W")
    order = []
    for _ in range(4):
        (message,) = await worker.fetch(1, timeout=20)
        order.append(message.data)
        if message.data == b"0" and message.metadata.num_delivered == 1:
            await message.nak(delay=2)
        else:
            await message.ack()
    assert order == [b"0", b"1", b"2", b"0"]


async def test_members_of_a_deliver_group_share_the_messages(client: Client) -> None:
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    counts, everything, done = [0, 0], set[int](), asyncio.Event()

    async def take(index: int, message: Msg) -> None:
        counts[index] += 1
        everything.add(message.metadata.sequence.stream)
        await message.ack()
        if len(everything) == 200:
            done.set()

    async def first(message: Msg) -> None:
        await take(0, message)

    async def second(message: Msg) -> None:
        await take(1, message)

    for callback in (first, second):
        await js.subscribe("s", queue="workers", durable="workers", cb=callback, manual_ack=True)
    await asyncio.gather(*(js.publish("s", b"") for _ in range(200)))
    await asyncio.wait_for(done.wait(), 30)
    assert sum(counts) == 200
    assert min(counts) > 0


async def test_an_ordered_consumer_goes_on_when_its_consumer_vanishes(client: Client) -> None:
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    await js.publish("s", b"1")
    reader = await js.subscribe("s", ordered_consumer=True, idle_heartbeat=0.3)
    assert (await reader.next_msg(timeout=20)).data == b"1"
    assert await js.delete_consumer("S", (await reader.consumer_info()).name)
    await js.publish("s", b"2")
    assert (await reader.next_msg(timeout=30)).data == b"2"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ConsumerConfig(deliver_policy=DeliverPolicy.ALL), [1, 2, 3, 4, 5]),
        (ConsumerConfig(deliver_policy=DeliverPolicy.LAST), [4, 5]),
        (ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT), [3, 4, 5]),
        (ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=3), [3, 4, 5]),
        (ConsumerConfig(deliver_policy=DeliverPolicy.NEW), [5]),
    ],
)
async def test_delivery_starts_where_the_policy_says(
    client: Client, config: ConsumerConfig, expected: list[int]
) -> None:
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s.*"])
    for number in range(4):
        await js.publish(f"s.{number % 2}", b"")
    config.ack_policy = AckPolicy.NONE
    reader = await js.subscribe("s.*", config=config)
    await js.publish("s.0", b"")
    got = [(await reader.next_msg(timeout=20)).metadata.sequence.stream for _ in expected]
    assert got == expected


async def test_a_work_queue_forgets_what_was_acked(client: Client) -> None:
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s"], retention=RetentionPolicy.WORK_QUEUE)
    for number in range(3):
        await js.publish("s", b"%d" % number)
    worker = await js.pull_subscribe("s", "W")
    for message in await worker.fetch(2, timeout=20):
        await message.ack_sync()
    assert (await js.stream_info("S")).state.messages == 1
