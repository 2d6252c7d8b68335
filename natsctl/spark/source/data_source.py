"""The data source `jetstream`."""

from __future__ import annotations

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from natsctl.spark.source.acked_reader import JetStreamAckedReader
from natsctl.spark.source.backups import backup_reader
from natsctl.spark.source.batch_reader import (
    SUBJECT_FIELDS,
    JetStreamBatchReader,
    JetStreamPushdownReader,
    SubjectTableReader,
    is_subject_table,
)
from natsctl.spark.source.driver_settings import server_settings
from natsctl.spark.source.errors import JetStreamSourceError, OptionError
from natsctl.spark.source.option_rules import check_combination, check_order, check_subject_table
from natsctl.spark.source.read_request import cores, durable_of, reading_of
from natsctl.spark.source.rows import RowShape, default_schema, row_shape
from natsctl.spark.source.source_options import ANY_READ, BATCH_READ, STREAM_READ, Options
from natsctl.spark.source.spark_api import ARROW_STREAM_WRITES_SINCE, FILTERS_SINCE, LIMITS_SINCE, RELEASE
from natsctl.spark.source.stream_reader import Follower, JetStreamStreamReader, RefusedStreamReader, admission_of
from natsctl.spark.source.writers import JetStreamBatchWriter, JetStreamStreamWriter


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
