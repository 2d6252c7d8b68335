"""How costs grow on one node, natsctl beside the reference server: `python -m bench.scale`.

Four curves: messages in one stream, subjects in one stream, streams on one server, consumers on one stream. Each row
is one size on both servers in turn; a ratio is natsctl's time (or memory) over the reference's, so below 1 natsctl
needs less. natsctl syncs before every ack (its default), the reference has its lazy default. The sizes of a run are
arguments; the largest ones (10 million messages, 10,000 streams) take minutes and want a machine that does nothing
else. Without nats-server on PATH natsctl's figures stand alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Final

from natsctl.testing import process
from natsctl.testing.process import Kind, ServerProcess, reference_binary
from natsctl.testing.rawclient import RawClient

API: Final = b"$JS.API."
BATCH: Final = 4000
"""Messages sent before the ack of the last one is awaited; the reference drops what it can not queue."""
PAYLOAD: Final = b"x" * 128
PIPELINE: Final = 64
"""API requests under way at once."""
ANSWER_WITHIN_S: Final = 120.0
READY_WITHIN_S: Final = 300.0

Row = dict[str, float]
"""Figures by name; seconds unless the name ends in _per_s, _mb or _kb."""


async def api(client: RawClient, subject: bytes, body: object = None) -> dict[str, object]:
    """Return the answer of one API request; raises RuntimeError where it is an error."""
    payload = b"" if body is None else json.dumps(body).encode()
    _, answer = await client.request(API + subject, payload, ANSWER_WITHIN_S)
    found: dict[str, object] = json.loads(answer)
    if "error" in found:
        raise RuntimeError(f"{subject.decode()}: {found['error']}")
    return found


async def timed(work: Awaitable[object]) -> float:
    """Return how many seconds `work` takes."""
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


async def pipelined(count: int, make: Callable[[int], Awaitable[object]]) -> float:
    """Do `make(0)`, `make(1)`, … some at a time and return the seconds."""
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


async def restarted(server: ServerProcess, killed: bool) -> tuple[RawClient, float]:
    """Start the server again; return a client and the seconds until the stream A answers."""
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
    """Return when `batch` messages of a pull consumer have come."""
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


async def consumer(client: RawClient, name: str, **config: object) -> dict[str, object]:
    """Make a durable pull consumer on the stream A."""
    wanted = {"durable_name": name, "ack_policy": "explicit", **config}
    body = {"stream_name": "A", "config": wanted}
    return await api(client, b"CONSUMER.DURABLE.CREATE.A.%s" % name.encode(), body)


async def a_long_stream(server: ServerProcess, count: int, subjects: int) -> Row:
    """Measure one stream of `count` messages on `subjects` subjects."""
    row: Row = {}
    client = await RawClient.connect(server.url)
    await api(client, b"STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"], "allow_direct": True})
    row["publish_per_s"] = await fill(client, count, lambda n: b"a.%d.x" % (n * 7919 % subjects))
    await client.close()
    client, row["ready after stop"] = await restarted(server, killed=False)
    await client.close()
    client, row["ready after kill -9"] = await restarted(server, killed=True)
    row["restarted_mb"] = rss_mb(server)
    await consumer(client, "first")
    row["first fetch of 100"] = await timed(fetched(client, b"first", 100))
    middle = {"deliver_policy": "by_start_sequence", "opt_start_seq": count // 2}
    row["filtered consumer, middle"] = await timed(consumer(client, "mid", filter_subject="a.*.x", **middle))
    row["rare subject, middle"] = await timed(consumer(client, "rare", filter_subject="a.7.x", **middle))
    row["last per subject"] = await timed(
        consumer(client, "last", filter_subject="a.*.x", deliver_policy="last_per_subject")
    )
    row["info of one subject"] = await timed(api(client, b"STREAM.INFO.A", {"subjects_filter": "a.17.x"}))
    row["info of all subjects"] = await timed(api(client, b"STREAM.INFO.A", {"subjects_filter": "a.>"}))
    multi = json.dumps({"multi_last": [f"a.{n}.x" for n in range(0, min(subjects, 1000), 2)]}).encode()
    row["direct get of 500 last"] = await timed(client.request(b"$JS.API.DIRECT.GET.A", multi, ANSWER_WITHIN_S))
    row["publish again_per_s"] = await fill(client, 20_000, lambda n: b"a.%d.x" % (n * 7919 % subjects))
    row["purge one subject"] = await timed(api(client, b"STREAM.PURGE.A", {"filter": "a.7.x"}))
    row["purge half"] = await timed(api(client, b"STREAM.PURGE.A", {"filter": "a.*.x", "seq": count // 2}))
    await client.close()
    return row


async def many_streams(server: ServerProcess, count: int) -> Row:
    """Measure a server with `count` streams."""
    row: Row = {}
    client = await RawClient.connect(server.url)
    idle_mb = rss_mb(server)

    def create(number: int) -> Awaitable[object]:
        name = "A" if not number else f"S{number}"
        return api(client, b"STREAM.CREATE." + name.encode(), {"name": name, "subjects": [f"{name}.>"]})

    row["create_per_s"] = count / await pipelined(count, create)
    row["memory of a stream_kb"] = (rss_mb(server) - idle_mb) * 1024 / count
    row["publish to each_per_s"] = (count - 1) / await pipelined(
        count - 1, lambda number: client.request(b"S%d.x" % (number + 1), PAYLOAD, ANSWER_WITHIN_S)
    )
    await client.close()
    client, row["ready after stop"] = await restarted(server, killed=False)
    await client.close()
    client, row["ready after kill -9"] = await restarted(server, killed=True)
    row["names of all"] = await timed(api(client, b"STREAM.NAMES"))
    await client.close()
    return row


async def many_consumers(server: ServerProcess, count: int) -> Row:
    """Measure one stream with `count` durable pull consumers, each on a subject of its own."""
    row: Row = {}
    client = await RawClient.connect(server.url)
    await api(client, b"STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"], "max_consumers": count})
    idle_mb = rss_mb(server)
    row["create_per_s"] = count / await pipelined(
        count, lambda number: consumer(client, f"c{number}", filter_subject=f"a.{number}.x")
    )
    row["memory of a consumer_kb"] = (rss_mb(server) - idle_mb) * 1024 / count
    row["publish_per_s"] = await fill(client, 20_000, lambda n: b"a.%d.x" % (n % count))
    row["fetch of 1"] = await timed(fetched(client, b"c7", 1))
    await client.close()
    client, row["ready after stop"] = await restarted(server, killed=False)
    await client.close()
    client, row["ready after kill -9"] = await restarted(server, killed=True)
    row["fetch of 1 after restart"] = await timed(fetched(client, b"c9", 1))
    await client.close()
    return row


def shown(name: str, value: float) -> str:
    """Return a figure with its unit."""
    for ending, unit in (("_per_s", "/s"), ("_mb", " MB"), ("_kb", " KB")):
        if name.endswith(ending):
            return f"{value:,.0f}{unit}" if value >= 100 or ending == "_per_s" else f"{value:.1f}{unit}"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"


def report(title: str, rows: dict[Kind, Row]) -> None:
    """Print one size: a line for each figure, with the ratio where both servers ran."""
    print(f"\n{title}")
    own, reference = rows["natsctl"], rows.get("reference", {})
    for name, value in own.items():
        line = f"  {name.rpartition('_')[0] if name.endswith(('_mb', '_kb')) else name:28} {shown(name, value):>14}"
        if name in reference:
            line += f"   reference {shown(name, reference[name]):>14}   ratio {value / reference[name]:.2f}"
        print(line, flush=True)


def measure(title: str, kinds: list[Kind], work: Callable[[ServerProcess], Coroutine[object, object, Row]]) -> None:
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
    report(title, rows)


def sizes(text: str) -> list[int]:
    """Return the numbers of a list such as `1e5,1e6`; empty leaves the curve out."""
    return [int(float(part)) for part in text.split(",") if part]


def main() -> None:
    """Run the curves that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=sizes, default=sizes("1e5,1e6"), help="messages on 1,000 subjects")
    parser.add_argument("--subjects", type=sizes, default=sizes("1e4,1e5"), help="subjects, one message each")
    parser.add_argument("--streams", type=sizes, default=sizes("1e3"))
    parser.add_argument("--consumers", type=sizes, default=sizes("100,1e3"))
    parser.add_argument("--alone", action="store_true", help="natsctl without the reference")
    options = parser.parse_args()
    kinds: list[Kind] = ["natsctl", "reference"]
    if options.alone or reference_binary() is None:
        kinds = ["natsctl"]
    process.READY_WITHIN_S = process.STOP_WITHIN_S = READY_WITHIN_S
    for count in options.messages:
        measure(f"{count:,} messages on 1,000 subjects", kinds, partial(a_long_stream, count=count, subjects=1000))
    for count in options.subjects:
        title = f"{count:,} messages, each on its own subject"
        measure(title, kinds, partial(a_long_stream, count=count, subjects=count))
    for count in options.streams:
        measure(f"{count:,} streams", kinds, partial(many_streams, count=count))
    for count in options.consumers:
        measure(f"{count:,} consumers on one stream", kinds, partial(many_consumers, count=count))


if __name__ == "__main__":
    main()
