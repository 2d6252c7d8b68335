"""What one client's input of n items costs every other client, on natsctl and nats-server: `python -m bench.inputs`.

Each input is sent with ten times as many items as before, up to what max_payload allows, to a server that has nothing
else to do, while `bench.loop` times PINGs of another client. A line has, for each server, the longest PING, the median,
the most CPU that the server used inside one (`bench.loop`), and the time until the sender was served, in milliseconds.
An input that took a server longer than `TOO_LONG_S` is not sent to it in the next size. The targets: no PING costs more
CPU than `CPU_S` (natsctl), and ten times as many items cost at most `GROWTH` times as much.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import multiprocessing
import os
import random
import resource
import signal
import ssl
import struct
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from bench import loop, servers
from bench.measure import ANSWER_WITHIN_S, verdict
from bench.startup import free_port
from natsctl.testing.certificates import Authority
from natsctl.testing.process import ServerProcess
from tests.support.callouts import ISSUER, SUBJECT, claims_of
from tests.support.callouts import Request as CalloutRequest
from tests.support.operators import Operator, OperatorAccount
from tests.support.raw_client import Disconnected, RawClient

CPU_S: Final = 0.020
GROWTH: Final = 20
"""Ten times n log n, and what a busy machine adds."""
TOO_LONG_S: Final = 20.0
QUIET_S: Final = 0.1
FLOOR_S: Final = 0.010
"""Times below this are noise: growth is counted from here."""

CONFIG: Final = """
websocket { listen: "127.0.0.1:-1", no_tls: true, compression: true }
accounts { $SYS { users: [{user: sys, password: sys}] } }
"""


class Waits(NamedTuple):
    """Seconds next to one input: of the PINGs, and the time until its sender was served."""

    longest_s: float
    median_s: float
    cpu_s: float
    served_s: float

    def __str__(self) -> str:
        pings = f"{self.longest_s * 1000:7.1f} {self.median_s * 1000:6.2f} {self.cpu_s * 1000:6.1f}"
        return f"{pings} {self.served_s * 1000:7.0f}"


Act = TypeVar("Act", bound=Callable[["Peers", int], Awaitable[object]])


class Peers(NamedTuple):
    """The connections of one run: a client, the addresses of the listeners, and the server's process."""

    client: RawClient
    url: str
    websocket: str
    pid: int


class Input(NamedTuple):
    """An input with its numbers of items, and the configuration that the server needs."""

    act: Callable[[Peers, int], Awaitable[object]]
    sizes: tuple[int, ...]
    config: str


INPUTS: dict[str, Input] = {}


def sized(name: str, *sizes: int, config: str = CONFIG) -> Callable[[Act], Act]:
    """Add an input to the table."""

    def add(act: Act) -> Act:
        INPUTS[name] = Input(act, sizes, config)
        return act

    return add


async def api(peers: Peers, verb: str, body: object) -> dict[str, Any]:
    """Return the answer to an API request, an error too: what is refused costs as well."""
    text = json.dumps(body, separators=(",", ":")).encode()
    _, answer = await peers.client.request(b"$JS.API." + verb.encode(), text, ANSWER_WITHIN_S)
    found: dict[str, Any] = json.loads(answer or b"{}")
    return found


async def create(peers: Peers, name: str = "A", **config: Any) -> dict[str, Any]:
    """Create a stream in memory."""
    return await api(peers, f"STREAM.CREATE.{name}", {"name": name, "storage": "memory", **config})


def subjects(count: int, prefix: str = "s") -> list[str]:
    """Return different subjects."""
    return [f"{prefix}.{number}" for number in range(count)]


# Configurations of streams


@sized("stream: subjects", 80, 800, 8_000, 80_000)
async def many_subjects(peers: Peers, count: int) -> None:
    """Create a stream."""
    await create(peers, subjects=subjects(count))


@sized("stream: subjects of one token", 80, 800, 8_000, 80_000)
async def many_names(peers: Peers, count: int) -> None:
    """Create a stream whose subjects have no common parent."""
    await create(peers, subjects=[f"s{number}" for number in range(count)])


@sized("stream: wide subjects", 80, 800, 8_000, 60_000)
async def wide_subjects(peers: Peers, count: int) -> None:
    """Create a stream of patterns; the last two overlap."""
    await create(peers, subjects=[f"s.*.{number}" for number in range(count)] + ["s.x.*"])


@sized("stream: subjects, update", 80, 800, 8_000, 60_000)
async def updated_subjects(peers: Peers, count: int) -> None:
    """Give a stream other subjects."""
    await create(peers, subjects=["first"])
    await api(peers, "STREAM.UPDATE.A", {"name": "A", "storage": "memory", "subjects": subjects(count)})


@sized("stream: sources", 50, 500, 5_000, 30_000)
async def many_sources(peers: Peers, count: int) -> None:
    """Create a stream of many missing streams; it is deleted again, because each is looked for again and again."""
    await create(peers, sources=[{"name": f"O{number}"} for number in range(count)])
    await api(peers, "STREAM.DELETE.A", {})


@sized("stream: sources, update", 50, 500, 5_000, 20_000)
async def updated_sources(peers: Peers, count: int) -> None:
    """Give a stream with a message many missing streams as sources."""
    await create(peers, subjects=["s"])
    await peers.client.request(b"s", b"x", ANSWER_WITHIN_S)
    sources = [{"name": f"O{number}"} for number in range(count)]
    await api(peers, "STREAM.UPDATE.A", {"name": "A", "storage": "memory", "subjects": ["s"], "sources": sources})
    await api(peers, "STREAM.DELETE.A", {})


@sized("stream: consumers, delete", 10, 100, 1_000, 10_000)
async def deleted_consumers(peers: Peers, count: int) -> None:
    """Delete a stream with many consumers."""
    await create(peers, subjects=["s"], max_consumers=count)
    for number in range(count):
        config = {"durable_name": f"C{number}", "ack_policy": "explicit"}
        await api(peers, f"CONSUMER.DURABLE.CREATE.A.C{number}", {"stream_name": "A", "config": config})
    await api(peers, "STREAM.DELETE.A", {})


@sized("stream: filters of one origin", 50, 500, 5_000, 20_000)
async def many_filters(peers: Peers, count: int) -> None:
    """Create a stream with many sources of one stream with many subjects, and itself as their origin."""
    await create(peers, "O", subjects=subjects(count), sources=[{"name": "A"}])
    await create(peers, sources=[{"name": "O", "filter_subject": f"s.{number}"} for number in range(count)])
    await api(peers, "STREAM.DELETE.A", {})


@sized("stream: external prefixes", 50, 500, 5_000, 12_000)
async def many_prefixes(peers: Peers, count: int) -> None:
    """Create a stream that sources from one with many subjects, and from many of other accounts."""
    await create(peers, "O", subjects=subjects(count))
    external = [
        {"name": f"E{number}", "external": {"api": f"$JS.d{number}.API", "deliver": f"d{number}"}}
        for number in range(count)
    ]
    await create(peers, sources=[{"name": "O"}, *external])
    await api(peers, "STREAM.DELETE.A", {})


@sized("stream: transforms of a source", 50, 500, 5_000, 25_000)
async def many_transforms(peers: Peers, count: int) -> None:
    """Create a stream with many transforms of one source."""
    transforms = [{"src": f"s.{number}", "dest": f"d.{number}"} for number in range(count)]
    await create(peers, sources=[{"name": "O", "subject_transforms": transforms}])
    await api(peers, "STREAM.DELETE.A", {})


@sized("stream: transforms of a mirror", 50, 500, 5_000, 25_000)
async def many_mirror_transforms(peers: Peers, count: int) -> None:
    """Create a mirror with many transforms."""
    transforms = [{"src": f"s.{number}", "dest": f"d.{number}"} for number in range(count)]
    await create(peers, mirror={"name": "O", "subject_transforms": transforms})
    await api(peers, "STREAM.DELETE.A", {})


