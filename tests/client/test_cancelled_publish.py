"""Ctrl-C while messages are sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from natsctl.client.connection import Connection
from tests.client.conftest import connected

BODY = bytes(512 * 1024)
TIMES = 20


async def _publish(connection: Connection, going: asyncio.Event) -> None:
    for number in range(2000):
        await connection.publish("nobody", BODY)
        if number > 8:
            going.set()


async def test_a_cancellation_is_never_dropped(server: Any) -> None:
    async with await connected(server.url) as connection:
        for _ in range(TIMES):
            going = asyncio.Event()
            task = asyncio.create_task(_publish(connection, going))
            await going.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await connection.flush()
