"""The reader of a streaming query: each batch has the messages added since the batch before, up to the query's limits.

A durable consumer can follow the query's position, so that a list of consumers shows its lag. Nothing is read through
it, and the query never reads its position from it: Spark's checkpoint has that.

Theory of operation. Spark keeps one reader for as long as a query runs, asks it for the next end (`latestOffset`),
writes that into its checkpoint, and has the batch planned (`partitions`). A query that was interrupted in a batch
begins with `partitions` for that batch, so lost messages are looked for there too. The messages of a batch and its
parts depend only on its start and its end. Between calls the reader remembers only the state of this run: the end that
`availableNow` stops at, the time of the last batch, and the query's position, to report its lag.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from natsctl.spark.source.errors import (
    ApiRefusedError,
    DataLossError,
    JetStreamSourceError,
    NoResponseError,
    OptionError,
    SourceConnectionLostError,
    StreamNotFoundError,
)
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import NO_CONSUMER, Asking, JetStreamApi
from natsctl.spark.source.offsets import (
    MAX_DELETED,
    Offsets,
    Position,
    StreamBounds,
    check_begin,
    check_deleted,
    check_end,
    check_identity,
    encode_offsets,
    parse_offsets,
    report_loss,
    standing_at,
    stream_state,
)
from natsctl.spark.source.planning import (
    StreamPart,
    Stretch,
    check_filters,
    check_names,
    chosen_streams,
    count,
    cut,
    parts,
    planned_parts,
    read_part,
    starting_at,
)
from natsctl.spark.source.read_request import Reading
from natsctl.spark.source.rows import RowShape
from natsctl.spark.source.source_options import Options
from natsctl.spark.source.spark_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

_MARK: Final = {"natsctl.spark": "follows a query"}
_RESET_SINCE: Final = (2, 14)
"""The server release that can set a consumer back or forth; older ones have it deleted and made again."""


@dataclass(frozen=True)
class Follower:
    """The durable's name, the same on each stream, and the subjects that the query reads."""

    name: str
    filters: tuple[str, ...] = ()

    def check(self, api: JetStreamApi, streams: Sequence[str]) -> None:
        """Raise OptionError if a durable belongs to others, or would change which messages the stream keeps."""
        for stream in streams:
            retention = api.stream_info(stream)["config"].get("retention", "limits")
            if retention != "limits":
                raise OptionError(
                    f"option commitConsumer: {stream} has retention {retention!r}: a consumer would decide which "
                    "messages it keeps; the option is only for streams with retention 'limits'"
                )
            found = self._info(api, stream)
            if found is not None and not _MARK.items() <= (found["config"].get("metadata") or {}).items():
                raise OptionError(
                    f"option commitConsumer: {stream} has a consumer {self.name} that is not of this source: "
                    "choose another name"
                )

    def follow(self, api: JetStreamApi, offsets: Offsets) -> None:
        """Move the durables after the read messages; a refusal is only logged, because nothing depends on them."""
        for stream, position in offsets.items():
            try:
                self._move(api, stream, position.seq + 1)
            except (SourceConnectionLostError, NoResponseError):
                raise
            except JetStreamSourceError as failure:
                logging.getLogger("pyspark_jetstream").warning(
                    "%s on %s does not follow: %s", self.name, stream, failure
                )

    def _move(self, api: JetStreamApi, stream: str, following: int) -> None:
        """Move the durable of one stream so that it delivers a sequence next."""
        found = self._info(api, stream)
        if found is not None and found["delivered"]["stream_seq"] == following - 1:
            return
        if found is not None and _can_reset(api):
            api.ask(f"CONSUMER.RESET.{stream}.{self.name}", {"seq": following})
            return
        if found is not None:
            api.delete_consumer(stream, self.name)
        begin: dict[str, Any] = {"deliver_policy": "all"}
        if not _can_reset(api):
            begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": following}
        filters = {"filter_subjects": list(self.filters)} if self.filters else {}
        config = {"durable_name": self.name, "ack_policy": "explicit", "metadata": _MARK, **begin, **filters}
        api.create_consumer(stream, self.name, config)
        if _can_reset(api) and following > 1:
            api.ask(f"CONSUMER.RESET.{stream}.{self.name}", {"seq": following})

    def _info(self, api: JetStreamApi, stream: str) -> dict[str, Any] | None:
        try:
            return api.ask(f"CONSUMER.INFO.{stream}.{self.name}")
        except ApiRefusedError as refusal:
            if refusal.err_code == NO_CONSUMER:
                return None
            raise


def _can_reset(api: JetStreamApi) -> bool:
    numbers = re.findall(r"\d+", str(api.link.info.get("version", "")))
    return tuple(int(number) for number in numbers[:2]) >= _RESET_SINCE


