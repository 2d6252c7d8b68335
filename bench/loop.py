"""Time for which one request delays all other clients, on natsctl and nats-server: `python -m bench.loop`.

A second process sends a PING every half millisecond or as soon as the last one is answered, on a connection of its own;
the figure of an operation is the longest time that one PONG took while the operation went on, beside the time to the
operation's answer. Each operation has a fresh stream of its own, the same messages on few or on as many subjects.
`--source DIR` runs natsctl from another checkout, for figures from before a change.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from unittest import mock
from urllib.parse import urlsplit

from bench.measure import ANSWER_WITHIN_S, api, fetched, fill
from natsctl.testing.process import Kind, ServerProcess, reference_binary
from tests.support.raw_client import RawClient

EVERY_S: Final = 0.0005
QUIET_S: Final = 0.3
"""How long PINGs are timed after the answer: what follows from an operation may go on."""
FILTERS: Final = 300

Operation = Callable[[RawClient, dict[str, Any]], Awaitable[object]]


def probe(url: str, pipe: Connection) -> None:
    """Time PINGs; at each message from the parent, send the longest since the previous message."""
    parts = urlsplit(url)
    line = socket.create_connection((parts.hostname, parts.port or 4222))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(b'CONNECT {"verbose":false}\r\n')
    longest, buffer = 0.0, b""
    while True:
        begun = time.perf_counter()
        line.sendall(b"PING\r\n")
        while b"PONG\r\n" not in buffer:
            buffer += line.recv(65536)
        buffer = b""
        longest = max(longest, time.perf_counter() - begun)
        if pipe.poll():
            if not pipe.recv():
                return
            pipe.send(longest)
            longest = 0.0
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


async def snapshot(client: RawClient, config: dict[str, Any]) -> None:
    """Receive a snapshot at full speed."""
    done = asyncio.Event()

    def chunk(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        if reply:
            client.publish(reply, b"")
        if not payload:
            done.set()

    sid = client.subscribe(b"SNAPSHOT.in", chunk)
    await api(client, b"STREAM.SNAPSHOT.A", {"deliver_subject": "SNAPSHOT.in"})
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await done.wait()
    client.unsubscribe(sid)


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
    "snapshot": snapshot,
    "mirror": mirror,
    "delete": ask(b"STREAM.DELETE.A"),
}


async def measured(
    server: ServerProcess, count: int, subjects: int, names: list[str]
) -> dict[str, tuple[float, float]]:
    """Return the longest PING and the response time of each operation, in seconds."""
    here, there = multiprocessing.Pipe()
    prober = multiprocessing.get_context("spawn").Process(target=probe, args=(server.url, there), daemon=True)
    prober.start()
    client = await RawClient.connect(server.url)
    found: dict[str, tuple[float, float]] = {}
    for name in names:
        config = {"name": "A", "subjects": ["a.>"], "allow_direct": True, "allow_rollup_hdrs": True}
        await api(client, b"STREAM.CREATE.A", config)
        await fill(client, count, lambda number: b"a.%d.x" % (number * 7919 % subjects))
        await asyncio.sleep(1)
        here.send(True)
        await asyncio.get_running_loop().run_in_executor(None, here.recv)
        begun = time.perf_counter()
        try:
            await OPERATIONS[name](client, config)
        except RuntimeError as refused:
            print(f"  {name}: {refused}", flush=True)
        took = time.perf_counter() - begun
        await asyncio.sleep(QUIET_S)
        here.send(True)
        longest = await asyncio.get_running_loop().run_in_executor(None, here.recv)
        found[name] = (longest, took)
        if name != "delete":
            await api(client, b"STREAM.DELETE.A")
        server.await_removals()
    here.send(False)
    prober.join()
    await client.close()
    return found


def run(kind: Kind, source: str, count: int, subjects: int, names: list[str]) -> dict[str, tuple[float, float]]:
    """Measure on a fresh server."""
    other = {"PYTHONPATH": source, "PYTHONSAFEPATH": "1"} if source else {}
    with (
        tempfile.TemporaryDirectory(prefix="natsctl-loop-") as folder,
        mock.patch.dict(os.environ, other),
        ServerProcess(Path(folder) / "store", kind) as server,
    ):
        return asyncio.run(measured(server, count, subjects, names))


def main() -> None:
    """Measure the selected operations and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=lambda text: int(float(text)), default=300_000)
    parser.add_argument("--subjects", type=lambda text: int(float(text)), default=1000)
    parser.add_argument("--only", default="", help="operations whose names hold this")
    parser.add_argument("--source", default="", help="a checkout of natsctl to run beside this one")
    options = parser.parse_args()
    names = [name for name in OPERATIONS if options.only in name]
    runs: list[tuple[str, Kind, str]] = [("natsctl", "natsctl", "")]
    if options.source:
        runs.append((options.source, "natsctl", options.source))
    if reference_binary() is not None:
        runs.append(("nats-server", "reference", ""))
    print(f"{options.messages:,} messages on {options.subjects:,} subjects: longest PING, and time to the answer, ms")
    rows = {title: run(kind, source, options.messages, options.subjects, names) for title, kind, source in runs}
    for name in names:
        cells = [f"{title} {rows[title][name][0] * 1000:8.1f} {rows[title][name][1] * 1000:8.0f}" for title in rows]
        print(f"  {name:32} " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()
