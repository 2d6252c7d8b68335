"""A real server with the words of a `Machine`: what was said to an engine is said to it, and waited for alike.

Theory of operation. The reference works on after it has answered, and late on a busy machine. The engine goes first,
and its `Score` says how many messages had come after everything that was said to it. The reference is given time until
it has sent as much, which takes it a moment. Where the engine gave nothing there is nothing to wait for: then the
reference must be silent for a while. What comes beyond is found where messages are taken, or in the end by `left`.
"""

from __future__ import annotations

import random
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from natsctl.testing.jet import SECOND
from natsctl.testing.machine import Message, Wire
from natsctl.wire import ops
from natsctl.wire.encode import encode_pub, encode_sub, encode_unsub
from natsctl.wire.server_parser import ServerParser

QUIET_S: Final = 0.03
"""How long the reference must be silent at least before it is taken to be at rest."""

SOON_S: Final = 0.005
"""How long it must be silent once it has told what the engine told: others of its threads may not be done yet."""

SLOWNESS: Final = 4
"""How many times as long as its last PONG took it must be silent where there is nothing to wait for."""

PATIENCE_S: Final = 5.0
"""How long to wait for what the engine told and the reference has not told yet."""

ANSWER_S: Final = 20.0
"""How long to wait for what has to come whatever the engine told: the answer to a request, the PONG to a PING."""

_HEARTBEAT: Final = b"100"
"""The status of what comes as time passes, whoever waits."""


def is_heartbeat(message: Message) -> bool:
    """Whether a message says no more than that time has passed: a slow conversation has more of them."""
    return message.status == b"100 Idle Heartbeat"


def _counted(messages: Iterable[Message]) -> Counter[bool]:
    """Return how many messages are no heartbeats, and how many are."""
    return Counter(map(is_heartbeat, messages))


