"""The typed API on live servers."""

import asyncio

import pytest

from natsctl.api.errors import ApiResponseError, NatsctlError, ProtocolError, UnreachableError
from natsctl.api.stream import StreamConfig
from natsctl.client.manager import Manager
from natsctl.client.messaging.consumers import PullOptions, pull, take
from natsctl.client.messaging.messages import acknowledge, publish
from natsctl.client.requests import Answer, JetStreamNotEnabledError

ORDERS = {"name": "ORDERS", "subjects": ["ORDERS.*"], "storage": "file"}


@pytest.mark.both
async def test_a_config_goes_out_as_model_or_as_plain_object(manager: Manager) -> None:
    made = await manager.stream_create(StreamConfig(name="A", subjects=["a"]))
    again = await manager.stream_create({"name": "A", "subjects": ["a"]})
    assert made.value.config == again.value.config
    assert made.raw["type"] == "io.nats.jetstream.api.v1.stream_create_response"


@pytest.mark.both
async def test_lists_are_read_to_their_last_page(manager: Manager) -> None:
    names = [f"S{number:03}" for number in range(300)]
    for start in range(0, 300, 50):
        made = (manager.stream_create({"name": n, "storage": "memory"}) for n in names[start : start + 50])
        await asyncio.gather(*made)
    listed = await manager.stream_list()
    assert [one.value.config.name for one in listed] == names
    assert len(listed.raw["streams"]) == 300
    assert list(await manager.stream_names()) == names


@pytest.mark.both
async def test_pull_tells_why_a_consumer_cannot_be_read(manager: Manager) -> None:
    with pytest.raises(ApiResponseError) as raised:
        [m async for m in take(manager, "ORDERS", "NEW", PullOptions(), {})]
    assert raised.value.exit_code == 3
    await manager.stream_create(ORDERS)
    push = {"durable_name": "PUSH", "deliver_subject": "out", "ack_policy": "none"}
    await manager.consumer_create("ORDERS", push)
    with pytest.raises(NatsctlError, match="push"):
        [m async for m in take(manager, "ORDERS", "PUSH", PullOptions(), {})]


@pytest.mark.both
async def test_an_ack_that_nobody_takes_is_a_failure(manager: Manager) -> None:
    await manager.stream_create(ORDERS)
    await manager.consumer_create("ORDERS", {"durable_name": "NEW", "ack_policy": "explicit"})
    await publish(manager, "ORDERS.new", b"x")
    async for message in pull(manager, "ORDERS", "NEW", {"batch": 1, "expires": 10**9}):
        await manager.consumer_delete("ORDERS", "NEW")
        with pytest.raises(UnreachableError, match="the consumer was removed"):
            await acknowledge(manager, message)


@pytest.mark.both
async def test_an_account_without_jetstream_has_no_responders(manager: Manager) -> None:
    elsewhere = manager.connection.target.settings._replace(jetstream_domain="elsewhere")
    manager.connection.target = manager.connection.target._replace(settings=elsewhere)
    with pytest.raises(JetStreamNotEnabledError) as raised:
        await manager.account_info()
    assert raised.value.exit_code == 5


def test_an_answer_keeps_fields_that_the_model_does_not_know() -> None:
    raw = {"name": "A", "subjects": ["a"], "from_the_future": {"x": 1}}
    answer: Answer[StreamConfig] = Answer(StreamConfig, "s", raw=raw)
    assert answer.raw is raw
    assert answer.value.subjects == ["a"]


def test_a_field_of_another_type_is_told_by_path() -> None:
    answer: Answer[StreamConfig] = Answer(StreamConfig, "$JS.API.X", raw={"name": 5})
    with pytest.raises(ProtocolError, match=r"\$\.name"):
        _ = answer.value
