"""Clients in processes of their own, dealt out evenly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

from natsctl.api.errors import NatsctlError
from natsctl.client.bench.load import Load
from natsctl.client.bench.report import Done
from natsctl.client.bench.worker import MAX_LINE_BYTES, decode_failure, encode_task
from natsctl.client.servers import Target

END_WAIT_S = 5.0
"""Seconds that a process gets to close its connections before it is killed."""


class _Worker:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._in, self._out = process, process.stdin, process.stdout
        self.msgs = 0

    def say(self, line: bytes) -> None:
        """Send it a line, if it is still there."""
        with contextlib.suppress(OSError, RuntimeError):
            self._in.write(line)

    async def hear(self, name: str) -> Any:
        """What it says under that name; raises what it failed with."""
        while line := await self._out.readline():
            said = json.loads(line)
            self.msgs = said.get("at", self.msgs)
            if "failed" in said:
                raise decode_failure(said["failed"])
            if name in said:
                return said[name]
        raise NatsctlError("a process of the benchmark ended too early", hint="its stderr says why")

    async def end(self) -> None:
        """Let it end, and make it end where it does not."""
        self._in.close()
        try:
            async with asyncio.timeout(END_WAIT_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


class Workers:
    """Processes that run the clients of a benchmark together."""

    def __init__(self, target: Target, load: Load, processes: int) -> None:
        self._target, self._load, self.processes = target, load, processes
        self._workers: list[_Worker] = []

    @property
    def msgs(self) -> int:
        """How many messages are done, as far as the processes have told."""
        return sum(worker.msgs for worker in self._workers)

    async def prepare(self) -> None:
        """Start the processes and wait until all their clients wait for the start."""
        for place in range(self.processes):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "natsctl.client.bench.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MAX_LINE_BYTES,
                # Ctrl-C is ours to hear, and we end them: one that is just starting would tell its traceback.
                process_group=0,
            )
            self._workers.append(_Worker(process))
            numbers = range(place, self._load.clients, self.processes)
            self._workers[-1].say(encode_task((self._target, self._load, numbers)))
        await self._all("ready")

    async def _all(self, name: str) -> list[Any]:
        """What each process says under that name; the first failure of one is raised."""
        async with contextlib.AsyncExitStack() as stack:
            hearing = [asyncio.create_task(worker.hear(name)) for worker in self._workers]
            stack.push_async_callback(_end_all, hearing)
            return await asyncio.gather(*hearing)

    async def run(self) -> list[Done]:
        """Start all clients, wait for the end, and tell what each has done."""
        for worker in self._workers:
            worker.say(b"go\n")
        return [Done.decode(one) for results in await self._all("result") for one in results]

    def stop(self) -> None:
        """Let clients that wait for messages end without more."""
        for worker in self._workers:
            worker.say(b"stop\n")

    async def close(self) -> None:
        """End the processes."""
        await asyncio.gather(*(worker.end() for worker in self._workers))


async def _end_all(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
