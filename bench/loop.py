"""Time for which work of one client delays all others, on natsctl and nats-server: `python -m bench.loop`.

A second process sends a PING every half millisecond or as soon as the last one is answered, on a connection of its own;
the figures of an operation are the longest time that one PONG took while the operation went on, the 99th percentile,
the most CPU that the server used inside one PING, and the time to the operation's answer. The CPU is that of natsctl's
loop thread and of all threads of nats-server; unlike the time, it does not depend on what else the machine does. Each
long request has a fresh stream of its own, the same messages on few or on as many subjects. `load …` is the generator
of `bench.servers` at full speed (left out without Go), `mixed load` the work of `bench.mixed` at the same pace on every
server. natsctl runs with its native module and in plain Python, and with `--against FOLDER` from another checkout. Run
it as root on two idle cores: PINGs then go before the generator.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from bench import mixed, servers
from bench.measure import ANSWER_WITHIN_S, PAYLOAD, api, cpu_ns, fetched, fill, snapshot, verdict
from natsctl.testing.process import ServerProcess
from tests.support.raw_client import RawClient

EVERY_S: Final = 0.0005
CPU_S: Final = 0.020
P99_S: Final = 0.005
"""Targets for every operation."""
MIXED: Final = "mixed load"
CROWDED: Final = "5,000 clients come and go"
QUIET_S: Final = 0.3
"""How long PINGs are timed after the answer: what follows from an operation may go on."""
FILTERS: Final = 300
CONSUMERS: Final = 10_000
CLIENTS: Final = 5_000
CROWD: Final = """
import resource, socket, sys, time, urllib.parse
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
url = urllib.parse.urlsplit(sys.argv[1])
clients = [socket.create_connection((url.hostname, url.port)) for _ in range(int(sys.argv[2]))]
for client in clients:
    client.sendall(b'CONNECT {"verbose":false}\\r\\nPING\\r\\n')
print("connected", flush=True)
time.sleep(100)
"""
"""A program with many connections."""

Operation = Callable[[RawClient, dict[str, Any]], Awaitable[object]]


class Pings(NamedTuple):
    """Seconds of the PINGs of some time."""

    longest_s: float
    p99_s: float
    median_s: float
    cpu_s: float
    """The most CPU of the server inside one."""


def probe(url: str, pid: int, all_threads: bool, pipe: Connection) -> None:
    """Time PINGs; at each message from the parent, send the figures since the last one."""
    with suppress(OSError):  # only root may
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    parts = urlsplit(url)
    line = socket.create_connection((parts.hostname, parts.port or 4222))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(b'CONNECT {"verbose":false}\r\n')
    took_s: list[float] = []
    used_ns: list[int] = []
    buffer = b""
    while True:
        before_ns, begun = cpu_ns(pid, all_threads=all_threads), time.perf_counter()
        line.sendall(b"PING\r\n")
        while b"PONG\r\n" not in buffer:
            buffer += line.recv(65536)
        if b"PING\r\n" in buffer:
            line.sendall(b"PONG\r\n")
        buffer = b""
        took_s.append(time.perf_counter() - begun)
        used_ns.append(cpu_ns(pid, all_threads=all_threads) - before_ns)
        if pipe.poll():
            if not pipe.recv():
                return
            took_s.sort()
            p99_s, median_s = took_s[int(0.99 * (len(took_s) - 1))], took_s[len(took_s) // 2]
            pipe.send(Pings(took_s[-1], p99_s, median_s, max(used_ns) / 1e9))
            took_s.clear()
            used_ns.clear()
        time.sleep(EVERY_S)


def update(**change: Any) -> Operation:
    """Return the request that updates a stream."""
    return lambda client, config: api(client, b"STREAM.UPDATE.A", {**config, **change})


def ask(verb: bytes, **body: Any) -> Operation:
    """Return an API request."""
    return lambda client, config: api(client, verb, body or None)


def consumer(**config: Any) -> Operation:
    """Return the request that creates a consumer."""
    body = {"stream_name": "A", "config": {"durable_name": "C", "ack_policy": "explicit", **config}}
    return lambda client, _: api(client, b"CONSUMER.DURABLE.CREATE.A.C", body)


async def mirror(client: RawClient, config: dict[str, Any]) -> None:
    """Create a mirror and wait until it has every message."""
    wanted = (await api(client, b"STREAM.INFO.A"))["state"]["messages"]  # type: ignore[index]
    await api(client, b"STREAM.CREATE.M", {"name": "M", "mirror": {"name": "A"}})
    while (await api(client, b"STREAM.INFO.M"))["state"]["messages"] < wanted:  # type: ignore[index]
        await asyncio.sleep(0.05)
    await api(client, b"STREAM.DELETE.M")


async def expiry(client: RawClient, config: dict[str, Any]) -> None:
    """Expire every message at once."""
    await api(client, b"STREAM.UPDATE.A", {**config, "max_age": 100_000_000, "duplicate_window": 100_000_000})
    while (await api(client, b"STREAM.INFO.A"))["state"]["messages"]:  # type: ignore[index]
        await asyncio.sleep(0.05)


async def interest(client: RawClient, config: dict[str, Any]) -> None:
    """Delete the only consumer of an interest stream."""
    await consumer()(client, config)
    await api(client, b"STREAM.UPDATE.A", {**config, "retention": "interest"})
    await api(client, b"CONSUMER.DELETE.A.C")


async def many_pending(client: RawClient, config: dict[str, Any]) -> None:
    """Purge one subject while 50,000 messages wait for acks."""
    await consumer(max_ack_pending=-1)(client, config)
    for _ in range(5):
        await fetched(client, b"C", 10_000)
    await api(client, b"STREAM.PURGE.A", {"filter": "a.17.x"})


async def rollup(client: RawClient, config: dict[str, Any]) -> None:
    """Roll everything up into one message."""
    header = b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n"
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    sid = client.subscribe(b"ROLLED", lambda subject, reply, header, payload: answer.set_result(payload))
    client.publish(b"a.1.x", b"r", b"ROLLED", header)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await answer
    client.unsubscribe(sid)


async def multi_last(client: RawClient, config: dict[str, Any]) -> None:
    """Request the last messages of more subjects than one response may have."""
    await client.request(b"$JS.API.DIRECT.GET.A", b'{"multi_last":["a.*.x"]}', ANSWER_WITHIN_S)


async def consumers(client: RawClient, config: dict[str, Any]) -> None:
    """Create 10,000 consumers, all requests at once."""
    ends = [asyncio.get_running_loop().create_future() for _ in range(CONSUMERS)]
    sid = client.subscribe(b"made.*", lambda subject, *_: ends[int(subject[5:])].set_result(None))
    for number in range(CONSUMERS):
        body = {"stream_name": "A", "config": {"durable_name": f"C{number}", "ack_policy": "explicit"}}
        verb = b"$JS.API.CONSUMER.DURABLE.CREATE.A.C%d" % number
        client.publish(verb, json.dumps(body).encode(), b"made.%d" % number)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await asyncio.gather(*ends)
    client.unsubscribe(sid)


async def crowd(url: str) -> None:
    """Kill a process with 5,000 connections."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CROWD, url, str(CLIENTS), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    process.kill()
    await process.wait()
    await asyncio.sleep(2)


