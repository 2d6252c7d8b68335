"""Backups as tables, without a server.

natsctl's own archive reader decodes and checks them, so natsctl has to be installed on each machine that runs tasks. A
task reads one backup, or with `minPartitions` its share of the sequences: an archive has no index, so that each task
decodes all of it up to its last message. Options and columns are the same as for a server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from natsctl.spark.source.arrays import int_array
from natsctl.spark.source.errors import BackupError, OptionError, StreamNotFoundError
from natsctl.spark.source.offsets import check_said
from natsctl.spark.source.planning import Wanted, check_names, push
from natsctl.spark.source.rows import Rows, RowShape
from natsctl.spark.source.source_options import EARLIEST, LATEST, Options, subject_pattern

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # of Spark 4.1

    from natsctl.api.archive.archive import ArchivedMessage
    from natsctl.client.backup.reader import OpenBackup

_META: Final = "backup.json"
_FILE_ENDINGS: Final = (".tgz", ".tar.gz", ".tar")
_SCHEME: Final = "file:"
_NEWEST: Final = (1 << 63) - 1
T = TypeVar("T")


@dataclass(frozen=True)
class StreamBackup:
    """The backup of one stream; `whole` is whether no message between its first and its last is missing."""

    path: str
    stream: str
    first_seq: int
    last_seq: int
    whole: bool


@dataclass(frozen=True)
class BackupPart(InputPartition):
    """Messages of a backup within bounds of sequence and time, both included, on subjects of `filters` (none: all)."""

    backup: StreamBackup
    first: int
    last: int
    since_ns: int | None = None
    until_ns: int | None = None
    filters: tuple[str, ...] = ()


def backups_at(text: str) -> list[StreamBackup]:
    """Return the backup at a path, or the backups in the folder of an account. Raises BackupError."""
    if "://" in text and not text.startswith(_SCHEME):
        raise BackupError(f"{text}: a backup is read from a folder or a file that all machines share, not from a URL")
    path = Path("/" + text.removeprefix(_SCHEME).lstrip("/") if text.startswith(_SCHEME) else text).absolute()
    if not path.exists():
        raise BackupError(f"there is no backup {path} on this machine")
    if path.is_file() or (path / _META).is_file():
        return [_description(path)]
    entries = [each for each in sorted(path.iterdir()) if not each.name.startswith(".")]
    inside = [entry for entry in entries if (entry / _META).is_file() or entry.name.lower().endswith(_FILE_ENDINGS)]
    if not inside:
        raise BackupError(f"{path} is no backup: neither {_META} is in it, nor folders or tar files of backups")
    return [_description(each) for each in inside]


def _description(path: Path) -> StreamBackup:
    def described(backup: OpenBackup) -> StreamBackup:
        state = backup.state
        messages, first_seq, last_seq = (int(state.get(key) or 0) for key in ("messages", "first_seq", "last_seq"))
        return StreamBackup(str(path), backup.stream, first_seq, last_seq, messages == last_seq - first_seq + 1)

    return next(_opened(path, lambda backup: iter((described(backup),)), judged=False))


def _opened(path: Path, read: Callable[[OpenBackup], Iterator[T]], *, judged: bool) -> Iterator[T]:
    """Yield what `read` does of the open backup; failures become a BackupError."""
    try:
        from natsctl.api.errors import NatsctlError, StorageError
        from natsctl.client.backup.reader import open_backup
    except ImportError as missing:
        raise BackupError("a backup is read by natsctl: install it on every machine that runs tasks") from missing
    try:
        with open_backup(path, judged=judged) as backup:
            yield from read(backup)
    except StorageError as failure:
        raise BackupError(str(failure)) from failure
    except (NatsctlError, OSError) as failure:
        raise BackupError(
            f"cannot read the backup {path}, which every machine with tasks needs: {failure}"
        ) from failure


def read_part(part: BackupPart, shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part. Raises BackupError, also for data that its manifest does not fit."""

    def batches(backup: OpenBackup) -> Iterator[pa.RecordBatch]:
        from natsctl.client.backup.archives import RemovedMessages, read_messages

        removed = RemovedMessages(part.backup.first_seq) if part.backup.whole else None
        for messages in read_messages(backup, removed=removed):
            kept = _kept(messages, part, pattern)
            if kept:
                yield shape.batch(part.backup.stream, _rows(kept, shape))
            if messages and part.backup.last_seq > part.last <= messages[-1].seq:
                return

    pattern = subject_pattern(part.filters) if part.filters else None
    yield from _opened(Path(part.backup.path), batches, judged=True)


def _kept(
    messages: Sequence[ArchivedMessage], part: BackupPart, pattern: re.Pattern[bytes] | None
) -> Sequence[ArchivedMessage]:
    """Return the messages that meet the conditions of a part; their sequences ascend."""
    if messages and (messages[0].seq < part.first or messages[-1].seq > part.last):
        messages = [message for message in messages if part.first <= message.seq <= part.last]
    if part.since_ns is not None:
        messages = [message for message in messages if message.ts_ns >= part.since_ns]
    if part.until_ns is not None:
        messages = [message for message in messages if message.ts_ns <= part.until_ns]
    if pattern is not None:
        messages = [message for message in messages if pattern.fullmatch(message.subject)]
    return messages


