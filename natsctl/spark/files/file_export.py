"""Export of a stream's messages to files: a single file, a folder, or a folder that each export adds to.

Parquet and Delta keep bytes as they are. JSON and CSV hold text: a UTF-8 payload is in `value` unchanged,
any other as base64 (`value_base64` in JSON, `value` with `base64` in the column `encoding` in CSV), so that every byte
comes back (`message_columns`). CSV uses base64 also for texts with line ends and other control characters: its
readers treat each in its own way.

Tasks of Spark write parts; a single file is made of these, in the order of the tasks.

An incremental export adds the messages since the last run, each exactly once. Spark's checkpoint lies in the folder
next to the data, under a name that readers skip, with a note about the export. Spark's own readers read
only files of finished batches; files of an interrupted batch are removed here at the end of the next
run, so that any reader sees each message once.
"""

from __future__ import annotations

import gzip
import json
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from natsctl.api.errors import StorageError, UsageError
from natsctl.api.model import Model
from natsctl.client.atomic_file import atomic_write
from natsctl.spark.files.file_formats import (
    CSV,
    GZIP,
    JSON,
    Format,
    format_of,
    is_gzip,
    is_url,
    missing_format_reported,
    named_format,
    spark_path,
)
from natsctl.spark.stream_frames import FORMAT, STREAM_COLUMNS, read_stream, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession


TEXT, BASE64 = "text", "base64"
_VALID = "is_valid_utf8(cast({0} as string))"
_HEADER_TEXTS = f"""
transform(headers, pair -> named_struct(
    'key', pair.key,
    'value', if({_VALID.format("pair.value")}, cast(pair.value as string), null),
    'value_base64', if({_VALID.format("pair.value")}, null, base64(pair.value))))"""
_PLAIN_TEXT = f"({_VALID.format('value')} and not rlike(cast(value as string), r'[\\x00-\\x1f\\x7f]'))"

_MESSAGE = {name: name for name in ("stream", "seq", "subject", "timestamp")}
WRITTEN: Mapping[str, Mapping[str, str]] = {
    JSON.name: {
        **_MESSAGE,
        "headers": _HEADER_TEXTS,
        "value": f"if({_VALID.format('value')}, cast(value as string), null)",
        "value_base64": f"if({_VALID.format('value')}, null, base64(value))",
    },
    CSV.name: {
        **_MESSAGE,
        "headers": f"to_json({_HEADER_TEXTS})",
        "value": f"if({_PLAIN_TEXT}, cast(value as string), base64(value))",
        "encoding": f"if({_PLAIN_TEXT}, '{TEXT}', '{BASE64}')",
    },
}
"""Each column of a text format as an expression of the source's columns."""
WHOLE = {**_MESSAGE, "headers": "headers", "value": "value"}
"""The columns of a format that holds bytes."""

DATE = "cast(timestamp as date)"


def written(format: Format, partition_by: str) -> list[str]:
    """Return the expressions to select from messages for a format, with the column to partition by."""
    columns = dict(WRITTEN.get(format.name, WHOLE))
    if partition_by == "date":
        columns["date"] = DATE
    return [f"{expression} as `{name}`" for name, expression in columns.items()]


OWN: Final = "_natsctl"
"""The folder with the state of an incremental export; readers ignore names that begin so."""
PARTITIONS: Final = ("date", "subject")
_OF_EXPORTS = re.compile(r"\.?part-.*|_SUCCESS|\._SUCCESS\.crc|_spark_metadata|_natsctl|_delta_log|[^=]+=.*|\..*\.crc")


@dataclass(frozen=True, slots=True)
class FileTarget:
    """The place and the format of an export."""

    path: str
    format: Format
    partition_by: str = ""
    incremental: bool = False
    force: bool = False

    @property
    def is_file(self) -> bool:
        """Return whether the output is one file: its path ends as such files do, and nothing needs a folder."""
        if self.partition_by or self.incremental or self.format.is_folder or is_url(self.path):
            return False
        return named_format(self.path) is self.format and not self.path.endswith("/")

    @property
    def is_gzip(self) -> bool:
        return is_gzip(self.path)

    @property
    def local(self) -> Path:
        return Path(self.path)

    def check(self) -> None:
        """Raise UsageError if it is not writable, or has data that must not be lost."""
        if self.partition_by and self.partition_by not in PARTITIONS:
            raise UsageError(f"--partition-by: expected date or subject, not {self.partition_by!r}")
        if self.is_gzip and not self.format.is_text:
            raise UsageError(f"{self.path}: {self.format.name} is compressed already", hint=f"leave out {GZIP}")
        if not is_url(self.path):
            self._check_local()

    def _check_local(self) -> None:
        path = self.local
        if self.is_file and path.is_dir():
            raise UsageError(f"{path} is a folder", hint="name a file, or a folder without the ending of one")
        if not path.parent.is_dir():
            raise UsageError(f"{path.parent} is no folder")
        if not self.is_file and path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file", hint="name a folder")
        if self._is_there():
            if not self.force:
                raise UsageError(f"{path} exists", hint="name another path, or give --force to replace it")
            if others := sorted(foreign(path)):
                raise UsageError(f"{path} is no export: it holds {others[0]}", hint="name another path")

    def _is_there(self) -> bool:
        path = self.local
        if not path.is_dir():
            return path.exists()
        begun = self.incremental and not self.force and (path / OWN).is_dir()
        return not begun and next(path.iterdir(), None) is not None


