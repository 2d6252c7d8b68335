"""Differential runs of requests in a row: natsctl's engine in memory against nats-server over TCP, byte for byte.

`differences` is for hundreds of API requests that each have one answer; whole conversations are for
`tests.support.differential`. A case is a list of requests that build on each other. Every case starts with the streams
of both deleted, but for KEEP: nats-server removes the folder of an account with its last stream, late, and may take
that of a new one with it. For the same reason a new stream may find what is left of its namesake, so what differs is
asked again, on an engine of its own.

`differing` is for requests that may have no answer, one, or many. Values that differ from run to run are taken out; key
order stays. The engine goes first, so it is known how much is to come. An answer shows by its subject which request it
is for: what comes beyond is found in the end, and the next request need not wait for silence. It has to where the test
listens to events, which do not show that, and where a request has no reply subject.
"""

from __future__ import annotations

import itertools
import json
import re
import select
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from natsctl.jetstream.engine_options import JetStreamOptions
from natsctl.wire.client import encode_pub
from tests.support.differential import login, normalised
from tests.support.machine import Machine
from tests.support.server_parser import MSG, ServerParser

Request = tuple[str, Any]
"""Verb and body; bytes are sent as they are."""
Case = tuple[str, Sequence[Request]]

VARYING: Final = {"created", "ts", "cluster", "first_ts", "last_ts", "active", "lag", "pause_remaining"}
"""Keys whose values differ from run to run."""
_LATE: Final = ("error", "filter_subject")
"""Fields of a mirror or source once its origin was asked, which takes nats-server a while.

The reference shows several sources in any order.
"""
PAUSES_S: Final = (0.0, 0.5, 1.0)
"""Pauses before each further try of a case, in which nats-server finishes the removal of earlier assets."""
ANSWER_S: Final = 20.0
"""Time limit of answers from nats-server."""
_KEEP: Final = b'{"name":"KEEP"}'


class Side(Protocol):
    def ask(self, verb: str, body: bytes = b"") -> bytes:
        """Return the answer to one API request, empty when none came."""


def clear(side: Side) -> None:
    names = json.loads(side.ask("STREAM.NAMES"))["streams"] or ()
    if "KEEP" not in names:
        side.ask("STREAM.CREATE.KEEP", _KEEP)
    for name in names:
        if name != "KEEP":
            side.ask(f"STREAM.DELETE.{name}")


class Reference:
    def __init__(self, url: str, answer_s: float = ANSWER_S) -> None:
        """Connect; `answer_s` is how long to wait for an answer."""
        self._raw = RawReference(url, (), answer_s)
        self.close = self._raw.close

    def ask(self, verb: str, body: bytes = b"") -> bytes:
        return _first(self._raw.ask(RawRequest(f"$JS.API.{verb}", body), 1))


class InMemory:
    def __init__(self) -> None:
        self._raw = RawInMemory(Machine(), ())

    def ask(self, verb: str, body: bytes = b"") -> bytes:
        return _first(self._raw.ask(RawRequest(f"$JS.API.{verb}", body)))


def _first(heard: Sequence[Heard]) -> bytes:
    return next((payload or header for _, header, payload in heard), b"")


Answers = Sequence[tuple[str, Sequence[bytes]]]
"""The name of each case, and the answers to its requests."""


def answers(cases: Iterable[Case], every: int = 1) -> Answers:
    """Return the engine's answers to one case of `every` so many."""
    engine, found = InMemory(), []
    for name, requests in itertools.islice(cases, 0, None, every):
        clear(engine)
        found.append((name, [engine.ask(verb, raw) for verb, raw in _encoded(requests)]))
    return found


def notes(answered: Answers) -> list[tuple[str, list[str]]]:
    """Return answers as they are recorded."""
    return [(name, list(map(comparable, texts))) for name, texts in answered]


def differences(url: str, cases: Sequence[Case], answered: Answers, known: Collection[str] = ()) -> list[str]:
    """Return what the reference at `url` answers otherwise than the engine has `answered`, one text per case.

    Cases named in `known` must differ.
    """
    reference, found = Reference(url), []
    for case, (name, ours) in zip(cases, answered, strict=True):
        text = _difference(reference, case, ours)
        for pause_s in PAUSES_S:
            if not text:
                break
            time.sleep(pause_s)
            text = _difference(reference, case, answers([case])[0][1])
        if (text != "") is not (name in known):
            found.append(f"{name}: {text or 'is known to differ and does not'}")
    reference.close()
    return found


