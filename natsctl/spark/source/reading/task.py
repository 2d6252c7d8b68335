"""Reading a part in its task, and making sure afterwards that nothing was missed."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from natsctl.spark.source.columns.rows import RowShape
from natsctl.spark.source.connection.asking import Asking
from natsctl.spark.source.connection.settings import ServerSettings
from natsctl.spark.source.fetch import read_range
from natsctl.spark.source.fetch.ranges import FetchLimits
from natsctl.spark.source.reading.loss import StreamState, check_planned, check_read, stream_state
from natsctl.spark.source.reading.part import StreamPart


def read_part(
    settings: ServerSettings, part: StreamPart, limits: FetchLimits, shape: RowShape
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part.

    Raises DataLossError where the stream was made again, or messages went, since it was planned.
    """

    def same(now: StreamState) -> bool:
        return check_planned(part.todo.first, part.todo.last, part.created, now, fail=part.fail)

    rows = 0
    for batch in read_range(settings, part.todo, limits, shape, lambda answer: same(stream_state(answer))):
        rows += batch.num_rows
        yield batch
    if part.expected is None or rows >= part.expected:
        return
    asking = Asking(settings)
    try:
        now = stream_state(asking(lambda api: api.stream_info(part.todo.stream)))
    finally:
        asking.close()
    if same(now):
        check_read(part.todo.first, part.todo.last, part.expected - rows, now, fail=part.fail)
