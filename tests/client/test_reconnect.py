"""A connection that is patient is opened again, whatever the number of servers; errors say what each server did."""

import asyncio
import json
from typing import Any

import pytest

from natsctl.api import acks
from natsctl.api.errors import ApiResponseError, NotAuthorisedError, UnreachableError
from natsctl.client import connection as connections
from natsctl.client.connection import Connection, ConnectionLostError
from natsctl.client.dial import NotListeningError
from natsctl.client.manager import Manager
from natsctl.client.message import AckedMessages
from natsctl.client.messaging import consumers
from natsctl.client.messaging.consumers import OrderedReader, pushed
from tests.client.conftest import FakeServer, connected

INFO = "$JS.API.STREAM.INFO.S"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((connections, "FIRST_PAUSE_S"), (connections, "MAX_PAUSE_S"), (consumers, "AGAIN_S")):
        monkeypatch.setattr(module, name, 0.001)


async def patient(url: str) -> tuple[Connection, list[str]]:
    said: list[str] = []
    connection = await connected(url)
    connection.reconnects = connection.patient = True
    connection.notify = said.append
    return connection, said


async def test_a_patient_connection_goes_on_at_the_only_server(fake: FakeServer) -> None:
    fake.answers[INFO] = json.dumps({"config": {"name": "S"}}).encode()
    fake.fatal.add("bye")
    async with fake.running():
        connection, said = await patient(fake.url)
        async with connection:
            news = await connection.subscribe("news", lasting=True)
            with pytest.raises(ConnectionLostError):
                await connection.request("bye")
            assert (await Manager(connection).stream_info("S")).raw == {"config": {"name": "S"}}
            assert (fake.subscribed.count("news"), news.now(), connection.openings) == (2, None, 1)
    assert said == [f"connected to {fake.url} again"]


async def test_it_gives_up_when_the_login_is_refused_twice(fake: FakeServer) -> None:
    fake.fatal.add("bye")
    async with fake.running():
        connection, _ = await patient(fake.url)
        async with connection:
            news = await connection.subscribe("news", lasting=True)
            fake.login_error = "Authorization Violation"
            with pytest.raises(ConnectionLostError):
                await connection.request("bye")
            with pytest.raises(NotAuthorisedError):
                await news.next(30.0)
            assert len(fake.connects) == 1 + connections.MAX_REFUSALS


async def test_its_end_is_not_delayed_by_a_server_that_is_down(fake: FakeServer) -> None:
    fake.fatal.add("bye")
    async with fake.running():
        connection, said = await patient(fake.url)
        reader = await _entered(connection, fake)
    with pytest.raises(ConnectionLostError):
        await connection.request("bye")
    task = asyncio.create_task(reader.next())
    while not said:
        await asyncio.sleep(0.001)
    task.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait((task,))
        await reader.__aexit__(None, None, None)
        await connection.close()
    assert said[0].endswith("connecting again")


async def _entered(connection: Connection, fake: FakeServer) -> OrderedReader:
    class Creations(dict[str, bytes]):
        def __contains__(self, subject: object) -> bool:
            return "CONSUMER.CREATE" in str(subject)

        def __getitem__(self, subject: str) -> bytes:
            return b'{"num_pending": 0, "delivered": {"stream_seq": 7}}'

    fake.answers = Creations()
    return await OrderedReader(Manager(connection), "S", "s", deliver="new").__aenter__()


async def test_without_it_one_server_is_not_connected_to_again(fake: FakeServer) -> None:
    fake.fatal.add("bye")
    async with fake.running(), await connected(fake.url) as connection:
        news = await connection.subscribe("news", lasting=True)
        for _ in range(2):
            with pytest.raises(ConnectionLostError):
                await connection.request("bye")
        with pytest.raises(ConnectionLostError):
            await news.next(30.0)
    assert len(fake.connects) == 1


async def test_each_server_that_was_tried_is_in_the_error(fake: FakeServer, other: FakeServer) -> None:
    fake.login_error = other.login_error = "Authorization Violation"
    async with other.running():
        gone = other.url
    async with fake.running():
        with pytest.raises(NotAuthorisedError) as raised:
            await connected(f"{fake.url.replace('//', '//u:SECRET@')},{gone}")
    assert str(raised.value) == (
        f"no connection to any of 2 servers: {fake.url} refused the login: Authorization Violation; "
        f"nothing listens at {gone}"
    )
    with pytest.raises(NotListeningError, match=f"nothing listens at {gone}"):
        await connected(gone)
    with pytest.raises(UnreachableError, match=f"nothing listens at {gone}; nothing listens at {gone}"):
        await connected(f"{gone},{gone}")


