"""Stores the rows of files in a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from natsctl.api.errors import UsageError
from natsctl.spark.loading.headers import OWN_ID, PLACE, Obeyed, has, kept
from natsctl.spark.loading.source import NUMBER
from natsctl.spark.sql.views import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ID, _OWN = "msgId", "own"


class Content(NamedTuple):
    """What is to be imported: how many messages, with which of how many subjects, and how many have no sequence."""

    messages: int
    bytes: int
    refused: str | None
    """One of the subjects that the stream does not take; "" for none at all."""
    number_of_subjects: int
    first_seq: int | None
    last_seq: int | None
    without_place: int
    left_out: dict[str, int]
    """How many messages have headers that are left out, by the name of those."""


def look(rows: DataFrame, taken: Sequence[str], left: Sequence[Obeyed]) -> Content:
    """What the rows hold, all read once, for a stream that takes those subjects and is not sent those headers."""
    from pyspark.sql import functions as f

    by_subject = rows.groupBy("subject").agg(
        f.count(f.lit(1)).alias("messages"),
        f.sum(f.octet_length("value")).alias("bytes"),
        f.min("seq").alias("first"),
        f.max("seq").alias("last"),
        f.sum(f.expr(f"if({PLACE} is null, 1, 0)")).alias("without_place"),
        *(f.sum(f.expr(has(one))).alias(one.name) for one in left),
    )
    total = by_subject.agg(
        f.sum("messages"),
        f.sum("bytes"),
        f.min(
            f.when(~f.coalesce(f.col("subject"), f.lit("")).rlike(pattern_of(taken)), f.coalesce("subject", f.lit("")))
        ),
        f.count(f.lit(1)),
        f.min("first"),
        f.max("last"),
        f.sum("without_place"),
        *(f.sum(f"`{one.name}`") for one in left),
    ).collect()[0]
    counts = {one.name: total[at] for at, one in enumerate(left, 7) if total[at]}
    return Content(total[0] or 0, total[1] or 0, total[2], total[3], total[4], total[5], total[6] or 0, counts)


def pattern_of(taken: Sequence[str]) -> str:
    """A regular expression of Java for the subjects that a stream takes."""
    token = {"*": r"[^.\s]+", ">": r"[^\s]+"}
    patterns = [r"\.".join(token.get(part) or f"\\Q{part}\\E" for part in one.split(".")) for one in taken]
    return f"^(?:{'|'.join(patterns) or '$.'})$"


def check_subjects(stream: str, taken: Sequence[str], content: Content) -> None:
    """Raises UsageError for a subject that the stream does not take."""
    if content.refused is not None:
        raise UsageError(
            f"Stream {stream} does not take messages on {content.refused or 'no subject'}: "
            f"it listens on {', '.join(taken) or 'nothing'}",
            hint="--subject gives all messages another; natsctl str edit --subjects has it listen on more",
        )


def messages(rows: DataFrame, ids: str, writers: int, left: Sequence[Obeyed]) -> DataFrame:
    """The rows as the data source writes them: in order, with ids as asked for (one of `IDS`), without some headers.

    One writer keeps the order of all messages, several that of each subject.
    """
    headers = f"{kept(left)} as headers"
    frame = rows.selectExpr("stream", "seq", "subject", headers, "value", NUMBER, f"{OWN_ID} as {_OWN}")
    frame = frame.selectExpr("*", f"{_id_of(frame, ids)} as {_ID}")
    frame = frame.repartition(writers, "subject") if writers > 1 else frame.repartition(1)
    return frame.sortWithinPartitions("stream", "seq", NUMBER).select("subject", "headers", "value", _ID)


def _id_of(frame: DataFrame, ids: str) -> str:
    """The expression of a message's id."""
    if ids == "own":
        return _OWN
    if ids == "seq":
        return f"coalesce({PLACE}, {_OWN})"
    repeated = frame.where(f"{_OWN} is not null").groupBy(_OWN).count().where("count > 1")
    if repeated.isEmpty():
        return f"coalesce({_OWN}, {PLACE})"
    repeated.select(_OWN).createOrReplaceTempView("natsctl_repeated_ids")
    return f"coalesce(if({_OWN} in (select {_OWN} from natsctl_repeated_ids), null, {_OWN}), {PLACE}, {_OWN})"


def store(frame: DataFrame, options: Mapping[str, str], ids: str, name: str) -> None:
    """Publish the messages, all acknowledged; rows without an id get one of their content and the import's `name`.

    Raises what Spark raises.
    """
    repeatable = {"idempotence": "none"} if ids == "own" else {"writeId": name}
    frame.write.format(FORMAT).options(**options, **repeatable).mode("append").save()
