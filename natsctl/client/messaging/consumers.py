"""Reading from pull, push and ordered consumers.

A pull request lives on the server until it is served, expires, or its inbox has no subscriber any more: so a reader
that stops ends the inbox, and no request is left. Messages that had arrived by then and were not read are nak'ed
at once, so that others do not wait until the ack wait is over.

A push consumer is read by a subscription on its delivery subject that answers flow control.

An ordered consumer yields the messages of a stream in order and without gaps. It pushes to an inbox, with flow control
and heartbeats, and is kept in memory on one server. Its messages are numbered: if a number is missing, heartbeats
stay away or the connection was lost, it is created again after the last message received. Creating it changes nothing
that is visible to others, so dry runs read too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from natsctl.api import acks, codec, endpoints
from natsctl.api.acks import NAK, AckSubject
from natsctl.api.errors import (
    ApiResponseError,
    ErrCode,
    NatsctlError,
    NotAuthorisedError,
    ProtocolError,
    UnreachableError,
    UsageError,
)
from natsctl.api.times import parse_time
from natsctl.client.connection import Connection, ConnectionLostError, Subscription
from natsctl.client.message import NO_RESPONDERS, Message
from natsctl.client.requests import ELECTION_S, NO_LEADER, NOT_THERE

if TYPE_CHECKING:
    from natsctl.client.manager import Manager


T = TypeVar("T")

MAX_BATCH: Final = 256
"""Default number of messages of one request: few enough that those not yet read do not exceed their ack wait."""
LONG_EXPIRES_S: Final = 30.0
HEARTBEAT_S: Final = 5.0
"""Wait of one request of an endless reader, and interval of the server's heartbeats meanwhile."""
PIN_HEADER: Final = "Nats-Pin-Id"

_HEARTBEAT: Final = 100
_NOTHING: Final = (404, 408)
_CONFLICT: Final = 409
_PIN_LOST: Final = 423
_GRACE_S: Final = 2.0
_SERVED: Final = ("Batch Completed",)
_TOO_LARGE: Final = "Message Size Exceeds MaxBytes"
_MOVED: Final = ("Leadership Change", "Server Shutdown")
"""Ends of a request that another one, on whichever server leads then, makes good."""


class GroupPlace(NamedTuple):
    """Position of a request among others of a consumer with priority groups."""

    group: str = ""
    pin_id: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class PullOptions:
    """Options of a reader: `count` messages (0: without end), at most `batch` of them with one request.

    `wait_s` is the wait for a batch; with `once` or `max_bytes` one request is all.
    """

    count: int = 1
    batch: int = MAX_BATCH
    wait_s: float = 5.0
    no_wait: bool = False
    max_bytes: int = 0
    once: bool = False
    place: GroupPlace = field(default_factory=GroupPlace)


class PinLostError(NatsctlError):
    """Another client of the priority group is pinned by now."""


class LeadershipChangeError(UnreachableError):
    """The server that had the request does not serve it any more."""


async def take(
    manager: Manager, stream: str, consumer: str, wanted: PullOptions, config: Mapping[str, Any]
) -> AsyncGenerator[Message, None]:
    """Yield messages as they come, until there are as many as wanted or nothing more came in time.

    `config` is the consumer's; its limits of requests are kept to. Raises NatsctlError.
    """
    place = place_in(config, wanted.place)
    most = min(wanted.batch, int(config.get("max_batch") or wanted.batch))
    longest_s = int(config.get("max_expires") or 0) / 1e9 or LONG_EXPIRES_S
    got, until_s = 0, time.monotonic() + wanted.wait_s
    while not wanted.count or got < wanted.count:
        batch = min(most, wanted.count - got) if wanted.count else most
        left_s = until_s - time.monotonic() if wanted.count else LONG_EXPIRES_S
        if left_s <= 0 and not wanted.no_wait:
            return
        request = _request(batch, min(left_s, longest_s), wanted, place)
        came = 0
        try:
            async with aclosing(pull(manager, stream, consumer, request)) as messages:
                async for message in messages:
                    came += 1
                    if await _is_repeated(manager, message, config):
                        continue
                    place = place._replace(pin_id=message.headers.get(PIN_HEADER, place.pin_id))
                    yield message
        except PinLostError:
            place = place._replace(pin_id="")
        except (LeadershipChangeError, ConnectionLostError):
            if wanted.count and not manager.connection.reconnects:
                raise
            await resumed(manager.connection, lambda: manager.consumer_info(stream, consumer))
        got += came
        if wanted.once or wanted.max_bytes or (wanted.no_wait and came < batch):
            return
        if came == batch:
            until_s = time.monotonic() + wanted.wait_s


