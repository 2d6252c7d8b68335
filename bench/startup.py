"""What short commands cost, natsctl beside the reference tool: `python -m bench.startup`.

Each line is a whole process with its output in a pipe, on natsctl's server with a few streams, consumers and buckets;
figures are wall time and processor time, the best of several. Without `nats` on PATH natsctl's figures stand alone.
Bytecode has to be kept (no PYTHONDONTWRITEBYTECODE), else every process compiles what it imports.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.listing import cost
from bench.measure import api
from natsctl.testing.process import ServerProcess
from natsctl.testing.rawclient import RawClient

STREAMS: Final = 20
LINES: Final = (
    ("--help", "--help"),
    ("stream info S1 -j", "stream info S1 -j"),
    ("stream ls -n", "stream ls -n"),
    ("stream ls", "stream ls"),
    ("consumer ls S1", "consumer ls S1"),
    ("kv ls", "kv ls"),
    ("kv ls B0", "kv ls B0"),
    ("publish S1.a hello -J", "publish S1.a hello -J"),
    ("__complete zsh stream info S", ""),
    ("__complete zsh consumer info S1 C", ""),
)
"""What natsctl is asked, and the reference; nothing where it has no such command."""


async def fill(url: str) -> None:
    """Make streams with a consumer each, and as many key-value buckets."""
    client = await RawClient.connect(url)
    for number in range(STREAMS):
        stream, bucket = f"S{number}", f"B{number}"
        await api(client, f"STREAM.CREATE.{stream}".encode(), {"name": stream, "subjects": [f"{stream}.>"]})
        durable = {"stream_name": stream, "config": {"durable_name": f"C{number}", "ack_policy": "explicit"}}
        await api(client, f"CONSUMER.DURABLE.CREATE.{stream}.C{number}".encode(), durable)
        config: dict[str, object] = {"name": f"KV_{bucket}", "subjects": [f"$KV.{bucket}.>"], "max_msgs_per_subject": 1}
        config |= {"allow_rollup_hdrs": True, "deny_delete": True, "allow_direct": True}
        await api(client, f"STREAM.CREATE.KV_{bucket}".encode(), config)
    await client.close()


def main() -> None:
    """Print a line for each command."""
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        sys.exit("unset PYTHONDONTWRITEBYTECODE: without bytecode the figures are those of the compiler")
    reference = shutil.which("nats")
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder)) as server:
        asyncio.run(fill(server.url))
        os.environ["NATS_URL"] = server.url
        print("seconds of the clock (of the processor)")
        for own, other in LINES:
            mine = cost([sys.executable, "-m", "natsctl", *own.split()])
            line = f"  {own:36} natsctl {mine.wall_s:5.2f} ({mine.cpu_s:.2f})"
            if reference and other:
                theirs = cost([reference, *other.split()])
                line += f"   nats {theirs.wall_s:5.2f} ({theirs.cpu_s:.2f})"
            print(line, flush=True)


if __name__ == "__main__":
    main()
