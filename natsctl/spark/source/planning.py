"""The plan of a read: streams, ranges and the parts of tasks, from the part of WHERE that the server supports.

That part is a range of sequences, a range of time, subjects, streams. Sequences are filtered exactly. Filters of times
and subjects only exclude messages that cannot match: Spark filters those rows once more.

A stream without gaps is split and counted by its sequences. In a stream with gaps, or with filters, the server counts
the messages of a range: a consumer that begins at a sequence reports the number of pending messages from there. If no
such consumer may be created, sequences are counted instead of messages.

A task that has read its part makes sure that nothing was missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from natsctl.spark.source.errors import ApiRefusedError, OptionError, SourceNotAuthorisedError, StreamNotFoundError
from natsctl.spark.source.fetch import read_range
from natsctl.spark.source.fetch_task import FetchLimits, ReadRange
from natsctl.spark.source.handshake import ServerSettings
from natsctl.spark.source.jetstream_api import Asking, JetStreamApi
from natsctl.spark.source.offsets import StreamBounds, check_begin, check_planned, check_read, check_said, stream_state
from natsctl.spark.source.read_request import Reading, cores
from natsctl.spark.source.rows import RowShape
from natsctl.spark.source.source_options import EARLIEST, LATEST, check_subject, meet

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # of Spark 4.1

_EQUAL = ("EqualTo", "EqualNullSafe", "In")
_NEVER_NULL = ("stream", "seq", "subject", "timestamp")


@dataclass(frozen=True)
class Wanted:
    """The messages that a query can use: bounds include their end, None means all."""

    first: int | None = None
    last: int | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    subjects: tuple[str, ...] | None = None
    streams: tuple[str, ...] | None = None

    @property
    def nothing(self) -> bool:
        empty = self.first is not None and self.last is not None and self.first > self.last
        backwards = self.since_ns is not None and self.until_ns is not None and self.since_ns > self.until_ns
        return empty or backwards or self.subjects == () or self.streams == ()

    def between(self, since_ns: int | None, until_ns: int | None) -> Wanted:
        since, until = _narrower((self.since_ns, self.until_ns), (since_ns, until_ns))
        return replace(self, since_ns=since, until_ns=until)


def push(filters: Iterable[Filter], wanted: Wanted) -> tuple[Wanted, list[Filter]]:
    """Return the selection with the filters added, and filters that Spark has to apply as well."""
    left: list[Filter] = []
    for each in filters:
        wanted, done = _pushed(each, wanted)
        if not done:
            left.append(each)
    return wanted, left


def _pushed(each: Filter, wanted: Wanted) -> tuple[Wanted, bool]:
    """Return the selection with one filter added, and whether it is completely applied."""
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    column = attribute[0] if len(attribute) == 1 else ""
    if _kind(each) == "IsNotNull":
        return wanted, column in _NEVER_NULL
    values = _values(each)
    if column == "seq" and values and all(type(value) is int for value in values):
        return _by_sequence(each, values, wanted)
    if column == "timestamp" and values and all(isinstance(value, datetime) for value in values):
        return _by_time(each, values, wanted), False
    if column == "subject" and values and all(isinstance(value, str) for value in values):
        return _by_subject(each, values, wanted), False
    if column == "stream" and _kind(each) in _EQUAL:
        names = tuple(value for value in values if wanted.streams is None or value in wanted.streams)
        return replace(wanted, streams=names), False
    return wanted, False


def _kind(each: Filter) -> str:
    """Return the name of a filter's class: PySpark 4.0 does not have these classes."""
    return type(each).__name__


def _values(each: Filter) -> tuple[Any, ...]:
    """Return the comparison value of a filter; nothing if it is not understood or compares with null."""
    value: Any = getattr(each, "value", None)
    if _kind(each) == "In":
        return tuple(item for item in value if item is not None)
    return () if value is None else (value,)


