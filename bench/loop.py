"""Time for which work of one client delays all others, on natsctl and nats-server: `python -m bench.loop`.

A second process sends a PING every half millisecond or as soon as the last one is answered, on a connection of its own;
the figures of an operation are the longest time that one PONG took while the operation went on, the 99th percentile,
and the time to the operation's answer. Each long request has a fresh stream of its own, the same messages on few or on
as many subjects. `load …` is the generator of `bench.servers` at full speed (left out without Go), `mixed load` the
work of `bench.mixed` at the same pace on every server. natsctl runs with its native module and in plain Python, and
with `--against FOLDER` from another checkout. Run it as root on two idle cores: PINGs then go before the generator.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from bench import mixed, servers
from bench.measure import ANSWER_WITHIN_S, PAYLOAD, api, fetched, fill, snapshot, verdict
from natsctl.testing.process import ServerProcess
from tests.support.raw_client import RawClient

EVERY_S: Final = 0.0005
LONGEST_S: Final = 0.020
P99_S: Final = 0.005
"""Targets for every operation."""
MIXED: Final = "mixed load"
QUIET_S: Final = 0.3
"""How long PINGs are timed after the answer: what follows from an operation may go on."""
FILTERS: Final = 300

Operation = Callable[[RawClient, dict[str, Any]], Awaitable[object]]


def probe(url: str, pipe: Connection) -> None:
    """Time PINGs; at each message from the parent, send the longest, the 99th percentile and the median since then."""
    with suppress(OSError):  # only root may
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    parts = urlsplit(url)
    line = socket.create_connection((parts.hostname, parts.port or 4222))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(b'CONNECT {"verbose":false}\r\n')
    took_s: list[float] = []
    buffer = b""
    while True:
        begun = time.perf_counter()
        line.sendall(b"PING\r\n")
        while b"PONG\r\n" not in buffer:
            buffer += line.recv(65536)
        if b"PING\r\n" in buffer:
            line.sendall(b"PONG\r\n")
        buffer = b""
        took_s.append(time.perf_counter() - begun)
        if pipe.poll():
            if not pipe.recv():
                return
            took_s.sort()
            pipe.send((took_s[-1], took_s[int(0.99 * (len(took_s) - 1))], took_s[len(took_s) // 2]))
            took_s.clear()
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
    "delete": ask(b"STREAM.DELETE.A"),
}


class Waits(NamedTuple):
    """Seconds beside one operation: the longest PING, the 99th percentile, and the time to the operation's answer."""

    longest_s: float
    p99_s: float
    answer_s: float

    def __str__(self) -> str:
        return f"{self.longest_s * 1000:7.1f} {self.p99_s * 1000:6.1f} {self.answer_s * 1000:7.0f}"

    @property
    def met(self) -> bool:
        """True if both targets are met."""
        return self.longest_s <= LONGEST_S and self.p99_s <= P99_S


def loads(server: ServerProcess, seconds: float) -> dict[str, Operation]:
    """Return the operations that are not one request: the generator's modes, and the mixed load."""

    async def mixed_load(client: RawClient, config: dict[str, Any]) -> None:
        done = await mixed.load(server.url, seconds)
        print("  done of the mixed load: " + ", ".join(f"{count:,} {name}" for name, count in done.items()), flush=True)

    def generated(program: Path, load: servers.Load) -> Operation:
        return lambda client, _: asyncio.to_thread(servers.run, program, server, load, load.msgs, len(PAYLOAD))

    found: dict[str, Operation] = {MIXED: mixed_load}
    if (program := servers.generator()) is not None:
        found |= {f"load {load.mode}": generated(program, load) for load in servers.selected("raw")}
    return found


async def measured(server: ServerProcess, options: argparse.Namespace, names: list[str]) -> dict[str, Waits]:
    """Return the waits beside each operation."""
    here, there = multiprocessing.Pipe()
    prober = multiprocessing.get_context("spawn").Process(target=probe, args=(server.url, there), daemon=True)
    prober.start()
    client = await RawClient.connect(server.url)
    operations = OPERATIONS | loads(server, options.seconds)
    found: dict[str, Waits] = {}

    async def since_last() -> tuple[float, float]:
        here.send(True)
        longest_s, p99_s, _ = await asyncio.get_running_loop().run_in_executor(None, here.recv)
        return longest_s, p99_s

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
        found[name] = Waits(*await since_last(), took)
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
    names = [*OPERATIONS, *(f"load {load.mode}" for load in servers.selected("raw")), MIXED]
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
    print(f"{options.messages:,} messages on {options.subjects:,} subjects, in ms: longest PING (target")
    print(f"{LONGEST_S * 1000:g}), 99th percentile of PINGs (target {P99_S * 1000:g}), time to the answer")
    print(f"  {'':32} " + "   ".join(f"{name[:22]:>22}" for name in rows))
    for name in options.names:
        own = rows.get(servers.NATIVE, rows[servers.PLAIN])[name]
        cells = "   ".join(f"{waits[name]!s:>22}" for waits in rows.values())
        print(f"  {name:32} {cells}   {verdict(own.met)}", flush=True)


if __name__ == "__main__":
    main()
