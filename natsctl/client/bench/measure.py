"""Running a benchmark: clients where they measure the server and not Python, watched until they are done.

One client runs in the process of the command. Several are dealt out over as many processes as there are processors,
because one Python process is busy long before a server is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from natsctl.client.bench.crew import Crew
from natsctl.client.bench.load import Load
from natsctl.client.bench.report import Report, now_ns, report
from natsctl.client.bench.workers import Workers
from natsctl.client.servers import Target

LOOKED_EVERY_S = 0.1
"""Seconds between two looks at how far the clients are."""


async def measure(target: Target, load: Load, watch: Callable[[int], None]) -> Report:
    """Run all clients of a load; `watch` is told again and again how many messages are done.

    Raises what the first client fails with; then, and when it is cancelled, all of them are ended.
    """
    processes = min(load.clients, os.cpu_count() or 1)
    crew = Crew(target, load, range(load.clients)) if processes == 1 else Workers(target, load, processes)
    try:
        await crew.prepare()
        started_ns = now_ns()
        looking = asyncio.create_task(_look(crew, load, watch))
        try:
            results = await crew.run()
        finally:
            looking.cancel()
        watch(load.total)
        return report(load, results, processes, started_ns)
    finally:
        await crew.close()


async def _look(crew: Crew | Workers, load: Load, watch: Callable[[int], None]) -> None:
    while True:
        await asyncio.sleep(LOOKED_EVERY_S)
        done = crew.msgs
        watch(done)
        if not load.about.dealt and done >= load.total:
            crew.stop()