@sized("stream: transforms of many sources", 50, 500, 5_000, 200_000)
async def nested_transforms(peers: Peers, count: int) -> None:
    """Create a stream whose sources have empty transforms, a thousand each."""
    sources = [
        {"name": f"O{number}", "subject_transforms": [{}] * min(count, 1_000)} for number in range(-(-count // 1_000))
    ]
    await create(peers, sources=sources)
    await api(peers, "STREAM.DELETE.A", {})


async def transformed(peers: Peers, dest: str, subject: bytes) -> None:
    """Create a stream with a transform, and publish to it."""
    await create(peers, subjects=["a.>"], subject_transform={"src": "a.*", "dest": dest})
    for _ in range(20):
        peers.client.publish(subject, b"")
    await peers.client.flush()


@sized("stream: tokens of a transform", 80, 800, 8_000, 300_000)
async def many_targets(peers: Peers, count: int) -> None:
    """Create a stream with a transform that repeats a token, and publish to it."""
    await transformed(peers, ".".join(["$1"] * count), b"a.x")


@sized("stream: different tokens of a transform", 80, 800, 8_000, 100_000)
async def different_targets(peers: Peers, count: int) -> None:
    """Create a stream with a transform of many texts, and publish to it."""
    await transformed(peers, ".".join(f"b{number}" for number in range(count)), b"a.x")


@sized("stream: calls of a transform", 80, 800, 8_000, 40_000)
async def many_calls(peers: Peers, count: int) -> None:
    """Create a stream with a transform that calls functions, each with a long result, and publish to it."""
    await transformed(peers, ".".join(["{{slicefromleft(1,1)}}"] * count), b"a." + b"x" * 3_000)


@sized("stream: unended calls of a transform", 80, 800, 8_000, 80_000)
async def unended_calls(peers: Peers, count: int) -> None:
    """Create a stream with a transform of one token that begins a call again and again."""
    await transformed(peers, "{{wildcard(" * count + "}}", b"a.x")


@sized("stream: arguments of a transform", 80, 800, 8_000, 400_000)
async def many_arguments(peers: Peers, count: int) -> None:
    """Create a stream with a transform that partitions by many tokens."""
    await transformed(peers, "{{partition(9" + ",1" * count + ")}}", b"a.x")


@sized("stream: tokens of a transform's source", 80, 800, 2_000)
async def many_stars(peers: Peers, count: int) -> None:
    """Create a stream with a transform of subjects of many tokens, and publish to it."""
    source, dest = ".".join(["*"] * count), ".".join(f"${number}" for number in range(count, 0, -1))
    await create(peers, subjects=["a.>"], subject_transform={"src": f"a.{source}", "dest": f"a.{dest}"})
    for number in range(20):
        peers.client.publish(b".".join([b"a"] * count + [b"%d" % number]), b"")
    await peers.client.flush()


@sized("stream: metadata", 80, 800, 8_000)
async def much_metadata(peers: Peers, count: int) -> None:
    """Create a stream with as much metadata as one may have."""
    await create(peers, subjects=["m"], metadata={f"k{number}": "v" for number in range(count)})


@sized("stream: tokens of a subject", 80, 800, 8_000, 80_000)
async def many_tokens(peers: Peers, count: int) -> None:
    """Create a stream on patterns of many tokens."""
    pattern = ".".join(["*"] * count)
    await create(peers, subjects=[f"a.{pattern}", f"b.{pattern}"], republish={"src": f"a.{pattern}", "dest": "r.x"})


@sized("stream: names by subject", 80, 800, 8_000, 60_000)
async def names_by_subject(peers: Peers, count: int) -> None:
    """List by a subject again and again where a stream has many."""
    await create(peers, subjects=subjects(count))
    await asyncio.gather(*(api(peers, "STREAM.NAMES", {"subject": f"t.{number}"}) for number in range(100)))


@sized("stream: infos", 80, 800, 8_000, 40_000)
async def many_infos(peers: Peers, count: int) -> None:
    """Ask again and again for the info of a stream with many subjects."""
    await create(peers, subjects=subjects(count))
    await asyncio.gather(*(api(peers, "STREAM.INFO.A", {}) for _ in range(50)))


# Consumers and reads


@sized("consumer: filters", 80, 800, 8_000, 60_000)
async def consumer_filters(peers: Peers, count: int) -> None:
    """Create a consumer."""
    await create(peers, subjects=["s.>"])
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subjects": subjects(count)}
    await api(peers, "CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": config})


@sized("consumer: filters, update", 80, 800, 8_000, 60_000)
async def consumer_update(peers: Peers, count: int) -> None:
    """Give a consumer other filters."""
    await create(peers, subjects=["s.>"])
    config: dict[str, Any] = {"durable_name": "C", "ack_policy": "explicit", "filter_subjects": ["s.x"]}
    await api(peers, "CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": config})
    config["filter_subjects"] = subjects(count)
    await api(peers, "CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": config})


@sized("consumer: filters, many subjects", 80, 800, 8_000, 40_000)
async def consumer_of_many(peers: Peers, count: int) -> None:
    """Create a push consumer on a work queue with as many subjects as it has filters, and one that collides."""
    await create(peers, subjects=subjects(count), retention="workqueue")
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subjects": subjects(count)}
    await api(peers, "CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": config})
    config["durable_name"] = "D"
    await api(peers, "CONSUMER.DURABLE.CREATE.A.D", {"stream_name": "A", "config": config})


@sized("consumer: wide filters, messages", 80, 800, 8_000, 40_000)
async def consumer_wide(peers: Peers, count: int) -> None:
    """Create a consumer of patterns on a stream with messages."""
    await create(peers, subjects=["s.>"])
    peers.client.send(b"".join(b"PUB s.%d.x 1\r\nx\r\n" % number for number in range(5_000)))
    await peers.client.flush()
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subjects": [f"s.{n}.*" for n in range(count)]}
    await api(peers, "CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": config})


@sized("consumer: backoff", 80, 800, 8_000, 80_000)
async def consumer_backoff(peers: Peers, count: int) -> None:
    """Create a consumer with many waits."""
    await create(peers, subjects=["s.>"])
    config = {"durable_name": "C", "ack_policy": "explicit", "backoff": [10**9] * count}
    await api(peers, "CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": config})


@sized("consumer: priority groups", 80, 800, 8_000, 80_000)
async def consumer_groups(peers: Peers, count: int) -> None:
    """Create a consumer with many groups."""
    await create(peers, subjects=["s.>"])
    groups = [f"g{number}" for number in range(count)]
    config = {"durable_name": "C", "ack_policy": "explicit", "priority_policy": "overflow", "priority_groups": groups}
    await api(peers, "CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": config})


@sized("direct get: multi_last", 80, 800, 8_000, 80_000)
async def direct_get(peers: Peers, count: int) -> None:
    """Ask for the last messages of many subjects."""
    await create(peers, subjects=["s.>"], allow_direct=True)
    peers.client.send(b"".join(b"PUB s.%d 1\r\nx\r\n" % number for number in range(1_000)))
    await peers.client.flush()
    body = json.dumps({"multi_last": subjects(count)}, separators=(",", ":")).encode()
    await peers.client.request(b"$JS.API.DIRECT.GET.A", body, ANSWER_WITHIN_S)


@sized("direct get: wide multi_last", 80, 800, 8_000, 80_000)
async def wide_direct_get(peers: Peers, count: int) -> None:
    """Ask for the last messages of many patterns."""
    await create(peers, subjects=["s.>"], allow_direct=True)
    peers.client.send(b"".join(b"PUB s.%d.x 1\r\nx\r\n" % number for number in range(1_000)))
    await peers.client.flush()
    body = json.dumps({"multi_last": [f"s.{n}.*" for n in range(count)]}, separators=(",", ":")).encode()
    await peers.client.request(b"$JS.API.DIRECT.GET.A", body, ANSWER_WITHIN_S)


@sized("request: JSON keys", 80, 800, 8_000, 80_000)
async def many_keys(peers: Peers, count: int) -> None:
    """Send a request with many unknown fields."""
    await api(peers, "STREAM.CREATE.A", {"name": "A", **{f"k{number}": 1 for number in range(count)}})


async def refused(peers: Peers, text: bytes) -> None:
    """Send a request with such text in it."""
    await peers.client.request(b"$JS.API.STREAM.CREATE.A", b'{"name":"A","x":' + text + b"}", ANSWER_WITHIN_S)


@sized("request: integers", 500, 5_000, 50_000, 500_000)
async def many_integers(peers: Peers, count: int) -> None:
    """Send a request with many numbers."""
    await refused(peers, b"[%b]" % b",".join([b"1"] * count))


@sized("request: floats", 250, 2_500, 25_000, 250_000)
async def many_floats(peers: Peers, count: int) -> None:
    """Send a request with many fractions."""
    await refused(peers, b"[%b]" % b",".join([b"1.5"] * count))


@sized("request: empty lists", 300, 3_000, 30_000, 300_000)
async def many_lists(peers: Peers, count: int) -> None:
    """Send a request with many empty lists."""
    await refused(peers, b"[%b]" % b",".join([b"[]"] * count))


@sized("request: broken UTF-8", 900, 9_000, 90_000, 900_000)
async def broken_text(peers: Peers, count: int) -> None:
    """Send a request with a text of impossible bytes."""
    await refused(peers, b'"%b"' % (b"\xff" * count))


@sized("request: lone surrogates", 150, 1_500, 15_000, 150_000)
async def lone_surrogates(peers: Peers, count: int) -> None:
    """Send a request with a text of halves of characters."""
    await refused(peers, b'"%b"' % (rb"\ud800" * count))


@sized("request: different integers after broken UTF-8", 100, 1_000, 10_000, 100_000)
async def integers_after_broken_text(peers: Peers, count: int) -> None:
    """Send a request with many numbers that no quick decoder reads."""
    await refused(peers, b'["\xff",%b]' % b",".join(b"%d" % (10**8 + number) for number in range(count)))


@sized("request: values in a row", 300, 3_000, 30_000, 300_000)
async def many_values(peers: Peers, count: int) -> None:
    """Send a request of many objects."""
    await peers.client.request(b"$JS.API.STREAM.CREATE.A", b"{} " * count, ANSWER_WITHIN_S)


