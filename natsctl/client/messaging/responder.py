"""Answers to requests: a fixed body, an echo, or what a program makes of the request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from natsctl.client.messaging.commands import CommandFailedError, run
from natsctl.client.messaging.outgoing import Outgoing

if TYPE_CHECKING:
    from natsctl.client.connection import Connection
    from natsctl.client.message import Message

SUBJECT_VARIABLE = "NATS_REQUEST_SUBJECT"
BODY_VARIABLE = "NATS_REQUEST_BODY"

Make = Callable[["Message", int], Awaitable[Outgoing]]
"""Makes the answer to the request with that number, from 0."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of one request: the answer, None where nobody waited for one, or why there is none."""

    number: int
    request: Message
    answer: Outgoing | None
    failure: CommandFailedError | None = None


async def respond(connection: Connection, request: Message, number: int, make: Make, sleep_s: float) -> Answered:
    """Answer one request, after up to `sleep_s` seconds; a program that fails leaves it without an answer."""
    if sleep_s:
        await asyncio.sleep(random.uniform(0, sleep_s))
    try:
        answer = await make(request, number)
    except CommandFailedError as failure:
        return Answered(number, request, None, failure)
    if not request.reply:
        return Answered(number, request, None)
    await connection.publish(request.reply, answer.body, headers=answer.headers or None)
    return Answered(number, request, answer)


async def run_command(words: list[str], request: Message) -> bytes:
    """What a program answers to a request. Raises CommandFailedError."""
    text = request.body.decode("utf-8", "surrogateescape").replace("\0", "")
    return await run(words, request.body, {SUBJECT_VARIABLE: request.subject, BODY_VARIABLE: text})