def target_of(path: str, format: str, partition_by: str, *, incremental: bool, force: bool) -> FileTarget:
    """Return the target that the command line names. Raises UsageError."""
    target = FileTarget(path, format_of(path, format), partition_by, incremental, force)
    target.check()
    return target


def foreign(path: Path) -> Iterator[str]:
    """Yield the names in a folder that no export made."""
    if path.is_dir():
        yield from (one.name for one in path.iterdir() if not _OF_EXPORTS.fullmatch(one.name))


def merge(parts: Sequence[Path], target: FileTarget, header: bytes, file: IO[bytes]) -> None:
    """Write the content of the parts, after a header if the format has one."""
    if target.format.is_text:
        file.write(gzip.compress(header) if header and target.is_gzip else header)
        _append(parts, file)
    elif len(parts) == 1:
        _append(parts, file)
    else:
        _join_tables(parts, file)


def _append(parts: Sequence[Path], file: IO[bytes]) -> None:
    """Concatenate files: texts, also compressed ones, are one text then."""
    for part in parts:
        with part.open("rb") as piece:
            shutil.copyfileobj(piece, file, 1 << 20)


def _join_tables(parts: Sequence[Path], file: IO[bytes]) -> None:
    """Write files of Parquet as one, a group of rows after the other in memory."""
    import pyarrow.parquet as pq

    writer = None
    try:
        for part in parts:
            with pq.ParquetFile(part) as table:
                if writer is None:
                    writer = pq.ParquetWriter(file, table.schema_arrow)
                for group in range(table.num_row_groups):
                    writer.write_table(table.read_row_group(group))
    finally:
        if writer is not None:
            writer.close()


class Exported(Model, kw_only=True):
    """The written messages; `bytes` counts payloads, `files` is 0 if they are not on this machine.

    For a continued export only the additions of this run; `first_seq` is 0 then, and if there was nothing.
    """

    stream: str
    path: str
    format: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    files: int


PARTS = "part-*"
_TIMES = "spark.sql.parquet.outputTimestampType"


def export(spark: SparkSession, options: Mapping[str, str], stream: str, target: FileTarget) -> Exported:
    """Write the messages that the options name, all at once, and return the totals.

    Previous data is replaced once everything is written. Raises StorageError and Spark's errors.
    """
    from pyspark.sql import Observation

    observed = Observation()
    frame = read_stream(spark, options, STREAM_COLUMNS).observe(observed, *_counts())
    spark.conf.set(_TIMES, "TIMESTAMP_MICROS")
    writer = writer_of(frame, target)
    files = 0
    with missing_format_reported(target.format):
        if is_url(target.path):
            writer.mode("overwrite" if target.force else "errorifexists").save(target.path)
        else:
            files = _write_local(writer, target, observed)
    return Exported(stream=stream, path=target.path, format=target.format.name, files=files, **_numbers(observed.get))


def writer_of(frame: DataFrame, target: FileTarget) -> DataFrameWriter:
    """Return a writer of messages in the target's format, in the order of sequences within each file."""
    shaped = frame.selectExpr(*written(target.format, target.partition_by))
    if target.partition_by:
        shaped = shaped.sortWithinPartitions(target.partition_by, "seq")
    writer = shaped.write.format(target.format.name).options(**target.format.writing)
    if target.is_gzip:
        writer = writer.option("compression", "gzip")
    if target.is_file and "header" in target.format.writing:
        writer = writer.option("header", "false")  # one for the whole file, not one for each part
    return writer.partitionBy(target.partition_by) if target.partition_by else writer


def _write_local(writer: DataFrameWriter, target: FileTarget, observed: Any) -> int:
    """Write next to the target, move that into place, and return the number of files."""
    path = target.local
    aside = path.parent.resolve() / f".natsctl-{secrets.token_hex(8)}.part"
    try:
        writer.save(spark_path(aside))
        parts = sorted(aside.rglob(PARTS))
        check_written(int(observed.get.get("messages") or 0), len(parts), path)
        if not target.is_file:
            replace_folder(aside, path)
            return len(parts)
        with atomic_write(path) as file:
            merge(parts, target, header(target), file)
        return 1
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_written(messages: int, files: int, path: Path) -> None:
    """Raise StorageError where messages were written, but none of their files is visible here."""
    if messages and not files:
        raise StorageError(
            f"Spark wrote {path} on other machines: their disks are not visible here",
            hint="name a place that all of them have, such as s3a://bucket/folder",
        )