@sized("request: length of an unknown name", 900, 9_000, 90_000, 900_000)
async def long_name(peers: Peers, count: int) -> None:
    """Send a request with a field whose name has to be quoted."""
    await peers.client.request(b"$JS.API.STREAM.CREATE.A", b'{"%b":1}' % (b"\x7f" * count), ANSWER_WITHIN_S)


@sized("request: length of an unknown value", 900, 9_000, 90_000, 900_000)
async def long_value(peers: Peers, count: int) -> None:
    """Send a request with a value that has to be quoted."""
    await api(peers, "STREAM.CREATE.A", {"name": "A", "retention": "\x7f" * (count // 6)})


@sized("request: pull, fractions", 250, 2_500, 25_000, 250_000)
async def long_pull(peers: Peers, count: int) -> None:
    """Send a pull request with many fractions, and one that a quick decoder does not read."""
    await create(peers, subjects=["s.>"])
    await api(peers, "CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": {"durable_name": "C"}})
    for text in (b"1", b'"\xff"'):
        body = b'{"batch":%b,"no_wait":true,"x":[%b]}' % (text, b",".join([b"1.5"] * count))
        await peers.client.request(b"$JS.API.CONSUMER.MSG.NEXT.A.C", body, ANSWER_WITHIN_S)


@sized("request: direct get, fractions", 250, 2_500, 25_000, 250_000)
async def long_direct_get(peers: Peers, count: int) -> None:
    """Send a direct get with many fractions."""
    await create(peers, subjects=["s.>"], allow_direct=True)
    body = b'{"seq":1,"x":[%b]}' % b",".join([b"1.5"] * count)
    await peers.client.request(b"$JS.API.DIRECT.GET.A", body, ANSWER_WITHIN_S)


@sized("request: depth of JSON", 80, 800, 8_000, 80_000, 500_000)
async def deep_json(peers: Peers, count: int) -> None:
    """Send a request of nested arrays."""
    body = b'{"name":"A","metadata":' + b"[" * count + b"]" * count + b"}"
    await peers.client.request(b"$JS.API.STREAM.CREATE.A", body, ANSWER_WITHIN_S)


@sized("request: digits of a number", 80, 800, 8_000, 80_000, 800_000)
async def long_number(peers: Peers, count: int) -> None:
    """Send a request with a long number."""
    body = b'{"name":"A","max_msgs":' + b"9" * count + b"}"
    await peers.client.request(b"$JS.API.STREAM.CREATE.A", body, ANSWER_WITHIN_S)


# Messages


@sized("message: headers", 80, 800, 8_000, 80_000)
async def many_headers(peers: Peers, count: int) -> None:
    """Publish messages with many headers into a stream."""
    await create(peers, subjects=["s.>"], allow_msg_ttl=True, allow_msg_schedules=True, allow_rollup_hdrs=True)
    header = b"NATS/1.0\r\n" + b"".join(b"k%d: v\r\n" % number for number in range(count)) + b"\r\n"
    for _ in range(20):
        peers.client.publish(b"s.x", b"x", header=header)
    await peers.client.flush()


@sized(
    "message: headers of measured requests", 80, 800, 8_000, 80_000,
    config="""accounts {
      E { users: [{user: e, password: p}]
          exports: [{service: "s", latency: {sampling: headers, subject: "l"}}] }
      I { users: [{user: i, password: p}], imports: [{service: {account: E, subject: "s"}}] }
    }
    no_auth_user: i
    """,
)  # fmt: skip
async def many_tracing_headers(peers: Peers, count: int) -> None:
    """Send requests whose headers may say that their latency is measured."""
    service = await RawClient.connect(peers.url, user="e", **{"pass": "p"})
    service.send(b"SUB s 1\r\n")
    await service.flush()
    header = b"NATS/1.0\r\n" + b"".join(b"k%d: v\r\n" % number for number in range(count)) + b"\r\n"
    for _ in range(20):
        peers.client.publish(b"s", b"x", header=header)
    await peers.client.flush()
    await service.close()


@sized("message: tokens of a subject", 20, 200, 2_000)
async def long_subject(peers: Peers, count: int) -> None:
    """Subscribe to patterns that meet at every token, and publish to them."""
    tokens = ["a"] * count
    patterns = [".".join([*tokens[:at], "*", *tokens[at + 1 :]]) for at in range(min(count, 500))]
    peers.client.send(b"".join(b"SUB %s t%d\r\n" % (each.encode(), at) for at, each in enumerate(patterns)))
    for number in range(300):
        peers.client.publish(b".".join([b"a"] * (count - 1) + [b"%d" % number]), b"")
    await peers.client.flush()
    peers.client.send(b"".join(b"UNSUB t%d\r\n" % at for at in range(len(patterns))))


def meeting_patterns(client: RawClient, count: int, first: str) -> bytes:
    """Subscribe to patterns that meet at every token; return the beginning of subjects whose routes are long walks."""
    rest = ["a"] * (count - 1)
    patterns = [".".join([first, *rest[:at], "*", *rest[at + 1 :]]) for at in range(min(count - 1, 500))]
    client.send(b"".join(b"SUB %s t%d\r\n" % (each.encode(), at) for at, each in enumerate(patterns)))
    return ".".join([first, *rest[1:], ""]).encode()


@sized(
    "message: tokens, to another account", 20, 200, 2_000,
    config="""accounts {
      E { users: [{user: e, password: p}], exports: [{service: "s.>"}] }
      I { users: [{user: i, password: p}], imports: [{service: {account: E, subject: "s.>"}, to: "q.>"}] }
    }
    no_auth_user: i
    """,
)  # fmt: skip
async def long_requests(peers: Peers, count: int) -> None:
    """Send requests to a service whose account has patterns that meet at every token."""
    service = await RawClient.connect(peers.url, user="e", **{"pass": "p"})
    subject = meeting_patterns(service, count, "s")
    await service.flush()
    for number in range(5):
        peers.client.publish(b"q" + subject[1:] + b"%d" % number, b"")
    await peers.client.flush()
    await service.close()


@sized("message: tokens, republished", 20, 200, 2_000)
async def long_republish(peers: Peers, count: int) -> None:
    """Store messages that are republished among patterns that meet at every token."""
    await create(peers, subjects=["s.>"], republish={"src": "s.>", "dest": "r.>"})
    subject = meeting_patterns(peers.client, count, "r")
    for number in range(20):
        peers.client.publish(b"s" + subject[1:] + b"%d" % number, b"")
    await peers.client.flush()
    await asyncio.sleep(2)
    peers.client.send(b"".join(b"UNSUB t%d\r\n" % at for at in range(min(count - 1, 500))))


@sized("message: trace of many recipients", 100, 1_000, 10_000)
async def traced(peers: Peers, count: int) -> None:
    """Publish messages with a trace to many subscriptions of the same client, plain and compressed."""
    peers.client.send(b"".join(b"SUB t t%d\r\n" % number for number in range(count)))
    await peers.client.flush()
    for encoding in (b"", b"gzip"):
        header = b"NATS/1.0\r\nNats-Trace-Dest: trace\r\nAccept-Encoding: %b\r\n\r\n" % encoding
        peers.client.publish(b"t", b"", header=header)
        await peers.client.flush()
    peers.client.send(b"".join(b"UNSUB t%d\r\n" % number for number in range(count)))


@sized("message: acks and requests", 1_000, 10_000, 100_000)
async def many_requests(peers: Peers, count: int) -> None:
    """Send requests of an API that nobody answers to, many in a chunk."""
    await create(peers, subjects=["s.>"])
    peers.client.send(b"PUB $JS.API.STREAM.INFO.A 0\r\n\r\n" * count)
    await peers.client.flush()


@sized("operations: PING", 1_000, 10_000, 100_000)
async def many_pings(peers: Peers, count: int) -> None:
    """Send many PINGs at once."""
    peers.client._pongs += [asyncio.get_running_loop().create_future() for _ in range(count)]
    peers.client.send(b"PING\r\n" * count)
    await peers.client.flush()


@sized("operations: traced", 1_000, 10_000, 100_000, config=CONFIG + "trace: true\n")
async def traced_operations(peers: Peers, count: int) -> None:
    """Send many PINGs and messages at once while the log shows each."""
    peers.client.send(b"SUB t t\r\n" + b"PUB t 0\r\n\r\n" * count)
    await many_pings(peers, count)


@sized("operations: SUB and UNSUB", 1_000, 10_000, 100_000)
async def many_subs(peers: Peers, count: int) -> None:
    """Subscribe and unsubscribe, many at once."""
    peers.client.send(b"".join(b"SUB s.%d u%d\r\n" % (number, number) for number in range(count)))
    peers.client.send(b"".join(b"UNSUB u%d\r\n" % number for number in range(count)))
    await peers.client.flush()


@sized("operations: PUB on one subject", 1_000, 10_000, 100_000, 1_000_000)
async def many_pubs(peers: Peers, count: int) -> None:
    """Publish to nobody, many at once."""
    peers.client.send(b"PUB s 0\r\n\r\n" * count)
    await peers.client.flush()


@sized("operations: PUB with many recipients", 10, 100, 1_000)
async def many_recipients(peers: Peers, count: int) -> None:
    """Publish to many subscriptions of the publisher, which are on one subject."""
    peers.client.send(b"".join(b"SUB s v%d\r\n" % number for number in range(count)))
    peers.client.send(b"PUB s 0\r\n\r\n" * 1_000)
    peers.client.send(b"".join(b"UNSUB v%d\r\n" % number for number in range(count)))
    await peers.client.flush()


@sized("operations: empty lines", 1_000, 10_000, 100_000, 500_000)
async def many_oks(peers: Peers, count: int) -> None:
    """Send what means nothing."""
    peers.client.send(b"+OK\r\n" * count)
    await peers.client.flush()


# Subscriptions


def long_patterns(count: int, tokens: int = 2_000) -> list[bytes]:
    """Return patterns that differ at one token."""
    token = ["a"] * tokens
    return [".".join([*token[:at], "*", *token[at + 1 :]]).encode() for at in range(count)]


@sized("subscriptions: one publish among long ones", 5, 50, 500)
async def long_subscriptions(peers: Peers, count: int) -> None:
    """Publish once among subscriptions of 2,000 tokens that meet at every token."""
    patterns = long_patterns(count)
    peers.client.send(b"".join(b"SUB %b w%d\r\n" % (each, at) for at, each in enumerate(patterns)))
    peers.client.publish(b".".join([b"a"] * 1_999 + [b"x"]), b"")
    await peers.client.flush()


@sized("subscriptions: branches", 128, 1_024, 8_192, 65_536)
async def branching_subscriptions(peers: Peers, count: int) -> None:
    """Publish among subscriptions that differ in every token, all of which have to be looked at and none matches."""
    depth = count.bit_length() - 1
    patterns = [".".join("a*"[number >> at & 1] for at in range(depth)) + ".z" for number in range(count)]
    peers.client.send(b"".join(b"SUB %b b%d\r\n" % (each.encode(), at) for at, each in enumerate(patterns)))
    for number in range(20):
        peers.client.publish(b".".join([b"a"] * depth + [b"%d" % number]), b"")
    await peers.client.flush()


# Reads of streams with many subjects


async def filled(peers: Peers, count: int, **config: Any) -> None:
    """Create a stream with a message on each of many subjects."""
    await create(peers, subjects=["s.>"], allow_direct=True, **config)
    for first in range(0, count, 50_000):
        numbers = range(first, min(first + 50_000, count))
        peers.client.send(b"".join(b"PUB s.%d.x 1\r\nx\r\n" % number for number in numbers))
        await peers.client.flush()


@sized("stream of many subjects: info, purge, last", 1_000, 10_000, 100_000, 1_000_000)
async def many_stored(peers: Peers, count: int) -> None:
    """Ask for the subjects of a stream, for a message by pattern and for the last of many, and purge by pattern."""
    await filled(peers, count)
    for offset in (0, count // 2):
        await api(peers, "STREAM.INFO.A", {"subjects_filter": ">", "offset": offset})
        await api(peers, "STREAM.INFO.A", {"subjects_filter": "s.*.x", "offset": offset})
    await peers.client.request(b"$JS.API.DIRECT.GET.A", b'{"multi_last":["s.*.x"]}', ANSWER_WITHIN_S)
    await peers.client.request(
        b"$JS.API.DIRECT.GET.A", b'{"batch":1000,"seq":1,"next_by_subj":"s.*.x"}', ANSWER_WITHIN_S
    )
    config = {
        "durable_name": "L",
        "ack_policy": "explicit",
        "deliver_policy": "last_per_subject",
        "filter_subject": "s.*.x",
    }
    await api(peers, "CONSUMER.DURABLE.CREATE.A.L", {"stream_name": "A", "config": config})
    await api(peers, "STREAM.PURGE.A", {"filter": "s.*.y"})
    await api(peers, "STREAM.PURGE.A", {"filter": "s.*.x", "keep": 10})


@sized("direct get: many requests", 100, 1_000, 10_000)
async def many_direct_gets(peers: Peers, count: int) -> None:
    """Ask for many keys at once."""
    await filled(peers, count)
    peers.client.subscribe(b"IN.>", lambda *message: None)
    peers.client.send(b"".join(b"PUB $JS.API.DIRECT.GET.A.s.%d.x IN.%d 0\r\n\r\n" % (n, n) for n in range(count)))
    await peers.client.flush()


@sized("publish: atomic batch", 10, 100, 1_000)
async def atomic_batch(peers: Peers, count: int) -> None:
    """Publish batches as large as one may be."""
    await create(peers, subjects=["s.>"], allow_atomic=True)
    for batch in range(20):
        for number in range(1, count + 1):
            commit = b"Nats-Batch-Commit: 1\r\n" if number == count else b""
            header = b"NATS/1.0\r\nNats-Batch-Id: b%d\r\nNats-Batch-Sequence: %d\r\n%b\r\n" % (batch, number, commit)
            peers.client.publish(b"s.%d" % number, b"x", b"", header)
    await peers.client.flush()


@sized("publish: atomic batch, patterns", 10, 100, 1_000)
async def conditional_batch(peers: Peers, count: int) -> None:
    """Publish a batch whose messages each expect the last sequence of a pattern, among many subjects."""
    await filled(peers, 100_000, allow_atomic=True)
    for number in range(1, count + 1):
        commit = b"Nats-Batch-Commit: 1\r\n" if number == count else b""
        header = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n%b" % (number, commit)
        header += b"Nats-Expected-Last-Subject-Sequence: 0\r\n"
        header += b"Nats-Expected-Last-Subject-Sequence-Subject: *.*.y%d\r\n\r\n" % number
        peers.client.publish(b"s.y", b"", header=header)
    await peers.client.flush()


@sized("publish: lifetimes", 1_000, 10_000, 100_000)
async def many_lifetimes(peers: Peers, count: int) -> None:
    """Publish messages whose lifetimes end in the same second, and as many that end hours later."""
    await create(peers, subjects=["s.>"], allow_msg_ttl=True)
    for seconds in (9_000, 2):
        lines = []
        for number in range(count):
            header = b"NATS/1.0\r\nNats-TTL: %d\r\n\r\n" % (seconds + number % 2)
            lines.append(b"HPUB s.%d.%d %d %d\r\n%b\r\n" % (seconds, number, len(header), len(header), header))
        peers.client.send(b"".join(lines))
        await peers.client.flush()
    await asyncio.sleep(4)


@sized("publish: updates of 50,000 keys", 10_000, 100_000, 1_000_000)
async def updated_keys(peers: Peers, count: int) -> None:
    """Update the keys of a bucket on disk: its segments are rewritten without the values before."""
    await create(peers, subjects=["s.>"], storage="file", max_msgs_per_subject=1)
    draw = random.Random(count)
    for _ in range(0, count, 10_000):
        keys = [draw.randrange(50_000) for _ in range(10_000)]
        peers.client.send(b"".join([b"PUB s.key.%d 64\r\n%064d\r\n" % (key, key) for key in keys]))
        await peers.client.flush()
    await api(peers, "STREAM.DELETE.A", {})


@sized("publish: schedules", 500, 5_000, 50_000)
async def many_schedules(peers: Peers, count: int) -> None:
    """Publish schedules that fire in the same second, twice, into a stream on disk."""
    await create(peers, subjects=["s.>", "t.>"], storage="file", allow_msg_schedules=True, max_msgs_per_subject=1)
    lines = []
    for number in range(count):
        header = b"NATS/1.0\r\nNats-Schedule: @every 4s\r\nNats-Schedule-Target: t.%d\r\n\r\n" % (number % 100)
        lines.append(b"HPUB s.%d %d %d\r\n%b\r\n" % (number, len(header), len(header), header))
    peers.client.send(b"".join(lines))
    await peers.client.flush()
    await asyncio.sleep(10)
    await api(peers, "STREAM.DELETE.A", {})


@sized("publish: fast batches", 200, 2_000, 20_000)
async def many_fast_batches(peers: Peers, count: int) -> None:
    """Open as many fast batches as possible in one chunk, and let one of them ask for an ack of each message."""
    await create(peers, subjects=["s.>"], allow_batched=True)
    replies = [b"f.b%d.1.ok.1.0.$FI" % number for number in range(count)]
    replies += [b"f.b0.1.ok.%d.1.$FI" % (place + 2) for place in range(count)]
    peers.client.send(b"".join(b"PUB s.x %b 1\r\nx\r\n" % reply for reply in replies))
    await peers.client.flush()


@sized("publish: digits of a counter", 60, 600, 6_000, 60_000)
async def long_counter(peers: Peers, count: int) -> None:
    """Add long numbers to a counter."""
    await create(peers, subjects=["s.>"], allow_msg_counter=True)
    for _ in range(100):
        peers.client.publish(b"s.x", b"", header=b"NATS/1.0\r\nNats-Incr: %b\r\n\r\n" % (b"9" * count))
    await peers.client.flush()


@sized("publish: checked one by one", 1_000, 10_000, 100_000)
async def checked_messages(peers: Peers, count: int) -> None:
    """Publish into a stream that rewrites each message."""
    await create(peers, subjects=["s.>"], subject_transform={"src": "s.*", "dest": "s.{{partition(9,1)}}.$1"})
    peers.client.send(b"PUB s.x 0\r\n\r\n" * count)
    await peers.client.flush()


@sized("consumer: waiting requests", 500, 5_000, 50_000)
async def waiting_requests(peers: Peers, count: int) -> None:
    """Open pull requests that expire together, ask for the info meanwhile, and delete the consumer of others."""
    await create(peers, subjects=["s.>"])
    config = {"durable_name": "C", "ack_policy": "explicit", "max_waiting": count}
    await api(peers, "CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": config})
    for body in (b'{"batch":1,"expires":2000000000}', b'{"batch":1}'):
        request = b"PUB $JS.API.CONSUMER.MSG.NEXT.A.C IN.%%d %d\r\n%b\r\n" % (len(body), body)
        peers.client.send(b"SUB IN.* in\r\n" + b"".join([request % number for number in range(count)]))
        await api(peers, "CONSUMER.INFO.A.C", {})
        peers.client.send(b"UNSUB in\r\n" if body[-2:] == b"1}" else b"")
        await asyncio.sleep(2.5)
    await api(peers, "CONSUMER.INFO.A.C", {})
    await api(peers, "CONSUMER.DELETE.A.C", {})


@sized("consumer: crowd of one stream", 100, 1_000, 10_000)
async def consumer_crowd(peers: Peers, count: int) -> None:
    """Publish and delete messages that as many consumers take, then delete the stream."""
    await create(peers, subjects=["s.>"], max_consumers=count, max_msgs=10)
    for number in range(count):
        config = {"durable_name": f"C{number}", "filter_subject": "s.*", "deliver_subject": "to.me"}
        body = json.dumps({"stream_name": "A", "config": {"ack_policy": "explicit", **config}}).encode()
        peers.client.publish(b"$JS.API.CONSUMER.DURABLE.CREATE.A.C%d" % number, body)
    peers.client.send(b"SUB to.me me\r\n")
    peers.client.send(b"".join([b"PUB s.%d 0\r\n\r\n" % number for number in range(100)]))
    await api(peers, "STREAM.INFO.A", {})
    peers.client.send(b"UNSUB me\r\n")
    await api(peers, "STREAM.DELETE.A", {})


@sized("consumer: list of large ones", 25, 250)
async def large_consumers(peers: Peers, count: int) -> None:
    """List consumers with as much metadata and as many filters as a hundred kilobytes hold."""
    await create(peers, subjects=["s.>"])
    for number in range(count):
        config: dict[str, object] = {"durable_name": f"C{number}", "ack_policy": "explicit"}
        config["filter_subjects"] = subjects(5_000)
        config["metadata"] = {"k": "v" * 100_000}
        await api(peers, f"CONSUMER.DURABLE.CREATE.A.C{number}", {"stream_name": "A", "config": config})
    for _ in range(3):
        await api(peers, "CONSUMER.LIST.A", {})


@sized("stream: list of large ones", 3, 30)
async def large_streams(peers: Peers, count: int) -> None:
    """List streams with many subjects."""
    for number in range(count):
        await create(peers, f"L{number}", subjects=subjects(20_000, f"l{number}"))
    for _ in range(3):
        await api(peers, "STREAM.LIST", {})
    for number in range(count):
        await api(peers, f"STREAM.DELETE.L{number}", {})


@sized("consumer: many filters, new subjects", 80, 800, 8_000, 60_000)
async def filters_and_news(peers: Peers, count: int) -> None:
    """Publish on new subjects that a consumer with many filters has to skip."""
    await create(peers, subjects=["s.>"])
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subjects": subjects(count)}
    await api(peers, "CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": config})
    pull = b"PUB $JS.API.CONSUMER.MSG.NEXT.A.C IN.p 28\r\n" + b'{"batch":1,"expires":100000}' + b"\r\n"
    peers.client.send(b"".join(b"PUB s.n.%d 1\r\nx\r\n%b" % (number, pull) for number in range(1_000)))
    await peers.client.flush()


@sized("consumer: filters, start time", 80, 800, 8_000, 60_000)
async def filters_since(peers: Peers, count: int) -> None:
    """Create a consumer with many filters and a start time on a stream with those subjects."""
    await filled(peers, min(count, 10_000))
    config = {
        "durable_name": "C", "ack_policy": "explicit", "deliver_policy": "by_start_time",
        "opt_start_time": "2020-01-01T00:00:00Z", "filter_subjects": [f"s.{n}.x" for n in range(count)],
    }  # fmt: skip
    await api(peers, "CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": config})
    await api(peers, "CONSUMER.DELETE.A.C", {})


