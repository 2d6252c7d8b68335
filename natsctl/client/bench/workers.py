"""Processes that run the clients of a benchmark, evenly distributed.

A worker is `python -m natsctl.client.bench.workers`. It reads one line with its task on stdin, in base64, and then `go`
and perhaps `stop`; when stdin ends it ends too, so that none outlives its parent. It writes one JSON document per line:
ready, its progress, the result or the failure.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import json
import pickle
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from natsctl.api import errors
from natsctl.api.catalogue import ApiError
from natsctl.api.errors import ApiResponseError, NatsctlError
from natsctl.client.bench import workloads
from natsctl.client.bench.client import Client, RawConnection
from natsctl.client.bench.load import Load
from natsctl.client.bench.report import Done
from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.servers import Target

if TYPE_CHECKING:
    from natsctl.api.errors import NotAuthorisedError
    from natsctl.client.connection import Connection


class ClientGroup:
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
        """Return how many messages are done."""
        return sum(client.progress.msgs for client in self._clients)

    async def prepare(self) -> None:
        """Connect every client and prepare it up to the common start; raises the failure of any."""
        work = getattr(workloads, self._load.about.work)
        for number in self._numbers:
            connection = await connect(self._target, name=f"natsctl bench {self._load.kind} {number + 1}")
            client = Client(
                Manager(connection), RawConnection(connection), self._load, number, self._one_ready, self._started
            )
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
        """Start the clients, wait for the end, and return their results; the first failure ends all."""
        self._started.set()
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        self._raise_failed()
        return [Done.of(client.number, client.progress) for client in self._clients]

    def stop(self) -> None:
        """End clients that wait for messages."""
        for client in self._clients:
            client.progress.stop()

    async def close(self) -> None:
        """End running clients and the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.link.close()
            await client.manager.connection.close()


async def _unless_refused(work: Coroutine[Any, Any, None], connection: Connection) -> None:
    """Do the work, or raise the server's refusal of a message at once: it will have no answer."""
    refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(failure: NotAuthorisedError) -> None:
        if not refused.done():
            refused.set_exception(failure)

    connection.on_refused = fail
    working = asyncio.create_task(work)
    try:
        await asyncio.wait({working, refused}, return_when=asyncio.FIRST_COMPLETED)
        await (working if working.done() else refused)
    finally:
        refused.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


PROGRESS_INTERVAL_S = 0.1
"""Seconds between two progress lines."""
MAX_LINE_BYTES = 64 * 1024 * 1024
"""Longest line; a payload that was given with --payload is in it."""

Task = tuple[Target, Load, Sequence[int]]


def encode_task(task: Task) -> bytes:
    """Return the task line of a worker; it goes through a pipe, as it may hold a login."""
    return base64.b64encode(pickle.dumps(task)) + b"\n"


def encode_failure(failure: BaseException) -> dict[str, Any]:
    """Return the failure as JSON, from which `decode_failure` makes the same one."""
    document: dict[str, Any] = {
        "kind": _kind(failure).__name__,
        "text": str(failure),
        "hint": getattr(failure, "hint", ""),
        "subject": getattr(failure, "subject", ""),
    }
    if isinstance(failure, ApiResponseError):
        error = failure.error
        document["error"] = {"code": error.code, "err_code": error.err_code, "description": error.description}
    return document


def _kind(failure: BaseException) -> type[BaseException]:
    """Return the nearest base class in `natsctl.api.errors`: classes of single modules are not known to the parent."""
    return next((kind for kind in type(failure).__mro__ if getattr(errors, kind.__name__, None) is kind), NatsctlError)


def decode_failure(document: dict[str, Any]) -> NatsctlError:
    """Return the failure of a worker, as if it had happened here."""
    failure: NatsctlError
    if error := document.get("error"):
        failure = ApiResponseError(ApiError(**error), hint=document["hint"])
    else:
        kind = getattr(errors, document["kind"], NatsctlError)
        known = isinstance(kind, type) and issubclass(kind, NatsctlError) and kind is not ApiResponseError
        failure = (kind if known else NatsctlError)(document["text"], hint=document["hint"])
    failure.subject = document["subject"]
    return failure


