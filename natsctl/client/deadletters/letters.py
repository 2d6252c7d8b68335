"""Dead letters: the advisories of capture streams, grouped by stream, consumer and sequence.

Nothing here changes anything on the server, and no consumer is created if the capture stream allows direct gets.

Copies and replays have headers that say where the message came from, and its own headers without their effect: one
that makes a stream check, expire, replace, count or schedule a message must not do so again. Such a header is kept as
`Dead-Letter-Header-NAME`. `REPLAYED` decides on each header of the server; docs/how-to/handle-messages-that-fail.md
has the same table.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from natsctl.api import acks
from natsctl.api.advisories import MaxDeliver, Terminated
from natsctl.api.subjects import matches
from natsctl.api.times import format_time, parse_time
from natsctl.client.deadletters.capture import (
    COPIES,
    EVERY_STREAM,
    MAX_DELIVERIES,
    MSG_TERMINATED,
    PREFIX,
    CaptureStream,
    required_captures,
)
from natsctl.client.manager import Manager
from natsctl.client.message import Message
from natsctl.client.messaging.messages import at, last_on
from natsctl.client.requests import side_by_side

if TYPE_CHECKING:
    from natsctl.client.messaging.feed import Start

Pair = tuple[str, str]

STREAM: Final = "Dead-Letter-Stream"
SEQUENCE: Final = "Dead-Letter-Sequence"
SUBJECT: Final = "Dead-Letter-Subject"
TIME: Final = "Dead-Letter-Time"
"""Time when the message was stored first."""
CONSUMER: Final = "Dead-Letter-Consumer"
REASON: Final = "Dead-Letter-Reason"
DELIVERIES: Final = "Dead-Letter-Deliveries"
REPLAYS: Final = "Dead-Letter-Replays"
"""How often the message was replayed, of replays only."""
CARRIED: Final = "Dead-Letter-Header-"
MSG_ID: Final = "Nats-Msg-Id"
TTL: Final = "Nats-TTL"
COUNTER: Final = "Nats-Incr"

REPLAYED: Final = {
    MSG_ID: "replaced by one made of stream, sequence, time and subject, so that a repeated replay is recognized",
    "Msg-Id": "carried: the old name of Nats-Msg-Id",
    "Nats-Expected-Stream": "carried: it was about the first publish",
    "Nats-Expected-Last-Sequence": "carried: the stream has moved on, and the check would fail",
    "Nats-Expected-Last-Subject-Sequence": "carried: the subject has moved on, and the check would fail",
    "Nats-Expected-Last-Subject-Sequence-Subject": "carried, as it belongs to the header above",
    "Nats-Expected-Last-Msg-Id": "carried: the stream has moved on, and the check would fail",
    TTL: "kept on the message's own subject, and its time starts again; carried with --to: the message must wait there",
    "Nats-Rollup": "carried: it would remove newer messages of the subject, or of the stream",
    "Nats-Schedule": "carried: the schedule would start a second time",
    "Nats-Schedule-Target": "carried with the schedule",
    "Nats-Schedule-Source": "carried with the schedule",
    "Nats-Schedule-TTL": "carried with the schedule",
    "Nats-Schedule-Time-Zone": "carried with the schedule",
    "Nats-Schedule-Rollup": "carried with the schedule",
    "Nats-Scheduler": "carried: the server wrote it when the schedule was due",
    "Nats-Schedule-Next": "carried: the server wrote it when the schedule was due",
    COUNTER: "not replayed at all: the counter would count the message twice",
    "Nats-Counter-Sources": "carried: the server wrote it",
    "Nats-Batch-Id": "carried: the batch was committed",
    "Nats-Batch-Sequence": "carried: the batch was committed",
    "Nats-Batch-Commit": "carried: the batch was committed",
    "Nats-Stream-Source": "carried: the server wrote it when it copied the message from another stream",
    "Nats-Marker-Reason": "carried: the server wrote it when it removed a message",
    "Nats-Trace-Dest": "carried: the trace has ended",
}
"""Headers that act on a stream, and the decision of a replay on each. Other `Nats-` headers are carried."""

_VALID_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class FailedMessage(NamedTuple):
    """A message that failed: as it was stored, from its stream or from a copy."""

    stream: str
    seq: int
    subject: str
    time_ns: int
    body: bytes
    headers: Sequence[Pair]


class DeliveryFailure(NamedTuple):
    """The last advisory about a message."""

    consumer: str
    reason: str
    deliveries: int


def _acts(name: str) -> bool:
    """Return whether a header acts on a stream, or describes an earlier origin."""
    return name.lower().startswith(("nats-", "dead-letter-")) or name == "Msg-Id"


def _origin(message: FailedMessage, failure: DeliveryFailure) -> list[Pair]:
    return [
        (STREAM, message.stream),
        (SEQUENCE, str(message.seq)),
        (SUBJECT, message.subject),
        (TIME, format_time(message.time_ns)),
        (CONSUMER, failure.consumer),
        (REASON, " ".join(failure.reason.split())),
        (DELIVERIES, str(failure.deliveries)),
    ]


def _sendable(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the headers that a client may send; names outside the protocol's characters are left out."""
    return [(name, value) for name, value in pairs if _VALID_NAME.fullmatch(name)]


