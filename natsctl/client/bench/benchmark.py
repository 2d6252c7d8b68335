"""Benchmarks: the preparation on the server, the run of all clients, and the removal of the assets that were made.

Clients run in processes of their own, as many as there are processors, on uvloop: in a command's own loop a request
took a third longer, and one Python process is busy before most servers are.

A worker is `python -m natsctl.client.bench.benchmark`. It reads one line with its task on stdin, in base64, and then
`go` and perhaps `stop`; when stdin ends it ends too, so that none outlives its parent. It writes one document per line,
in base64: ready, its progress, the result or the failure.

Against nats-server 2.15.2 on two shared processors, one client with messages of 128 bytes, rates relative to the nats
tool of the same day were, as medians of three runs: pub 1.6, js pub async 1.5, js ordered 1.1, js fetch 1.1, js pub
atomic 1.0, js get batch 1.0, js pub sync and kv get 0.8, js consume 0.6 to 0.8, js pub fast 0.5. So where each message
is answered, some 0.05 ms of every latency are Python's; and if a client handles and acks each message, or names each
in its reply subject, the client is the limit.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import os
import pickle
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from natsctl.api import endpoints
from natsctl.api.catalogue import ApiError
from natsctl.api.errors import ApiResponseError, ErrCode, NatsctlError, NotAuthorisedError, UsageError
from natsctl.api.units import plural
from natsctl.client.bench import workloads
from natsctl.client.bench.client import BenchClient, RawConnection, body_of
from natsctl.client.bench.load import DEFAULT_BUCKET, DEFAULT_STREAM, Load
from natsctl.client.bench.report import ClientResult, Report, report
from natsctl.client.connection import Connection
from natsctl.client.dial import connect
from natsctl.client.manager import Manager
from natsctl.client.message import DryRunError, Planned
from natsctl.client.requests import end_tasks
from natsctl.client.servers import Target


class ClientGroup:
    """Some clients of a benchmark, by their numbers from 0; each has a connection of its own."""

    def __init__(self, target: Target, load: Load, numbers: Sequence[int]) -> None:
        self._target, self._load, self._numbers = target, load, numbers
        self._clients: list[BenchClient] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._started = asyncio.Event()
        self._all_ready = asyncio.Event()
        self._ready = 0

    @property
    def msgs(self) -> int:
        return sum(client.progress.msgs for client in self._clients)

    async def prepare(self) -> None:
        """Connect every client and prepare it up to the common start; raises the failure of any."""
        work = getattr(workloads, self._load.about.work)
        for number in self._numbers:
            connection = await connect(self._target, name=f"natsctl bench {self._load.kind} {number + 1}")
            client = BenchClient(
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

    async def run(self) -> list[ClientResult]:
        """Start the clients, wait for the end, and return their results; the first failure ends all."""
        self._started.set()
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        self._raise_failed()
        return [ClientResult.of(client.number, client.progress) for client in self._clients]

    def stop(self) -> None:
        for client in self._clients:
            client.progress.stop()

    async def close(self) -> None:
        await end_tasks(self._tasks)
        for client in self._clients:
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


def encode_line(value: object) -> bytes:
    """Return a line for the pipe between a worker and its parent, as it may hold a login."""
    return base64.b64encode(pickle.dumps(value)) + b"\n"


def decode_line(line: bytes) -> Any:
    return pickle.loads(base64.b64decode(line))  # nosec B301 # of the parent or child process, through their pipe


def _write_line(**document: object) -> None:
    sys.stdout.buffer.write(encode_line(document))
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
    target, load, numbers = decode_line(await lines.readline())
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
        results = await work
        # The count too: clients that answered everything before the start have reported no progress.
        _write_line(at=group.msgs, result=results)
    except (NatsctlError, OSError) as failure:
        _write_line(failed=failure if isinstance(failure, NatsctlError) else NatsctlError(str(failure)))
    finally:
        for helper in helpers:
            helper.cancel()
        await group.close()


def _runner() -> Any:
    """Return the function that runs the loop: uvloop's if available, because its turns take half the time."""
    try:
        return importlib.import_module("uvloop").run
    except ImportError:
        return asyncio.run


END_WAIT_S = 5.0
"""Seconds that a process gets to close its connections before it is killed."""


