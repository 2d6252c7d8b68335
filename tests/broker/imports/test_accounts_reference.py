"""Conversations between clients of several accounts, in bytes: natsctl's broker and nats-server must tell the same.

A conversation is a list of steps; a `{reply}` is the last reply of a request that anybody was shown. After each step
everything that every client heard is noted, without what differs from run to run. recorded/accounts.json has what
nats-server 2.15.2 says with recorded/accounts.conf, by `NATSCTL_RECORD=1 pytest -m reference` of this file.
"""

import json
import os
import re
import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import pytest

from natsctl.broker.broker import Broker
from natsctl.broker.session import Session
from natsctl.jetstream.engine_options import JetStreamOptions
from natsctl.server.broker_setup import broker_options
from natsctl.server.conf.config import apply
from natsctl.server.conf.syntax import load_text
from natsctl.server.options import ServerOptions
from natsctl.testing.process import ServerProcess
from tests.support.differential import as_released
from tests.support.machine import Machine

RECORDED: Final = Path(__file__).parents[1] / "recorded"
CONFIG: Final = (RECORDED / "accounts.conf").read_text()
TALKS: Final[dict[str, list[dict[str, Any]]]] = json.loads((RECORDED / "accounts.json").read_text())
"""Steps by the name of their conversation: who says what, and what is heard by whom."""

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
    def say(self, who: str, data: bytes, expected: Mapping[str, int]) -> dict[str, bytes]:
        """Return what each client heard, once that is as many messages as expected, or long after."""


class InMemory:
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
            self._machine.attach(session, partial(self._hear, name))
            self.say(name, hello(name), {})

    def _hear(self, name: str, chunks: Iterable[bytes]) -> None:
        self._heard[name] += b"".join(chunks)

    def say(self, who: str, data: bytes, expected: Mapping[str, int]) -> dict[str, bytes]:
        self._sessions[who].receive(data)
        self._machine.settle()
        heard = dict(self._heard)
        self._heard.update(dict.fromkeys("abc", b""))
        return heard


class OverTcp:
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
    return len(_MESSAGE.findall(data))


def notes(network: AccountNetwork, talk: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps of a conversation with what each made each client hear; `talk` says how much that is to be."""
    found, reply = [], b""
    for step in talk:
        wanted = {name: messages(data.encode("latin1")) for name, data in step.get("heard", {}).items()}
        heard = network.say(step["who"], step["say"].encode().replace(b"{reply}", reply) + b"\r\n", wanted)
        for data in heard.values():
            replies = re.findall(rb"MSG \S+ \S+ (_R_\.\S+) ", data)
            reply = replies[-1] if replies else reply
        told = {name: scrubbed(data).decode("latin1") for name, data in heard.items() if data}
        found.append({"who": step["who"], "say": step["say"], "heard": told})
    return found


def scrubbed(data: bytes) -> bytes:
    data = re.sub(rb"INFO .*?\r\n", b"", data)
    for pattern, by in SCRUB:
        data = pattern.sub(by, data)
    return data


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = tmp_path_factory.mktemp("reference") / "server"
    with ServerProcess(server, "reference", "-c", str(RECORDED / "accounts.conf")) as process:
        yield process


@pytest.mark.parametrize("name", TALKS)
def test_a_conversation_is_as_on_nats_server(name: str) -> None:
    assert notes(InMemory(), TALKS[name]) == TALKS[name]


@pytest.mark.parametrize("name", [name for name in TALKS if name != "another account's API"])
def test_a_conversation_in_parts_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one tells a requester through an import that none of several handlers takes its request."""
    for module in ("account", "routes"):
        monkeypatch.setattr(f"natsctl.broker.{module}.DELIVERED_AT_ONCE", 1)
    assert notes(InMemory(), TALKS[name]) == TALKS[name]


@pytest.mark.reference
def test_nats_server_still_says_what_was_recorded(reference: ServerProcess) -> None:
    heard = {}
    for name, talk in TALKS.items():
        network = OverTcp(reference.url)
        try:
            heard[name] = notes(network, talk)
        finally:
            network.close()
    if os.environ.get("NATSCTL_RECORD"):
        (RECORDED / "accounts.json").write_text(json.dumps(heard, indent=1) + "\n")
    assert {name: (heard[name], TALKS[name]) for name in TALKS if heard[name] != TALKS[name]} == {}
