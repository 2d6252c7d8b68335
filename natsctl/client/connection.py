"""One connection to a server over nats-py, its subscriptions, and the trace of its API requests.

nats-py's reconnecting is off: a one-shot command should report that the server is lost, not wait for it. The embedded
server is the exception: when the command that owns it ends, another one takes over at the same address. A connection
that `reconnects`, because several servers were named or the command runs for long, is opened again (`reopen`) before
the next thing is sent; pending requests fail with ConnectionLostError, and callers repeat the ones that may be
repeated. A `patient` connection is opened again however long that takes. nats-py's callbacks (a refused subject, a
dropped message, the end of the connection) reach the waiting caller: a request with a refused subject fails at once
with NotAuthorisedError instead of timing out, and when the connection ends every waiter fails.

All requests share one inbox subscription; `_waiting` has a future for each that is not yet answered.

The connection calls `take` of a subscription for each message; the subscription keeps it until it is read. Messages
beyond `MAX_KEPT` messages or `MAX_KEPT_BYTES` are dropped and counted in `dropped`. `--trace` writes each JetStream API
request and its answer to stderr, and never a login.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from natsctl.api.errors import NatsctlError, NotAuthorisedError, UnreachableError, UsageError
from natsctl.api.subjects import subject_fault
from natsctl.client.message import HeaderLike, Message, encode_headers, to_message
from natsctl.client.nats_py import client_class, failure_class, socks_transport
from natsctl.client.received import Received
from natsctl.client.requests import end_tasks
from natsctl.wire.client import ClientCredentials, ServerLineError

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription as NatsSubscription

    from natsctl.client.nats_client import MessageHandler
    from natsctl.client.servers import Target


T = TypeVar("T")

MAX_KEPT = 512 * 1024
MAX_KEPT_BYTES = 128 * 1024 * 1024


class Subscription:
    """Messages as they arrive: iterate it, or wait for the `next` one.

    It may listen on `more` subjects than one; messages stay in their order of arrival. `watched` is a subject published
    to for these messages; if the server refuses that, reading fails.
    """

    def __init__(
        self,
        subject: str,
        limit: int,
        on_stop: Callable[[Subscription], None],
        more: Sequence[str] = (),
        *,
        queue: str = "",
        lasting: bool = False,
        handler: MessageHandler | None = None,
        on_end: Callable[[Exception], None] | None = None,
    ) -> None:
        self.handler: MessageHandler = handler or self.take
        self._on_end = on_end
        self.subject = subject
        self.subjects = (subject, *more)
        self.queue = queue
        self.lasting = lasting
        """Whether it continues after a lost connection; messages published meanwhile do not reach it."""
        self.watched = ""
        self.dropped = 0
        self._limit = limit
        self._on_stop = on_stop
        self._inner: list[NatsSubscription] = []
        self._kept: deque[Message] = deque()
        self._kept_bytes = 0
        self._taken = self._read = 0
        self._failure: Exception | None = None
        self._arrived = asyncio.Event()

    def attach(self, inner: NatsSubscription) -> None:
        """Know one of nats-py's objects, to end it later."""
        self._inner.append(inner)

    def detach(self) -> None:
        """Forget nats-py's objects of a connection that was lost."""
        self._inner.clear()

    @property
    def left(self) -> int:
        """Return how many messages it still waits for, 0 if there is no limit."""
        return max(self._limit - self._taken, 1) if self._limit else 0

    def take(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        """Keep a message that arrived, or count it as dropped where too many wait."""
        self._taken += 1
        if len(self._kept) >= MAX_KEPT or self._kept_bytes > MAX_KEPT_BYTES:
            self.dropped += 1
            return
        self._kept.append(to_message(subject, reply, body, block))
        self._kept_bytes += len(body)
        if not self._arrived.is_set():
            self._arrived.set()

    def fail(self, failure: Exception) -> None:
        """Raise `failure` at the reader after the messages that are kept."""
        self._failure = failure
        self._arrived.set()
        if self._on_end is not None:
            self._on_end(failure)

    @property
    def finished(self) -> bool:
        """Return whether `limit` messages were read."""
        return 0 < self._limit <= self._read

    async def next(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message, or None when none came in time; raises the error that ended the subscription."""
        if not self._kept:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._wait()
        message = self.now()
        if message is None and self._failure is not None:
            raise self._failure
        return message

    async def _wait(self) -> None:
        while not self._kept and self._failure is None:
            self._arrived.clear()
            await self._arrived.wait()

    def now(self) -> Message | None:
        """Return the next message if one has come already."""
        if not self._kept:
            return None
        self._read += 1
        message = self._kept.popleft()
        self._kept_bytes -= len(message.body)
        return message

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self.finished:
            message = await self.next()
            if message is not None:
                yield message

    async def stop(self) -> None:
        """End the subscription; messages that have arrived and were not read are dropped."""
        self._on_stop(self)
        self._kept.clear()
        with contextlib.suppress(failure_class(), OSError):
            for inner in self._inner:
                await inner.unsubscribe()


MAX_SHOWN_BYTES = 64 * 1024


class Tracer:
    """A log of requests as `>>> subject` and answers as `<<< subject`, each followed by its body."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def request(self, subject: str, body: bytes) -> None:
        """Show a message that is sent."""
        self._show(">>>", subject, body)

    def answer(self, subject: str, body: bytes) -> None:
        """Show the answer to the request on `subject`."""
        self._show("<<<", subject, body)

    def failure(self, subject: str, reason: str) -> None:
        """Show that no answer came."""
        self._show("<<<", f"{subject}: {reason}", b"")

    def _show(self, mark: str, subject: str, body: bytes) -> None:
        text = body[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
        more = f"\n… {len(body) - MAX_SHOWN_BYTES} bytes more" if len(body) > MAX_SHOWN_BYTES else ""
        self._stream.write(f"{mark} {subject}\n{text}{more}\n\n")
        self._stream.flush()


CLOSE_WAIT_S = 1.0
"""Seconds that a server gets to notice the end of a connection, e.g. after a failed TLS handshake."""
TAKEOVER_RETRY_S = 0.05
TAKEOVER_ATTEMPTS = 200
"""Together 10 seconds: what another command may take to serve on instead of the owner of the embedded server."""
RESUMED_WITHIN_S = 60.0
"""Maximum time for lasting subscriptions of a connection that is not patient to reach any of several servers."""
FIRST_PAUSE_S = 0.2
MAX_PAUSE_S = 5.0
"""The pause between two attempts to connect again: the first one, and what doubling it leads to."""
MAX_REFUSALS = 2
"""Refused logins in a row after which a patient connection gives up. Source: nats.go, processAuthError."""


class SomeRefusedError(NotAuthorisedError):
    """A server refused the login, and others could not be reached."""


class ConnectionLostError(UnreachableError):
    """The connection ended; operations under way may have been done or not."""


class _Waiter:
    __slots__ = ("future", "subject")

    def __init__(self, subject: str, future: asyncio.Future[Message]) -> None:
        self.subject = subject
        self.future = future


class Connection:
    """A live connection; `info` is the server's INFO, `url` the server's address.

    With `dry_run` callers raise DryRunError instead of a change; the connection itself sends everything.
    """

    def __init__(self, target: Target, tracer: Tracer | None = None) -> None:
        self.target = target
        self.tracer = tracer
        self.timeout_s = target.timeout_s
        self.dry_run = False
        self.received = Received()
        self.on_refused: Callable[[NotAuthorisedError], None] | None = None
        """Called when the server has refused a published message."""
        self.dial: Callable[[], Awaitable[None]] | None = None
        """Opens this connection again, to whichever server of the target takes it."""
        self.notify: Callable[[str], None] = ignore_notice
        """Called with a sentence when the connection is lost and opened again, or a request waits for a leader."""
        self.reconnects = len(target.urls) > 1
        """Whether a lost connection is opened again, and whether requests wait for the election of a leader."""
        self.patient = False
        """Whether opening it again is tried until it succeeds or the login is refused."""
        self.openings = 0
        """How often it was opened again."""
        self.url = ""
        self._refused: list[NotAuthorisedError] = []
        self._client: Any = client_class()()
        self._failures: tuple[type[Exception], ...] = (failure_class(), OSError)
        self._waiting: dict[str, _Waiter] = {}
        self._subscriptions: set[Subscription] = set()
        self._inbox = ""
        self._requests = 0
        self._connecting = True
        self._lost: NatsctlError | None = None
        self._closed = False
        self._reopening = asyncio.Lock()
        self._resuming: asyncio.Task[None] | None = None

    # -- life

    async def open(self, url: str, options: dict[str, Any], login: ClientCredentials) -> None:
        """Connect or reconnect to `url`; raises the errors of nats-py or the system."""
        if not self._connecting:
            self._client = client_class()()
            self._connecting, self._lost, self._inbox = True, None, ""
            self._refused.clear()
        self._client.credentials = login
        logging.getLogger("nats").setLevel(logging.CRITICAL + 1)
        # nats-py's side of TLS looks like plain TCP to asyncio; asyncio warns when a connection ends.
        logging.getLogger("asyncio").setLevel(logging.ERROR)
        if self.target.settings.socks_proxy:
            self._client._transport = socks_transport(self.target.settings.socks_proxy)
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._client.connect(
                    url,
                    error_cb=self._on_error,
                    closed_cb=functools.partial(self._on_closed, self._client),
                    allow_reconnect=self.target.origin == "embedded",
                    reconnect_time_wait=TAKEOVER_RETRY_S,
                    max_reconnect_attempts=TAKEOVER_ATTEMPTS,
                    connect_timeout=self.timeout_s,
                    skip_subject_validation=True,
                    **options,
                )
        except BaseException:
            self._connecting = False
            await self._end()
            raise
        self._connecting = False
        self.url = url

    async def reopen(self) -> None:
        """Reconnect after the connection was lost, once for all concurrent callers.

        Raises the error of a closed connection, UnreachableError or NotAuthorisedError if no server accepts it.
        """
        async with self._reopening:
            lost = self._lost
            if lost is None:
                return
            refusals, before = 0, self.url
            for pause_s in pauses():
                if self.dial is None or self._closed:
                    raise lost
                try:
                    await self.dial()
                    break
                except (UnreachableError, NotAuthorisedError) as failure:
                    refusals = refusals + 1 if is_final(failure) else 0
                    if not self.patient or refusals >= MAX_REFUSALS:
                        raise
                    if pause_s == FIRST_PAUSE_S:
                        self.notify(f"{lost.text}: connecting again")
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # not all clients at once
            self.openings += 1
            for subscription in list(self._subscriptions):
                if subscription.lasting:
                    await self._listen(subscription)
            if self.url == before:
                self.notify(f"connected to {self.url} again")
            else:
                self.notify(f"{lost.text}: going on with {self.url}")

    @property
    def is_in_use(self) -> bool:
        """Return whether messages are still to be sent, or a subscription has not ended."""
        return bool(self._subscriptions or self._client._pending_data_size)

    async def release(self) -> None:
        """Send all messages and end every subscription; raises as `flush`, but not for a lost connection."""
        for subscription in list(self._subscriptions):
            await subscription.stop()
        if not self.lost:
            await self.flush()

    async def close(self) -> None:
        """End the connection; published messages are sent first."""
        self._closed = True
        if self._resuming is not None:
            self._resuming.cancel()
        await self._end()

    async def _end(self) -> None:
        self._lost = self._lost or UnreachableError("the connection is closed")
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_WAIT_S):
                await self._client.close()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _on_error(self, failure: Exception) -> None:
        if self._connecting:
            # nats-py would try the same address again and again; raising here ends its loop with the true reason.
            raise failure
        self._on_violation(self._client.error_line or str(failure))

    def _on_violation(self, text: str) -> None:
        """Fail the users of a subject that the server refused."""
        refused = ServerLineError(text).refused
        if refused is None:
            return
        verb, named = refused
        subject = named.lower()
        if verb == "publish":
            self._refused.append(refusal(verb, named))
            if self.on_refused is not None:
                self.on_refused(self._refused[-1])
        for waiter in list(self._waiting.values()):
            inbox_refused = verb == "subscription" and self._inbox.lower().startswith(subject.rstrip("*"))
            if (waiter.subject.lower() == subject or inbox_refused) and not waiter.future.done():
                waiter.future.set_exception(refusal(verb, waiter.subject if not inbox_refused else named))
        for subscription in self._subscriptions:
            for used in subscription.subjects if verb == "subscription" else (subscription.watched,):
                if used.lower() == subject:
                    subscription.fail(refusal(verb, used))

    async def _on_closed(self, client: Any) -> None:
        """Fail all that wait; called twice, when the end begins and when all of it is done."""
        if self._lost is not None or client is not self._client:
            return
        reason = str(self._client.last_error or "").removeprefix("nats: ")
        self._lost = ConnectionLostError(f"the connection to {self.url} was lost{f': {reason}' if reason else ''}")
        for waiter in self._waiting.values():
            if not waiter.future.done():
                waiter.future.set_exception(self._lost)
        for subscription in self._subscriptions:
            if not (self.reconnects and subscription.lasting):
                subscription.fail(self._lost)
        if self.reconnects and any(subscription.lasting for subscription in self._subscriptions):
            self._resuming = asyncio.create_task(self._resume())

    async def _resume(self) -> None:
        """Subscribe again; fails the subscriptions if no server takes them."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + RESUMED_WITHIN_S
        for pause_s in pauses():
            if self._lost is None or self._closed:
                return
            try:
                await self.reopen()
            except NatsctlError as failure:
                if self.patient or clock() >= until_s:
                    for subscription in self._subscriptions:
                        subscription.fail(failure)
                    return
            await asyncio.sleep(pause_s)

    @property
    def lost(self) -> bool:
        """Return whether the connection has ended; whatever uses it fails from then on."""
        return self._lost is not None or self._reopening.locked()

    # -- messages of the server

    @property
    def info(self) -> dict[str, Any]:
        """Return the server's INFO."""
        return dict(self._client._server_info)

    @property
    def max_payload(self) -> int:
        """Return the maximum number of bytes that a message may have here."""
        return int(self._client.max_payload)

    @property
    def tls(self) -> bool:
        """Return whether the connection is encrypted."""
        return self.transport_fact("ssl_object") is not None or self.url.startswith("wss://")

    def transport_fact(self, name: str) -> Any:
        """Return the transport's value of asyncio's `name`, such as `peername` or `ssl_object`; None over WebSocket."""
        writer = getattr(self._client._transport, "_io_writer", None)
        return None if writer is None else writer.get_extra_info(name)

    async def rtt_s(self) -> float:
        """Seconds for a PING to be answered; raises UnreachableError."""
        before = asyncio.get_running_loop().time()
        await self.flush()
        return asyncio.get_running_loop().time() - before

    # -- messages

    def trace(self, subject: str, body: bytes) -> None:
        """Show a request that is sent, if requests are traced."""
        if self.tracer is not None:
            self.tracer.request(subject, body)

    def trace_answer(self, subject: str, answer: Message) -> None:
        """Show the answer to the request on `subject`: its body, or the status of an answer without one."""
        if self.tracer is not None:
            status = f"{answer.status} {answer.description}".encode() if answer.status else b""
            self.tracer.answer(subject, answer.body or status)

    async def publish(
        self, subject: str, body: bytes = b"", *, reply: str = "", headers: HeaderLike | None = None
    ) -> None:
        """Send a message; whether the server took it is known after `flush`.

        Raises UsageError for a bad subject or size.
        """
        _check(subject)
        if reply:
            _check(reply)
        await self._revived()
        block = encode_headers(headers) if headers else b""
        if len(body) + len(block) > self.max_payload:
            size = len(body) + len(block)
            raise UsageError(f"the message has {size} bytes, the server takes at most {self.max_payload}")
        try:
            if block:
                await self._client.send(subject.encode(), reply.encode(), block, body)
            else:
                await self._client.publish(subject, body, reply=reply)
        except self._failures as failure:
            raise self._translated(failure) from failure

    async def flush(self, timeout_s: float | None = None) -> None:
        """Return once the server has read all that was sent.

        Raises UnreachableError, or NotAuthorisedError if it refused a subject.
        """
        if self._lost is not None:
            raise self._lost
        try:
            await self._client.flush(timeout=timeout_s or self.timeout_s)
        except TimeoutError as failure:
            raise self._lost or UnreachableError(f"no answer from {self.target.shown}") from failure
        except self._failures as failure:
            raise self._lost or UnreachableError(f"no answer from {self.target.shown}: {failure}") from failure
        if self._refused:
            refused, self._refused = self._refused[0], []
            raise refused

    def new_inbox(self) -> str:
        """Return a unique subject."""
        return str(self._client.new_inbox())

    async def subscribe(
        self,
        subject: str,
        *more: str,
        queue: str = "",
        limit: int = 0,
        lasting: bool = False,
        handler: MessageHandler | None = None,
        on_end: Callable[[Exception], None] | None = None,
    ) -> Subscription:
        """Return a running subscription, ended by itself after `limit` messages if that is above 0.

        With `more` subjects it has the messages of all of them, in the order they come. One that is `lasting` goes on
        when the connection is reopened; messages published meanwhile do not reach it. With a `handler`, messages
        are passed to it as they arrive and not kept. `on_end` is called with the failure that ends the subscription.
        """
        for each in (subject, *more):
            _check(each)
            if fault := subject_fault(each):
                raise UsageError(fault)
        await self._revived()
        self.received.subjects.append(subject)
        subscription = Subscription(
            subject,
            limit,
            self._subscriptions.discard,
            more,
            queue=queue,
            lasting=lasting,
            handler=handler,
            on_end=on_end,
        )
        self._subscriptions.add(subscription)
        await self._listen(subscription)
        return subscription

    async def _listen(self, subscription: Subscription) -> None:
        subscription.detach()
        try:
            for subject in subscription.subjects:
                subscription.attach(
                    await self._client.listen(subject, subscription.queue, subscription.handler, subscription.left)
                )
        except self._failures as failure:
            raise self._translated(failure) from failure

    async def request(
        self,
        subject: str,
        body: bytes = b"",
        *,
        headers: HeaderLike | None = None,
        timeout_s: float | None = None,
    ) -> Message:
        """Return the first answer; a status message such as `503` is an answer too.

        Raises UnreachableError when none comes in time, NotAuthorisedError when the server refuses the subject.
        """
        _check(subject)
        self.received.subjects.append(subject)
        await self._revived()
        if not self._inbox:
            self._inbox = f"{self.new_inbox()}."
            await self._client.listen(f"{self._inbox}*", "", self._on_answer)
        self._requests += 1
        token = f"{self._requests:x}"
        waiter = _Waiter(subject, asyncio.get_running_loop().create_future())
        self._waiting[token] = waiter
        wait_s = timeout_s or self.timeout_s
        try:
            await self.publish(subject, body, reply=self._inbox + token, headers=headers)
            async with asyncio.timeout(wait_s):
                return await waiter.future
        except TimeoutError:
            raise UnreachableError(f"no answer on {subject} within {wait_s:g}s") from None
        finally:
            del self._waiting[token]

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` side by side with other work on this connection."""
        return asyncio.create_task(work)

    async def end(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Cancel started work and wait until it has ended."""
        await end_tasks(tasks)

    def _on_answer(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        waiter = self._waiting.get(subject[len(self._inbox) :].decode())
        if waiter is not None and not waiter.future.done():
            waiter.future.set_result(to_message(subject, reply, body, block))

    def _translated(self, failure: Exception) -> NatsctlError:
        """Return the NatsctlError for a failure of nats-py: a lost connection, or a wrong call."""
        if self._lost is not None or self._client.is_closed:
            return self._lost or ConnectionLostError(f"the connection to {self.target.shown} was lost")
        return UsageError(str(failure).removeprefix("nats: "))

    async def _revived(self) -> None:
        """Raise the failure that ended the connection, or open it again if it reconnects."""
        if self._lost is not None and not self.reconnects:
            raise self._lost
        if self.lost:
            await self.reopen()


def pauses() -> Iterator[float]:
    """Yield the seconds between attempts to connect again, without end."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, MAX_PAUSE_S)


def is_final(failure: NatsctlError) -> bool:
    """Return whether a failure to connect is that every server refused the login."""
    return isinstance(failure, NotAuthorisedError) and not isinstance(failure, SomeRefusedError)


def ignore_notice(text: str) -> None:
    """Ignore a notice."""


def _check(subject: str) -> None:
    if not subject or any(blank in subject for blank in " \t\r\n"):
        raise UsageError(subject_fault(subject))


def refusal(verb: str, subject: str) -> NotAuthorisedError:
    """Return the error for a subject that the server refuses."""
    act = "publish to" if verb == "publish" else "subscribe to"
    failure = NotAuthorisedError(
        f"not authorised to {act} {subject}", hint="ask for the permission, or log in as another user"
    )
    failure.subject = subject
    return failure
