"""Import of files that `stream export` wrote, read in this process: Parquet by Arrow, JSON lines by msgspec.

Starting Spark costs more than reading and publishing a few hundred thousand messages. Messages in order, as in an
export to one file, are published from here by the code that a Spark task runs. Other exports are published by Spark,
which need not scan them first: their messages are counted and their subjects are checked here. Files with other columns
than an export's are left to Spark entirely.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from natsctl.spark.files.file_formats import JSON, PARQUET, is_url
from natsctl.spark.files.file_import import Content, FileSource, files_of, write_options
from natsctl.spark.files.message_columns import MSG_ID, ServerHeader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from natsctl.spark.files.json_lines import JsonLines

MAX_MESSAGES: Final = 2_000_000
MAX_BYTES: Final = 1 << 30
"""Limits of an import from this process, before compression; above them Spark uses all cores, and keeps no ids."""
_ROWS, _PAYLOADS = 16_384, 256
"""Rows read at once, and payloads: few, as a dictionary-encoded payload that the file has once may be large."""
_BATCH_ROWS, _BATCH_BYTES = 10_000, 64 << 20
"""Rows published together, and their bytes if every payload were as large as the largest."""
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"


def noted_schema(source: FileSource) -> StructType | None:
    """Return Spark's schema in the metadata of every file; None if a file lacks it or has a different one."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    try:
        noted = {(file.metadata.metadata or {}).get(_SPARK_SCHEMA) for file in _opened(source)}
        text = noted.pop() if len(noted) == 1 else None
        return StructType.fromJson(json.loads(text)) if text else None
    except (OSError, ValueError, KeyError, pa.ArrowException):  # Spark finds and reports the fault
        return None


