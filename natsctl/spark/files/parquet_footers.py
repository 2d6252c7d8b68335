"""Parquet files as `stream export` writes them, read by Arrow: their schema, and what an import has to know of them.

Spark takes a second for each on a few hundred thousand messages, after it has started. Arrow reads the same while Spark
starts. Files of any other shape are left to Spark.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from natsctl.spark.files.formats import PARQUET, is_url
from natsctl.spark.files.import_source import Source, files_of
from natsctl.spark.files.message_columns import MSG_ID, Obeyed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from natsctl.spark.files.stream_import import Content

MOST_MESSAGES: Final = 2_000_000
MOST_BYTES: Final = 1 << 30
"""Of more Spark's tasks find the same on all cores, and without keeping all ids in memory."""
_ROWS, _PAYLOADS = 16_384, 256
"""Rows that are read at once, and payloads: few, as a large one that a file has once may be that of many rows."""
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"


def noted_schema(source: Source) -> StructType | None:
    """Return the schema that Spark noted in all files alike; None where it has to be found by reading them."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    try:
        noted = {(file.metadata.metadata or {}).get(_SPARK_SCHEMA) for file in _opened(source)}
        text = noted.pop() if len(noted) == 1 else None
        return StructType.fromJson(json.loads(text)) if text else None
    except (OSError, ValueError, KeyError, pa.ArrowException):  # Spark finds what is wrong, and says so
        return None


def content_ahead(source: Source, taken: Sequence[str], left: Sequence[Obeyed]) -> Future[Content | None]:
    """Begin to look at a source in another thread: the same content as `stream_import.look` finds, or None."""
    with_one = ThreadPoolExecutor(1, thread_name_prefix="parquet")
    try:
        return with_one.submit(content_of, source, taken, left)
    finally:
        with_one.shutdown(wait=False)


def content_of(source: Source, taken: Sequence[str], left: Sequence[Obeyed]) -> Content | None:
    """Return what the files hold, for a stream that takes those subjects and is not sent those headers.

    None where they have other columns than an export writes, are too many, or cannot be read.
    """
    import pyarrow as pa

    try:
        groups = [_groups(file) for file in _opened(source)]
        fits = [each for each in groups if each is not None]
        messages, size = (sum(each[at] for each in fits) for at in (0, 1))
        if source.as_json or not groups or len(fits) < len(groups) or messages > MOST_MESSAGES or size > MOST_BYTES:
            return None
        looked = _Look(source.subject, taken, left)
        for file in _opened(source):
            for batch in file.iter_batches(_ROWS, columns=["seq", "subject", "headers"]):
                looked.take(batch)
            for batch in file.iter_batches(_PAYLOADS, columns=["value"]):
                looked.take_payloads(batch.column(0))
        return looked.content()
    except (OSError, ValueError, pa.ArrowException):  # Spark finds what is wrong, and says so
        return None


def _groups(file: Any) -> tuple[int, int] | None:
    """Return the messages of a file and their bytes before compression; None where it has other columns."""
    groups = (file.metadata.row_group(at) for at in range(file.metadata.num_row_groups))
    fits = _is_export(file.schema_arrow)
    return (file.metadata.num_rows, sum(each.total_byte_size for each in groups)) if fits else None


def _opened(source: Source) -> Iterator[Any]:
    """Yield the files of a source that lie in one folder; none where folders below may stand for columns."""
    from pyarrow.parquet import ParquetFile

    if source.format is not PARQUET or is_url(source.path):
        return
    place = Path(source.path)
    files = files_of(place)
    if place.is_dir() and any(one.parent != place for one in files):
        return
    for file in sorted(files):
        with ParquetFile(file) as opened:
            yield opened


def _is_export(schema: pa.Schema) -> bool:
    import pyarrow as pa

    kinds = dict(zip(schema.names, schema.types, strict=True))
    headers = kinds.get("headers")
    fits = {"seq": pa.int64(), "subject": pa.string(), "value": pa.binary()}
    return (
        {name.lower() for name in kinds} == {"stream", "seq", "subject", "timestamp", "headers", "value"}
        and len(schema.names) == len(kinds)
        and all(kinds.get(name) == kind for name, kind in fits.items())
        and headers is not None
        and pa.types.is_list(headers)
        and pa.types.is_struct(headers.value_type)
        and [(one.name, one.type) for one in headers.value_type] == [("key", pa.string()), ("value", pa.binary())]
    )


class _Look:
    """Gathers what is to be known of messages, batch by batch."""

    def __init__(self, subject: str, taken: Sequence[str], left: Sequence[Obeyed]) -> None:
        self._subject, self._left = subject, left
        token = {"*": r"[^.\s]+", ">": r"[^\s]+"}
        ways = (r"\.".join(token.get(part) or re.escape(part) for part in one.split(".")) for one in taken)
        self._taken = re.compile("|".join(f"(?:{way})" for way in ways) or r"(?!)", re.ASCII)
        self._rows = self._bytes = self._ids = 0
        self._seqs: list[int] = []
        self._subjects = {subject} if subject else set[str]()
        self._distinct = set[bytes]()
        self._counts = Counter[str]()

    def take(self, batch: pa.RecordBatch) -> None:
        """Take in some messages but for their payloads; raises ValueError where a header has no key."""
        import pyarrow.compute as pc

        self._rows += batch.num_rows
        ends = pc.min_max(batch.column("seq")).as_py()
        self._seqs += [seq for seq in ends.values() if seq is not None]
        if not self._subject:
            self._subjects.update(text or "" for text in batch.column("subject").unique().to_pylist())
        self._take_headers(batch.column("headers"))

    def take_payloads(self, values: pa.BinaryArray) -> None:
        """Take in some payloads."""
        import pyarrow.compute as pc

        self._bytes += pc.sum(pc.binary_length(values)).as_py() or 0

    def _take_headers(self, headers: pa.ListArray) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        from natsctl.spark.source.columns.arrays import binary_array

        pairs, rows = headers.flatten(), pc.list_parent_indices(headers)
        keys = pc.struct_field(pairs, [0])
        names = keys.unique().to_pylist()
        if None in names:
            raise ValueError("a header has no key")  # Spark says so, and in which file
        for one in self._left:
            obeyed = [name for name in names if re.fullmatch(one.pattern, name)]
            if obeyed:
                there = pc.is_in(keys, value_set=binary_array([name.encode() for name in obeyed]).cast(pa.string()))
                self._counts[one.name] += pc.count_distinct(rows.filter(there)).as_py()
        if MSG_ID in names:
            is_id = pc.is_in(keys, value_set=binary_array([MSG_ID.encode()]).cast(pa.string()))
            # the first of several in one message, as rows ascend
            owners, texts = rows.filter(is_id), pc.struct_field(pairs, [1]).filter(is_id)
            first = dict(zip(reversed(owners.to_pylist()), reversed(texts.to_pylist()), strict=True))
            self._ids += len(first)
            self._distinct.update(text or b"" for text in first.values())

    def content(self) -> Content:
        """Return what was gathered."""
        from natsctl.spark.files.stream_import import Content

        subjects = self._subjects if self._rows else ()
        refused = min((one for one in subjects if not self._taken.fullmatch(one)), default=None)
        counts = {one.name: self._counts[one.name] for one in self._left if self._counts[one.name]}
        return Content(
            self._rows,
            self._bytes,
            refused,
            min(self._seqs, default=None),
            max(self._seqs, default=None),
            len(self._distinct) < self._ids,
            counts,
        )
