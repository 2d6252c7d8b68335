"""The same conversation with natsctl's engine in memory and with a reference server over TCP: both must tell the same.

How to use it. A conversation is a function that takes a `Talk`: `t.jet` does things (see `natsctl.testing.jet.Jet`),
and what `t` itself does is noted: `t.ask(verb, body)` an API answer, `t.create(name, **config)` a consumer's creation,
`t.pull(body)` what a pull request brought, `t.note(messages)` any messages, `t.event(sid)` advisories. Times, ids and
other values that differ from run to run are taken out; key order, header lines and texts stay. A test file is:

    scenario = Scenarios()

    @scenario
    def one_message_goes_round(t: Talk) -> None:
        t.create(max_deliver=3)
        t.jet.publish("1")
        (one,) = t.pull()
        t.note(t.jet.double_ack(one))
        t.ask("CONSUMER.INFO.S.C")

    @pytest.mark.reference
    @pytest.mark.parametrize("run", scenario, ids=name_of)
    def test_both_tell_the_same(run: Scenario, server: ServerProcess) -> None:
        assert_same(run, server.url)

Every conversation starts with the empty stream S on `s.>`, or with what `prepare` makes (`Scenarios(prepare)`).
`assert_same` prints what differs as pairs of notes, ours and theirs.

Theory of operation. The reference works on after it has answered, and late on a busy machine. So the engine goes first,
and the reference is waited for until it has told as much: as many messages as each `take` gave, and the state that each
`*.INFO.*` said. What does not come within `PATIENCE_S`, and what comes beyond, is a difference. Real time passes for
the reference (`jet.advance` sleeps there), so times leave room for a slow machine between the steps.
"""

from __future__ import annotations

import random
import re
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from natsctl.testing.jet import SECOND, Jet
from natsctl.testing.machine import Machine, Message, Wire
from natsctl.wire import ops
from natsctl.wire.encode import encode_pub, encode_sub, encode_unsub
from natsctl.wire.server_parser import ServerParser

QUIET_S: Final = 0.03
"""How long the reference must be silent at least before it is taken to be at rest."""

SLOWNESS: Final = 4
"""How many times as long as its last PONG took it must be silent."""

MAX_DIFFERENCES: Final = 2
"""Different answers of `*.INFO.*` after which a conversation is broken off: each has cost `PATIENCE_S`."""

PATIENCE_S: Final = 5.0
"""How long to wait for what the engine told and the reference has not told yet."""


class LiveWire(Wire):
    """A client of a real server with the words of a `Wire`."""

    def __init__(self, url: str, expected: Iterable[int]) -> None:
        """Connect; `expected` says how many messages each `take` gave on the engine."""
        parts = urlsplit(url)
        self._expected = iter(expected)
        self._socket = socket.create_connection((parts.hostname, parts.port))
        self._live_parser = ServerParser()
        self._inbox = []
        self._sids = 0
        self._run = random.randrange(1 << 40)
        self.errors = []
        self.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\n')

    def send(self, data: bytes) -> None:
        """Send, and read until the server is quiet."""
        self._socket.sendall(data + b"PING\r\n")
        self.read_until_quiet()

    def read_until_quiet(self) -> None:
        """Read until nothing came for a while after the PONG."""
        began = time.monotonic()
        while b"PONG" not in self._read(PATIENCE_S):
            assert time.monotonic() < began + PATIENCE_S, "no PONG"
        quiet_s = max(QUIET_S, SLOWNESS * (time.monotonic() - began))
        while self._read(quiet_s):
            assert time.monotonic() < began + PATIENCE_S + quiet_s, "the server never rests"

    def _read(self, within_s: float) -> set[bytes]:
        """Read what comes within a time; return the kinds of what came."""
        if not select.select([self._socket], [], [], within_s)[0]:
            return set()
        got = {b"bytes"}
        for op in self._live_parser.feed(self._socket.recv(1 << 20)):
            if op[0] == ops.MSG:
                self._inbox.append(Message(*op[1:]))
            elif op[0] == ops.PONG:
                got.add(b"PONG")
        return got

    def take(self, sid: bytes | None = None) -> list[Message]:
        """Return what arrived, once there is as much as the engine gave at this place."""
        self._wait_for(next(self._expected, 0), sid)
        return super().take(sid)

    def _wait_for(self, number: int, sid: bytes | None) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while sum(sid in (None, m.sid) for m in self._inbox) < number and (left := deadline - time.monotonic()) > 0:
            self._read(left)

    def request(self, subject: str, body: object = b"", header: bytes = b"") -> Any:
        """Send a request and return the JSON of its answer."""
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self._sids += 1
        sid, inbox = b"%d" % self._sids, b"_INBOX.%d.%d" % (self._run, self._sids)
        listen = encode_sub(inbox, b"", sid) + encode_unsub(sid, 1)
        self.send(listen + encode_pub(subject.encode(), inbox, header, payload))
        self._wait_for(1, sid)
        (answer,) = super().take(sid)
        return answer.json()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Live:
    """A real server with the words of a `Machine` that Jet needs."""

    def __init__(self, url: str, expected: Iterable[int]) -> None:
        self._wire = LiveWire(url, expected)
        self.rng = random.Random()

    def connect(self) -> LiveWire:
        """Return the only client."""
        return self._wire

    def advance(self, ns: int) -> None:
        """Let real time pass."""
        time.sleep(ns / SECOND)
        self._wire.send(b"")