class DirectImport(NamedTuple):
    """Files that this process can read, and the facts that an import needs."""

    source: FileSource
    files: ParquetFiles | JsonLines
    content: Content
    subjects: int
    largest: int
    """Bytes of the largest payload."""
    is_in_order: bool
    """Whether all messages are of one stream and sorted by sequence, across all files, or none has a sequence."""
    omitted: tuple[ServerHeader, ...]
    """Headers that are not published."""

    def publish(self, options: Mapping[str, str], ids: str, name: str, progress: Callable[[int], object]) -> None:
        """Publish messages that are in order from this process, as a single Spark task would, and wait for all acks.

        `options` and `name` are as in `file_import.store`; `progress` gets the number of messages read so
        far. Raises JetStreamSourceError.
        """
        from pyspark.sql.types import BinaryType, StringType, StructType

        from natsctl.spark.source.rows import HEADERS
        from natsctl.spark.source.source_options import BATCH_WRITE
        from natsctl.spark.source.write_job import write_job
        from natsctl.spark.source.writers import write_partition

        schema = StructType().add("subject", StringType()).add("headers", HEADERS)
        schema = schema.add("value", BinaryType()).add("msgId", StringType())
        job = write_job(write_options(options, ids, name), BATCH_WRITE, schema)
        write_partition(job, name, 0, self._followed(ids, progress))

    def batches(self, ids: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows that Spark would send of `file_import.messages`; ids that occur twice are not replaced."""
        rows = min(max(_BATCH_BYTES // max(self.largest, 1), 1), _BATCH_ROWS)
        for batch in self.files.batches(rows):
            yield self._written(batch, ids)

    def _followed(self, ids: str, progress: Callable[[int], object]) -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in self.batches(ids):
            yield batch
            done += batch.num_rows
            progress(done)

    def _written(self, batch: pa.RecordBatch, ids: str) -> pa.RecordBatch:
        import pyarrow as pa

        from natsctl.spark.source.arrays import repeated_text

        subject = repeated_text(self.source.subject, batch.num_rows) if self.source.subject else batch.column("subject")
        headers = batch.column("headers")
        columns = [subject, _kept(headers, self.omitted), batch.column("value"), _ids(batch, ids)]
        return pa.RecordBatch.from_arrays(columns, ["subject", "headers", "value", "msgId"])


def direct_import(source: FileSource, subjects: Sequence[str], omitted: Sequence[ServerHeader]) -> DirectImport | None:
    """Examine the files for a stream with those subjects, without the headers in `omitted`.

    Return None if they have other columns than an export's, are too large, or cannot be read, and if pyarrow or
    pyspark is missing.
    """
    if source.as_json or not (find_spec("pyarrow") and find_spec("pyspark")):
        return None
    import pyarrow as pa

    scan = ImportScan(source, subjects, omitted)
    try:
        files = _readable(source)
        if files is None:
            return None
        files.scan(scan)
        return scan.result(files)
    except (OSError, EOFError, ValueError, pa.ArrowException):  # Spark finds and reports the fault
        return None


def _readable(source: FileSource) -> ParquetFiles | JsonLines | None:
    """Return a reader of the files, or None if Spark has to read them."""
    paths = _paths(source)
    if not paths:
        return None
    if source.format is JSON:
        from natsctl.spark.files.json_lines import JsonLines

        return JsonLines(paths, MAX_MESSAGES, MAX_BYTES, has_subject=not source.subject)
    return ParquetFiles.of(source) if source.format is PARQUET else None


class ParquetFiles:
    """Parquet files that `stream export` wrote."""

    def __init__(self, source: FileSource) -> None:
        self._source = source

    @classmethod
    def of(cls, source: FileSource) -> ParquetFiles | None:
        """Return None for files with other columns, or that are too large."""
        groups = [_groups(file) for file in _opened(source)]
        fits = [group for group in groups if group is not None]
        messages, size = (sum(each[index] for each in fits) for index in (0, 1))
        if not groups or len(fits) < len(groups) or messages > MAX_MESSAGES or size > MAX_BYTES:
            return None
        return cls(source)

    def scan(self, scan: ImportScan) -> None:
        for file in _opened(self._source):
            for batch in file.iter_batches(_ROWS, columns=["stream", "seq", "subject", "headers"]):
                scan.add(batch)
            for batch in file.iter_batches(_PAYLOADS, columns=["value"]):
                scan.add_payloads(batch.column(0))

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        for file in _opened(self._source):
            yield from file.iter_batches(rows, columns=["stream", "seq", "subject", "headers", "value"])


def _groups(file: Any) -> tuple[int, int] | None:
    """Return the number of messages of a file and their bytes before compression; None if it is not an export."""
    groups = (file.metadata.row_group(at) for at in range(file.metadata.num_row_groups))
    fits = _is_export(file.schema_arrow)
    return (file.metadata.num_rows, sum(group.total_byte_size for group in groups)) if fits else None


def _paths(source: FileSource) -> list[Path]:
    """Return the files of a source; none if it has subfolders: their names may be partition columns."""
    if is_url(source.path):
        return []
    place = Path(source.path)
    paths = files_of(place)
    return [] if place.is_dir() and any(path.parent != place for path in paths) else sorted(paths)


def _opened(source: FileSource) -> Iterator[Any]:
    if source.format is not PARQUET:
        return
    from pyarrow.parquet import ParquetFile

    for path in _paths(source):
        with ParquetFile(path) as opened:
            yield opened


def _is_export(schema: pa.Schema) -> bool:
    import pyarrow as pa

    kinds = dict(zip(schema.names, schema.types, strict=True))
    headers = kinds.get("headers")
    fits = {"stream": pa.string(), "seq": pa.int64(), "subject": pa.string(), "value": pa.binary()}
    return (
        {name.lower() for name in kinds} == {"stream", "seq", "subject", "timestamp", "headers", "value"}
        and len(schema.names) == len(kinds)
        and all(kinds.get(name) == kind for name, kind in fits.items())
        and headers is not None
        and pa.types.is_list(headers)
        and pa.types.is_struct(headers.value_type)
        and [(one.name, one.type) for one in headers.value_type] == [("key", pa.string()), ("value", pa.binary())]
    )


class ImportScan:
    """Counts and checks of the messages of an export, gathered batch by batch."""

    def __init__(self, source: FileSource, subjects: Sequence[str], omitted: Sequence[ServerHeader]) -> None:
        self._source, self._omitted = source, tuple(omitted)
        token = {"*": r"[^.\s]+", ">": r"[^\s]+"}
        ways = (r"\.".join(token.get(part) or re.escape(part) for part in subject.split(".")) for subject in subjects)
        self._taken = re.compile("|".join(f"(?:{way})" for way in ways) or r"(?!)", re.ASCII)
        self._rows = self._bytes = self._ids = self._largest = 0
        self._seqs: list[int] = []
        self._is_in_order, self._has_places = True, False
        self._streams = set[str | None]()
        self._subjects = {source.subject} if source.subject else set[str]()
        self._distinct = set[bytes]()
        self._counts = Counter[str]()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add messages without their payloads; raises ValueError for a header without a key."""
        self._rows += batch.num_rows
        self._add_places(batch.column("stream"), batch.column("seq"))
        if not self._source.subject:
            self._subjects.update(text or "" for text in batch.column("subject").unique().to_pylist())
        self._add_headers(batch.column("headers"))

    def add_payloads(self, values: pa.BinaryArray) -> None:
        import pyarrow.compute as pc

        sizes = pc.binary_length(values)
        self._bytes += pc.sum(sizes).as_py() or 0
        self._largest = max(self._largest, pc.max(sizes).as_py() or 0)

    def _add_places(self, streams: pa.StringArray, seqs: pa.Int64Array) -> None:
        import pyarrow.compute as pc

        self._streams.update(streams.unique().to_pylist())
        ends = pc.min_max(seqs).as_py()
        ascends = not seqs.null_count and pc.all(pc.greater(seqs[1:], seqs[:-1]), min_count=0).as_py()
        self._has_places |= seqs.null_count < len(seqs)
        self._is_in_order &= ascends and (not self._seqs or ends["min"] > self._seqs[-1])
        self._seqs += [seq for seq in ends.values() if seq is not None]

    def _add_headers(self, headers: pa.ListArray) -> None:
        import pyarrow.compute as pc

        keys = pc.struct_field(headers.flatten(), [0])
        names = keys.unique().to_pylist()
        if None in names:
            raise ValueError("a header has no key")  # Spark reports it with the file
        rows = pc.list_parent_indices(headers)
        for one in self._omitted:
            if matching := [name for name in names if re.fullmatch(one.pattern, name)]:
                self._counts[one.name] += pc.count_distinct(rows.filter(_is_in(keys, matching))).as_py()
        own = _own_ids(headers)
        self._ids += len(own)
        self._distinct.update(own.values())

    def result(self, files: ParquetFiles | JsonLines) -> DirectImport:
        subjects = self._subjects if self._rows else ()
        refused = min((subject for subject in subjects if not self._taken.fullmatch(subject)), default=None)
        counts = {one.name: self._counts[one.name] for one in self._omitted if self._counts[one.name]}
        content = Content(
            self._rows,
            self._bytes,
            refused,
            min(self._seqs, default=None),
            max(self._seqs, default=None),
            len(self._distinct) < self._ids,
            counts,
        )
        in_order = self._is_in_order and None not in self._streams and len(self._streams) <= 1
        in_order |= not self._has_places
        return DirectImport(self._source, files, content, len(subjects), self._largest, in_order, self._omitted)


def _is_in(texts: pa.StringArray, wanted: Sequence[str]) -> pa.BooleanArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    from natsctl.spark.source.arrays import binary_array

    return pc.is_in(texts, value_set=binary_array([one.encode() for one in wanted]).cast(pa.string()))


def _own_ids(headers: pa.ListArray) -> dict[int, bytes]:
    """Return the `Nats-Msg-Id` of each row that has one, the first of several."""
    import pyarrow.compute as pc

    pairs = headers.flatten()
    is_id = _is_in(pc.struct_field(pairs, [0]), [MSG_ID])
    rows, texts = pc.list_parent_indices(headers).filter(is_id), pc.struct_field(pairs, [1]).filter(is_id)
    found = zip(reversed(rows.to_pylist()), reversed(texts.to_pylist()), strict=True)
    return {row: text or b"" for row, text in found}


def _kept(headers: pa.ListArray, omitted: Sequence[ServerHeader]) -> pa.ListArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    from natsctl.spark.source.arrays import int_array

    pairs = headers.flatten()
    keys = pc.struct_field(pairs, [0])
    names = keys.unique().to_pylist()
    matching = [name for name in names if any(re.fullmatch(one.pattern, name) for one in omitted)]
    if not matching:
        return headers
    sent = pc.invert(_is_in(keys, matching))
    begin = int_array([0]).cast(pa.int32())
    sent_before = pa.concat_arrays([begin, pc.cumulative_sum(sent.cast(pa.int32()))])
    ends = pc.cumulative_sum(pc.list_value_length(headers).fill_null(0))
    return pa.ListArray.from_arrays(sent_before.take(pa.concat_arrays([begin, ends])), pairs.filter(sent))


def _ids(batch: pa.RecordBatch, ids: str) -> pa.StringArray:
    """Return the message ids to publish with, null for none; `ids` is one of `IDS`, and auto prefers own ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    seqs = batch.column("seq").cast(pa.string())
    places = pc.binary_join_element_wise(batch.column("stream"), seqs, ":")
    own = _own_ids(batch.column("headers")) if ids != "seq" else {}
    if not own:
        return places if ids != "own" else pa.nulls(batch.num_rows, pa.string())
    given = pa.array([own.get(row) for row in range(batch.num_rows)], pa.binary()).view(pa.string())
    return given if ids == "own" else pc.coalesce(given, places)
