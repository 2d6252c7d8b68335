"""A client that proves who it is with a JWT, and notes what the server says to it, byte for byte.

`login` connects and returns a `Visitor`; what it heard is in `said`, `open` tells whether the server still talks.
"""

from __future__ import annotations

import json
import re
import socket
import time
from typing import Any, Final
from urllib.parse import urlsplit

from tests.support.jwts import UserLogin

PATIENCE_S: Final = 30.0
"""How long to wait for what must come; a busy machine stands still for some seconds now and then."""
QUIET: Final = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}


class Visitor:
    """One connection to a server in operator mode."""

    def __init__(self, url: str) -> None:
        """Connect and read INFO."""
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), PATIENCE_S)
        self._buffer = b""
        self.open = True
        self.info: dict[str, Any] = json.loads(self._line().removeprefix(b"INFO "))
        self.said: list[bytes] = []

    @property
    def cid(self) -> int:
        """How the server calls this connection."""
        return int(self.info["client_id"])

    def _read(self) -> bool:
        try:
            data = self._socket.recv(65536)
        except OSError:
            data = b""
        self._buffer += data
        if not data:
            self.close()
        return self.open

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer and self._read():
            pass
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def show(self, **options: Any) -> list[bytes]:
        """Send CONNECT and return what the server says to it."""
        return self.say(b"CONNECT " + json.dumps({**QUIET, **options}).encode() + b"\r\n")

    def say(self, data: bytes) -> list[bytes]:
        """Send, and return the lines until the server has read it all or has closed; INFO is left out."""
        try:
            self._socket.sendall(data + b"PING\r\n")
        except OSError:
            self.open = False
        return self.hear(b"PONG")

    def hear(self, until: bytes) -> list[bytes]:
        """Return the lines up to one that begins with `until`, or to the end of the connection.

        INFO is left out, and so is PING, with which a server asks whether anybody is there.
        """
        heard: list[bytes] = []
        while (line := self._line()) or self.open or self._buffer:
            if line.startswith(until):
                break
            if line != b"PING" and not line.startswith(b"INFO "):
                heard.append(line)
        self.said += heard
        return heard

    def hear_message(self) -> bytes:
        """Return the head of the next message."""
        while not (line := self._line()).startswith((b"MSG", b"HMSG")) and self.open:
            pass
        self._line()
        return line

    def request(self, subject: str, body: bytes = b"") -> bytes:
        """Return the answer to a request, without its headers; status lines begin with NATS/1.0."""
        # A subscription of its own: nats-server passes over one whose number has not yet gone with its only message.
        sid = b"r%d" % time.monotonic_ns()
        inbox = b"_INBOX." + sid
        head = b"SUB %b %b\r\nUNSUB %b 1\r\nPUB %b %b %d\r\n" % (inbox, sid, sid, subject.encode(), inbox, len(body))
        self._socket.sendall(head + body + b"\r\n")
        while not (line := self._line()).startswith((b"MSG", b"HMSG")):
            if not self.open:
                return line
        size = int(line.split(b" ")[-1])
        while len(self._buffer) < size + 2 and self._read():
            pass
        payload, self._buffer = self._buffer[:size], self._buffer[size + 2 :]
        return payload

    def ask(self, subject: str, body: bytes = b"") -> Any:
        """Return the JSON of an answer."""
        return json.loads(self.request(subject, body))

    def close(self) -> None:
        """Hang up."""
        self.open = False
        self._socket.close()


def login(url: str, user: UserLogin, **options: Any) -> Visitor:
    """Connect and show a user's JWT and signature; `options` are laid over them."""
    visitor = Visitor(url)
    visitor.show(**{**user.connect_options(visitor.info["nonce"]), **options})
    return visitor


def close_reason(system: Visitor, cid: int) -> str:
    """Return why a connection has ended, as connz tells the system account."""
    wanted = json.dumps({"state": 1, "cid": cid}).encode()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = system.ask("$SYS.REQ.SERVER.PING.CONNZ", wanted)["data"]["connections"]
        if found:
            return str(found[0]["reason"])
    return ""


def without_keys(line: bytes) -> bytes:
    """Return a line without public keys."""
    return re.sub(rb"\b[AUO][A-Z2-7]{55}\b", b"KEY", line)
