"""The messages that one query wants to read, from its options: everything but how to connect."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import cast

from natsctl.spark.source.durable import Durable
from natsctl.spark.source.errors import OptionError
from natsctl.spark.source.fetch_task import FetchLimits, Transport
from natsctl.spark.source.option_rules import check_acked, check_order
from natsctl.spark.source.source_options import STREAM_READ, Options, check_stream, names


@dataclass(frozen=True)
class Reading:
    """The streams, their starts and ends, and the options of their parts; "" and None mean not given."""

    streams: tuple[str, ...]
    pattern: str
    filters: tuple[str, ...]
    start: str | dict[str, int]
    end: str | dict[str, int]
    since_ns: int | None
    until_ns: int | None
    since_by: dict[str, int]
    """The first moment by stream, for streams with their own."""
    until_by: dict[str, int]
    late_is_latest: bool
    fail: bool
    parts: int | None
    """The number of tasks that are wanted; None leaves that to the number of messages."""
    most_in_part: int | None
    transport: Transport
    limits: FetchLimits

    def names(self, stream: str) -> bool:
        """Return whether a stream, there or not, is one of those to read."""
        return fnmatchcase(stream, self.pattern) if self.pattern else stream in self.streams

    def since(self, stream: str) -> tuple[str, int] | None:
        """Return the option that reads a stream from a moment on, and that moment, or None."""
        return _moment("starting", self.since_ns, self.since_by.get(stream))

    def until(self, stream: str) -> tuple[str, int] | None:
        """Return the option that reads a stream up to a moment, and that moment, or None."""
        return _moment("ending", self.until_ns, self.until_by.get(stream))


def _moment(which: str, of_all: int | None, of_one: int | None) -> tuple[str, int] | None:
    if of_all is not None:
        return f"{which}Timestamp", of_all
    return None if of_one is None else (f"{which}OffsetsByTimestamp", of_one)


def reading_of(options: Options) -> Reading:
    """Return the request of the options; raises OptionError if they contradict each other."""
    streaming = options.place == STREAM_READ
    check_order(options)
    return Reading(
        streams=_streams(options),
        pattern=options["streamPattern"] or "",
        filters=options["subject"] or (),
        start=options["startingOffsets"] or ("latest" if streaming else "earliest"),
        end=options["endingOffsets"] or "latest",
        since_ns=options["startingTimestamp"],
        until_ns=options["endingTimestamp"],
        since_by=options["startingOffsetsByTimestamp"] or {},
        until_by=options["endingOffsetsByTimestamp"] or {},
        late_is_latest=options["startingOffsetsByTimestampStrategy"] == "latest",
        fail=options["failOnDataLoss"],
        parts=options["minPartitions"],
        most_in_part=options["maxRecordsPerPartition"],
        transport=cast(Transport, options["transport"]),
        limits=FetchLimits(options["fetchMessages"], options["fetchBytes"], options["fetchTimeout"]),
    )


def durable_of(options: Options, reading: Reading) -> Durable | None:
    """Return the consumer that a query acknowledges through; None without `ackMode`. Raises OptionError."""
    check_acked(options)
    if options["ackMode"] == "none":
        return None
    if len(reading.streams) != 1:
        raise OptionError("option ackMode reads one stream, as a consumer is of one")
    try:
        check_stream(options["consumer"])
    except ValueError:
        raise OptionError(f"option consumer: {options['consumer']!r} is no name of a consumer") from None
    return Durable(reading.streams[0], options["consumer"], options["createConsumer"], reading.filters)


def _streams(options: Options) -> tuple[str, ...]:
    ways = [name for name in ("stream", "streamPattern") if options.given(name)]
    if options.path and ways:
        raise OptionError(f"load({options.path!r}) names a stream, and so does option {ways[0]}: give one of them")
    if len(ways) > 1:
        raise OptionError("options stream and streamPattern exclude each other")
    if not (options.path or ways):
        raise OptionError('which stream? Give option stream or streamPattern, or load("ORDERS")')
    try:
        found = names(options.path) if options.path else options["stream"] or ()
        for name in found:
            check_stream(name)
    except ValueError as failure:
        said = f"load({options.path!r})" if options.path else "option stream"
        raise OptionError(f"{said}: {failure}") from None
    return tuple(found)


def cores() -> int:
    """Return the number of tasks that this machine can run at once: right for `local[*]`, a guess for a cluster."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
