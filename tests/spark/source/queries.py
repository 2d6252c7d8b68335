"""A streaming query's calls, made as Spark makes them: batches one after another, offsets as JSON in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from natsctl.spark.source.data_source import JetStreamDataSource

Offset = dict[str, Any]


class ReaderQuery:
    """One run of a query; it ends with the test that uses the fixture `closed`."""

    running: ClassVar[list[ReaderQuery]] = []

    def __init__(self, url: str, **options: str) -> None:
        given = {"servers": url, "stream": "ORDERS", **options}
        source = JetStreamDataSource({name: value for name, value in given.items() if value})
        self.reader = source.streamReader(source.schema())
        self.running.append(self)

    def begin(self) -> Offset:
        return stored(self.reader.initialOffset())

    def next(self, start: Offset) -> Offset:
        return stored(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))

    def rows(self, start: Offset, end: Offset) -> list[dict[str, Any]]:
        parts = self.reader.partitions(start, end)
        return [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]

    def seqs(self, start: Offset, end: Offset) -> list[int]:
        return [row["seq"] for row in self.rows(start, end)]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while ReaderQuery.running:
        ReaderQuery.running.pop().reader.stop()


def stored(offset: Offset) -> Offset:
    """An offset as it comes back from a checkpoint."""
    return dict(json.loads(json.dumps(offset)))