# Accounts, users and the system account

OPERATOR: Final = Operator(random.Random(1))
EXPORTER: Final = OPERATOR.account("E", exports=[{"name": "all", "subject": ">", "type": "stream"}])
IMPORTER: Final = OPERATOR.account("I")
BEARER: Final[dict[str, Any]] = {"bearer_token": True}
OPERATED: Final = OPERATOR.conf(
    f"default_sentinel: {OPERATOR.user(OPERATOR.account('ANYBODY'), {}, **BEARER).jwt}\nmax_payload: 2MB\n"
)


async def pushed(peers: Peers, account: OperatorAccount, nats: dict[str, Any]) -> None:
    """Push claims for an account that has a client."""
    system = await RawClient.connect(peers.url, jwt=OPERATOR.user(OPERATOR.system, {}, **BEARER).jwt)
    client = await RawClient.connect(peers.url, jwt=OPERATOR.user(account, {}, **BEARER).jwt)
    before = dict(account.nats)
    account.nats.update(nats)
    token = account.jwt(OPERATOR.signer).encode()
    account.nats.clear()
    account.nats.update(before)
    subject = f"$SYS.REQ.ACCOUNT.{account.public}.CLAIMS.UPDATE".encode()
    await system.request(subject, token, ANSWER_WITHIN_S)
    await asyncio.gather(system.close(), client.close())


