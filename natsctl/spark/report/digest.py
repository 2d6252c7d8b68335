"""The report made of what Spark counted: rows of one aggregation, each of a kind and a key.

Everything is counted in one pass: each message counts once for itself, its subject, its slot of time, its size, its
block of sequences, and once for each of its headers and its message id.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from natsctl.api.times import format_time
from natsctl.spark.report.model import (
    DeepReport,
    Gap,
    Gaps,
    HeaderUse,
    Repeated,
    Repeats,
    SizeClass,
    Sizes,
    Slot,
    SubjectUse,
)

ALL, SUBJECT, SLOT, SIZE, BLOCK, HEADER, ID, PAYLOAD = (
    "all", "subject", "slot", "size", "block", "header", "id", "payload",
)  # fmt: skip
BLOCK_MESSAGES: Final = 65_536
"""Sequences of a block: where a block has all between its ends, no gap has to be looked for in it."""


class Counted(NamedTuple):
    """What was counted under a key; `keys` and `total` are the number of keys of that kind and their messages.

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
        """The rows of a kind, those of most messages first."""
        return sorted(self._kinds.get(kind, ()), key=lambda row: (-row.messages, row.key))

    def blocks_with_gaps(self) -> list[int]:
        """The numbers of the blocks that lack a message between their first and their last."""
        return sorted(int(row.key) for row in self.of(BLOCK) if row.last_seq - row.first_seq + 1 > row.messages)

    def gaps_between_blocks(self) -> list[Gap]:
        """What is missing from the end of a block to the beginning of the next."""
        rows = sorted(self.of(BLOCK), key=lambda row: row.first_seq)
        return [
            gap(one.last_seq + 1, after.first_seq - 1)
            for one, after in itertools.pairwise(rows)
            if after.first_seq > one.last_seq + 1
        ]


def gap(first: int, last: int) -> Gap:
    """The gap from one sequence to another, both missing."""
    return Gap(first=first, last=last, missing=last - first + 1)


def report_of(stream: str, counts: Counts, slot_s: float, gaps: Gaps, *, payloads: bool) -> DeepReport:
    """The report on a stream."""
    whole = next(iter(counts.of(ALL)), None)
    subjects = counts.of(SUBJECT)
    ids = counts.of(ID)
    return DeepReport(
        stream=stream,
        messages=whole.messages if whole else 0,
        bytes=whole.bytes if whole else 0,
        header_bytes=whole.header_bytes if whole else 0,
        first_seq=whole.first_seq if whole else 0,
        last_seq=whole.last_seq if whole else 0,
        first=_time(whole.first_us) if whole else "",
        last=_time(whole.last_us) if whole else "",
        number_of_subjects=subjects[0].keys if subjects else 0,
        subjects=[_subject(row) for row in subjects],
        sizes=_sizes(counts.of(SIZE), whole) if whole else None,
        size_classes=_classes(counts.of(SIZE)),
        slot_s=slot_s,
        slots=_slots({int(row.key): row for row in counts.of(SLOT)}, slot_s),
        headers=[HeaderUse(key=row.key, messages=row.messages) for row in counts.of(HEADER)],
        with_id=whole.with_id if whole else 0,
        ids=_repeats(ids),
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
    """The sizes in classes from one power of two to the next, those in between that are empty included."""
    found: dict[int, int] = {}
    for row in rows:
        power = int(row.key).bit_length()
        found[power] = found.get(power, 0) + row.messages
    return [
        SizeClass(from_bytes=(1 << power) >> 1, to_bytes=(1 << power) - 1, messages=found.get(power, 0))
        for power in range(min(found, default=0), max(found, default=-1) + 1)
    ]


def _slots(rows: Mapping[int, Counted], slot_s: float) -> list[Slot]:
    """The slots from the first to the last, empty ones included."""
    found = []
    for number in range(min(rows, default=0), max(rows, default=-1) + 1):
        row = rows.get(number)
        start = datetime.fromtimestamp(number * slot_s, UTC)
        found.append(
            Slot(
                start=start.isoformat().replace("+00:00", "Z"),
                messages=row.messages if row else 0,
                bytes=row.bytes if row else 0,
            )
        )
    return found


def _repeats(rows: Sequence[Counted]) -> Repeats:
    most = [
        Repeated(key=row.key, messages=row.messages, first_seq=row.first_seq, last_seq=row.last_seq) for row in rows
    ]
    if not rows:
        return Repeats(keys=0, extra_messages=0, most=[])
    return Repeats(keys=rows[0].keys, extra_messages=rows[0].total - rows[0].keys, most=most)
