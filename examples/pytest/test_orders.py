"""Tests of a program that uses the ORDERS streams: each starts with the streams that the documents describe, empty."""

from __future__ import annotations

import nats
import pytest
from nats.aio.client import Client

from natsctl.testing.jetstream import JetStreamServer, jetstream_fixture

pytestmark = pytest.mark.asyncio

# A server for this module; the path is relative to pytest's root folder.
orders = jetstream_fixture("examples/configs/orders.yaml", scope="module")


@pytest.fixture
def server(orders: JetStreamServer) -> JetStreamServer:
    """The module's server, with the streams that the documents describe."""
    orders.reset()
    return orders


async def dispatch(client: Client) -> None:
    """Process one received order (the code under test)."""
    work = await client.jetstream().pull_subscribe_bind("NEW", "ORDERS")
    [order] = await work.fetch(1)
    await client.jetstream().publish("ORDERS.processed", order.data)
    await order.ack_sync()


async def test_an_order_is_passed_on(server: JetStreamServer) -> None:
    client = await nats.connect(server.url)
    js = client.jetstream()
    await js.publish("ORDERS.received", b"order 1")
    await dispatch(client)
    assert (await js.get_last_msg("ORDERS", "ORDERS.processed")).data == b"order 1"
    assert (await js.consumer_info("ORDERS", "DISPATCH")).num_pending == 1
    await client.close()


async def test_nothing_is_left_of_the_test_before(server: JetStreamServer) -> None:
    client = await nats.connect(server.url)
    state = (await client.jetstream().stream_info("ORDERS")).state
    assert (state.messages, state.last_seq, state.consumer_count) == (0, 0, 3)
    await client.close()