def header(target: FileTarget) -> bytes:
    """Return the line of names that a single file of CSV begins with."""
    columns = WRITTEN.get(target.format.name, {})
    names = ",".join(f'"{name}"' for name in columns)
    return f"{names}\n".encode() if "header" in target.format.writing else b""


def replace_folder(new: Path, path: Path) -> None:
    """Move the new folder into place; an old one is removed afterwards."""
    path = path.resolve()  # a link stays, its target is replaced
    if not path.is_dir():
        new.rename(path)
        return
    old = path.with_name(f".natsctl-{secrets.token_hex(8)}.old")
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _counts() -> list[Any]:
    from pyspark.sql import functions as f

    return [
        f.count(f.lit(1)).alias("messages"),
        f.coalesce(f.sum(f.octet_length("value")), f.lit(0)).alias("bytes"),
        f.coalesce(f.min("seq"), f.lit(0)).alias("first_seq"),
        f.coalesce(f.max("seq"), f.lit(0)).alias("last_seq"),
    ]


def _numbers(observed: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(observed.get(name) or 0) for name in ("messages", "bytes", "first_seq", "last_seq")}


CHECKPOINT, NOTE = "checkpoint", "export.json"
SINK_LOG = "_spark_metadata"
_KEPT_PROGRESS = 100_000


class Note(msgspec.Struct, kw_only=True):
    """The subject of an export; later runs must mean the same."""

    stream: str
    subject: str
    format: str
    partition_by: str
    version: int = 1
    """The version of this note and of the data."""


def prepare(target: FileTarget, note: Note) -> None:
    """Begin an incremental export, or make sure that the one in the folder is the same. Raises UsageError."""
    own = target.local / OWN
    path = own / NOTE
    if target.force and target.local.is_dir():
        shutil.rmtree(target.local)
    if not path.is_file():
        own.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(msgspec.json.format(msgspec.json.encode(note)))
        return
    begun = msgspec.json.decode(path.read_bytes(), type=Note)
    if begun.version != note.version:
        raise UsageError(
            f"{target.path} is an export of version {begun.version}, this natsctl continues {note.version}",
            hint="use the natsctl that made it, or name another folder",
        )
    for name, is_now in msgspec.structs.asdict(note).items():
        was = getattr(begun, name)
        if was != is_now:
            raise UsageError(
                f"{target.path} is an export with {name.replace('_', ' ')} {was or 'none'}, not {is_now or 'none'}",
                hint="name another folder, or give --force to start over",
            )


def export_more(spark: SparkSession, options: Mapping[str, str], stream: str, target: FileTarget) -> Exported:
    """Add all messages of the stream that no earlier run has written, and return the totals."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(_KEPT_PROGRESS))
    reader = spark.readStream.format(FORMAT).schema(schema_of(STREAM_COLUMNS)).options(**options)
    frame = reader.load().selectExpr(*written(target.format, target.partition_by))
    writer = frame.writeStream.format(target.format.name).options(**target.format.writing)
    if target.partition_by:
        writer = writer.partitionBy(target.partition_by)
    folder = target.local.resolve()
    checkpoint = spark_path(folder / OWN / CHECKPOINT)
    with missing_format_reported(target.format):
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(spark_path(folder))
    query.awaitTermination()
    if failure := query.exception():
        raise failure
    remove_strays(folder)
    done = report_of(query.recentProgress, stream, target)
    check_written(done.messages, done.files, target.local)
    return done


def report_of(progress: Iterable[Any], stream: str, target: FileTarget) -> Exported:
    """Return the totals, from Spark's progress of each batch."""
    # A Spark Connect server omits the total rows of a batch; rows of each source are always reported.
    sources: list[Any] = [source for one in progress for source in one["sources"]]
    return Exported(
        stream=stream,
        path=target.path,
        format=target.format.name,
        messages=sum(int(source["numInputRows"] or 0) for source in sources),
        bytes=0,
        first_seq=0,
        last_seq=max((_sequence(source["endOffset"], stream) for source in sources), default=0),
        files=sum(1 for _ in target.local.rglob("part-*")),
    )


def _sequence(offset: Any, stream: str) -> int:
    while isinstance(offset, str):
        offset = json.loads(offset)
    streams = offset.get("streams", {}) if isinstance(offset, dict) else {}
    return int(streams.get(stream, {}).get("seq", 0))


def remove_strays(folder: Path) -> int:
    """Remove files that no finished batch has named, and return their number. No run may be under way."""
    log = folder / SINK_LOG
    if not log.is_dir():
        return 0
    named = {name for entry in log.iterdir() if not entry.name.startswith(".") for name in _files(entry)}
    if not named:
        return 0
    strays = [path for path in folder.rglob("part-*") if path.name not in named]
    for path in strays:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return len(strays)


def _files(entry: Path) -> list[str]:
    """Return the names of the files of a batch, or of several that were put together."""
    lines = entry.read_text(encoding="utf-8").splitlines()[1:]
    return [json.loads(line)["path"].rsplit("/", 1)[-1] for line in lines if line]
