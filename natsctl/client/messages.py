"""Messages through JetStream: published with an ack, pulled from consumers, acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from natsctl.api import codec, endpoints
from natsctl.api.errors import ApiFailure, NatsctlError, ProtocolError, Unreachable
from natsctl.client.answer import Answer, parse_object
from natsctl.client.connection import NO_RESPONDERS
from natsctl.client.preview import Planned, Previewed
from natsctl.client.requests import api_error

if TYPE_CHECKING:
    from natsctl.api.messages import PubAck
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message

ACK = b"+ACK"
NAK = b"-NAK"
PROGRESS = b"+WPI"
TERM = b"+TERM"

_NOTHING = (404, 408)
_CONFLICT = 409
_GRACE_S = 2.0


class NoStream(Unreachable):
    """No stream takes messages on that subject."""


async def publish(
    manager: Manager,
    subject: str,
    body: bytes = b"",
    *,
    headers: dict[str, str] | None = None,
    timeout_s: float | None = None,
) -> Answer[PubAck]:
    """Publish and wait for the stream's ack.

    Raises NoStream when nobody listens on the subject, ApiFailure when the message is refused.
    """
    from natsctl.api.messages import PubAck

    if manager.connection.dry_run:
        raise Previewed(Planned(subject, body, headers))
    message = await manager.connection.request(subject, body, headers=headers, timeout_s=timeout_s)
    if message.status == NO_RESPONDERS:
        failure = NoStream(f"no responders on {subject}: no stream takes it", hint="natsctl str ls shows the streams")
        failure.subject = subject
        raise failure
    raw = parse_object(message.body.removeprefix(b"+OK"), subject)
    if error := raw.get("error"):
        raise ApiFailure(api_error(error), subject)
    if "stream" not in raw:
        raise ProtocolError(f"the answer on {subject} is no publish ack: {message.body[:64]!r}")
    return Answer(PubAck, subject, raw=raw)


async def pull(
    manager: Manager,
    stream: str,
    consumer: str,
    *,
    batch: int = 1,
    expires_s: float | None = None,
    no_wait: bool = False,
) -> AsyncIterator[Message]:
    """Up to `batch` messages of a pull consumer, as they come until `expires_s` is over (default: the connection's).

    Ends early when there are none (`no_wait`) or the time is over. Raises ApiFailure for a consumer or stream that
    does not exist.
    """
    connection = manager.connection
    wait_s = expires_s or connection.timeout_s
    request: dict[str, Any] = {"batch": batch}
    request.update({"no_wait": True} if no_wait else {"expires": int(wait_s * 1e9)})
    subject = endpoints.CONSUMER_MSG_NEXT.subject(stream, consumer, prefix=connection.target.api_prefix)
    payload = codec.encode(request)
    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox)
    subscription.watched = subject
    try:
        if connection.tracer is not None:
            connection.tracer.request(subject, payload)
        await connection.publish(subject, payload, reply=inbox)
        left = batch
        while left > 0:
            message = await subscription.next(wait_s + _GRACE_S)
            if message is None:
                return
            if connection.tracer is not None:
                status = f"{message.status} {message.description}".encode()
                connection.tracer.answer(message.subject, status if message.status else message.body)
            if message.status in _NOTHING:
                return
            if message.status == NO_RESPONDERS:
                await _raise_missing(manager, stream, consumer, subject)
            elif message.status == _CONFLICT:
                raise NatsctlError(f"consumer {stream} > {consumer}: {message.description}")
            elif not message.status:
                left -= 1
                yield message
    finally:
        await subscription.stop()


async def _raise_missing(manager: Manager, stream: str, consumer: str, subject: str) -> None:
    """Say why nobody answers a pull: no such consumer, a push consumer, or no JetStream."""
    info = await manager.consumer_info(stream, consumer)
    if (info.raw.get("config") or {}).get("deliver_subject"):
        raise NatsctlError(
            f"consumer {stream} > {consumer} is push-based", hint="read it with natsctl sub on its delivery subject"
        )
    raise Unreachable(f"no responders on {subject}")


async def acknowledge(manager: Manager, message: Message, kind: bytes = ACK, *, wait: bool = True) -> None:
    """Tell the server what became of a delivered message; with `wait` return once it has stored that.

    Raises Unreachable when nobody takes it any more: the consumer was removed meanwhile.
    """
    if not wait:
        await manager.connection.publish(message.reply, kind)
        return
    answer = await manager.connection.request(message.reply, kind)
    if answer.status == NO_RESPONDERS:
        raise Unreachable("nobody takes the acknowledgement: the consumer was removed")
