"""Conversations between clients of several accounts, in bytes: natsctl's broker and nats-server must tell the same.

A conversation is a list of steps `who: what`; a blank `{reply}` is the last reply of a request that anybody was shown.
After each step everything that every client heard is noted, without what differs from run to run.
"""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import pytest

from natsctl.broker.broker import Broker
from natsctl.broker.session import Session
from natsctl.jetstream.engine_context import JetStreamOptions
from natsctl.server.broker_setup import broker_options
from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import load_text
from natsctl.server.options import ServerOptions
from natsctl.testing.machine import Machine
from natsctl.testing.process import ServerProcess, reference_binary
from tests.support.differential import as_released

CONFIG: Final = """
accounts {
  A { users: [{user: a, password: a}]
      jetstream: enabled
      exports: [
        {stream: "s.>"}, {stream: "t.*.*"}, {stream: "own.*", account_token_position: 2}, {stream: "c.>", accounts: [C]}
        {service: "q.>"}, {service: "many.*", response: stream}, {service: "chunk.*", response: chunked}
        {service: "lat", latency: {sampling: 100, subject: lat.res}}
        {service: "traced", latency: {sampling: headers, subject: lat.res}}
        {service: "short", response_threshold: "1s", latency: lat.res}
        {service: "re.*.*"}, {service: "map.>"}, {service: "acc.*.x", account_token_position: 2}
        {service: "$JS.API.>"}, {service: "js.>"}
      ]
      mappings: {"map.from": "map.to"} }
  B { users: [{user: b, password: b}]
      imports: [
        {stream: {account: A, subject: "s.>"}, prefix: "imp"}, {stream: {account: A, subject: "t.*.*"}, to: "r.$2.$1"}
        {stream: {account: A, subject: "own.B"}}
        {service: {account: A, subject: "q.>"}, to: "bq.>"}, {service: {account: A, subject: "many.*"}, share: true}
        {service: {account: A, subject: "chunk.*"}}, {service: {account: A, subject: "lat"}, share: true}
        {service: {account: A, subject: "traced"}}, {service: {account: A, subject: "short"}}
        {service: {account: A, subject: "re.*.*"}, to: "er.$2.$1"}, {service: {account: A, subject: "map.>"}}
        {service: {account: A, subject: "acc.B.x"}, to: "acc"}, {service: {account: A, subject: "q.one"}, to: "any.*"}
        {service: {account: A, subject: "$JS.API.>"}}, {service: {account: A, subject: "js.>"}}
      ]
      exports: [{stream: "imp.s.>"}, {service: "bq.>"}]
      mappings: {"m.in": "m.out", "w.in": [{destination: "w.1", weight: 0}, {destination: "w.2", weight: 100}]
                 "f.*": "g.{{partition(1,1)}}.{{wildcard(1)}}", "lost": [{destination: "lost", weight: 0}]} }
  C { users: [{user: c, password: c}]
      imports: [{stream: {account: B, subject: "imp.s.>"}}, {stream: {account: A, subject: "c.>"}}
                {service: {account: B, subject: "bq.x"}, to: "cq"}] }
}
"""

