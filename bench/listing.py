"""Time to list many streams with natsctl and with the nats tool: `python -m bench.listing 10000`.

Both tools list the same streams of natsctl's server, and of nats-server where that is on PATH, with their output in a
pipe, as whole processes that take turns; figures are wall time and processor time of the tool, the best of several.
Without `nats` on PATH natsctl's figures stand alone. The first lines are what no list can go below: a Python that does
nothing, and one that has imported what any command needs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, NamedTuple

from bench.measure import api, pipelined
from natsctl.testing.process import Kind, ServerProcess, reference_binary
from tests.support.raw_client import RawClient

ROUNDS: Final = 5
LISTS: Final = (("ls -a",), ("ls -a -n",), ("ls -a -j",), ("report -a", "report"), ("find -a --empty -n",))
"""Arguments of natsctl, and of the nats tool where they differ; its `-a` belongs to the group."""
FLOORS: Final = (
    ("python that does nothing", "pass"),
    ("imports of every command", "import natsctl.cli.framework.command_line"),
    (
        "and of every connection (nats-py)",
        "import natsctl.cli.framework.command_line, natsctl.client.dial;"
        "from natsctl.client.nats_py import client_class; client_class()",
    ),
)
"""What a process costs before it has done anything, by what it has imported."""


class Cost(NamedTuple):
    """Wall-clock and CPU seconds."""

    wall_s: float
    cpu_s: float


async def fill(url: str, count: int) -> None:
    """Create `count` streams."""
    client = await RawClient.connect(url)

    def create(number: int) -> Awaitable[object]:
        name = f"S{number:06}"
        config = {"name": name, "subjects": [f"{name}.>"], "storage": "memory"}
        return api(client, b"STREAM.CREATE." + name.encode(), config)

    await pipelined(count, create)
    await client.close()


def cost(words: list[str]) -> Cost:
    """Return the cheapest of several runs; raise CalledProcessError if one fails."""
    return costs(words)[0]


def costs(*lines: list[str]) -> list[Cost]:
    """Return the cheapest run of each command, by wall clock and by CPU; runs alternate.

    Raises CalledProcessError if one fails.
    """
    found: list[list[Cost]] = [[] for _ in lines]
    for _ in range(ROUNDS):
        for line, runs in zip(lines, found, strict=True):
            runs.append(_run(line))
    return [Cost(min(one.wall_s for one in runs), min(one.cpu_s for one in runs)) for runs in found]


def _run(words: list[str]) -> Cost:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun_s = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    wall_s = time.perf_counter() - begun_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def compare(url: str, reference: str | None) -> None:
    """Print a line for each list."""
    for own, *other in LISTS:
        lines = [[sys.executable, "-m", "natsctl", "-s", url, "stream", *own.split()]]
        if reference:
            words = [word for word in (other[0] if other else own).split() if word != "-a"]
            lines.append([reference, "-s", url, "stream", "-a", *words])
        mine, *theirs = costs(*lines)
        text = f"  stream {own:20} natsctl {mine.wall_s:6.2f} ({mine.cpu_s:.2f})"
        if theirs:
            ratio = mine.wall_s / theirs[0].wall_s
            text += f"   nats {theirs[0].wall_s:6.2f} ({theirs[0].cpu_s:.2f})   {ratio:.2f} times its time"
        print(text, flush=True)


def main() -> None:
    """Print the cost of each list on each server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=10_000, help="streams")
    count = parser.parse_args().count
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        sys.exit("unset PYTHONDONTWRITEBYTECODE: without bytecode the figures are those of the compiler")
    print(f"{count:,} streams, best of {ROUNDS}: seconds of the clock (of the processor)")
    for what, code in FLOORS:
        floor = cost([sys.executable, "-c", code])
        print(f"  {what:35} {floor.wall_s:6.2f} ({floor.cpu_s:.2f})", flush=True)
    kinds: tuple[Kind, ...] = ("natsctl", "reference") if reference_binary() else ("natsctl",)
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder), kind) as server:
            asyncio.run(fill(server.url, count))
            print({"natsctl": "on natsctl's server", "reference": "on nats-server"}[kind])
            compare(server.url, shutil.which("nats"))


if __name__ == "__main__":
    main()