def _write_line(**document: Any) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


async def _report_progress(group: ClientGroup) -> None:
    while True:
        await asyncio.sleep(PROGRESS_INTERVAL_S)
        _write_line(at=group.msgs)


async def _handle_commands(lines: asyncio.StreamReader, group: ClientGroup, work: asyncio.Task[Any]) -> None:
    """Stop the clients on request, and cancel them when the pipe is closed."""
    while line := await lines.readline():
        if line == b"stop\n":
            group.stop()
    work.cancel()


async def _main() -> None:
    lines = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    # From our own parent, through its pipe to us.
    target, load, numbers = pickle.loads(base64.b64decode(await lines.readline()))
    group = ClientGroup(target, load, numbers)
    helpers: list[asyncio.Task[Any]] = []
    try:
        await group.prepare()
        _write_line(ready=True)
        if await lines.readline() != b"go\n":
            return
        work = asyncio.create_task(group.run())
        helpers = [
            asyncio.create_task(_report_progress(group)),
            asyncio.create_task(_handle_commands(lines, group, work)),
        ]
        _write_line(result=[done.encode() for done in await work])
    except (NatsctlError, OSError) as failure:
        _write_line(failed=encode_failure(failure))
    finally:
        for helper in helpers:
            helper.cancel()
        await group.close()


def _runner() -> Any:
    """Return the function that runs the loop: uvloop's where the platform has it, whose turns take half the time."""
    try:
        return importlib.import_module("uvloop").run
    except ImportError:
        return asyncio.run


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
        """Send it a line, unless it has ended."""
        with contextlib.suppress(OSError, RuntimeError):
            self._in.write(line)

    async def hear(self, name: str) -> Any:
        """Return the value of that name from the process; raises its failure."""
        while line := await self._out.readline():
            said = json.loads(line)
            self.msgs = said.get("at", self.msgs)
            if "failed" in said:
                raise decode_failure(said["failed"])
            if name in said:
                return said[name]
        raise NatsctlError("a process of the benchmark ended too early", hint="its stderr says why")

    async def end(self) -> None:
        """End the process, by force where it does not end by itself."""
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
        """Return how many messages are done, as far as the processes have reported."""
        return sum(worker.msgs for worker in self._workers)

    async def prepare(self) -> None:
        """Start the processes and wait until all their clients wait for the start."""
        for place in range(self.processes):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "natsctl.client.bench.workers",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MAX_LINE_BYTES,
                # Ctrl-C is for the parent, which ends the workers: one that is just starting would print a traceback.
                process_group=0,
            )
            self._workers.append(_Worker(process))
            numbers = range(place, self._load.clients, self.processes)
            self._workers[-1].say(encode_task((self._target, self._load, numbers)))
        await self._all("ready")

    async def _all(self, name: str) -> list[Any]:
        """Return the value of that name from each process; raises the first failure."""
        async with contextlib.AsyncExitStack() as stack:
            hearing = [asyncio.create_task(worker.hear(name)) for worker in self._workers]
            stack.push_async_callback(_end_all, hearing)
            return await asyncio.gather(*hearing)

    async def run(self) -> list[Done]:
        """Start all clients, wait for the end, and return their results."""
        for worker in self._workers:
            worker.say(b"go\n")
        return [Done.decode(one) for results in await self._all("result") for one in results]

    def stop(self) -> None:
        """End clients that wait for messages."""
        for worker in self._workers:
            worker.say(b"stop\n")

    async def close(self) -> None:
        """End the processes."""
        await asyncio.gather(*(worker.end() for worker in self._workers))


async def _end_all(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    # Ctrl-C reaches the whole group of processes; the one that started us says what becomes of us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError, asyncio.CancelledError):
        _runner()(_main())