class Score:
    """What a client of the engine was given: by each `take`, and in all after each thing that was said but requests."""

    def __init__(self, wire: Wire | None = None) -> None:
        """Write down what `wire` is given from now on; without one there is nothing to wait for."""
        self.takes: list[Counter[bool]] = []
        self.given: list[int] = []
        self._wire = wire
        self._within = 0
        if wire is not None:
            for name in ("send", "request", "take"):
                setattr(wire, name, getattr(self, f"_{name}")(getattr(wire, name)))

    @property
    def left(self) -> int:
        """How many messages nobody has taken."""
        return 0 if self._wire is None else left(self._wire)

    def _take(self, take: Callable[..., list[Message]]) -> Callable[..., list[Message]]:
        def counting(sid: bytes | None = None) -> list[Message]:
            messages = take(sid)
            self.takes.append(_counted(messages))
            return messages

        return counting

    def _send(self, send: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def counting(data: bytes) -> None:
            send(data)
            if not self._within and self._wire is not None:
                taken = sum(take[False] for take in self.takes)
                self.given.append(taken + _counted(self._wire._inbox)[False])

        return counting

    def _request(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **named: Any) -> Any:
            self._within += 1
            try:
                return request(*arguments, **named)
            finally:
                self._within -= 1

        return counting


def left(wire: Wire) -> int:
    """Return how many messages of a client nobody has taken, heartbeats aside."""
    return sum(message.status[:3] != _HEARTBEAT for message in wire._inbox)


class LiveWire(Wire):
    """A client of a real server with the words of a `Wire`."""

    def __init__(self, url: str, score: Score) -> None:
        """Connect; `score` says what the engine gave."""
        parts = urlsplit(url)
        self._takes: Iterator[Counter[bool]] = iter(score.takes)
        self._given: Iterator[int] = iter(score.given)
        self._left = score.left
        self._socket = socket.create_connection((parts.hostname, parts.port))
        self._live_parser = ServerParser()
        self._inbox = []
        self._inboxes: set[bytes] = set()
        self._requests: set[bytes] = set()
        self._arrived = 0
        self._sids = 0
        self._run = random.randrange(1 << 40)
        self.errors = []
        self._socket.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\n')
        self.rest()

    def send(self, data: bytes) -> None:
        """Send, and read until the server has told as much as the engine, and is quiet."""
        self._socket.sendall(data)
        before, given = self._arrived, next(self._given, 0)
        self._wait_until(lambda: self._arrived >= given)
        self.rest(QUIET_S if given <= before else SOON_S)

    def subscribe(self, subject: str, queue: str = "") -> bytes:
        """Subscribe and return the sid; an inbox is known to nobody yet, so there is nothing to wait for."""
        if queue or not subject.startswith("_INBOX."):
            return super().subscribe(subject, queue)
        next(self._given, 0)
        sid = self._listen(subject.encode())
        self._inboxes.add(sid)
        return sid

    def _listen(self, subject: bytes) -> bytes:
        self._sids += 1
        sid = b"%d" % self._sids
        self._socket.sendall(encode_sub(subject, b"", sid))
        return sid

    def unsubscribe(self, sid: bytes) -> None:
        """End a subscription."""
        if sid in self._inboxes:
            next(self._given, 0)
            self._inboxes.discard(sid)
            self._socket.sendall(encode_unsub(sid, 0))
        else:
            super().unsubscribe(sid)

    def rest(self, quiet_s: float = QUIET_S) -> None:
        """Read until nothing came for a while after the answer to a PING."""
        began = time.monotonic()
        self._socket.sendall(b"PING\r\n")
        while b"PONG" not in self._read(ANSWER_S):
            assert time.monotonic() < began + ANSWER_S, "no PONG"
        if quiet_s >= QUIET_S:
            quiet_s = max(quiet_s, min(SLOWNESS * (time.monotonic() - began), PATIENCE_S))
        while self._read(quiet_s):
            assert time.monotonic() < began + ANSWER_S + quiet_s, "the server never rests"

    def _read(self, within_s: float) -> set[bytes]:
        """Read what comes within a time; return the kinds of what came."""
        if not select.select([self._socket], [], [], within_s)[0]:
            return set()
        got = {b"bytes"}
        for op in self._live_parser.feed(self._socket.recv(1 << 20)):
            if op[0] == ops.MSG:
                message = Message(*op[1:])
                self._inbox.append(message)
                self._arrived += message.sid not in self._requests and not is_heartbeat(message)
            elif op[0] == ops.PONG:
                got.add(b"PONG")
        return got

    def take(self, sid: bytes | None = None) -> list[Message]:
        """Return what arrived, once there is as much as the engine gave at this place."""
        expected = next(self._takes, Counter())
        self._wait_until(lambda: expected <= _counted(m for m in self._inbox if sid in (None, m.sid)))
        return super().take(sid)

    def _wait_until(self, done: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not done() and (remaining := deadline - time.monotonic()) > 0:
            self._read(remaining)

    def request(self, subject: str, body: object = b"", header: bytes = b"") -> Any:
        """Send a request and return the JSON of its answer."""
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        inbox = b"_INBOX.%d.%d" % (self._run, self._sids + 1)
        sid = self._listen(inbox)
        self._requests.add(sid)
        self._socket.sendall(encode_unsub(sid, 1) + encode_pub(subject.encode(), inbox, header, payload))
        self._wait_until(lambda: any(sid == m.sid for m in self._inbox), ANSWER_S)
        self.rest(SOON_S)
        (answer,) = super().take(sid)
        return answer.json()

    def excess(self) -> int:
        """Return how many more messages than on the engine were taken by nobody, once the server is at rest."""
        self.rest()
        return max(left(self) - self._left, 0)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Live:
    """A real server with the words of a `Machine` that Jet needs."""

    def __init__(self, url: str, score: Score) -> None:
        self._wire = LiveWire(url, score)
        self.rng = random.Random()

    def connect(self) -> LiveWire:
        """Return the only client."""
        return self._wire

    def advance(self, ns: int) -> None:
        """Let real time pass."""
        time.sleep(ns / SECOND)
        self._wire.rest()
