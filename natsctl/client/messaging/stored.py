"""Stored messages one at a time: by direct get where the stream allows it, else by the API's MSG.GET.

A direct get may be answered by a replica that lags; `direct=False` asks the leader, for a state that must be current.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from natsctl.api import codec, endpoints
from natsctl.api import headers as blocks
from natsctl.api.errors import ApiResponseError, ErrCode, ProtocolError
from natsctl.client.connection import NO_RESPONDERS
from natsctl.client.message import NO_HEADERS, Headers
from natsctl.client.requests import patiently

if TYPE_CHECKING:
    from natsctl.client.manager import Manager
    from natsctl.client.message import Message

_NOT_FOUND = 404
_ADDED = frozenset(("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"))
"""Headers of a direct get's answer that describe the message and are no part of it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message of a stream; `time` is RFC 3339."""

    subject: str
    seq: int
    time: str
    body: bytes
    headers: Headers = NO_HEADERS


async def last_on(manager: Manager, stream: str, subject: str, *, direct: bool) -> Stored | None:
    """Return the last message on a subject, None where there is none."""
    if direct:
        target = endpoints.DIRECT_GET.subject(stream, subject, prefix=manager.connection.target.api_prefix)
        answered, found = await _direct(manager, target, b"")
        if answered:
            return found
    return await _by_api(manager, stream, last_by_subj=subject)


async def at(manager: Manager, stream: str, seq: int, *, direct: bool) -> Stored | None:
    """Return the message with that sequence, None where there is none."""
    if direct:
        target = endpoints.DIRECT_GET.subject(stream, prefix=manager.connection.target.api_prefix)
        answered, found = await _direct(manager, target, codec.encode({"seq": seq}))
        if answered:
            return found
    return await _by_api(manager, stream, seq=seq)


async def _direct(manager: Manager, target: str, body: bytes) -> tuple[bool, Stored | None]:
    """Return whether direct gets have a responder, and the message. Raises ProtocolError."""
    tracer = manager.connection.tracer
    if tracer is not None:
        tracer.request(target, body)
    message = await patiently(manager.connection, lambda: manager.connection.request(target, body))
    if tracer is not None:
        tracer.answer(target, f"{message.status} {message.description}".encode() if message.status else message.body)
    if message.status == NO_RESPONDERS:
        return False, None
    if message.status == _NOT_FOUND:
        return True, None
    if message.status:
        raise ProtocolError(f"the answer on {target} is {message.status} {message.description}")
    return True, _from_direct(message, target)


def _from_direct(message: Message, target: str) -> Stored:
    headers = message.headers
    try:
        subject, seq, time = headers["Nats-Subject"], int(headers["Nats-Sequence"]), headers["Nats-Time-Stamp"]
    except (KeyError, ValueError) as failure:
        raise ProtocolError(f"the answer on {target} does not say which message it is") from failure
    own = Headers([pair for pair in headers.pairs if pair[0] not in _ADDED])
    return Stored(subject, seq, time, message.body, own)


async def _by_api(manager: Manager, stream: str, **which: Any) -> Stored | None:
    try:
        message = (await manager.message_get(stream, **which)).value.message
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.NO_MESSAGE_FOUND:
            return None
        raise
    pairs = [(_text(name), _text(value)) for name, value in blocks.parse(message.hdrs or b"")]
    return Stored(message.subject, message.seq, message.time, message.data or b"", Headers(pairs))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
