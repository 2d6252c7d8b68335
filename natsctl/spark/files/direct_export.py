"""Export of a stream to one file without Spark: Parquet or JSON lines, written by this process.

Starting Spark costs more than reading and writing a few hundred thousand messages. They are read by the reader that
tasks of Spark run, and the file has the columns and the order of an export by Spark.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any, Final, cast

from natsctl.client.atomic_file import atomic_write
from natsctl.spark.files.file_export import Exported, FileTarget
from natsctl.spark.files.file_formats import JSON, PARQUET

if TYPE_CHECKING:
    import pyarrow as pa

_LIMITS: Final = {PARQUET.name: (10_000_000, 8 << 30), JSON.name: (2_000_000, 1 << 30)}
"""Messages and bytes of a stream, by format: above them Spark on four cores is faster, its start included."""
_GROUP_ROWS, _GROUP_BYTES = 250_000, 64 << 20
"""Limits of a row group of Parquet: it is held in memory."""
_ONE_PART: Final = {"minPartitions": "1"}


def is_direct(target: FileTarget, state: Mapping[str, Any]) -> bool:
    """Return whether a stream of that state fits into an export from this process."""
    limits = _LIMITS.get(target.format.name)
    if not target.is_file or limits is None or not (find_spec("pyarrow") and find_spec("pyspark")):
        return False
    return int(state.get("messages") or 0) <= limits[0] and int(state.get("bytes") or 0) <= limits[1]


def export_direct(
    options: Mapping[str, str], stream: str, target: FileTarget, progress: Callable[[int], object]
) -> Exported:
    """Write the messages that the options name, and return the totals; `progress` gets the number so far.

    The previous file is replaced once everything is written. Raises JetStreamSourceError, StorageError.
    """
    totals = _Totals(progress)
    with atomic_write(target.local) as file:
        if target.format is PARQUET:
            _write_parquet(totals.counted(_batches(options)), file)
        elif target.is_gzip:
            with gzip.GzipFile(fileobj=file, mode="wb") as packed:
                _write_lines(totals.counted(_batches(options)), cast(IO[bytes], packed))
        else:
            _write_lines(totals.counted(_batches(options)), file)
    return Exported(
        stream=stream,
        path=target.path,
        format=target.format.name,
        messages=totals.messages,
        bytes=totals.bytes,
        first_seq=totals.first_seq,
        last_seq=totals.last_seq,
        files=1,
    )


def _batches(options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.types import StructType

    from natsctl.spark.source.data_source import JetStreamDataSource
    from natsctl.spark.source.rows import SCHEMA_FIELDS

    reader = JetStreamDataSource({**options, **_ONE_PART}).reader(StructType([*SCHEMA_FIELDS]))
    for part in reader.partitions():
        yield from cast(Iterator["pa.RecordBatch"], reader.read(part))


class _Totals:
    def __init__(self, progress: Callable[[int], object]) -> None:
        self.messages = self.bytes = self.first_seq = self.last_seq = 0
        self._progress = progress

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        for batch in batches:
            if batch.num_rows:
                self.first_seq = self.first_seq or batch.column("seq")[0].as_py()
                self.last_seq = batch.column("seq")[-1].as_py()
                self.bytes += pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
                self.messages += batch.num_rows
                yield batch
                self._progress(self.messages)


def _write_parquet(batches: Iterator[pa.RecordBatch], file: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.types import StructType

    from natsctl.spark.source.rows import SCHEMA_FIELDS, arrow_schema

    schema = arrow_schema(StructType([*SCHEMA_FIELDS]))
    with pq.ParquetWriter(file, schema) as writer:
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting, schema), _GROUP_ROWS)
                waiting, rows, size = [], 0, 0
        writer.write_table(pa.Table.from_batches(waiting, schema), _GROUP_ROWS)


def _write_lines(batches: Iterator[pa.RecordBatch], file: IO[bytes]) -> None:
    import msgspec
    import pyarrow.compute as pc

    from natsctl.spark.files.json_lines import message_line

    encoder = msgspec.json.Encoder()
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in ("stream", "seq", "subject", "headers", "value")}
        times = pc.strftime(batch.column("timestamp"), "%Y-%m-%dT%H:%M:%SZ").to_pylist()
        rows = zip(*(columns[name] for name in ("stream", "seq", "subject")), times, strict=True)
        contents = zip(columns["headers"], columns["value"], strict=True)
        lines = [message_line(place, *content) for place, content in zip(rows, contents, strict=True)]
        file.write(encoder.encode_lines(lines))
