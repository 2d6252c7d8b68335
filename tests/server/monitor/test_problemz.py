"""The list of problems: what is in it, what is not, and what comes first."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, DiscardPolicy, StorageType, StreamSource

from natsctl.api.stream import StorageType as Storage
from natsctl.api.units import MINUTE
from natsctl.broker.refusals import CloseReason
from natsctl.jetstream.consumers.consumer import Consumer
from natsctl.server.instance import ServerInstance
from natsctl.server.monitor.http import HttpRequest
from natsctl.server.monitor.pages import Monitor
from natsctl.server.monitor.problemz import DISCONNECTED_NS, KINDS
from natsctl.server.options import ServerOptions
from natsctl.store.store import Store
from tests.server.monitor.conftest import disk
from tests.support import patient_client


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerInstance]:
    options = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path)
    async with ServerInstance(options) as running:
        yield running


@pytest.fixture
async def client(server: ServerInstance) -> AsyncIterator[Client]:
    connected = await patient_client.connect(server.url, name="the client")
    yield connected
    await connected.close()


def listed(server: ServerInstance, query: str = "") -> dict[str, Any]:
    answer = Monitor(server).answer(HttpRequest("GET", f"/problemz?{query}"))
    assert answer.status == 200 and not isinstance(answer.body, bytes)
    return json.loads(b"".join(answer.body))


def problems(server: ServerInstance, query: str = "") -> list[dict[str, Any]]:
    return listed(server, query)["problems"]


def aged(server: ServerInstance, stream: str, name: str, minutes: int) -> Consumer:
    """Return a consumer after moving its creation, deliveries and acks into the past."""
    consumer = server.engine.accounts["$G"].streams[stream].consumers[name]
    past_ns, state = minutes * MINUTE, consumer.state
    consumer.created_ns -= past_ns
    state.last_delivered_ns = max(state.last_delivered_ns - past_ns, 0)
    state.last_ack_ns = max(state.last_ack_ns - past_ns, 0)
    state.pending = {seq: (cseq, ts_ns - past_ns) for seq, (cseq, ts_ns) in state.pending.items()}
    return consumer


async def with_messages(client: Client, number: int, **config: Any) -> None:
    js = client.jetstream()
    await js.add_stream(name="S", subjects=["s.>"], storage=StorageType.MEMORY, **config)
    for at in range(number):
        await js.publish(f"s.{at}", b"x" * 100)


async def test_a_server_that_is_well_has_none(server: ServerInstance, client: Client) -> None:
    await with_messages(client, 3, max_msgs=3)  # discard: old makes room
    await client.jetstream().add_consumer("S", ConsumerConfig(durable_name="new"))
    found = listed(server)
    assert (found["total"], found["errors"], found["warnings"], found["kinds"], found["problems"]) == (0, 0, 0, {}, [])


async def test_a_stream_that_is_not_served_comes_first_with_its_reason(server: ServerInstance, client: Client) -> None:
    await with_messages(client, 10, max_msgs=10, discard=DiscardPolicy.NEW)
    server.engine._leave_offline("$G/BAD", "made by a newer version")
    first, second = problems(server)
    assert first == {
        "level": "error",
        "kind": "health",
        "text": "JetStream stream '$G > BAD' could not be recovered: made by a newer version",
        "account": "$G",
        "stream": "BAD",
    }
    assert second["kind"] == "stream_limit"


@pytest.mark.parametrize(("messages", "level"), [(8, None), (9, "warning"), (10, "error")])
async def test_a_stream_that_refuses_messages_at_its_limit_is_listed_before_it_does(
    server: ServerInstance, client: Client, messages: int, level: str | None
) -> None:
    await with_messages(client, messages, max_msgs=10, discard=DiscardPolicy.NEW)
    assert [(one["level"], one["stream"]) for one in problems(server)] == ([(level, "S")] if level else [])


async def test_bytes_count_as_messages_do(server: ServerInstance, client: Client) -> None:
    await with_messages(client, 5, max_bytes=10_000, discard=DiscardPolicy.NEW)
    stream = server.engine.accounts["$G"].streams["S"]
    stream.config = replace(stream.config, max_bytes=stream.store.bytes)
    (found,) = problems(server)
    assert found["text"].startswith("max_bytes is reached, ")
    assert found["text"].endswith("(100%): with discard new, messages are refused")


async def test_consumers_without_a_client_are_stalled_after_a_quarter_of_an_hour(
    server: ServerInstance, client: Client
) -> None:
    await with_messages(client, 12)
    js = client.jetstream()
    await js.add_consumer("S", ConsumerConfig(durable_name="pull"))
    await js.add_consumer("S", ConsumerConfig(durable_name="push", deliver_subject="nobody"))
    await js.add_consumer("S", ConsumerConfig(durable_name="young"))
    await js.add_consumer("S", ConsumerConfig(durable_name="paused", pause_until="2100-01-01T00:00:00Z"))
    for name in ("pull", "push", "paused"):
        aged(server, "S", name, 75)
    aged(server, "S", "young", 14)
    found = {one["consumer"]: (one["level"], one["kind"], one["text"]) for one in problems(server)}
    stalled = ("warning", "consumer_stalled")
    assert found == {
        "pull": (*stalled, "12 messages pending, no delivery for 1h15m: no client pulls"),
        "push": (*stalled, "12 messages pending, no delivery for 1h15m: no client subscribes to its delivery subject"),
    }


async def test_a_consumer_at_max_ack_pending_says_so(server: ServerInstance, client: Client) -> None:
    await with_messages(client, 12)
    js = client.jetstream()
    await js.add_consumer("S", ConsumerConfig(durable_name="full", max_ack_pending=4, ack_wait=3600))
    await (await js.pull_subscribe_bind("full", "S")).fetch(4)
    assert problems(server) == []
    aged(server, "S", "full", 20)
    (found,) = problems(server)
    assert found["text"] == "8 messages pending, no ack for 20m: max_ack_pending is used up by 4 messages"


async def test_acks_that_do_not_come_are_listed_after_half_an_hour(server: ServerInstance, client: Client) -> None:
    await with_messages(client, 3)
    js = client.jetstream()
    await js.add_consumer("S", ConsumerConfig(durable_name="lazy", ack_wait=7200))
    pull = await js.pull_subscribe_bind("lazy", "S")
    await (await pull.fetch(1))[0].ack_sync()
    aged(server, "S", "lazy", 60)
    assert [one["kind"] for one in problems(server)] == ["consumer_stalled"]
    await pull.fetch(2)
    assert problems(server) == []  # the last ack is an hour old, what waits for one is not
    aged(server, "S", "lazy", 29)
    assert problems(server) == []
    aged(server, "S", "lazy", 2)
    (found,) = problems(server)
    assert (found["kind"], found["text"]) == ("acks_missing", "2 messages wait for an ack, none came for 31m")


async def test_many_redeliveries_are_listed(server: ServerInstance, client: Client) -> None:
    await with_messages(client, 120)
    js = client.jetstream()
    await js.add_consumer("S", ConsumerConfig(durable_name="again", ack_wait=3600))
    messages = await (await js.pull_subscribe_bind("again", "S")).fetch(120)
    consumer = aged(server, "S", "again", 0)
    consumer.state.redelivered.update(dict.fromkeys(range(1, 61), 1))
    assert problems(server) == []
    consumer.state.redelivered[61] = 1
    (found,) = problems(server)
    assert found["text"] == "61 of 120 messages that wait for an ack were delivered before"
    assert len(messages) == 120


async def test_a_mirror_whose_origin_does_not_answer_is_an_error(server: ServerInstance, client: Client) -> None:
    await client.jetstream().add_stream(name="COPY", mirror=StreamSource(name="NOWHERE"))
    await client.jetstream().add_stream(name="SUM", sources=[StreamSource(name="NOWHERE")])
    for stream in server.engine.accounts["$G"].streams.values():
        stream.created_ns -= 2 * MINUTE
    found = {one["stream"]: (one["level"], one["kind"], one["text"]) for one in problems(server)}
    assert set(found) == {"COPY", "SUM"}
    assert found["COPY"][:2] == ("error", "source")
    assert found["COPY"][2].startswith("Mirror of NOWHERE: ")
    assert found["SUM"][2].startswith("Source of NOWHERE: ")


async def test_storage_and_disk_are_listed_before_they_are_full(server: ServerInstance, client: Client) -> None:
    usage = server.engine.usage[Storage.FILE]
    usage.limit, usage.used = 1000, 849
    assert problems(server) == []
    usage.used = 850
    (found,) = problems(server)
    assert (found["level"], found["kind"]) == ("warning", "storage")
    assert found["text"] == "File storage of the server: 850 B of 1000 B (85%) used"
    usage.used = 1001
    assert problems(server)[0]["level"] == "error"
    usage.limit = -1
    with disk(free=4):
        (found,) = problems(server)
        assert (found["level"], found["kind"]) == ("warning", "disk")
        assert found["text"].startswith("The disk is nearly full: 4.0 GiB of 100 GiB are free on the disk of ")
        with patch.object(Store, "has_room", False):
            assert problems(server)[0]["text"].startswith("The disk is full: ")


async def test_limits_of_an_account_are_listed(server: ServerInstance, client: Client) -> None:
    await with_messages(client, 3)
    account = server.engine.accounts["$G"]
    account.quota.limits = replace(account.quota.limits, max_streams=1)
    account.usage[Storage.MEMORY].limit = account.usage[Storage.MEMORY].used + 1
    texts = [one["text"] for one in problems(server)]
    assert [one["kind"] for one in problems(server)] == ["account", "account"]
    assert texts[0] == "Streams of the account: 1 of 1"
    assert texts[1].startswith("Memory storage of the account: ")


async def test_clients_that_read_too_slowly_are_listed_and_those_that_were_disconnected_for_it(
    server: ServerInstance, client: Client
) -> None:
    session = next(iter(server.broker.sessions.values()))
    session.max_pending = 100
    with patch.object(type(session), "pending_bytes", 50):
        (found,) = problems(server)
    assert found["text"] == f"the client (cid {session.cid}) reads too slowly: 50 B of 100 B wait for it"
    assert found["cid"] == session.cid
    other = await patient_client.connect(server.url)
    slow = list(server.broker.sessions.values())[-1]
    await other.close()
    while slow in server.broker.sessions.values():
        await client.flush()
    slow.close_reason = CloseReason.SLOW_CONSUMER_PENDING_BYTES
    (found,) = problems(server)
    assert found["text"].startswith(f"Client cid {slow.cid} was disconnected 0s ago: Slow Consumer (Pending Bytes)")
    slow.stop_ns -= DISCONNECTED_NS
    assert problems(server) == []


async def test_connections_are_listed_before_there_are_too_many(server: ServerInstance, client: Client) -> None:
    server.broker.options = replace(server.broker.options, max_connections=1)
    (found,) = problems(server)
    assert (found["level"], found["text"]) == ("error", "Connections: 1 of 1 (100%): no client can connect")


async def test_a_page_keeps_to_a_kind_and_counts_them_all(server: ServerInstance, client: Client) -> None:
    await with_messages(client, 10, max_msgs=10, discard=DiscardPolicy.NEW)
    for at in range(9):
        await client.jetstream().add_consumer("S", ConsumerConfig(durable_name=f"c{at}"))
        aged(server, "S", f"c{at}", 20)
    found = listed(server, "kind=consumer_stalled&limit=4&offset=8")
    assert (found["total"], found["errors"], found["warnings"]) == (9, 1, 9)
    assert found["kinds"] == {"stream_limit": 1, "consumer_stalled": 9}
    assert [one["consumer"] for one in found["problems"]] == ["c8"]
    assert list(found["kinds"]) == [kind for kind in KINDS if kind in found["kinds"]]
