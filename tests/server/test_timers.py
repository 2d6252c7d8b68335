"""Deadlines of connections are kept to a few hundredths of a second, not to the next regular look at the clock."""

from __future__ import annotations

import asyncio
import statistics
import time

import pytest

from natsctl.broker.auth.static_auth import User
from natsctl.server import shell
from natsctl.server.instance import ServerInstance
from natsctl.server.options import ServerOptions
from natsctl.server.shell import TICK_S
from tests.support.tls_clients import PATIENCE_S, talking, until

TIMEOUT_S = 0.7


async def test_who_does_not_say_connect_is_closed_in_time() -> None:
    users = (User("a", "b"),)
    async with ServerInstance(
        ServerOptions(host="127.0.0.1", port=-1, users=users, auth_timeout_s=TIMEOUT_S)
    ) as server:

        async def lateness(delay_s: float) -> float:
            """Return how much later than a timer of the same loop, which a busy machine makes late as well."""
            await asyncio.sleep(delay_s)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            in_time = asyncio.ensure_future(timer())
            await reader.read()
            closed = time.monotonic()
            writer.close()
            return closed - await in_time

        async def timer() -> float:
            await asyncio.sleep(TIMEOUT_S)
            return time.monotonic()

        late = await asyncio.gather(*(lateness(index * 0.07) for index in range(12)))
        # Looks that came once a tick would be half a tick late in the middle.
        assert statistics.median(late) < TICK_S / 4


async def test_pings_and_the_write_deadline_wait_for_no_regular_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "TICK_S", 600.0)
    options = ServerOptions(host="127.0.0.1", port=-1, ping_interval_s=0.1, ping_max=1_000_000, write_deadline_s=0.2)
    async with asyncio.timeout(PATIENCE_S), ServerInstance(options) as server, talking(server.port) as talk:
        await talk.line()
        for _ in range(3):
            assert await talk.line() == b"PING\r\n"
        assert await talk.ask(b"CONNECT {}\r\nSUB a 1\r\n") == b"+OK\r\n"
        talk.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a reading transport
        talk.writer.write(b"PUB a 1000000\r\n%b\r\n" % bytes(1_000_000) * 12)
        await until(lambda: server.broker.slow_consumers == 1)