def _difference(reference: Side, case: Case, answered: Sequence[bytes]) -> str:
    clear(reference)
    for (verb, raw), answer in zip(_encoded(case[1]), answered, strict=True):
        theirs, ours = comparable(reference.ask(verb, raw)), comparable(answer)
        if theirs != ours:
            return f"{verb} {raw[:300]!r}\n  reference {theirs[:3000]}\n  natsctl   {ours[:3000]}"
    return ""


def _encoded(requests: Sequence[Request]) -> Iterator[tuple[str, bytes]]:
    for verb, body in requests:
        raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        yield verb, raw


def comparable(answer: bytes) -> str:
    """Return an answer as text without what differs from run to run; key order stays."""
    try:
        return json.dumps(_steady(json.loads(normalised(answer))))
    except ValueError:
        return normalised(answer).decode("latin-1")


def _steady(value: Any) -> Any:
    if isinstance(value, list):
        items = [_steady(item) for item in value]
        return (
            sorted(items, key=json.dumps) if any("lag" in item for item in items if isinstance(item, dict)) else items
        )
    if not isinstance(value, dict):
        return value
    late = _LATE if "lag" in value else ()
    return {key: "varies" if key in VARYING else _steady(item) for key, item in value.items() if key not in late}


RAW_VARYING: Final = frozenset({
    "created", "ts", "first_ts", "last_ts", "time", "last_active", "leader", "id", "timestamp", "start", "end",
    "host", "server", "acc", "pause_remaining", "deliver_subject",
})  # fmt: skip
"""Keys whose values differ from run to run, or from one kind of server to the other."""

QUIET_S: Final = 0.02
"""Time to listen for more than the engine sent."""
SILENT_S: Final = 0.25
"""Time to listen where the engine sent nothing."""
PATIENCE_S: Final = 10.0
"""Time limit for as much as the engine sent."""

INBOX: Final = "_INBOX.raw."
DELETED: Final = re.compile(r"\$JS\.EVENT\.ADVISORY\.(STREAM|CONSUMER)\.DELETED\..*")


class RawRequest(NamedTuple):
    """One message; without `reply` it has no reply subject."""

    subject: str
    body: bytes = b""
    header: bytes = b""
    reply: bool = True


Heard = tuple[str, bytes, bytes]
"""Subject ("" for an answer), header block, payload."""


class RawInMemory:
    def __init__(self, machine: Machine, listens: Sequence[str]) -> None:
        self._wire = machine.connect("raw")
        self._number = 0
        for subject in (INBOX + ">", *listens):
            self._wire.subscribe(subject)

    def ask(self, request: RawRequest) -> list[Heard]:
        self._number += 1
        reply = f"{INBOX}{self._number}" if request.reply else ""
        self._wire.publish(request.subject, request.body, reply, request.header)
        return [_heard(m.subject, m.header, m.payload) for m in self._wire.take()]


class RawReference:
    def __init__(self, url: str, listens: Sequence[str], patience_s: float = PATIENCE_S) -> None:
        parts = urlsplit(url)
        self._patience_s = patience_s
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self._parser = ServerParser()
        self._listens = bool(listens)
        self._heard: defaultdict[int, list[Heard]] = defaultdict(list)
        self._number = 0
        connect = {"verbose": False, "headers": True, "no_responders": True, **login(url)}
        lines = [b"CONNECT " + json.dumps({**connect, "name": "raw", "lang": "raw", "version": "0"}).encode()]
        lines += [b"SUB %b %d" % (s.encode(), at) for at, s in enumerate((INBOX + ">", *listens), 1)]
        self._socket.sendall(b"\r\n".join(lines) + b"\r\n")

    def ask(self, request: RawRequest, expected: int) -> list[Heard]:
        """Return a list that holds, in the end, everything that one request brought; wait for as much as `expected`."""
        self._number += 1
        reply = f"{INBOX}{self._number}".encode() if request.reply else b""
        self._socket.sendall(encode_pub(request.subject.encode(), reply, request.header, request.body))
        heard = self._heard[self._number]
        deadline = time.monotonic() + self._patience_s
        while len(heard) < expected and (patience := deadline - time.monotonic()) > 0:
            self._read(patience)
        if self._listens or not request.reply:
            self.rest(QUIET_S if expected else SILENT_S)
        return heard

    def rest(self, quiet_s: float = SILENT_S) -> None:
        while self._read(quiet_s):
            pass

    def _read(self, within_s: float) -> bool:
        """Read what comes within a time, if anything, to the requests that it is for; events are for the last."""
        if not select.select([self._socket], [], [], within_s)[0]:
            return False
        for op in self._parser.feed(self._socket.recv(1 << 20)):
            if op[0] == MSG:
                text = op[1].decode()
                number = int(text.removeprefix(INBOX)) if text.startswith(INBOX) else self._number
                self._heard[number].append(_heard(op[1], op[4], op[5]))
        return True

    def close(self) -> None:
        self._socket.close()


