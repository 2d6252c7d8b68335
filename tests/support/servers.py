"""Servers that tests share: one of each kind for a folder, a cluster of three nats-servers, and free ports.

The fixtures `started` and `server` give the tests of a folder one server of each kind, without streams when a test
begins: import both in its conftest.py. `Cluster` is for what a single server cannot show.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.servers import resolve
from natsctl.client.settings import Settings
from natsctl.testing.process import Kind, ServerProcess

FIRST_HANDED_OUT: Final = 32_768
"""The first of the ports that Linux uses for connections and assigns on request."""


def quiet_ports(number: int) -> list[int]:
    """Return free ports of 127.0.0.1, below those that the system assigns meanwhile."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < number:
            port = random.randrange(10_000, FIRST_HANDED_OUT)
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
    return found


NAMES: Final = ("n1", "n2", "n3")
CONFIG: Final = """
server_tags: ["az:1", "disk:ssd"]
accounts {
  SYS { users: [{ user: s, password: p }] }
  A { jetstream: enabled, users: [{ user: a, password: p }] }
}
system_account: SYS
no_auth_user: a
"""
"""A system account, and one of connections without a login."""


class Cluster:
    """The servers `n1`, `n2` and `n3` of the cluster `C`; usable as a context manager."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        routes = [f"nats://127.0.0.1:{port}" for port in quiet_ports(len(NAMES))]
        self.servers = [
            _member(folder / name, name, route, routes, config) for name, route in zip(NAMES, routes, strict=True)
        ]

    def __enter__(self) -> Cluster:
        try:
            for server in self.servers:
                server.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    @property
    def ports(self) -> list[int]:
        """The URLs for clients, in the order of the names."""
        return [int(server.url.rpartition(":")[2]) for server in self.servers]

    def url(self, login: str = "") -> str:
        """The addresses of all servers, for a login such as `s:p`."""
        at = f"{login}@" if login else ""
        return ",".join(f"nats://{at}127.0.0.1:{port}" for port in self.ports)

    def clear(self) -> None:
        """Remove every stream of the account that needs no login."""
        asyncio.run(_clear(self.url()))


def _member(folder: Path, name: str, route: str, routes: list[str], text: str) -> ServerProcess:
    folder.mkdir(parents=True)
    config = folder / "nats.conf"
    cluster = f"cluster {{ name: C, listen: '{route.removeprefix('nats://')}', routes: [{', '.join(routes)}] }}\n"
    tags = text.replace('"disk:ssd"]', f'"disk:ssd", "host:{name}"]')
    config.write_text(f"server_name: {name}\n{cluster}{tags}")
    return ServerProcess(folder, "reference", "-c", str(config))


PATIENCE_S: Final = 30.0
"""Time limit of answers, on a machine that may stand still for seconds."""


@contextlib.asynccontextmanager
async def managing(url: str, **settings: Any) -> AsyncIterator[Manager]:
    """Yield a manager of the account that the URL and the settings lead to."""
    target = resolve(Settings(url=url, timeout_s=PATIENCE_S, **settings), {"HOME": "/nowhere"})
    async with await connect(target, name="test") as connection:
        yield Manager(connection)


async def _clear(url: str) -> None:
    async with managing(url) as manager:
        await asyncio.gather(*[manager.stream_delete(name) for name in await manager.stream_names()])


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
    asyncio.run(_remove_streams(started[kind]))


async def _remove_streams(server: ServerProcess) -> None:
    server.await_removals()
    await _clear(server.url)
    server.await_removals()


@pytest.fixture
async def manager(server: ServerProcess) -> AsyncIterator[Manager]:
    """A manager of the server's account."""
    async with managing(server.url) as manager:
        yield manager
