"""One-shot client: a few API requests on a plain socket, for the completion of names.

nats-py and asyncio alone take longer to import than a person waits for a list of names. So this client speaks only the
part of the protocol that a request needs: INFO, CONNECT, SUB, PUB, MSG and PING. It never waits longer than its
deadline, and every failure is an `UnreachableError`.
"""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from natsctl.api.errors import NatsctlError, UnreachableError
from natsctl.client.settings import login_options, tls_context

if TYPE_CHECKING:
    from natsctl.client.servers import Target


MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""No page of names is near this."""
_INBOX = "_INBOX.natsctl.glance"
_READ = 65_536


class OneShotClient:
    """A connection that asks one thing after the other."""

    def __init__(self, target: Target, deadline_s: float) -> None:
        """Connect to the first address of the target; `deadline_s` is a moment of time.monotonic."""
        self._target = target
        self._deadline_s = deadline_s
        self._buffer = b""
        self._requests = 0
        try:
            self._socket: socket.socket = self._opened()
        except (OSError, ValueError) as failure:
            raise UnreachableError(str(failure)) from failure

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def ask(self, verb: str, body: Any = None) -> dict[str, Any]:
        """Return the answer of an API request such as `STREAM.NAMES`.

        Raises UnreachableError, also for an error answer.
        """
        self._requests += 1
        inbox = f"{self._target.settings.inbox_prefix.rstrip('.') or _INBOX}.{time.monotonic_ns()}.{self._requests}"
        payload = b"" if body is None else json.dumps(body).encode()
        subject = f"{self._target.api_prefix}.{verb}"
        head = f"SUB {inbox} {self._requests}\r\nPUB {subject} {inbox} {len(payload)}\r\n".encode()
        try:
            self._socket.sendall(head + payload + b"\r\n")
            answer = json.loads(self._message())
        except (OSError, ValueError) as failure:
            raise UnreachableError(str(failure)) from failure
        if not isinstance(answer, dict) or "error" in answer:
            raise UnreachableError(f"no answer on {subject}")
        return answer

    # -- the protocol

    def _opened(self) -> socket.socket:
        settings = self._target.settings
        parts = urlsplit(self._target.urls[0])
        if parts.scheme not in ("nats", "tls") or settings.socks_proxy:
            raise ValueError(f"no glance through {parts.scheme}")
        host: Any = parts.hostname or ""
        if host.isascii():
            host = host.encode()  # a str would be encoded as IDNA, whose tables take a fifth of the time
        self._socket = socket.create_connection((host, parts.port or 4222), self._left_s())
        context = tls_context(settings, self._target.urls)
        if context and settings.tls_first:
            self._socket = context.wrap_socket(self._socket, server_hostname=parts.hostname)
        info = json.loads(self._line().partition(b" ")[2])
        if (context or info.get("tls_required")) and not settings.tls_first:
            import ssl

            wrapping = context or ssl.create_default_context()
            self._socket = wrapping.wrap_socket(self._socket, server_hostname=parts.hostname)
        connect = {
            "verbose": False,
            "pedantic": False,
            "protocol": 1,
            "headers": True,
            "no_responders": True,
            "lang": "python",
            "version": "0",
            "name": "natsctl completion",
            **self._login(str(info.get("nonce", "")), parts.username, parts.password),
        }
        self._socket.sendall(f"CONNECT {json.dumps(connect)}\r\nPING\r\n".encode())
        while (line := self._line()) != b"PONG":
            self._judge(line)
        return self._socket

    def _login(self, nonce: str, user: str | None, password: str | None) -> dict[str, str]:
        options = login_options(self._target.settings)
        said: dict[str, str] = {}
        if user:
            said = {"user": user, "pass": password} if password else {"auth_token": user}
        named = {"user": "user", "password": "pass", "token": "auth_token"}
        said.update({there: options[here] for here, there in named.items() if here in options})
        if "user_jwt_cb" in options:
            said["jwt"] = options["user_jwt_cb"]().decode()
            said["sig"] = options["signature_cb"](nonce).decode().rstrip("=").translate(_URL_SAFE)
        if "nkeys_seed_str" in options:
            said.update(_signed(options["nkeys_seed_str"], nonce))
        return said

    def _message(self) -> bytes:
        """Return the body of the next message; a status instead of one raises ValueError."""
        while True:
            words = self._line().split()
            if words[:1] == [b"MSG"]:
                return self._exactly(int(words[-1]))
            if words[:1] == [b"HMSG"]:
                headers, total = int(words[-2]), int(words[-1])
                return self._exactly(total)[headers:]
            self._judge(b" ".join(words))

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
            raise ValueError("the time is up")
        return left_s


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
    try:
        return OneShotClient(target, deadline_s)
    except NatsctlError:
        return None