def _rows(messages: Sequence[ArchivedMessage], shape: RowShape) -> Rows:
    seqs, times, subjects, headers, payloads = zip(*messages, strict=True)
    return Rows(
        int_array(seqs),
        int_array(times),
        subjects,
        headers if shape.wants_headers and any(headers) else (),
        payloads if shape.wants_value else (),
    )


class BackupReader(DataSourceReader):
    """A reader of backups: the driver plans parts, tasks read them; both need the backup under the same path."""

    def __init__(self, options: Options, shape: RowShape) -> None:
        """Read the options. Raises OptionError if they name the stream twice."""
        self._shape = shape
        self._path = str(options["backup"])
        self._streams = _stream_patterns(options)
        self._parts = options["minPartitions"] or 1
        since_ns, until_ns = options["startingTimestamp"], options["endingTimestamp"]
        self._start = options["startingOffsets"] if since_ns is None else None
        self._end = options["endingOffsets"] if until_ns is None else None
        self._since_by: dict[str, int] = (options["startingOffsetsByTimestamp"] or {}) if since_ns is None else {}
        self._until_by: dict[str, int] = (options["endingOffsetsByTimestamp"] or {}) if until_ns is None else {}
        self._fail = bool(options["failOnDataLoss"])
        self._wanted = Wanted(
            since_ns=since_ns,
            until_ns=None if until_ns is None else until_ns - 1,
            subjects=options["subject"],
        )

    def partitions(self) -> list[InputPartition]:
        """Return the parts of all streams to read, none if the filters exclude everything."""
        found = backups_at(self._path)
        chosen = [
            each
            for each in found
            if self._streams is None
            or any(fnmatchcase(each.stream, name) or each.stream == name for name in self._streams)
        ]
        if not chosen:
            there = ", ".join(sorted(each.stream for each in found))
            raise StreamNotFoundError(
                f"the backup {self._path} has no stream {', '.join(self._streams or ())}; it has {there}"
            )
        check_names(self._start, [each.stream for each in chosen], "startingOffsets")
        check_names(self._end, [each.stream for each in chosen], "endingOffsets")
        check_names(self._since_by, [each.stream for each in chosen], "startingOffsetsByTimestamp")
        check_names(self._until_by, [each.stream for each in chosen], "endingOffsetsByTimestamp")
        if self._wanted.nothing:
            return []
        names = self._wanted.streams
        wanted = [each for each in chosen if names is None or each.stream in names]
        share = -(-self._parts // max(len(wanted), 1))
        return [part for each in wanted for part in self._parts_of(each, share)]

    def _parts_of(self, backup: StreamBackup, share: int) -> Iterator[InputPartition]:
        first, last = self._bounds(backup)
        first, last = max(first, backup.first_seq), min(last, backup.last_seq)
        size = -(-max(last - first + 1, 0) // share)
        since_ns, until_ns = self._since_by.get(backup.stream), self._until_by.get(backup.stream)
        selection = self._wanted.between(since_ns, None if until_ns is None else until_ns - 1)
        for begin in range(first, last + 1, max(size, 1)):
            end = min(begin + size - 1, last)
            yield BackupPart(backup, begin, end, selection.since_ns, selection.until_ns, selection.subjects or ())

    def _bounds(self, backup: StreamBackup) -> tuple[int, int]:
        newest = backup.last_seq
        first = EARLIEST if backup.stream in self._since_by else _offset_of(self._start, backup.stream, EARLIEST)
        last = LATEST if backup.stream in self._until_by else _offset_of(self._end, backup.stream, LATEST)
        if first > newest + 1:
            check_said("startingOffsets", first, backup.stream, newest, fail=self._fail)
        check_said("endingOffsets", last, backup.stream, newest, fail=self._fail)
        first = newest + 1 if first == LATEST else max(first, 1)
        last = _NEWEST if last == LATEST else last
        return max(first, self._wanted.first or 1), min(last, last if self._wanted.last is None else self._wanted.last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part; the part that Spark invents for a read without parts has no rows."""
        if isinstance(partition, BackupPart):
            yield from read_part(partition, self._shape)


class BackupPushdownReader(BackupReader):
    """Reader of a backup that applies some conditions of WHERE before it makes rows."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters that this reader applies, and return filters that Spark has to apply as well."""
        self._wanted, left = push(filters, self._wanted)
        return left


def backup_reader(options: Options, shape: RowShape) -> BackupReader:
    return (BackupPushdownReader if options["filterPushdown"] else BackupReader)(options, shape)


def _stream_patterns(options: Options) -> tuple[str, ...] | None:
    """Return the names or the pattern of the streams to read, None for all streams of the backup."""
    said = [name for name in ("stream", "streamPattern") if options.given(name)]
    if len(said) + bool(options.path) > 1:
        raise OptionError("stream, streamPattern and load() each name what to read of a backup: give one of them")
    if options.given("streamPattern"):
        return (str(options["streamPattern"]),)
    return tuple(options.path.split(",")) if options.path else options["stream"]


def _offset_of(offsets: str | dict[str, int] | None, stream: str, default: int) -> int:
    """Return the sequence that an offset option gives for a stream, or EARLIEST or LATEST."""
    if isinstance(offsets, dict):
        return offsets.get(stream, default)
    return {"earliest": EARLIEST, "latest": LATEST}.get(offsets or "", default)
