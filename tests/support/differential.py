"""Differential runner: the same conversation with natsctl's engine in memory and with nats-server over TCP.

Usage. A conversation is a function that takes a `Talk`: `t.jet` does things (see `tests.support.jet.Jet`),
and what `t` itself does is noted: `t.ask(verb, body)` an API answer, `t.create(name, **config)` a consumer's creation,
`t.pull(body)` what a pull request brought, `t.note(messages)` any messages, `t.event(sid)` advisories. Times, ids and
other values that differ from run to run are taken out; key order, header lines and texts stay. A file is:

    scenario = Scenarios()

    @scenario
    def one_message_goes_round(t: Talk) -> None:
        t.create(max_deliver=3)
        t.jet.publish("1")
        (one,) = t.pull()
        t.note(t.jet.double_ack(one))
        t.ask("CONSUMER.INFO.S.C")

Every conversation starts with the empty stream S on `s.>`, or with what `prepare` makes (`Scenarios(prepare)`).
`tests/jetstream/test_conversations.py` holds them all. `assert_all_same` prints what differs as pairs of notes, ours
and theirs. It has several conversations at once, each in an account of its own: most of one is waiting.

Theory of operation. nats-server works on after it has answered, and late on a busy machine. The engine goes first, and
its `Score` says how many messages had come after every request. nats-server is given time until it has sent as many,
which takes it a moment. Where the engine gave nothing there is nothing to wait for: then nats-server must be silent for
a while. What comes beyond is found where messages are taken, or in the end by `left`. `Live` gives a real server the
methods of a `Machine`. What it does not find within its `PATIENCE_S`, and what comes beyond, is a difference. Real time
passes for nats-server (`jet.advance` sleeps there), so times leave room for a slow machine between the steps, and
`assert_all_same` reports what was answered otherwise, or broke off, in each of `TRIES` conversations.
"""

from __future__ import annotations

import itertools
import random
import re
import select
import socket
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, AnyStr, Final, cast
from urllib.parse import urlsplit

import msgspec

from natsctl.api.versions import SERVER_VERSION
from natsctl.testing.process import ServerProcess, reference_version
from natsctl.wire import ops
from natsctl.wire.client import encode_pub, encode_sub, encode_unsub
from tests.support.jet import SECOND, Jet
from tests.support.machine import Machine, Message, Wire
from tests.support.server_parser import MSG, ServerParser

QUIET_S: Final = 0.03
"""Least silence of nats-server before it counts as being at rest."""

SOON_S: Final = 0.005
"""Its silence after it has sent all that the engine sent: others of its threads may not be done yet."""

SLOWNESS: Final = 4
"""Its silence where there is nothing to wait for, in multiples of the time of its last PONG."""

PATIENCE_S: Final = 5.0
"""Time limit for messages that the engine has sent and nats-server has not sent yet."""

ANSWER_S: Final = 20.0
"""Time limit for messages that must come in any case: the answer to a request, the PONG to a PING."""

_HEARTBEAT: Final = b"100"
"""The status of messages that come as time passes."""


_JSON_ERROR: Final = re.compile(r'(invalid JSON: |Bad Request - )(?:\\.|[^"\\\r\n])*')
"""A prefix of nats-server's, and the reason of Go's JSON decoder behind it."""
_JSON_ERROR_BYTES: Final = re.compile(_JSON_ERROR.pattern.encode())
_SYNTAX_ERROR: Final = re.compile(
    r'(invalid JSON: |Bad Request - )(?:parsing time "[^"]*"(?: as "[^"]*": cannot parse "[^"]*" as "[^"]*"|: [\w ]+)|'
    r"(?:invalid character|unexpected E|unexpected end|exceeded max depth|parsing time|syntax error)"
    r'(?:\\.|[^"\\\r\n])*)'
)
"""The same prefix, and a reason about invalid JSON or an invalid time, which natsctl words differently."""
_SYNTAX_ERROR_BYTES: Final = re.compile(_SYNTAX_ERROR.pattern.encode())


def as_released(text: AnyStr) -> AnyStr:
    """Return nats-server's output, with natsctl's version and the engine's account in place of its own."""
    own = reference_version() or SERVER_VERSION
    if isinstance(text, bytes):
        return re.sub(rb"\bACCOUNT\d+\b", b"$G", text).replace(own.encode(), SERVER_VERSION.encode())
    return re.sub(r"\bACCOUNT\d+\b", "$G", text).replace(own, SERVER_VERSION)


def normalised(text: AnyStr) -> AnyStr:
    """Return either server's output in a form that can be compared, with natsctl's version.

    Reasons for syntax errors are removed. If nats-server has another version than the one that natsctl reports, all
    reasons of Go's JSON decoder are, since they depend on the Go that built it: `Go struct field .batch` there is
    `Go struct field JSApiConsumerGetNextRequest.batch` here. The error itself, its number and its code
    remain.
    """
    same = reference_version() in ("", SERVER_VERSION)
    if isinstance(text, bytes):
        text = _SYNTAX_ERROR_BYTES.sub(rb"\1", as_released(text))
        return text if same else _JSON_ERROR_BYTES.sub(rb"\1", text)
    text = _SYNTAX_ERROR.sub(r"\1", as_released(text))
    return text if same else _JSON_ERROR.sub(r"\1", text)


