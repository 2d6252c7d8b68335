"""Latency between clients of two servers at a moderate rate, and round trips of PING to each address.

Both clients are in this process, so that one clock measures when a message left and when it arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Callable

import msgspec

from natsctl.api.errors import NatsctlError, NothingReceivedError, UnreachableError, UsageError
from natsctl.api.times import format_time
from natsctl.client.bench.client import ClientProgress, Latencies, RawConnection, Spread, command
from natsctl.client.connection import Connection
from natsctl.client.dial import connect
from natsctl.client.servers import Target
from natsctl.client.settings import wants_tls
from natsctl.wire.server_url import parse_server_url, without_login

STAMP = struct.Struct(">Q")
"""Beginning of a message: when it was sent, in nanoseconds of the monotonic clock."""
MAX_MESSAGES = 100_000_000
TICK_S = 0.0005
"""Seconds between two checks for due messages."""
ROUNDS = 5


class Percentile(msgspec.Struct):
    """Longest latency of that percentage of the messages."""

    percent: float
    ns: int


class Bin(msgspec.Struct):
    """Number of messages that took less than `below_ns`, and at least half of that."""

    below_ns: int
    count: int


class LatencyReport(msgspec.Struct):
    """A latency test and its result; times in nanoseconds, rates in messages per second."""

    server_a: str
    server_b: str
    server_a_name: str
    server_b_name: str
    rtt_a_ns: int
    rtt_b_ns: int
    size: int
    rate: int
    started: str
    duration_ns: int
    sent: int
    received: int
    msgs_per_s: float
    latency: Spread | None
    percentiles: list[Percentile]
    histogram: list[Bin]


PERCENTS = (10.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0)


class LatencyTest(msgspec.Struct, frozen=True):
    """Messages to send: `size` bytes each, `rate` per second, for that duration."""

    size: int = 8
    rate: int = 1000
    duration_ns: int = 5_000_000_000

    @property
    def messages(self) -> int:
        return max(1, self.rate * self.duration_ns // 1_000_000_000)

    def check(self) -> None:
        """Raise UsageError for options that cannot be measured."""
        if self.size < STAMP.size:
            raise UsageError(f"--size: at least {STAMP.size} bytes (for the time of sending)")
        if self.rate < 1 or self.duration_ns < 1:
            raise UsageError("--rate and --duration must be above zero")
        if self.messages > MAX_MESSAGES:
            raise UsageError(f"--rate and --duration make {self.messages:,} messages, more than {MAX_MESSAGES:,}")


async def measure_latency(
    one: Connection, two: Connection, test: LatencyTest, watch: Callable[[int], None]
) -> LatencyReport:
    """Publish through `one`, receive through `two`; `watch` is called with the number of received messages.

    Raises UnreachableError when messages do not get from one server to the other.
    """
    rtts = [int(min([await side.rtt_s() for _ in range(ROUNDS)]) * 1e9) for side in (one, two)]
    links = RawConnection(one), RawConnection(two)
    started_ns = time.time_ns()
    progress, latencies, sent = await _run(*links, test, watch)
    lasted_ns = max(1, progress.end_ns - progress.begin_ns)
    return LatencyReport(
        server_a=without_login(one.url),
        server_b=without_login(two.url),
        server_a_name=str(one.info.get("server_name", "")),
        server_b_name=str(two.info.get("server_name", "")),
        rtt_a_ns=rtts[0],
        rtt_b_ns=rtts[1],
        size=test.size,
        rate=test.rate,
        started=format_time(started_ns),
        duration_ns=lasted_ns,
        sent=sent,
        received=latencies.number,
        msgs_per_s=round(latencies.number * 1e9 / lasted_ns, 3),
        latency=latencies.spread(),
        percentiles=[Percentile(percent, latencies.percentile(percent)) for percent in PERCENTS],
        histogram=[Bin(below_ns, count) for below_ns, count in latencies.bins()],
    )


async def _run(
    sender: RawConnection, receiver: RawConnection, test: LatencyTest, watch: Callable[[int], None]
) -> tuple[ClientProgress, Latencies, int]:
    """Send the messages at their times; returns the progress, the latencies, and how many were sent."""
    subject = receiver.connection.new_inbox().encode()
    progress, filler = ClientProgress(), bytes(test.size - STAMP.size)
    latencies = Latencies()

    def take(_subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        if progress.begin_ns:
            latencies.add(max(0, time.monotonic_ns() - STAMP.unpack_from(body)[0]))
        progress.add(1, len(body))

    def send() -> None:
        sender.post(command(subject, STAMP.pack(time.monotonic_ns()) + filler))

    await receiver.listen(subject.decode(), take, progress)
    await receiver.flush()
    await _reaches(sender, receiver, progress, send)
    progress.begin()
    sent = 0
    while sent < test.messages:
        due = (time.monotonic_ns() - progress.begin_ns) * test.rate // 1_000_000_000 + 1
        for _ in range(min(due, test.messages) - sent):
            send()
        sent = max(sent, min(due, test.messages))
        watch(latencies.number)
        progress.check()
        await asyncio.sleep(TICK_S)
    await sender.flush()
    # One message came before the clock ran: the one that showed the way.
    wait_s = receiver.connection.timeout_s
    with contextlib.suppress(NothingReceivedError):  # the report shows the lost messages
        await progress.reach(sent + 1, wait_s, wait_s)
    progress.end()
    watch(latencies.number)
    return progress, latencies, sent


async def _reaches(
    sender: RawConnection, receiver: RawConnection, progress: ClientProgress, send: Callable[[], None]
) -> None:
    """Return once a first message has come; raises UnreachableError when none does."""
    wait_s = receiver.connection.timeout_s
    send()
    try:
        await progress.reach(1, wait_s, wait_s)
    except NothingReceivedError:
        raise UnreachableError(
            f"no message got from {sender.connection.target.shown} to {receiver.connection.target.shown} "
            f"within {wait_s:g}s",
            hint="both must be the same server or be connected, and both logins must be in the same account",
        ) from None


class Trip(msgspec.Struct, omit_defaults=True):
    """The round trips to one address: their mean as `rtt`, in nanoseconds; or the error."""

    time: str
    address: str
    url: str
    rtt: int = 0
    min: int = 0
    max: int = 0
    iterations: int = 0
    error: str = ""


class Trips(msgspec.Struct):
    """Round trips to the addresses of one URL."""

    url: str
    results: list[Trip]


async def round_trips(target: Target, iterations: int) -> list[Trips]:
    """Return the round trips to every address of every URL, one after another; a login is in no answer."""
    found = []
    for url in target.urls:
        shown = without_login(url)
        results = [await _trip(target, address, shown, iterations) for address in await _addresses(target, url)]
        found.append(Trips(shown, results))
    return found


async def _addresses(target: Target, url: str) -> list[str]:
    """Return the URL once for each address of its host; where TLS checks names, and for WebSockets, the URL itself."""
    server = parse_server_url(url)
    if server.scheme != "nats" or wants_tls(target.settings, target.urls):
        return [url]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except OSError:
        return [url]  # connecting says why
    hosts = dict.fromkeys(str(one[4][0]) for one in found)
    return [server._replace(host=host).full for host in hosts]


async def _trip(target: Target, address: str, url: str, iterations: int) -> Trip:
    trip = Trip(time=format_time(time.time_ns()), address=without_login(address), url=url)
    try:
        async with await connect(target._replace(urls=(address,)), name="natsctl rtt") as connection:
            taken = [int(await connection.rtt_s() * 1e9) for _ in range(iterations)]
    except NatsctlError as failure:
        trip.error = failure.text
        return trip
    trip.rtt, trip.min, trip.max, trip.iterations = sum(taken) // iterations, min(taken), max(taken), iterations
    return trip
