"""The deep report on a stream: its document, and the counts of the stream's messages on Spark.

Everything is counted in one pass: each message counts once for itself, its subject, its slot of time, its size, its
block of sequences, and once for each of its headers and its message id. The rows of that aggregation each have a kind
and a key. A second pass looks at sequences where some are missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.api.model import Model
from natsctl.api.times import format_time
from natsctl.spark.files.message_columns import OWN_ID
from natsctl.spark.stream_frames import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SubjectUse(Model, kw_only=True):
    """The messages of a subject; `bytes` counts payloads, times are RFC 3339."""

    subject: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    first: str
    last: str


class Sizes(Model, kw_only=True):
    """Sizes of payloads in bytes: `p90` is not exceeded by 90 of 100 messages; right to one in a thousand."""

    min: int
    mean: float
    p50: int
    p90: int
    p99: int
    max: int


class SizeClass(Model, kw_only=True):
    """The messages with payloads of `from_bytes` to `to_bytes`, both included."""

    from_bytes: int
    to_bytes: int
    messages: int


class Slot(Model, kw_only=True):
    """The messages stored in a stretch of time that begins at `start`, RFC 3339."""

    start: str
    messages: int
    bytes: int


class Repeated(Model, kw_only=True):
    """A message id, or the SHA-256 of a payload, that several messages have."""

    key: str
    messages: int
    first_seq: int
    last_seq: int


class Repeats(Model, kw_only=True):
    """Keys that several messages have: their number, the messages beyond one for each, and the most frequent."""

    keys: int
    extra_messages: int
    most: list[Repeated]


class HeaderUse(Model, kw_only=True):
    """The number of messages that have a header, once or more often."""

    key: str
    messages: int


class Gap(Model, kw_only=True):
    """Sequences without a message, both ends included."""

    first: int
    last: int
    missing: int


class Gaps(Model, kw_only=True):
    """Gaps between the first and the last message: their number, the sequences missing in all, and the longest."""

    gaps: int
    missing: int
    longest: list[Gap]


class DeepReport(Model, kw_only=True):
    """`stream report --deep`: facts that need every message of a stream to be read.

    `bytes` counts payloads, `header_bytes` headers. `slot_s` is the length of a slot. Lists of subjects,
    headers, ids and gaps have the most frequent or longest; `number_of_subjects` counts all. `payloads` is null where
    payloads were not compared.
    """

    stream: str
    messages: int
    bytes: int
    header_bytes: int
    first_seq: int
    last_seq: int
    first: str
    last: str
    number_of_subjects: int
    subjects: list[SubjectUse]
    sizes: Sizes | None
    size_classes: list[SizeClass]
    slot_s: float
    slots: list[Slot]
    headers: list[HeaderUse]
    with_id: int
    ids: Repeats
    payloads: Repeats | None
    gaps: Gaps


MAX_SLOTS: Final = 120
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
LENGTHS_S: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30,
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY for days in (1, 2, 7, 14, 30, 90, 365, 3650)),
)  # fmt: skip


def slot_length(first_ns: int, last_ns: int) -> float:
    """Return the seconds of a slot, so that there are at most `MAX_SLOTS` from the first moment to the last."""
    span_s = max(0, last_ns - first_ns) / 1e9
    return next((length for length in LENGTHS_S if span_s / length < MAX_SLOTS - 1), LENGTHS_S[-1])


ALL, SUBJECT, SLOT, SIZE, BLOCK, HEADER, ID, PAYLOAD = (
    "all", "subject", "slot", "size", "block", "header", "id", "payload",
)  # fmt: skip
BLOCK_MESSAGES: Final = 65_536
"""Sequences of a block: if a block is complete between its ends, it needs no search for gaps."""


class Counted(NamedTuple):
    """The count of a key; `keys` and `total` are the number of keys of that kind and of their messages.

    `least` and `most` are the smallest and the largest payload, times are microseconds since the epoch. `with_id` says
    how many of the messages have a message id.
    """

    kind: str
    key: str
    messages: int
    bytes: int
    header_bytes: int
    first_seq: int
    last_seq: int
    first_us: int
    last_us: int
    least: int
    most: int
    with_id: int
    keys: int
    total: int


class Counts:
    """The rows by kind."""

    def __init__(self, rows: Iterable[Counted]) -> None:
        self._kinds: dict[str, list[Counted]] = {}
        for row in rows:
            self._kinds.setdefault(row.kind, []).append(row)

    def of(self, kind: str) -> Sequence[Counted]:
        """Return the rows of a kind, by descending number of messages."""
        return sorted(self._kinds.get(kind, ()), key=lambda row: (-row.messages, row.key))

    def blocks_with_gaps(self) -> list[int]:
        """Return the numbers of the blocks that lack a message between their first and their last."""
        return sorted(int(row.key) for row in self.of(BLOCK) if row.last_seq - row.first_seq + 1 > row.messages)

    def gaps_between_blocks(self) -> list[Gap]:
        """Return the gaps from the end of a block to the beginning of the next."""
        rows = sorted(self.of(BLOCK), key=lambda row: row.first_seq)
        return [
            gap(one.last_seq + 1, after.first_seq - 1)
            for one, after in itertools.pairwise(rows)
            if after.first_seq > one.last_seq + 1
        ]


def gap(first: int, last: int) -> Gap:
    """Return the gap from one sequence to another, both missing."""
    return Gap(first=first, last=last, missing=last - first + 1)


def report_of(stream: str, counts: Counts, slot_s: float, gaps: Gaps, *, payloads: bool) -> DeepReport:
    """Return the report on a stream."""
    whole = next(iter(counts.of(ALL)), None)
    subjects = counts.of(SUBJECT)
    names = ("messages", "bytes", "header_bytes", "first_seq", "last_seq", "with_id")
    return DeepReport(
        stream=stream,
        **{name: getattr(whole, name, 0) for name in names},
        first=_time(whole.first_us) if whole else "",
        last=_time(whole.last_us) if whole else "",
        number_of_subjects=subjects[0].keys if subjects else 0,
        subjects=[_subject(row) for row in subjects],
        sizes=_sizes(counts.of(SIZE), whole) if whole else None,
        size_classes=_classes(counts.of(SIZE)),
        slot_s=slot_s,
        slots=_slots({int(row.key): row for row in counts.of(SLOT)}, slot_s),
        headers=[HeaderUse(key=row.key, messages=row.messages) for row in counts.of(HEADER)],
        ids=_repeats(counts.of(ID)),
        payloads=_repeats(counts.of(PAYLOAD)) if payloads else None,
        gaps=gaps,
    )


def _time(us: int) -> str:
    return format_time(us * 1000)


def _subject(row: Counted) -> SubjectUse:
    return SubjectUse(
        subject=row.key,
        messages=row.messages,
        bytes=row.bytes,
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        first=_time(row.first_us),
        last=_time(row.last_us),
    )


def _sizes(rows: Sequence[Counted], whole: Counted) -> Sizes:
    ordered = sorted((int(row.key), row.messages) for row in rows)

    def quantile(share: float) -> int:
        wanted = share * whole.messages
        for size, messages in ordered:
            wanted -= messages
            if wanted <= 0:
                return min(max(size, whole.least), whole.most)
        return whole.most

    mean = round(whole.bytes / whole.messages, 1)
    return Sizes(min=whole.least, mean=mean, p50=quantile(0.5), p90=quantile(0.9), p99=quantile(0.99), max=whole.most)


def _classes(rows: Sequence[Counted]) -> list[SizeClass]:
    """Return the sizes in classes from one power of two to the next, those in between that are empty included."""
    found: dict[int, int] = {}
    for row in rows:
        power = int(row.key).bit_length()
        found[power] = found.get(power, 0) + row.messages
    return [
        SizeClass(from_bytes=(1 << power) >> 1, to_bytes=(1 << power) - 1, messages=found.get(power, 0))
        for power in range(min(found, default=0), max(found, default=-1) + 1)
    ]


def _slots(rows: Mapping[int, Counted], slot_s: float) -> list[Slot]:
    slots = []
    for number in range(min(rows, default=0), max(rows, default=-1) + 1):
        row = rows.get(number)
        start = datetime.fromtimestamp(number * slot_s, UTC)
        slots.append(
            Slot(
                start=start.isoformat().replace("+00:00", "Z"),
                messages=row.messages if row else 0,
                bytes=row.bytes if row else 0,
            )
        )
    return slots


def _repeats(rows: Sequence[Counted]) -> Repeats:
    most = [
        Repeated(key=row.key, messages=row.messages, first_seq=row.first_seq, last_seq=row.last_seq) for row in rows
    ]
    if not rows:
        return Repeats(keys=0, extra_messages=0, most=[])
    return Repeats(keys=rows[0].keys, extra_messages=rows[0].total - rows[0].keys, most=most)


MAX_ROWS: Final = 20
"""Subjects, headers, ids and payloads that are listed; the most frequent."""
MAX_GAPS: Final = 100
_LISTED = (SUBJECT, HEADER, ID, PAYLOAD)
_REPEATED = (ID, PAYLOAD)
_EXACT_BYTES: Final = 4096
_ID = "own_id"
_ROUNDED_SIZE = f"""
if(bytes <= {_EXACT_BYTES}, bytes,
   cast(round(bytes / pow(2, floor(log2(bytes)) - 10)) * pow(2, floor(log2(bytes)) - 10) as bigint))"""
"""The size as a key: exact if small, else in steps of a thousandth, so that there are few keys."""
_HEADER_BYTES = """
coalesce(aggregate(headers, 0, (sum, pair) -> sum + octet_length(pair.key) + octet_length(pair.value) + 4), 0)"""


def deep_report(
    spark: SparkSession, options: Mapping[str, str], stream: str, slot_s: float, *, payloads: bool = False
) -> DeepReport:
    """Return the report on the messages that the options describe; with `payloads` equal payloads are found too."""
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
    """Return the kinds and keys that a message counts for, as an array."""
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
    """Return a row for each key; for ids and payloads only if it occurs more than once."""
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
    """Return the rows that a report lists, each with the number of keys of its kind and their messages."""
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
    return ranked.where(f"rank <= {MAX_ROWS} or kind not in ({listed})").drop("rank")


def _gaps(spark: SparkSession, options: Mapping[str, str], counts: Counts) -> Gaps:
    between = counts.gaps_between_blocks()
    blocks = counts.blocks_with_gaps()
    number, longest = _gaps_within(spark, options, blocks) if blocks else (0, [])
    whole = next(iter(counts.of(ALL)), None)
    missing = whole.last_seq - whole.first_seq + 1 - whole.messages if whole else 0
    found = sorted([*between, *longest], key=lambda one: (-one.missing, one.first))[:MAX_GAPS]
    return Gaps(gaps=number + len(between), missing=missing, longest=found)


def _gaps_within(spark: SparkSession, options: Mapping[str, str], blocks: list[int]) -> tuple[int, list[Gap]]:
    """Return the number of gaps in those blocks, and the longest."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    observed = Observation()
    frame = read_stream(spark, options, ["seq"]).withColumn("block", f.expr(f"seq div {BLOCK_MESSAGES}"))
    frame = frame.where(f.col("block").isin(blocks) if len(blocks) <= MAX_GAPS else f.lit(True))
    before = f.lag("seq").over(Window.partitionBy("block").orderBy("seq"))
    gaps = frame.withColumn("before", before).where("seq > before + 1")
    gaps = gaps.observe(observed, f.count(f.lit(1)).alias("gaps"))
    rows = gaps.orderBy(f.expr("before - seq"), "seq").limit(MAX_GAPS).collect()
    return int(observed.get["gaps"]), [gap(row["before"] + 1, row["seq"] - 1) for row in rows]
