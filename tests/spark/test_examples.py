"""The examples of examples/spark do on small data what they say; they run as a person runs them, session and all."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.util
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import nats
import nats.errors

from natsctl.spark.source.connection.api import JetStreamApi
from natsctl.spark.source.connection.link import Link
from natsctl.spark.source.connection.settings import ServerSettings
from natsctl.testing.process import ServerProcess
from tests.spark.source.streams import REACHED_WITHIN_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[2] / "examples" / "spark"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("examples") / "server") as process:
        yield process


@pytest.fixture
def api(running: ServerProcess) -> Iterator[JetStreamApi]:
    settings = ServerSettings(urls=(running.url,))
    with Link.open(settings) as link:
        api = JetStreamApi(link, settings)
        for name in api.stream_names():
            api.ask(f"STREAM.DELETE.{name}")
        yield api


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stream(api: JetStreamApi, name: str, **config: Any) -> None:
    api.ask(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})


def publish(api: JetStreamApi, subject: str, body: str) -> int:
    """The sequence that the message got."""
    return int(json.loads(api.link.request(subject, body.encode()).body)["seq"])


def stored(api: JetStreamApi, name: str) -> list[tuple[str, str]]:
    """Subject and body of every message of a stream, in its order."""
    last = api.stream_info(name)["state"]["last_seq"]
    found = [api.ask(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"] for seq in range(1, last + 1)]
    return [(each["subject"], base64.b64decode(each.get("data", "")).decode()) for each in found]


def test_orders_become_parquet_by_day_and_come_back_once_and_in_order(
    spark: SparkSession, api: JetStreamApi, running: ServerProcess, tmp_path: Path
) -> None:
    stream(api, "ORDERS")
    stream(api, "ORDERS_COPY")
    for number in range(40):
        publish(api, f"ORDERS.eu.{number % 3}", f"order {number}")
    module, folder = example("orders_to_parquet"), str(tmp_path / "orders")
    module.to_parquet(spark, folder, servers=running.url)
    assert len([*Path(folder).glob("day=*")]) in (1, 2)
    for _ in range(2):
        module.from_parquet(spark, folder, servers=running.url)
    original = [(f"ORDERS_COPY.{subject.partition('.')[2]}", body) for subject, body in stored(api, "ORDERS")]
    copied = stored(api, "ORDERS_COPY")
    assert sorted(copied) == sorted(original)
    for subject in {subject for subject, _ in original}:
        assert [body for name, body in copied if name == subject] == [b for name, b in original if name == subject]


def test_totals_are_published_once_however_often_the_query_is_killed(
    spark: SparkSession, api: JetStreamApi, running: ServerProcess, tmp_path: Path
) -> None:
    stream(api, "ORDERS")
    stream(api, "TOTALS")
    orders = (("ann", 10.5, "10:00:05"), ("bob", 1.0, "10:00:59"), ("ann", 2.0, "10:00:30"), ("ann", 7.0, "10:02:30"))
    publish(api, "ORDERS.new", "no JSON")
    for customer, amount, at in orders:
        publish(api, "ORDERS.new", json.dumps({"customer": customer, "amount": amount, "at": f"2026-11-21T{at}Z"}))
    module, checkpoint = example("totals_by_customer"), tmp_path / "checkpoint"
    module.start(spark, str(checkpoint), servers=running.url).awaitTermination()
    ann = ("TOTALS.ann", '{"minute":"2026-11-21T10:00","orders":2,"amount":12.5}')
    bob = ("TOTALS.bob", '{"minute":"2026-11-21T10:00","orders":1,"amount":1.0}')
    assert sorted(stored(api, "TOTALS")) == [ann, bob]

    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()  # as if it was killed when all was published and nothing noted
    (commits / f".{last}.crc").unlink()
    publish(api, "ORDERS.new", json.dumps({"customer": "ann", "amount": 1.0, "at": "2026-11-21T10:04:00Z"}))
    module.start(spark, str(checkpoint), servers=running.url).awaitTermination()
    later = ("TOTALS.ann", '{"minute":"2026-11-21T10:02","orders":1,"amount":7.0}')
    assert sorted(stored(api, "TOTALS")) == sorted([ann, bob, later])


def test_dead_letters_are_told_with_what_they_hold(
    spark: SparkSession, api: JetStreamApi, running: ServerProcess
) -> None:
    stream(api, "ORDERS")
    advisories = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>"
    api.ask("STREAM.CREATE.DEAD", {"name": "DEAD", "subjects": [advisories]})
    for number in range(3):
        publish(api, "ORDERS.new", f"order {number}")
    give_up(api, "ORDERS", 3)
    api.ask("STREAM.MSG.DELETE.ORDERS", {"seq": 2})
    letters = example("dead_letters").dead_letters(spark, servers=running.url)
    found = [(row.seq, row.deliveries, row.consumers, row.subject, row.value) for row in letters.collect()]
    assert found == [
        (1, 1, ["IMPATIENT"], "ORDERS.new", "order 0"),
        (2, 1, ["IMPATIENT"], None, None),
        (3, 1, ["IMPATIENT"], "ORDERS.new", "order 2"),
    ]


def give_up(api: JetStreamApi, name: str, number: int) -> None:
    """Have a consumer fetch so many messages, acknowledge none, and the server tell that it gives them up."""
    config = {"durable_name": "IMPATIENT", "ack_policy": "explicit", "max_deliver": 1, "ack_wait": 200_000_000}
    api.create_consumer(name, "IMPATIENT", config)

    async def fetch_until_told() -> None:
        client = await nats.connect(api.link.settings.urls[0])
        try:
            consumer = await client.jetstream().pull_subscribe_bind("IMPATIENT", name)
            fetched = 0
            while fetched < number:
                fetched += len(await consumer.fetch(number - fetched, timeout=10))
            deadline = time.monotonic() + REACHED_WITHIN_S
            while api.stream_info("DEAD")["state"]["messages"] < number:
                assert time.monotonic() < deadline
                with contextlib.suppress(nats.errors.TimeoutError):
                    await consumer.fetch(1, timeout=0.3)
        finally:
            await client.close()

    asyncio.run(fetch_until_told())