def _bounds(each: Filter, values: tuple[int, ...]) -> tuple[int | None, int | None] | None:
    """Return the least and the greatest value that fit, None for no bound; None in all for a filter of another kind."""
    if _kind(each) in _EQUAL:
        return min(values), max(values)
    by_kind: dict[str, tuple[int | None, int | None]] = {
        "GreaterThan": (values[0] + 1, None),
        "GreaterThanOrEqual": (values[0], None),
        "LessThan": (None, values[0] - 1),
        "LessThanOrEqual": (None, values[0]),
    }
    return by_kind.get(_kind(each))


def _by_sequence(each: Filter, values: tuple[int, ...], wanted: Wanted) -> tuple[Wanted, bool]:
    bounds = _bounds(each, values)
    if bounds is None:
        return wanted, False
    whole = len(set(values)) == max(values) - min(values) + 1 if _kind(each) == "In" else True
    first, last = _narrower((wanted.first, wanted.last), bounds)
    return replace(wanted, first=first, last=last), whole


def _by_time(each: Filter, values: tuple[datetime, ...], wanted: Wanted) -> Wanted:
    """Return the range of time; a column's microsecond covers the thousand nanoseconds truncated to it."""
    bounds = _bounds(each, tuple(map(_micros, values)))
    if bounds is None:
        return wanted
    since = None if bounds[0] is None else bounds[0] * 1000
    until = None if bounds[1] is None else bounds[1] * 1000 + 999
    return wanted.between(since, until)


