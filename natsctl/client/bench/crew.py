"""The clients of one process: connected, started together, and what each has done."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from natsctl.client.bench.client import Client
from natsctl.client.bench.link import Link
from natsctl.client.bench.load import Load
from natsctl.client.bench.report import Done
from natsctl.client.dial import connect
from natsctl.client.manager import Manager

if TYPE_CHECKING:
    from natsctl.api.errors import NotAuthorisedError
    from natsctl.client.connection import Connection
    from natsctl.client.servers import Target


class Crew:
    """Some clients of a benchmark, by their numbers from 0; each has a connection of its own."""

    def __init__(self, target: Target, load: Load, numbers: Sequence[int]) -> None:
        self._target, self._load, self._numbers = target, load, numbers
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._started = asyncio.Event()
        self._all_ready = asyncio.Event()
        self._ready = 0

    @property
    def msgs(self) -> int:
        """How many messages are done."""
        return sum(client.tally.msgs for client in self._clients)

    async def prepare(self) -> None:
        """Connect every client and let it come to where it only waits for the start; raises what hinders one."""
        module, _, name = self._load.about.where.partition(":")
        work = getattr(importlib.import_module(f"natsctl.client.bench.{module}"), name)
        for number in self._numbers:
            connection = await connect(self._target, name=f"natsctl bench {self._load.kind} {number + 1}")
            client = Client(Manager(connection), Link(connection), self._load, number, self._one_ready, self._started)
            self._clients.append(client)
            self._tasks.append(asyncio.create_task(_unless_refused(work(client), connection)))
        ready = asyncio.create_task(self._all_ready.wait())
        await asyncio.wait({ready, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        self._raise_failed()

    def _one_ready(self) -> None:
        self._ready += 1
        if self._ready == len(self._numbers):
            self._all_ready.set()

    def _raise_failed(self) -> None:
        for task in self._tasks:
            if task.done() and (failure := task.exception()) is not None:
                raise failure

    async def run(self) -> list[Done]:
        """Start them, wait for the end, and tell what each has done; the first failure ends all."""
        self._started.set()
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        self._raise_failed()
        return [Done.of(client.number, client.tally) for client in self._clients]

    def stop(self) -> None:
        """Let clients that wait for messages end without more."""
        for client in self._clients:
            client.tally.stop()

    async def close(self) -> None:
        """End what still runs, and the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.link.close()
            await client.manager.connection.close()


async def _unless_refused(work: Coroutine[Any, Any, None], connection: Connection) -> None:
    """Do the work, or raise at once that the server refused a message of it: no answer to that will ever come."""
    refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(failure: NotAuthorisedError) -> None:
        if not refused.done():
            refused.set_exception(failure)

    connection.on_refused = tell
    working = asyncio.create_task(work)
    try:
        await asyncio.wait({working, refused}, return_when=asyncio.FIRST_COMPLETED)
        await (working if working.done() else refused)
    finally:
        refused.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
