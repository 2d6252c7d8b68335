"""Sources of messages to be shown, all read alike: subjects, and streams through a consumer or direct gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from natsctl.api import acks, codec, endpoints, headers
from natsctl.api.errors import NatsctlError, UsageError
from natsctl.api.subjects import is_subset, matches
from natsctl.api.times import format_time, parse_time
from natsctl.client.connection import ConnectionLostError, Subscription
from natsctl.client.message import NO_RESPONDERS, Headers, Message, as_bytes, as_text
from natsctl.client.messaging.consumers import (
    MAX_BATCH,
    DeliveredMessage,
    OrderedReader,
    PullOptions,
    pushed,
    resumed,
    take,
)
from natsctl.client.requests import not_understood

if TYPE_CHECKING:
    from natsctl.client.manager import Manager


class FeedReading(NamedTuple):
    """A stream that a feed reads: by direct gets, in order, or through a durable pull or push consumer.

    `existing` is false for a consumer that was made for the feed.
    """

    way: Literal["direct", "ordered", "pull", "push"]
    stream: str
    subjects: Sequence[str]
    existing: bool = False


class MessageFeed:
    """Messages as they come; an asynchronous context manager that cleans up after itself."""

    def __init__(self) -> None:
        self.ended = False
        """Whether nothing more will come."""
        self.reading: FeedReading | None = None

    def now(self) -> Message | None:
        return None

    async def next(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message, or None if none came in time or the feed has ended."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the feed's resources."""


