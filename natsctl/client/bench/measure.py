"""Running a benchmark: clients where they measure the server and not Python, watched until they are done.

Clients run in processes of their own, as many as there are processors, on uvloop: beside a command's own loop a
request took a third longer, and one Python process is busy before most servers are.

Against nats-server 2.15.2 on two processors that others used too, one client with messages of 128 bytes, rates were
these parts of what the nats tool of the same day measured there, medians of three runs: pub 1.6, js pub async 1.5,
js ordered 1.1, js fetch 1.1, js pub atomic 1.0, js get batch 1.0, js pub sync and kv get 0.8, js consume 0.6 to 0.8,
js pub fast 0.5. So where each message is answered, some 0.05 ms of every latency are Python's; and where a client
handles and acks each message, or names each in its reply subject, it is the client that is measured.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from natsctl.client.bench.load import Load
from natsctl.client.bench.report import Report, now_ns, report
from natsctl.client.bench.workers import Workers
from natsctl.client.servers import Target

LOOKED_EVERY_S = 0.1
"""Seconds between two looks at how far the clients are."""


async def measure(target: Target, load: Load, watch: Callable[[int], None]) -> Report:
    """Run all clients of a load; `watch` is told again and again how many messages are done, once there are any.

    Raises what the first client fails with; then, and when it is cancelled, all of them are ended.
    """
    workers = Workers(target, load, min(load.clients, os.cpu_count() or 1))
    try:
        await workers.prepare()
        started_ns = now_ns()
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
        await asyncio.sleep(LOOKED_EVERY_S)
        done = workers.msgs
        if done:
            watch(done)
        if not load.about.dealt and done >= load.total:
            workers.stop()