@dataclass(frozen=True)
class Admission:
    """The limits of a streaming read; None for one that was not given.

    Spark hands one limit only from the options to the engine and back, so that it says no more than whether limits
    count at all; which, stands here.
    """

    most: int | None = None
    most_bytes: int | None = None
    least: int | None = None
    delay_s: float = 900.0

    @property
    def default(self) -> ReadLimit:
        if self.most is not None:
            return ReadMaxRows(self.most)
        if self.most_bytes is not None:
            return ReadMaxBytes(self.most_bytes)
        return ReadAllAvailable() if self.least is None else ReadMinRows(self.least)

    def held_back(self, waiting: int, waited_s: float) -> bool:
        return self.least is not None and waiting < self.least and waited_s < self.delay_s

    def shares(self, waiting: Mapping[str, int], sizes: Mapping[str, float], turn: int) -> dict[str, int]:
        """Return the messages that each stream may add, by the number waiting there and their average size.

        `turn` decides which streams come first if there are more of them than messages allowed.
        """
        total = sum(waiting.values())
        limit = total if self.most is None else min(total, self.most)
        if self.most_bytes is not None:
            bytes_waiting = sum(number * sizes[name] for name, number in waiting.items())
            limit = min(limit, max(math.floor(total * self.most_bytes / max(bytes_waiting, 1.0)), 1))
        return dict(waiting) if limit >= total else _divided(waiting, limit, turn)


def _divided(waiting: Mapping[str, int], limit: int, turn: int) -> dict[str, int]:
    """Divide exactly `limit` messages in proportion, and at least one for each stream: a busy one starves no other."""
    names = [name for name, number in waiting.items() if number]
    first = turn % len(names)
    names = [*names[first:], *names[:first]]
    shares = dict.fromkeys(waiting, 0) | dict.fromkeys(names[:limit], 1)
    rest = limit - len(names)
    if rest > 0:
        others = sum(waiting.values()) - len(names)
        exact = {name: rest * (waiting[name] - 1) / others for name in names}
        whole = {name: math.floor(part) for name, part in exact.items()}
        by_remainder = sorted(names, key=lambda name: whole[name] - exact[name])
        more = set(by_remainder[: rest - sum(whole.values())])
        shares |= {name: 1 + whole[name] + (name in more) for name in names}
    return shares


def admission_of(options: Options) -> Admission:
    return Admission(
        options["maxOffsetsPerTrigger"],
        options["maxBytesPerTrigger"],
        options["minOffsetsPerTrigger"],
        options["maxTriggerDelay"],
    )


