"""Backups as tables, without a server: found, split into parts, and read into Arrow columns.

Executors need the standard library and pyarrow only, as for all of this package (`api.archive.s2_rewrite` is sent along
with it). The structure of frames, tar headers and records is checked, but neither the CRC of a frame nor the hash of a
record, which Python computes too slowly; if a backup has a manifest, a task of its own checks the SHA-256 of the data.

A backup is a folder or a tar file (gzipped or not) of `backup.json`, `stream.tar.s2` or `stream.arc.s2` and, where
natsctl made it, `manifest.json`; or a tar file of a server's own files, as backups of 2020 are. A folder of backups is
an account's.

A task reads one part: block files of an archive of version 1, records of one of version 2, or all data for its SHA-256.
Options and columns are those of a read from a server.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from itertools import compress
from pathlib import Path
from typing import IO, Any, Final, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from natsctl.spark.source.arrays import binary_array, int_array, int_scalar
from natsctl.spark.source.backup_content import Content, DataFile, Mark
from natsctl.spark.source.backup_records import MAGIC, Cut, RecordReader, cut_behind, first_message
from natsctl.spark.source.errors import BackupError, OptionError, StreamNotFoundError
from natsctl.spark.source.log_blocks import Block, blocks_in, gone_in, rows_of
from natsctl.spark.source.offsets import check_said
from natsctl.spark.source.planning import Wanted, check_names, push
from natsctl.spark.source.read_request import cores
from natsctl.spark.source.rows import Rows, RowShape
from natsctl.spark.source.source_options import EARLIEST, LATEST, Options
from natsctl.spark.source.spark_api import Filter

_META: Final = "backup.json"
_DATA: Final = "stream.tar.s2"
_DATA_NAMES: Final = (_DATA, "stream.arc.s2")
"""The second is the name that the `nats` tool gives the data of servers from 2.15 on."""
_MANIFEST: Final = "manifest.json"
_SERVER_META: Final = "meta.inf"
_FILE_ENDINGS: Final = (".tgz", ".tar.gz", ".tar")
_MAX_TEXT_BYTES: Final = 64 << 20
_SCHEME: Final = "file:"


@dataclass(frozen=True)
class Backup:
    """One stream's backup; the counts are None where they are not recorded, `sha256` is "" without a manifest."""

    stream: str
    data: DataFile
    messages: int | None
    first_seq: int | None
    last_seq: int | None
    sha256: str = ""

    @property
    def whole(self) -> bool:
        """Return whether no message between the first and the last is missing."""
        is_known = self.messages is not None and self.first_seq is not None and self.last_seq is not None
        return is_known and self.messages == self.last_seq - self.first_seq + 1  # type: ignore[operator]  # all three are numbers


def backups_at(text: str) -> list[Backup]:
    """Return the backup at a path, or those in the folder of an account. Raises BackupError."""
    if "://" in text and not text.startswith(_SCHEME):
        raise BackupError(f"{text}: a backup is read from a folder or a file that all machines share, not from a URL")
    path = Path("/" + text.removeprefix(_SCHEME).lstrip("/") if text.startswith(_SCHEME) else text).absolute()
    if not path.exists():
        raise BackupError(f"there is no backup {path} on this machine")
    if path.is_file() or (path / _META).is_file():
        return [_read(path)]
    inside = [each for each in sorted(path.iterdir()) if not each.name.startswith(".") and _may_be(each)]
    if not inside:
        raise BackupError(f"{path} is no backup: neither {_META} is in it, nor folders or tar files of backups")
    return [_read(each) for each in inside]


def _may_be(path: Path) -> bool:
    """Return whether `path`, in the folder of an account, looks like the backup of a stream."""
    return (path / _META).is_file() or (path.is_file() and path.name.lower().endswith(_FILE_ENDINGS))


def _read(path: Path) -> Backup:
    """Return the backup of one stream at a path."""
    try:
        return _in_folder(path) if path.is_dir() else _in_tar(path)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as failure:
        raise BackupError(f"cannot read the backup {path}: {str(failure).splitlines()[0]}") from failure