@pytest.mark.parametrize(("timeout_s", "says"), [(0.3, "at most 0.3s"), (None, "at most 0.4s")])
async def test_a_leader_is_awaited_for_the_timeout_and_with_a_notice(
    fake: FakeServer, other: FakeServer, monkeypatch: pytest.MonkeyPatch, timeout_s: float | None, says: str
) -> None:
    from natsctl.client import requests

    monkeypatch.setattr(requests, "ELECTION_S", 0.4)
    monkeypatch.setattr(requests, "PAUSE_S", 0.05)
    fake.answers[INFO] = json.dumps({"error": {"code": 503, "err_code": 10008, "description": "no leader"}}).encode()
    said: list[str] = []
    async with fake.running(), other.running(), await connected(f"{fake.url},{other.url}", timeout_s) as connection:
        connection.notify = said.append
        with pytest.raises(ApiResponseError):
            await Manager(connection).stream_info("S")
        await connection.flush()  # a request may be on its way when the time is over
        before = len(fake.published)
        connection.reconnects = False  # as for server check
        with pytest.raises(ApiResponseError):
            await Manager(connection).stream_info("S")
    assert len(said) == 1
    assert says in said[0]
    assert before > 1
    assert len(fake.published) == before + 1


def test_only_what_was_acknowledged_on_an_earlier_connection_is_repeated() -> None:
    def reply(seq: int, delivered: int = 1, ts_ns: int = 5) -> str:
        return acks.encode(b"S", b"C", delivered, seq, seq, ts_ns, 0).decode()

    acked = AckedMessages()
    acked.add(reply(1))
    assert not acked.is_repeated(reply(1, delivered=2))  # the consumer was reset
    acked.opening = 1
    assert not acked.is_repeated(reply(2))
    assert not acked.is_repeated(reply(1, ts_ns=6))  # another message of a stream that was created again
    assert acked.is_repeated(reply(1, delivered=2))
    assert not acked.is_repeated(reply(1, delivered=3))
    assert not acked.is_repeated("no.ack.subject")


async def _drop(connection: Connection) -> None:
    connection._client._transport._io_writer.transport.abort()
    while not connection.lost:
        await asyncio.sleep(0)


@pytest.mark.both
@pytest.mark.parametrize("deliver", ["all", "new"])
async def test_an_ordered_reader_goes_on_without_gap_and_double(server: Any, deliver: str) -> None:
    connection, _ = await patient(server.url)
    async with connection, await connected(server.url) as writer:
        manager = Manager(connection)
        await manager.stream_create({"name": "S", "subjects": ["s.*"]})
        async with OrderedReader(manager, "S", "s.*", deliver=deliver) as reader:
            for number in range(6):
                if number % 2 == 0:
                    await _drop(connection)
                await writer.request("s.a", b"%d" % number)
                if number % 2:
                    async with asyncio.timeout(30):
                        bodies = [(await reader.next()).message.body for _ in range(2)]  # type: ignore[union-attr]
                    assert bodies == [b"%d" % (number - 1), b"%d" % number]
    assert connection.openings == 3


@pytest.mark.both
async def test_a_stream_that_was_created_again_is_read_from_its_beginning(server: Any) -> None:
    connection, said = await patient(server.url)
    async with connection, await connected(server.url) as writer:
        manager, other = Manager(connection), Manager(writer)
        await other.stream_create({"name": "S", "subjects": ["s.*"]})
        await writer.request("s.a", b"old")
        async with OrderedReader(manager, "S", "s.*") as reader:
            await reader.next()
            await _drop(connection)
            await other.stream_delete("S")
            server.await_removals()
            await other.stream_create({"name": "S", "subjects": ["s.*"]})
            await writer.request("s.a", b"new")
            async with asyncio.timeout(30):
                assert (await reader.next()).message.body == b"new"  # type: ignore[union-attr]
            assert said[-1].startswith("Stream S was removed and created again")
            await _drop(connection)
            await other.stream_delete("S")
            with pytest.raises(ApiResponseError, match="stream not found"):
                await reader.next()


@pytest.mark.both
async def test_a_push_consumer_is_bound_again_until_it_is_removed(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "QUIET_S", 0.05)
    connection, _ = await patient(server.url)
    async with connection, await connected(server.url) as writer:
        manager, other = Manager(connection), Manager(writer)
        await other.stream_create({"name": "S", "subjects": ["s.*"]})
        config: dict[str, Any] = {"durable_name": "C", "deliver_subject": "push", "deliver_policy": "new"}
        config |= {"ack_policy": "explicit", "ack_wait": 10**9}  # one may go to the connection that has just ended
        info = (await other.consumer_create("S", config)).raw
        messages = pushed(manager, info)
        for number in range(3):
            await writer.request("s.a", b"%d" % number)
            async with asyncio.timeout(30):
                message = await anext(messages)
            assert message.body == b"%d" % number
            await connection.publish(message.reply, acks.ACK)
            await connection.flush()
            await _drop(connection)
        await other.consumer_delete("S", "C")
        with pytest.raises(ApiResponseError, match="consumer not found"):
            await anext(messages)
        info = (await other.consumer_create("S", config)).raw
        messages = pushed(manager, info)
        await writer.request("s.a", b"0")
        await anext(messages)
        await other.consumer_delete("S", "C")
        with pytest.raises(ApiResponseError, match="consumer not found"):
            await anext(messages)
