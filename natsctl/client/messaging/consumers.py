"""Reading from pull and push consumers.

A pull request lives on the server until it is served, expires, or its inbox has no subscriber any more: so a reader
that stops ends the inbox, and no request is left behind. Messages that had arrived by then and were not read are nak'ed
at once, so that others do not wait until the ack wait is over.

A push consumer is read by a subscription on its delivery subject that answers flow control.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from natsctl.api import codec, endpoints
from natsctl.api.acks import NAK
from natsctl.api.errors import NatsctlError, UnreachableError, UsageError
from natsctl.client.connection import NO_RESPONDERS, ConnectionLostError

if TYPE_CHECKING:
    from natsctl.client.connection import Connection, Subscription
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message


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
                    place = place._replace(pin_id=message.headers.get(PIN_HEADER, place.pin_id))
                    yield message
        except PinLostError:
            place = place._replace(pin_id="")
        except (LeadershipChangeError, ConnectionLostError):
            if wanted.count and not manager.connection.several:
                raise
            await manager.consumer_info(stream, consumer)
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
    """Return the body of a request; what it does not ask for is left out."""
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
    try:
        if connection.tracer is not None:
            connection.tracer.request(subject, payload)
        await connection.publish(subject, payload, reply=inbox)
        left = int(request["batch"])
        while left > 0:
            message = await _next(connection, subscription, request)
            if message is None or message.status in _NOTHING:
                return
            if not message.status:
                left -= 1
                yield message
            elif message.status == NO_RESPONDERS:
                await _raise_missing(manager, stream, consumer, subject)
            elif _ended(message, left < request["batch"], f"{stream} > {consumer}"):
                return
    finally:
        await _give_back(connection, subscription)


async def _next(connection: Connection, subscription: Subscription, request: dict[str, Any]) -> Message | None:
    """Return the next message or end of a request.

    None when the server forgot it, LeadershipChangeError where it should have said so.
    """
    beat_s = request.get("idle_heartbeat", 0) / 1e9
    wait_s = 2 * beat_s or request.get("expires", 0) / 1e9 or connection.timeout_s
    while True:
        message = await subscription.next(wait_s + _GRACE_S)
        if message is None and beat_s:
            raise LeadershipChangeError("the server no longer reports that the request is waiting")
        if message is None or message.status != _HEARTBEAT:
            break
    if message is not None and connection.tracer is not None:
        status = f"{message.status} {message.description}".encode()
        connection.tracer.answer(message.subject, status if message.status else message.body)
    return message


def _ended(message: Message, served: bool, name: str) -> bool:
    """Return whether a status ends a request well; raises what another one means."""
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
    """End the inbox, and hand back what came and was not read."""
    unread = []
    while (message := subscription.now()) is not None:
        if message.reply and not message.status:
            unread.append(message.reply)
    await subscription.stop()
    for reply in unread:
        await connection.publish(reply, NAK)


async def _raise_missing(manager: Manager, stream: str, consumer: str, subject: str) -> None:
    """Raise the reason why a pull has no responders: no such consumer, a push consumer, or no JetStream."""
    info = await manager.consumer_info(stream, consumer)
    if (info.raw.get("config") or {}).get("deliver_subject"):
        raise NatsctlError(
            f"consumer {stream} > {consumer} is push-based", hint="read it with natsctl sub on its delivery subject"
        )
    raise UnreachableError(f"no responders on {subject}")


_STATUS: Final = 100
_STALLED: Final = "Nats-Consumer-Stalled"
MISSED: Final = 3
"""Heartbeats that may be missing in a row before the consumer counts as lost."""


async def pushed(manager: Manager, config: Mapping[str, Any]) -> AsyncGenerator[Message, None]:
    """Yield the messages that the push consumer delivers, without end, as a member of its queue group if it has one.

    Raises UnreachableError when the consumer's heartbeats stay away.
    """
    connection = manager.connection
    beat_s = int(config.get("idle_heartbeat") or 0) / 1e9
    queue = config.get("deliver_group") or ""
    subscription = await connection.subscribe(config["deliver_subject"], queue=queue, lasting=True)
    try:
        await connection.flush()
        while True:
            message = await subscription.next(MISSED * beat_s or None)
            if message is None:
                raise UnreachableError(f"no heartbeat of the consumer for {MISSED * beat_s:g}s")
            if message.status != _STATUS:
                yield message
            elif stalled := message.reply or message.headers.get(_STALLED, ""):
                await connection.publish(stalled)
    finally:
        await subscription.stop()
