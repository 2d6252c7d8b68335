"""Catch-up speed of a mirror and a source, natsctl and nats-server: `python -m bench.upstreams --rounds 3`.

Each round fills a stream with small messages, then makes a mirror of it and a stream that sources from it, and times
each until it has everything. The figures are medians; CPU time is the server's own. Both servers keep their defaults:
natsctl syncs what it copies at once, nats-server later.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from natsctl.testing.process import Kind, ServerProcess, reference_binary
from tests.support.raw_client import RawClient

CHUNK = 1000
POLL_S = 0.05
COPIES: tuple[tuple[bytes, dict[str, Any]], ...] = (
    (b"MIRROR", {"mirror": {"name": "S"}}),
    (b"SOURCE", {"sources": [{"name": "S"}]}),
)


class Figure(NamedTuple):
    """One catch-up: messages per second, and the server's CPU time in microseconds a message."""

    rate: float
    cpu_us: float


async def api(client: RawClient, verb: bytes, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the response to an API request; raise RuntimeError if it is an error."""
    _, raw = await client.request(b"$JS.API." + verb, json.dumps(body).encode() if body else b"", timeout_s=60)
    answer: dict[str, Any] = json.loads(raw)
    if "error" in answer:
        raise RuntimeError(f"{verb.decode()}: {answer['error']}")
    return answer


async def until_stored(client: RawClient, name: bytes, msgs: int) -> None:
    """Return once a stream has `count` messages."""
    while (await api(client, b"STREAM.INFO." + name))["state"]["messages"] < msgs:
        await asyncio.sleep(POLL_S)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def one_round(server: ServerProcess, msgs: int, size: int) -> list[Figure]:
    """Fill a stream and time its copies."""
    client = await RawClient.connect(server.url)
    await api(client, b"STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    for _ in range(0, msgs, CHUNK):
        for _ in range(CHUNK):
            client.publish(b"s", bytes(size))
        await client.flush()
    await until_stored(client, b"S", msgs)
    figures = []
    for name, config in COPIES:
        cpu, begin = cpu_s(server.pid), time.monotonic()
        await api(client, b"STREAM.CREATE." + name, {"name": name.decode(), **config})
        await until_stored(client, name, msgs)
        figures.append(Figure(msgs / (time.monotonic() - begin), (cpu_s(server.pid) - cpu) / msgs * 1e6))
    await client.close()
    return figures


def main() -> None:
    """Run the rounds and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--msgs", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=128, help="bytes of each payload")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    kinds: list[Kind] = ["natsctl", "reference"] if reference_binary() else ["natsctl"]
    found: dict[tuple[Kind, int], list[Figure]] = {}
    for _ in range(options.rounds):
        for kind in kinds:
            with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder), kind) as server:
                for at, figure in enumerate(asyncio.run(one_round(server, options.msgs, options.size))):
                    found.setdefault((kind, at), []).append(figure)
    for at, (name, _) in enumerate(COPIES):
        medians = {kind: statistics.median(figure.rate for figure in found[kind, at]) for kind in kinds}
        for kind in kinds:
            cpu = statistics.median(figure.cpu_us for figure in found[kind, at])
            print(f"{name.decode():8}{kind:12}{medians[kind]:>10,.0f} messages/s  {cpu:5.1f} us of CPU a message")
        if "reference" in medians:
            print(f"{name.decode():8}ratio       {medians['natsctl'] / medians['reference']:>10.2f}")


if __name__ == "__main__":
    main()