async def nothing(client: RawClient, config: dict[str, Any]) -> None:
    """Do nothing: the delays of the machine itself."""
    await asyncio.sleep(1)


OPERATIONS: Final[dict[str, Operation]] = {
    "nothing": nothing,
    "update max_msgs_per_subject: 1": update(max_msgs_per_subject=1),
    "update max_msgs: 1000": update(max_msgs=1000),
    "update max_bytes: 100000": update(max_bytes=100_000),
    "update compression: s2": update(compression="s2"),
    "update retention: interest": update(retention="interest"),
    "purge": ask(b"STREAM.PURGE.A"),
    "purge of a filter": ask(b"STREAM.PURGE.A", filter="a.*.x"),
    "purge keep 1": ask(b"STREAM.PURGE.A", keep=1),
    "rollup of everything": rollup,
    "expiry of everything": expiry,
    "info of all subjects": ask(b"STREAM.INFO.A", subjects_filter="a.*.x"),
    "get of the last by pattern": ask(b"STREAM.MSG.GET.A", last_by_subj="a.*.x"),
    "direct get of too many": multi_last,
    "consumer, 300 wide filters": consumer(filter_subjects=[f"a.{number}.*" for number in range(FILTERS)]),
    "consumer, last per subject": consumer(filter_subject="a.*.x", deliver_policy="last_per_subject"),
    "last consumer of interest": interest,
    "purge, 50,000 pending": many_pending,
    "snapshot": lambda client, _: snapshot(client),
    "mirror": mirror,
    "10,000 consumers created": consumers,
    "delete": ask(b"STREAM.DELETE.A"),
}


class Waits(NamedTuple):
    """Seconds next to one operation: of the PINGs, and the time to the operation's answer."""

    pings: Pings
    answer_s: float

    def __str__(self) -> str:
        longest_s, p99_s, _, cpu_s = self.pings
        return f"{longest_s * 1000:7.1f} {p99_s * 1000:6.1f} {cpu_s * 1000:6.1f} {self.answer_s * 1000:7.0f}"

    @property
    def met(self) -> bool:
        """True if both targets are met."""
        return self.pings.cpu_s <= CPU_S and self.pings.p99_s <= P99_S


