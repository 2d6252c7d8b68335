"""One case of what clients may do and what they see when they may not, and its steps with a running server."""

import base64
import json
import re
import socket
import time
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

CLOSED: Final = b"<closed>"
"""At the end of what a client hears: the server has closed the connection."""
ANSWER: Final = b"<answer>"
"""Stands for a message that the subscription `answers` takes, whatever is in it."""
WAIT: Final = "wait"
"""In place of a client's name: nothing is sent for as many milliseconds as the text says."""


class Step(NamedTuple):
    """A client sends something and receives something, from any sender, up to the answer to its PING."""

    who: str
    says: bytes
    hears: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A configuration, what its offender does with it, and what that comes to.

    The clients of `steps` are users of the configuration and connect with their first step; their password is `x`
    unless `clients` says what their CONNECT holds (`seed`: the nonce is signed with it; None: no CONNECT). The offender
    is the client of the first step.
    """

    claim: str
    users: str = ""
    """Lines of users; cases that have nothing else share one server."""
    config: str = ""
    """A whole configuration, for a server of its own."""
    steps: tuple[Step, ...]
    clients: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    log: str = ""
    """The end of the [ERR] line, empty where there is none."""

    @property
    def offender(self) -> str:
        return self.steps[0].who

    @property
    def stays(self) -> bool:
        """Return whether the offender's connection is open at the end."""
        return not any(step.hears.endswith(CLOSED) for step in self.steps if step.who == self.offender)


def no_publish(subject: str) -> bytes:
    return f"-ERR 'Permissions Violation for Publish to \"{subject}\"'\r\n".encode()


PATIENCE_S: Final = 20.0
CONNECT: Final[dict[str, Any]] = {"verbose": False, "pedantic": False, "headers": True}
_ANSWER: Final = re.compile(rb"H?MSG \S+ answers .*?\r\n.*?(?:\r\n(?=H?MSG |-ERR |PONG|\Z))", re.DOTALL)


class Client:
    """One connection; its CONNECT goes out with what it says first."""

    def __init__(self, url: str, connect: dict[str, Any] | None) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_S)
        self._data = b""
        while b"\r\n" not in self._data:
            self._data += self._socket.recv(65536)
        info, _, self._data = self._data.partition(b"\r\n")
        self._first = b"" if connect is None else self._connect(connect, json.loads(info[5:]).get("nonce", ""))

    def _connect(self, given: dict[str, Any], nonce: str) -> bytes:
        fields = CONNECT | {key: value for key, value in given.items() if key != "seed"}
        if "seed" in given:
            import nkeys

            signature: bytes = nkeys.from_seed(given["seed"].encode()).sign(nonce.encode())
            fields["sig"] = base64.urlsafe_b64encode(signature).decode().rstrip("=")
        return b"CONNECT " + json.dumps(fields).encode() + b"\r\n"

    def say(self, data: bytes, expected: bytes) -> bytes:
        """Send `data` and return what comes up to the answer to a PING and as many answers as are expected.

        Where the end of the connection is expected, everything up to there.
        """
        first, self._first = self._first, b""
        closing, answers = expected.endswith(CLOSED), expected.count(ANSWER)
        self._socket.sendall(first + data + (b"" if closing else b"PING\r\n"))
        heard = self._data
        while closing or b"PONG\r\n" not in heard or len(_ANSWER.findall(heard)) < answers:
            try:
                more = self._socket.recv(65536)
            except TimeoutError:
                heard += b"<silence>"
                break
            except ConnectionResetError:
                more = b""
            if not more:
                heard += CLOSED
                break
            heard += more
        self._data = b""
        return _ANSWER.sub(ANSWER, heard.replace(b"PING\r\n", b"").replace(b"PONG\r\n", b""))

    def close(self) -> None:
        self._socket.close()


def differences(case: Case, url: str) -> list[str]:
    """Run a case's steps and return those whose output differs."""
    clients: dict[str, Client] = {}
    found = []
    try:
        for who, says, hears in case.steps:
            if who == WAIT:
                time.sleep(int(says) / 1000)
                continue
            if who not in clients:
                clients[who] = Client(url, case.clients.get(who, {"user": who, "pass": "x"}))
            heard = clients[who].say(says, hears)
            if heard != hears:
                found.append(f"{case.claim}: {who} said {says!r}\n  expected {hears!r}\n  heard    {heard!r}")
    finally:
        for client in clients.values():
            client.close()
    return found
