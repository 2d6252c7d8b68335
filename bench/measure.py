"""Shared parts of the one-node benchmarks: timed requests, server restarts, rows of figures."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from natsctl.testing.process import Kind, ServerProcess
from tests.support.raw_client import RawClient

API: Final = b"$JS.API."
BATCH: Final = 4000
"""Messages sent before the ack of the last one is awaited; the reference drops what it can not queue."""
PAYLOAD: Final = b"x" * 128
PIPELINE: Final = 64
"""API requests under way at once."""
ANSWER_WITHIN_S: Final = 120.0

Row = dict[str, float]
"""Figures by name; seconds unless the name ends in one of UNITS."""
UNITS: Final = {"_per_s": "/s", "_mb": " MB", "_kb": " KB", "_share": " %", "_count": ""}


async def api(client: RawClient, subject: bytes, body: object = None) -> dict[str, object]:
    """Return the response to one API request; raise RuntimeError if it is an error."""
    payload = b"" if body is None else json.dumps(body).encode()
    _, answer = await client.request(API + subject, payload, ANSWER_WITHIN_S)
    found: dict[str, object] = json.loads(answer)
    if "error" in found:
        raise RuntimeError(f"{subject.decode()}: {found['error']}")
    return found


async def timed(work: Awaitable[object]) -> float:
    """Return the seconds that `work` takes."""
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


async def pipelined(count: int, make: Callable[[int], Awaitable[object]]) -> float:
    """Await `make(0)`, `make(1)`, … with a bounded number in flight; return the seconds."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await make(number)

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(PIPELINE)))
    return time.perf_counter() - begun


async def fill(client: RawClient, count: int, subject: Callable[[int], bytes]) -> float:
    """Publish `count` messages and return the messages per second."""
    tail = b" %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
    begun = time.perf_counter()
    for start in range(0, count, BATCH):
        last = min(start + BATCH, count) - 1
        client.send(b"".join(b"PUB " + subject(number) + tail for number in range(start, last)))
        await client.request(subject(last), PAYLOAD, ANSWER_WITHIN_S)
    return count / (time.perf_counter() - begun)


def rss_mb(server: ServerProcess) -> float:
    """Return the resident memory of a server."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def cpu_ns(pid: int, *, all_threads: bool) -> int:
    """Return the CPU that a process has used: of its main thread, or of all."""
    tasks = Path(f"/proc/{pid}/task")
    total = 0
    for thread in tasks.iterdir() if all_threads else [tasks / str(pid)]:
        with suppress(OSError):  # it may have ended
            total += int((thread / "schedstat").read_text().split()[0])
    return total


async def restarted(server: ServerProcess, killed: bool) -> tuple[RawClient, float]:
    """Restart the server; return a client and the seconds until stream A answers."""
    server.kill() if killed else server.stop()
    begun = time.perf_counter()
    server.start()
    client = await RawClient.connect(server.url)
    while True:
        try:
            await api(client, b"STREAM.INFO.A")
        except RuntimeError:  # not yet: no responders, or not recovered
            await asyncio.sleep(0.005)
            continue
        return client, time.perf_counter() - begun


async def fetched(client: RawClient, consumer: bytes, batch: int) -> None:
    """Return once `batch` messages of a pull consumer have arrived."""
    left, done = batch, asyncio.Event()

    def take(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    inbox = b"FETCHED." + consumer
    sid = client.subscribe(inbox, take)
    client.publish(API + b"CONSUMER.MSG.NEXT.A." + consumer, json.dumps({"batch": batch}).encode(), inbox)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await done.wait()
    client.unsubscribe(sid)


async def snapshot(client: RawClient, keep: Callable[[bytes], object] = len) -> dict[str, object]:
    """Receive a snapshot of stream A at full speed, pass its chunks to `keep`, and return the answer before them."""
    done = asyncio.Event()

    def chunk(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        if reply:
            client.publish(reply, b"")
        keep(payload)
        if not payload:
            done.set()

    sid = client.subscribe(b"SNAPSHOT.in", chunk)
    answer = await api(client, b"STREAM.SNAPSHOT.A", {"deliver_subject": "SNAPSHOT.in"})
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await done.wait()
    client.unsubscribe(sid)
    return answer


async def consumer(client: RawClient, name: str, **config: object) -> dict[str, object]:
    """Create a durable pull consumer on stream A."""
    wanted = {"durable_name": name, "ack_policy": "explicit", **config}
    body = {"stream_name": "A", "config": wanted}
    return await api(client, b"CONSUMER.DURABLE.CREATE.A.%s" % name.encode(), body)


def shown(name: str, value: float) -> str:
    """Return a figure with its unit."""
    for ending, unit in UNITS.items():
        if name.endswith(ending):
            return f"{value:,.0f}{unit}" if value >= 100 or ending in ("_per_s", "_count") else f"{value:.1f}{unit}"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"


class Target(NamedTuple):
    """The limit of one figure of natsctl: of the figure itself, or of its ratio to nats-server's."""

    limit: float
    ratio: bool = True

    def judged(self, name: str, own: float, reference: float | None) -> str:
        """Return whether it is met, as the end of a line; "" where nats-server's figure is missing."""
        if self.ratio and not reference:
            return ""
        found = own / reference if self.ratio and reference else own
        met = found >= self.limit if name.endswith("_per_s") else found <= self.limit
        limit = f"{self.limit:g}" if self.ratio else shown(name, self.limit)
        return f"   target {limit}: {verdict(met)}"


def verdict(met: bool) -> str:
    """Return a target's end as a word."""
    return "met" if met else "MISSED"


def report(title: str, rows: dict[Kind, Row], targets: Mapping[str, Target]) -> None:
    """Print the figures of one size, a line each, with the ratio if both servers ran, and the targets."""
    print(f"\n{title}")
    own, reference = rows["natsctl"], rows.get("reference", {})
    for name, value in own.items():
        label = next((name.removesuffix(end) for end in UNITS if name.endswith(end) and end != "_per_s"), name)
        line = f"  {label:28} {shown(name, value):>14}"
        if name in reference:
            line += f"   reference {shown(name, reference[name]):>14}"
        if reference.get(name):
            line += f"   ratio {value / reference[name]:.2f}"
        if name in targets:
            line += targets[name].judged(name, value, reference.get(name))
        print(line, flush=True)


def measure(
    title: str,
    kinds: list[Kind],
    work: Callable[[ServerProcess], Coroutine[object, object, Row]],
    targets: Mapping[str, Target] = MappingProxyType({}),
) -> None:
    """Run `work` on a fresh server of each kind and report."""
    rows: dict[Kind, Row] = {}
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="natsctl-scale-") as folder:
            server = ServerProcess(Path(folder) / "store", kind)
            server.start()
            try:
                rows[kind] = asyncio.run(work(server))
            finally:
                server.stop()
    report(title, rows, targets)