def _heard(subject: bytes, header: bytes, payload: bytes) -> Heard:
    text = subject.decode()
    return "" if text.startswith(INBOX) else text, header, payload


def scrubbed(value: Any, key: str = "") -> Any:
    """Return JSON without what differs from run to run; JSON inside texts is looked into."""
    if isinstance(value, list):
        return [scrubbed(item) for item in value]
    if isinstance(value, dict):
        kept = {k: item for k, item in value.items() if k != "rtt"}  # shown once it was measured
        return {k: "varies" if k in RAW_VARYING else scrubbed(item, k) for k, item in kept.items()}
    if key in ("request", "response") and isinstance(value, str) and value[:1] == "{":
        try:
            return json.dumps(scrubbed(json.loads(value)))
        except ValueError:
            return value
    return normalised(value) if isinstance(value, str) else value


def shown(heard: Iterable[Heard]) -> list[tuple[str, str, str]]:
    """Return messages as texts that can be compared: answers in their order, then events by subject."""
    texts = []
    for subject, header, payload in heard:
        lines = re.sub(rb"(Nats-Time-Stamp: )[^\r]*", rb"\1varies", normalised(header)).decode("latin-1")
        try:
            texts.append((subject, lines, json.dumps(scrubbed(json.loads(payload)))))
        except ValueError:
            texts.append((subject, lines, payload.decode("latin-1")))
    return [t for t in texts if not t[0]] + sorted(t for t in texts if t[0])


def _without_lost(mine: Sequence[Heard], other: Sequence[Heard]) -> list[Heard]:
    """Return our messages less those advisories of a stream's deletion that nats-server has not sent.

    It queues them and ends the queue's loop at once, which may come first. Source: nats-server, server/stream.go,
    `stop` and `internalLoop`.
    """
    sent = {heard[0] for heard in other}
    return [heard for heard in mine if heard[0] in sent or not DELETED.fullmatch(heard[0])]


class Exchange(NamedTuple):
    """Requests to a server, its options and configuration, and subjects that the client listens to."""

    requests: Callable[[], Iterable[RawRequest]]
    options: JetStreamOptions | None = None
    config: str = ""
    listens: Sequence[str] = ()

    def heard(self) -> list[tuple[str, list[tuple[str, str, str]]]]:
        client = RawInMemory(Machine(options=self.options), self.listens)
        return [(request.subject, shown(client.ask(request))) for request in self.requests()]


def differing(exchange: Exchange, url: str, settle: Callable[[], None]) -> list[str]:
    """Send the same requests to both and return the differences as texts; `settle` waits for the end of a removal."""
    ours = RawInMemory(Machine(options=exchange.options), exchange.listens)
    theirs = RawReference(url, exchange.listens)
    answers = []
    for request in exchange.requests():
        mine = ours.ask(request)
        answers.append((request, mine, theirs.ask(request, len(mine))))
        if ".STREAM.DELETE." in request.subject:
            settle()
    theirs.rest()
    theirs.close()
    found = []
    for request, mine, other in answers:
        ends_stream = ".STREAM.DELETE." in request.subject
        if shown(_without_lost(mine, other) if ends_stream else mine) != shown(other):
            asked = f"{request.subject} {request.body[:300]!r} {request.header!r}"
            found.append(f"{asked}\n  reference {shown(other)}\n  natsctl   {shown(mine)}")
    return found