def imported(count: int) -> list[dict[str, Any]]:
    """Return imports of streams, and of services that the exporter does not have."""
    common = {"account": EXPORTER.public, "name": "n"}
    return [
        {**common, "subject": f"s.{n}", "local_subject": f"l.{n}", "type": "service" if n % 2 else "stream"}
        for n in range(count)
    ]


@sized("claims: imports", 40, 400, 4_000, config=OPERATED)
async def claimed_imports(peers: Peers, count: int) -> None:
    """Push an account with many imports, and without them."""
    for items in (imported(count), []):
        await pushed(peers, IMPORTER, {"imports": items})


@sized("claims: exports", 80, 800, 8_000, config=OPERATED)
async def claimed_exports(peers: Peers, count: int) -> None:
    """Push an account with many exports."""
    items = [{"name": "n", "subject": f"s.{n}", "type": "service" if n % 2 else "stream"} for n in range(count)]
    await pushed(peers, IMPORTER, {"exports": items})


@sized("claims: mappings", 80, 800, 8_000, config=OPERATED)
async def claimed_mappings(peers: Peers, count: int) -> None:
    """Push an account with many mappings."""
    await pushed(peers, IMPORTER, {"mappings": {f"m.{n}": [{"subject": f"n.{n}"}] for n in range(count)}})


@sized("claims: tokens of a mapping", 80, 800, 8_000, 250_000, config=OPERATED)
async def claimed_targets(peers: Peers, count: int) -> None:
    """Push an account with a mapping that repeats a token."""
    await pushed(peers, IMPORTER, {"mappings": {"m.*": [{"subject": ".".join(["$1"] * count)}]}})
    await pushed(peers, IMPORTER, {})


@sized("claims: empty lists", 300, 3_000, 30_000, 250_000, config=OPERATED)
async def claimed_lists(peers: Peers, count: int) -> None:
    """Push an account with many empty lists in a field that nobody knows."""
    await pushed(peers, IMPORTER, {"x": [[]] * count})


@sized("claims: default permissions", 300, 3_000, 30_000, config=OPERATED)
async def claimed_permissions(peers: Peers, count: int) -> None:
    """Push an account whose users may publish on many patterns, and log in."""
    rules = {"pub": {"allow": [f"p.{n}.*" for n in range(count)]}, "sub": {}}
    await pushed(peers, IMPORTER, {"default_permissions": rules})
    await pushed(peers, IMPORTER, {})


PERMITTED: Final = (300, 3_000, 30_000)


def permitted(count: int) -> str:
    """Return a user with many patterns."""
    allowed = ", ".join(f'"p.{n}.*"' for n in range(count))
    return f"{{user: u{count}, password: p, permissions: {{publish: {{allow: [{allowed}]}}}}}}"


@sized(
    "login: patterns", *PERMITTED,
    config=f"authorization {{ users: [{{user: any, password: any}}, {', '.join(map(permitted, PERMITTED))}] }}\n"
    "no_auth_user: any\n",
)  # fmt: skip
async def permitted_logins(peers: Peers, count: int) -> None:
    """Log in as a user with many permissions, and publish."""
    for _ in range(5):
        client = await RawClient.connect(peers.url, user=f"u{count}", **{"pass": "p"})
        client.publish(b"p.7.x", b"")
        await client.flush()
        await client.close()


async def closed(writers: Iterable[asyncio.StreamWriter]) -> None:
    """Close connections, but not all at once: bench.loop has that row."""
    for number, writer in enumerate(writers):
        writer.transport.abort()
        if number % 100 == 99:
            await asyncio.sleep(0.01)
    await asyncio.sleep(QUIET_S)


