"""Messages through JetStream: published with an ack, and acknowledged; pull.py and push.py read them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from natsctl.api.acks import parse
from natsctl.api.errors import ApiResponseError, ProtocolError, UnreachableError
from natsctl.client.answer import Answer, parse_object
from natsctl.client.connection import NO_RESPONDERS
from natsctl.client.preview import DryRunError, Planned
from natsctl.client.requests import ELECTION_TIMEOUTS, PAUSE_S, api_error, patiently

if TYPE_CHECKING:
    from natsctl.api.messages import PubAck
    from natsctl.client.manager import Manager
    from natsctl.client.message import HeaderLike, Message

ACK = b"+ACK"
NAK = b"-NAK"
PROGRESS = b"+WPI"
TERM = b"+TERM"


class NoStreamResponseError(UnreachableError):
    """No stream stores messages on that subject."""


async def publish(
    manager: Manager,
    subject: str,
    body: bytes = b"",
    *,
    headers: HeaderLike | None = None,
    timeout_s: float | None = None,
) -> Answer[PubAck]:
    """Publish and wait for the stream's ack; on a cluster also for the election of the stream's leader.

    Raises NoStreamResponseError if the subject has no subscriber, ApiResponseError if the message is refused.
    """
    if manager.connection.dry_run:
        raise DryRunError(Planned(subject, body, headers))
    connection = manager.connection
    until_s = time.monotonic() + ELECTION_TIMEOUTS * (timeout_s or connection.timeout_s)
    while True:
        message = await connection.request(subject, body, headers=headers, timeout_s=timeout_s)
        leaderless = message.status == NO_RESPONDERS and connection.several and time.monotonic() < until_s
        if not leaderless or not await manager.stream_names(subject=subject):
            return ack_of(message, subject)
        await asyncio.sleep(PAUSE_S)


def ack_of(message: Message, subject: str) -> Answer[PubAck]:
    """Return the publish acknowledgement in a message; raises as `publish`."""
    from natsctl.api.messages import PubAck

    raw = refused_by(message, subject)
    if "stream" not in raw:
        raise ProtocolError(f"the answer on {subject} is not a publish ack: {message.body[:64]!r}")
    return Answer(PubAck, subject, raw=raw)


def refused_by(message: Message, subject: str) -> dict[str, Any]:
    """Return the object in a stream's answer to a message.

    Raises NoStreamResponseError, or ApiResponseError for a refused message.
    """
    if message.status == NO_RESPONDERS:
        failure = NoStreamResponseError(
            f"no responders on {subject}: no stream takes it", hint="natsctl str ls shows the streams"
        )
        failure.subject = subject
        raise failure
    raw = parse_object(message.body.removeprefix(b"+OK"), subject)
    if error := raw.get("error"):
        raise ApiResponseError(api_error(error), subject)
    return raw


async def acknowledge(manager: Manager, message: Message, kind: bytes = ACK, *, wait: bool = True) -> None:
    """Acknowledge a delivered message, or answer with another `kind`; with `wait` return once that is stored.

    Raises UnreachableError if the consumer was removed meanwhile.
    """
    if not wait:
        await manager.connection.publish(message.reply, kind)
        return
    connection = manager.connection
    until_s = time.monotonic() + ELECTION_TIMEOUTS * connection.timeout_s
    while True:
        answer = await patiently(connection, lambda: connection.request(message.reply, kind))
        leaderless = answer.status == NO_RESPONDERS and connection.several and time.monotonic() < until_s
        if not leaderless or not await _is_there(manager, message):
            break
        await asyncio.sleep(PAUSE_S)
    if answer.status == NO_RESPONDERS:
        raise UnreachableError("nobody receives the acknowledgement: the consumer was removed")


async def _is_there(manager: Manager, delivered: Message) -> bool:
    """Return whether the consumer exists that has delivered a message."""
    at = parse(delivered.reply.encode())
    if at is None:
        return False
    try:
        await manager.consumer_info(at.stream.decode(), at.consumer.decode())
    except ApiResponseError:
        return False
    return True