def copy_headers(message: FailedMessage, failure: DeliveryFailure) -> list[Pair]:
    """Return the headers of the copy that keeps a message."""
    own = [(CARRIED + name if _acts(name) else name, value) for name, value in message.headers]
    return _sendable([*_origin(message, failure), *own])


def message_of_copy(headers: Sequence[Pair], body: bytes) -> FailedMessage:
    """Return the message that a copy keeps. Raises ValueError if the headers are not a copy's."""
    first = dict(reversed(headers))
    own = [
        (name.removeprefix(CARRIED), value) for name, value in headers if name.startswith(CARRIED) or not _acts(name)
    ]
    try:
        place = (first[STREAM], int(first[SEQUENCE]), first[SUBJECT], parse_time(first[TIME]))
    except KeyError as missing:
        raise ValueError(f"the copy has no header {missing}") from missing
    return FailedMessage(*place, body, own)


def replay_headers(message: FailedMessage, failure: DeliveryFailure, subject: str) -> list[Pair]:
    """Return the headers of a replay on a subject; each replay of a message to a subject has the same Nats-Msg-Id."""
    replays = next((int(value) for name, value in message.headers if name == REPLAYS and value.isdigit()), 0)
    msg_id = f"dead-letter.{message.stream}.{message.seq}.{message.time_ns}.{subject}"
    own: list[Pair] = []
    for name, value in message.headers:
        if not _acts(name) or (name == TTL and subject == message.subject):
            own.append((name, value))
        elif not name.startswith("Dead-Letter-"):
            own.append((CARRIED + name, value))
    return _sendable([(MSG_ID, msg_id), *_origin(message, failure), (REPLAYS, str(replays + 1)), *own])


def is_counter(message: FailedMessage) -> bool:
    """Return whether a message changed a counter."""
    return any(name == COUNTER for name, _ in message.headers)


AT_ONCE: Final = 64
"""Messages that are looked up, copied or replayed at a time."""
_REASONS: Final = {MAX_DELIVERIES: "max deliveries", MSG_TERMINATED: "terminated"}


class DeadLetterAdvisory(msgspec.Struct):
    """One advisory: `entry` is its sequence in the capture stream."""

    time: str
    reason: str
    deliveries: int
    entry: int


class DeadLetter(msgspec.Struct):
    """A message that a consumer gave up (`max deliveries`) or terminated, with its advisories, oldest first.

    `time`, `reason` and `deliveries` are those of the last advisory. `subject`, `exists` and `copied` are known after
    `describe`: "" and None before it.
    """

    time: str
    stream: str
    consumer: str
    seq: int
    deliveries: int
    reason: str
    capture: str
    advisories: list[DeadLetterAdvisory]
    subject: str = ""
    exists: bool | None = None
    copied: bool | None = None

    @property
    def failure(self) -> DeliveryFailure:
        """Return the last advisory in the form that headers have."""
        return DeliveryFailure(self.consumer, self.reason, self.deliveries)

    def add(self, advisory: DeadLetterAdvisory) -> None:
        """Add a later advisory about the same message."""
        self.advisories.append(advisory)
        self.time, self.reason, self.deliveries = advisory.time, advisory.reason, advisory.deliveries

    def copy_subjects(self) -> list[str]:
        """Return the subjects of its copies, the newest first."""
        place = f"{COPIES}.{self.stream}.{self.consumer}.{self.seq}"
        return [f"{place}.{advisory.entry}" for advisory in reversed(self.advisories)]


