"""A batch: what streams hold at the moment when the query is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from natsctl.spark.source.columns.rows import RowShape
from natsctl.spark.source.connection.api import JetStreamApi
from natsctl.spark.source.connection.asking import Asking
from natsctl.spark.source.connection.settings import ServerSettings
from natsctl.spark.source.reading.part import StreamPart
from natsctl.spark.source.reading.planning import batch_stretches, parts
from natsctl.spark.source.reading.pushdown import Wanted, push
from natsctl.spark.source.reading.reading import Reading
from natsctl.spark.source.reading.task import read_part
from natsctl.spark.source.spark_api import Filter


class JetStreamBatchReader(DataSourceReader):
    """Plans a batch on the driver and reads its parts in tasks."""

    def __init__(self, settings: ServerSettings, reading: Reading, shape: RowShape) -> None:
        self._settings = settings
        self._reading = reading
        self._shape = shape
        self._wanted = Wanted(subjects=reading.filters or None)

    def partitions(self) -> list[InputPartition]:
        """Return the parts; none where nothing is to be read."""
        asking = Asking(self._settings)
        try:
            return asking(self._plan)
        finally:
            asking.close()

    def _plan(self, api: JetStreamApi) -> list[InputPartition]:
        stretches = batch_stretches(api, self._reading, self._wanted)
        return [*parts(api, stretches, self._reading, self._wanted.subjects or ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part; Spark makes up one of its own where there are none, and it has no rows."""
        if isinstance(partition, StreamPart):
            yield from read_part(self._settings, partition, self._reading.limits, self._shape)


class JetStreamPushdownReader(JetStreamBatchReader):
    """The same with WHERE done by the server, as far as it can.

    A class of its own because Spark refuses any reader that has `pushFilters` while
    `spark.sql.python.filterPushdown.enabled` is false.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters over, and return those that Spark has to look at as well."""
        self._wanted, left = push(filters, self._wanted)
        return left