def counted(wire: Wire) -> list[int]:
    """Return a list that grows by how many messages each `take` of the wire gives."""
    numbers: list[int] = []
    take = wire.take

    def counting(sid: bytes | None = None) -> list[Message]:
        messages = take(sid)
        numbers.append(len(messages))
        return messages

    wire.take = counting  # type: ignore[method-assign]  # every word of Jet that takes messages is to be counted
    return numbers


AGAIN = (".INFO.", ".RESET.")
"""Requests that leave everything as one of them does: the reference confirms some acks before it carries them out."""


class Diverged(Exception):
    """The two have told too different things for the rest to say anything."""


class Talk:
    """A Jet that notes what it was answered, without what differs from run to run."""

    def __init__(self, jet: Jet, expected: Sequence[Any] = ()) -> None:
        """`expected` are the notes of the one that told before."""
        self.jet = jet
        self.expected = expected
        self.notes: list[Any] = []
        self._differences = 0

    def create(self, consumer: str = "C", form: str = "DURABLE.CREATE.S.{name}", **config: Any) -> Any:
        """Create a consumer and note the answer."""
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

    def _differs(self, note: Any) -> bool:
        """Whether the one that told before told something else at this place."""
        place = len(self.notes)
        return place < len(self.expected) and self.expected[place] != note

    def pull(self, body: object = b"", name: str = "C") -> list[Message]:
        """Pull and note what came."""
        messages = self.jet.pull(body, name)
        self.note(messages)
        return [m for m in messages if not m.status]

    def note(self, messages: list[Message]) -> None:
        """Note messages."""
        for m in messages:
            reply = re.sub(rb"\.\d{19}\.", b".T.", m.reply)
            reply = re.sub(rb"^(\$JS\.FC\.S\.C\.).*", rb"\1X", reply)
            header = re.sub(rb"\.\d{19}\.", b".T.", m.header)
            self.notes.append((b"" if m.subject.startswith(b"_INBOX") else m.subject, reply, header, m.payload))

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

    def __call__(self, function: Scenario) -> Scenario:
        """Register a conversation."""

        def prepared(t: Talk) -> None:
            self._prepare(t)
            function(t)

        prepared.__name__ = function.__name__
        self.append(prepared)
        return function


def name_of(run: Scenario) -> str:
    """Return what a conversation is called in a list of tests."""
    return run.__name__


def told(run: Scenario, talk: Talk) -> list[Any]:
    """Have a conversation and return its notes."""
    try:
        run(talk)
    except Diverged:
        pass
    finally:
        talk.jet.wire.close()
    return talk.notes


def assert_same(run: Scenario, url: str, machine: Machine | None = None) -> None:
    """Have a conversation with an engine (`machine`, or a new one) and with the server at `url`, and compare."""
    jet = Jet(machine)
    numbers = counted(jet.wire)
    ours = told(run, Talk(jet))
    theirs = told(run, Talk(Jet(cast(Machine, Live(url, numbers))), ours))
    different = [(mine, other) for mine, other in zip(ours, theirs, strict=False) if mine != other]
    assert not different, "\n\n".join(f"ours   {mine}\ntheirs {other}" for mine, other in different)
    assert len(ours) == len(theirs)
