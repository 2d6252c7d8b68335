"""The shell beside an authentication callout: a flood of responses, and what arrives in the meantime."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from natsctl.broker.auth.credentials import Grant
from natsctl.broker.auth.static_auth import User
from natsctl.broker.imports.account_config import AccountConfig
from natsctl.broker.jwt.callout import CalloutSettings
from natsctl.broker.jwt.callout_requests import Callouts
from natsctl.broker.session import Session
from natsctl.server.instance import ServerInstance
from natsctl.server.options import ServerOptions
from tests.support.callouts import ISSUER, SUBJECT, Request, claims_of
from tests.support.tls_clients import PATIENCE_S, until

CLIENTS = 100


def options() -> ServerOptions:
    callout = CalloutSettings(issuer=ISSUER.public, auth_users=("auth",), account="AUTH")
    accounts = (AccountConfig("AUTH"), AccountConfig("FOO"))
    users = (User("auth", "pwd", "AUTH"),)
    return ServerOptions(
        host="127.0.0.1", port=-1, users=users, accounts=accounts, auth_callout=callout, auth_timeout_s=PATIENCE_S
    )


async def connect(
    server: ServerInstance, more: bytes = b"", **shown: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 22)
    await reader.readline()
    fields = {"verbose": False, "pedantic": False, **shown}
    writer.write(b"CONNECT " + json.dumps(fields).encode() + b"\r\n" + more)
    return reader, writer


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
        """Wait until so many requests have come."""
        await until(lambda: len(self.requests) >= number)

    def answer(self, request: Request) -> None:
        """Publish a good response."""
        self._account.publish(request.reply.encode(), b"", b"", request.response(request.user(aud="FOO")))
        self._wake()


async def test_many_wait_at_once_and_come_in_together_while_others_are_served() -> None:
    async with ServerInstance(options()) as server:
        asked = Asked(server)
        reader, writer = await connect(server, user="auth", **{"pass": "pwd"})
        people = [await connect(server, b"PING\r\n", user=f"u{number}") for number in range(CLIENTS)]
        await asked.wait_for(CLIENTS)
        writer.write(b"PING\r\n")
        assert await asyncio.wait_for(reader.readline(), PATIENCE_S) == b"PONG\r\n"
        for request in asked.requests:
            asked.answer(request)
        for person, _ in people:
            assert await asyncio.wait_for(person.readline(), PATIENCE_S) == b"PONG\r\n"
        for _, each in ((reader, writer), *people):
            each.close()


async def test_who_sends_much_before_the_response_is_not_read_from_and_loses_nothing() -> None:
    async with ServerInstance(options()) as server:
        asked = Asked(server)
        body = b"x" * 100_000
        reader, writer = await connect(server, (b"PUB y 100000\r\n%b\r\n" % body) * 100 + b"PING\r\n", user="u")
        await asked.wait_for(1)
        (connection,) = server._running.connections.values()
        await until(lambda: not connection.transport.is_reading())
        (session,) = server.broker.sessions.values()
        assert session.login.pending is not None and len(session.login._held) < 2 << 20
        asked.answer(asked.requests[0])
        assert await asyncio.wait_for(reader.readline(), PATIENCE_S) == b"PONG\r\n"
        assert session.in_msgs == 100
        writer.close()


async def test_a_connection_that_ends_leaves_no_request() -> None:
    async with ServerInstance(options()) as server:
        asked = Asked(server)
        before = server.broker.accounts["AUTH"].subscriptions
        for _ in range(20):
            _, writer = await connect(server, user="u")
            await writer.drain()
            writer.transport.abort()
        auth = server.broker.accounts["AUTH"]
        await until(lambda: not server.broker.sessions and auth.subscriptions == before)
        for request in asked.requests:
            asked.answer(request)
        assert not server.broker.accounts["FOO"].sessions


async def test_a_fault_while_a_response_is_judged_ends_that_client_alone() -> None:
    async with ServerInstance(options()) as server:
        asked, callouts = Asked(server), server.broker.callouts
        assert isinstance(callouts, Callouts)
        bad, other = await connect(server, user="bad"), await connect(server, b"PING\r\n", user="good")
        await asked.wait_for(2)
        grant = callouts._grant

        def broken(session: Session, *more: Any) -> Grant:
            if session.login.options.user == "bad":
                raise RuntimeError("on purpose")
            return grant(session, *more)

        callouts._grant = broken  # type: ignore[method-assign]
        for request in asked.requests:
            asked.answer(request)
        assert await asyncio.wait_for(other[0].readline(), PATIENCE_S) == b"PONG\r\n"
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(bad[0].read(), PATIENCE_S) == b""
        for _, writer in (bad, other):
            writer.close()
