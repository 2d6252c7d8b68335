"""Soak test: many good clients on one server, among them some that misbehave, and the memory that it takes.

`python -m tests.support.soak --connections 2000 --minutes 10`: exit 1 when a good client suffered or memory grew.

A tenth of the connections misbehave, one offence after another; the others publish to themselves all the time and must
get everything back. Meanwhile the server's configuration is reloaded twice a second, well or badly. The server's memory
is read every few seconds; it is called flat when the median of the last quarter is within `GROWTH` of the third one's:
until then caches warm up, and the 10,000 connections gather that have ended and are remembered for monitoring.
"""

import argparse
import asyncio
import random
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import orjson

from natsctl.testing.process import Kind, ServerProcess
from tests.support.kill_clients import Eraser
from tests.support.raw_client import RawClient
from tests.support.servers import quiet_ports
from tests.support.soak_offences import CONFIG, EDGES, Operator


class GoodClient:
    """One connection with one subscription, on which it receives what it publishes."""

    def __init__(self, number: int, raw: RawClient, latencies: list[float]) -> None:
        """Subscribe; round trips in seconds go to `latencies`."""
        self.number = number
        self.raw = raw
        self.sent = 0
        self.received = 0
        self._subject = b"c.%d" % number
        self._latencies = latencies
        raw.subscribe(self._subject, self._heard)

    @property
    def faults(self) -> list[str]:
        """Errors, and the end of the connection that nobody asked for."""
        lost = ["connection lost"] if self.raw.closed.is_set() else []
        return [line.decode() for line in self.raw.errors] + lost

    def publish(self, random_source: random.Random) -> None:
        """Send one message of some size to oneself; it begins with the time."""
        self.raw.publish(self._subject, b"%d " % time.perf_counter_ns() + b"x" * random_source.randrange(200))
        self.sent += 1

    def _heard(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self._latencies.append((time.perf_counter_ns() - int(payload.partition(b" ")[0])) / 1e9)
        self.received += 1


BAD_SHARE: Final = 10
"""One of so many connections misbehaves."""
GROWTH: Final = 1.03
"""Growth of memory that is allowed from the third quarter to the last."""
SETTLED_S: Final = 300.0
"""Memory of shorter runs is not judged: caches warm up for most of them."""
SAMPLE_S: Final = 2.0
PACE_S: Final = 5.0
"""Mean time between two messages of one good client."""
OPENING: Final = 50
"""Connections opened at the same time."""
LOG_CHARS: Final = 4000
"""Characters shown of the first internal fault in the server's log."""
WRONGS: Final = tuple((listener, *row) for listener, offences in EDGES.items() for row in offences.items())


@dataclass(slots=True)
class Soak:
    """One run against a server whose process is `pid`; `ports` are those of its listeners."""

    host: str
    ports: dict[str, int]
    pid: int
    operator: Operator
    connections: int
    seconds: float
    seed: int
    clients: list[GoodClient] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    rss: list[int] = field(default_factory=list)
    offences: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    eraser: Eraser = field(default_factory=lambda: Eraser(1))

    async def run(self) -> None:
        """Open everything, go on for the time, and close."""
        loop = asyncio.get_running_loop()
        good = self.connections - self.connections // BAD_SHARE
        url = f"nats://{self.host}:{self.ports['clients']}"
        for start in range(0, good, OPENING):
            numbers = range(start, min(start + OPENING, good))
            raws = await asyncio.gather(*(RawClient.connect(url) for _ in numbers))
            self.clients += [GoodClient(n, raw, self.latencies) for n, raw in zip(numbers, raws, strict=True)]
        keeper = await RawClient.connect(url)
        await keeper.request(b"$JS.API.STREAM.CREATE.ERASE", orjson.dumps(Eraser.CONFIG))
        self.eraser.start(keeper)
        end = time.monotonic() + self.seconds
        bad = [self._misbehave(number, end) for number in range(self.connections // BAD_SHARE)]
        await asyncio.gather(self._talk(end), self._weigh(end), self.operator.run(loop.time() + self.seconds), *bad)
        self.eraser.stop()
        await asyncio.sleep(2.0)  # what is under way arrives
        self.wrong += await self.operator.check(self.host, self.ports["clients"])
        self.wrong += await self.eraser.check(keeper)
        self.wrong += [f"client {client.number}: {fault}" for client in self.clients for fault in client.faults]
        for client in self.clients:
            await client.raw.close()

    async def _talk(self, end: float) -> None:
        chance = random.Random(self.seed)
        step_s = 0.05
        share = step_s / PACE_S
        while time.monotonic() < end:
            for client in self.clients:
                if chance.random() < share and not client.faults:
                    client.publish(chance)
            await asyncio.sleep(step_s)

    async def _misbehave(self, number: int, end: float) -> None:
        chance = random.Random(self.seed * 10_007 + number)
        while time.monotonic() < end:
            listener, name, offence = chance.choice(WRONGS)
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(self.host, self.ports[listener])
                try:
                    await offence(reader, writer, chance)
                finally:
                    writer.transport.abort()
            self.offences[name] += 1
            await asyncio.sleep(chance.random() * 4)

    async def _weigh(self, end: float) -> None:
        while time.monotonic() < end:
            self.rss.append(resident_bytes(self.pid))
            await asyncio.sleep(SAMPLE_S)

    @property
    def faults(self) -> list[str]:
        lost = sum(client.sent - client.received for client in self.clients)
        faults = self.wrong + [f"a stream that is erased from: {text!r}" for text in self.eraser.errors]
        return faults + ([f"{lost} messages did not come back"] if lost else [])

    @property
    def quarters(self) -> list[float]:
        """Median memory of each quarter of the run, bytes."""
        size = max(len(self.rss) // 4, 1)
        return [statistics.median(self.rss[at * size : (at + 1) * size] or [0]) for at in range(4)]

    def render(self) -> str:
        late = sorted(self.latencies) or [0.0]
        mib = " ".join(f"{value / (1 << 20):.1f}" for value in self.quarters)
        return "\n".join(
            [
                f"{self.connections} connections for {self.seconds:.0f} s, {len(self.latencies)} messages came back",
                f"round trip: median {late[len(late) // 2] * 1e3:.1f} ms, "
                f"99 % {late[len(late) * 99 // 100] * 1e3:.1f} ms, "
                f"worst {late[-1] * 1e3:.0f} ms",
                f"memory by quarter: {mib} MiB, largest {max(self.rss or [0]) / (1 << 20):.1f}",
                f"{self.eraser.acked} keys written beside that, {len(self.eraser.erased)} of them erased",
                f"{sum(self.offences.values())} offences: "
                + ", ".join(f"{name} {count}" for name, count in sorted(self.offences.items())),
                "reloads: " + ", ".join(f"{kind} {count}" for kind, count in sorted(self.operator.kinds.items())),
                *self.faults[:20],
            ]
        )

    @property
    def passed(self) -> bool:
        """True where no good client suffered and memory is flat."""
        flat = self.seconds < SETTLED_S or self.quarters[3] <= self.quarters[2] * GROWTH
        return not self.faults and flat


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> int:
    """Run a soak, print its figures, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=["natsctl", "reference"], default="natsctl")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    kind: Kind = options.server
    with tempfile.TemporaryDirectory() as folder:
        others = [listener for listener in EDGES if listener != "clients"]
        ports = dict(zip(others, quiet_ports(len(others)), strict=True))
        config = Path(folder) / "soak.conf"
        config.write_text(CONFIG % ports)
        return _run(ServerProcess(Path(folder), kind, "-c", str(config)), ports, config, options)


def _run(process: ServerProcess, ports: dict[str, int], config: Path, options: argparse.Namespace) -> int:
    with process as server:
        address = urlsplit(server.url)
        assert address.hostname is not None and address.port is not None
        ports["clients"] = address.port
        operator = Operator(config, server.pid, options.seed)
        seconds = options.minutes * 60
        soak = Soak(address.hostname, ports, server.pid, operator, options.connections, seconds, options.seed)
        asyncio.run(soak.run())
        print(soak.render())
        _, fault, text = server.log().partition("internal fault")
        if fault:
            print(f"the server's log has an internal fault{text[:LOG_CHARS]}")
            return 1
    return 0 if soak.passed else 1


if __name__ == "__main__":
    sys.exit(main())
