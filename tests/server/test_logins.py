"""Slow logins, by bcrypt or by a callout, and notices that do not flood the log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from natsctl.broker.auth.credentials import Grant
from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.imports.account_config import AccountConfig
from natsctl.broker.jwt.callout import CalloutSettings
from natsctl.broker.jwt.callout_requests import Callouts
from natsctl.broker.session import Session
from natsctl.server.instance import ServerInstance
from natsctl.server.log.lines import Log
from natsctl.server.logins import Logins
from natsctl.server.options import ServerOptions
from natsctl.server.resources import SystemClock
from natsctl.server.shell import MAX_LINES
from tests.support.callouts import ISSUER, SUBJECT, Request, claims_of
from tests.support.tls_clients import PATIENCE_S, until

GUESSES = 6


async def connect(
    server: ServerInstance, user: str, password: str = "", more: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 22)
    await reader.readline()
    fields = {"verbose": False, "pedantic": False, "user": user, "pass": password}
    writer.write(b"CONNECT " + json.dumps(fields).encode() + b"\r\n" + more)
    return reader, writer


def hashed() -> str:
    """Return a hash that no password was compared with before: those that were right are remembered."""
    return bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()


def options(*users: User) -> ServerOptions:
    return ServerOptions(host="127.0.0.1", port=-1, users=users)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowBcrypt]:
    """Comparisons that begin wait until they may go on."""
    found = SlowBcrypt()
    monkeypatch.setattr(bcrypt, "checkpw", found)
    yield found
    found.going.set()


class SlowBcrypt:
    def __init__(self) -> None:
        self.going = threading.Event()
        self.begun: list[bytes] = []
        self._compare = bcrypt.checkpw

    def __call__(self, given: bytes, known: bytes) -> bool:
        self.begun.append(given)
        return self.going.wait(PATIENCE_S) and self._compare(given, known)


async def test_who_guesses_bcrypt_passwords_does_not_stop_the_others(slow: SlowBcrypt) -> None:
    async with ServerInstance(options(User("a", hashed()), User("b", "x"))) as server:
        reader, writer = await connect(server, "b", "x")
        guesses = [await connect(server, "a", "wrong") for _ in range(GUESSES)]
        await until(lambda: slow.begun)
        for _ in range(20):
            writer.write(b"PING\r\n")
            assert await asyncio.wait_for(reader.readline(), PATIENCE_S) == b"PONG\r\n"
        slow.going.set()
        for guess, _ in guesses:
            assert await guess.read() == b"-ERR 'Authorization Violation'\r\n"
        for connection in (writer, *(writer for _, writer in guesses)):
            connection.close()


async def test_who_sends_much_before_it_is_in_is_not_read_from(slow: SlowBcrypt) -> None:
    async with ServerInstance(options(User("a", hashed()))) as server:
        body = b"x" * 100_000
        reader, writer = await connect(server, "a", "right", (b"PUB y 100000\r\n%b\r\n" % body) * 100 + b"PING\r\n")
        (connection,) = server.shell.connections.values()
        await until(lambda: not connection.transport.is_reading())
        (session,) = server.broker.sessions.values()
        assert session.login.pending is not None and len(session.login._held) < 2 << 20
        slow.going.set()
        assert await asyncio.wait_for(reader.readline(), PATIENCE_S) == b"PONG\r\n"
        assert session.in_msgs == 100
        writer.close()


async def test_a_connection_that_ends_gives_up_its_place(slow: SlowBcrypt) -> None:
    async with ServerInstance(options(User("a", hashed()))) as server:
        for _ in range(50):
            _, writer = await connect(server, "a", "wrong")
            await writer.drain()
            writer.transport.abort()
        await until(lambda: not server.broker.sessions)
        reader, writer = await connect(server, "a", "right", b"PING\r\n")
        begun = len(slow.begun)
        slow.going.set()
        assert await asyncio.wait_for(reader.readline(), PATIENCE_S) == b"PONG\r\n"
        assert len(slow.begun) == begun + 1 < 25
        writer.close()


async def test_hosts_take_turns() -> None:
    auth = StaticAuthenticator(users=[User("a", hashed())])
    broker = Broker(SystemClock(), random.Random(1), BrokerOptions(auth=auth))
    told: list[str] = []
    done = asyncio.Event()

    def decided(session: Session) -> None:
        told.append(session.host)
        if len(told) == GUESSES + 1:
            done.set()

    logins = Logins(asyncio.get_running_loop())
    broker.login_decided = decided
    for host in ("guesser",) * GUESSES + ("other", "gone"):
        session = broker.connect(host, 1)
        session.receive(b'CONNECT {"user":"a","pass":"%b"}\r\n' % (b"right" if host == "other" else b"wrong"))
        assert logins.begin(session)
        assert not logins.begin(session)
    logins.forget(session)
    await asyncio.wait_for(done.wait(), PATIENCE_S)
    assert told.index("other") <= 2
    assert told.count("guesser") == GUESSES
    assert [session.login.authenticated for session in broker.sessions.values()].count(True) == 1
    logins.stop()


async def test_a_client_that_offends_without_end_writes_a_bounded_number_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Log(path)
    async with ServerInstance(options(User("a", "x")), log) as server:
        reader, writer = await connect(server, "a", "x")
        writer.write(b"PUB _GR_.a 0\r\n\r\n" * 20 * MAX_LINES + b"PING\r\n")
        await asyncio.wait_for(reader.readuntil(b"PONG\r\n"), PATIENCE_S)
        writer.close()
    log.close()
    lines = [line for line in path.read_text().splitlines() if "Publish Violation" in line]
    assert MAX_LINES <= len(lines) <= 5 * MAX_LINES
    assert lines[0].endswith(' - "$G/user:a" - Publish Violation - Subject "_GR_.a"')


CLIENTS = 100


def delegating() -> ServerOptions:
    callout = CalloutSettings(issuer=ISSUER.public, auth_users=("auth",), account="AUTH")
    accounts = (AccountConfig("AUTH"), AccountConfig("FOO"))
    users = (User("auth", "pwd", "AUTH"),)
    return ServerOptions(
        host="127.0.0.1", port=-1, users=users, accounts=accounts, auth_callout=callout, auth_timeout_s=PATIENCE_S
    )


class Asked:
    """The requests that a server has published, kept by a handler inside it."""

    def __init__(self, server: ServerInstance) -> None:
        self._account = server.broker.accounts["AUTH"]
        self._account.subscribe(SUBJECT.encode(), self._heard)
        self._wake = server.wake
        self.requests: list[Request] = []

    def _heard(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        self.requests.append(Request(payload.decode(), {}, claims_of(payload), reply.decode()))

    async def wait_for(self, number: int) -> None:
        await until(lambda: len(self.requests) >= number)

    def answer(self, request: Request) -> None:
        self._account.publish(request.reply.encode(), b"", b"", request.response(request.user(aud="FOO")))
        self._wake()


async def test_many_wait_at_once_and_come_in_together_while_others_are_served() -> None:
    async with ServerInstance(delegating()) as server:
        asked = Asked(server)
        reader, writer = await connect(server, "auth", "pwd")
        people = [await connect(server, f"u{number}", more=b"PING\r\n") for number in range(CLIENTS)]
        await asked.wait_for(CLIENTS)
        writer.write(b"PING\r\n")
        assert await asyncio.wait_for(reader.readline(), PATIENCE_S) == b"PONG\r\n"
        for request in asked.requests:
            asked.answer(request)
        for person, _ in people:
            assert await asyncio.wait_for(person.readline(), PATIENCE_S) == b"PONG\r\n"
        for _, each in ((reader, writer), *people):
            each.close()


async def test_a_fault_while_a_response_is_judged_ends_that_client_alone() -> None:
    async with ServerInstance(delegating()) as server:
        asked, callouts = Asked(server), server.broker.callouts
        assert isinstance(callouts, Callouts)
        bad, other = await connect(server, "bad"), await connect(server, "good", more=b"PING\r\n")
        await asked.wait_for(2)
        grant = callouts._grant

        def broken(session: Session, *more: Any) -> Grant:
            if session.login.options.user == "bad":
                raise RuntimeError("on purpose")
            return grant(session, *more)

        callouts._grant = broken
        for request in asked.requests:
            asked.answer(request)
        assert await asyncio.wait_for(other[0].readline(), PATIENCE_S) == b"PONG\r\n"
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(bad[0].read(), PATIENCE_S) == b""
        for _, writer in (bad, other):
            writer.close()
