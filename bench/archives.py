"""Snapshots, restores and `backup verify` of much data, on natsctl and nats-server: `python -m bench.archives`.

A stream of `--megabytes` of payloads that do not compress, in messages of 64 KiB and then of 128 bytes, is sent by each
server as a snapshot, deleted, and restored from it. Beside each rate stands the server's highest memory meanwhile
(Linux). Then natsctl saves the stream in both versions of the archive, and `natsctl backup verify` reads them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from bench import servers
from bench.measure import ANSWER_WITHIN_S, api, snapshot, verdict
from natsctl.testing.process import ServerProcess
from tests.support.raw_client import RawClient

SIZES: Final = (64 << 10, 128)
MEGABYTE: Final = 10**6
WHOLE: Final = 1000
"""Megabytes of a run whose figures count."""
BURST_BYTES: Final = 1 << 20
"""Payload that is published before the ack of its last message is awaited."""
POOL_BYTES: Final = 8 << 20
CHUNK: Final = 128 << 10
WINDOW: Final = 8
"""Chunks of a restore that wait for their acks."""
RATIO: Final = 1.0
MEMORY_MB: Final = 150.0
VERIFY_S: Final = 1.5
"""Targets: rates beside nats-server's, memory meanwhile, seconds of a gigabyte."""


class Moved(NamedTuple):
    """A snapshot or a restore: megabytes of payload a second, and the server's highest memory in MB meanwhile."""

    per_s: float
    peak_mb: float


async def fill(client: RawClient, megabytes: int, size: int) -> None:
    """Publish random payloads of one size to stream A."""
    pool = [os.urandom(size) for _ in range(POOL_BYTES // size)]
    count, burst = megabytes * MEGABYTE // size, max(2, BURST_BYTES // size)
    for start in range(0, count, burst):
        last = min(start + burst, count) - 1
        payloads = [pool[number % len(pool)] for number in range(start, last)]
        client.send(b"".join([b"PUB a.x %d\r\n%s\r\n" % (size, payload) for payload in payloads]))
        await client.request(b"a.x", pool[last % len(pool)], ANSWER_WITHIN_S)


async def restore(client: RawClient, answer: dict[str, Any], file: IO[bytes]) -> None:
    """Send a snapshot back."""
    begun = await api(client, b"STREAM.RESTORE.A", {"config": answer["config"], "state": answer["state"]})
    subject = str(begun["deliver_subject"]).encode()
    waiting: deque[asyncio.Task[object]] = deque()
    while data := file.read(CHUNK):
        waiting.append(asyncio.create_task(client.request(subject, data, ANSWER_WITHIN_S)))
        if len(waiting) == WINDOW:
            await waiting.popleft()
    await asyncio.gather(*waiting)
    _, last = await client.request(subject, b"", ANSWER_WITHIN_S)
    if b'"error"' in last:
        raise RuntimeError(f"restore: {last.decode()}")


def forget_peak(server: ServerProcess) -> None:
    """Let the highest memory of a server begin with what it has now."""
    with suppress(OSError):
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")


def peak_mb(server: ServerProcess) -> float:
    """Return the highest resident memory of a server, 0 where the system does not have it."""
    try:
        status = Path(f"/proc/{server.pid}/status").read_text()
    except OSError:
        return 0.0
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def moved(server: ServerProcess, megabytes: int, size: int, file: IO[bytes]) -> dict[str, Moved]:
    """Return the figures of a snapshot and of its restore."""
    client = await RawClient.connect(server.url)
    await api(client, b"STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"]})
    await fill(client, megabytes, size)
    found = {}
    forget_peak(server)
    begun = time.perf_counter()
    answer = await snapshot(client, file.write)
    found["snapshot"] = Moved(megabytes / (time.perf_counter() - begun), peak_mb(server))
    await api(client, b"STREAM.DELETE.A")
    server.await_removals()
    file.seek(0)
    forget_peak(server)
    begun = time.perf_counter()
    await restore(client, answer, file)
    found["restore"] = Moved(megabytes / (time.perf_counter() - begun), peak_mb(server))
    await client.close()
    return found


def verified(candidate: servers.Candidate, megabytes: int, size: int) -> float:
    """Return the seconds of `natsctl backup verify` of a stream that a server has saved."""

    async def filled(url: str) -> None:
        client = await RawClient.connect(url)
        await api(client, b"STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"]})
        await fill(client, megabytes, size)
        await client.close()

    natsctl = [sys.executable, "-m", "natsctl"]
    with tempfile.TemporaryDirectory(prefix="natsctl-archives-") as folder:
        saved = str(Path(folder) / "saved")
        with candidate.serving(Path(folder)) as server:
            asyncio.run(filled(server.url))
            backup = [*natsctl, "-s", server.url, "stream", "backup", "A", saved, "--no-progress"]
            subprocess.run(backup, check=True, capture_output=True)
        begun = time.perf_counter()
        subprocess.run([*natsctl, "backup", "verify", saved, "--no-progress"], check=True, capture_output=True)
        return time.perf_counter() - begun


def report(work: str, found: dict[str, Moved]) -> None:
    """Print a line for each server, and whether natsctl's targets are met."""
    for name, (per_s, most_mb) in found.items():
        line = f"  {work:10} {name:20} {per_s:8,.0f} MB/s   memory {most_mb:6,.0f} MB"
        if name == servers.NATIVE:
            if servers.LAZY in found:
                ratio = per_s / found[servers.LAZY].per_s
                line += f"   / nats-server {ratio:.2f} (target {RATIO:g}: {verdict(ratio >= RATIO)})"
            if most_mb:
                line += f"   memory (target {MEMORY_MB:g}: {verdict(most_mb <= MEMORY_MB)})"
        print(line, flush=True)


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=WHOLE)
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout of natsctl")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure both sizes of messages."""
    options = parsed()
    candidates = servers.candidates(options.against)
    for size in SIZES:
        print(f"\n{options.megabytes:,} MB in messages of {size:,} bytes")
        rows: dict[str, dict[str, Moved]] = {"snapshot": {}, "restore": {}}
        for candidate in candidates:
            with (
                tempfile.TemporaryDirectory(prefix="natsctl-archives-") as folder,
                tempfile.TemporaryFile() as file,
                candidate.serving(Path(folder)) as server,
            ):
                for work, figures in asyncio.run(moved(server, options.megabytes, size, file)).items():
                    rows[work][candidate.name] = figures
        for work, found in rows.items():
            report(work, found)
        for version in (1, 2):
            writer = candidates[0]._replace(config=f"jetstream {{ archive_version: {version} }}\n")
            took_s = verified(writer, options.megabytes, size)
            line = f"  backup verify, version {version}: {took_s:.2f} s"
            if options.megabytes >= WHOLE:  # of less the start of the command is too large a part
                most_s = VERIFY_S * options.megabytes / WHOLE
                line += f" (target {most_s:g}: {verdict(took_s <= most_s)})"
            print(line, flush=True)


if __name__ == "__main__":
    main()
