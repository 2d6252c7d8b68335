"""One server of each kind for all tests of a folder, without streams when a test begins: import both fixtures there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest

from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.testing.process import Kind, ServerProcess

PATIENCE_S: Final = 30.0
"""How long to wait for answers, on a machine that may stand still for seconds."""


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Kind, ServerProcess]]:
    """The servers that run, by kind: each is started by the first test that wants one."""
    running: dict[Kind, ServerProcess] = {}
    yield running
    for process in running.values():
        process.stop()


@pytest.fixture
def server(
    request: pytest.FixtureRequest, started: dict[Kind, ServerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server without streams, of the kind that the test's marker asks for."""
    kind: Kind = request.param
    if kind not in started:
        started[kind] = ServerProcess(tmp_path_factory.mktemp("server"), kind).start()
    yield started[kind]
    asyncio.run(_clear(started[kind]))


async def _clear(server: ServerProcess) -> None:
    server.await_removals()
    target = resolve(Settings(url=server.url, timeout_s=PATIENCE_S), {"HOME": "/nowhere"})
    async with await connect(target, name="clear") as connection:
        manager = Manager(connection)
        await asyncio.gather(*[manager.stream_delete(name) for name in await manager.stream_names()])
    server.await_removals()
