"""Requests to whoever listens: answers as they come, and what in them says that the request failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from natsctl.api.errors import NatsctlError, UnreachableError
from natsctl.client.connection import NO_RESPONDERS

if TYPE_CHECKING:
    from natsctl.client.connection import Connection
    from natsctl.client.message import Message
    from natsctl.client.messaging.outgoing import Outgoing

REPLY_GAP_S = 0.3
"""How long to wait for a further answer once one has come."""
SERVICE_ERROR = "Nats-Service-Error"
SERVICE_ERROR_CODE = "Nats-Service-Error-Code"


class ServiceError(NatsctlError):
    """A service answered that it could not do what was asked."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """Which answers are waited for: `limit` of them (0: until none comes for `gap_s`), or until an empty one."""

    limit: int = 1
    gap_s: float = REPLY_GAP_S
    until_empty: bool = False


async def ask(connection: Connection, message: Outgoing, awaited: Awaited) -> AsyncIterator[tuple[Message, int]]:
    """The answers as they come, with the ns since the request. Raises UnreachableError for none.

    Each request has an inbox of its own: what a consumer sends in answer bears the subject it was stored with, so that
    only the subscription tells which request it answers.
    """
    clock = asyncio.get_running_loop().time
    subscription = await connection.subscribe(connection.new_inbox())
    subscription.watched = message.subject
    got, wait_s = 0, connection.timeout_s
    limit = 0 if awaited.until_empty else awaited.limit
    try:
        began_s = clock()
        await connection.publish(
            message.subject, message.body, reply=subscription.subject, headers=message.headers or None
        )
        while not limit or got < limit:
            answer = await subscription.next(wait_s)
            if answer is None:
                break
            yield _heard(answer, message.subject), int((clock() - began_s) * 1e9)
            got, wait_s = got + 1, awaited.gap_s
            if awaited.until_empty and not answer.body:
                break
    finally:
        await subscription.stop()
    if got == 0:
        raise _told(
            f"no answer on {message.subject} within {connection.timeout_s:g}s",
            message.subject,
            "there is a responder, but it did not answer in time; --timeout waits longer",
        )


def _heard(answer: Message, subject: str) -> Message:
    if answer.status == NO_RESPONDERS:
        raise _told(f"no responders on {subject}", subject, "no subscriber and no stream takes this subject")
    return answer


def _told(text: str, subject: str, hint: str) -> UnreachableError:
    failure = UnreachableError(text, hint=hint)
    failure.subject = subject
    return failure


def failure_in(answer: Message, subject: str, failing: Sequence[tuple[str, str]]) -> ServiceError | None:
    """What an answer's headers say went wrong: a service's error, or a header of `failing` (any value where "")."""
    text, code = answer.headers.get(SERVICE_ERROR), answer.headers.get(SERVICE_ERROR_CODE)
    if text is not None or code is not None:
        told = ServiceError(f"{text or 'the service failed'}{f' ({code})' if code else ''}")
    else:
        found = next((pair for pair in answer.headers.pairs if (pair[0], "") in failing or pair in failing), None)
        if found is None:
            return None
        told = ServiceError(f"the answer has {found[0]}: {found[1]}")
    told.subject = subject
    return told
