"""Counts the messages of a stream on Spark: one pass over them, and one over sequences where some are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from natsctl.spark.loading.headers import OWN_ID
from natsctl.spark.report.digest import (
    ALL,
    BLOCK,
    BLOCK_MESSAGES,
    HEADER,
    ID,
    PAYLOAD,
    SIZE,
    SLOT,
    SUBJECT,
    Counted,
    Counts,
    gap,
    report_of,
)
from natsctl.spark.report.model import DeepReport, Gap, Gaps
from natsctl.spark.sql.views import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_ROWS: Final = 20
"""Subjects, headers, ids and payloads that are listed; the most frequent."""
MOST_GAPS: Final = 100
_LISTED = (SUBJECT, HEADER, ID, PAYLOAD)
_REPEATED = (ID, PAYLOAD)
_EXACT_BYTES: Final = 4096
_ID = "own_id"
_ROUNDED_SIZE = f"""
if(bytes <= {_EXACT_BYTES}, bytes,
   cast(round(bytes / pow(2, floor(log2(bytes)) - 10)) * pow(2, floor(log2(bytes)) - 10) as bigint))"""
"""The size as a key: exact where it is small, else in steps of a thousandth, so that there are few keys."""
_HEADER_BYTES = """
coalesce(aggregate(headers, 0, (sum, pair) -> sum + octet_length(pair.key) + octet_length(pair.value) + 4), 0)"""


def deep_report(
    spark: SparkSession, options: Mapping[str, str], stream: str, slot_s: float, *, payloads: bool = False
) -> DeepReport:
    """The report on the messages that the options tell of; with `payloads` equal ones are found too."""
    counts = Counts(_count(spark, options, slot_s, payloads))
    gaps = _gaps(spark, options, counts)
    return report_of(stream, counts, slot_s, gaps, payloads=payloads)


def _count(spark: SparkSession, options: Mapping[str, str], slot_s: float, payloads: bool) -> list[Counted]:
    frame = read_stream(spark, options, ["seq", "subject", "timestamp", "headers", "value"])
    kept = ["seq", "subject", "unix_micros(timestamp) as us", "octet_length(value) as bytes", "headers"]
    kept += [f"{OWN_ID} as {_ID}"]
    kept += ["sha2(value, 256) as payload"] if payloads else []
    frame = frame.selectExpr(*kept, f"{_HEADER_BYTES} as header_bytes")
    rows = frame.selectExpr("seq", "us", "bytes", "header_bytes", _ID, f"inline({_keys(slot_s, payloads)})")
    return [Counted(*row) for row in _listed(_summed(rows)).collect()]


def _keys(slot_s: float, payloads: bool) -> str:
    """What a message counts for, as an array of kinds and keys."""
    slot = f"floor(us / {round(slot_s * 1_000_000)})"
    single = {
        ALL: "''",
        SUBJECT: "subject",
        SLOT: f"cast({slot} as string)",
        SIZE: f"cast({_ROUNDED_SIZE} as string)",
        BLOCK: f"cast(seq div {BLOCK_MESSAGES} as string)",
        **({PAYLOAD: "payload"} if payloads else {}),
    }
    structs = ", ".join(f"struct('{kind}' as kind, {key} as key)" for kind, key in single.items())
    ids = f"if({_ID} is null, array(), array(struct('{ID}' as kind, {_ID} as key)))"
    names = "array_distinct(transform(coalesce(headers, array()), pair -> pair.key))"
    named = f"transform({names}, key -> struct('{HEADER}' as kind, key))"
    return f"concat(array({structs}), {ids}, {named})"


def _summed(rows: DataFrame) -> DataFrame:
    """One row for each key, of ids and payloads those that occur more than once."""
    from pyspark.sql import functions as f

    repeated = ", ".join(f"'{kind}'" for kind in _REPEATED)
    return (
        rows.groupBy("kind", "key")
        .agg(
            f.count(f.lit(1)).alias("messages"),
            f.sum("bytes").alias("sum_bytes"),
            f.sum("header_bytes").alias("sum_headers"),
            f.min("seq").alias("first_seq"),
            f.max("seq").alias("last_seq"),
            f.min("us").alias("first_us"),
            f.max("us").alias("last_us"),
            f.min("bytes").alias("least"),
            f.max("bytes").alias("most"),
            f.count(_ID).alias("with_id"),
        )
        .where(f"messages > 1 or kind not in ({repeated})")
    )


def _listed(summed: DataFrame) -> DataFrame:
    """The rows that a report lists, each with the number of keys of its kind and their messages."""
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    kind = Window.partitionBy("kind")
    ranked = summed.withColumns(
        {
            "keys": f.count(f.lit(1)).over(kind),
            "total": f.sum("messages").over(kind),
            "rank": f.row_number().over(kind.orderBy(f.desc("messages"), "key")),
        }
    )
    listed = ", ".join(f"'{one}'" for one in _LISTED)
    return ranked.where(f"rank <= {MOST_ROWS} or kind not in ({listed})").drop("rank")


def _gaps(spark: SparkSession, options: Mapping[str, str], counts: Counts) -> Gaps:
    """What is missing between the first and the last message."""
    between = counts.gaps_between_blocks()
    blocks = counts.blocks_with_gaps()
    number, longest = _gaps_within(spark, options, blocks) if blocks else (0, [])
    whole = next(iter(counts.of(ALL)), None)
    missing = whole.last_seq - whole.first_seq + 1 - whole.messages if whole else 0
    found = sorted([*between, *longest], key=lambda one: (-one.missing, one.first))[:MOST_GAPS]
    return Gaps(gaps=number + len(between), missing=missing, longest=found)


def _gaps_within(spark: SparkSession, options: Mapping[str, str], blocks: list[int]) -> tuple[int, list[Gap]]:
    """How many gaps those blocks have, and the longest."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    observed = Observation()
    frame = read_stream(spark, options, ["seq"]).withColumn("block", f.expr(f"seq div {BLOCK_MESSAGES}"))
    frame = frame.where(f.col("block").isin(blocks) if len(blocks) <= MOST_GAPS else f.lit(True))
    before = f.lag("seq").over(Window.partitionBy("block").orderBy("seq"))
    gaps = frame.withColumn("before", before).where("seq > before + 1")
    gaps = gaps.observe(observed, f.count(f.lit(1)).alias("gaps"))
    rows = gaps.orderBy(f.expr("before - seq"), "seq").limit(MOST_GAPS).collect()
    return int(observed.get["gaps"]), [gap(row["before"] + 1, row["seq"] - 1) for row in rows]
