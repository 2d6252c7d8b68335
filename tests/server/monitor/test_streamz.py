"""Pages of streams and consumers: their order, their search, and the slices in which they are found."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from nats.js.api import ConsumerConfig, StorageType

from natsctl.server.instance import ServerInstance
from natsctl.server.monitor.http import HttpRequest
from natsctl.server.monitor.pages import Monitor
from natsctl.server.monitor.streamz import MAX_LIMIT, MAX_SUBJECTS, SLICE, ListEntry, Paging, choosing
from natsctl.server.options import ServerOptions
from tests.support import patient_client

MESSAGES = {"ALPHA": 3, "beta": 9, "GAMMA": 1, "delta": 0}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerInstance]:
    options = ServerOptions(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path)
    async with ServerInstance(options) as running:
        client = await patient_client.connect(running.url)
        js = client.jetstream()
        for name, number in MESSAGES.items():
            await js.add_stream(
                name=name, subjects=[f"{name.lower()}.>"], description=f"about {name}", storage=StorageType.MEMORY
            )
            for at in range(number):
                await js.publish(f"{name.lower()}.{at % 2}", b"x" * 10)
        await js.add_consumer("beta", ConsumerConfig(durable_name="slow"))
        await js.add_consumer("beta", ConsumerConfig(durable_name="quick", max_ack_pending=5))
        await js.add_consumer("ALPHA", ConsumerConfig(durable_name="bound", deliver_subject="to.me"))
        pull = await js.pull_subscribe_bind("quick", "beta")
        for message in (await pull.fetch(4))[:1]:
            await message.ack_sync()
        yield running
        await client.close()


def page(server: ServerInstance, target: str) -> Any:
    answer = Monitor(server).answer(HttpRequest("GET", target))
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    return json.loads(body) if answer.status == 200 else (answer.status, body.decode())


def names(server: ServerInstance, target: str) -> list[str]:
    found = page(server, target)
    return [one["name"] for one in found.get("streams", found.get("consumers"))]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["ALPHA", "GAMMA", "beta", "delta"]), ("order=desc", ["delta", "beta", "GAMMA", "ALPHA"]),
        ("sort=messages", ["beta", "ALPHA", "GAMMA", "delta"]),
        ("sort=messages&order=asc", ["delta", "GAMMA", "ALPHA", "beta"]),
        ("sort=lag", ["beta", "ALPHA", "GAMMA", "delta"]), ("sort=consumers", ["beta", "ALPHA", "GAMMA", "delta"]),
        ("sort=subjects&order=asc", ["delta", "GAMMA", "ALPHA", "beta"]),
        ("sort=created", ["delta", "GAMMA", "beta", "ALPHA"]),
        ("sort=messages&offset=1&limit=2", ["ALPHA", "GAMMA"]), ("search=ET", ["beta"]),
        ("search=gamma.%3E", ["GAMMA"]), ("search=ABOUT%20d", ["delta"]), ("acc=%24G&limit=1", ["ALPHA"]),
        ("acc=OTHER", []), ("offset=9", []),
    ],
)  # fmt: skip
async def test_streams_come_in_the_order_and_with_the_text_that_is_asked_for(
    server: ServerInstance, query: str, expected: list[str]
) -> None:
    assert names(server, f"/streamz?{query}") == expected


async def test_a_row_describes_its_stream_and_the_total_counts_all_pages(server: ServerInstance) -> None:
    found = page(server, "/streamz?sort=messages&limit=1")
    assert (found["total"], found["offset"], found["limit"]) == (4, 0, 1)
    row = found["streams"][0]
    assert (row["name"], row["account"], row["account_id"]) == ("beta", "$G", "$G")
    assert (row["description"], row["storage"], row["subjects"]) == ("about beta", "memory", ["beta.>"])
    assert row["lag"] == 9
    assert (row["state"]["messages"], row["state"]["num_subjects"], row["state"]["consumer_count"]) == (9, 2, 2)
    assert page(server, "/streamz?search=beta&limit=1")["total"] == 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["slow", "quick", "bound"]), ("sort=ack_pending", ["quick", "bound", "slow"]),
        ("sort=delivered&limit=1", ["quick"]), ("sort=active&limit=1", ["quick"]),
        ("sort=name", ["bound", "quick", "slow"]), ("sort=stream&order=desc", ["slow", "quick", "bound"]),
        ("stream=ALPHA", ["bound"]), ("search=alpha", ["bound"]), ("search=QUI", ["quick"]),
        ("stream=beta&search=low", ["slow"]), ("stream=GAMMA", []),
    ],
)  # fmt: skip
async def test_consumers_come_in_the_order_and_with_the_text_that_is_asked_for(
    server: ServerInstance, query: str, expected: list[str]
) -> None:
    assert names(server, f"/consumerz?{query}") == expected


async def test_a_row_shows_how_far_its_consumer_is(server: ServerInstance) -> None:
    rows = {row["name"]: row for row in page(server, "/consumerz")["consumers"]}
    quick = rows["quick"]
    assert (quick["stream_name"], quick["type"], quick["max_ack_pending"]) == ("beta", "pull", 5)
    assert (quick["num_pending"], quick["num_ack_pending"], quick["delivered"]["consumer_seq"]) == (5, 3, 4)
    assert quick["delivered"]["last_active"] and quick["ack_floor"]["last_active"]
    assert rows["bound"]["type"] == "push"
    assert not rows["bound"].get("push_bound")
    assert "last_active" not in rows["slow"]["delivered"]
    assert all("config" not in row for row in rows.values())


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("/streamz?sort=size", "invalid sorting option: size"),
        ("/consumerz?sort=lag", "invalid sorting option: lag"),
        ("/streamz?order=up", "invalid order: up"),
        ("/problemz?kind=all", "invalid kind: all"),
        ("/streamz?limit=x", "Error decoding int for 'limit': strconv.Atoi: parsing \"x\": invalid syntax"),
    ],
)
async def test_options_that_mean_nothing_are_refused(server: ServerInstance, target: str, text: str) -> None:
    assert page(server, target) == (400, text)


async def test_limits_of_a_page_hold(server: ServerInstance) -> None:
    assert page(server, "/streamz?limit=1000000")["limit"] == MAX_LIMIT
    assert page(server, "/streamz?limit=-3&offset=-3") == page(server, "/streamz") | {"now": ANY}
    client = await patient_client.connect(server.url)
    await client.jetstream().add_stream(name="WIDE", subjects=[f"wide.{at}" for at in range(MAX_SUBJECTS + 5)])
    await client.close()
    row = page(server, "/streamz?search=WIDE")["streams"][0]
    assert (len(row["subjects"]), row["more_subjects"]) == (MAX_SUBJECTS, 5)


async def test_without_jetstream_the_lists_are_empty() -> None:
    async with ServerInstance(ServerOptions(host="127.0.0.1", port=-1)) as plain:
        assert (page(plain, "/streamz")["streams"], page(plain, "/consumerz")["consumers"]) == ([], [])
        assert page(plain, "/problemz")["problems"] == []


async def test_a_stream_deleted_while_the_page_is_made_is_left_out(server: ServerInstance) -> None:
    body = Monitor(server).answer(HttpRequest("GET", "/streamz?limit=4")).body
    assert not isinstance(body, bytes)
    text, client = b"", await patient_client.connect(server.url)
    while b'"ALPHA"' not in text:
        text += next(body)
    assert b'"GAMMA"' not in text
    await client.jetstream().delete_stream("GAMMA")
    await client.close()
    text += b"".join(body)
    assert [row["name"] for row in json.loads(text)["streams"]] == ["ALPHA", "beta", "delta"]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", ["name", "messages"])
@pytest.mark.parametrize("offset", [0, 700, 1490, 2000])
def test_slices_choose_what_one_sort_would(sort: str, descending: bool, offset: int) -> None:
    every = [
        ListEntry(f"{at * 7919 % 1500:04d}" if sort == "name" else at % 7, f"{at:04d}", "", "", at)
        for at in range(1500)
    ]
    page = Paging(sort=sort, descending=descending, offset=offset, limit=25)
    steps, slices = choosing((one if at % 3 else None for at, one in enumerate(every)), page), 0
    while True:
        try:
            next(steps)
            slices += 1
        except StopIteration as ended:
            chosen = ended.value
            break
    kept = [one for at, one in enumerate(every) if at % 3]
    if sort == "name":
        kept.sort(key=lambda one: one.place, reverse=descending)
    else:
        kept.sort(key=lambda one: (-int(one.place) if descending else one.place, one.name))
    assert chosen.rows == [one.found for one in kept][offset : offset + 25]
    assert chosen.total == len(kept)
    assert slices >= 1500 // SLICE