class _Worker:
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
            document = decode_line(line)
            self.msgs = document.get("at", self.msgs)
            if "failed" in document:
                raise document["failed"]
            if name in document:
                return document[name]
        raise NatsctlError("a process of the benchmark ended too early", hint="its stderr says why")

    async def end(self) -> None:
        """End the process, by force if it does not end by itself."""
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
        """Return how many messages are done, as reported by the processes."""
        return sum(worker.msgs for worker in self._workers)

    async def prepare(self) -> None:
        """Start the processes and wait until all their clients wait for the start."""
        for place in range(self.processes):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "natsctl.client.bench.benchmark",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MAX_LINE_BYTES,
                # Ctrl-C is for the parent, and it ends the workers: a starting one would print a traceback.
                process_group=0,
            )
            self._workers.append(_Worker(process))
            numbers = range(place, self._load.clients, self.processes)
            self._workers[-1].say(encode_line((self._target, self._load, numbers)))
        await self._all("ready")

    async def _all(self, name: str) -> list[Any]:
        """Return the value of that name from each process; raises the first failure."""
        async with contextlib.AsyncExitStack() as stack:
            hearing = [asyncio.create_task(worker.hear(name)) for worker in self._workers]
            stack.push_async_callback(end_tasks, hearing)
            return await asyncio.gather(*hearing)

    async def run(self) -> list[ClientResult]:
        for worker in self._workers:
            worker.say(b"go\n")
        return [done for results in await self._all("result") for done in results]

    def stop(self) -> None:
        for worker in self._workers:
            worker.say(b"stop\n")

    async def close(self) -> None:
        await asyncio.gather(*(worker.end() for worker in self._workers))


POLL_INTERVAL_S = 0.1
"""Seconds between two looks at how far the clients are."""


async def measure(target: Target, load: Load, watch: Callable[[int], None]) -> Report:
    """Run all clients of a load; `watch` is called repeatedly with the number of messages done, once there are any.

    Raises the failure of the first client that fails; then, and when it is cancelled, all of them are ended.
    """
    workers = Workers(target, load, min(load.clients, os.cpu_count() or 1))
    try:
        await workers.prepare()
        started_ns = time.time_ns()
        looking = asyncio.create_task(_look(workers, load, watch))
        try:
            results = await workers.run()
        finally:
            looking.cancel()
        watch(load.total)
        return report(load, results, workers.processes, started_ns)
    finally:
        await workers.close()


async def _look(workers: Workers, load: Load, watch: Callable[[int], None]) -> None:
    while True:
        await asyncio.sleep(POLL_INTERVAL_S)
        done = workers.msgs
        if done:
            watch(done)
        if not load.about.dealt and done >= load.total:
            workers.stop()


