"""One-shot client: a few API requests on a plain socket, without nats-py and asyncio.

These alone take longer to import than a person waits for a list of names. So this client speaks only the part of the
protocol that a request needs: INFO, CONNECT, SUB, PUB, MSG and PING. It never waits longer than its deadline.

`OneShotClient` serves completion, for which every failure is an `UnreachableError`. `PlainConnection` serves commands
that make single requests or publish one message (`Session.ask`): it is that part of a Connection that `Requests` uses,
and its methods block in place of being suspended, so that `completed` gets the result of their coroutines without an
event loop. It reports only silence itself, and the end of a connection over which something may have been changed. On
any other failure it raises NeedsMoreError, and the work is done again by nats-py, which alone words what went wrong.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Awaitable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from natsctl.api.errors import NatsctlError, UnreachableError
from natsctl.client.message import Message, encode_headers, to_message
from natsctl.client.received import Received
from natsctl.client.settings import login_at, login_options, tls_context, wants_tls
from natsctl.wire.client import read_info, starts_tls
from natsctl.wire.server_url import parse_server_url

if TYPE_CHECKING:
    from ssl import SSLContext

    from natsctl.client.message import HeaderLike
    from natsctl.client.servers import Target


T = TypeVar("T")

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The largest `max_payload` of nats-server."""
_INBOX = "_INBOX.natsctl.glance"
_READ = 65_536


