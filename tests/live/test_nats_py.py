"""nats.py, unmodified, against `natsctl server run`, and in the tier `reference` against nats-server."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import BadRequestError
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore

from natsctl.testing.process import ServerProcess
from tests.support import patient_client
from tests.support.patient_client import PATIENCE_S, keys_of

pytestmark = pytest.mark.both


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests, each of which begins without streams."""
    with ServerProcess(tmp_path_factory.mktemp("nats_py"), request.param) as process:
        yield process


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[Client]:
    connection = await patient_client.connect(server.url)
    yield connection
    for stream in await connection.jetstream().streams_info():
        await connection.jetstream().delete_stream(str(stream.config.name))
    await connection.close()


@pytest.fixture
def js(client: Client) -> JetStreamContext:
    return client.jetstream()


@pytest.fixture
async def orders(js: JetStreamContext) -> JetStreamContext:
    await js.add_stream(name="ORDERS", subjects=["ORDERS.*"])
    return js


async def fill(js: JetStreamContext, count: int) -> None:
    acks = await asyncio.gather(*(js.publish("ORDERS.new", b"%d" % number) for number in range(count)))
    assert [ack.seq for ack in acks] == list(range(1, count + 1))


async def test_push_and_ordered_consumers(orders: JetStreamContext) -> None:
    js = orders
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


async def seen(watcher: KeyValue.KeyWatcher, number: int) -> list[tuple[str, str | None, int | None] | None]:
    """Return the next `number` entries of a watcher; None is the end of those that existed at its start."""
    entries = []
    for _ in range(number):
        entry = await watcher.updates(PATIENCE_S)
        entries.append(entry and (entry.key, entry.operation, entry.revision))
    return entries


async def seen_at_start(watcher: KeyValue.KeyWatcher, number: int) -> list[tuple[str, str | None, int | None]]:
    """Return the `number` values that were there at the start.

    nats.py puts the end before them where the server had sent them all before it answered the client's question for
    the consumer's state, and the client had not read them yet.
    """
    entries = await seen(watcher, number + 1)
    assert entries.count(None) == 1
    return [entry for entry in entries if entry is not None]


async def test_watchers_see_the_latest_values_then_an_end_then_every_change(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="B", history=3)
    for value in (b"1", b"2"):
        await bucket.put("a.x", value)
        await bucket.put("b.y", value)
    everything, some = await bucket.watchall(), await bucket.watch("a.*")
    assert await seen_at_start(everything, 2) == [("a.x", None, 3), ("b.y", None, 4)]
    assert await seen_at_start(some, 1) == [("a.x", None, 3)]
    await bucket.delete("a.x")
    await bucket.put("b.y", b"3")
    assert await seen(everything, 2) == [("a.x", "DEL", 5), ("b.y", None, 6)]
    await bucket.purge("b.y")  # which removes what a slow consumer has not delivered yet
    assert await seen(everything, 1) == [("b.y", "PURGE", 7)]
    assert await seen(some, 1) == [("a.x", "DEL", 5)]


async def test_a_watcher_of_nothing_is_told_the_end_at_once(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="B")
    assert await seen(await bucket.watch("none"), 1) == [None]


async def test_keys_of_a_large_bucket_are_complete(js: JetStreamContext) -> None:
    bucket = await js.create_key_value(bucket="B")
    names = [f"key.{number}" for number in range(600)]
    for name in names:
        await bucket.put(name, b"v" * 100)
    assert sorted(await keys_of(bucket)) == sorted(names)


async def objects(store: ObjectStore) -> list[str | None]:
    return sorted(info.name for info in await store.list(ignore_deletes=True))


async def test_objects_of_many_chunks_are_replaced_listed_and_sealed(js: JetStreamContext) -> None:
    store = await js.create_object_store("O")
    content = bytes(range(256)) * 3000
    info = await store.put("f", io.BytesIO(content))
    assert (info.size, info.chunks) == (len(content), 6)
    await store.put("f", content[:1000])
    await store.put("g", b"")
    assert (await store.get("f")).data == content[:1000]
    assert (await store.get("g")).data == b""
    assert (await js.stream_info("OBJ_O")).state.messages == 3, "one chunk and two descriptions"
    assert await objects(store) == ["f", "g"]
    await store.delete("g")
    assert await objects(store) == ["f"]
    await store.seal()
    with pytest.raises(BadRequestError):
        await store.put("h", b"1")
    assert (await store.status()).sealed