def place_in(config: Mapping[str, Any], place: GroupPlace) -> GroupPlace:
    """Return the place with its group: a consumer with one group needs none said. Raises UsageError."""
    groups = list(config.get("priority_groups") or ())
    if not groups:
        if any(place):
            raise UsageError("the consumer has no priority groups")
        return place
    if place.group and place.group not in groups:
        raise UsageError(f"the consumer has no priority group {place.group}", hint=f"it has {', '.join(groups)}")
    if not place.group and len(groups) > 1:
        raise UsageError("the consumer has several priority groups: give --group", hint=f"it has {', '.join(groups)}")
    return place._replace(group=place.group or groups[0])


def _request(batch: int, expires_s: float, wanted: PullOptions, place: GroupPlace) -> dict[str, Any]:
    """Return the body of a request without its empty fields."""
    request: dict[str, Any] = {"batch": batch}
    if wanted.no_wait:
        request["no_wait"] = True
    else:
        request["expires"] = max(1, int(expires_s * 1e9))
        if not wanted.count:
            request["idle_heartbeat"] = int(min(HEARTBEAT_S, expires_s / 3) * 1e9)
    said = {
        "max_bytes": wanted.max_bytes,
        "group": place.group,
        "id": place.pin_id,
        "min_pending": place.min_pending,
        "min_ack_pending": place.min_ack_pending,
        "priority": place.priority,
    }
    return {**request, **{name: value for name, value in said.items() if value}}


async def pull(manager: Manager, stream: str, consumer: str, request: dict[str, Any]) -> AsyncGenerator[Message, None]:
    """Yield the messages of one request, as they come until it is served or over.

    Raises ApiResponseError for a consumer or stream that does not exist, PinLostError, LeadershipChangeError, and
    NatsctlError for a request that the server refuses.
    """
    connection = manager.connection
    subject = endpoints.CONSUMER_MSG_NEXT.subject(stream, consumer, prefix=connection.target.api_prefix)
    payload = codec.encode(request)
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox)
    subscription.watched = subject
    opening = connection.openings
    try:
        connection.trace(subject, payload)
        await connection.publish(subject, payload, reply=inbox)
        left = int(request["batch"])
        while left > 0:
            message = await _next(connection, subscription, request)
            if message is None or message.status in _NOTHING:
                return
            if not message.status:
                left -= 1
                manager.acked.opening = opening
                yield message
            elif message.status == NO_RESPONDERS:
                await _raise_missing(manager, stream, consumer, subject)
            elif _ended(message, left < request["batch"], f"{stream} > {consumer}"):
                return
    finally:
        await _give_back(connection, subscription)


async def _next(connection: Connection, subscription: Subscription, request: dict[str, Any]) -> Message | None:
    """Return the next message or end of a request.

    None when the server forgot it, LeadershipChangeError if it should have said so.
    """
    beat_s = request.get("idle_heartbeat", 0) / 1e9
    wait_s = 2 * beat_s or request.get("expires", 0) / 1e9 or connection.timeout_s
    while True:
        message = await subscription.next(wait_s + _GRACE_S)
        if message is None and beat_s:
            raise LeadershipChangeError("the server no longer reports that the request is waiting")
        if message is None or message.status != _HEARTBEAT:
            break
    if message is not None:
        connection.trace_answer(message.subject, message)
    return message


def _ended(message: Message, served: bool, name: str) -> bool:
    """Return whether a status ends a request well; raises the error of any other."""
    if message.status == _PIN_LOST:
        raise PinLostError(message.description)
    if message.status == _CONFLICT and message.description in _MOVED:
        raise LeadershipChangeError(f"consumer {name}: {message.description}")
    if message.status == _CONFLICT and message.description.startswith(_TOO_LARGE):
        if served:
            return True
        raise NatsctlError(
            f"consumer {name}: the next message is larger than asked for", hint="give a larger --max-bytes"
        )
    if message.status == _CONFLICT and message.description in _SERVED:
        return True
    if message.status < 400:
        return False
    raise NatsctlError(f"consumer {name}: {message.description or message.status}")


async def _give_back(connection: Connection, subscription: Subscription) -> None:
    """End the inbox, and hand back messages that came and were not read."""
    unread = []
    while (message := subscription.now()) is not None:
        if message.reply and not message.status:
            unread.append(message.reply)
    await subscription.stop()
    for reply in () if connection.lost else unread:
        await connection.publish(reply, NAK)


