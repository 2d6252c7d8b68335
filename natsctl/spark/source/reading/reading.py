"""What one query wants to read, of its options: everything but how to connect."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import cast

from natsctl.spark.source.errors import OptionFault
from natsctl.spark.source.fetch.ranges import FetchLimits, Transport
from natsctl.spark.source.options.options import Options
from natsctl.spark.source.options.table import STREAM_READ
from natsctl.spark.source.options.values import check_stream, names


@dataclass(frozen=True)
class Reading:
    """The streams, where they begin and end, and how they are split; "" and None stand for what was not said."""

    streams: tuple[str, ...]
    pattern: str
    filters: tuple[str, ...]
    start: str | dict[str, int]
    end: str | dict[str, int]
    since_ns: int | None
    until_ns: int | None
    late_is_latest: bool
    fail: bool
    parts: int
    transport: Transport
    limits: FetchLimits

    def names(self, stream: str) -> bool:
        """Whether a stream, there or not, is one of those to read."""
        return fnmatchcase(stream, self.pattern) if self.pattern else stream in self.streams


def reading_of(options: Options) -> Reading:
    """What the options of a read ask for; raises OptionFault for those that contradict each other."""
    streaming = options.place == STREAM_READ
    return Reading(
        streams=_streams(options),
        pattern=options["streamPattern"] or "",
        filters=options["subject"] or (),
        start=options["startingOffsets"] or ("latest" if streaming else "earliest"),
        end="latest" if streaming else options["endingOffsets"],
        since_ns=options["startingTimestamp"],
        until_ns=None if streaming else options["endingTimestamp"],
        late_is_latest=options["startingOffsetsByTimestampStrategy"] == "latest",
        fail=options["failOnDataLoss"],
        parts=options["minPartitions"] or cores(),
        transport=cast(Transport, options["transport"]),
        limits=FetchLimits(options["fetchMessages"], options["fetchBytes"], options["fetchTimeout"]),
    )


def _streams(options: Options) -> tuple[str, ...]:
    """The streams by name; none where there is a pattern."""
    ways = [name for name in ("stream", "streamPattern") if options.given(name)]
    if options.path and ways:
        raise OptionFault(f"load({options.path!r}) names a stream, and so does option {ways[0]}: give one of them")
    if len(ways) > 1:
        raise OptionFault("options stream and streamPattern exclude each other")
    if not (options.path or ways):
        raise OptionFault('which stream? Give option stream or streamPattern, or load("ORDERS")')
    try:
        found = names(options.path) if options.path else options["stream"] or ()
        for name in found:
            check_stream(name)
    except ValueError as failure:
        said = f"load({options.path!r})" if options.path else "option stream"
        raise OptionFault(f"{said}: {failure}") from None
    return tuple(found)


def cores() -> int:
    """How many tasks this machine can run at once: right for `local[*]`, a guess for a cluster."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
