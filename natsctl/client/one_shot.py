"""Single API requests on a blocking socket, without nats-py and asyncio.

Those take longer to import than a person waits for a list of names.

`OneShotClient` serves completion; every failure is an `UnreachableError`. `PlainConnection` serves commands that make
requests or publish one message (`Session.ask`): it is the part of a Connection that `Requests` uses, and its methods
block, so that `completed` gets the result of their coroutines without an event loop. Pages of a list are asked for
ahead: `start` sends a request, and its answer is read when it is awaited. It reports only silence itself, and the end
of a connection over which something may have been changed. On any other failure it raises NeedsMoreError, and the work
is done again by nats-py, the only connection that describes failures.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress

from natsctl.api.errors import NatsctlError, UnreachableError
from natsctl.client.blocking import BlockingConnection, StartedWork, completed, turn
from natsctl.client.message import HeaderLike, Message, encode_headers, to_message
from natsctl.client.received import Received, not_traced
from natsctl.client.settings import credentials, credentials_at, tls_context, wants_tls
from natsctl.hints import TYPE_CHECKING, Any, NoReturn, TypeVar, cast
from natsctl.wire.client import ClientProtocol, ServerLineError, encode_pub
from natsctl.wire.server_url import parse_server_url

if TYPE_CHECKING:
    from socket import socket

    from natsctl.client.connection import Connection
    from natsctl.client.manager import Manager
    from natsctl.client.servers import Target


T = TypeVar("T")


def open_wire(target: Target, name: str, timeout_s: float) -> BlockingConnection:
    """Return a connection to the first address of a target.

    Raises OSError or ValueError, UsageError for unreadable secrets.
    """
    settings = target.settings
    url = parse_server_url(target.urls[0])
    if url.scheme not in ("nats", "tls") or settings.socks_proxy:
        raise ValueError(f"not over {url.scheme}")
    context = tls_context(settings, target.urls)
    protocol = ClientProtocol(
        credentials_at(url, credentials(settings)),
        name=name,
        wants_tls=context is not None,
        secured=settings.tls_first,
    )

    def encrypt(plain: socket) -> socket:
        import ssl

        return (context or ssl.create_default_context()).wrap_socket(plain, server_hostname=url.host)

    # A str would be encoded as IDNA: its tables take a fifth of the time.
    host = url.host.encode() if url.host.isascii() else url.host
    wire = BlockingConnection(settings.inbox_prefix.rstrip(".") or "_INBOX")
    wire.connect(host, url.port, protocol, encrypt, timeout_s=timeout_s, tls_first=settings.tls_first)
    return wire


class OneShotClient:
    """A connection for API requests, one after another, until a deadline."""

    def __init__(self, target: Target, wire: BlockingConnection, deadline_s: float) -> None:
        self.target = target
        self._wire = wire
        self._deadline_s = deadline_s

    def shut(self) -> None:
        self._wire.close()

    def ask(self, verb: str, body: Any = None) -> dict[str, Any]:
        """Return the answer of an API request such as `STREAM.NAMES`.

        Raises UnreachableError, also for an error answer.
        """
        payload = b"" if body is None else json.dumps(body).encode()
        subject = f"{self.target.api_prefix}.{verb}"
        try:
            answer = json.loads(self._wire.exchange(subject, payload, b"", self._deadline_s - time.monotonic())[1])
        except (OSError, ValueError, RecursionError) as failure:
            raise UnreachableError(str(failure)) from failure
        if not isinstance(answer, dict) or "error" in answer:
            raise UnreachableError(f"no answer on {subject}")
        return answer


def open_one_shot(target: Target, deadline_s: float) -> OneShotClient | None:
    """Return a connection to the target, or None if it is not reached in time."""
    try:
        wire = open_wire(target, "natsctl completion", deadline_s - time.monotonic())
    except (NatsctlError, OSError, ValueError):
        return None
    return OneShotClient(target, wire, deadline_s)


class NeedsMoreError(Exception):
    """The work needs more than this client does, such as TLS, or failed in a way that nats-py describes."""


class PlainSubscription:
    """The part of a Subscription that requests use."""

    watched = ""

    def __init__(self, connection: PlainConnection, wire: BlockingConnection, subject: str) -> None:
        self.subject = subject
        self._connection = connection
        self._wire = wire
        self._sid = wire.subscribe(subject)

    async def next(self, timeout_s: float) -> Message | None:
        """Return the next message, None if it does not come in time; raises as `PlainConnection.request`."""
        try:
            subject, reply, header, body = self._wire.next_of(self._sid, timeout_s)
        except TimeoutError:
            return None
        except (OSError, ValueError) as failure:
            raise self._connection.failed(failure) from failure
        return to_message(subject, reply, body, header)

    async def stop(self) -> None:
        with suppress(OSError):
            self._wire.unsubscribe(self._sid)


class PlainConnection:
    """The part of a Connection that requests use, on one plain socket."""

    reconnects = patient = lost = False
    tracer = None
    trace = trace_answer = staticmethod(not_traced)

    def __init__(self, target: Target, wire: BlockingConnection) -> None:
        self.target = target
        self.timeout_s = target.timeout_s
        self.dry_run = False
        self.received = Received()
        self._wire = wire
        self.changes = False

    def shut(self) -> None:
        self._wire.close()

    def ask(
        self,
        work: Callable[[Manager], Awaitable[T]],
        received: Received,
        *,
        dry_run: bool = False,
        changes: bool = False,
    ) -> T:
        """Return the result of `work(manager)`; if it `changes` something, it is not repeated after a failure.

        Raises NeedsMoreError if the work needs more, and the errors of the work.
        """
        from natsctl.client.manager import Manager

        self.received, self.dry_run, self.changes = received, dry_run, changes
        return completed(work(Manager(cast("Connection", self))))

    async def request(
        self, subject: str, body: bytes = b"", *, headers: HeaderLike | None = None, timeout_s: float | None = None
    ) -> Message:
        """Return the answer; raises UnreachableError if none comes in time, NeedsMoreError for any other failure."""
        block = self._checked(subject, body, headers)
        self.received.subjects.append(subject)
        wait_s = timeout_s or self.timeout_s
        try:
            reply = self._wire.ask(subject, body, block)
            try:
                await turn()
                header, answer = self._wire.answer(reply, wait_s)
            finally:
                self._wire.forget(reply)
        except TimeoutError:
            raise UnreachableError(f"no answer on {subject} within {wait_s:g}s") from None
        except (OSError, ValueError) as failure:
            raise self.failed(failure) from failure
        return to_message(b"", b"", answer, header)

    def start(self, work: Coroutine[Any, Any, T]) -> StartedWork[T]:
        """Send the first request of `work`; awaited, it is done."""
        return StartedWork(work)

    async def end(self, tasks: Iterable[StartedWork[Any]]) -> None:
        for task in tasks:
            task.cancel()

    async def publish(
        self, subject: str, body: bytes = b"", *, reply: str = "", headers: HeaderLike | None = None
    ) -> None:
        """Send a message and wait until the server has read it; raises as `request`."""
        block = self._checked(subject, body, headers, reply)
        try:
            self._wire.send(encode_pub(subject.encode(), reply.encode(), block, body))
            self._wire.flush(self.timeout_s)
        except TimeoutError:
            raise UnreachableError(f"no answer from {self.target.shown}") from None
        except (OSError, ValueError) as failure:
            raise self.failed(failure) from failure

    def new_inbox(self) -> str:
        return self._wire.new_inbox()

    async def subscribe(self, subject: str) -> PlainSubscription:
        self.received.subjects.append(subject)
        try:
            return PlainSubscription(self, self._wire, subject)
        except (OSError, ValueError) as failure:
            raise self.failed(failure) from failure

    async def flush(self, timeout_s: float | None = None) -> None:
        """Return at once: the server has read what `publish` has sent."""

    def _checked(self, subject: str, body: bytes, headers: HeaderLike | None, reply: str = "r") -> bytes:
        """Return the header block of a message; raises NeedsMoreError for a message that cannot be sent here."""
        block, info = encode_headers(headers) if headers else b"", self._wire.info
        too_long = len(body) + len(block) > int(info.get("max_payload", 0))
        subjects = [subject, reply] if reply else [subject]
        if too_long or any(len(each.split()) != 1 for each in subjects) or (block and not info.get("headers")):
            raise NeedsMoreError
        return block

    def failed(self, failure: Exception) -> Exception:
        """Return the error for a failure other than silence."""
        refused = failure.refused if isinstance(failure, ServerLineError) else None
        unsent = isinstance(failure, UnicodeEncodeError)
        if unsent or not self.changes or (refused and refused[0] == "publish"):
            return NeedsMoreError()
        from natsctl.client.connection import ConnectionLostError, refusal

        if refused:  # the inbox: the message itself may have been accepted
            return refusal(*refused)
        return ConnectionLostError(f"the connection to {self.target.shown} was lost")


def open_plain(target: Target, name: str) -> PlainConnection:
    """Return a connection to a target of one address without TLS, signatures and proxy.

    Secrets that are kept elsewhere are left to nats-py too: another program must not be asked for them twice. Raises
    NeedsMoreError for another target, UnreachableError if the server is silent, and UsageError for unreadable secrets.
    """
    settings = target.settings
    if not target.urls[0].startswith("nats://") or len(target.urls) > 1:
        raise NeedsMoreError
    if settings.creds or settings.nkey or settings.user_jwt or "://" in settings.password + settings.token:
        raise NeedsMoreError
    if settings.socks_proxy or wants_tls(settings, target.urls):
        raise NeedsMoreError
    try:
        wire = open_wire(target, name, target.timeout_s)
    except TimeoutError as failure:
        _raise_silence(failure, target)
    except (OSError, ValueError):
        raise NeedsMoreError from None
    return PlainConnection(target, wire)


def _raise_silence(failure: TimeoutError, target: Target) -> NoReturn:
    from natsctl.client.dial import explained

    raise explained(failure, target.urls[0], target) from failure