async def at_once(peers: Peers, address: str, count: int, data: bytes, *, greeted: bool, login: bytes = b"") -> None:
    """Send the same on many connections while the server stands still, and read its answers."""
    parts = urlsplit(address)
    opened = [await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 20) for _ in range(count)]
    if greeted:
        await asyncio.gather(*(reader.readline() for reader, _ in opened))
    if login:
        for _, writer in opened:
            writer.write(login)
        await asyncio.gather(*(reader.readline() for reader, _ in opened))
    os.kill(peers.pid, signal.SIGSTOP)
    for _, writer in opened:
        writer.write(data)
    await asyncio.sleep(QUIET_S)
    os.kill(peers.pid, signal.SIGCONT)
    await asyncio.gather(*(reader.read(1 << 16) for reader, _ in opened), return_exceptions=True)
    await closed(writer for _, writer in opened)


@sized("connections: logins at once", 10, 100, 1_000, 4_000)
async def logins_at_once(peers: Peers, count: int) -> None:
    """Log in on many connections."""
    await at_once(peers, peers.url, count, b'CONNECT {"verbose":false}\r\nPING\r\n', greeted=True)


@sized("connections: WebSocket upgrades at once", 10, 100, 1_000, 4_000)
async def upgrades_at_once(peers: Peers, count: int) -> None:
    """Ask for a WebSocket on many connections."""
    await at_once(peers, peers.websocket, count, WebSocket.request("localhost"), greeted=False)


PROXY_V1: Final = b"PROXY TCP4 192.0.2.1 192.0.2.2 1234 4222\r\n"
PROXY_V2: Final = b"\r\n\r\n\0\r\nQUIT\n!!\0\x24" + bytes(range(32)) + b"\0\1\0\2"
PROXIED: Final = "proxy_protocol: true\n"


@sized("connections: PROXY headers at once", 10, 100, 1_000, 4_000, config=PROXIED)
async def proxied_at_once(peers: Peers, count: int) -> None:
    """Log in on many connections from proxies, in both versions of the protocol."""
    for header in (PROXY_V1, PROXY_V2):
        await at_once(peers, peers.url, count, header + b'CONNECT {"verbose":false}\r\nPING\r\n', greeted=True)


@sized("connections: invalid PROXY headers at once", 10, 100, 1_000, 4_000, config=PROXIED)
async def refused_proxies(peers: Peers, count: int) -> None:
    """Begin many connections like a proxy, and go on differently."""
    await at_once(peers, peers.url, count, b"PROXY x\r\n", greeted=True)


@sized("connections: late PROXY headers", 10, 100, 1_000, 4_000, config=PROXIED)
async def late_proxies(peers: Peers, count: int) -> None:
    """Begin headers on many connections, and wait until the server gives them up."""
    await at_once(peers, peers.url, count, PROXY_V1[:20], greeted=True)