def _in_folder(path: Path) -> Backup:
    data = next((path / name for name in _DATA_NAMES if (path / name).exists()), path / _DATA)
    manifest = path / _MANIFEST
    said = manifest.read_bytes() if manifest.is_file() else b""
    return _backup_of(path, (path / _META).read_bytes(), said, DataFile(str(data), 0, data.stat().st_size))


def _in_tar(path: Path) -> Backup:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    with tarfile.open(path, "r:gz" if zipped else "r:") as tar:
        members: dict[str, tarfile.TarInfo] = {}
        for member in tar:
            if member.isfile():
                members[member.name.removeprefix("./")] = member
            if _SERVER_META in members or (_META in members and any(name in members for name in _DATA_NAMES)):
                break
        if _SERVER_META in members:
            return _of_server_files(path, _text(tar, members[_SERVER_META]), zipped)
        name = next((name for name in _DATA_NAMES if name in members), "")
        if _META not in members or not name:
            raise BackupError(f"{path} is no backup: {_META} or {_DATA} is not in it")
        manifest = _text(tar, members[_MANIFEST]) if _MANIFEST in members else b""
        data = DataFile(str(path), members[name].offset_data, members[name].size, zipped)
        return _backup_of(path, _text(tar, members[_META]), manifest, data)


def _text(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the content of a small file."""
    file = tar.extractfile(member)
    if file is None or member.size > _MAX_TEXT_BYTES:
        raise BackupError(f"{tar.name!s}: {member.name} is no file of a backup")
    return file.read()


def _backup_of(path: Path, meta: bytes, manifest: bytes, data: DataFile) -> Backup:
    """Return the backup that `backup.json` and the manifest describe. Raises BackupError for data of another length."""
    described = _json(path, _META, meta)
    config, state = described.get("config"), described.get("state")
    if not isinstance(config, dict) or not isinstance(state, dict) or not config.get("name"):
        raise BackupError(f"{path} is no backup: its {_META} has no stream's configuration and state")
    files = _json(path, _MANIFEST, manifest).get("files", []) if manifest else []
    summed: dict[str, Any] = next((each for each in files if each.get("name") in _DATA_NAMES), {})
    if summed and summed.get("bytes") != data.size:
        raise BackupError(f"{path} is damaged: {_DATA} has {data.size:,} bytes, its manifest says {summed['bytes']:,}")
    messages, first_seq, last_seq = (state.get(name) for name in ("messages", "first_seq", "last_seq"))
    return Backup(str(config["name"]), data, messages, first_seq, last_seq, str(summed.get("sha256", "")))


def _of_server_files(path: Path, meta: bytes, zipped: bool) -> Backup:
    """Return the backup in a tar of a server's own files, which names the stream and records no counts."""
    name = _json(path, _SERVER_META, meta).get("name")
    if not name:
        raise BackupError(f"{path} is no backup: its {_SERVER_META} names no stream")
    bare = DataFile(str(path), 0, 0, zipped, raw=True)
    with bare.open() as file:
        size = _size(file)
    return Backup(str(name), DataFile(str(path), 0, size, zipped, raw=True), None, None, None)


def _size(file: IO[bytes]) -> int:
    """Return the number of bytes that can be read."""
    read: Callable[[int], bytes] = file.read
    return sum(len(piece) for piece in iter(lambda: read(1 << 20), b""))


def _json(path: Path, name: str, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as failure:
        raise BackupError(f"{path}: {name} is damaged: {failure}") from failure
    if not isinstance(found, dict):
        raise BackupError(f"{path}: {name} is no object")
    return found


@dataclass(frozen=True)
class Conditions:
    """Conditions on messages: sequences and times within bounds (included; None: no bound), subjects of `filters`."""

    first: int | None = None
    last: int | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    filters: tuple[str, ...] = ()

    def pattern(self) -> re.Pattern[bytes] | None:
        """Return a regular expression for `filters`, None if all subjects match."""
        if not self.filters or ">" in self.filters:
            return None
        return re.compile(b"|".join(map(_expression, self.filters)), re.DOTALL)

    def filtered(self, rows: Rows, pattern: re.Pattern[bytes] | None, gone: pa.Int64Array) -> Rows:
        """Return the rows that meet the conditions and whose sequence is not among `gone`; their sequences ascend."""
        if not len(rows.seqs):
            return rows
        lowest, highest = rows.seqs[0].as_py(), rows.seqs[-1].as_py()
        tests: list[pa.BooleanArray] = []
        if (self.first or 0) > lowest or (self.last is not None and self.last < highest):
            tests += _between(rows.seqs, self.first, self.last)
        missing = gone.filter(reduce(pc.and_, _between(gone, lowest, highest)))
        if len(missing):
            tests.append(pc.invert(pc.is_in(rows.seqs, value_set=missing)))
        if rows.times_ns is not None:
            tests += _between(rows.times_ns, self.since_ns, self.until_ns)
        if pattern is not None:
            tests.append(_matching(rows.subjects, pattern))
        if not tests:
            return rows
        keep = reduce(pc.and_, tests)
        return rows if pc.all(keep).as_py() else _kept(rows, keep)

    def ends_with(self, rows: Rows) -> bool:
        """Return whether no row after these can meet the conditions, since sequences ascend."""
        return self.last is not None and bool(len(rows.seqs)) and rows.seqs[-1].as_py() >= self.last


def _between(numbers: pa.Int64Array, least: int | None, most: int | None) -> list[pa.BooleanArray]:
    """Return masks of the numbers that are within each bound; None is no bound."""
    bounds = ((pc.greater_equal, least), (pc.less_equal, most))
    return [test(numbers, int_scalar(bound)) for test, bound in bounds if bound is not None]


def _matching(subjects: Sequence[bytes] | pa.Array, pattern: re.Pattern[bytes]) -> pa.BooleanArray:
    """Return a mask of the subjects that the pattern matches, which is evaluated once for each distinct subject."""
    column = subjects if isinstance(subjects, pa.Array) else binary_array(subjects)
    coded = column.dictionary_encode()
    matches = [pattern.fullmatch(subject) is not None for subject in coded.dictionary.to_pylist()]
    return pc.equal(int_array(matches), int_scalar(1)).take(coded.indices)


def _kept(rows: Rows, keep: pa.BooleanArray) -> Rows:
    times = None if rows.times_ns is None else rows.times_ns.filter(keep)
    return Rows(
        rows.seqs.filter(keep), times, *(_selected(each, keep) for each in (rows.subjects, rows.headers, rows.values))
    )


def _selected(column: Sequence[bytes] | pa.Array, keep: pa.BooleanArray) -> Any:
    """Return the values of a column that `keep` selects; a column that was not requested is empty."""
    if isinstance(column, pa.Array):
        return column.filter(keep)
    return [*compress(column, keep.to_pylist())] if column else []


def _expression(subject_filter: str) -> bytes:
    """Return a regular expression that matches the subjects of one filter."""
    if subject_filter.endswith(".>"):
        return _expression(subject_filter[:-2]) + rb"\..+"
    return rb"\.".join(rb"[^.]+" if token == "*" else re.escape(token.encode()) for token in subject_filter.split("."))


MIN_PART_BYTES: Final = 2 << 20
"""Least data of a part: below this another task does not pay."""
MAX_ZIPPED_PARTS: Final = 8
"""Parts of gzipped data: each task has to decompress all data before its part."""
_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class BlocksPart(InputPartition):
    """Consecutive block files of an archive of version 1, and the sequences of their messages that were deleted."""

    stream: str
    data: DataFile
    blocks: tuple[Block, ...]
    conditions: Conditions
    gone: frozenset[int] = frozenset()


@dataclass(frozen=True)
class RecordsPart(InputPartition):
    """Records of an archive of version 2 from `at` to `stop` (None: to the end); reading begins at the frame `mark`."""

    stream: str
    data: DataFile
    mark: Mark
    at: int
    stop: int | None
    conditions: Conditions


@dataclass(frozen=True)
class SumPart(InputPartition):
    """Data whose SHA-256 is compared with the manifest's; a part without rows."""

    data: DataFile
    sha256: str


ArchivePart = BlocksPart | RecordsPart | SumPart


def archive_partitions(backup: Backup, conditions: Conditions, wanted: int) -> list[ArchivePart]:
    """Return about `wanted` parts of a backup, and one that checks its SHA-256. Raises BackupError."""
    if backup.messages == 0:
        return []
    count = max(min(wanted, backup.data.size // MIN_PART_BYTES, MAX_ZIPPED_PARTS if backup.data.zipped else wanted), 1)
    content = Content(backup.data)
    try:
        is_version_2 = content.read(0, len(MAGIC)) == MAGIC
    finally:
        content.close()
    parts: Sequence[ArchivePart] = (
        _records_parts(backup, conditions, count) if is_version_2 else _blocks_parts(backup, conditions, count)
    )
    return [*parts, SumPart(backup.data, backup.sha256)] if parts and backup.sha256 else [*parts]


def read_archive(part: ArchivePart, shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part. Raises BackupError, which names the place of damage."""
    if isinstance(part, SumPart):
        _check_sum(part)
        return
    pattern = part.conditions.pattern()
    gone = int_array(tuple(part.gone) if isinstance(part, BlocksPart) else ())
    content = Content(part.data, part.blocks[0].mark if isinstance(part, BlocksPart) else part.mark)
    try:
        pieces: Iterator[Rows]
        if isinstance(part, BlocksPart):
            pieces = (rows_of(content, block, shape) for block in part.blocks)
        else:
            pieces = iter(RecordReader(content, part.at, part.stop, shape).rows, None)
        for rows in pieces:
            kept = part.conditions.filtered(rows, pattern, gone)
            if len(kept.seqs):
                yield shape.batch(part.stream, kept)
            if part.conditions.ends_with(rows):
                break
    finally:
        content.close()


def _check_sum(part: SumPart) -> None:
    digest, left = hashlib.sha256(), part.data.size
    with part.data.open() as file:
        file.seek(part.data.offset)
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            digest.update(piece)
            left -= len(piece)
    if digest.hexdigest() != part.sha256:
        raise BackupError(f"{part.data.path} is damaged: its SHA-256 is not the one in its manifest")


def _blocks_parts(backup: Backup, conditions: Conditions, count: int) -> list[BlocksPart]:
    """Return parts of an archive of version 1, cut between block files.

    Deletions are searched for only if messages are missing.
    """
    content = Content(backup.data)
    try:
        blocks = list(blocks_in(content))
    finally:
        content.close()
    gone = frozenset[int]() if backup.whole else _gone(backup, blocks)
    bounded = _from_first(conditions, backup.first_seq)
    ends = [*(block.first_seq for block in blocks[1:]), 0]
    kept = [
        block for block, end in zip(blocks, ends, strict=True) if not _outside(bounded, block.first_seq, end or None)
    ]
    total, groups = sum(block.size for block in kept), list[list[Block]]()
    done = 0
    for block in kept:
        if len(groups) * total <= done * count:
            groups.append([])
        groups[-1].append(block)
        done += block.size
    return [
        BlocksPart(backup.stream, backup.data, tuple(group), bounded, _among(gone, group, following))
        for group, following in zip(groups, [*groups[1:], []], strict=True)
    ]


def _among(gone: frozenset[int], group: Sequence[Block], following: Sequence[Block]) -> frozenset[int]:
    """Return the sequences of `gone` that may be in a group of blocks; `following` is the group after it."""
    first = group[0].first_seq
    end = following[0].first_seq if following else 0
    return frozenset(seq for seq in gone if first <= seq and (not end or seq < end))


def _from_first(conditions: Conditions, first_seq: int | None) -> Conditions:
    """Return the conditions without messages before `first_seq`: limits removed them, but blocks still hold them."""
    first = max(conditions.first or 0, first_seq or 0) or None
    return Conditions(first, conditions.last, conditions.since_ns, conditions.until_ns, conditions.filters)


def _outside(conditions: Conditions, first: int, end: int | None) -> bool:
    """Return whether no sequence from `first` to before `end` meets the conditions; 0 and None are unknown bounds."""
    above = bool(first) and conditions.last is not None and first > conditions.last
    return above or (end is not None and conditions.first is not None and end <= conditions.first)


def _gone(backup: Backup, blocks: Sequence[Block]) -> frozenset[int]:
    """Return the sequences that blocks record as deleted. Reads all blocks."""
    content = Content(backup.data)
    try:
        return frozenset(seq for block in blocks for seq in gone_in(content, block) if seq >= (backup.first_seq or 0))
    finally:
        content.close()


def _records_parts(backup: Backup, conditions: Conditions, count: int) -> list[RecordsPart]:
    """Return parts of an archive of version 2, cut where records are found to begin (`cut_behind`).

    Parts before the first wanted sequence are kept, since only reading up to a cut proves it.
    """
    cuts = [Cut(Mark(), _first_message(backup.data), 0)]
    total = _content_bytes(backup.data) if count > 1 else 0
    content = Content(backup.data)
    try:
        for part in range(1, count):
            cut = cut_behind(content, max(part * total // count, content.mark.at))
            if cut is not None and cut.at > cuts[-1].at:
                cuts.append(cut)
    finally:
        content.close()
    stops = [*(cut.at for cut in cuts[1:]), None]
    return [
        RecordsPart(backup.stream, backup.data, cut.mark, cut.at, stop, conditions)
        for cut, stop in zip(cuts, stops, strict=True)
        if conditions.last is None or cut.seq < conditions.last
    ]


def _first_message(data: DataFile) -> int:
    """Return the place where the messages of an archive of version 2 begin."""
    content = Content(data)
    try:
        return first_message(content)
    finally:
        content.close()


def _content_bytes(data: DataFile) -> int:
    """Return the decoded length of an archive, from the heads of its frames."""
    content = Content(data)
    try:
        return content.total()
    finally:
        content.close()


class BackupReader(DataSourceReader):
    """A reader of backups: the driver plans parts, tasks read them; both need the backup under the same path."""

    def __init__(self, options: Options, shape: RowShape) -> None:
        """Read the options. Raises OptionError if they name the stream twice."""
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
        """Return the parts of all streams to read, none if the filters exclude everything."""
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
        conditions = Conditions(first, last, wanted.since_ns, wanted.until_ns, wanted.subjects or ())
        return [] if first > last else archive_partitions(backup, conditions, share)

    def _bounds(self, backup: Backup) -> tuple[int, int]:
        """Return the first and the last sequence to read of a stream."""
        newest = (1 << 63) - 1 if backup.last_seq is None else backup.last_seq
        first, last = _offset_of(self._start, backup.stream, EARLIEST), _offset_of(self._end, backup.stream, LATEST)
        if first > newest + 1:
            check_said("startingOffsets", first, backup.stream, newest, fail=self._fail)
        check_said("endingOffsets", last, backup.stream, newest, fail=self._fail)
        first = newest + 1 if first == LATEST else max(first, 1)
        last = (1 << 63) - 1 if last == LATEST else last
        return max(first, self._wanted.first or 1), min(last, last if self._wanted.last is None else self._wanted.last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part; the part that Spark makes up if there are none has no rows."""
        if isinstance(partition, get_args(ArchivePart)):
            yield from read_archive(partition, self._shape)


class BackupPushdownReader(BackupReader):
    """Reader of a backup that applies some conditions of WHERE before it makes rows."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters that this reader applies, and return those that Spark has to apply as well."""
        self._wanted, left = push(filters, self._wanted)
        return left


def backup_reader(options: Options, shape: RowShape) -> BackupReader:
    """Return the reader of the backup that the options name."""
    return (BackupPushdownReader if options["filterPushdown"] else BackupReader)(options, shape)


def _stream_patterns(options: Options) -> tuple[str, ...] | None:
    """Return the names or the pattern of the streams to read, None for all streams of the backup."""
    said = [name for name in ("stream", "streamPattern") if options.given(name)]
    if len(said) + bool(options.path) > 1:
        raise OptionError("stream, streamPattern and load() each name what to read of a backup: give one of them")
    if options.given("streamPattern"):
        return (str(options["streamPattern"]),)
    return tuple(options.path.split(",")) if options.path else options["stream"]


def _fits(stream: str, patterns: Iterable[str]) -> bool:
    return any(stream == each or fnmatchcase(stream, each) for each in patterns)


def _offset_of(offsets: str | dict[str, int] | None, stream: str, default: int) -> int:
    """Return the sequence that an offset option gives for a stream, or EARLIEST or LATEST."""
    if isinstance(offsets, dict):
        return offsets.get(stream, default)
    return {"earliest": EARLIEST, "latest": LATEST}.get(offsets or "", default)