@dataclass(frozen=True)
class Step:
    """The messages that a stream can add to a batch; `since` is set if it does not continue the batch before."""

    stretch: Stretch
    stood: Position | None
    since: int | None = None

    def position(self, last: int) -> Position:
        if self.stood is not None and self.since is None and last <= self.stood.seq:
            return self.stood
        return standing_at(last, self.stretch.state, self.since)


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming reader of streams: the driver plans batches, tasks read their parts."""

    def __init__(
        self,
        settings: ServerSettings,
        reading: Reading,
        shape: RowShape,
        admission: Admission,
        follower: Follower | None = None,
    ) -> None:
        self._settings = settings
        self._reading = reading
        self._shape = shape
        self._admission = admission
        self._follower = follower
        self._asking = Asking(settings, resolve=True)
        self._stands: dict[str, Position] | None = None
        """The query's position, because Spark before 4.2 does not report it; None until known."""
        self._target: dict[str, Position] | None = None
        self._reached: dict[str, Position] = {}
        self._followed: dict[str, Position] = {}
        self._last_batch_s = time.monotonic()
        self._turn = 0

    def initialOffset(self) -> dict[str, Any]:
        self._stands = self._asking(self._initial)
        return encode_offsets(self._stands)

    def _initial(self, api: JetStreamApi) -> dict[str, Position]:
        found = {}
        names = chosen_streams(api, self._reading)
        check_names(self._reading.start, names, "startingOffsets")
        check_names(self._reading.since_by, names, "startingOffsetsByTimestamp")
        if not self._reading.pattern:
            check_filters(api, {name: api.stream_info(name) for name in names}, self._reading.filters)
        for name in names:
            state = self._looked_at(api, name)
            found[name] = standing_at(starting_at(api, self._reading, state) - 1, state)
        return found

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _ends(self._asking(self._states))

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._admission.default

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end of the next batch; the start itself if there is nothing to read, or not yet enough.

        Before Spark 4.2 there are no arguments. Limits count there once the start is known: from the second batch of a
        run on. The first batch has all messages.
        """
        stood = self._stands or {} if start is None else parse_offsets(start)
        limited = self._stands is not None if start is None else not isinstance(limit, ReadAllAvailable)
        self._reached = self._asking(lambda api: self._next(api, stood, limited))
        return encode_offsets(self._reached)

    def _next(self, api: JetStreamApi, stood: dict[str, Position], limited: bool) -> dict[str, Position]:
        if self._follower is not None:
            self._follower.check(api, chosen_streams(api, self._reading, needed=False))
            self._follow(api, stood)
        steps = self._steps(api, stood)
        if not limited:
            return self._cut(api, steps, {name: step.stretch.last for name, step in steps.items()})
        counts = {name: count(api, step.stretch, self._reading.filters) for name, step in steps.items()}
        waiting = {
            name: step.stretch.width if counts[name] is None else counts[name] or 0 for name, step in steps.items()
        }
        if self._target is None and self._admission.held_back(
            sum(waiting.values()), time.monotonic() - self._last_batch_s
        ):
            return stood
        sizes = {name: average_bytes(step.stretch.state) for name, step in steps.items()}
        shares = self._admission.shares(waiting, sizes, self._turn)
        self._turn += sum(shares.values())
        self._last_batch_s = time.monotonic()
        ends = {
            name: self._end(api, step.stretch, shares[name], counts[name]) if shares[name]
            # Nothing there fits the filters, or it is not the turn of this stream.
            else step.stretch.first - 1 if waiting[name] else step.stretch.last
            for name, step in steps.items()
        }  # fmt: skip
        return self._cut(api, steps, ends)

    def _cut(self, api: JetStreamApi, steps: dict[str, Step], ends: dict[str, int]) -> dict[str, Position]:
        stretches = [Stretch(step.stretch.state, step.stretch.first, ends[name]) for name, step in steps.items()]
        cuts: dict[str, tuple[int, ...]] = {}
        for part in parts(api, stretches, self._reading, self._reading.filters):
            cuts[part.todo.stream] = (*cuts.get(part.todo.stream, ()), part.todo.last)
        found = {name: step.position(ends[name]) for name, step in steps.items()}
        return {
            name: replace(position, cuts=cuts[name][:-1]) if name in cuts else position
            for name, position in found.items()
        }

    def _end(self, api: JetStreamApi, stretch: Stretch, share: int, known: int | None) -> int:
        """Return the last sequence of a stretch when a batch takes so many of its messages."""
        return cut(api, stretch, self._reading.filters, share, known, exact=True)[0]

    def _steps(self, api: JetStreamApi, stood: dict[str, Position]) -> dict[str, Step]:
        """Return the messages that each stream can add; removed ones are left out if allowed."""
        names = chosen_streams(api, self._reading, needed=False)
        steps: dict[str, Step] = {}
        for name in dict.fromkeys([*names, *stood]):
            if not self._reading.names(name):
                logging.getLogger("pyspark_jetstream").warning(
                    "%s is no longer read: the query no longer names it", name
                )
                continue
            state = self._state(api, name, stood.get(name))
            if state is not None and (step := self._step(state, stood.get(name))) is not None:
                steps[name] = step
        return steps

    def _step(self, state: StreamBounds, stood: Position | None) -> Step | None:
        """Return the messages that one stream can add; None for one that came too late for this run."""
        last, fail = state.last, self._reading.fail
        if self._target is not None:
            target = self._target.get(state.name)
            if target is None and stood is None:
                return None
            known = target is not None and target.same_stream(state.created)
            last = min(last, target.seq) if target is not None and known else 0
        if stood is not None and check_identity(stood, state, fail=fail):
            if not check_end(stood.seq, state, fail=fail) or last <= stood.seq:
                return Step(Stretch(state, stood.seq + 1, stood.seq), stood)
            first = check_begin(stood.seq + 1, last, state, fail=fail)
            check_deleted(stood, last, state, fail=fail)
            return Step(Stretch(state, first, last), stood)
        return Step(Stretch(state, state.first, max(last, state.first - 1)), stood, since=state.first - 1)

    def _state(self, api: JetStreamApi, name: str, stood: Position | None) -> StreamBounds | None:
        """Return the state of a stream now; None if it was deleted and belongs to a pattern, if allowed."""
        try:
            return self._looked_at(api, name)
        except StreamNotFoundError:
            if not self._reading.pattern:
                raise
        if stood is not None:
            text = f"{name} was deleted; it was read up to {stood.seq}, and later messages are lost"
            report_loss(DataLossError(f"{text}. failOnDataLoss=false goes on without it"), fail=self._reading.fail)
        return None

    def _looked_at(self, api: JetStreamApi, name: str) -> StreamBounds:
        """Return a stream as it is now, with the sequences of deleted messages where those show a loss."""
        state = stream_state(api.stream_info(name))
        if state.deleted is not None or self._reading.filters or state.thins_out or state.by_design:
            return state
        return state if state.num_deleted > MAX_DELETED else stream_state(api.stream_info(name, deleted_details=True))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the parts of a batch; none if start and end are equal."""
        before, until = parse_offsets(start), parse_offsets(end)
        self._stands = until
        return self._asking(lambda api: self._plan(api, before, until))

    def _plan(self, api: JetStreamApi, before: dict[str, Position], until: dict[str, Position]) -> list[InputPartition]:
        stretches, found = [], list[InputPartition]()
        for name, end in until.items():
            begin = _begin(before.get(name), end)
            if end.seq <= begin:
                continue
            stood = Position(begin, end.created)
            state = self._state(api, name, stood)
            if state is not None and check_identity(stood, state, fail=self._reading.fail):
                stretch = self._stretch(state, begin, end.seq)
                if end.cuts is None:
                    stretches.append(stretch)
                else:
                    found += planned_parts(api, stretch, begin, end.cuts, self._reading)
                if before.get(name) is not None and before[name].same_stream(end.created):
                    check_deleted(before[name], end.seq, state, fail=self._reading.fail)
        return [*found, *parts(api, stretches, self._reading, self._reading.filters)]

    def _stretch(self, state: StreamBounds, begin: int, last: int) -> Stretch:
        """Return the remaining part of a planned range; raises DataLossError if a loss is an error."""
        if not check_end(last, state, fail=self._reading.fail):
            last = state.last
        return Stretch(state, check_begin(begin + 1, last, state, fail=self._reading.fail), last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, StreamPart):
            yield from read_part(self._settings, partition, self._reading.limits, self._shape)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the present ends of streams and the query's lag: sequences, messages, bytes."""
        return self._asking(self._report)

    def _report(self, api: JetStreamApi) -> dict[str, Any]:
        states = self._states(api)
        report = encode_offsets(_ends(states))
        for name, stream in report["streams"].items():
            if (reached := self._reached.get(name)) is not None:
                stream["behind"] = self._behind(api, Stretch(states[name], reached.seq + 1, states[name].last))
        behind = [stream["behind"]["messages"] for stream in report["streams"].values() if "behind" in stream]
        return report | ({"metrics": lag_metrics(behind)} if behind else {})

    def _behind(self, api: JetStreamApi, stretch: Stretch) -> dict[str, int]:
        """Return the amount that is left to read; bytes by the stream's average message."""
        known = count(api, stretch, self._reading.filters)
        messages = stretch.width if known is None else known
        size = round(messages * average_bytes(stretch.state))
        return {"sequences": stretch.width, "messages": messages, "bytes": size}

    def _states(self, api: JetStreamApi) -> dict[str, StreamBounds]:
        """Return the present streams; deleted ones of a pattern are left out."""
        names = chosen_streams(api, self._reading, needed=False)
        found = {name: self._state(api, name, None) for name in names}
        return {name: state for name, state in found.items() if state is not None}

    def commit(self, end: dict[str, Any]) -> None:
        """Move the durable that follows the query, if any, to the end of the last finished batch."""
        if self._follower is not None:
            self._asking(lambda api: self._follow(api, parse_offsets(end)))

    def _follow(self, api: JetStreamApi, done: dict[str, Position]) -> None:
        """Move the durable once.

        The start of a batch also shows finished batches, and is the only sign for the last batch of a run: that is
        never committed.
        """
        if self._follower is not None and done != self._followed:
            self._follower.follow(api, done)
            self._followed = done

    def stop(self) -> None:
        self._asking.close()


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that fails with its reason as soon as Spark uses it.

    A `streamReader` that raises would be reported as UnboundLocalError: PySpark (4.3) then stops a reader that it does
    not have.
    """

    def __init__(self, failure: JetStreamSourceError) -> None:
        self._failure = failure

    def _refuse(self, *given: Any) -> Any:
        raise self._failure

    initialOffset = prepareForTriggerAvailableNow = getDefaultReadLimit = cast(Any, _refuse)
    latestOffset = partitions = read = cast(Any, _refuse)


def _ends(states: Mapping[str, StreamBounds]) -> dict[str, Position]:
    return {name: Position(state.last, state.created) for name, state in states.items()}


def average_bytes(state: StreamBounds) -> float:
    """Return the average size of a stream's messages, with their headers."""
    return state.bytes / state.messages if state.messages else 0.0


def lag_metrics(behind: Sequence[int]) -> dict[str, float]:
    """Return the lag of streams in messages, with the metric names of Spark's Kafka source."""
    return {
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
        "maxOffsetsBehindLatest": max(behind),
        "minOffsetsBehindLatest": min(behind),
    }


def _begin(before: Position | None, end: Position) -> int:
    if before is not None and before.same_stream(end.created):
        return before.seq
    return end.since or 0
