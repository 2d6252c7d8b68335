"""What a listener makes of a query's progress; that Spark reports it is tested in test_reading.py."""

import json
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from natsctl.spark.query_metrics import QueryMetrics, source_metrics
from natsctl.spark.source.stream_reader import lag_metrics


def progress(*sources: dict[str, Any], name: str | None = "orders") -> StreamingQueryProgress:
    rates = {"numInputRows": 5, "inputRowsPerSecond": 2.5, "processedRowsPerSecond": 10.0}
    said = {"id": "abc", "name": name, "batchId": 7, "sources": [{**rates, **each} for each in sources]}
    return cast(StreamingQueryProgress, SimpleNamespace(id="abc", name=name, json=json.dumps(said)))


def followed(**behind: int) -> dict[str, Any]:
    streams = {name: {"seq": 1, "behind": {"messages": number}} for name, number in behind.items()}
    return {"latestOffset": {"streams": streams, "metrics": lag_metrics(list(behind.values()))}}


ACKED = {
    "endOffset": {"acked": {"WORK": {"taken": 9, "again": 4}}},
    "latestOffset": json.dumps(
        {"acked": {"WORK": {}}, "consumer": {"num_pending": 12}, "metrics": lag_metrics([12])}
    ),
}  # fmt: skip


def test_metrics_are_those_of_the_kafka_source_by_name() -> None:
    (found,) = source_metrics(progress(followed(ORDERS=10, BILLS=40)))
    assert found.metrics == {"avgOffsetsBehindLatest": 25, "maxOffsetsBehindLatest": 40, "minOffsetsBehindLatest": 10}
    assert (found.query, found.batch, found.input_rows, found.processed_rows_per_s) == ("orders", 7, 5, 10.0)
    assert found.streams == {"ORDERS": 10, "BILLS": 40}
    rate = {"latestOffset": "17", "endOffset": "17"}
    others = source_metrics(progress(rate, ACKED, {"latestOffset": None}, {"latestOffset": "no JSON"}))
    assert [(each.streams, each.redelivered) for each in others] == [({"WORK": 12}, 4)]


def test_the_newest_of_each_query_is_what_prometheus_reads() -> None:
    handed: list[object] = []
    listener = QueryMetrics(handed.append)
    for lag in (30, 20):
        event = SimpleNamespace(progress=progress(followed(ORDERS=lag), name='a"b'))
        listener.onQueryProgress(cast(QueryProgressEvent, event))
    listener.onQueryProgress(cast(QueryProgressEvent, SimpleNamespace(progress=progress(ACKED, name=None))))
    assert len(handed) == 3
    lines = listener.exposition().splitlines()
    assert r'natsctl_spark_offsets_behind_latest_max{query="a\"b"} 20' in lines
    assert r'natsctl_spark_messages_behind{query="a\"b",stream="ORDERS"} 20' in lines
    assert 'natsctl_spark_redelivered_messages_total{query="abc"} 4' in lines
    assert sum(line.startswith("# TYPE") for line in lines) == 5
