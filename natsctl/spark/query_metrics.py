"""Metrics of streaming queries that read streams, as a listener of Spark's sees them.

Sources in Python cannot fill `metrics` in a query's progress, as Spark's Kafka source does. This source puts its
metrics into `latestOffset` instead, under the same names; a listener finds and forwards them:

    spark.streams.addListener(QueryMetrics(print))

`exposition` has the newest of all queries in the text format of Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

_GAUGES: Final = {
    "avgOffsetsBehindLatest": "natsctl_spark_offsets_behind_latest_avg",
    "maxOffsetsBehindLatest": "natsctl_spark_offsets_behind_latest_max",
    "minOffsetsBehindLatest": "natsctl_spark_offsets_behind_latest_min",
}


@dataclass(frozen=True)
class SourceMetrics:
    """One source of a query after one of its batches."""

    query: str
    """The query's name, else its id."""
    batch: int
    streams: Mapping[str, int]
    """The query's lag in messages, by stream."""
    metrics: Mapping[str, float]
    """`avgOffsetsBehindLatest`, `maxOffsetsBehindLatest`, `minOffsetsBehindLatest`, in messages."""
    input_rows: int
    input_rows_per_s: float
    processed_rows_per_s: float
    redelivered: int = 0
    """With `ackMode`, the number of messages delivered to the query that had been delivered before."""


@dataclass
class QueryMetrics(StreamingQueryListener):
    """A listener that passes on the metrics of each batch, and keeps the newest of each query."""

    report: Callable[[SourceMetrics], object] = lambda each: None
    _newest: dict[tuple[str, int], SourceMetrics] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there are no metrics yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Keep the metrics of the batch, and pass them on."""
        query = str(event.progress.name or event.progress.id)
        for index, source_metric in enumerate(source_metrics(event.progress)):
            with self._lock:
                self._newest[query, index] = source_metric
            self.report(source_metric)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the metrics of the last batch still hold."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the lag at the end of a query is worth knowing."""

    def exposition(self) -> str:
        """Return the newest metrics of all queries in the text format of Prometheus."""
        with self._lock:
            newest = list(self._newest.values())
        lines = []
        for name, gauge in _GAUGES.items():
            lines.append(f"# TYPE {gauge} gauge")
            lines += [_line(gauge, {"query": each.query}, each.metrics[name]) for each in newest]
        lines.append("# TYPE natsctl_spark_messages_behind gauge")
        for each in newest:
            labels = ({"query": each.query, "stream": stream} for stream in each.streams)
            lines += [_line("natsctl_spark_messages_behind", label, each.streams[label["stream"]]) for label in labels]
        lines.append("# TYPE natsctl_spark_redelivered_messages_total counter")
        name = "natsctl_spark_redelivered_messages_total"
        lines += [_line(name, {"query": each.query}, each.redelivered) for each in newest]
        return "\n".join(lines) + "\n"


def source_metrics(progress: StreamingQueryProgress) -> list[SourceMetrics]:
    """Return the metrics of a query's sources, without sources of other formats."""
    said: dict[str, Any] = json.loads(progress.json)
    found = []
    for source in said["sources"]:
        latest, end = _object(source.get("latestOffset")), _object(source.get("endOffset"))
        if not latest.get("metrics"):
            continue
        followed = latest.get("streams") or {}
        behind = {name: each["behind"]["messages"] for name, each in followed.items() if "behind" in each}
        acked = latest.get("acked") or {}
        behind |= dict.fromkeys(acked, (latest.get("consumer") or {}).get("num_pending", 0))
        found.append(
            SourceMetrics(
                query=str(said.get("name") or said["id"]),
                batch=int(said["batchId"]),
                streams=behind,
                metrics=latest["metrics"],
                input_rows=int(source.get("numInputRows") or 0),
                input_rows_per_s=float(source.get("inputRowsPerSecond") or 0),
                processed_rows_per_s=float(source.get("processedRowsPerSecond") or 0),
                redelivered=sum(int(each["again"]) for each in (end.get("acked") or {}).values()),
            )
        )
    return found


def _object(said: Any) -> dict[str, Any]:
    """Return an offset as an object; an empty one for an offset of another source (any text)."""
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except ValueError:
            return {}
    return said if isinstance(said, dict) else {}


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    text = ",".join(f'{label}="{each.translate(escapes)}"' for label, each in labels.items())
    return f"{name}{{{text}}} {value:g}"
