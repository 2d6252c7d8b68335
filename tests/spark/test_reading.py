"""Reading streams with real Spark: what only Spark itself can show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from natsctl.spark.source.jetstream_api import JetStreamApi

from natsctl.spark import json_table
from natsctl.spark.query_metrics import QueryMetrics, SourceMetrics
from tests.spark.source.streams import add, make, until

QUERY_TIMEOUT_S = 200
SECRET = "hunter2"


class Streams:
    def __init__(self, spark: SparkSession, api: JetStreamApi) -> None:
        self.spark = spark
        self.url = api.link.settings.urls[0]

    def table(self, stream: str = "ORDERS", schema: str = "", **options: str) -> DataFrame:
        reader = self.spark.read.format("jetstream").options(servers=self.url, **options)
        return (reader.schema(schema) if schema else reader).load(stream)

    def growing(self, names: str = "ORDERS", **options: str) -> DataFrame:
        given = {"servers": self.url, "startingOffsets": "earliest", **options}
        return self.spark.readStream.format("jetstream").options(**given).load(names)


@pytest.fixture
def streams(spark: SparkSession, api: JetStreamApi) -> Streams:
    return Streams(spark, api)


def test_sql_sees_a_stream_through_a_view_and_a_schema_prunes_columns(streams: Streams, api: JetStreamApi) -> None:
    make(api, number=8)
    sql = streams.spark.sql
    sql(f"CREATE OR REPLACE TEMPORARY VIEW ORDERS USING jetstream OPTIONS (servers '{streams.url}', stream 'ORDERS')")
    counts = sql("SELECT subject, count(*) AS n FROM ORDERS GROUP BY subject ORDER BY subject").collect()
    assert [(row.subject, row.n) for row in counts] == [(f"ORDERS.{at}", 2) for at in range(4)]
    assert tuple(streams.table(schema="subject string, seq bigint").limit(1).collect()[0]) == ("ORDERS.0", 1)
    subjects = streams.table("ORDERS$subjects").orderBy("subject").collect()
    assert [row.messages for row in subjects] == [2, 2, 2, 2]


def test_where_gives_the_same_with_and_without_pushdown(streams: Streams, api: JetStreamApi) -> None:
    make(api, number=40)
    moment = api.ask("STREAM.MSG.GET.ORDERS", {"seq": 1})["message"]["time"]
    where = f"seq > 4 AND seq <= 20 AND subject LIKE 'ORDERS.1%' AND timestamp >= '{moment.rstrip('Z')[:26]}Z'"
    conf = streams.spark.conf
    before = conf.get("spark.sql.python.filterPushdown.enabled", "false")
    try:
        conf.set("spark.sql.python.filterPushdown.enabled", "false")
        without = streams.table().where(where)
        assert [row.seq for row in without.collect()] == [6, 10, 14, 18]
        with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
            streams.table(filterPushdown="true").collect()
        conf.set("spark.sql.python.filterPushdown.enabled", "true")
        pushed = streams.table(filterPushdown="true").where(where)
        assert [row.seq for row in pushed.collect()] == [6, 10, 14, 18]
        assert "seq" not in conditions(pushed)
        assert "seq" in conditions(without)
    finally:
        conf.set("spark.sql.python.filterPushdown.enabled", str(before))


def conditions(table: DataFrame) -> str:
    plan = table._jdf.queryExecution().executedPlan().toString()
    return " ".join(line for line in plan.splitlines() if "Filter " in line)


def test_secrets_are_in_nothing_that_spark_prints(
    streams: Streams, api: JetStreamApi, capsys: pytest.CaptureFixture[str]
) -> None:
    make(api, number=0)
    add(api, "ORDERS", 3, json.dumps({"id": 7, "total": 1.5}).encode())
    host = streams.url.removeprefix("nats://")
    secrets = {"servers": f"nats://ann:{SECRET}@{host}", "tlsKeyContent": SECRET, "credentialsContent": SECRET}
    failing = json_table(streams.spark, "ORDERS", "id bigint, total double", **secrets)
    failing.explain(True)
    shown = capsys.readouterr().out + str(failing) + str(failing.schema)
    with pytest.raises(Exception, match="no user JWT") as failure:
        failing.collect()
    assert SECRET not in shown + str(failure.value)
    with pytest.raises(Exception, match="there is no option startoffset; did you mean startingOffsets"):
        streams.table(startOffset="earliest").collect()
    with pytest.raises(Exception, match=r"json_table\(spark, 'ORDERS', 'id bigint'\)"):
        streams.table(valueFormat="json", valueSchema="id bigint").collect()


ORDER = "id bigint, total double, _corrupt_record string"


def test_json_is_parsed_in_the_plan(streams: Streams, api: JetStreamApi, tmp_path: Path) -> None:
    make(api, number=0)
    for payload in (b'{"id": 7, "total": 1.5}', b'{"id": 8, "total"', b"", b'{"id": "x", "total": 2}'):
        add(api, "ORDERS", 1, payload)
    table = json_table(streams.spark, "ORDERS", ORDER, servers=streams.url)
    values = [row.value and tuple(row.value) for row in table.orderBy("seq").collect()]
    assert values[0] == (7, 1.5, None)
    assert values[1][2] == '{"id": 8, "total"'
    assert values[2] is None
    assert values[3] == (None, 2.0, '{"id": "x", "total": 2}')
    strict = json_table(streams.spark, "ORDERS", "id bigint, total double", servers=streams.url, mode="FAILFAST")
    assert strict.where("seq = 1").select("value.*").collect() == [(7, 1.5)]
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        strict.where("seq = 2").select("value.*").collect()
    growing = json_table(
        streams.spark, "ORDERS", ORDER, streaming=True, servers=streams.url, startingOffsets="earliest"
    )
    run(growing.select("seq", "value.total"), tmp_path / "c", "parquet", tmp_path / "out")
    totals = streams.spark.read.parquet(str(tmp_path / "out")).where("total IS NOT NULL").orderBy("seq").collect()
    assert [tuple(row) for row in totals] == [(1, 1.5), (4, 2.0)]


def test_columns_of_messages_are_pruned_and_filtered_below_the_parsing_of_json(
    streams: Streams, api: JetStreamApi, capsys: pytest.CaptureFixture[str]
) -> None:
    make(api, number=0)
    add(api, "ORDERS", 3, b'{"id": 7, "total": 1.5}')
    table = json_table(
        streams.spark, "ORDERS", ORDER, columns=("seq", "value"), servers=streams.url, filterPushdown="true"
    )
    few = table.where("seq > 2 AND value.total > 1").select("seq", "value.id")
    few.explain("formatted")
    plan = capsys.readouterr().out
    assert [tuple(row) for row in few.collect()] == [(3, 7)]
    assert "GreaterThan(seq,2)" in plan
    assert "ReadSchema: struct<seq:bigint,value:binary>" in plan
    bare = json_table(streams.spark, "ORDERS", ORDER, columns=("seq",), servers=streams.url)
    assert bare.columns == ["seq"]


# -- streaming


def run(table: DataFrame, checkpoint: Path, sink: str = "noop", path: Path | None = None) -> StreamingQuery:
    writer = table.writeStream.format(sink).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start(str(path)) if path else writer.start()
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    return query


def test_a_query_with_a_wrong_option_shows_the_reason(streams: Streams, api: JetStreamApi, tmp_path: Path) -> None:
    make(api, number=1)
    for options, text in (
        ({"endingOffsets": "latest"}, "option endingOffsets is for a batch read, and this is a streaming read"),
        ({"commitConsumer": "A", "ackMode": "explicit", "consumer": "B"}, "startingOffsets has no effect with ackMode"),
    ):
        with pytest.raises(Exception, match=text) as failure:
            run(streams.growing(**options), tmp_path / text)
        assert "UnboundLocalError" not in str(failure.value)


def read_by(query: StreamingQuery) -> int:
    return sum(int(each["numInputRows"]) for each in progress(query))


def progress(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(each.json) for each in query.recentProgress]


@pytest.mark.both
def test_a_query_reads_in_batches_and_goes_on_from_its_checkpoint(
    streams: Streams, api: JetStreamApi, tmp_path: Path
) -> None:
    make(api)
    seen: list[SourceMetrics] = []
    listener = QueryMetrics(seen.append)
    streams.spark.streams.addListener(listener)
    first = run(streams.growing(maxOffsetsPerTrigger="40"), tmp_path / "c", "parquet", tmp_path / "out")
    until(lambda: [each.metrics["maxOffsetsBehindLatest"] for each in seen[:3]] == [60, 20, 0])
    streams.spark.streams.removeListener(listener)
    assert seen[0].streams == {"ORDERS": 60}
    assert f'natsctl_spark_offsets_behind_latest_avg{{query="{first.id}"}} 0' in listener.exposition()
    batches = [each for each in progress(first) if each["numInputRows"]]
    assert [each["numInputRows"] for each in batches] == [40, 40, 20]
    ends = batches[0]["sources"][0]
    assert ends["endOffset"]["streams"]["ORDERS"]["seq"] == 40
    assert ends["latestOffset"]["streams"]["ORDERS"]["behind"]["messages"] == 60
    add(api, "ORDERS", 10)
    assert read_by(run(streams.growing(), tmp_path / "c", "parquet", tmp_path / "out")) == 10
    rows = streams.spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row.seq for row in rows.select("seq").collect()) == list(range(1, 111))
    assert api.stream_info("ORDERS")["state"]["consumer_count"] == 0


def test_a_work_queue_is_drained_with_acknowledgements_over_a_failure(
    streams: Streams, api: JetStreamApi, tmp_path: Path
) -> None:
    make(api, number=90, retention="workqueue")
    source = streams.spark.readStream.format("jetstream").schema("seq bigint, delivered bigint")
    queue = source.options(servers=streams.url, ackMode="explicit", consumer="SPARK", createConsumer="true")
    done: list[tuple[int, int]] = []

    def batch(rows: DataFrame, number: int) -> None:
        seen = [(row.seq, row.delivered) for row in rows.collect()]
        if number == 1 and not done[40:]:
            raise ValueError("on purpose")
        assert rows.count() == len(seen)
        done.extend(seen)

    def drain() -> None:
        writer = queue.option("maxOffsetsPerTrigger", "40").load("ORDERS").writeStream.foreachBatch(batch)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination(QUERY_TIMEOUT_S)

    with pytest.raises(Exception, match="on purpose"):
        drain()
    info = api.ask("CONSUMER.INFO.ORDERS.SPARK")
    assert (info["num_ack_pending"], info["num_pending"]) == (40, 10)
    done.append((0, 0))  # the batch may pass now
    drain()
    done.remove((0, 0))
    assert sorted(seq for seq, _ in done) == list(range(1, 91))
    assert {delivered for seq, delivered in done if 40 < seq <= 80} == {2}
    assert api.stream_info("ORDERS")["state"]["messages"] == 0
