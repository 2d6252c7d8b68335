"""How long many streams take to list, natsctl beside the reference tool: `python -m bench.listing 10000`.

Both tools list the same streams of natsctl's server, with their output in a pipe, as whole processes; figures are wall
time and processor time of the tool, the best of three. Without `nats` on PATH natsctl's figures stand alone.
"""

from __future__ import annotations

import argparse
import asyncio
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
from natsctl.testing.process import ServerProcess
from natsctl.testing.rawclient import RawClient

ROUNDS: Final = 3
LISTS: Final = (("ls -a",), ("ls -a -n",), ("ls -a -j",), ("report -a", "report"), ("find -a --empty -n",))
"""What natsctl is asked, and the reference where its words differ; its `-a` belongs to the group."""


class Cost(NamedTuple):
    """Seconds of the clock and of the processor."""

    wall_s: float
    cpu_s: float


async def fill(url: str, count: int) -> None:
    """Make `count` streams."""
    client = await RawClient.connect(url)

    def create(number: int) -> Awaitable[object]:
        name = f"S{number:06}"
        config = {"name": name, "subjects": [f"{name}.>"], "storage": "memory"}
        return api(client, b"STREAM.CREATE." + name.encode(), config)

    await pipelined(count, create)
    await client.close()


def cost(words: list[str]) -> Cost:
    """The cheapest of some runs. Raises CalledProcessError where one fails."""
    costs = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun_s = time.perf_counter()
        subprocess.run(words, check=True, capture_output=True)
        wall_s = time.perf_counter() - begun_s
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(Cost(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return min(costs)


def main() -> None:
    """Print a line for each list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=10_000, help="streams")
    count = parser.parse_args().count
    reference = shutil.which("nats")
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder)) as server:
        asyncio.run(fill(server.url, count))
        print(f"{count:,} streams, best of {ROUNDS}: seconds of the clock (of the processor)")
        for own, *other in LISTS:
            mine = cost([sys.executable, "-m", "natsctl", "-s", server.url, "stream", *own.split()])
            line = f"  stream {own:20} natsctl {mine.wall_s:6.2f} ({mine.cpu_s:.2f})"
            if reference:
                words = [word for word in (other[0] if other else own).split() if word != "-a"]
                theirs = cost([reference, "-s", server.url, "stream", "-a", *words])
                ratio = mine.wall_s / theirs.wall_s
                line += f"   nats {theirs.wall_s:6.2f} ({theirs.cpu_s:.2f})   {ratio:.2f} times its time"
            print(line, flush=True)


if __name__ == "__main__":
    main()
