"""The table `<STREAM>$subjects`: how many messages each subject has, which the server knows without a scan."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from natsctl.spark.source.columns.arrays import int_array, repeated, text_array
from natsctl.spark.source.columns.rows import arrow_schema
from natsctl.spark.source.connection.api import JetStreamApi
from natsctl.spark.source.connection.asking import Asking
from natsctl.spark.source.connection.settings import ServerSettings
from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.reading.reading import Reading

SUFFIX: Final = "$subjects"
SUBJECT_FIELDS: Final = (
    StructField("stream", StringType()),
    StructField("subject", StringType()),
    StructField("messages", LongType()),
)


def is_subject_table(reading: Reading) -> bool:
    """Return whether subjects and not messages are read; raises OptionError for both at once."""
    marked = [name.endswith(SUFFIX) for name in reading.streams]
    if any(marked) and not all(marked):
        raise OptionError(f"{', '.join(reading.streams)}: tables of subjects and streams cannot be read as one")
    return any(marked)


class SubjectTableReader(DataSourceReader):
    """Reads the subjects of streams, those that fit the filters, in one task."""

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
        """Return one part."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one batch for each stream."""
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
            "stream": repeated(stream, len(rows)),
            "subject": text_array([subject.encode() for subject, _ in rows]),
            "messages": int_array([number for _, number in rows]),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in self._shape.names], schema=self._shape)


def _counted(api: JetStreamApi, stream: str, wanted: str) -> dict[str, Any]:
    """Return the answer of STREAM.INFO with the counts of subjects."""
    return api.stream_info(stream, subjects_filter=wanted)
