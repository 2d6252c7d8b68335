"""Requests and replies.

Requests with their answers as they come, and the failure that an answer's headers report; requests and replies of
other clients, matched by subject; and the answering of requests, also by a program that runs without a shell and reads
the body from stdin.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from natsctl.api.errors import NatsctlError, UnreachableError, UsageError
from natsctl.client.message import NO_RESPONDERS, Message, as_text
from natsctl.client.messaging.messages import Outgoing
from natsctl.hints import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio

    from natsctl.client.connection import Connection


REPLY_GAP_S = 0.3
"""Wait for a further answer once one has come."""
SERVICE_ERROR = "Nats-Service-Error"
SERVICE_ERROR_CODE = "Nats-Service-Error-Code"


class ServiceError(NatsctlError):
    """A service answered with an error."""


class ReplyLimits(NamedTuple):
    """Number of answers to wait for: `limit` (0: until none comes for `gap_s`), or all up to an empty one."""

    limit: int = 1
    gap_s: float = REPLY_GAP_S
    until_empty: bool = False


async def ask(connection: Connection, message: Outgoing, limits: ReplyLimits) -> AsyncIterator[tuple[Message, int]]:
    """Yield the answers as they come, with the nanoseconds since the request. Raises UnreachableError if none comes.

    Each request has an inbox of its own: a consumer's answer has the subject it was stored with, so that only the
    subscription identifies its request.
    """
    subscription = await connection.subscribe(connection.new_inbox())
    subscription.watched = message.subject
    got, wait_s = 0, connection.timeout_s
    limit = 0 if limits.until_empty else limits.limit
    try:
        began_ns = time.perf_counter_ns()
        await connection.publish(
            message.subject, message.body, reply=subscription.subject, headers=message.headers or None
        )
        while not limit or got < limit:
            answer = await subscription.next(wait_s)
            if answer is None:
                break
            if answer.status == NO_RESPONDERS:
                hint = "no subscriber and no stream takes this subject"
                raise _unreachable(f"no responders on {message.subject}", message.subject, hint)
            yield answer, time.perf_counter_ns() - began_ns
            got, wait_s = got + 1, limits.gap_s
            if limits.until_empty and not answer.body:
                break
    finally:
        await subscription.stop()
    if got == 0:
        raise _unreachable(
            f"no answer on {message.subject} within {connection.timeout_s:g}s",
            message.subject,
            "there is a responder, but it did not answer in time; --timeout waits longer",
        )


def _unreachable(text: str, subject: str, hint: str) -> UnreachableError:
    failure = UnreachableError(text, hint=hint)
    failure.subject = subject
    return failure


def failure_in(answer: Message, subject: str, failing: Sequence[tuple[str, str]]) -> ServiceError | None:
    """Return the failure in an answer's headers: a service's error, or a header of `failing` (any value where "")."""
    text, code = answer.headers.get(SERVICE_ERROR), answer.headers.get(SERVICE_ERROR_CODE)
    if text is not None or code is not None:
        failure = ServiceError(f"{text or 'the service failed'}{f' ({code})' if code else ''}")
    else:
        found = next((pair for pair in answer.headers.pairs if (pair[0], "") in failing or pair in failing), None)
        if found is None:
            return None
        failure = ServiceError(f"the answer has {found[0]}: {found[1]}")
    failure.subject = subject
    return failure


MAX_OPEN = 10_000
"""Requests that are remembered, answered or not; the oldest is forgotten first."""


class PendingReply(NamedTuple):
    """A request: its number, its subject and when it came (monotonic ns)."""

    number: int
    subject: str
    at_ns: int


class RequestLog:
    """Requests of other clients by their reply subject; `subject` matches every inbox."""

    def __init__(self, connection: Connection) -> None:
        self._prefix = connection.new_inbox().partition(".")[0] + "."
        if given := connection.target.settings.inbox_prefix:
            self._prefix = given.rstrip(".") + "."
        self.subject = f"{self._prefix}>"
        self._open: OrderedDict[str, PendingReply] = OrderedDict()

    def is_answer(self, message: Message) -> bool:
        return message.subject.startswith(self._prefix)

    def add(self, number: int, message: Message) -> None:
        if not message.reply:
            return
        if len(self._open) >= MAX_OPEN:
            self._open.popitem(last=False)
        self._open[message.reply] = PendingReply(number, message.subject, time.monotonic_ns())

    def request_of(self, message: Message) -> PendingReply | None:
        """Return the request that a message answers; it stays remembered, since more answers may follow."""
        return self._open.get(message.subject)


MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_READ_BYTES = 64 * 1024
_MAX_ERROR_CHARS = 200
"""Of the first line of a failed program's output."""


