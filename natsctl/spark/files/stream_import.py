"""Import of rows of files into a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.spark.files.import_source import NUMBER
from natsctl.spark.files.message_columns import OWN_ID, PLACE, Obeyed, has, kept
from natsctl.spark.sql.views import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_ID, _OWN = "msgId", "own"


class Content(NamedTuple):
    """The messages to be imported: how many, how large, where they were before, and what of them is left out."""

    messages: int
    bytes: int
    refused: str | None
    """One of the subjects that the stream does not take; "" for none at all."""
    first_seq: int | None
    last_seq: int | None
    has_repeated_ids: bool
    """Whether several messages have the same id of their own."""
    left_out: dict[str, int]
    """The number of messages that have a header that is left out, by its name."""


def look(rows: DataFrame, taken: Sequence[str], left: Sequence[Obeyed]) -> Content:
    """Read all rows once, for a stream that takes those subjects and is not sent those headers.

    Ids of their own, and headers that are left out, are each counted by another pass over that column, where there are
    any: a distinct count beside other ones takes Spark two more shuffles.
    """
    from pyspark.sql import functions as f

    subject = f.coalesce(f.col("subject"), f.lit(""))
    total = (
        rows.selectExpr("subject", "seq", "headers", "octet_length(value) as natsctl_bytes", f"{OWN_ID} as {_OWN}")
        .agg(
            f.count(f.lit(1)),
            f.sum("natsctl_bytes"),
            f.min(f.when(~subject.rlike(pattern_of(taken)), subject)),
            f.min("seq"),
            f.max("seq"),
            f.count(_OWN),
            f.sum(f.expr(has(left))),
        )
        .collect()[0]
    )
    counts = _counts(rows, left) if total[6] else {}
    is_repeated = bool(total[5]) and rows.select(f.countDistinct(f.expr(OWN_ID))).collect()[0][0] < total[5]
    return Content(total[0], total[1] or 0, total[2], total[3], total[4], is_repeated, counts)


def _counts(rows: DataFrame, left: Sequence[Obeyed]) -> dict[str, int]:
    """Return the number of messages with each of those headers, of those that are there."""
    from pyspark.sql import functions as f

    numbers = rows.agg(*(f.sum(f.expr(has((one,)))) for one in left)).collect()[0]
    return {one.name: number for one, number in zip(left, numbers, strict=True) if number}


def subjects_of(rows: DataFrame) -> int:
    """Return the number of subjects; reads that column of all rows."""
    return rows.select("subject").distinct().count()


def pattern_of(taken: Sequence[str]) -> str:
    """Return a regular expression of Java for the subjects that a stream takes."""
    token = {"*": r"[^.\s]+", ">": r"[^\s]+"}
    patterns = [r"\.".join(token.get(part) or f"\\Q{part}\\E" for part in one.split(".")) for one in taken]
    return f"^(?:{'|'.join(patterns) or '$.'})$"


def check_subjects(stream: str, taken: Sequence[str], content: Content) -> None:
    """Raise UsageError for a subject that the stream does not take."""
    if content.refused is not None:
        raise UsageError(
            f"Stream {stream} does not take messages on {content.refused or 'no subject'}: "
            f"it listens on {', '.join(taken) or 'nothing'}",
            hint="--subject gives all messages another; natsctl str edit --subjects has it listen on more",
        )


def messages(
    rows: DataFrame, ids: str, writers: int, left: Sequence[Obeyed], *, has_repeated_ids: bool = False
) -> DataFrame:
    """Return the rows to write: in order, with ids as asked for (one of `IDS`), without the headers of `left`.

    One writer keeps the order of all messages, several that of each subject.
    """
    headers = f"{kept(left)} as headers"
    frame = rows.selectExpr("stream", "seq", "subject", headers, "value", NUMBER, f"{OWN_ID} as {_OWN}")
    frame = frame.selectExpr("*", f"{_id_of(frame, ids, has_repeated_ids=has_repeated_ids)} as {_ID}")
    frame = frame.repartition(writers, "subject") if writers > 1 else frame.repartition(1)
    return frame.sortWithinPartitions("stream", "seq", NUMBER).select("subject", "headers", "value", _ID)


def _id_of(frame: DataFrame, ids: str, *, has_repeated_ids: bool) -> str:
    """Return the expression of a message's id."""
    if ids == "own":
        return _OWN
    if ids == "seq":
        return f"coalesce({PLACE}, {_OWN})"
    if not has_repeated_ids:
        return f"coalesce({_OWN}, {PLACE})"
    repeated = frame.where(f"{_OWN} is not null").groupBy(_OWN).count().where("count > 1")
    repeated.select(_OWN).createOrReplaceTempView("natsctl_repeated_ids")
    return f"coalesce(if({_OWN} in (select {_OWN} from natsctl_repeated_ids), null, {_OWN}), {PLACE}, {_OWN})"


def store(frame: DataFrame, options: Mapping[str, str], ids: str, name: str) -> None:
    """Publish the messages, all acknowledged; rows without an id get one of their content and the import's `name`.

    Raises what Spark raises.
    """
    frame.write.format(FORMAT).options(**write_options(options, ids, name)).mode("append").save()


def write_options(options: Mapping[str, str], ids: str, name: str) -> dict[str, str]:
    """Return the options of the data source for an import, in addition to those of the server."""
    return {**options, **({"idempotence": "none"} if ids == "own" else {"writeId": name})}