@dataclass(frozen=True)
class LetterFilter:
    """A selection of dead letters. All tests must pass; an empty test always does."""

    stream: str = ""
    consumers: Sequence[str] = ()
    sequences: Sequence[int] = ()
    since_ns: int = 0
    until_ns: int = 0
    subject: str = ""
    """Subject or pattern of the messages."""
    reason: str = ""

    @property
    def patterns(self) -> list[str]:
        """Return the subjects of the advisories."""
        stream = self.stream or EVERY_STREAM
        return [f"{PREFIX}.*.{stream}.{name}" for name in self.consumers] or [f"{PREFIX}.*.{stream}.>"]

    def passes(self, letter: DeadLetter) -> bool:
        """Test everything but the subject; only `describe` knows it."""
        return (
            (not self.stream or letter.stream == self.stream)
            and (not self.consumers or letter.consumer in self.consumers)
            and (not self.sequences or letter.seq in self.sequences)
            and self.reason.lower() in letter.reason.lower()
            and (not self.until_ns or parse_time(letter.time) < self.until_ns)
            and (not self.since_ns or parse_time(letter.time) >= self.since_ns)
        )

    def passes_subject(self, letter: DeadLetter) -> bool:
        """Test the subject of a described dead letter."""
        return not self.subject or (bool(letter.subject) and matches(self.subject, letter.subject))


_decoder: msgspec.json.Decoder[MaxDeliver | Terminated] = msgspec.json.Decoder(MaxDeliver | Terminated)


def parse_advisory(capture: str, subject: str, entry: int, body: bytes) -> DeadLetter | None:
    """Return the dead letter that a stored advisory reports, None for other messages and broken ones.

    Stream and consumer come from the subject, so that they are valid tokens whatever the body says.
    """
    tokens = subject.split(".")
    if len(tokens) != 7 or not subject.startswith(PREFIX) or tokens[4] not in _REASONS:
        return None
    try:
        event = _decoder.decode(body)
        parse_time(event.timestamp)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if not event.stream_seq:
        return None
    reason = _REASONS[tokens[4]]
    if isinstance(event, Terminated) and event.reason:
        reason = f"{reason}: {event.reason}"
    advisory = DeadLetterAdvisory(event.timestamp, reason, event.deliveries, entry)
    place = (event.timestamp, tokens[5], tokens[6], event.stream_seq, event.deliveries, reason)
    return DeadLetter(*place, capture, [advisory])


def entry_of(message: Message) -> int:
    """Return the sequence of a message that a feed has read."""
    if text := message.headers.get("Nats-Sequence", ""):
        return int(text) if text.isdigit() else 0
    place = acks.parse(message.reply.encode())
    return place.stream_seq if place is not None else 0


async def _stored(manager: Manager, capture: CaptureStream, selection: LetterFilter) -> AsyncIterator[DeadLetter]:
    from natsctl.client.messaging.feed import Start, feed_of_stream

    start = _start(selection) if selection.since_ns else Start()
    direct = bool(capture.info.config.allow_direct)
    patterns = selection.patterns
    async with await feed_of_stream(manager, capture.name, patterns, start, direct=direct, to_end=True) as feed:
        while (message := feed.now() or await feed.next()) is not None:
            if (letter := parsed(capture, message)) is not None:
                yield letter


def _start(selection: LetterFilter) -> Start:
    from natsctl.client.messaging.feed import Start

    return Start("by_start_time", max(0, time.time_ns() - selection.since_ns))


def parsed(capture: CaptureStream, message: Message) -> DeadLetter | None:
    """Return the dead letter of a message that a feed has read from a capture stream."""
    subject = message.headers.get("Nats-Subject", "") or message.subject
    return parse_advisory(capture.name, subject, entry_of(message), message.body)


async def read_letters(manager: Manager, selection: LetterFilter = LetterFilter()) -> list[DeadLetter]:
    """Return the dead letters that pass a filter, the oldest first; described only if the filter has a subject.

    Raises NoDeadLettersError if no stream keeps them, ApiResponseError if the stream does not exist.
    """
    captures = await required_captures(manager, selection.stream)
    letters = [letter for capture in captures for letter in await letters_in(manager, capture, selection)]
    passing = sorted(filter(selection.passes, letters), key=lambda letter: parse_time(letter.time))
    if selection.subject:
        await describe(manager, passing, captures)
        passing = [letter for letter in passing if selection.passes_subject(letter)]
    return passing