async def _raise_missing(manager: Manager, stream: str, consumer: str, subject: str) -> None:
    """Raise the reason why a pull has no responders: no such consumer, a push consumer, or no JetStream."""
    info = await manager.consumer_info(stream, consumer)
    if (info.raw.get("config") or {}).get("deliver_subject"):
        raise NatsctlError(
            f"consumer {stream} > {consumer} is push-based", hint="read it with natsctl sub on its delivery subject"
        )
    raise LeadershipChangeError(f"no responders on {subject}")


_STATUS: Final = 100
_STALLED: Final = "Nats-Consumer-Stalled"
MISSED: Final = 3
"""Heartbeats that may be missing in a row before the consumer counts as lost."""
QUIET_S: Final = 30.0
"""Time without a message after which a consumer without heartbeats is looked up: it may have been removed."""


async def pushed(manager: Manager, info: Mapping[str, Any]) -> AsyncGenerator[Message, None]:
    """Yield the messages that the push consumer delivers, without end, as a member of its queue group if it has one.

    `info` is what the server reports about the consumer. Raises UnreachableError without heartbeats, and
    ApiResponseError if the consumer does not exist any more.
    """
    connection, config = manager.connection, info["config"]
    beat_s = int(config.get("idle_heartbeat") or 0) / 1e9

    def look() -> Awaitable[object]:
        return manager.consumer_info(info["stream_name"], info["name"])

    while True:
        subscription = await connection.subscribe(config["deliver_subject"], queue=config.get("deliver_group") or "")
        opening = connection.openings
        try:
            await connection.flush()
            while True:
                message = await subscription.next(MISSED * beat_s or QUIET_S)
                if message is None:
                    if beat_s:
                        raise UnreachableError(f"no heartbeat of the consumer for {MISSED * beat_s:g}s")
                    await resumed(connection, look)
                    continue
                if message.status == _STATUS:
                    if stalled := message.reply or message.headers.get(_STALLED, ""):
                        await connection.publish(stalled)
                    continue
                manager.acked.opening = opening
                if not await _is_repeated(manager, message, config):
                    yield message
        except UnreachableError:
            if not connection.reconnects:
                raise
        finally:
            await subscription.stop()
        await resumed(connection, look)


async def _is_repeated(manager: Manager, message: Message, config: Mapping[str, Any]) -> bool:
    """Return whether a message was acknowledged before the connection was lost; it is acknowledged again then.

    A killed server may lose acks that it has confirmed. Without acks, deliveries count.
    """
    acked = manager.acked
    if not manager.connection.patient or not message.reply:
        return False
    if acked.is_repeated(message.reply):
        await manager.connection.publish(message.reply, acks.ACK)
        return True
    if config.get("ack_policy") == "none":
        acked.add(message.reply)
    return False


AGAIN_S: Final = 0.25
RESTART_S: Final = 60.0
"""Maximum time that a patient connection waits for JetStream after a server has started again."""
_STARTING: Final = frozenset((ErrCode.NOT_ENABLED, ErrCode.NOT_ENABLED_FOR_ACCOUNT))
"""Errors of a server that is stopping or starting."""


