"""Growth of costs on one node, natsctl and nats-server: `python -m bench.scale`.

Seven curves: messages in one stream, subjects in one stream, filters of one consumer, streams on one server, consumers
on one stream, consumers of a stream that keeps messages only while somebody wants them, queue subscriptions that a
client restores. Each row is one size on both servers in turn; a ratio is natsctl's time (or memory, or CPU where the
title says so) over nats-server's, so below 1 natsctl needs less. natsctl syncs before every ack (its default),
nats-server has its lazy default. The sizes of a run are arguments; the largest ones (10 million messages, 10,000
streams) take minutes and want a machine that does nothing else. `--targets` runs the sizes that have a target, with 10
million messages among them, and nothing else.
Without nats-server on PATH natsctl's figures stand alone. `NATSCTL_PURE=1` measures natsctl in plain Python.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from functools import partial
from typing import Final

from bench.crowds import many_consumers, many_streams, many_wants, restored
from bench.measure import (
    ANSWER_WITHIN_S,
    Row,
    Target,
    api,
    consumer,
    cpu_ns,
    fetched,
    fill,
    measure,
    restarted,
    rss_mb,
    timed,
)
from natsctl.testing import process
from natsctl.testing.process import Kind, ServerProcess, reference_binary
from tests.support.raw_client import RawClient

READY_WITHIN_S: Final = 300.0
GROUPS: Final = 1000
"""Second tokens of the subjects that consumers filter by."""
SETTLED_S: Final = 3.0
"""How long a server may work on after the last publish."""
TARGETS: Final[dict[tuple[str, int], dict[str, Target]]] = {
    ("messages", 10_000_000): {"restarted_mb": Target(1.0)},
    ("subjects", 1_000_000): {"first wildcard look": Target(1.0), "filtered consumer, middle": Target(1.0)},
    ("filters", 1_000_000): {
        f"{count} filters {shape}": Target(1.5) for count in (30, 300) for shape in ("a.N.>", "a.*.N.>")
    },
    ("consumers", 1000): {"publish_per_s": Target(0.8), "message for all": Target(0.002, ratio=False)},
}
"""Limits of figures by the curve and the size that has them."""


async def a_long_stream(server: ServerProcess, count: int, subjects: int) -> Row:
    """Measure one stream of `count` messages on `subjects` subjects."""
    row: Row = {}
    client = await RawClient.connect(server.url)
    await api(client, b"STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"], "allow_direct": True})
    row["publish_per_s"] = await fill(client, count, lambda n: b"a.%d.x" % (n * 7919 % subjects))
    await client.close()
    client, row["ready after stop"] = await restarted(server, killed=False)
    row["first wildcard look"] = await timed(consumer(client, "look", filter_subject="a.*.x"))
    await api(client, b"CONSUMER.DELETE.A.look")
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


async def wide_filters(server: ServerProcess, count: int) -> Row:
    """Measure the CPU of making a consumer with many wildcard filters on `count` subjects and fetching 100 messages."""
    row: Row = {}
    client = await RawClient.connect(server.url)
    await api(client, b"STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"], "storage": "memory"})
    await fill(client, count, lambda n: b"a.%d.%d.x" % (n % GROUPS, n // GROUPS))
    await asyncio.sleep(SETTLED_S)
    for shape in ("a.N.>", "a.*.N.>"):
        for number in (30, 300):
            name = f"{number} filters {shape}"
            durable = f"C{len(row)}"
            used = cpu_ns(server.pid, all_threads=True)
            await consumer(client, durable, filter_subjects=[shape.replace("N", str(token)) for token in range(number)])
            await fetched(client, durable.encode(), 100)
            row[name] = (cpu_ns(server.pid, all_threads=True) - used) / 1e9
            await api(client, b"CONSUMER.DELETE.A." + durable.encode())
    await client.close()
    return row


def sizes(text: str) -> list[int]:
    """Return the numbers of a list such as `1e5,1e6`; an empty list skips the curve."""
    return [int(float(part)) for part in text.split(",") if part]


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=sizes, default=sizes("1e5,1e6"), help="messages on 1,000 subjects")
    parser.add_argument("--subjects", type=sizes, default=sizes("1e4,1e5"), help="subjects, one message each")
    parser.add_argument("--filters", type=sizes, default=sizes("1e5"), help="subjects of many filters, CPU")
    parser.add_argument("--streams", type=sizes, default=sizes("1e3"))
    parser.add_argument("--consumers", type=sizes, default=sizes("100,1e3"))
    parser.add_argument("--wants", type=sizes, default=sizes("1e3"), help="consumers on an interest stream")
    parser.add_argument("--restored", type=sizes, default=sizes("1e5"), help="queue subscriptions of one client")
    parser.add_argument("--alone", action="store_true", help="natsctl without nats-server")
    parser.add_argument("--targets", action="store_true", help="the sizes that have targets, alone")
    options = parser.parse_args(arguments)
    if options.targets:
        for curve in ("messages", "subjects", "filters", "streams", "consumers", "wants", "restored"):
            setattr(options, curve, [count for name, count in TARGETS if name == curve])
    return options


def main() -> None:
    """Run the selected curves."""
    options = parsed()
    kinds: list[Kind] = ["natsctl", "reference"]
    if options.alone or reference_binary() is None:
        kinds = ["natsctl"]
    process.READY_WITHIN_S = process.STOP_WITHIN_S = READY_WITHIN_S
    for count in options.messages:
        title = f"{count:,} messages on 1,000 subjects"
        work = partial(a_long_stream, count=count, subjects=1000)
        measure(title, kinds, work, TARGETS.get(("messages", count), {}))
    for count in options.subjects:
        title = f"{count:,} messages, each on its own subject"
        work = partial(a_long_stream, count=count, subjects=count)
        measure(title, kinds, work, TARGETS.get(("subjects", count), {}))
    for count in options.filters:
        title = f"CPU of a consumer with many filters, {count:,} subjects"
        measure(title, kinds, partial(wide_filters, count=count), TARGETS.get(("filters", count), {}))
    for count in options.streams:
        measure(f"{count:,} streams", kinds, partial(many_streams, count=count))
    for count in options.consumers:
        title = f"{count:,} consumers on one stream"
        measure(title, kinds, partial(many_consumers, count=count), TARGETS.get(("consumers", count), {}))
    for count in options.wants:
        measure(f"{count:,} consumers on one interest stream", kinds, partial(many_wants, count=count))
    for count in options.restored:
        measure(f"{count:,} queue subscriptions restored, a subject each", kinds, partial(restored, count=count))
        title = f"{count:,} queue subscriptions restored, one group on one subject"
        measure(title, kinds, partial(restored, count=count, shared=True))


if __name__ == "__main__":
    main()