def is_heartbeat(message: Message) -> bool:
    """Return whether a message says only that time has passed: a slow conversation has more of them."""
    return message.status == b"100 Idle Heartbeat"


def _counted(messages: Iterable[Message]) -> Counter[bool]:
    return Counter(map(is_heartbeat, messages))


class Score:
    """The messages of a client of the engine: by each `take`, and in all after each input but requests."""

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


def login(url: str) -> dict[str, str]:
    """Return what CONNECT says of the user of a URL."""
    parts = urlsplit(url)
    return {"user": parts.username, "pass": parts.password or ""} if parts.username else {}


def left(wire: Wire) -> int:
    """Return the number of a client's messages that were not taken, without heartbeats."""
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
        options = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1, **login(url)}
        self._socket.sendall(b"CONNECT %b\r\n" % msgspec.json.encode(options))
        self.rest()

    def send(self, data: bytes) -> None:
        """Send, and read until the server has sent as much as the engine, and is quiet."""
        self._socket.sendall(data)
        before, given = self._arrived, next(self._given, 0)
        self._wait_until(lambda: self._arrived >= given)
        self.rest(QUIET_S if given <= before else SOON_S)

    def subscribe(self, subject: str, queue: str = "") -> bytes:
        """Subscribe and return the sid; an inbox is not known to the server yet, so there is nothing to wait for."""
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
            if op[0] == MSG:
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
        """Return how many more messages than on the engine were not taken, once the server is at rest."""
        self.rest()
        return max(left(self) - self._left, 0)

    def close(self) -> None:
        self._socket.close()


class Live:
    """A real server with the words of a `Machine` that Jet needs."""

    def __init__(self, url: str, score: Score) -> None:
        self._wire = LiveWire(url, score)
        self.rng = random.Random()

    def connect(self) -> LiveWire:
        return self._wire

    def advance(self, ns: int) -> None:
        time.sleep(ns / SECOND)
        self._wire.rest()


MAX_DIFFERENCES: Final = 2
"""Different answers of `*.INFO.*` after which a conversation is broken off: each has cost `PATIENCE_S`."""

BESIDE: Final = 64
"""Number of conversations with nats-server at once."""

ACCOUNT: Final = "ACCOUNT"
"""Prefix of the names of accounts, which are replaced by that of the engine's only one."""

ACCOUNTS: Final = 500
"""Accounts of a nats-server: one for each conversation and its repetitions."""

TRIES: Final = 3
"""Repetitions of a conversation before a difference counts: one that is due to a busy machine disappears."""

AGAIN = (".INFO.", ".RESET.")
"""Requests that leave everything as one of them does: the reference confirms some acks before it carries them out."""


class Diverged(Exception):
    """The two have sent too different messages for a comparison of the rest."""


class Talk:
    """A Jet that notes what it was answered, without what differs from run to run."""

    def __init__(self, jet: Jet, expected: Sequence[Any] = ()) -> None:
        """`expected` are the notes of the earlier conversation."""
        self.jet = jet
        self.expected = expected
        self.notes: list[Any] = []
        self._differences = 0

    def create(self, consumer: str = "C", form: str = "DURABLE.CREATE.S.{name}", **config: Any) -> Any:
        action = config.pop("action", "")
        config = {"durable_name": consumer, "ack_policy": "explicit", **config}
        config = {key: value for key, value in config.items() if value is not None}
        body: dict[str, Any] = {"stream_name": "S", "config": config}
        if action:
            body["action"] = action
        return self.ask("CONSUMER." + form.format(name=consumer), body)

    def ask(self, verb: str, body: object = b"") -> Any:
        """Ask the API and note the answer; what may be asked twice is asked until both say the same, or for a while."""
        answer = self.jet.api(verb, body)
        deadline = time.monotonic() + PATIENCE_S
        while any(word in verb for word in AGAIN) and self._differs((verb, scrub(answer))):
            if time.monotonic() > deadline:
                self._differences += 1
                break
            answer = self.jet.api(verb, body)
        self.notes.append((verb, scrub(answer)))
        if self._differences >= MAX_DIFFERENCES:
            raise Diverged
        return answer

    def info(self, name: str = "C") -> Any:
        return self.ask(f"CONSUMER.INFO.S.{name}")

    def _differs(self, note: Any) -> bool:
        """Return whether the earlier conversation has another note at this place."""
        place = len(self.notes)
        return place < len(self.expected) and self.expected[place] != note

    def pull(self, body: object = b"", name: str = "C") -> list[Message]:
        messages = self.jet.pull(body, name)
        self.note(messages)
        return [m for m in messages if not m.status]

    def hear(self, *sids: bytes) -> None:
        """Note what these subscriptions heard, one after the other."""
        for sid in sids:
            self.note(self.jet.heard(sid))

    def consume(self, name: str = "C") -> None:
        """Pull up to five messages, and note them and the answers to their acks."""
        for message in self.pull({"batch": 5, "no_wait": True}, name):
            self.note(self.jet.double_ack(message))

    def note(self, messages: list[Message]) -> None:
        for m in messages:
            reply = re.sub(rb"\.\d{19}\.", b".T.", m.reply)
            reply = re.sub(rb"^(\$JS\.FC\.S\.C\.).*", rb"\1X", reply)
            header = re.sub(rb"\.\d{19}\.", b".T.", m.header)
            self.notes.append(
                (
                    b"" if m.subject.startswith(b"_INBOX") else m.subject,
                    reply,
                    normalised(header),
                    normalised(m.payload),
                )
            )

    def event(self, sid: bytes) -> None:
        """Note advisories without what differs from run to run."""
        for m in self.jet.heard(sid):
            self.notes.append((m.subject, scrub(m.json())))