def _micros(moment: datetime) -> int:
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _narrower(
    one: tuple[int | None, int | None], other: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    firsts = [first for first in (one[0], other[0]) if first is not None]
    lasts = [last for last in (one[1], other[1]) if last is not None]
    return max(firsts, default=None), min(lasts, default=None)


def _by_subject(each: Filter, values: tuple[str, ...], wanted: Wanted) -> Wanted:
    """Return `wanted` with narrower subjects; a filter that the server cannot express without overlap is Spark's."""
    if _kind(each) == "StringStartsWith":
        filters = _beginning_with(values[0])
    elif _kind(each) in _EQUAL:
        filters = values if all(_is_literal(value) for value in values) else ()
    else:
        return wanted
    if not filters:
        return wanted
    common = {both for mine in wanted.subjects or (">",) for yours in filters if (both := meet(mine, yours))}
    kept = tuple(sorted(one for one in common if not any(one != wide and meet(one, wide) == one for wide in common)))
    overlap = any(meet(one, other) for index, one in enumerate(kept) for other in kept[index + 1 :])
    return wanted if overlap else replace(wanted, subjects=kept)


def _is_literal(subject: str) -> bool:
    """Return whether a text is a subject that the server takes as it stands, without wildcards."""
    try:
        check_subject(subject)
    except ValueError:
        return False
    return not {"*", ">"} & set(subject.split("."))


def _beginning_with(text: str) -> tuple[str, ...]:
    """Return the filter for all subjects that begin with a text, by its complete tokens; nothing without one."""
    tokens = text.split(".")[:-1]
    return (".".join([*tokens, ">"]),) if tokens and _is_literal(".".join(tokens)) else ()


@dataclass(frozen=True)
class StreamPart(InputPartition):
    """A range of one stream, and how many messages there were in it when it was planned (None: not known)."""

    todo: ReadRange
    created: str
    expected: int | None
    fail: bool


MESSAGES_PER_TASK = 10_000
"""Min number of messages of a task: a task costs about as much as reading them."""
MESSAGES_PER_PART = 250_000
"""Beyond that a read is split further than the driver has cores, as a cluster may have more: about a second's work."""
MAX_PARTS = 400
"""Into which a read is split unless `minPartitions` or `maxRecordsPerPartition` ask for more; each costs requests."""
CLOSE_ENOUGH = 0.95
"""Allowed distance of a cut by count from its target; getting nearer costs requests."""


@dataclass(frozen=True)
class Stretch:
    """From sequence `first` to `last` of a stream, both included; empty where first > last."""

    state: StreamBounds
    first: int
    last: int

    @property
    def width(self) -> int:
        return max(self.last - self.first + 1, 0)


def chosen_streams(api: JetStreamApi, reading: Reading, *, needed: bool = True) -> list[str]:
    """Return the names of the streams to read; raises StreamNotFoundError for a pattern that has to fit one."""
    if not reading.pattern:
        return list(reading.streams)
    found = sorted(name for name in api.stream_names() if reading.names(name))
    if not found and needed:
        raise StreamNotFoundError(f"no stream has a name like {reading.pattern!r}")
    return found


def batch_stretches(api: JetStreamApi, reading: Reading, wanted: Wanted) -> list[Stretch]:
    """Return the ranges that a batch reads: the options' ranges, narrowed by the pushed filters."""
    names = chosen_streams(api, reading)
    check_names(reading.start, names, "startingOffsets")
    check_names(reading.end, names, "endingOffsets")
    check_names(reading.since_by, names, "startingOffsetsByTimestamp")
    check_names(reading.until_by, names, "endingOffsetsByTimestamp")
    if wanted.nothing:
        return []
    answers = {name: api.stream_info(name) for name in names if wanted.streams is None or name in wanted.streams}
    if len(answers) == len(names):
        check_filters(api, answers, reading.filters)
    stretches = []
    for answer in answers.values():
        state = stream_state(answer)
        last = _last(api, reading, state)
        first = check_begin(starting_at(api, reading, state), last, state, fail=reading.fail)
        stretches.append(_narrowed(api, Stretch(state, max(first, state.first), min(last, state.last)), wanted))
    return stretches


def starting_at(api: JetStreamApi, reading: Reading, state: StreamBounds) -> int:
    """Return the first sequence of a new query; raises OptionError if no message is late enough."""
    if (since := reading.since(state.name)) is not None:
        first = api.sequence_at(state.name, since[1])
        if first <= state.last or reading.late_is_latest:
            return first
        raise OptionError(
            f"option {since[0]}: {state.name} has no message as late as that (its last is {state.last}); "
            "startingOffsetsByTimestampStrategy=latest begins after the last one"
        )
    said = reading.start if isinstance(reading.start, str) else reading.start.get(state.name, EARLIEST)
    if said in ("earliest", EARLIEST):
        return state.first
    if said in ("latest", LATEST):
        return state.last + 1
    first = max(int(said), 1)
    if first > state.last + 1:
        check_said("startingOffsets", first, state.name, state.last, fail=reading.fail)
    return first


def _last(api: JetStreamApi, reading: Reading, state: StreamBounds) -> int:
    if (until := reading.until(state.name)) is not None:
        return api.sequence_at(state.name, until[1]) - 1
    said = reading.end if isinstance(reading.end, str) else reading.end.get(state.name, LATEST)
    if said in ("latest", LATEST):
        return state.last
    last = state.first - 1 if said == EARLIEST else int(said)
    check_said("endingOffsets", last, state.name, state.last, fail=reading.fail)
    return last


def check_names(said: str | Mapping[str, int] | None, names: Sequence[str], option: str) -> None:
    """Raise OptionError for offsets of streams that are not read."""
    strangers = sorted(set(said) - set(names)) if isinstance(said, Mapping) else []
    if strangers:
        raise OptionError(f"option {option}: {', '.join(strangers)} is not read; read are {', '.join(names)}")


def check_filters(api: JetStreamApi, answers: Mapping[str, dict[str, Any]], filters: Sequence[str]) -> None:
    """Raise OptionError if no message can match any filter; `answers` are STREAM.INFO of all streams to read."""
    pairs = [(pattern, name) for pattern in filters for name in answers]
    if pairs and all(_never_matches(api, name, answers[name], pattern) for pattern, name in pairs):
        subjects = "; ".join(
            f"{name} has {', '.join(answer['config'].get('subjects') or ())}" for name, answer in answers.items()
        )
        raise OptionError(f"option subject: nothing is or will be stored under {', '.join(filters)}: {subjects}")


def _never_matches(api: JetStreamApi, name: str, answer: dict[str, Any], pattern: str) -> bool:
    """Return whether a stream neither takes nor has messages of a subject; its subjects may have been changed."""
    config, state = answer["config"], answer["state"]
    if any(config.get(key) for key in ("mirror", "sources", "subject_transform")):
        return False
    if any(meet(subject, pattern) for subject in config.get("subjects") or (name,)):
        return False
    try:
        return not state.get("messages") or api.counted(name, state.get("first_seq", 1), (pattern,)) == 0
    except (ApiRefusedError, SourceNotAuthorisedError):
        return False


def _narrowed(api: JetStreamApi, stretch: Stretch, wanted: Wanted) -> Stretch:
    first = max(stretch.first, wanted.first or 0)
    last = stretch.last if wanted.last is None else min(stretch.last, wanted.last)
    name = stretch.state.name
    try:
        if wanted.since_ns is not None and first <= last:
            first = max(first, api.sequence_at(name, wanted.since_ns))
        if wanted.until_ns is not None and first <= last:
            last = min(last, api.sequence_at(name, wanted.until_ns + 1) - 1)
    except (ApiRefusedError, SourceNotAuthorisedError):
        pass  # Spark looks at times itself; the range is only wider than it had to be.
    return Stretch(stretch.state, first, last)


def count(api: JetStreamApi, stretch: Stretch, filters: Sequence[str]) -> int | None:
    """Return the number of messages in a stretch, or None if the server does not allow counting.

    While others publish it may be a few less, never more: the pending count is requested from the beginning first.
    """
    if not stretch.width:
        return 0
    if stretch.state.whole and not filters:
        return stretch.width
    try:
        pending = api.counted(stretch.state.name, stretch.first, filters)
        held = pending and pending - api.counted(stretch.state.name, stretch.last + 1, filters)
    except (ApiRefusedError, SourceNotAuthorisedError):
        return None
    return held if held > 0 or not pending else None


def cut(
    api: JetStreamApi,
    stretch: Stretch,
    filters: Sequence[str],
    wanted: int,
    total: int | None,
    *,
    exact: bool = False,
) -> tuple[int, int | None]:
    """Return the last sequence of a beginning that holds `wanted` messages, and how many it holds.

    Unless it has to be `exact` it may hold a few less, for fewer requests. `total` is the count of the whole stretch;
    None means that sequences are counted instead of messages.
    """
    if total is None or (stretch.state.whole and not filters):
        last = min(stretch.first + wanted - 1, stretch.last)
        return last, None if total is None else last - stretch.first + 1
    if wanted >= total:
        return stretch.last, total
    try:
        return _cut_by_count(api, stretch, filters, wanted, exact=exact)
    except (ApiRefusedError, SourceNotAuthorisedError):
        return min(stretch.first + wanted - 1, stretch.last), None


def _cut_by_count(
    api: JetStreamApi, stretch: Stretch, filters: Sequence[str], wanted: int, *, exact: bool
) -> tuple[int, int | None]:
    """Return the same by requesting the pending count after ever better guesses."""
    name, enough = stretch.state.name, wanted if exact else wanted * CLOSE_ENOUGH
    pending = api.counted(name, stretch.first, filters)
    low, high = stretch.first, stretch.last
    held_low, held_high = 0, pending - api.counted(name, stretch.last + 1, filters)
    best: tuple[int, int | None] = (stretch.first, None)
    halve = False
    while low <= high:
        # Messages are usually spread evenly; every second guess halves the rest in case they are not.
        share = 0.5 if halve else (wanted - held_low) / max(held_high - held_low, 1)
        guess = min(low + int((high - low) * min(max(share, 0.0), 1.0)), high)
        halve = not halve
        held = pending - api.counted(name, guess + 1, filters)
        if held <= wanted:
            best, low, held_low = (guess, max(held, 0)), guess + 1, held
            if held >= enough:
                break
        else:
            high, held_high = guess - 1, held
    return best


def parts(
    api: JetStreamApi, stretches: Sequence[Stretch], reading: Reading, filters: Sequence[str]
) -> list[StreamPart]:
    """Return the stretches split into tasks, as many in all as `minPartitions` says or suit the number of messages."""
    # That there are no messages is not believed: a replica or mirror that lags may have been the one that counted.
    counts = [count(api, stretch, filters) or None for stretch in stretches]
    weights = [stretch.width if known is None else known for stretch, known in zip(stretches, counts, strict=True)]
    wanted = reading.parts or max(cores(), min(-(-sum(weights) // MESSAGES_PER_PART), MAX_PARTS))
    found: list[StreamPart] = []
    for stretch, known, weight in zip(stretches, counts, weights, strict=True):
        if not weight:
            continue
        share = round(wanted * weight / sum(weights))
        number = max(min(share, weight // MESSAGES_PER_TASK), 1)
        found += _split(api, stretch, reading, filters, number, known)
    return found


def planned_parts(
    api: JetStreamApi, stretch: Stretch, begin: int, cuts: Sequence[int], reading: Reading
) -> list[StreamPart]:
    """Return the parts of a batch that was cut before: from after `begin` to each cut, and to the end of the stretch.

    The stretch is the rest of the batch; a part without rest is included and empty, so that each part
    keeps its number.
    """
    state = stretch.state
    bounds = [begin, *(min(each, stretch.last) for each in cuts), stretch.last]
    found = []
    for (before, last), held in zip(pairwise(bounds), _counts(api, state, bounds, reading.filters), strict=True):
        todo = ReadRange(state.name, max(before + 1, stretch.first), last, reading.filters, reading.transport)
        found.append(StreamPart(todo, state.created, held, reading.fail))
    return found


def _counts(
    api: JetStreamApi, state: StreamBounds, bounds: Sequence[int], filters: Sequence[str]
) -> Sequence[int | None]:
    """Return the number of messages from after each bound to the next, or None if unknown or zero."""
    if state.whole and not filters:
        return [max(last - max(before, state.first - 1), 0) for before, last in pairwise(bounds)]
    try:
        pending = [api.counted(state.name, bound + 1, filters) for bound in bounds]
    except (ApiRefusedError, SourceNotAuthorisedError):
        return [None] * (len(bounds) - 1)
    return [max(here - behind, 0) or None for here, behind in pairwise(pending)]


def _split(
    api: JetStreamApi, rest: Stretch, reading: Reading, filters: Sequence[str], number: int, known: int | None
) -> list[StreamPart]:
    """Return a stretch as so many parts of about equal numbers of messages; more where `most_in_part` asks for it."""
    found: list[StreamPart] = []
    while rest.width:
        left = rest.width if known is None else known
        more = max(number - len(found), -(-left // (reading.most_in_part or left or 1)))
        last, held = rest.last, known
        if more > 1:
            last, held = cut(api, rest, filters, -(-left // more), known)
        todo = ReadRange(rest.state.name, rest.first, last, tuple(filters), reading.transport)
        found.append(StreamPart(todo, rest.state.created, held, reading.fail))
        rest = Stretch(rest.state, last + 1, rest.last)
        known = None if known is None or held is None else known - held
    return found


def read_part(
    settings: ServerSettings, part: StreamPart, limits: FetchLimits, shape: RowShape
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part.

    Raises DataLossError where the stream was made again, or messages went, since it was planned.
    """

    def same(now: StreamBounds) -> bool:
        return check_planned(part.todo.first, part.todo.last, part.created, now, fail=part.fail)

    rows = 0
    for batch in read_range(settings, part.todo, limits, shape, lambda answer: same(stream_state(answer))):
        rows += batch.num_rows
        yield batch
    if part.expected is None or rows >= part.expected:
        return
    asking = Asking(settings)
    try:
        now = stream_state(asking(lambda api: api.stream_info(part.todo.stream)))
    finally:
        asking.close()
    if same(now):
        check_read(part.todo.first, part.todo.last, part.expected - rows, now, fail=part.fail)
