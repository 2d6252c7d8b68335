"""The data source `jetstream`.

Batch readers read the content of streams when the query is planned, or the table `<STREAM>$subjects`: the number of
messages by subject, returned by the server without a scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from natsctl.spark.source.acked_reader import JetStreamAckedReader
from natsctl.spark.source.arrays import int_array, repeated_text, text_array
from natsctl.spark.source.backups import backup_reader
from natsctl.spark.source.driver_settings import server_settings
from natsctl.spark.source.errors import JetStreamSourceError, OptionError
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import Asking, JetStreamApi
from natsctl.spark.source.option_rules import check_combination, check_order, check_subject_table
from natsctl.spark.source.planning import StreamPart, Wanted, batch_stretches, parts, push, read_part
from natsctl.spark.source.read_request import Reading, cores, durable_of, reading_of
from natsctl.spark.source.rows import RowShape, arrow_schema, default_schema, row_shape
from natsctl.spark.source.source_options import ANY_READ, BATCH_READ, STREAM_READ, Options
from natsctl.spark.source.spark_api import ARROW_STREAM_WRITES_SINCE, FILTERS_SINCE, LIMITS_SINCE, RELEASE
from natsctl.spark.source.stream_reader import Follower, JetStreamStreamReader, RefusedStreamReader, admission_of
from natsctl.spark.source.writers import JetStreamBatchWriter, JetStreamStreamWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # of Spark 4.1


class JetStreamBatchReader(DataSourceReader):
    """A batch reader of streams: the driver plans the parts, tasks read them."""

    def __init__(self, settings: ServerSettings, reading: Reading, shape: RowShape) -> None:
        self._settings = settings
        self._reading = reading
        self._shape = shape
        self._wanted = Wanted(subjects=reading.filters or None)

    def partitions(self) -> list[InputPartition]:
        """Return the parts; none if nothing has to be read."""
        asking = Asking(self._settings, resolve=True)
        try:
            return asking(self._plan)
        finally:
            asking.close()

    def _plan(self, api: JetStreamApi) -> list[InputPartition]:
        stretches = batch_stretches(api, self._reading, self._wanted)
        return [*parts(api, stretches, self._reading, self._wanted.subjects or ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part; none for the part that Spark passes where `partitions` returned none."""
        if isinstance(partition, StreamPart):
            yield from read_part(self._settings, partition, self._reading.limits, self._shape)


class JetStreamPushdownReader(JetStreamBatchReader):
    """A JetStreamBatchReader that lets the server apply the supported part of WHERE.

    A class of its own because Spark refuses any reader that has `pushFilters` while
    `spark.sql.python.filterPushdown.enabled` is false.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Adopt filters for the request, and return filters that Spark has to apply as well."""
        self._wanted, left = push(filters, self._wanted)
        return left


SUFFIX: Final = "$subjects"
SUBJECT_FIELDS: Final = (
    StructField("stream", StringType()),
    StructField("subject", StringType()),
    StructField("messages", LongType()),
)


def is_subject_table(reading: Reading) -> bool:
    """Return whether subjects and not messages are read. Raises OptionError for both at once."""
    marked = [name.endswith(SUFFIX) for name in reading.streams]
    if any(marked) and not all(marked):
        raise OptionError(f"{', '.join(reading.streams)}: tables of subjects and streams cannot be read as one")
    return any(marked)


class SubjectTableReader(DataSourceReader):
    """A reader of the subjects of streams that match the filters, in one task."""

    def __init__(self, settings: ServerSettings, reading: Reading, schema: StructType) -> None:
        """Raise OptionError for a column that the table does not have."""
        known = {field.name: field.dataType for field in SUBJECT_FIELDS}
        for field in schema:
            if known.get(field.name) != field.dataType:
                raise OptionError(f"{reading.streams[0]} has no column {field.name} {field.dataType.simpleString()}")
        self._settings = settings
        self._streams = [name.removesuffix(SUFFIX) for name in reading.streams]
        self._filters = reading.filters or (">",)
        self._shape = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        asking = Asking(self._settings)
        try:
            for stream in self._streams:
                yield self._batch(stream, asking)
        finally:
            asking.close()

    def _batch(self, stream: str, asking: Asking) -> pa.RecordBatch:
        counts: dict[str, int] = {}
        for wanted in self._filters:
            info = asking(partial(_counted, stream=stream, wanted=wanted))
            counts.update(info["state"].get("subjects") or {})
        rows = sorted(counts.items())
        columns = {
            "stream": repeated_text(stream, len(rows)),
            "subject": text_array([subject.encode() for subject, _ in rows]),
            "messages": int_array([number for _, number in rows]),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in self._shape.names], schema=self._shape)


def _counted(api: JetStreamApi, stream: str, wanted: str) -> dict[str, Any]:
    return api.stream_info(stream, subjects_filter=wanted)


class JetStreamDataSource(DataSource):
    """Streams as tables; `options.table` lists the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` is given."""
        return "jetstream"

    def schema(self) -> StructType:
        """Return the columns of a read that names none."""
        options = Options(self.options, ANY_READ)
        if not options["backup"] and is_subject_table(reading_of(options)):
            return StructType([*SUBJECT_FIELDS])
        return default_schema(options, metadata=options["includeMetadata"])

    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options(self.options, BATCH_READ)
        if options["backup"]:
            check_combination(options)
            check_order(options)
            return backup_reader(options, _shape(schema, options))
        reading = reading_of(options)
        settings = server_settings(options)
        if is_subject_table(reading):
            check_subject_table(options, reading.streams[0])
            return SubjectTableReader(settings, reading, schema)
        if options["filterPushdown"]:
            _needs(FILTERS_SINCE, "option filterPushdown")
        kind = JetStreamPushdownReader if options["filterPushdown"] else JetStreamBatchReader
        return kind(settings, reading, _shape(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            return self._stream_reader(schema)
        except JetStreamSourceError as failure:
            return RefusedStreamReader(failure)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        options = Options(self.options, STREAM_READ)
        reading = reading_of(options)
        if is_subject_table(reading):
            raise OptionError(
                f"{reading.streams[0]} is a table of counts, and they do not only grow: read it as a batch"
            )
        settings, admission, shape = server_settings(options), admission_of(options), _shape(schema, options)
        durable = durable_of(options, reading)
        if durable is not None:
            _needs(LIMITS_SINCE, "option ackMode")
            return JetStreamAckedReader(settings, durable, shape, admission, reading.parts or cores())
        name = options["commitConsumer"]
        follower = Follower(name, reading.filters) if name else None
        return JetStreamStreamReader(settings, reading, shape, admission, follower)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return JetStreamBatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        _needs(ARROW_STREAM_WRITES_SINCE, "writeStream", "; foreachBatch with a batch write does the same")
        return JetStreamStreamWriter(self.options, schema, overwrite)


def _needs(since: tuple[int, int], what: str, instead: str = "") -> None:
    """Raise OptionError where this release of PySpark is too old."""
    if since > RELEASE:
        raise OptionError(f"{what} needs Spark {since[0]}.{since[1]}, and this is {pyspark.__version__}{instead}")


def _shape(schema: StructType, options: Options) -> RowShape:
    return row_shape(schema, options, metadata=options["ackMode"] == "explicit")
