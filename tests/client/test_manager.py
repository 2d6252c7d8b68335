"""The typed API on live servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from natsctl.api.errors import ApiResponseError, NatsctlError, ProtocolError, UnreachableError, UsageError
from natsctl.api.stream import StreamConfig
from natsctl.client.connection import Connection
from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.messaging import messages
from natsctl.client.messaging.consumers import PullOptions, take
from natsctl.client.requests import Answer, JetStreamNotEnabledError
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings

ORDERS = {"name": "ORDERS", "subjects": ["ORDERS.*"], "storage": "file"}


async def _connect(url: str) -> Connection:
    return await connect(resolve(Settings(url=url), {"HOME": "/nowhere"}), name="test")


@pytest.mark.both
async def test_a_config_goes_out_as_model_or_as_plain_object(server: Any) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        made = await manager.stream_create(StreamConfig(name="A", subjects=["a"]))
        again = await manager.stream_create({"name": "A", "subjects": ["a"]})
        assert made.value.config == again.value.config
        assert made.raw["type"] == "io.nats.jetstream.api.v1.stream_create_response"


@pytest.mark.both
async def test_errors_carry_code_subject_and_exit_code(server: Any) -> None:
    async with await _connect(server.url) as connection:
        with pytest.raises(ApiResponseError) as raised:
            await Manager(connection).stream_info("NONE")
    assert (raised.value.err_code, raised.value.exit_code) == (10059, 3)
    assert raised.value.subject == "$JS.API.STREAM.INFO.NONE"


@pytest.mark.both
async def test_lists_are_read_to_their_last_page(server: Any) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        names = [f"S{number:03}" for number in range(300)]
        for start in range(0, 300, 50):
            made = (manager.stream_create({"name": n, "storage": "memory"}) for n in names[start : start + 50])
            await asyncio.gather(*made)
        listed = await manager.stream_list()
        assert [one.value.config.name for one in listed] == names
        assert len(listed.raw["streams"]) == 300
        assert list(await manager.stream_names()) == names


@pytest.mark.both
async def test_a_name_with_blanks_or_dots_never_reaches_the_wire(server: Any) -> None:
    async with await _connect(server.url) as connection:
        for name in ("a b", "a.b", "", ">"):
            with pytest.raises(UsageError):
                await Manager(connection).stream_info(name)


@pytest.mark.both
async def test_publish_waits_for_the_ack_and_pull_reads_what_was_stored(server: Any) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await manager.stream_create(ORDERS)
        for number in range(5):
            ack = await messages.publish(manager, "ORDERS.new", b"%d" % number, headers={"K": "v"})
            assert (ack.value.stream, ack.value.seq) == ("ORDERS", number + 1)
        await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit"})
        bodies = []
        async for message in take(manager, "ORDERS", "NEW", PullOptions(count=10, no_wait=True), {}):
            bodies.append(message.body)
            assert message.headers == {"K": "v"}
            await messages.acknowledge(manager, message)
        assert bodies == [b"0", b"1", b"2", b"3", b"4"]
        assert (await manager.consumer_info("ORDERS", "NEW")).value.num_ack_pending == 0


@pytest.mark.both
async def test_pull_without_waiting_ends_at_once_when_there_is_nothing(server: Any) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await manager.stream_create(ORDERS)
        await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit"})
        assert [m async for m in take(manager, "ORDERS", "NEW", PullOptions(no_wait=True), {})] == []


@pytest.mark.both
async def test_pull_tells_why_a_consumer_cannot_be_read(server: Any) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        with pytest.raises(ApiResponseError) as raised:
            [m async for m in take(manager, "ORDERS", "NEW", PullOptions(), {})]
        assert raised.value.exit_code == 3
        await manager.stream_create(ORDERS)
        push = {"durable_name": "PUSH", "deliver_subject": "out", "ack_policy": "none"}
        await manager.consumer_create("ORDERS", push)
        with pytest.raises(NatsctlError, match="push"):
            [m async for m in take(manager, "ORDERS", "PUSH", PullOptions(), {})]


@pytest.mark.both
async def test_publishing_where_no_stream_listens_is_unreachable(server: Any) -> None:
    async with await _connect(server.url) as connection:
        with pytest.raises(messages.NoStreamResponseError, match=r"no responders on nowhere"):
            await messages.publish(Manager(connection), "nowhere", b"x")


@pytest.mark.both
async def test_subjects_are_counted_when_asked(server: Any) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        await manager.stream_create(ORDERS)
        for subject in ("ORDERS.a", "ORDERS.b", "ORDERS.a"):
            await messages.publish(manager, subject)
        info = await manager.stream_info("ORDERS", subjects_filter=">")
        assert info.value.state.subjects == {"ORDERS.a": 2, "ORDERS.b": 1}


async def test_a_server_without_jetstream_is_told(fake: Any) -> None:
    async with fake.running(), await _connect(fake.url) as connection:
        manager = Manager(connection)
        manager.connection.timeout_s = 0.1
        with pytest.raises(UnreachableError):
            await manager.account_info()


@pytest.mark.both
async def test_an_account_without_jetstream_has_no_responders(server: Any) -> None:
    async with await _connect(server.url) as connection:
        manager = Manager(connection)
        elsewhere = connection.target.settings._replace(jetstream_domain="elsewhere")
        connection.target = connection.target._replace(settings=elsewhere)
        with pytest.raises(JetStreamNotEnabledError) as raised:
            await manager.account_info()
        assert raised.value.exit_code == 5


async def test_an_answer_that_is_no_json_is_a_protocol_error(fake: Any) -> None:
    fake.answers["$JS.API.INFO"] = b"+OK"
    async with fake.running(), await _connect(fake.url) as connection:
        with pytest.raises(ProtocolError, match="not JSON"):
            await Manager(connection).account_info()


def test_an_answer_keeps_fields_that_the_model_does_not_know() -> None:
    raw = {"name": "A", "subjects": ["a"], "from_the_future": {"x": 1}}
    answer: Answer[StreamConfig] = Answer(StreamConfig, "s", raw=raw)
    assert answer.raw is raw
    assert answer.value.subjects == ["a"]


def test_a_field_of_another_type_is_told_by_path() -> None:
    answer: Answer[StreamConfig] = Answer(StreamConfig, "$JS.API.X", raw={"name": 5})
    with pytest.raises(ProtocolError, match=r"\$\.name"):
        _ = answer.value
