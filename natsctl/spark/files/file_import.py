"""Import of files into a stream.

Files are read as rows of messages: subject, headers, payload, and the stream and sequence that a message had.
"""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from natsctl.api.errors import NotFoundError, UsageError
from natsctl.spark.files.file_formats import (
    CSV,
    DELTA,
    FORMATS,
    JSON,
    PARQUET,
    Format,
    format_of,
    is_pattern,
    is_url,
    missing_format_reported,
    named_format,
    spark_input,
)
from natsctl.spark.files.message_columns import OWN_ID, PLACE, ServerHeader, has, headers_of, kept, payload_of, spelled
from natsctl.spark.sql_tables import literal
from natsctl.spark.stream_frames import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


_SETTINGS = {
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # read once more: cheaper uncompressed
    "spark.sql.legacy.parquet.nanosAsLong": "true",  # times written by pandas, otherwise refused by Spark
}
PIECE_BYTES = 1 << 20
_NO_FILES = "UNABLE_TO_INFER_SCHEMA"
_COLUMNS = "stream string, seq bigint, subject string, headers string, value string"
"""The columns of a file without rows, where the format derives them from rows."""
NUMBER = "_natsctl_row"
"""Column that orders rows without a sequence: by file name, and by position in the file."""
_PLACE_IN_FILES = """
struct(if({seq} is null, _metadata.file_path, null), if({seq} is null, _metadata.file_block_start, null),
       monotonically_increasing_id())"""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file or folder to import; `subject`, if set, replaces the column of that name."""

    path: str
    format: Format
    subject: str = ""
    as_json: bool = False
    """Whether the payload is the row itself as JSON."""


def source_of(path: str, format: str, subject: str, *, as_json: bool) -> FileSource:
    """Return the source that the command line names. Raises UsageError, NotFoundError."""
    if is_url(path):
        return FileSource(path, format_of(path, format), subject, as_json)
    place = Path(path)
    if not place.exists():
        raise NotFoundError(f"{path} does not exist")
    if place.is_dir() and not any(one.is_file() for one in place.rglob("*")):
        raise NotFoundError(f"{path} holds no files")
    found = format_of(path, format) if format else _found_format(place)
    if found is CSV and is_pattern(place.resolve()):
        raise UsageError(f"{path}: Spark reads no CSV in a path with any of []{{}}*?\\", hint="copy it to another")
    return FileSource(path, found, subject, as_json)


def _found_format(place: Path) -> Format:
    """Return the format of a file by its name, of a folder by the files in it. Raises UsageError."""
    if place.is_dir():
        if (place / "_delta_log").is_dir():
            return DELTA
        found = {known.name for one in files_of(place) if (known := named_format(one.name)) is not None}
        if len(found) > 1:
            raise UsageError(f"{place} holds files of several formats", hint=f"--format {'|'.join(FORMATS)} chooses")
        return FORMATS[found.pop()] if found else PARQUET
    known = named_format(place.name)
    if known is None:
        raise UsageError(f"{place} has no ending that names its format", hint=f"give --format {'|'.join(FORMATS)}")
    return known


def files_of(place: Path) -> list[Path]:
    """Return the file itself, or the files of a folder, at any depth, that Spark reads."""
    if not place.is_dir():
        return [place]
    return [one for one in place.rglob("*") if one.is_file() and not _is_hidden(one.relative_to(place))]


def _is_hidden(path: Path) -> bool:
    """Return whether Spark ignores a file because of its name or a parent folder's."""
    return any(part.startswith((".", "_")) for part in path.parts)


