"""nats.py, unmodified, against `natsctl server run`, and the same against the reference server where it is on PATH."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext
from nats.js.errors import BadRequestError, KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError

from natsctl.testing.process import ServerProcess
from tests.support import patient_client
from tests.support.patient_client import PATIENCE_S

pytestmark = pytest.mark.both


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[Client]:
    connection = await patient_client.connect(server.url)
    yield connection
    await connection.close()


@pytest.fixture
async def js(client: Client) -> JetStreamContext:
    """JetStream with a stream ORDERS on ORDERS.*."""
    context = client.jetstream()
    await context.add_stream(name="ORDERS", subjects=["ORDERS.*"])
    return context


async def fill(js: JetStreamContext, count: int) -> None:
    acks = await asyncio.gather(*(js.publish("ORDERS.new", b"%d" % number) for number in range(count)))
    assert [ack.seq for ack in acks] == list(range(1, count + 1))


async def test_core_request_reply_queue_and_no_responders(client: Client) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(message.data.upper())

    await client.subscribe("service", queue="workers", cb=answer)
    await client.subscribe("service", queue="workers", cb=answer)
    assert (await client.request("service", b"hello")).data == b"HELLO"
    with pytest.raises(NoRespondersError):
        await client.request("nobody", b"")


async def test_publish_dedupe_and_expected_sequence(js: JetStreamContext) -> None:
    first = await js.publish("ORDERS.new", b"1", headers={"Nats-Msg-Id": "a"})
    again = await js.publish("ORDERS.new", b"1", headers={"Nats-Msg-Id": "a"})
    assert (first.seq, again.seq, again.duplicate) == (1, 1, True)
    with pytest.raises(BadRequestError) as caught:
        await js.publish("ORDERS.new", b"2", headers={"Nats-Expected-Last-Sequence": "7"})
    assert caught.value.err_code == 10071
    assert (await js.stream_info("ORDERS")).state.messages == 1


async def test_pull_fetch_and_acks(js: JetStreamContext) -> None:
    await fill(js, 300)
    subscription = await js.pull_subscribe("ORDERS.new", "WORK")
    got: list[bytes] = []
    while len(got) < 300:
        for message in await subscription.fetch(100, timeout=20):
            got.append(message.data)
            await message.ack_sync()
    assert got == [b"%d" % number for number in range(300)]
    info = await js.consumer_info("ORDERS", "WORK")
    assert info.ack_floor is not None
    assert (info.ack_floor.stream_seq, info.num_pending, info.num_ack_pending) == (300, 0, 0)
    with pytest.raises(NatsTimeout):
        await subscription.fetch(1, timeout=0.2)


async def test_nak_term_and_progress(js: JetStreamContext) -> None:
    await fill(js, 1)
    subscription = await js.pull_subscribe("ORDERS.new", "WORK")
    (message,) = await subscription.fetch(1, timeout=20)
    await message.in_progress()
    await message.nak()
    (message,) = await subscription.fetch(1, timeout=20)
    assert message.metadata.num_delivered == 2
    await message.term()
    with pytest.raises(NatsTimeout):
        await subscription.fetch(1, timeout=0.3)


async def test_push_and_ordered_consumers(js: JetStreamContext) -> None:
    await fill(js, 500)
    pushed: list[int] = []
    ordered: list[int] = []
    done = asyncio.Event()

    async def push(message: Msg) -> None:
        pushed.append(message.metadata.sequence.stream)
        await message.ack()
        check()

    async def order(message: Msg) -> None:
        ordered.append(message.metadata.sequence.stream)
        check()

    def check() -> None:
        if len(pushed) == len(ordered) == 500:
            done.set()

    await js.subscribe("ORDERS.new", durable="PUSH", cb=push, manual_ack=True)
    await js.subscribe("ORDERS.new", cb=order, ordered_consumer=True)
    await asyncio.wait_for(done.wait(), 30)
    assert pushed == ordered == list(range(1, 501))


async def test_messages_are_got_deleted_and_purged(js: JetStreamContext) -> None:
    await fill(js, 5)
    assert (await js.get_msg("ORDERS", 2)).data == b"1"
    assert await js.delete_msg("ORDERS", 2)
    with pytest.raises(NotFoundError):
        await js.get_msg("ORDERS", 2)
    assert await js.purge_stream("ORDERS")
    state = (await js.stream_info("ORDERS")).state
    assert (state.messages, state.first_seq, state.last_seq) == (0, 6, 5)


async def test_key_value(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="SETTINGS", history=5)
    revision = await bucket.put("colour", b"red")
    assert await bucket.update("colour", b"blue", last=revision) == revision + 1
    entry = await bucket.get("colour")
    assert entry.value == b"blue"
    with pytest.raises(KeyWrongLastSequenceError):
        await bucket.create("colour", b"green")
    watcher = await bucket.watch("colour")
    seen = await watcher.updates(PATIENCE_S) or await watcher.updates(PATIENCE_S)  # the end mark may come first
    assert seen is not None
    assert seen.value == b"blue"
    assert [entry.value for entry in await bucket.history("colour")] == [b"red", b"blue"]
    assert await bucket.keys() == ["colour"]
    await bucket.delete("colour")
    with pytest.raises(KeyNotFoundError):
        await bucket.get("colour")
    await watcher.stop()


async def test_object_store(js: JetStreamContext) -> None:
    store = await js.create_object_store("FILES")
    content = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(20_000))
    await store.put("big", content)
    found = await store.get("big")
    assert found.data == content
    assert [info.name for info in await store.list()] == ["big"]
    await store.delete("big")
    with pytest.raises(NotFoundError):
        await store.get("big")