DROPPED = (
    "ts", "created", "last_active", "id", "timestamp", "ack_time", "pause_remaining", "first_ts", "last_ts", "cluster",
)  # fmt: skip


def scrub(value: Any) -> Any:
    """Return an answer without times, ids and names of servers."""
    if isinstance(value, dict):
        return [(k, scrub(v)) for k, v in value.items() if k not in DROPPED]
    if isinstance(value, str):
        return normalised(value)
    return [scrub(v) for v in value] if isinstance(value, list) else value


Scenario = Callable[[Talk], None]


def empty_stream(t: Talk) -> None:
    """Make the stream S on `s.>`."""
    t.jet.stream()


class Scenarios(list[Scenario]):
    """The conversations of a test file; used as a decorator it takes one more."""

    def __init__(self, prepare: Scenario = empty_stream) -> None:
        """`prepare` is what each of them starts with."""
        super().__init__()
        self._prepare = prepare

    def __call__(self, function: Scenario, prepare: Scenario | None = None) -> Scenario:

        def prepared(t: Talk) -> None:
            (prepare or self._prepare)(t)
            function(t)

        prepared.__name__ = function.__name__
        self.append(prepared)
        return function


def notes_of(run: Scenario, talk: Talk) -> list[Any]:
    with suppress(Diverged):
        run(talk)
    return talk.notes


def ours(run: Scenario, machine: Machine | None = None) -> tuple[list[Any], Score]:
    """Hold a conversation with an engine (`machine`, or a new one); return its notes and its messages."""
    jet = Jet(machine)
    score = Score(jet.wire)
    return notes_of(run, Talk(jet)), score


def differences(run: Scenario, url: str, notes: list[Any], score: Score) -> str:
    """Hold a conversation with the server at `url` and return its differences from an engine's."""
    live = Live(url, score)
    with closing(live.connect()) as wire:
        theirs = notes_of(run, Talk(Jet(cast(Machine, live)), notes))
        different = [(mine, other) for mine, other in zip(notes, theirs, strict=False) if mine != other]
        if different:
            return "\n\n".join(f"ours   {mine}\ntheirs {other}" for mine, other in different)
        if len(notes) != len(theirs):
            return f"{len(notes)} notes of ours, {len(theirs)} of theirs"
        return f"theirs has sent more that nobody took:\n{excess}" if (excess := wire.excess()) else ""


class AccountServer:
    """A nats-server with an account for each conversation; usable as a context manager."""

    def __init__(self, folder: Path) -> None:
        accounts = "\n".join(
            f"{ACCOUNT}{n} {{ jetstream: enabled, users: [{{ user: a{n}, password: p }}] }}" for n in range(ACCOUNTS)
        )
        folder.mkdir(parents=True)
        config = folder / "nats.conf"
        config.write_text(f"accounts {{\n{accounts}\n}}\n")
        self.process = ServerProcess(folder, "reference", "-c", str(config))
        self._numbers = itertools.count()

    def __enter__(self) -> AccountServer:
        self.process.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.stop()

    def url(self) -> str:
        """Return the URL of an account that was not used yet."""
        number = next(self._numbers)
        # nats-server removes the folder of an account with its last stream, late, and may take a new one with it.
        streams = self.process.store_dir / "jetstream" / f"{ACCOUNT}{number}" / "streams"
        streams.mkdir(parents=True, exist_ok=True)
        (streams / "kept").touch()
        return self.process.url.replace("://", f"://a{number}:p@")


def assert_all_same(runs: Iterable[Scenario], server: AccountServer) -> None:
    """Hold each conversation with an engine, then all at once with nats-server, and compare."""

    def compared(run: Scenario, notes: list[Any], score: Score) -> str:
        different = ""
        for _ in range(TRIES):
            try:
                different = differences(run, server.url(), notes, score)
            except Exception:  # what came late is missed by the conversation itself, wherever it counts on it
                different = traceback.format_exc()
            if not different:
                return ""
        return f"{run.__name__}\n{different}"

    told_first = [(run, *ours(run)) for run in runs]
    with ThreadPoolExecutor(BESIDE) as pool:
        running = [pool.submit(compared, *one) for one in told_first]
        found = [text for future in running if (text := future.result())]
    assert not found, "\n\n".join(found)
