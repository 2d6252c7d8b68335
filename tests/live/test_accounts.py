"""JetStream of one account used from another: nats.py with an API prefix, mirrors and sources, on both servers."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.api import ConsumerConfig, ExternalStream, StreamSource
from nats.js.errors import NotFoundError

from natsctl.testing.process import ServerProcess
from tests.support import patient_client
from tests.support.patient_client import history_of

pytestmark = pytest.mark.both

CONFIG = """
accounts {
  A {
    users: [{user: a, password: a}]
    jetstream: enabled
    exports: [
      {service: "$JS.API.>", response: stream}
      {service: "$JS.ACK.>"}
      {service: "$JS.FC.>"}
      {service: "orders.>"}
      {service: "$KV.>"}
      {stream: "deliver.>"}
    ]
  }
  B {
    users: [{user: b, password: b}]
    jetstream: enabled
    imports: [
      {service: {account: A, subject: "$JS.API.>"}, to: "JS.A.API.>"}
      {service: {account: A, subject: "$JS.ACK.>"}}
      {service: {account: A, subject: "$JS.FC.>"}}
      {service: {account: A, subject: "orders.>"}}
      {service: {account: A, subject: "$KV.>"}}
      {stream: {account: A, subject: "deliver.>"}}
    ]
  }
  C {
    users: [{user: c, password: c}]
    imports: [{service: {account: A, subject: "$JS.API.>"}}, {service: {account: A, subject: "$JS.ACK.>"}}]
  }
  D {
    users: [{user: d, password: d}]
  }
}
"""
PREFIX = "JS.A.API"


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("accounts")
    config = folder / "accounts.conf"
    config.write_text(CONFIG)
    with ServerProcess(folder / "server", request.param, "-c", str(config)) as process:
        yield process


async def closed(client: Client) -> None:
    for stream in await client.jetstream().streams_info():
        await client.jetstream().delete_stream(str(stream.config.name))
    await client.close()


@pytest.fixture
async def owner(server: ServerProcess) -> AsyncIterator[Client]:
    client = await patient_client.connect(server.url, user="a", password="a")
    await client.jetstream().add_stream(name="ORDERS", subjects=["orders.>"])
    yield client
    await closed(client)


@pytest.fixture
async def guest(server: ServerProcess) -> AsyncIterator[Client]:
    client = await patient_client.connect(server.url, user="b", password="b")
    yield client
    await closed(client)


async def test_a_guest_publishes_pulls_and_acknowledges(owner: Client, guest: Client) -> None:
    js = guest.jetstream(prefix=PREFIX)
    for number in range(20):
        ack = await js.publish("orders.new", b"%d" % number)
        assert (ack.stream, ack.seq) == ("ORDERS", number + 1)
    worker = await js.pull_subscribe("orders.>", "W", stream="ORDERS")
    messages = await worker.fetch(20, timeout=20)
    assert [(m.subject, m.data) for m in messages] == [("orders.new", b"%d" % number) for number in range(20)]
    for message in messages:
        await message.ack_sync(timeout=20)
    info = await owner.jetstream().consumer_info("ORDERS", "W")
    assert (info.num_ack_pending, info.num_pending, info.ack_floor and info.ack_floor.stream_seq) == (0, 0, 20)
    with pytest.raises(nats.errors.TimeoutError):
        await worker.fetch(1, timeout=0.3)


async def test_a_guest_is_pushed_to_over_an_imported_stream(owner: Client, guest: Client) -> None:
    js = guest.jetstream(prefix=PREFIX)
    heard: asyncio.Queue[Msg] = asyncio.Queue()
    config = ConsumerConfig(deliver_subject="deliver.b.1", flow_control=True, idle_heartbeat=5)
    await js.subscribe("orders.>", cb=heard.put, stream="ORDERS", durable="P", config=config, manual_ack=True)
    for number in range(300):
        await owner.publish("orders.new", b"%d" % number)
    for number in range(300):
        message = await asyncio.wait_for(heard.get(), 30)
        assert (message.subject, message.data) == ("orders.new", b"%d" % number)
        await message.ack()
    await guest.flush()
    info = await js.consumer_info("ORDERS", "P")
    assert (info.num_pending, info.push_bound) == (0, True)


async def test_a_guest_keeps_keys_in_the_owners_bucket(owner: Client, guest: Client) -> None:
    bucket = await owner.jetstream().create_key_value(bucket="B", history=3)
    there = await guest.jetstream(prefix=PREFIX).key_value("B")
    assert await there.put("k", b"1") == 1
    assert await there.update("k", b"2", last=1) == 2
    assert (await there.get("k")).value == (await bucket.get("k")).value == b"2"
    assert [entry.revision for entry in await history_of(bucket, "k")] == [1, 2]
    with pytest.raises(NotFoundError):
        await there.get("none")


@pytest.mark.parametrize("kind", ["mirror", "source"])
async def test_streams_are_copied_from_another_account(owner: Client, guest: Client, kind: str) -> None:
    for number in range(50):
        await owner.jetstream().publish("orders.new", b"%d" % number)
    origin = StreamSource(name="ORDERS", external=ExternalStream(api=PREFIX, deliver="deliver.copy"))
    js = guest.jetstream()
    if kind == "mirror":
        await js.add_stream(name="COPY", mirror=origin)
    else:
        await js.add_stream(name="COPY", sources=[origin])
    for number in range(50, 60):
        await owner.jetstream().publish("orders.new", b"%d" % number)
    async with asyncio.timeout(60):
        while (await js.stream_info("COPY")).state.messages < 60:
            await asyncio.sleep(0.01)
    assert (await js.get_msg("COPY", 60)).data == b"59"


async def test_an_account_without_jetstream_may_import_one(server: ServerProcess, owner: Client) -> None:
    client = await patient_client.connect(server.url, user="c", password="c")
    js = client.jetstream()
    assert (await js.stream_info("ORDERS")).config.name == "ORDERS"
    await owner.jetstream().publish("orders.1", b"x")
    worker = await js.pull_subscribe("orders.>", "W", stream="ORDERS")
    (message,) = await worker.fetch(1, timeout=20)
    await message.ack_sync(timeout=20)
    await client.close()


async def test_an_account_without_any_is_told_so(server: ServerProcess) -> None:
    client = await patient_client.connect(server.url, user="d", password="d")
    answer = await client.request("$JS.API.INFO", b"", timeout=20)
    assert b'"err_code":10039' in answer.data
    with pytest.raises(NoRespondersError):
        await client.request("orders.new", b"", timeout=20)
    await client.close()