Step = tuple[str, str]
TALKS: Final[dict[str, list[Step]]] = {
    "a stream under a prefix": [
        ("b", "SUB imp.s.* 1"),
        ("a", "PUB s.1 rep 2\r\nhi"),
        ("b", "UNSUB 1"),
        ("a", "PUB s.1 0\r\n"),
    ],
    "a stream of which part is asked": [("b", "SUB *.s.x.> 1"), ("a", "PUB s.x.1 1\r\nx"), ("a", "PUB s.y.1 1\r\nx")],
    "a stream by everything": [("b", "SUB > 1"), ("a", "PUB s.x 1\r\nx"), ("a", "PUB else 1\r\nx")],
    "tokens in another order": [("b", "SUB r.2.* 1"), ("a", "PUB t.1.2 1\r\nx"), ("a", "PUB t.2.1 1\r\ny")],
    "tokens in another order for everything": [("b", "SUB r.> 1"), ("a", "PUB t.1.2 1\r\nx")],
    "a stream by account": [("b", "SUB own.> 1"), ("a", "PUB own.B 1\r\nx"), ("a", "PUB own.C 1\r\nx")],
    "a private stream": [("c", "SUB c.> 1"), ("b", "SUB c.> 1"), ("a", "PUB c.1 1\r\nx")],
    "a stream is not exported again": [("c", "SUB imp.s.> 1"), ("a", "PUB s.1 1\r\nx"), ("b", "PUB imp.s.1 1\r\ny")],
    "a group that is away": [("b", "SUB imp.s.1 g 1"), ("a", "PUB s.1 1\r\nx")],
    "a request and its response": [
        ("a", "SUB q.> 1"),
        ("b", "SUB in 1\r\nPUB bq.1 in 3\r\nreq"),
        ("a", "PUB {reply} 2\r\nok"),
        ("a", "PUB {reply} 2\r\nno"),
    ],
    "a request with headers": [("a", "SUB q.> 1"), ("b", "HPUB bq.1 in 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nreq")],
    "a request that claims to be somebody's": [
        ("a", "SUB q.> 1"),
        ("b", 'HPUB bq.1 in 44 47\r\nNATS/1.0\r\nNats-Request-Info: {"acc":"A"}\r\n\r\nreq'),
    ],
    "a request without reply": [("a", "SUB q.> 1"), ("b", "PUB bq.1 3\r\nreq")],
    "a request to nobody": [("b", "SUB in 1\r\nPUB bq.1 in 3\r\nreq")],
    "a request whose service has gone": [
        ("a", "SUB q.> 1"),
        ("a", "UNSUB 1"),
        ("b", "SUB in 1\r\nPUB bq.1 in 3\r\nreq"),
    ],
    "a response of a stranger": [("a", "SUB q.> 1"), ("a", "SUB in 2\r\nPUB _R_.abcdef.ghijkl in 2\r\nok")],
    "reserved replies": [("b", "PUB bq.1 _R_.x 3\r\nreq"), ("b", "PUB bq.1 $JS.ACK.x 3\r\nreq")],
    "an answer to the response": [
        ("a", "SUB q.> 1\r\nSUB back 2"),
        ("b", "SUB in 1\r\nPUB bq.1 in 3\r\nreq"),
        ("a", "PUB {reply} back 2\r\nok"),
        ("b", "PUB {reply} 5\r\nagain"),
        ("b", "PUB {reply} 5\r\nthird"),
    ],
    "a chain": [
        ("a", "SUB q.> 1"),
        ("c", "SUB in 1\r\nPUB cq in 3\r\nreq"),
        ("a", "PUB {reply} 2\r\nok"),
        ("a", "PUB {reply} 2\r\nno"),
    ],
    "a chain to nobody": [("c", "SUB in 1\r\nPUB cq in 3\r\nreq")],
    "a service of many responses": [
        ("a", "SUB many.* 1"),
        ("b", "SUB in 1\r\nPUB many.1 in 3\r\nreq"),
        ("a", "PUB {reply} 1\r\n1\r\nPUB {reply} 1\r\n2"),
        ("a", "PUB {reply} 0\r\n"),
        ("a", "PUB {reply} 1\r\n3"),
    ],
    "a service of chunks": [
        ("a", "SUB chunk.* 1"),
        ("b", "SUB in 1\r\nPUB chunk.1 in 3\r\nreq"),
        ("a", "PUB {reply} 1\r\n1\r\nPUB {reply} 1\r\n2"),
        ("a", "PUB {reply} 0\r\n"),
        ("a", "PUB {reply} 1\r\n3"),
    ],
    "a response after the asker has gone": [
        ("a", "SUB many.* 1"),
        ("b", "SUB in 1\r\nPUB many.1 in 3\r\nreq"),
        ("b", "UNSUB 1"),
        ("b", "SUB in 1"),
        ("a", "PUB {reply} 1\r\n1"),
    ],
    "tokens of a service in another order": [("a", "SUB re.> 1"), ("b", "PUB er.1.2 3\r\nreq")],
    "many subjects of one service": [("a", "SUB q.> 1"), ("b", "PUB any.1 3\r\nreq")],
    "a service by account": [("a", "SUB acc.> 1"), ("b", "PUB acc 3\r\nreq")],
    "a mapping behind a service": [
        ("a", "SUB map.> 1"),
        ("b", "PUB map.from 3\r\nreq"),
        ("b", "PUB map.else 3\r\nreq"),
    ],
    "a request is no stream's message": [("b", "SUB imp.> 1"), ("a", "SUB in 2\r\nPUB s.1 in 1\r\nx")],
    "latency": [
        ("a", "SUB lat 1\r\nSUB lat.res 2"),
        ("b", "SUB in 1\r\nPUB lat in 3\r\nreq"),
        ("a", "PUB {reply} 2\r\nok"),
        ("b", "PUB lat in 3\r\nreq"),
        ("b", "UNSUB 1"),
    ],
    "latency of nobody": [("a", "SUB lat.res 2"), ("b", "SUB in 1\r\nPUB lat in 3\r\nreq")],
    "latency that is not asked for": [
        ("a", "SUB lat.res 2\r\nSUB traced 3"),
        ("b", "SUB in 1\r\nPUB traced in 3\r\nreq"),
    ],
    "latency that headers ask for": [
        ("a", "SUB lat.res 2\r\nSUB traced 3"),
        ("b", "SUB in 1\r\nHPUB traced in 29 32\r\nNATS/1.0\r\nX-B3-Sampled: 1\r\n\r\nreq"),
        ("a", "PUB {reply} 2\r\nok"),
    ],
    "mappings of what is published": [
        ("b", "SUB m.* 1\r\nSUB w.* 2\r\nSUB g.> 3"),
        ("b", "PUB m.in 1\r\nx"),
        ("b", "PUB w.in 1\r\nx"),
        ("b", "PUB f.x 1\r\nx"),
    ],
    "a mapping to nobody": [("b", "SUB in 1\r\nPUB m.in in 1\r\nx")],
    "a mapping that loses": [("b", "SUB lost 1\r\nSUB in 2\r\nPUB lost in 1\r\nx")],
    "another account's API": [
        ("a", "SUB $JS.EVENT.ADVISORY.API 1"),
        ("b", "SUB in 1\r\nPUB $JS.API.INFO in 0\r\n"),
        ("b", 'PUB $JS.API.STREAM.CREATE.S in 32\r\n{"name":"S","subjects":["js.>"]}'),
        ("b", "PUB js.1 in 1\r\nx"),
        ("b", "PUB $JS.API.STREAM.DELETE.S in 0\r\n"),
        ("b", "PUB $JS.API.CONSUMER.MSG.NEXT.S.C in 0\r\n"),
    ],
    "an API that nobody has": [("c", "SUB in 1\r\nPUB $JS.API.INFO in 0\r\n")],
}