class CoreFeed(MessageFeed):
    """Messages published on some subjects."""

    def __init__(self, manager: Manager, subjects: Sequence[str], queue: str = "") -> None:
        super().__init__()
        self._manager, self._subjects, self._queue = manager, subjects, queue
        self._subscription: Subscription | None = None

    async def __aenter__(self) -> Self:
        connection = self._manager.connection
        self._subscription = await connection.subscribe(*self._subjects, queue=self._queue, lasting=True)
        await connection.flush()
        self.now = self._subscription.now  # type: ignore[method-assign]  # one call less for each message
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._subscription is not None:
            await self._subscription.stop()

    @property
    def dropped(self) -> int:
        """Return messages that came faster than they were read, and are lost."""
        return self._subscription.dropped if self._subscription is not None else 0

    def now(self) -> Message | None:
        return self._subscription.now() if self._subscription is not None else None

    async def next(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message, or None when none came in time."""
        return await self._subscription.next(timeout_s) if self._subscription is not None else None


DIRECT_BATCH = 256
"""Messages that one direct get asks for."""
POLL_S = 0.25
"""Pause between two direct gets that found nothing."""
ALL = ">"
_END_OF_BATCH = 204
_NOT_FOUND = (404, 408)
_UNREADABLE = ("workqueue", "interest")
"""Retention policies under which another consumer takes messages away from them, or is refused."""


class Start(NamedTuple):
    """Start of reading: a deliver policy, with its sequence or how many ns ago."""

    policy: str = "all"
    value: int = 0

    def fields(self, now_ns: int) -> dict[str, Any]:
        fields: dict[str, Any] = {"deliver_policy": self.policy}
        if self.policy == "by_start_sequence":
            fields["opt_start_seq"] = self.value
        elif self.policy == "by_start_time":
            fields["opt_start_time"] = format_time(now_ns - self.value)
        return fields


async def feed_of_stream(
    manager: Manager,
    stream: str,
    subjects: Sequence[str],
    start: Start,
    *,
    durable: str = "",
    direct: bool = False,
    to_end: bool = False,
    headers_only: bool = False,
    count: int = 0,
) -> MessageFeed:
    """Return the feed of the stream's messages on the subjects, from `start` on; "" for the stream that stores them.

    `count` is the number of messages, 0 for no end. Streams that deliver messages once (work queue, interest)
    are read by direct gets: these remove nothing. Raises UsageError if no stream is named or found for the subjects,
    ApiResponseError if it does not exist.
    """
    name = stream or await stream_of(manager, subjects)
    subjects = widest(subjects)
    info = (await manager.stream_info(name)).raw
    feed: MessageFeed
    way: Literal["direct", "ordered", "pull", "push"]
    existing = False
    if durable:
        config = {"durable_name": durable, "ack_policy": "explicit", **start.fields(time.time_ns())}
        known, existing = await durable_consumer(manager, name, {**config, **_filter(subjects)})
        if known["config"].get("deliver_subject"):
            way, feed = "push", _push_feed(manager, known, to_end=to_end)
        else:
            way, feed = "pull", _pull_feed(manager, name, known["config"], count, to_end=to_end)
    elif direct or info["config"].get("retention") in _UNREADABLE:
        begin = _direct_start(start, subjects, info["state"])
        way, feed = "direct", DirectFeed(manager, name, subjects, begin, to_end=to_end)
    else:
        reader = ordered_reader(manager, name, subjects, start, headers_only=headers_only)
        way, feed = "ordered", StreamFeed(reader, to_end=to_end)
    feed.reading = FeedReading(way, name, subjects or info["config"].get("subjects") or [ALL], existing)
    return feed


def ordered_reader(
    manager: Manager, stream: str, subjects: Sequence[str], start: Start, *, headers_only: bool = False
) -> OrderedReader:
    fields = start.fields(time.time_ns())
    # With `last_per_subject` a server needs the subjects.
    every = [ALL] if start.policy == "last_per_subject" else []
    return OrderedReader(
        manager,
        stream,
        subjects or every,
        deliver=start.policy,
        start_seq=fields.get("opt_start_seq", 0),
        start_time=fields.get("opt_start_time", ""),
        headers_only=headers_only,
    )


def widest(subjects: Sequence[str]) -> list[str]:
    every = list(dict.fromkeys(subjects))
    return [one for one in every if not any(one != wide and is_subset(one, wide) for wide in every)]


def _filter(subjects: Sequence[str]) -> dict[str, Any]:
    if len(subjects) == 1:
        return {"filter_subject": subjects[0]}
    return {"filter_subjects": list(subjects)} if subjects else {}


def _direct_start(start: Start, subjects: Sequence[str], state: dict[str, Any]) -> dict[str, Any]:
    """Return the first request's position in the fields of a direct get."""
    last = int(state.get("last_seq") or 0)
    if start.policy == "by_start_time":
        return {"start_time": start.fields(time.time_ns())["opt_start_time"]}
    if start.policy == "last_per_subject":
        return {"multi_last": list(subjects) or [">"]}
    return {"seq": {"new": last + 1, "last": max(last, 1), "by_start_sequence": start.value}.get(start.policy, 1)}


class StreamFeed(MessageFeed):
    """Messages of a stream, stored and new, through a consumer that ends with the feed.

    With `to_end` it ends with the last message that there is.
    """

    def __init__(self, reader: OrderedReader, *, to_end: bool = False) -> None:
        super().__init__()
        self._reader, self._to_end = reader, to_end

    async def __aenter__(self) -> Self:
        await self._reader.__aenter__()
        self.ended = self._to_end and self._reader.pending == 0
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._reader.__aexit__(kind, failure, trace)

    def now(self) -> Message | None:
        return None if self.ended else self._checked(self._reader.now())

    async def next(self, timeout_s: float | None = None) -> Message | None:
        return None if self.ended else self._checked(await self._reader.next(timeout_s))

    def _checked(self, delivered: DeliveredMessage | None) -> Message | None:
        if delivered is None:
            return None
        self.ended = self._to_end and delivered.at.pending == 0
        return delivered.message


class ConsumerFeed(MessageFeed):
    """Messages of a durable consumer; it ends when none comes in time.

    With `to_end` it also ends with the consumer's last pending message.
    """

    def __init__(self, messages: AsyncGenerator[Message, None], *, to_end: bool = False) -> None:
        super().__init__()
        self._messages, self._to_end = messages, to_end

    async def __aexit__(self, *exc: object) -> None:
        await self._messages.aclose()

    async def next(self, timeout_s: float | None = None) -> Message | None:
        if self.ended:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                message = await anext(self._messages)
        except (TimeoutError, StopAsyncIteration):
            self.ended = True
            return None
        if self._to_end:
            place = acks.parse(as_bytes(message.reply))
            self.ended = place is not None and place.pending == 0
        return message


def _pull_feed(manager: Manager, stream: str, config: dict[str, Any], count: int, *, to_end: bool) -> ConsumerFeed:
    """Return the feed of a pull consumer; `count` is the number of messages to request, 0 for no limit."""
    name = str(config.get("durable_name") or config.get("name"))
    options = PullOptions(0, min(count or MAX_BATCH, MAX_BATCH), no_wait=to_end)
    return ConsumerFeed(take(manager, stream, name, options, config))


def _push_feed(manager: Manager, info: dict[str, Any], *, to_end: bool) -> ConsumerFeed:
    feed = ConsumerFeed(pushed(manager, info), to_end=to_end)
    feed.ended = to_end and not info.get("num_pending") and not info.get("num_ack_pending")
    return feed


class DirectFeed(MessageFeed):
    """Messages of a stream, stored and new, by direct gets: no consumer is made, and nothing is acknowledged."""

    def __init__(
        self,
        manager: Manager,
        stream: str,
        subjects: Sequence[str],
        start: dict[str, Any],
        *,
        to_end: bool = False,
        batch: int = DIRECT_BATCH,
    ) -> None:
        super().__init__()
        self._manager, self._stream, self._subjects = manager, stream, list(subjects) or [">"]
        self._batch = batch
        self._start = start or {"seq": 1}
        self._to_end = to_end
        self._kept: list[Message] = []
        self._last_seq = 0

    async def __aenter__(self) -> Self:
        await self._fetch()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._kept.clear()

    def now(self) -> Message | None:
        return self._kept.pop(0) if self._kept else None

    async def next(self, timeout_s: float | None = None) -> Message | None:
        clock = asyncio.get_running_loop().time
        end_s = None if timeout_s is None else clock() + timeout_s
        while not self._kept:
            if self.ended or (end_s is not None and clock() >= end_s):
                return None
            await self._fetch()
            if not self._kept and not self.ended:
                await asyncio.sleep(POLL_S if end_s is None else min(POLL_S, max(0.0, end_s - clock())))
        return self.now()

    async def _fetch(self) -> None:
        """Get the next messages; without any and `to_end` the feed has ended."""
        connection = self._manager.connection
        subject = endpoints.DIRECT_GET.subject(self._stream, prefix=connection.target.api_prefix)
        request = codec.encode(self._request())
        subscription = await connection.subscribe(connection.new_inbox())
        subscription.watched = subject
        connection.trace(subject, request)
        before, taken = self._last_seq, 0
        try:
            await connection.publish(subject, request, reply=subscription.subject)
            while (message := await subscription.next(connection.timeout_s)) is not None:
                if message.status == NO_RESPONDERS:
                    info = await resumed(connection, lambda: self._manager.stream_info(self._stream))
                    if connection.openings and info.raw["config"].get("allow_direct"):
                        return  # the server has just started again
                    raise NatsctlError(
                        f"Stream {self._stream} does not allow direct gets",
                        hint="allow them: natsctl str edit --allow-direct",
                    )
                if message.status in (_END_OF_BATCH, *_NOT_FOUND):
                    if taken and self._last_seq <= before:
                        raise not_understood(subject, f"the messages after {before} end at {self._last_seq}")
                    self._last_seq = max(self._last_seq, int(message.headers.get("Nats-UpTo-Sequence", "0")))
                    self.ended = self._to_end and not int(message.headers.get("Nats-Num-Pending", "0"))
                    return
                if message.status:
                    raise NatsctlError(f"direct get of {self._stream}: {message.status} {message.description}")
                self._keep(message)
                taken += 1
        except ConnectionLostError:
            if not connection.reconnects:
                raise
            await connection.reopen()
        finally:
            await subscription.stop()

    def _request(self) -> dict[str, Any]:
        if not self._last_seq and "multi_last" in self._start:
            return self._start
        where = {"seq": self._last_seq + 1} if self._last_seq else self._start
        # Several subjects can be asked for only as one pattern over all of them; others are left out here.
        one = self._subjects[0] if len(self._subjects) == 1 else ">"
        return {**where, "next_by_subj": one, "batch": self._batch}

    def _keep(self, message: Message) -> None:
        added = dict(message.headers.pairs)  # of repeated names the last: one republished has its origin's before it
        self._last_seq = int(added.get("Nats-Sequence", self._last_seq))
        message.subject = added.get("Nats-Subject", message.subject)
        if any(matches(pattern, message.subject) for pattern in self._subjects):
            self._kept.append(message)


async def stored_messages(
    manager: Manager,
    stream: str,
    subjects: Sequence[str] = (),
    start: Start = Start(),
    *,
    direct: bool = False,
) -> AsyncGenerator[Message, None]:
    """Yield the messages that the stream has on the subjects, from `start` on, in order; nothing is removed by it.

    They are read through an ordered consumer, or by direct gets: with `direct`, and where messages are delivered once.
    Where direct gets are not allowed then, each message is asked for on its own.
    """
    subjects = widest(subjects)
    info = (await manager.stream_info(stream)).raw
    config, last = info["config"], int(info["state"].get("last_seq") or 0)
    if config.get("retention") in _UNREADABLE and not config.get("allow_direct"):
        reading = _one_by_one(manager, stream, subjects, start, info)
    elif direct or config.get("retention") in _UNREADABLE:
        begin = _direct_start(start, subjects, info["state"])
        reading = _fed(DirectFeed(manager, stream, subjects, begin, to_end=True))
    else:
        reading = _ordered(ordered_reader(manager, stream, subjects, start))
    async with aclosing(reading) as messages:
        async for seq, message in messages:
            if seq > last:
                return
            yield message
            if seq == last:
                return


async def _ordered(reader: OrderedReader) -> AsyncGenerator[tuple[int, Message], None]:
    async with reader:
        async for delivered in reader.stored():
            yield delivered.at.stream_seq, delivered.message


async def _fed(feed: DirectFeed) -> AsyncGenerator[tuple[int, Message], None]:
    async with feed:
        while (message := await feed.next()) is not None:
            yield int(dict(message.headers.pairs).get("Nats-Sequence", "0")), message


async def _one_by_one(
    manager: Manager, stream: str, subjects: Sequence[str], start: Start, info: dict[str, Any]
) -> AsyncGenerator[tuple[int, Message], None]:
    """Yield the messages with the headers of a direct get."""
    from natsctl.client.stream_state import next_message

    position = _direct_start(start, subjects, info["state"])
    seq, since = int(position.get("seq") or 1), position.get("start_time", "")
    one = subjects[0] if len(subjects) == 1 else ALL
    while (stored := await next_message(manager, stream, seq, one)) is not None:
        seq = stored.seq + 1
        if (subjects and not any(matches(subject, stored.subject) for subject in subjects)) or (
            since and parse_time(stored.time) < parse_time(since)
        ):
            continue
        pairs = [(as_text(key), as_text(value)) for key, value in headers.parse(stored.hdrs or b"")]
        added = (("Nats-Subject", stored.subject), ("Nats-Sequence", str(stored.seq)), ("Nats-Time-Stamp", stored.time))
        yield stored.seq, Message(stored.subject, stored.data or b"", headers=Headers([*pairs, *added]))


def check_in_order(config: dict[str, Any], *, last_per_subject: bool) -> None:
    """Raise UsageError if the stream is read by direct gets that do not keep its order."""
    if last_per_subject and config.get("retention") in _UNREADABLE:
        raise UsageError("--last-per-subject of such a stream is read by direct gets, out of order")


async def stream_of(manager: Manager, subjects: Sequence[str]) -> str:
    """Return the stream that stores these subjects. Raises UsageError without one, or with several."""
    found = {name for subject in subjects for name in await manager.stream_names(subject=subject)}
    if len(found) == 1:
        return found.pop()
    asked = ", ".join(subjects) or "nothing"
    if not found:
        raise UsageError(f"no Stream stores {asked}", hint="natsctl str ls shows the Streams and their subjects")
    raise UsageError(f"several Streams store {asked}: {', '.join(sorted(found))}", hint="name one with --stream")


async def durable_consumer(manager: Manager, stream: str, config: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the description of the durable consumer that `config` names, and whether it existed.

    It is created if it does not exist.
    """
    name = config["durable_name"]
    found = await manager.find_consumer(stream, name)
    answer: Any = found or await manager.consumer_create(stream, config, action="create")
    return dict(answer.raw), found is not None