OWN = "natsctl.bench"
"""The metadata key of streams that benchmarks made: only those, and the one that benchmarks of the nats tool make, too,
are ever changed by a later one."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """One request that a benchmark makes before it begins."""

    endpoint: endpoints.ApiEndpoint
    tokens: tuple[str, ...]
    body: dict[str, Any] | None
    notice: str


def stream_config(load: Load) -> dict[str, Any]:
    """Return the stream, or the bucket, that a benchmark creates."""
    config: dict[str, Any] = {
        "name": load.stream_name,
        "retention": "limits",
        "discard": "new",
        "max_bytes": load.maxbytes,
        "storage": load.storage,
        "num_replicas": load.replicas,
        "allow_direct": True,
        "metadata": {OWN: "true"},
    }
    if load.kind.startswith("kv"):
        return config | {
            "description": "nats bench bucket",
            "subjects": [f"$KV.{load.bucket}.>"],
            "max_msgs_per_subject": load.history,
            "allow_rollup_hdrs": True,
            "deny_delete": True,
        }
    config["subjects"] = [f"{load.subject}.*" if load.multisubject else load.subject]
    config["duplicate_window"] = load.dedupwindow_ns
    if load.persistasync:
        config["persist_mode"] = "async"
    else:
        config["allow_atomic"] = config["allow_batched"] = True
    return config


async def changes(manager: Manager, load: Load) -> list[Preparation]:
    """Return the requests that make the server ready for a load.

    Raises ApiResponseError for a stream that is not there.
    """
    if not load.stream_name:
        return []
    info = await manager.find_stream(load.stream_name)
    planned = _for_stream(load, info.raw if info else None)
    if load.purge and info is not None and (messages := info.raw["state"].get("messages")):
        notice = f"purged {plural(messages, 'message')} of Stream {load.stream_name}"
        planned.append(Preparation(endpoints.STREAM_PURGE, (load.stream_name,), None, notice))
    if load.kind in ("js consume", "js fetch"):
        planned += await _for_consumer(manager, load)
    return planned


def _for_stream(load: Load, found: dict[str, Any] | None) -> list[Preparation]:
    """Return the request that creates or changes the stream; none if it is up to date."""
    name, kind = load.stream_name, "Bucket" if load.kind.startswith("kv") else "Stream"
    may_create = load.create or (load.kind == "kv put" and load.bucket == DEFAULT_BUCKET)
    if found is None:
        if may_create:
            return [Preparation(endpoints.STREAM_CREATE, (name,), stream_config(load), f"created {kind} {name}")]
        hint = "give --create to a publishing benchmark"
        if kind == "Bucket":
            made = load.bucket == DEFAULT_BUCKET
            hint = "natsctl bench kv put makes it" if made else f"natsctl kv add {load.bucket} makes it"
        error = ApiError(code=404, err_code=ErrCode.STREAM_NOT_FOUND, description=f"{kind} {name} does not exist")
        raise ApiResponseError(error, hint=hint)
    if not load.create:
        return []
    merged = {**found["config"], **stream_config(load)}
    merged["metadata"] = {**(found["config"].get("metadata") or {}), OWN: "true"}
    if merged == found["config"]:
        return []
    if name != DEFAULT_STREAM and OWN not in (found["config"].get("metadata") or {}):
        raise UsageError(
            f"Stream {name} exists, and no benchmark made it: --create would change its configuration",
            hint="leave out --create to use it as it is, or name another with --stream",
        )
    return [Preparation(endpoints.STREAM_UPDATE, (name,), merged, f"updated Stream {name}")]


async def _for_consumer(manager: Manager, load: Load) -> list[Preparation]:
    """Return the request that makes the durable consumer, unless it is there."""
    if await manager.find_consumer(load.stream, load.consumer) is not None:
        return []
    config: dict[str, Any] = {
        "durable_name": load.consumer,
        "name": load.consumer,
        "deliver_policy": "all",
        "ack_policy": load.acks,
        "replay_policy": "instant",
        "metadata": {OWN: "true"},
    }
    if load.acks != "none":
        config["max_ack_pending"] = max(1000, 2 * load.batch * load.clients)
    if load.filter:
        config["filter_subjects"] = list(load.filter)
    body = {"stream_name": load.stream, "config": config}
    notice = f"created Consumer {load.consumer}; it is removed at the end"
    return [Preparation(endpoints.CONSUMER_CREATE, (load.stream, load.consumer), body, notice)]


def preview(manager: Manager, load: Load, planned: list[Preparation]) -> DryRunError:
    """Return the dry run's result: the requests before the benchmark, and the work of its clients."""
    prefix = manager.connection.target.api_prefix
    requests = [Planned(one.endpoint.subject(*one.tokens, prefix=prefix), one.body) for one in planned]
    size = len(body_of(load))
    effect: dict[str, Any] = {"benchmark": load.kind, "clients": load.clients, "messages": load.total}
    if load.kind in ("pub", "service request") or load.kind.startswith("js pub"):
        subject = f"{load.subject}.*" if load.multisubject else load.subject
        effect |= {"subject": subject, "bytes": load.total * size}
    return DryRunError(*requests, effect=effect)


@contextlib.asynccontextmanager
async def prepared(manager: Manager, load: Load) -> AsyncIterator[list[str]]:
    """Prepare the server, yield a description of the changes, and remove the created consumer afterwards.

    In a dry run raises DryRunError. A stream that was created stays: the next benchmark reads what this one wrote.
    """
    planned = await changes(manager, load)
    if manager.connection.dry_run:
        raise preview(manager, load, planned)
    made = any(one.endpoint is endpoints.CONSUMER_CREATE for one in planned)
    try:
        for one in planned:
            await manager.requests.ask(one.endpoint, *one.tokens, body=one.body)
        yield [one.notice for one in planned]
    finally:
        if made:
            with contextlib.suppress(NatsctlError):
                await manager.consumer_delete(load.stream, load.consumer)


if __name__ == "__main__":
    # Ctrl-C reaches the whole group of processes; the parent decides how its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError, asyncio.CancelledError):
        _runner()(_main())
