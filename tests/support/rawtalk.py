"""Requests in a row to an engine in memory and to a server over TCP, byte for byte, and whatever comes back.

For tests that compare natsctl with the reference where one request may have no answer, one, or many: `differing` asks
both and returns what they told differently. Values that differ from run to run are taken out; key order stays.

Theory of operation. The engine goes first, so it is known how much is to come. An answer tells by its subject which
request it is for: what comes beyond is found in the end, and the next request need not wait for silence. It has to
where somebody listens to events, which do not tell, and where nobody is told how it went.
"""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from natsctl.testing.machine import Machine
from natsctl.testing.process import alike
from natsctl.wire import ops
from natsctl.wire.encode import encode_pub
from natsctl.wire.server_parser import ServerParser

VARYING: Final = frozenset({
    "created", "ts", "first_ts", "last_ts", "time", "last_active", "leader", "id", "timestamp", "start", "end",
    "host", "server", "acc", "pause_remaining", "deliver_subject",
})  # fmt: skip
"""Keys whose values differ from run to run, or from one kind of server to the other."""

QUIET_S: Final = 0.02
"""How long to listen for more than the engine gave."""
SILENT_S: Final = 0.25
"""How long to listen where the engine gave nothing."""
PATIENCE_S: Final = 10.0
"""How long to wait for as much as the engine gave."""

INBOX: Final = "_INBOX.raw."


class Request(NamedTuple):
    """One message; without `reply` nobody is told where to answer."""

    subject: str
    body: bytes = b""
    header: bytes = b""
    reply: bool = True


Heard = tuple[str, bytes, bytes]
"""Subject ("" for an answer), header block, payload."""


class InMemory:
    """A client of a machine."""

    def __init__(self, machine: Machine, listens: Sequence[str]) -> None:
        self._wire = machine.connect("raw")
        self._number = 0
        for subject in (INBOX + ">", *listens):
            self._wire.subscribe(subject)

    def ask(self, request: Request) -> list[Heard]:
        """Return everything that one request brought."""
        self._number += 1
        reply = f"{INBOX}{self._number}" if request.reply else ""
        self._wire.publish(request.subject, request.body, reply, request.header)
        return [_heard(m.subject, m.header, m.payload) for m in self._wire.take()]


class OverTcp:
    """A client of a real server."""

    def __init__(self, url: str, listens: Sequence[str]) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self._parser = ServerParser()
        self._listens = bool(listens)
        self._heard: defaultdict[int, list[Heard]] = defaultdict(list)
        self._number = 0
        connect = {
            "verbose": False,
            "headers": True,
            "no_responders": True,
            "name": "raw",
            "lang": "raw",
            "version": "0",
        }
        lines = [b"CONNECT " + json.dumps(connect).encode()]
        lines += [b"SUB %b %d" % (s.encode(), at) for at, s in enumerate((INBOX + ">", *listens), 1)]
        self._socket.sendall(b"\r\n".join(lines) + b"\r\n")

    def ask(self, request: Request, expected: int) -> list[Heard]:
        """Return a list that holds, in the end, everything that one request brought; wait for as much as `expected`."""
        self._number += 1
        reply = f"{INBOX}{self._number}".encode() if request.reply else b""
        self._socket.sendall(encode_pub(request.subject.encode(), reply, request.header, request.body))
        heard = self._heard[self._number]
        deadline = time.monotonic() + PATIENCE_S
        while len(heard) < expected and (patience := deadline - time.monotonic()) > 0:
            self._read(patience)
        if self._listens or not request.reply:
            self.rest(QUIET_S if expected else SILENT_S)
        return heard

    def rest(self, quiet_s: float = SILENT_S) -> None:
        """Read until nothing comes for a while."""
        while self._read(quiet_s):
            pass

    def _read(self, within_s: float) -> bool:
        """Read what comes within a time, if anything, to the requests that it is for; events are for the last."""
        if not select.select([self._socket], [], [], within_s)[0]:
            return False
        for op in self._parser.feed(self._socket.recv(1 << 20)):
            if op[0] == ops.MSG:
                text = op[1].decode()
                number = int(text.removeprefix(INBOX)) if text.startswith(INBOX) else self._number
                self._heard[number].append(_heard(op[1], op[4], op[5]))
        return True

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _heard(subject: bytes, header: bytes, payload: bytes) -> Heard:
    text = subject.decode()
    return "" if text.startswith(INBOX) else text, header, payload


def scrubbed(value: Any, key: str = "") -> Any:
    """Return JSON without what differs from run to run; JSON inside texts is looked into."""
    if isinstance(value, list):
        return [scrubbed(item) for item in value]
    if isinstance(value, dict):
        kept = {k: item for k, item in value.items() if k != "rtt"}  # told once it was measured
        return {k: "varies" if k in VARYING else scrubbed(item, k) for k, item in kept.items()}
    if key in ("request", "response") and isinstance(value, str) and value[:1] == "{":
        try:
            return json.dumps(scrubbed(json.loads(value)))
        except ValueError:
            return value
    return alike(value) if isinstance(value, str) else value


def shown(heard: Iterable[Heard]) -> list[tuple[str, str, str]]:
    """Return messages as texts that can be compared: answers in their order, then events by subject."""
    texts = []
    for subject, header, payload in heard:
        lines = re.sub(rb"(Nats-Time-Stamp: )[^\r]*", rb"\1varies", alike(header)).decode("latin-1")
        try:
            texts.append((subject, lines, json.dumps(scrubbed(json.loads(payload)))))
        except ValueError:
            texts.append((subject, lines, payload.decode("latin-1")))
    return [t for t in texts if not t[0]] + sorted(t for t in texts if t[0])


def differing(requests: Iterable[Request], machine: Machine, url: str, listens: Sequence[str] = ()) -> list[str]:
    """Send the same requests to both and return what was told differently, as texts for people."""
    ours, theirs = InMemory(machine, listens), OverTcp(url, listens)
    told = []
    for request in requests:
        mine = ours.ask(request)
        told.append((request, mine, theirs.ask(request, len(mine))))
    theirs.rest()
    theirs.close()
    found = []
    for request, mine, other in told:
        if shown(mine) != shown(other):
            asked = f"{request.subject} {request.body[:300]!r} {request.header!r}"
            found.append(f"{asked}\n  reference {shown(other)}\n  natsctl   {shown(mine)}")
    return found