def read_rows(spark: SparkSession, source: FileSource) -> DataFrame:
    """Return the rows of the messages: columns subject, headers, value, stream and seq; the last two may be null.

    Raises UsageError for columns that are not what messages need.
    """
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    path = source.path if is_url(source.path) else spark_input(Path(source.path).resolve())
    if source.format.is_text:
        _check_encoding(spark, source, path)
    from natsctl.spark.files.direct_import import noted_schema

    reader = spark.read.format(source.format.name).options(**source.format.reading)
    if noted := noted_schema(source):
        reader = reader.schema(noted)
    with missing_format_reported(source.format):
        frame = _found(spark, reader, source.format, path)
    if source.format is JSON and not source.as_json:
        frame = reader.schema(spelled(frame.schema)).load(path)
    kinds = {name.lower(): kind for name, kind in frame.dtypes}
    if "subject" not in kinds and not source.subject:
        raise UsageError(f"{source.path} has no column subject: {_columns(kinds)}", hint="give --subject SUBJECT")
    if not {"value", "value_base64"} & kinds.keys() and not source.as_json:
        raise UsageError(f"{source.path} has no column value: {_columns(kinds)}", hint="--row-as-json sends whole rows")
    subject = literal(source.subject) if source.subject else "cast(subject as string)"
    payload = "cast(to_json(struct(*)) as binary)" if source.as_json else payload_of(kinds)
    seq = "cast(seq as bigint)" if "seq" in kinds else "cast(null as bigint)"
    return frame.selectExpr(
        f"{'cast(stream as string)' if 'stream' in kinds else 'cast(null as string)'} as stream",
        f"{seq} as seq",
        f"{subject} as subject",
        f"{headers_of(kinds)} as headers",
        f"{payload} as value",
        f"{_PLACE_IN_FILES.format(seq=seq)} as {NUMBER}",
    )


@contextlib.contextmanager
def read_once(rows: DataFrame, format: Format) -> Iterator[DataFrame]:
    """Yield rows to be read several times; text formats are parsed once and kept in memory or on disk.

    What holds columns is read again for less than it costs to keep.
    """
    if not format.is_text:
        yield rows
        return
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _found(spark: SparkSession, reader: DataFrameReader, format: Format, path: str) -> DataFrame:
    """Return the rows with the columns that Spark finds; an export of no messages may have neither files nor lines."""
    from pyspark.errors import AnalysisException

    try:
        frame = reader.load(path)
        if frame.columns or not format.is_text or not spark.read.text(path).where("trim(value) <> ''").isEmpty():
            return frame
    except AnalysisException as failure:
        if failure.getCondition() != _NO_FILES:
            raise
    return reader.schema(_COLUMNS).load(path)


def _check_encoding(spark: SparkSession, source: FileSource, path: str) -> None:
    """Raise UsageError for text that is not UTF-8: Spark would replace invalid bytes."""
    files = [] if is_url(source.path) else files_of(Path(source.path))
    if files and all(file.name.lower().endswith(source.format.endings) for file in files):
        valid = all(map(_is_utf8, files))  # a tenth of what Spark takes for it
    else:
        valid = spark.read.text(path).where("not is_valid_utf8(value)").selectExpr("1").isEmpty()
    if not valid:
        raise UsageError(f"{source.path} is not in UTF-8", hint="iconv or an editor puts it into UTF-8")


def _is_utf8(file: Path) -> bool:
    decode = codecs.getincrementaldecoder("utf-8")().decode
    try:
        with file.open("rb") as content:
            while piece := content.read(PIECE_BYTES):
                decode(piece)
        decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _columns(kinds: dict[str, str]) -> str:
    return f"it has {', '.join(kinds) or 'none'}"


_ID, _OWN = "msgId", "own"


class Content(NamedTuple):
    """The messages to be imported: number, bytes, former sequences, and the headers that are omitted."""

    messages: int
    bytes: int
    refused: str | None
    """One of the subjects that the stream does not take; "" for none at all."""
    first_seq: int | None
    last_seq: int | None
    has_repeated_ids: bool
    """Whether several messages have the same `Nats-Msg-Id`."""
    left_out: dict[str, int]
    """Number of messages with each of the omitted headers."""