def loads(server: ServerProcess, seconds: float) -> dict[str, Operation]:
    """Return the operations that are not one request: the generator's modes, many clients, and the mixed load."""

    async def mixed_load(client: RawClient, config: dict[str, Any]) -> None:
        done = await mixed.load(server.url, seconds)
        print("  done of the mixed load: " + ", ".join(f"{count:,} {name}" for name, count in done.items()), flush=True)

    def generated(program: Path, load: servers.Load) -> Operation:
        return lambda client, _: asyncio.to_thread(servers.run, program, server, load, load.msgs, len(PAYLOAD))

    found: dict[str, Operation] = {MIXED: mixed_load, CROWDED: lambda client, _: crowd(server.url)}
    if (program := servers.generator()) is not None:
        found |= {f"load {load.mode}": generated(program, load) for load in servers.selected("raw")}
    return found


def probing(server: ServerProcess, pipe: Connection) -> BaseProcess:
    """Start a probe."""
    arguments = (server.url, server.pid, server.kind == "reference", pipe)
    process = multiprocessing.get_context("spawn").Process(target=probe, args=arguments, daemon=True)
    process.start()
    return process


async def measured(server: ServerProcess, options: argparse.Namespace, names: list[str]) -> dict[str, Waits]:
    """Return the waits beside each operation."""
    here, there = multiprocessing.Pipe()
    prober = probing(server, there)
    client = await RawClient.connect(server.url)
    operations = OPERATIONS | loads(server, options.seconds)
    found: dict[str, Waits] = {}

    async def since_last() -> Pings:
        here.send(True)
        pings: Pings = await asyncio.get_running_loop().run_in_executor(None, here.recv)
        return pings

    for name in names:
        config = {"name": "A", "subjects": ["a.>"], "allow_direct": True, "allow_rollup_hdrs": True}
        await api(client, b"STREAM.CREATE.A", config)
        if not name.startswith("load "):
            await fill(client, options.messages, lambda number: b"a.%d.x" % (number * 7919 % options.subjects))
        await asyncio.sleep(1)
        await since_last()
        begun = time.perf_counter()
        try:
            await operations[name](client, config)
        except RuntimeError as refused:
            print(f"  {name}: {refused}", flush=True)
        took = time.perf_counter() - begun
        await asyncio.sleep(QUIET_S)
        found[name] = Waits(await since_last(), took)
        if name != "delete":
            await api(client, b"STREAM.DELETE.A")
        server.await_removals()
    here.send(False)
    prober.join()
    await client.close()
    return found


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of a run, with the names of its operations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=lambda text: int(float(text)), default=300_000)
    parser.add_argument("--subjects", type=lambda text: int(float(text)), default=1000)
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of the mixed load")
    parser.add_argument("--only", default="", help="operations whose names hold this, such as load or mixed")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, 5 seconds: below 3 minutes")
    parser.add_argument("--against", "--source", type=Path, metavar="FOLDER", help="another checkout of natsctl")
    options = parser.parse_args(arguments)
    if options.quick:
        options.messages, options.seconds = options.messages // 10, options.seconds / 2
    names = [*OPERATIONS, *(f"load {load.mode}" for load in servers.selected("raw")), CROWDED, MIXED]
    if shutil.which("go") is None:
        print("Go is not on PATH: the loads at full speed are left out")
        names = [name for name in names if not name.startswith("load ")]
    options.names = [name for name in names if options.only in name]
    return options


def main() -> None:
    """Measure the selected operations and print a line for each."""
    options = parsed()
    rows: dict[str, dict[str, Waits]] = {}
    for candidate in servers.candidates(options.against):
        with tempfile.TemporaryDirectory(prefix="natsctl-loop-") as folder, candidate.serving(Path(folder)) as server:
            rows[candidate.name] = asyncio.run(measured(server, options, options.names))
    print(f"{options.messages:,} messages on {options.subjects:,} subjects, in ms: longest PING,")
    print(f"99th percentile (target {P99_S * 1000:g}), CPU inside one (target {CPU_S * 1000:g}), time to the answer")
    print(f"  {'':32} " + "   ".join(f"{name[:29]:>29}" for name in rows))
    for name in options.names:
        own = rows.get(servers.NATIVE, rows[servers.PLAIN])[name]
        cells = "   ".join(f"{waits[name]!s:>29}" for waits in rows.values())
        print(f"  {name:32} {cells}   {verdict(own.met)}", flush=True)


if __name__ == "__main__":
    main()