async def resumed(connection: Connection, attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `attempt`, repeated while the server is restarting or a leader is being elected.

    Raises ApiResponseError, such as for a stream that does not exist any more, and UnreachableError after a bounded
    time; a patient connection waits for a leader without end.
    """
    clock = asyncio.get_running_loop().time
    limit_s = RESTART_S if connection.patient else ELECTION_S
    until_s, missing = clock() + limit_s, 0
    while True:
        try:
            return await attempt()
        except (UnreachableError, ApiResponseError) as reason:
            failure = reason
        code = failure.err_code if isinstance(failure, ApiResponseError) else 0
        if connection.lost:
            if not connection.reconnects:
                raise failure
            await connection.reopen()
            until_s, missing = clock() + limit_s, 0
            continue
        # A server that is stopping reports streams as missing, too.
        missing += code in NOT_THERE
        may_end = missing == 1 or not code or code in NO_LEADER or code in _STARTING
        if not may_end or (code and not connection.patient):
            raise failure
        if clock() > until_s and not (connection.patient and code in NO_LEADER):
            raise failure
        await asyncio.sleep(AGAIN_S)


ORDERED_HEARTBEAT_S = 2.0
MISSED_S = 3 * ORDERED_HEARTBEAT_S
"""Seconds without a sign of life after which the consumer counts as lost."""
INACTIVE_S = 300
REPLACED = 1000
"""Messages that may come on top of twice those that there were."""
V1_TOKENS = 9
_CONTROL = 100


class DeliveredMessage(NamedTuple):
    """A message and its position in the stream: sequence, time of storing, number of pending messages."""

    message: Message
    at: AckSubject


class OrderedReader:
    """A reader of the messages of `stream` on `subject`; an asynchronous context manager.

    `deliver` is a deliver policy's name, with `start_seq` for `by_start_sequence`. After entering, `pending` is how
    many messages there were to begin with.
    """

    def __init__(
        self,
        manager: Manager,
        stream: str,
        subject: str | Sequence[str],
        *,
        deliver: str = "all",
        start_seq: int = 0,
        start_time: str = "",
        headers_only: bool = False,
    ) -> None:
        self._manager = manager
        self._stream = stream
        self._subjects = [subject] if isinstance(subject, str) else list(subject)
        self._deliver = deliver
        self._start_seq = start_seq
        self._start_time = start_time
        self._headers_only = headers_only
        self._subscription: Subscription | None = None
        self._name = ""
        self._held: Message | None = None
        self._received = 0
        self._next_seq = 0
        """Sequence to continue at, 0 if that is not known yet."""
        self._last_ns = 0
        """Time of the last message."""
        self._openings = manager.connection.openings
        self.pending = 0

    async def __aenter__(self) -> OrderedReader:
        self.pending = await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(leaving=True)

    async def stored(self) -> AsyncIterator[DeliveredMessage]:
        """Yield the messages that existed at the start of reading, and their replacements meanwhile.

        A message that is replaced before it is sent comes as its successor, after the others, maybe a moment later. So
        reading continues until as many have come as existed and none is pending, or the server reports the end, or
        twice as many have come, where writers are quicker than this reader.
        """
        most = 2 * self.pending + REPLACED if self.pending else 0
        for number in range(1, most + 1):
            delivered = await self._next(None, ends_idle=True)
            if delivered is None:
                return
            yield delivered
            if not delivered.at.pending and number >= self.pending:
                return

    async def next(self, timeout_s: float | None = None) -> DeliveredMessage | None:
        """Return the next message, or None when none came in time.

        Raises the error that ends the reading, such as a removed stream.
        """
        return await self._next(timeout_s)

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Yield the messages without end; raises as `next`."""
        while True:
            if (delivered := await self.next()) is not None:
                yield delivered.message

    def now(self) -> DeliveredMessage | None:
        """Return the next message if it has come already.

        Status messages, and messages out of order, are left to `next`.
        """
        if self._held is not None or self._subscription is None:
            return None
        message = self._subscription.now()
        if message is None:
            return None
        if not message.status and (delivered := self._placed(message)) is not None:
            return delivered
        self._held = message
        return None

    async def _next(self, timeout_s: float | None, *, ends_idle: bool = False) -> DeliveredMessage | None:
        """Return the next message.

        None after the time, or with `ends_idle` when the server has nothing left to send.
        """
        loop = asyncio.get_running_loop()
        end_s = None if timeout_s is None else loop.time() + timeout_s
        lost_s = loop.time() + MISSED_S
        while True:
            now_s = loop.time()
            if now_s >= lost_s:
                await self._restart()
                lost_s = loop.time() + MISSED_S
            message = await self._read(max(0.0, min(lost_s, end_s or lost_s) - now_s))
            if message is None:
                if end_s is not None and loop.time() >= end_s:
                    return None
                continue
            lost_s = loop.time() + MISSED_S
            if message.status == _CONTROL:
                if await self._control(message) and ends_idle:
                    return None
            elif (delivered := self._placed(message)) is not None:
                return delivered
            else:
                await self._restart()

    async def _read(self, timeout_s: float) -> Message | None:
        if self._subscription is None:
            raise ProtocolError("the reader was not entered")
        held, self._held = self._held, None
        if held is not None:
            return held
        try:
            return await self._subscription.next(timeout_s)
        except ConnectionLostError:
            if not self._manager.connection.reconnects:
                raise
            await self._restart()
            return None

    def _placed(self, message: Message) -> DeliveredMessage | None:
        """Return the message with its place, None if others before it are missing."""
        at = _place(message.reply)
        if at is None:
            raise ProtocolError(f"a message of {self._stream} does not say its place: {message.reply!r}")
        if at.consumer_seq != self._received + 1:
            return None
        self._received = at.consumer_seq
        self._next_seq, self._last_ns = at.stream_seq + 1, at.ts_ns
        return DeliveredMessage(message, at)

    async def _control(self, message: Message) -> bool:
        """Answer flow control, and return whether the server reports that all was sent."""
        answer = message.reply or message.headers.get("Nats-Consumer-Stalled", "")
        if answer:
            await self._manager.connection.publish(answer)
            return False
        sent = message.headers.get("Nats-Last-Consumer", "0")
        if sent.isdigit() and int(sent) > self._received:
            await self._restart()
            return False
        return True

    async def _restart(self) -> None:
        """Continue after the last message with another consumer; if no server can create it now, wait for a leader."""
        await self._end()
        if self._next_seq:
            self._deliver, self._start_seq, self._start_time = "by_start_sequence", self._next_seq, ""
        await resumed(self._manager.connection, self._begin)

    async def _find_place(self) -> None:
        """After a lost connection, check that the stream is the same, and has the messages read so far.

        Another stream of that name is read from its beginning; one that has lost its end, from there.
        """
        connection = self._manager.connection
        if not self._next_seq or self._openings == connection.openings:
            return
        self._openings = connection.openings
        try:
            info = await self._manager.stream_info(self._stream)
        except NotAuthorisedError:
            return
        last_seq = info.value.state.last_seq
        if self._last_ns and parse_time(info.raw["created"]) > self._last_ns:
            connection.notify(f"Stream {self._stream} was removed and created again: reading it from its beginning")
            self._start_seq = self._next_seq = 1
        elif last_seq < self._next_seq - 1:
            connection.notify(f"Stream {self._stream} ends at {last_seq} now, before the last message read")
            self._start_seq = self._next_seq = last_seq + 1

    async def _begin(self) -> int:
        """Create the consumer, and return how many messages it has to send."""
        connection = self._manager.connection
        if connection.lost and connection.reconnects:
            await connection.reopen()
        await self._find_place()
        inbox = connection.new_inbox()
        self._subscription = await connection.subscribe(inbox)
        self._received = 0
        self._name = f"natsctl_{inbox.rpartition('.')[2]}"
        body = {"stream_name": self._stream, "config": self._config(inbox)}
        prefix = connection.target.api_prefix
        filtered = self._subjects if len(self._subjects) == 1 else ()
        subject = endpoints.CONSUMER_CREATE.subject(self._stream, self._name, *filtered, prefix=prefix)
        try:
            made = await self._manager.requests.exchange(subject, codec.encode(body))
        except BaseException:
            await self._subscription.stop()
            self._subscription = None
            raise
        pending = int(made.get("num_pending") or 0)
        if not self._next_seq and self._deliver != "all" and (self._deliver == "new" or not pending):
            # Messages published while the connection is lost come after this place.
            self._next_seq = int((made.get("delivered") or {}).get("stream_seq") or 0) + 1
        return pending

    def _config(self, inbox: str) -> dict[str, Any]:
        config: dict[str, Any] = {
            "name": self._name,
            "deliver_subject": inbox,
            "deliver_policy": self._deliver,
            "ack_policy": "none",
            "max_deliver": 1,
            **self._filter(),
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": int(ORDERED_HEARTBEAT_S * 1e9),
            "inactive_threshold": INACTIVE_S * 10**9,
            "num_replicas": 1,
            "mem_storage": True,
        }
        if self._start_seq:
            config["opt_start_seq"] = self._start_seq
        if self._start_time:
            config["opt_start_time"] = self._start_time
        if self._headers_only:
            config["headers_only"] = True
        return config

    def _filter(self) -> dict[str, Any]:
        if len(self._subjects) == 1:
            return {"filter_subject": self._subjects[0]}
        return {"filter_subjects": self._subjects} if self._subjects else {}

    async def _end(self, *, leaving: bool = False) -> None:
        subscription, self._subscription = self._subscription, None
        self._held = None
        if subscription is None:
            return
        await subscription.stop()
        if leaving and self._manager.connection.lost:
            return
        prefix = self._manager.connection.target.api_prefix
        # A user that may create a consumer may not always delete it; the server removes it by itself later.
        with contextlib.suppress(NatsctlError):
            await self._manager.requests.exchange(
                endpoints.CONSUMER_DELETE.subject(self._stream, self._name, prefix=prefix), b"", once=True
            )


def _place(reply: str) -> AckSubject | None:
    """Return the fields of an ack subject, without the names of stream and consumer; None for another subject.

    The form of nearly all servers is read here, as each message pays for it.
    """
    tokens = reply.split(".")
    if len(tokens) != V1_TOKENS or tokens[0] != "$JS" or tokens[1] != "ACK":
        return acks.parse(reply.encode())
    try:
        delivered, stream_seq, consumer_seq, ts_ns, pending = map(int, tokens[4:])
    except ValueError:
        return None
    return acks.AckSubject(b"", b"", delivered, stream_seq, consumer_seq, ts_ns, pending)
