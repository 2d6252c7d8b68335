"""Streams that change while a query reads or writes them: expiry, subjects, fields, schedules, TTLs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from natsctl.spark import json_table
from tests.spark.source.streams import add, delete, make, messages, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from natsctl.spark.source.jetstream_api import JetStreamApi

QUERY_TIMEOUT_S = 200
SECOND_NS = 1_000_000_000
LOST = "JETSTREAM_DATA_LOSS"

pytestmark = pytest.mark.both


class Job:
    """Streaming queries on one checkpoint; each run reads what is there and ends."""

    def __init__(self, spark: SparkSession, api: JetStreamApi, folder: Path) -> None:
        self.spark, self.api, self.folder = spark, api, folder
        self.url = api.link.settings.urls[0]
        self.rows: list[Any] = []

    def source(self, stream: str = "ORDERS", **options: str) -> DataFrame:
        reader = self.spark.readStream.format("jetstream").options(servers=self.url, startingOffsets="earliest")
        return reader.options(**options).load(stream)

    def run(self, frame: DataFrame, between: Callable[[int], object] = lambda number: None) -> StreamingQuery:
        """Collect all rows; `between` is called in each batch, after its rows were read."""

        def batch(found: DataFrame, number: int) -> None:
            self.rows += found.collect()
            between(number)

        writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(self.folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        return query

    def write(self, frame: DataFrame, stream: str, **options: str) -> StreamingQuery:
        writer = frame.writeStream.format("jetstream").options(servers=self.url, **options)
        query = writer.option("checkpointLocation", str(self.folder / "out")).trigger(availableNow=True).start(stream)
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        return query


@pytest.fixture
def job(spark: SparkSession, api: JetStreamApi, tmp_path: Path) -> Job:
    return Job(spark, api, tmp_path)


def update(api: JetStreamApi, stream: str, **config: Any) -> None:
    now = api.stream_info(stream)["config"]
    api.ask(f"STREAM.UPDATE.{stream}", {**now, **config})


def publish(api: JetStreamApi, stream: str, subject: str, body: bytes, **headers: str) -> None:
    last = api.stream_info(stream)["state"]["last_seq"]
    head = (
        "NATS/1.0\r\n" + "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    )
    api.link.send(
        b"HPUB %s %d %d\r\n%s%s\r\n" % (subject.encode(), len(head), len(head) + len(body), head.encode(), body)
    )
    until(lambda: bool(api.stream_info(stream)["state"]["last_seq"] > last))


def test_messages_that_expire_during_a_query_are_a_loss_or_are_passed_over(job: Job) -> None:
    api = job.api
    make(api, number=30, duplicate_window=SECOND_NS)

    def expire(number: int) -> None:
        if number == 0:
            update(api, "ORDERS", max_age=SECOND_NS)
            until(lambda: api.stream_info("ORDERS")["state"]["messages"] == 0)
            update(api, "ORDERS", max_age=0)
            add(api, "ORDERS", 5)

    limited = {"maxOffsetsPerTrigger": "10"}
    with pytest.raises(Exception, match=LOST) as failure:
        job.run(job.source(**limited), expire)
    assert "11..30" in str(failure.value)
    assert [row.seq for row in job.rows] == list(range(1, 11))
    job.run(job.source(**limited, failOnDataLoss="false"))
    assert sorted(row.seq for row in job.rows) == [*range(1, 11), *range(31, 36)]


def test_a_query_and_a_write_go_on_when_the_subjects_of_a_stream_change(job: Job) -> None:
    api = job.api
    make(api, number=8)
    make(api, "SINK", number=0)
    copies = job.source(maxOffsetsPerTrigger="4", subject="ORDERS.>,OTHER.>").selectExpr(
        "concat(if(seq <= 8, 'SINK.', 'RENAMED.'), seq) AS subject", "value", "concat('ORDERS:', seq) AS msgId"
    )
    job.write(copies, "SINK")
    update(api, "ORDERS", subjects=["OTHER.>"])
    update(api, "SINK", subjects=["RENAMED.>"])
    for number in range(6):
        publish(api, "ORDERS", f"OTHER.{number}", b"new")
    job.write(copies, "SINK")
    assert [subject for subject, _, _ in messages(api, "SINK")] == [
        *(f"SINK.{seq}" for seq in range(1, 9)), *(f"RENAMED.{seq}" for seq in range(9, 15)),
    ]  # fmt: skip
    job.run(job.source())
    assert {row.subject.split(".")[0] for row in job.rows} == {"ORDERS", "OTHER"}
    assert sorted(row.seq for row in job.rows) == list(range(1, 15))


def test_a_schema_may_gain_a_field_and_a_column_between_two_runs_of_a_query(job: Job) -> None:
    api = job.api
    make(api, number=0)
    add(api, "ORDERS", 2, b'{"id": 1, "total": 2.5, "country": "PL"}')

    def table(schema: str, *columns: str) -> DataFrame:
        options = {"servers": job.url, "startingOffsets": "earliest"}
        return json_table(job.spark, "ORDERS", schema, streaming=True, columns=columns, **options)

    def run(frame: DataFrame) -> None:
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(job.folder / "checkpoint"))
        assert writer.trigger(availableNow=True).start(str(job.folder / "out")).awaitTermination(QUERY_TIMEOUT_S)

    run(table("id bigint, total double", "seq", "value").select("seq", "value.*"))
    publish(api, "ORDERS", "ORDERS.1", b'{"id": 3, "country": "DE", "later": true}', Color="red")
    run(table("id bigint, total double, country string", "seq", "headers", "value").select("seq", "value.*", "headers"))
    rows = job.spark.read.option("mergeSchema", "true").parquet(str(job.folder / "out")).orderBy("seq").collect()
    assert [(row.seq, row.id, row.total, row.country) for row in rows] == [
        (1, 1, 2.5, None), (2, 1, 2.5, None), (3, 3, None, "DE"),
    ]  # fmt: skip
    assert [pair.key for pair in rows[2].headers] == ["Color"]


def test_a_schedule_that_spark_writes_fires_and_a_query_reads_what_it_made(job: Job) -> None:
    api = job.api
    make(api, number=0, allow_msg_schedules=True)
    moment = datetime.now(UTC) + timedelta(seconds=2)
    schedule = f"@at {moment:%Y-%m-%dT%H:%M:%SZ}"
    rows = [
        ("ORDERS.plan", [("Nats-Schedule", schedule.encode()), ("Nats-Schedule-Target", b"ORDERS.due")], b"pay"),
        ("ORDERS.1", [], b"plain"),
    ]
    kinds = "subject string, headers array<struct<key: string, value: binary>>, value binary"
    frame = job.spark.createDataFrame(rows, kinds).coalesce(1)
    frame.write.format("jetstream").option("servers", job.url).mode("append").save("ORDERS")
    job.run(job.source())
    assert {row.subject for row in job.rows} >= {"ORDERS.1"}
    until(lambda: "ORDERS.due" in api.stream_info("ORDERS", subjects_filter=">")["state"].get("subjects", {}))
    job.run(job.source())
    fired = [row for row in job.rows if row.subject == "ORDERS.due"]
    assert [bytes(row.value) for row in fired] == [b"pay"]
    assert len({row.seq for row in job.rows}) == len(job.rows)


def test_messages_that_spark_writes_with_a_ttl_expire_and_are_no_loss(job: Job) -> None:
    api = job.api
    make(api, number=4, allow_msg_ttl=True)
    make(api, "PLAIN", number=0)
    job.run(job.source())
    assert [row.seq for row in job.rows] == [1, 2, 3, 4]
    frame = job.spark.range(40).coalesce(1).selectExpr(
        "'ORDERS.1' AS subject", "string(id) AS value",
        "if(id % 2 = 0, array(struct('Nats-TTL' AS key, binary('1s') AS value)), array()) AS headers",
    )  # fmt: skip
    frame.write.format("jetstream").option("servers", job.url).mode("append").save("ORDERS")
    delete(api, 1, 2, 3, 4)  # so that the stream begins after an expired message that was not read
    until(lambda: api.stream_info("ORDERS")["state"]["messages"] == 20)
    assert api.stream_info("ORDERS")["state"]["first_seq"] == 6
    job.run(job.source(maxOffsetsPerTrigger="10"))
    assert [int(row.value) for row in job.rows[4:]] == list(range(1, 40, 2))
    with pytest.raises(Exception, match=r"(?i)ttl"):
        frame.selectExpr("'PLAIN.1' AS subject", "value", "headers").write.format("jetstream").option(
            "servers", job.url
        ).mode("append").save("PLAIN")
