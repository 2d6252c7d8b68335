"""A batch out of a backup: the same options and columns as from a server, and nothing asked of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import get_args

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from natsctl.spark.source.archive.backups import Backup, backups_at
from natsctl.spark.source.archive.parts import ArchivePart, archive_partitions, read_archive
from natsctl.spark.source.archive.sieve import Sieve
from natsctl.spark.source.columns.rows import RowShape
from natsctl.spark.source.errors import OptionError, StreamNotFoundError
from natsctl.spark.source.options.options import Options
from natsctl.spark.source.options.values import EARLIEST, LATEST
from natsctl.spark.source.reading.loss import check_said
from natsctl.spark.source.reading.planning import check_names
from natsctl.spark.source.reading.pushdown import Wanted, push
from natsctl.spark.source.reading.reading import cores
from natsctl.spark.source.spark_api import Filter


class BackupReader(DataSourceReader):
    """Plans the reading of a backup on the driver, which has to find it as tasks do, and reads it in tasks."""

    def __init__(self, options: Options, shape: RowShape) -> None:
        """Raise OptionError where options name the stream twice."""
        self._shape = shape
        self._path = str(options["backup"])
        self._streams = _stream_patterns(options)
        self._parts = options["minPartitions"] or cores()
        since_ns, until_ns = options["startingTimestamp"], options["endingTimestamp"]
        self._start = options["startingOffsets"] if since_ns is None else None
        self._end = options["endingOffsets"] if until_ns is None else None
        self._fail = bool(options["failOnDataLoss"])
        self._wanted = Wanted(
            since_ns=since_ns,
            until_ns=None if until_ns is None else until_ns - 1,
            subjects=options["subject"],
        )

    def partitions(self) -> list[InputPartition]:
        """Return the parts of all streams that are read; none where nothing is wanted."""
        found = backups_at(self._path)
        chosen = [each for each in found if self._streams is None or _fits(each.stream, self._streams)]
        if not chosen:
            there = ", ".join(sorted(each.stream for each in found))
            raise StreamNotFoundError(
                f"the backup {self._path} has no stream {', '.join(self._streams or ())}; it has {there}"
            )
        check_names(self._start, [each.stream for each in chosen], "startingOffsets")
        check_names(self._end, [each.stream for each in chosen], "endingOffsets")
        if self._wanted.nothing:
            return []
        names = self._wanted.streams
        wanted = [each for each in chosen if names is None or each.stream in names]
        total = sum(each.data.size for each in wanted) or 1
        return [part for each in wanted for part in self._parts_of(each, round(self._parts * each.data.size / total))]

    def _parts_of(self, backup: Backup, share: int) -> list[ArchivePart]:
        first, last = self._bounds(backup)
        wanted = self._wanted
        sieve = Sieve(first, last, wanted.since_ns, wanted.until_ns, wanted.subjects or ())
        return [] if first > last else archive_partitions(backup, sieve, share)

    def _bounds(self, backup: Backup) -> tuple[int, int]:
        """Return the first and the last sequence wanted of a stream."""
        newest = (1 << 63) - 1 if backup.last_seq is None else backup.last_seq
        first, last = _said(self._start, backup.stream, EARLIEST), _said(self._end, backup.stream, LATEST)
        if first > newest + 1:
            check_said("startingOffsets", first, backup.stream, newest, fail=self._fail)
        check_said("endingOffsets", last, backup.stream, newest, fail=self._fail)
        first = newest + 1 if first == LATEST else max(first, 1)
        last = (1 << 63) - 1 if last == LATEST else last
        return max(first, self._wanted.first or 1), min(last, last if self._wanted.last is None else self._wanted.last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part; Spark makes up one of its own where there are none, and it has no rows."""
        if isinstance(partition, get_args(ArchivePart)):
            yield from read_archive(partition, self._shape)


class BackupPushdownReader(BackupReader):
    """The same, with the part of WHERE that can be applied before a message is a row."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters over, and return those that Spark has to look at as well."""
        self._wanted, left = push(filters, self._wanted)
        return left


def backup_reader(options: Options, shape: RowShape) -> BackupReader:
    """Return the reader of the backup that the options name."""
    return (BackupPushdownReader if options["filterPushdown"] else BackupReader)(options, shape)


def _stream_patterns(options: Options) -> tuple[str, ...] | None:
    """Return the names or the pattern of the streams to read, None for all that the backup has."""
    said = [name for name in ("stream", "streamPattern") if options.given(name)]
    if len(said) + bool(options.path) > 1:
        raise OptionError("stream, streamPattern and load() each name what to read of a backup: give one of them")
    if options.given("streamPattern"):
        return (str(options["streamPattern"]),)
    return tuple(options.path.split(",")) if options.path else options["stream"]


def _fits(stream: str, patterns: Iterable[str]) -> bool:
    return any(stream == each or fnmatchcase(stream, each) for each in patterns)


def _said(offsets: str | dict[str, int] | None, stream: str, default: int) -> int:
    """Return the sequence that an option of offsets gives a stream, or EARLIEST or LATEST."""
    if isinstance(offsets, dict):
        return offsets.get(stream, default)
    return {"earliest": EARLIEST, "latest": LATEST}.get(offsets or "", default)
