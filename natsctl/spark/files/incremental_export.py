"""An export that continues where it ended: each run adds the messages that came since, each exactly once.

Spark's checkpoint lies in the folder beside the data, under a name that readers pass over, with a note of what is being
exported. Spark's own readers take only files that a finished batch has named; those of a batch that was cut short are
removed here at the end of the next run, so that any reader sees each message once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.errors import UsageError
from natsctl.client.atomic_file import atomic_write
from natsctl.spark.files.export import OWN, Exported, Target, check_written, written
from natsctl.spark.files.formats import told
from natsctl.spark.paths import spark_path
from natsctl.spark.sql.catalogue import STREAM_COLUMNS
from natsctl.spark.sql.views import FORMAT, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CHECKPOINT, NOTE = "checkpoint", "export.json"
SINK_LOG = "_spark_metadata"
BATCH_MESSAGES = 1_000_000
"""Messages of one batch, the most that an interrupted run has to read again."""
_KEPT_PROGRESS = 100_000


class Note(msgspec.Struct, kw_only=True):
    """The subject of an export; later runs must mean the same."""

    stream: str
    subject: str
    format: str
    partition_by: str


def prepare(target: Target, note: Note) -> None:
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
    for name, is_now in msgspec.structs.asdict(note).items():
        was = getattr(begun, name)
        if was != is_now:
            raise UsageError(
                f"{target.path} is an export with {name.replace('_', ' ')} {was or 'none'}, not {is_now or 'none'}",
                hint="name another folder, or give --force to begin anew",
            )


def export_more(spark: SparkSession, options: Mapping[str, str], stream: str, target: Target) -> Exported:
    """Add all messages of the stream that no earlier run has written, and return the totals."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(_KEPT_PROGRESS))
    reader = spark.readStream.format(FORMAT).schema(schema_of(list(STREAM_COLUMNS))).options(**options)
    frame = reader.load().selectExpr(*written(target.format, target.partition_by))
    writer = frame.writeStream.format(target.format.name).options(**target.format.writing)
    if target.partition_by:
        writer = writer.partitionBy(target.partition_by)
    folder = target.local.resolve()
    checkpoint = spark_path(folder / OWN / CHECKPOINT)
    with told(target.format):
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(spark_path(folder))
    query.awaitTermination()
    if failure := query.exception():
        raise failure
    remove_strays(folder)
    done = report_of(query.recentProgress, stream, target)
    check_written(done.messages, done.files, target.local)
    return done


def report_of(progress: Iterable[Any], stream: str, target: Target) -> Exported:
    """Return the totals, from Spark's progress of each batch."""
    # A Spark Connect server leaves out the rows of a batch in all; those of each source are always reported.
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
    """Return the sequence that an offset of the source has for a stream."""
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