class CommandFailedError(NatsctlError):
    """A program could not be run, or ended with an exit status of failure."""


def words_of(flag: str, command: str) -> list[str]:
    """Return the arguments of a command line that `flag` gives. Raises UsageError."""
    import shlex

    try:
        words = shlex.split(command)
    except ValueError as failure:
        raise UsageError(f"{flag}: {failure}") from failure
    if not words:
        raise UsageError(f"{flag} is empty")
    return words


async def run(words: list[str], body: bytes, environment: Mapping[str, str] | None = None) -> bytes:
    """Return a program's output on stdout and stderr, with `body` on its stdin. Raises CommandFailedError.

    A program that writes more than MAX_OUTPUT_BYTES is killed.
    """
    import asyncio

    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env={**os.environ, **(environment or {})}
        )
    except (OSError, ValueError) as failure:
        raise CommandFailedError(f"{words[0]}: {getattr(failure, 'strerror', None) or failure}") from failure
    try:
        out, _ = await asyncio.gather(_bounded_output(process, words[0]), _feed(process, body))
        await process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        said = out.decode("utf-8", "replace").strip().partition("\n")[0][:_MAX_ERROR_CHARS]
        raise CommandFailedError(f"{words[0]} ended with exit status {process.returncode}{f': {said}' if said else ''}")
    return out


async def _feed(process: asyncio.subprocess.Process, body: bytes) -> None:
    """Write the body to a program; it may end before it has read everything."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(body)
        await process.stdin.drain()
    process.stdin.close()


async def _bounded_output(process: asyncio.subprocess.Process, program: str) -> bytes:
    assert process.stdout is not None
    out = bytearray()
    while chunk := await process.stdout.read(_READ_BYTES):
        out += chunk
        if len(out) > MAX_OUTPUT_BYTES:
            raise CommandFailedError(f"{program} wrote more than {MAX_OUTPUT_BYTES:,} bytes")
    return bytes(out)


SUBJECT_VARIABLE = "NATS_REQUEST_SUBJECT"
BODY_VARIABLE = "NATS_REQUEST_BODY"

AnswerMaker = Callable[["Message", int], Awaitable[Outgoing]]
"""Function from a request and its number, from 0, to the answer."""


class AnswerOutcome(NamedTuple):
    """Outcome of one request: the answer, None without a reply subject, or the failure of the program."""

    number: int
    request: Message
    answer: Outgoing | None
    failure: CommandFailedError | None = None


async def respond(
    connection: Connection, request: Message, number: int, make: AnswerMaker, sleep_s: float
) -> AnswerOutcome:
    """Answer one request after a random delay up to `sleep_s`; if its program fails, no answer is sent."""
    if sleep_s:
        import asyncio
        import random

        await asyncio.sleep(random.uniform(0, sleep_s))
    try:
        answer = await make(request, number)
    except CommandFailedError as failure:
        return AnswerOutcome(number, request, None, failure)
    if not request.reply:
        return AnswerOutcome(number, request, None)
    await connection.publish(request.reply, answer.body, headers=answer.headers or None)
    return AnswerOutcome(number, request, answer)


async def run_command(words: list[str], request: Message) -> bytes:
    """Return a program's answer to a request. Raises CommandFailedError."""
    text = as_text(request.body).replace("\0", "")
    return await run(words, request.body, {SUBJECT_VARIABLE: request.subject, BODY_VARIABLE: text})