class OneShotClient:
    """A connection that asks one thing after the other."""

    def __init__(self, target: Target, deadline_s: float) -> None:
        """Take the target, whose first address `open` connects to; `deadline_s` is a moment of time.monotonic."""
        self.target = target
        self._deadline_s = deadline_s
        self._buffer = b""
        self._requests = 0
        self._info: dict[str, Any] = {}
        self._socket: Any = None

    def open(self, name: str) -> None:
        """Connect under this name; raises OSError or ValueError, and UsageError for unreadable secrets."""
        try:
            self._open(name)
        except BaseException:
            self.shut()
            raise

    def shut(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()

    def ask(self, verb: str, body: Any = None) -> dict[str, Any]:
        """Return the answer of an API request such as `STREAM.NAMES`.

        Raises UnreachableError, also for an error answer.
        """
        self._requests += 1
        inbox = f"{self.target.settings.inbox_prefix.rstrip('.') or _INBOX}.{time.monotonic_ns()}.{self._requests}"
        payload = b"" if body is None else json.dumps(body).encode()
        subject = f"{self.target.api_prefix}.{verb}"
        head = f"SUB {inbox} {self._requests}\r\nPUB {subject} {inbox} {len(payload)}\r\n".encode()
        try:
            self._socket.sendall(head + payload + b"\r\n")
            answer = json.loads(self._message().body)
        except (OSError, ValueError, RecursionError) as failure:
            raise UnreachableError(str(failure)) from failure
        if not isinstance(answer, dict) or "error" in answer:
            raise UnreachableError(f"no answer on {subject}")
        return answer

    # -- the protocol

    def _open(self, name: str) -> None:
        settings = self.target.settings
        url = parse_server_url(self.target.urls[0])
        if url.scheme not in ("nats", "tls") or settings.socks_proxy:
            raise ValueError(f"no glance through {url.scheme}")
        host: Any = url.host
        if host.isascii():
            host = host.encode()  # a str would be encoded as IDNA, whose tables take a fifth of the time
        self._socket = socket.create_connection((host, url.port), self._left_s())
        context = tls_context(settings, self.target.urls)
        if context and settings.tls_first:
            self._socket = context.wrap_socket(self._socket, server_hostname=url.host)
        info = self._info = read_info(self._line())
        if starts_tls(info, wanted=context is not None, secured=settings.tls_first):
            self._buffer = b""
            self._encrypt(context, url.host)
        connect = {
            "verbose": False,
            "pedantic": False,
            "protocol": 1,
            "headers": True,
            "no_responders": True,
            "lang": "python",
            "version": "0",
            "name": name,
            **self._login(str(info.get("nonce", ""))),
        }
        self._socket.sendall(f"CONNECT {json.dumps(connect)}\r\nPING\r\n".encode())
        while (line := self._line()) != b"PONG":
            self._judge(line)

    def _encrypt(self, context: SSLContext | None, hostname: str) -> None:
        import ssl

        wrapping = context or ssl.create_default_context()
        self._socket = wrapping.wrap_socket(self._socket, server_hostname=hostname)

    def _login(self, nonce: str) -> dict[str, str]:
        options = login_at(self.target.urls[0], login_options(self.target.settings))
        named = {"user": "user", "password": "pass", "token": "auth_token"}
        said: dict[str, str] = {there: options[here] for here, there in named.items() if here in options}
        if "user_jwt_cb" in options:
            said["jwt"] = options["user_jwt_cb"]().decode()
            said["sig"] = options["signature_cb"](nonce).decode().rstrip("=").translate(_URL_SAFE)
        if "nkeys_seed_str" in options:
            said.update(_signed(options["nkeys_seed_str"], nonce))
        return said

    def _message(self) -> Message:
        """Return the next message."""
        while True:
            line = self._line()
            words = line.split()
            if words[:1] == [b"MSG"]:
                return to_message(words[1], b"", self._exactly(int(words[-1])), b"")
            if words[:1] == [b"HMSG"]:
                length, whole = int(words[-2]), self._exactly(int(words[-1]))
                return to_message(words[1], b"", whole[length:], whole[:length])
            self._judge(line)

    def _judge(self, line: bytes) -> None:
        if line == b"PING":
            self._socket.sendall(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            raise ValueError(line.decode("utf-8", "replace"))

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._receive()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _exactly(self, count: int) -> bytes:
        if count > MAX_ANSWER_BYTES:
            raise ValueError("the answer is too long")
        while len(self._buffer) < count + 2:
            self._receive()
        body, self._buffer = self._buffer[:count], self._buffer[count + 2 :]
        return body

    def _receive(self) -> None:
        self._socket.settimeout(self._left_s())
        more = self._socket.recv(_READ)
        if not more:
            raise ValueError("the connection ended")
        self._buffer += more

    def _left_s(self) -> float:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the time is up")
        return left_s


class NeedsMoreError(Exception):
    """The work needs more than this client does, such as TLS, or failed in a way that nats-py describes.

    `answered` are the answers that need not be asked for again, by subject and body.
    """

    def __init__(self, answered: Mapping[tuple[str, bytes], dict[str, Any]] = MappingProxyType({})) -> None:
        super().__init__()
        self.answered = dict(answered)


class PlainConnection(OneShotClient):
    """The part of a Connection that single requests use, on one plain socket."""

    reconnects = patient = lost = concurrent = False
    tracer = None

    def __init__(self, target: Target, *, dry_run: bool, changes: bool = False) -> None:
        """Take the target, which `open_plain` has found to be plain; what `changes` something is not done again."""
        super().__init__(target, time.monotonic() + target.timeout_s)
        self.timeout_s = target.timeout_s
        self.dry_run = dry_run
        self._changes = changes
        self.received = Received()
        self._sent = False
        self._inbox = ""

    def _encrypt(self, context: SSLContext | None, hostname: str) -> None:
        raise NeedsMoreError

    async def request(
        self, subject: str, body: bytes = b"", *, headers: HeaderLike | None = None, timeout_s: float | None = None
    ) -> Message:
        """Return the answer; raises UnreachableError if none comes in time, NeedsMoreError for any other failure."""
        block = self._checked(subject, body, headers)
        self.received.subjects.append(subject)
        wait_s = timeout_s or self.timeout_s
        self._deadline_s = time.monotonic() + wait_s
        try:
            return self._exchanged(subject, body, block)
        except TimeoutError:
            raise UnreachableError(f"no answer on {subject} within {wait_s:g}s") from None
        except (OSError, ValueError) as failure:
            raise self._failed(failure) from failure

    async def publish(
        self, subject: str, body: bytes = b"", *, reply: str = "", headers: HeaderLike | None = None
    ) -> None:
        """Send a message, which the server has read then; raises as `request`."""
        block = self._checked(subject, body, headers, reply)
        self._deadline_s = time.monotonic() + self.timeout_s
        try:
            self._send(b"", subject, reply, body, block, b"PING\r\n")
            while (line := self._line()) != b"PONG":
                self._judge(line)
        except TimeoutError:
            raise UnreachableError(f"no answer from {self.target.shown}") from None
        except (OSError, ValueError) as failure:
            raise self._failed(failure) from failure

    async def flush(self, timeout_s: float | None = None) -> None:
        """Return at once: the server has read what `publish` has sent."""

    def _checked(self, subject: str, body: bytes, headers: HeaderLike | None, reply: str = "r") -> bytes:
        """Return the header block of a message; raises NeedsMoreError for a message that cannot be sent here."""
        block = encode_headers(headers) if headers else b""
        too_long = len(body) + len(block) > int(self._info.get("max_payload", 0))
        named = [subject, reply] if reply else [subject]
        if too_long or any(len(one.split()) != 1 for one in named) or (block and not self._info.get("headers")):
            raise NeedsMoreError
        return block

    def _send(self, begin: bytes, subject: str, reply: str, body: bytes, block: bytes, end: bytes = b"") -> None:
        """Send a message, with protocol lines before and after it."""
        words = f"{subject} {reply}" if reply else subject
        sizes = f"{len(block)} {len(block) + len(body)}" if block else f"{len(body)}"
        line = f"{'HPUB' if block else 'PUB'} {words} {sizes}\r\n".encode()
        self._socket.settimeout(self._left_s())
        self._sent = True
        self._socket.sendall(begin + line + block + body + b"\r\n" + end)

    def _failed(self, failure: Exception) -> Exception:
        """Return the error for a failure other than silence."""
        text = str(failure).lower()
        unsent = not self._sent or isinstance(failure, UnicodeEncodeError)
        if unsent or not self._changes or "permissions violation for publish" in text:
            return NeedsMoreError()
        from natsctl.client.connection import ConnectionLostError, refusal

        if "permissions violation for subscription" in text:  # to the inbox: the message itself may have been taken
            return refusal("subscription", f"{self._inbox}.*")
        return ConnectionLostError(f"the connection to {self.target.shown} was lost")

    def _exchanged(self, subject: str, body: bytes, block: bytes) -> Message:
        begin = b""
        if not self._inbox:
            self._inbox = f"{self.target.settings.inbox_prefix.rstrip('.') or '_INBOX'}.{os.urandom(11).hex()}"
            begin = f"SUB {self._inbox}.* 1\r\n".encode()
        self._requests += 1
        reply = f"{self._inbox}.{self._requests:x}"
        self._send(begin, subject, reply, body, block)
        while (message := self._message()).subject != reply:
            pass  # an answer that came too late for an earlier request
        return message


def open_plain(target: Target, name: str, *, dry_run: bool, changes: bool = False) -> PlainConnection | None:
    """Return a connection to a target of one address without TLS, signatures and proxy; None where it needs more.

    Secrets that lie elsewhere are left to nats-py too: another program is not to be asked for them twice. Raises
    UnreachableError where the server is silent, and UsageError for unreadable secrets.
    """
    settings = target.settings
    if not target.urls[0].startswith("nats://") or len(target.urls) > 1:
        return None
    if settings.creds or settings.nkey or settings.user_jwt or "://" in settings.password + settings.token:
        return None
    if settings.socks_proxy or wants_tls(settings, target.urls):
        return None
    connection = PlainConnection(target, dry_run=dry_run, changes=changes)
    try:
        connection.open(name)
    except TimeoutError as failure:
        _raise_silence(failure, target)
    except (OSError, ValueError, NeedsMoreError):
        return None
    return connection


def _raise_silence(failure: TimeoutError, target: Target) -> NoReturn:
    from natsctl.client.dial import explained

    raise explained(failure, target.urls[0], target) from failure


def completed(work: Awaitable[T]) -> T:
    """Return the result of a coroutine that is never suspended; raises RuntimeError if it is."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("only requests on a plain connection can be awaited here")


_URL_SAFE = str.maketrans("+/", "-_")


def _signed(seed: str, nonce: str) -> dict[str, str]:
    """Return the public key and the signature of the server's nonce."""
    import base64

    import nkeys

    pair = nkeys.from_seed(bytearray(seed.encode()))
    try:
        signature = base64.urlsafe_b64encode(pair.sign(nonce.encode())).decode().rstrip("=")
        return {"nkey": pair.public_key.decode(), "sig": signature}
    finally:
        pair.wipe()


def open_one_shot(target: Target, deadline_s: float) -> OneShotClient | None:
    """Return a connection to the target, or None where there is none in time."""
    client = OneShotClient(target, deadline_s)
    try:
        client.open("natsctl completion")
    except (NatsctlError, OSError, ValueError):
        return None
    return client
