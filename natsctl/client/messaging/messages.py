"""Messages through JetStream: published with an ack, singly or in atomic batches, and acknowledged.

Of an atomic batch a stream stores all messages or none. Its first and last messages are requests: the first has an
empty answer, or the reason why the stream refuses the batch; the last one, which commits, is answered by the ack. Those
between have no answer. A batch that is not committed within the server's time is abandoned there, and nothing of it is
stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from natsctl.api.acks import parse
from natsctl.api.errors import ApiResponseError, ProtocolError, UnreachableError, UsageError
from natsctl.client.connection import NO_RESPONDERS
from natsctl.client.message import DryRunError, Planned
from natsctl.client.messaging.outgoing import Outgoing
from natsctl.client.requests import ELECTION_TIMEOUTS, PAUSE_S, Answer, api_error, parse_object, patiently

if TYPE_CHECKING:
    from natsctl.api.requests import PubAck
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
    from natsctl.api.requests import PubAck

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
        raise UnreachableError("the acknowledgement has no responder: the consumer was removed")


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


MAX_MESSAGES = 1000
"""Messages in one batch that servers take."""


def numbered(messages: Iterable[Outgoing]) -> list[Outgoing]:
    """Return the messages with the headers that make them one batch. Raises UsageError for none, or too many."""
    batch, parts = uuid4().hex, list(messages)
    if not 0 < len(parts) <= MAX_MESSAGES:
        raise UsageError(f"a batch has 1 to {MAX_MESSAGES} messages, not {len(parts)}")
    last = len(parts)
    return [
        one._replace(
            headers=(
                *one.headers,
                ("Nats-Batch-Id", batch),
                ("Nats-Batch-Sequence", str(number)),
                *((("Nats-Batch-Commit", "1"),) if number == last else ()),
            )
        )
        for number, one in enumerate(parts, 1)
    ]


async def publish_batch(manager: Manager, messages: Iterable[Outgoing]) -> Answer[PubAck]:
    """Return the ack of the whole batch.

    Raises NoStreamResponseError without a responder, ApiResponseError when the batch is refused: nothing was stored
    then.
    """
    parts = numbered(messages)
    connection = manager.connection
    if connection.dry_run:
        raise DryRunError(*(Planned(one.subject, one.body, one.headers) for one in parts))
    for number, one in enumerate(parts[:-1]):
        if number:
            await connection.publish(one.subject, one.body, headers=one.headers)
            continue
        answer = await connection.request(one.subject, one.body, headers=one.headers)
        if answer.status or answer.body:
            refused_by(answer, one.subject)
    end = parts[-1]
    return ack_of(await connection.request(end.subject, end.body, headers=end.headers), end.subject)
