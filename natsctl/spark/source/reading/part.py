"""The part of a stream that one task reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from natsctl.spark.source.fetch.ranges import ReadRange


@dataclass(frozen=True)
class StreamPart(InputPartition):
    """A range of one stream, and how many messages there were in it when it was planned (None: not known)."""

    todo: ReadRange
    created: str
    expected: int | None
    fail: bool
