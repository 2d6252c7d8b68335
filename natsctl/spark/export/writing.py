"""Writes the messages of a stream as files."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from natsctl.api.errors import StorageError
from natsctl.client.whole_file import whole_file
from natsctl.spark.export.columns import WRITTEN, written
from natsctl.spark.export.delta import told
from natsctl.spark.export.formats import is_url
from natsctl.spark.export.merging import merge
from natsctl.spark.export.report import Exported
from natsctl.spark.paths import spark_path
from natsctl.spark.sql.catalogue import STREAM_COLUMNS
from natsctl.spark.sql.views import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from natsctl.spark.export.target import Target

PARTS = "part-*"
_TIMES = "spark.sql.parquet.outputTimestampType"


def export(spark: SparkSession, options: Mapping[str, str], stream: str, target: Target) -> Exported:
    """What was written: the messages that the options tell of, all at once.

    What was there before is replaced when everything is written. Raises StorageError, and what Spark raises.
    """
    from pyspark.sql import Observation

    observed = Observation()
    frame = read_stream(spark, options, list(STREAM_COLUMNS)).observe(observed, *_counts())
    spark.conf.set(_TIMES, "TIMESTAMP_MICROS")
    writer = writer_of(frame, target)
    files = 0
    with told(target.format):
        if is_url(target.path):
            writer.mode("overwrite" if target.force else "errorifexists").save(target.path)
        else:
            files = _write_local(writer, target, observed)
    return Exported(stream=stream, path=target.path, format=target.format.name, files=files, **_numbers(observed.get))


def writer_of(frame: DataFrame, target: Target) -> DataFrameWriter:
    """What writes messages in the target's format, in the order of sequences within each file."""
    shaped = frame.selectExpr(*written(target.format, target.partition_by))
    if target.partition_by:
        shaped = shaped.sortWithinPartitions(target.partition_by, "seq")
    writer = shaped.write.format(target.format.name).options(**target.format.writing)
    if target.is_gzip:
        writer = writer.option("compression", "gzip")
    if target.is_file and "header" in target.format.writing:
        writer = writer.option("header", "false")  # one for the whole file, not one for each part
    return writer.partitionBy(target.partition_by) if target.partition_by else writer


def _write_local(writer: DataFrameWriter, target: Target, observed: Any) -> int:
    """Write beside the target and put it in place; the number of files."""
    path = target.local
    aside = path.parent.resolve() / f".natsctl-{secrets.token_hex(8)}.part"
    try:
        writer.save(spark_path(aside))
        parts = sorted(aside.rglob(PARTS))
        check_written(int(observed.get.get("messages") or 0), len(parts), path)
        if not target.is_file:
            replace_folder(aside, path)
            return len(parts)
        with whole_file(path) as file:
            merge(parts, target, header(target), file)
        return 1
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_written(messages: int, files: int, path: Path) -> None:
    """Raises StorageError where messages were written, and no file of them is seen here."""
    if messages and not files:
        raise StorageError(
            f"Spark wrote {path} on other machines, whose disks are not seen here",
            hint="name a place that all of them have, such as s3a://bucket/folder",
        )


def header(target: Target) -> bytes:
    """The line of names that a single file of CSV begins with."""
    columns = WRITTEN.get(target.format.name, {})
    names = ",".join(f'"{name}"' for name in columns)
    return f"{names}\n".encode() if "header" in target.format.writing else b""


def replace_folder(new: Path, path: Path) -> None:
    """Have the new folder in the place of another, or of none, which is removed when the new one is there."""
    path = path.resolve()  # a link stays, and what it leads to is replaced
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
