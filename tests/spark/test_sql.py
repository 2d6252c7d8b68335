"""Queries on Spark: what the server answers is what Spark would, and a view always sees what is there now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from nats.js.api import StreamConfig

from natsctl.api.errors import NotFoundError
from natsctl.cli.framework.resolve import did_you_mean
from natsctl.spark.counted_queries import Facts, counted
from natsctl.spark.sql_queries import Queries
from natsctl.spark.sql_tables import Catalogue
from natsctl.testing.process import ServerProcess
from tests.support import patient_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBJECTS = ("my.a", "my.b", "my.a", "my.é", "my.a", "my.b")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("sql") / "server") as process:
        asyncio.run(fill(process.url))
        yield process


async def fill(url: str) -> None:
    """A stream of six messages without the third, one that grows, and a bucket with a key put twice and deleted."""
    connection = await patient_client.connect(url)
    stream = connection.jetstream()
    await stream.add_stream(StreamConfig(name="my-stream", subjects=["my.>"]))
    for subject in SUBJECTS:
        await stream.publish(subject, b"value")
    await stream.delete_msg("my-stream", 3)
    await stream.add_stream(StreamConfig(name="growing", subjects=["grow"]))
    for _ in range(2):
        await stream.publish("grow", b"value")
    await stream.add_stream(StreamConfig(name="payments", subjects=["pay"]))
    for number in (1, 2):
        await stream.publish("pay", b'{"id": %d, "total": %d.5}' % (number, number))
    bucket = await stream.create_key_value(bucket="config", history=5)
    await bucket.put("a.b", b"1")
    await bucket.put("a.b", b"2")
    await bucket.delete("a.b")
    await connection.close()


async def publish(url: str) -> None:
    connection = await patient_client.connect(url)
    await connection.jetstream().publish("grow", b"later")
    await connection.close()


@pytest.fixture
def queries(spark: SparkSession, running: ServerProcess) -> Queries:
    def locate(stream: str) -> dict[str, str]:
        return {"servers": running.url, "stream": stream, "failOnDataLoss": "false"}

    return Queries(spark, Catalogue(["my-stream", "growing", "KV_config"]), locate, did_you_mean)


def test_what_the_server_counts_is_what_spark_counts(queries: Queries) -> None:
    facts = Facts(5, 1, 6, {"my.a": 2, "my.b": 2, "my.é": 1})
    for query in (
        "select count(*), count(1) n, COUNT(seq), min(seq), max(seq), count(distinct subject) from my-stream",
        "select subject, count(*) from my-stream group by 1 order by 1 desc",
    ):
        plan = counted(query)
        assert plan is not None
        found = queries.run(query)
        assert (list(found.columns), list(found.rows)) == (plan.columns, plan.answer(facts))
        assert found.numbers == plan.numbers


def test_a_view_is_of_what_is_there_when_it_is_asked(queries: Queries, running: ServerProcess) -> None:
    query = "select count(subject) n, max(length(value)) from growing where seq > 1"
    before = queries.run(query).rows[0][0]
    asyncio.run(publish(running.url))
    assert queries.run(query).rows == [(before + 1, 5)]
    assert queries.run("select subject from growing order by seq", limit=2).more
    found = queries.run("select key, revision, operation, cast(value as string) v from config order by revision")
    assert list(found.rows) == [("a.b", 1, "PUT", "1"), ("a.b", 2, "PUT", "2"), ("a.b", 3, "DEL", "")]
    assert queries.run("select sum(messages) from my-stream$subjects where subject != 'my.é'").rows == [(4,)]


def test_filters_reach_the_server_and_mistakes_are_told_with_what_may_be_meant(queries: Queries) -> None:
    from pyspark.errors import AnalysisException

    plan = queries.explain("select seq from my-stream where seq > 2 and subject = 'my.a'")
    assert "GreaterThan(seq,2)" in plan
    assert "ReadSchema: struct<seq:bigint,subject:string>" in plan
    with pytest.raises(NotFoundError) as missing:
        queries.run("select 1 from my-steam s")
    assert missing.value.hint.startswith('did you mean "my-stream"')
    with pytest.raises(AnalysisException, match="subject"):
        queries.run("select subjekt from my-stream")


def test_json_values_of_tables_are_structs_and_filters_still_reach_the_server(
    spark: SparkSession, running: ServerProcess
) -> None:
    def locate(stream: str) -> dict[str, str]:
        return {"servers": running.url, "stream": stream}

    schemas = {"payments": "id bigint, total double", "config": "n int"}
    queries = Queries(spark, Catalogue(["payments", "KV_config"]), locate, did_you_mean, schemas=schemas)
    assert queries.run("select value.total, seq from PAYMENTS where seq > 1 and value.id = 2").rows == [(2.5, 2)]
    assert "GreaterThan(seq,1)" in queries.explain("select value.total from payments where seq > 1 and value.id = 2")
    assert queries.run("select count(value.n) from config").rows == [(0,)]
    assert queries.run("select max(seq) from payments where seq < 9").rows == [(2,)]


def test_each_look_at_a_table_has_its_own_filters(queries: Queries) -> None:
    found = queries.run("select seq from my-stream where seq = 1 union all select seq from my-stream where seq = 2")
    assert sorted(found.rows) == [(1,), (2,)]
    assert queries.run("select seq from my-stream where seq = 2").rows == [(2,)]
    assert queries.run("select min(length(subject)), min(seq) from my-stream where seq % 2 = 1 or seq = 4").rows == [
        (4, 1)
    ]
    text = "create or replace temp view own as select * from my-stream; select 1 from my-stream where seq = 2; "
    assert queries.run(text + "select min(seq), max(length(value)) from own").rows == [(1, 5)]


def test_what_is_cached_stays_as_it_was_read(queries: Queries, running: ServerProcess) -> None:
    query = "select count(subject) from growing where seq > 0"
    before = queries.run(query).rows
    queries.run("cache table few as select seq from growing")
    asyncio.run(publish(running.url))
    assert queries.run("select count(seq) from few").rows == before
    queries.run("uncache table few")
    assert queries.run(query).rows == [(before[0][0] + 1,)]