SCRUB: Final = [
    (re.compile(rb"_R_\.\w+\.\w+(\.\w+(\.T))?"), rb"_R_.x\2"),
    (re.compile(rb'"rtt":\d+,?'), b""),
    (
        re.compile(rb'"(id|timestamp|start|server|created|ts|time|host|service|system|total|level)":("[^"]*"|\d+)'),
        rb'"\1":?',
    ),
    (re.compile(rb",}"), b"}"),
    (re.compile(rb'"response":"(\\.|[^"\\])*"'), b'"response":?'),
    # Where there is no reply the reference's own messages have two blanks.
    (re.compile(rb"(?m)^(MSG \S+ \S+)  (\d+\r)$"), rb"\1 \2"),
    (re.compile(rb"(?m)^(MSG .*?) \d+\r$"), rb"\1 #\r"),
    (re.compile(rb"(?m)^(HMSG .*?) \d+ \d+\r$"), rb"\1 #\r"),
]
_LATER_S: Final = 0.15
"""How long to listen for more metrics and advisories than ours, which the reference sends from elsewhere."""
_WITHIN_S: Final = 30.0
"""How long those may take that ours has sent too."""
_MESSAGE: Final = re.compile(rb"(?m)^H?MSG ")


class AccountNetwork(Protocol):
    """A server with a client of each account."""

    def say(self, who: str, data: bytes, expected: Mapping[str, int]) -> dict[str, bytes]:
        """Return what each client heard, once that is as many messages as expected, or long after."""