def examine(rows: DataFrame, subjects: Sequence[str], omitted: Sequence[ServerHeader]) -> Content:
    """Read all rows once, for a stream with those subjects, without the headers in `omitted`.

    Message ids and omitted headers, if any, are each counted by another pass over that column: a distinct
    count with other aggregates costs Spark two more shuffles.
    """
    from pyspark.sql import functions as f

    subject = f.coalesce(f.col("subject"), f.lit(""))
    total = (
        rows.selectExpr("subject", "seq", "headers", "octet_length(value) as natsctl_bytes", f"{OWN_ID} as {_OWN}")
        .agg(
            f.count(f.lit(1)),
            f.sum("natsctl_bytes"),
            f.min(f.when(~subject.rlike(pattern_of(subjects)), subject)),
            f.min("seq"),
            f.max("seq"),
            f.count(_OWN),
            f.sum(f.expr(has(omitted))),
        )
        .collect()[0]
    )
    counts = _counts(rows, omitted) if total[6] else {}
    is_repeated = bool(total[5]) and rows.select(f.countDistinct(f.expr(OWN_ID))).collect()[0][0] < total[5]
    return Content(total[0], total[1] or 0, total[2], total[3], total[4], is_repeated, counts)


def _counts(rows: DataFrame, omitted: Sequence[ServerHeader]) -> dict[str, int]:
    from pyspark.sql import functions as f

    numbers = rows.agg(*(f.sum(f.expr(has((one,)))) for one in omitted)).collect()[0]
    return {one.name: number for one, number in zip(omitted, numbers, strict=True) if number}


def subjects_of(rows: DataFrame) -> int:
    """Return the number of subjects; reads that column of all rows."""
    return rows.select("subject").distinct().count()


def pattern_of(subjects: Sequence[str]) -> str:
    """Return a Java regular expression for the subjects of a stream."""
    token = {"*": r"[^.\s]+", ">": r"[^\s]+"}
    patterns = [r"\.".join(token.get(part) or f"\\Q{part}\\E" for part in subject.split(".")) for subject in subjects]
    return f"^(?:{'|'.join(patterns) or '$.'})$"


def check_subjects(stream: str, subjects: Sequence[str], content: Content) -> None:
    """Raise UsageError for a subject that the stream does not take."""
    if content.refused is not None:
        raise UsageError(
            f"Stream {stream} does not take messages on {content.refused or 'no subject'}: "
            f"it listens on {', '.join(subjects) or 'nothing'}",
            hint="--subject gives all messages another; natsctl str edit --subjects has it listen on more",
        )


def messages(
    rows: DataFrame, ids: str, writers: int, omitted: Sequence[ServerHeader], *, has_repeated_ids: bool = False
) -> DataFrame:
    """Return the rows to write: in order, with ids as asked for (one of `IDS`), without the headers of `omitted`.

    One writer keeps the order of all messages, several keep the order per subject.
    """
    headers = f"{kept(omitted)} as headers"
    frame = rows.selectExpr("stream", "seq", "subject", headers, "value", NUMBER, f"{OWN_ID} as {_OWN}")
    frame = frame.selectExpr("*", f"{_id_of(frame, ids, has_repeated_ids=has_repeated_ids)} as {_ID}")
    frame = frame.repartition(writers, "subject") if writers > 1 else frame.repartition(1)
    return frame.sortWithinPartitions("stream", "seq", NUMBER).select("subject", "headers", "value", _ID)


def _id_of(frame: DataFrame, ids: str, *, has_repeated_ids: bool) -> str:
    if ids == "own":
        return _OWN
    if ids == "seq":
        return f"coalesce({PLACE}, {_OWN})"
    if not has_repeated_ids:
        return f"coalesce({_OWN}, {PLACE})"
    repeated = frame.where(f"{_OWN} is not null").groupBy(_OWN).count().where("count > 1")
    repeated.select(_OWN).createOrReplaceTempView("natsctl_repeated_ids")
    return f"coalesce(if({_OWN} in (table natsctl_repeated_ids), null, {_OWN}), {PLACE}, {_OWN})"


def store(frame: DataFrame, options: Mapping[str, str], ids: str, name: str) -> None:
    """Publish the messages and wait for all acks; rows without an id get one made of their content and `name`.

    Raises what Spark raises.
    """
    frame.write.format(FORMAT).options(**write_options(options, ids, name)).mode("append").save()


def write_options(options: Mapping[str, str], ids: str, name: str) -> dict[str, str]:
    """Return the options of the data source for an import, in addition to those of the server."""
    return {**options, **({"idempotence": "none"} if ids == "own" else {"writeId": name})}