async def follow_letters(
    manager: Manager, selection: LetterFilter = LetterFilter()
) -> AsyncGenerator[DeadLetter, None]:
    """Yield dead letters of a selection as they are reported, described, without end; earlier ones with `since_ns`.

    Raises as `read_letters`.
    """
    from natsctl.client.messaging.feed import Start, feed_of_stream

    captures = await required_captures(manager, selection.stream)
    arrived: asyncio.Queue[DeadLetter] = asyncio.Queue(AT_ONCE)

    async def read(capture: CaptureStream) -> None:
        start = _start(selection) if selection.since_ns else Start("new")
        async with await feed_of_stream(manager, capture.name, selection.patterns, start) as feed:
            while not feed.ended:
                message = feed.now() or await feed.next()
                if message is not None and (letter := parsed(capture, message)) is not None:
                    await arrived.put(letter)

    tasks = [asyncio.ensure_future(read(capture)) for capture in captures]
    try:
        while True:
            getting = asyncio.ensure_future(arrived.get())
            done, _ = await asyncio.wait([getting, *tasks], return_when=asyncio.FIRST_COMPLETED)
            if getting not in done:
                getting.cancel()
                for task in done:
                    task.result()
                return
            letter = getting.result()
            await describe(manager, [letter], captures)
            if selection.passes(letter) and selection.passes_subject(letter):
                yield letter
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def letters_in(
    manager: Manager, capture: CaptureStream, selection: LetterFilter = LetterFilter()
) -> list[DeadLetter]:
    """Return the dead letters of a capture stream on the subjects of a selection; its other tests are left out."""
    letters: dict[tuple[str, str, int], DeadLetter] = {}
    async for letter in _stored(manager, capture, selection):
        place = (letter.stream, letter.consumer, letter.seq)
        if (known := letters.get(place)) is None:
            letters[place] = letter
        else:
            known.add(letter.advisories[0])
    return list(letters.values())


class LetterSource:
    """The messages of dead letters, from their streams or from copies."""

    def __init__(self, manager: Manager, captures: Iterable[CaptureStream]) -> None:
        self._manager = manager
        self._copies = {capture.name for capture in captures if capture.copies}
        self._direct: dict[str, bool | None] = {}
        """Whether each stream allows direct gets; None: the stream does not exist."""

    async def stored(self, letter: DeadLetter) -> FailedMessage | None:
        """Return the message in its stream; None if it does not exist, or is a newer one of a stream made again."""
        direct = await self.allows_direct(letter.stream)
        message = await at(self._manager, letter.stream, letter.seq, direct=direct) if direct is not None else None
        if message is None or parse_time(message.time) > parse_time(letter.time):
            return None
        return FailedMessage(
            letter.stream, message.seq, message.subject, parse_time(message.time), message.body, message.headers.pairs
        )

    async def copy(self, letter: DeadLetter) -> FailedMessage | None:
        """Return the message from its copy, if there is one."""
        for subject in letter.copy_subjects() if letter.capture in self._copies else ():
            if (copy := await last_on(self._manager, letter.capture, subject, direct=True)) is not None:
                try:
                    return message_of_copy(copy.headers.pairs, copy.body)
                except ValueError:
                    continue
        return None

    async def allows_direct(self, stream: str) -> bool | None:
        """Return whether a stream allows direct gets; None if it does not exist."""
        if stream not in self._direct:
            answer = await self._manager.find_stream(stream)
            self._direct[stream] = bool(answer.value.config.allow_direct) if answer is not None else None
        return self._direct[stream]


async def describe(manager: Manager, letters: Sequence[DeadLetter], captures: Sequence[CaptureStream]) -> None:
    """Fill in the subject of each dead letter, whether its message still exists, and whether there is a copy."""
    source = LetterSource(manager, captures)

    async def look(letter: DeadLetter) -> None:
        message, copy = await source.stored(letter), await source.copy(letter)
        letter.exists, letter.copied = message is not None, copy is not None
        if known := message or copy:
            letter.subject = known.subject

    for stream in {letter.stream for letter in letters}:
        await source.allows_direct(stream)
    await side_by_side(look, letters, AT_ONCE)


class DeadLetterCount(msgspec.Struct):
    """Dead letters of a stream, consumer and reason; `oldest` and `newest` are times of their last advisories."""

    stream: str
    consumer: str
    reason: str
    messages: int
    oldest: str
    newest: str


def count_letters(letters: Iterable[DeadLetter]) -> list[DeadLetterCount]:
    """Return dead letters counted by stream, consumer and reason, in descending order of messages."""
    counts: dict[tuple[str, str, str], DeadLetterCount] = {}
    for letter in letters:
        place = (letter.stream, letter.consumer, letter.reason)
        if (known := counts.get(place)) is None:
            counts[place] = DeadLetterCount(*place, 1, letter.time, letter.time)
        else:
            known.messages += 1
            known.oldest = min(known.oldest, letter.time, key=parse_time)
            known.newest = max(known.newest, letter.time, key=parse_time)
    return sorted(counts.values(), key=lambda count: (-count.messages, count.stream, count.consumer, count.reason))