def client_hello() -> bytes:
    """Return the beginning of a TLS handshake."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(received, sent, server_hostname="localhost").do_handshake()
    return sent.read()


CERTIFICATES: Final = "CERTIFICATES"
"""The folder of the certificates, in a configuration."""


@sized(
    "connections: TLS handshakes at once", 10, 100, 1_000,
    config=f'tls {{ cert_file: "{CERTIFICATES}/server.pem", key_file: "{CERTIFICATES}/server-key.pem", timeout: 30 }}\n'
    "allow_non_tls: true\n",
)  # fmt: skip
async def handshakes_at_once(peers: Peers, count: int) -> None:
    """Begin a TLS handshake on many connections."""
    await at_once(peers, peers.url, count, client_hello(), greeted=True)


@sized("connections: publishers at once", 10, 100, 500)
async def publishers_at_once(peers: Peers, count: int) -> None:
    """Publish on many connections, 5,000 messages on each."""
    data = b'CONNECT {"verbose":false}\r\n' + b"PUB s.x 0\r\n\r\n" * 5_000 + b"PING\r\n"
    await at_once(peers, peers.url, count, data, greeted=True)


@sized("connections: publishers at once, logged in", 10, 100, 500)
async def clients_publish_at_once(peers: Peers, count: int) -> None:
    """Publish on many connections of clients, 5,000 messages on each."""
    login = b'CONNECT {"verbose":false}\r\nPING\r\n'
    await at_once(peers, peers.url, count, b"PUB s.x 0\r\n\r\n" * 5_000 + b"PING\r\n", greeted=True, login=login)


@sized("connections: subscriptions at once", 10, 100, 1_000, 4_000)
async def clients_subscribe_at_once(peers: Peers, count: int) -> None:
    """Subscribe a hundred times on many connections of clients."""
    login = b'CONNECT {"verbose":false}\r\nPING\r\n'
    subs = b"".join(b"SUB b.%d.* %d\r\n" % (number, number) for number in range(100))
    await at_once(peers, peers.url, count, subs + b"PING\r\n", greeted=True, login=login)


@sized("connections: a message to many", 10, 100, 1_000, 4_000)
async def many_connections(peers: Peers, count: int) -> None:
    """Publish ten messages to subscribers with a connection each."""
    parts = urlsplit(peers.url)
    opened = []

    async def subscribe() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b'CONNECT {"verbose":false}\r\nSUB s 1\r\nPING\r\n')
        await reader.readuntil(b"PONG\r\n")
        opened.append((reader, writer))

    for _ in range(0, count, 10):
        await asyncio.gather(*(subscribe() for _ in range(10)))
    for _ in range(10):
        peers.client.publish(b"s", b"")
        await asyncio.gather(*(reader.readuntil(b"MSG s 1 0\r\n\r\n") for reader, _ in opened))
    await closed(writer for _, writer in opened)


MANY: Final = (10, 100, 1_000, 10_000, 50_000)
TRADERS: Final = """accounts {
  $SYS { users: [{user: sys, password: sys}] }
  E { exports: [{stream: "s.>"}, {service: "ask", response_threshold: 1s}], users: [
    {user: e, password: p}, {user: g, password: p, permissions: {subscribe: {allow: ">", deny: "s.no"}}}] }
  I { imports: [{stream: {account: E, subject: "s.>"}}, {service: {account: E, subject: "ask"}}]
    users: [{user: i, password: p}] }
}
no_auth_user: e
"""


async def to_many(
    peers: Peers, count: int, user: str, line: str, publish: Callable[[], Awaitable[None]], each: int = 0
) -> None:
    """Subscribe many times on one connection, as `line` says, and publish ten times; `each` messages arrive then."""
    parts = urlsplit(peers.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 22)
    login = json.dumps({"verbose": False, **({"user": user, "pass": "p"} if user else {})})
    lines = "".join(line.replace("SID", str(sid)) + "\r\n" for sid in range(1, count + 1))
    writer.write(f"CONNECT {login}\r\n{lines}PING\r\n".encode())
    await reader.readuntil(b"PONG\r\n")
    for _ in range(10):
        await publish()
        for _ in range(each or count):
            await reader.readuntil(b"\r\n\r\n")
    await closed([writer])


@sized("connections: a message to many of one", *MANY, config=TRADERS)
async def many_subscriptions(peers: Peers, count: int) -> None:
    """Publish to the subscriptions of one connection to one subject."""
    await to_many(peers, count, "e", "SUB s.x SID", partial(publish_to_many, peers))


@sized("connections: a message to many that are filtered", *MANY, config=TRADERS)
async def many_filtered(peers: Peers, count: int) -> None:
    """Publish to subscriptions with a wildcard of a user who may not receive all of it."""
    await to_many(peers, count, "g", "SUB s.* SID", partial(publish_to_many, peers))


@sized("connections: a message to many groups", *MANY, config=TRADERS)
async def many_groups(peers: Peers, count: int) -> None:
    """Publish to many queue groups."""
    await to_many(peers, count, "e", "SUB s.x qSID SID", partial(publish_to_many, peers))


@sized("connections: messages that no member of a group may have", *MANY, config=TRADERS)
async def refused_by_group(peers: Peers, count: int) -> None:
    """Publish what a queue group with many members is not allowed to receive, and add a member after each message."""
    parts = urlsplit(peers.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(b'CONNECT {"verbose":false,"user":"g","pass":"p"}\r\n')
    writer.write(b"".join(b"SUB s.* q %d\r\n" % sid for sid in range(count)) + b"PING\r\n")
    await reader.readuntil(b"PONG\r\n")
    writer.write(b"".join(b"PUB s.no 0\r\n\r\nSUB s.* q x%d\r\n" % number for number in range(20)) + b"PING\r\n")
    await reader.readuntil(b"PONG\r\n")
    await closed([writer])


@sized("connections: a message to many that import it", *MANY, config=TRADERS)
async def many_importers(peers: Peers, count: int) -> None:
    """Publish to subscriptions of another account."""
    await to_many(peers, count, "i", "SUB s.x SID", partial(publish_to_many, peers))


@sized("connections: a message of the server to many", *MANY)
async def many_republished(peers: Peers, count: int) -> None:
    """Publish to a stream that republishes to many subscriptions."""
    await create(peers, subjects=["in"], republish={"src": "in", "dest": "s.x", "headers_only": True})
    await to_many(peers, count, "", "SUB s.x SID", partial(publish_to_many, peers, b"in"))


@sized("publish: republished to 200 at a time", 20, 200, 2_000)
async def many_to_republish(peers: Peers, count: int) -> None:
    """Publish messages at once to a stream that republishes each to 200 subscriptions."""
    await create(peers, subjects=["in"], republish={"src": "in", "dest": "s.x", "headers_only": True})

    async def publish() -> None:
        for _ in range(count // 10):
            peers.client.publish(b"in", b"")

    await to_many(peers, 200, "", "SUB s.x SID", publish, count * 20)


@sized("service: requests that nobody answers", 1_000, 10_000, 100_000, config=TRADERS)
async def unanswered(peers: Peers, count: int) -> None:
    """Send requests with one reply and with many, and unsubscribe from some; the others are given up after a second."""
    sid = peers.client.subscribe(b"ask", lambda *message: None)
    await peers.client.flush()
    parts = urlsplit(peers.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    replies = b"".join(
        b"PUB ask in 0\r\n\r\nPUB ask a.%d 0\r\n\r\nPUB ask b.%d 0\r\n\r\n" % (n, n) for n in range(count // 3)
    )
    writer.write(b'CONNECT {"verbose":false,"user":"i","pass":"p"}\r\nSUB in 1\r\nSUB a.* 2\r\nSUB b.* 3\r\n')
    writer.write(replies + b"UNSUB 1\r\nUNSUB 2\r\nPING\r\n")
    await reader.readuntil(b"PONG\r\n")
    await asyncio.sleep(2.5)
    peers.client.unsubscribe(sid)
    await closed([writer])


async def publish_to_many(peers: Peers, subject: bytes = b"s.x") -> None:
    peers.client.publish(subject, b"")


@sized("connections: a megabyte to many", 10, 100, 400)
async def large_message(peers: Peers, count: int) -> None:
    """Publish a megabyte to subscribers with a connection each."""
    parts = urlsplit(peers.url)
    opened = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 21)
        writer.write(b'CONNECT {"verbose":false}\r\nSUB s 1\r\nPING\r\n')
        await reader.readuntil(b"PONG\r\n")
        opened.append((reader, writer))
    peers.client.publish(b"s", bytes(1_000_000))
    await asyncio.gather(*(reader.readexactly(1_000_000) for reader, _ in opened))
    await closed(writer for _, writer in opened)


LEAF_PORT: Final = free_port()
"""Neither server has the listener of leaf nodes in its file of ports."""


@sized(
    "leaf node: patterns", *PERMITTED,
    config=f"authorization {{ users: [{{user: any, password: any}}, {', '.join(map(permitted, PERMITTED))}] }}\n"
    f'no_auth_user: any\nleafnodes {{ listen: "127.0.0.1:{LEAF_PORT}" }}\n',
)  # fmt: skip
async def permitted_leafs(peers: Peers, count: int) -> None:
    """Connect as a leaf node whose user has many permissions."""
    for _ in range(3):
        await leaf({"user": f"u{count}", "pass": "p"}, b"")


async def leaf(login: dict[str, str], interest: bytes) -> None:
    """Connect as a leaf node, show interest, and leave."""
    reader, writer = await asyncio.open_connection("127.0.0.1", LEAF_PORT, limit=1 << 24)
    await reader.readline()
    connect = {"name": "x", "server_id": f"N{random.random()}", "headers": True, "version": "2.15.2", "protocol": 1}
    writer.write(b"CONNECT %b\r\n%bPING\r\n" % (json.dumps({**connect, **login}).encode(), interest))
    while await reader.readline() != b"PONG\r\n":
        pass
    writer.transport.abort()


@sized(
    "leaf node: interest, and its end", 1_000, 10_000, 100_000,
    config=f'leafnodes {{ listen: "127.0.0.1:{LEAF_PORT}" }}\n',
)  # fmt: skip
async def ended_leafs(peers: Peers, count: int) -> None:
    """Connect as a leaf node with many subjects, and leave."""
    await leaf({}, b"".join(b"LS+ l.%d\r\n" % number for number in range(count)))


def importer(count: int) -> str:
    """Return an account that imports many streams."""
    items = ", ".join(f'{{stream: {{account: E, subject: "s.{n}"}}, to: "l{count}.{n}"}}' for n in range(count))
    return f"I{count} {{ users: [{{user: i{count}, password: p}}], imports: [{items}] }}"


IMPORTED: Final = (80, 800, 8_000)


@sized(
    "subscriptions: all of many imports", *IMPORTED,
    config=f"accounts {{ E {{ exports: [{{stream: \"s.*\"}}] }}, {', '.join(map(importer, IMPORTED))} }}\n"
    "no_auth_user: i80\n",
)  # fmt: skip
async def imported_subscriptions(peers: Peers, count: int) -> None:
    """Subscribe to everything in an account with many imports, and unsubscribe."""
    client = await RawClient.connect(peers.url, user=f"i{count}", **{"pass": "p"})
    for number in range(5):
        client.send(b"SUB > %d\r\nUNSUB %d\r\n" % (number, number))
        await client.flush()
    await client.close()


@sized(
    "callout: patterns", 300, 3_000, 15_000,
    config=f"authorization {{ auth_callout {{ issuer: {ISSUER.public}, auth_users: [auth, any], account: AUTH }} }}\n"
    "accounts { AUTH { users: [{user: auth, password: p}, {user: any, password: p}] }, FOO {} }\n"
    "no_auth_user: any\n",
)  # fmt: skip
async def permitted_callouts(peers: Peers, count: int) -> None:
    """Answer the request about a client with many permissions."""
    service = await RawClient.connect(peers.url, user="auth", **{"pass": "p"})
    rules = {"pub": {"allow": [f"p.{n}.*" for n in range(count)]}}

    def answer(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        request = CalloutRequest(payload.decode(), {}, claims_of(payload), reply.decode())
        service.publish(reply, request.response(request.user(aud="FOO", nats=rules)))

    service.subscribe(SUBJECT.encode(), answer)
    await service.flush()
    for _ in range(3):
        client = await RawClient.connect(peers.url, user="x")
        await client.close()
    await service.close()


async def reported(peers: Peers, *requests: tuple[str, dict[str, Any]]) -> None:
    """Ask for reports, in the system account."""
    system = await RawClient.connect(peers.url, user="sys", **{"pass": "sys"})
    for name, options in requests:
        body = json.dumps(options).encode()
        await system.request(f"$SYS.REQ.SERVER.PING.{name}".encode(), body, ANSWER_WITHIN_S)
    await system.close()


@sized("system: connections", 10, 100, 1_000, 5_000)
async def reported_connections(peers: Peers, count: int) -> None:
    """Ask for the list of many connections."""
    clients = [await RawClient.connect(peers.url) for _ in range(count)]
    orders: tuple[dict[str, Any], ...] = (
        {},
        {"sort": "subs"},
        {"auth": True, "subscriptions": True},
        {"acc": "$G", "filter_subject": "a.>"},
    )
    await reported(peers, *(("CONNZ", {"limit": count, **options}) for options in orders), ("ACCSTATZ", {}))
    for number, client in enumerate(clients):  # not all at once, either
        await client.close()
        if number % 100 == 99:
            await asyncio.sleep(0.01)


@sized("system: subscriptions", 1_000, 10_000, 100_000)
async def reported_subscriptions(peers: Peers, count: int) -> None:
    """Ask for the lists of many subscriptions of one connection."""
    for first in range(0, count, 10_000):
        numbers = range(first, min(first + 10_000, count))
        peers.client.send(b"".join(b"SUB s.%d s%d\r\n" % (number, number) for number in numbers))
        await peers.client.flush()
    connz: list[dict[str, Any]] = [
        {"subscriptions": True},
        {"subscriptions_detail": True},
        {"acc": "$G", "filter_subject": "x.>"},
    ]
    subsz: list[dict[str, Any]] = [{"subscriptions": True, "limit": count}, {"subscriptions": True, "test": "s.7"}]
    await reported(peers, *(("CONNZ", options) for options in connz), *(("SUBSZ", options) for options in subsz))


@sized("system: subscriptions to one subject", 1_000, 10_000, 100_000)
async def reported_subscribers(peers: Peers, count: int) -> None:
    """Ask for, and count, the subscribers of a subject with very many."""
    for first in range(0, count, 10_000):
        numbers = range(first, min(first + 10_000, count))
        peers.client.send(b"".join(b"SUB s.x s%d\r\n" % number for number in numbers))
        await peers.client.flush()
    await reported(peers, ("SUBSZ", {"subscriptions": True, "test": "s.x"}))
    system = await RawClient.connect(peers.url, user="sys", **{"pass": "sys"})
    for subject in ("s.x", "s.*", ">"):
        body = json.dumps({"acc": "$G", "subject": subject}).encode()
        await system.request(b"$SYS.REQ.ACCOUNT.NSUBS", body, ANSWER_WITHIN_S)
    await system.close()


HTTP_PORT: Final = free_port()
HTTP: Final = f'http: "127.0.0.1:{HTTP_PORT}"\n'


@sized("monitoring: long heads at once", 1, 10, 100, config=HTTP)
async def long_heads(peers: Peers, count: int) -> None:
    """Send requests with thousands of headers and parameters on many connections."""
    head = b"GET /connz?%b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (b"%41&" * 3_000, b"a:\r\n" * 3_800)
    await at_once(peers, f"http://127.0.0.1:{HTTP_PORT}", count, head, greeted=False)


# WebSocket


class WebSocket:
    """A WebSocket client that sends frames as they are and looks for a PONG."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: str) -> WebSocket:
        """Return a client that compresses."""
        host, _, port = address.removeprefix("ws://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(cls.request(host))
        await reader.readuntil(b"\r\n\r\n")
        client = cls(reader, writer)
        client.send(client.framed(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'))
        return client

    @staticmethod
    def request(host: str) -> bytes:
        """Return the request for a WebSocket that compresses."""
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET / HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Extensions: permessage-deflate", "", "",
        ]  # fmt: skip
        return "\r\n".join(lines).encode()

    @staticmethod
    def framed(data: bytes, *, compressed: bool = False, opcode: int = 2) -> bytes:
        """Return data as one frame, with a mask of zeros."""
        if compressed:
            deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
            data = (deflate.compress(data) + deflate.flush(zlib.Z_SYNC_FLUSH))[:-4]
        head = bytes([(0xC0 if compressed else 0x80) | opcode])
        if len(data) < 126:
            return head + bytes([0x80 | len(data)]) + bytes(4) + data
        if len(data) < 1 << 16:
            return head + struct.pack("!BH", 0xFE, len(data)) + bytes(4) + data
        return head + struct.pack("!BQ", 0xFF, len(data)) + bytes(4) + data

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)

    async def served(self, peers: Peers) -> None:
        """Return when the server has carried out everything or has closed the connection."""
        done = asyncio.Event()
        sid = peers.client.subscribe(b"flood.done", lambda *message: done.set())
        await peers.client.flush()
        self.send(self.framed(b"PUB flood.done 0\r\n\r\n"))
        ends = [asyncio.create_task(done.wait()), asyncio.create_task(self._drained())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        peers.client.unsubscribe(sid)
        self._writer.transport.abort()

    async def _drained(self) -> None:
        with suppress(ConnectionError):
            while await self._reader.read(1 << 20):
                pass


async def flood(peers: Peers, *frames: bytes) -> None:
    """Send frames and wait until they are served."""
    client = await WebSocket.connect(peers.websocket)
    client.send(b"".join(frames))
    await client.served(peers)


@sized("websocket: compressed, 5,000 PUBs a frame", 10, 100, 1_000)
async def compressed_frames(peers: Peers, count: int) -> None:
    """Send frames of 120 bytes."""
    await flood(peers, WebSocket.framed(b"PUB a 0\r\n\r\n" * 5_000, compressed=True) * count)


@sized("websocket: compressed, received again", 1, 10, 100)
async def compressed_echo(peers: Peers, count: int) -> None:
    """Send the same, to a subscription of the sender."""
    sent = WebSocket.framed(b"PUB a 0\r\n\r\n" * 5_000, compressed=True)
    await flood(peers, WebSocket.framed(b"SUB a 1\r\n"), sent * count)


@sized("websocket: compressed, 1 MB a frame", 1, 10, 100, 400)
async def compressed_bombs(peers: Peers, count: int) -> None:
    """Send frames of a kilobyte that unpack to as much as is allowed."""
    sent = WebSocket.framed(b"PUB a 0\r\n\r\n" * 90_000, compressed=True)
    await flood(peers, sent * count)


@sized("websocket: compressed subscriptions", 1, 10, 100)
async def compressed_subs(peers: Peers, count: int) -> None:
    """Send frames of 5,000 subscriptions each, the same ones."""
    sent = WebSocket.framed(b"".join(b"SUB a.%d %d\r\n" % (n, n) for n in range(5_000)), compressed=True)
    await flood(peers, sent * count)


@sized("websocket: compressed, one body", 1, 10, 100, 400)
async def compressed_bodies(peers: Peers, count: int) -> None:
    """Send large messages that compress well."""
    await flood(peers, WebSocket.framed(b"PUB a 1000000\r\n%b\r\n" % bytes(1_000_000), compressed=True) * count)


@sized("websocket: tiny frames", 1_000, 10_000, 100_000)
async def tiny_frames(peers: Peers, count: int) -> None:
    """Send a message byte by byte."""
    body = b"PUB a %d\r\n" % count + bytes(count) + b"\r\n"
    await flood(peers, *(WebSocket.framed(body[at : at + 1]) for at in range(len(body))))


@sized("websocket: empty frames", 1_000, 10_000, 100_000)
async def empty_frames(peers: Peers, count: int) -> None:
    """Send frames with nothing in them."""
    await flood(peers, WebSocket.framed(b"") * count)


@sized("websocket: pings", 1_000, 10_000, 100_000)
async def websocket_pings(peers: Peers, count: int) -> None:
    """Send pings of the frame layer."""
    await flood(peers, WebSocket.framed(b"", opcode=9) * count)


async def measured(server: ServerProcess, name: str, largest: int) -> dict[int, Waits]:
    """Return the waits next to an input, by its number of items."""
    here, there = multiprocessing.Pipe()
    prober = loop.probing(server, there)
    ports = json.loads((server.store_dir / f"nats-server_{server.pid}.ports").read_text())
    found: dict[int, Waits] = {}

    async def since_last() -> loop.Pings:
        here.send(True)
        pings: loop.Pings = await asyncio.get_running_loop().run_in_executor(None, here.recv)
        return pings

    act, sizes, config = INPUTS[name]
    try:
        for size in (size for size in sizes if size <= largest):
            client = await RawClient.connect(server.url)
            peers = Peers(client, server.url, ports["websocket"][0] if "websocket" in config else "", server.pid)
            await asyncio.gather(*(api(peers, f"STREAM.DELETE.{stream}", {}) for stream in ("A", "O")))
            await asyncio.sleep(QUIET_S)
            await since_last()
            begun, stuck = time.perf_counter(), False
            try:
                async with asyncio.timeout(TOO_LONG_S):
                    await act(peers, size)
            except Disconnected:
                pass
            except TimeoutError:
                stuck = True
            took = time.perf_counter() - begun
            try:
                async with asyncio.timeout(TOO_LONG_S):
                    during = await since_last()
                    await asyncio.sleep(QUIET_S)
                    after = await since_last()
            except TimeoutError:  # nobody is served
                found[size] = Waits(took, took, took, took)
                break
            longest_s, cpu_s = max(during.longest_s, after.longest_s), max(during.cpu_s, after.cpu_s)
            found[size] = Waits(longest_s, during.median_s, cpu_s, took)
            if stuck:
                break
            await client.close()
    finally:
        prober.kill()
        prober.join()
    return found


def line(name: str, size: int, cells: list[Waits | None], before: Waits | None) -> str:
    """Return one line of the table; the first column is judged."""
    text = "   ".join(f"{cell!s:>31}" if cell is not None else f"{'-':>31}" for cell in cells)
    own, notes = cells[0], ""
    if own is not None:
        notes = verdict(own.cpu_s <= CPU_S)
        if before is not None and own.served_s > GROWTH * max(before.served_s, FLOOR_S):
            notes += f", grows {own.served_s / before.served_s:.0f} times"
    return f"  {name:40} {size:>9,} {text}   {notes}"


def configured(name: str, folder: Path) -> str:
    """Return the configuration for an input, with the certificates that it names."""
    config = INPUTS[name].config
    if CERTIFICATES in config:
        Authority(folder / CERTIFICATES).issue("server", dns=["localhost"])
    return config.replace(CERTIFICATES, str(folder / CERTIFICATES))


def main() -> None:
    """Measure the selected inputs and print a line for each size."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="inputs whose names hold one of these, separated by |")
    parser.add_argument("--largest", type=int, default=1_000_000, help="send no more items than this")
    parser.add_argument("--servers", default="", help="servers whose names begin with one of these, separated by |")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout of natsctl")
    options = parser.parse_args()
    starts = tuple(options.servers.split("|"))
    candidates = [each for each in servers.candidates(options.against) if each.name.startswith(starts)]
    print("longest PING, median PING, CPU inside one PING, time until the sender was served, in ms")
    print(f"  {'':40} {'items':>9} " + "   ".join(f"{each.name[:31]:>31}" for each in candidates), flush=True)
    for name in (name for name in INPUTS if any(part in name for part in options.only.split("|"))):
        columns = []
        for candidate in candidates:
            with (
                tempfile.TemporaryDirectory(prefix="natsctl-inputs-", ignore_cleanup_errors=True) as folder,
                candidate._replace(config=configured(name, Path(folder))).serving(Path(folder)) as server,
            ):
                columns.append(asyncio.run(measured(server, name, options.largest)))
                server.kill()
        before = None
        for size in INPUTS[name].sizes:
            cells = [column.get(size) for column in columns]
            if any(cells):
                print(line(name, size, cells, before), flush=True)
                before = cells[0]


if __name__ == "__main__":
    main()