class InMemory:
    """natsctl's broker and engine."""

    def __init__(self) -> None:
        options = apply(load_text(CONFIG, {}), ServerOptions(jetstream=True))
        limits = {one.name: one.jetstream for one in options.accounts if one.jetstream is not None}
        self._machine = Machine(
            options=JetStreamOptions(accounts=limits), broker_options=broker_options(options, "", 0)
        )
        broker: Broker = self._machine.broker
        broker.configure(options.accounts)
        self._sessions: dict[str, Session] = {name: broker.connect("127.0.0.1", 1) for name in "abc"}
        self._heard = dict.fromkeys("abc", b"")
        for name, session in self._sessions.items():
            self._machine.attach(session, _Reader(self._heard, name))
            self.say(name, hello(name), {})

    def say(self, who: str, data: bytes, expected: Mapping[str, int]) -> dict[str, bytes]:
        self._sessions[who].receive(data)
        self._machine.settle()
        heard = dict(self._heard)
        self._heard.update(dict.fromkeys("abc", b""))
        return heard


class _Reader:
    def __init__(self, heard: dict[str, bytes], name: str) -> None:
        self._heard = heard
        self._name = name

    def drain(self, chunks: Iterable[bytes]) -> None:
        self._heard[self._name] += b"".join(chunks)


class OverTcp:
    """Three clients of a real server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._sockets = {name: socket.create_connection((parts.hostname, parts.port)) for name in "abc"}
        for name in "abc":
            self._sockets[name].sendall(hello(name))
            self._flush(name)

    def say(self, who: str, data: bytes, expected: Mapping[str, int]) -> dict[str, bytes]:
        self._sockets[who].sendall(data)
        heard = dict.fromkeys("abc", b"") | {who: self._flush(who)}
        time.sleep(_LATER_S if b"lat" in data or b"$JS" in data or b"_R_" in data or b"UNSUB" in data else 0)
        deadline = time.monotonic() + _WITHIN_S
        while True:
            heard = {name: found + self._flush(name) for name, found in heard.items()}
            short = any(messages(heard[name]) < number for name, number in expected.items())
            if not short or time.monotonic() > deadline:
                return heard
            time.sleep(0.01)

    def _flush(self, name: str) -> bytes:
        client, heard = self._sockets[name], b""
        client.sendall(b"PING\r\n")
        while b"PONG\r\n" not in heard:
            assert select.select([client], [], [], _WITHIN_S)[0], "no PONG"
            got = client.recv(1 << 20)
            assert got, "the server has closed the connection"
            heard += got
        heard = heard.replace(b"PONG\r\n", b"").replace(b"PING\r\n", b"")
        return as_released(heard)

    def close(self) -> None:
        for client in self._sockets.values():
            client.close()


def hello(name: str) -> bytes:
    wishes = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "user": name, "pass": name}
    return b"CONNECT %b\r\n" % json.dumps(wishes).encode()


def messages(data: bytes) -> int:
    """Return how many messages there are in what a client heard."""
    return len(_MESSAGE.findall(data))


Note = tuple[str, str, bytes]


def notes(network: AccountNetwork, talk: list[Step], expected: Sequence[Note] = ()) -> list[Note]:
    """Return what each step made each client hear; `expected` is what it is to be."""
    found, reply = list[Note](), b""
    for who, what in talk:
        wanted = {name: messages(data) for step, name, data in expected if step == f"{who}: {what}"}
        heard = network.say(who, what.encode().replace(b"{reply}", reply) + b"\r\n", wanted)
        for name, data in heard.items():
            replies = re.findall(rb"MSG \S+ \S+ (_R_\.\S+) ", data)
            reply = replies[-1] if replies else reply
            if data:
                found.append((f"{who}: {what}", name, scrubbed(data)))
    return found


def scrubbed(data: bytes) -> bytes:
    data = re.sub(rb"INFO .*?\r\n", b"", data)
    for pattern, by in SCRUB:
        data = pattern.sub(by, data)
    return data


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    if reference_binary() is None:
        pytest.skip("nats-server is not on PATH")
    folder = tmp_path_factory.mktemp("reference")
    config: Path = folder / "accounts.conf"
    config.write_text(CONFIG)
    with ServerProcess(folder / "server", "reference", "-c", str(config)) as process:
        yield process


@pytest.mark.parametrize("talk", TALKS.values(), ids=list(TALKS))
def test_both_answer_the_same(talk: list[Step], reference: ServerProcess) -> None:
    ours = notes(InMemory(), talk)
    theirs = OverTcp(reference.url)
    try:
        expected = notes(theirs, talk, ours)
    finally:
        theirs.close()
    assert ours == expected
