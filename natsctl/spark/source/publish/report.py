"""The driver's report of a write, from the reports of its tasks."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from natsctl.spark.source.publish.job import Written

LOGGER = "natsctl.spark.jetstream"


def told(messages: Sequence[WriterCommitMessage | None]) -> list[Written | None]:
    """Return the reports of tasks; their class came by value, and is another one than the driver's."""
    return [Written(**vars(message)) if message is not None else None for message in messages]


def total(parts: Sequence[Written | None]) -> Written:
    """Return the sums over tasks; those that failed have reported nothing."""
    told = [part for part in parts if part is not None]
    return Written(
        messages=sum(part.messages for part in told),
        duplicates=sum(part.duplicates for part in told),
        skipped=sum(part.skipped for part in told),
        bytes=sum(part.bytes for part in told),
        retries=sum(part.retries for part in told),
        first_seq=min((part.first_seq for part in told if part.first_seq), default=0),
        last_seq=max((part.last_seq for part in told), default=0),
        stream=",".join(sorted({part.stream for part in told if part.stream})),
        seconds=max((part.seconds for part in told), default=0.0),
        ledger_key=next((part.ledger_key for part in told if part.ledger_key), ""),
        warnings=tuple(dict.fromkeys(warning for part in told for warning in part.warnings)),
    )


def report(what: str, parts: Sequence[Written | None], failed: bool = False) -> Written:
    """Log what was written, and what is to be heeded; returns the sums."""
    log = logging.getLogger(LOGGER)
    sums = total(parts)
    text = f"{what}: {sums.messages} messages to {sums.stream or 'no stream'}"
    if sums.messages:
        text += f", sequences {sums.first_seq} to {sums.last_seq}, {sums.bytes} bytes in {sums.seconds:.1f} s"
    if sums.duplicates or sums.skipped:
        text += f"; {sums.duplicates + sums.skipped} of them were stored before"
    if sums.retries:
        text += f"; {sums.retries} times sent again"
    log.log(logging.WARNING if failed else logging.INFO, "%s%s", text, "; the write failed" if failed else "")
    for warning in sums.warnings:
        log.warning("%s: %s", what, warning)
    return sums
