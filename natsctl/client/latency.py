"""How long a message takes from one server's client to another's, at a rate that neither is busy with.

Both clients are in this process, so that one clock tells when a message left and when it came.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from natsctl.api.errors import NothingReceivedError, UnreachableError, UsageError
from natsctl.api.times import format_time
from natsctl.client.bench.latencies import Latencies, Spread
from natsctl.client.bench.link import Link
from natsctl.client.bench.messages import command
from natsctl.client.bench.tally import Tally

if TYPE_CHECKING:
    from natsctl.client.connection import Connection

STAMP = struct.Struct(">Q")
"""What a message begins with: when it left, in nanoseconds of the monotonic clock."""
MAX_MESSAGES = 100_000_000
TICK_S = 0.0005
"""Seconds between two looks at which messages are due."""
ROUNDS = 5


class Percentile(msgspec.Struct):
    """How long that many percent of the messages took at most."""

    percent: float
    ns: int


class Bin(msgspec.Struct):
    """How many messages took less than `below_ns`, and at least half of that."""

    below_ns: int
    count: int


class LatencyReport(msgspec.Struct):
    """A latency test and its result; times in nanoseconds, rates in messages per second."""

    server_a: str
    server_b: str
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
    """What to send: `size` bytes, `rate` messages per second, for so long."""

    size: int = 8
    rate: int = 1000
    duration_ns: int = 5_000_000_000

    @property
    def messages(self) -> int:
        """How many messages that is."""
        return max(1, self.rate * self.duration_ns // 1_000_000_000)

    def check(self) -> None:
        """Raise UsageError for what cannot be measured."""
        if self.size < STAMP.size:
            raise UsageError(f"--size: at least {STAMP.size} bytes, which hold the time of sending")
        if self.rate < 1 or self.duration_ns < 1:
            raise UsageError("--rate and --duration must be above zero")
        if self.messages > MAX_MESSAGES:
            raise UsageError(f"--rate and --duration make {self.messages:,} messages, more than {MAX_MESSAGES:,}")


async def measure_latency(
    one: Connection, two: Connection, test: LatencyTest, watch: Callable[[int], None]
) -> LatencyReport:
    """Publish through `one`, receive through `two`; `watch` is told how many messages have come.

    Raises UnreachableError when messages do not get from one server to the other.
    """
    rtts = [int(await _rtt_s(connection) * 1e9) for connection in (one, two)]
    links = Link(one), Link(two)
    try:
        started_ns = time.time_ns()
        tally, latencies, sent = await _run(*links, test, watch)
    finally:
        for link in links:
            await link.close()
    lasted_ns = max(1, tally.end_ns - tally.begin_ns)
    return LatencyReport(
        server_a=one.target.shown,
        server_b=two.target.shown,
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


async def _rtt_s(connection: Connection) -> float:
    return min([await connection.rtt_s() for _ in range(ROUNDS)])


async def _run(
    sender: Link, receiver: Link, test: LatencyTest, watch: Callable[[int], None]
) -> tuple[Tally, Latencies, int]:
    """Send the messages at their times; returns the clock, what was measured, and how many were sent."""
    subject = receiver.connection.new_inbox().encode()
    tally, filler = Tally(), bytes(test.size - STAMP.size)
    latencies = Latencies()

    def take(_subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        if tally.begin_ns:
            latencies.add(max(0, time.monotonic_ns() - STAMP.unpack_from(body)[0]))
        tally.add(1, len(body))

    def send() -> None:
        sender.post(command(subject, STAMP.pack(time.monotonic_ns()) + filler))

    await receiver.listen(subject.decode(), take, tally)
    await receiver.flush()
    await _reaches(sender, receiver, tally, send)
    tally.begin()
    sent = 0
    while sent < test.messages:
        due = (time.monotonic_ns() - tally.begin_ns) * test.rate // 1_000_000_000 + 1
        for _ in range(min(due, test.messages) - sent):
            send()
        sent = max(sent, min(due, test.messages))
        watch(latencies.number)
        tally.check()
        await asyncio.sleep(TICK_S)
    await sender.flush()
    # One message came before the clock ran: the one that showed the way.
    wait_s = receiver.connection.timeout_s
    with contextlib.suppress(NothingReceivedError):  # the report tells what is lost
        await tally.reach(sent + 1, wait_s, wait_s)
    tally.end()
    watch(latencies.number)
    return tally, latencies, sent


async def _reaches(sender: Link, receiver: Link, tally: Tally, send: Callable[[], None]) -> None:
    """Return once a first message has come; raises UnreachableError when none does."""
    wait_s = receiver.connection.timeout_s
    send()
    try:
        await tally.reach(1, wait_s, wait_s)
    except NothingReceivedError:
        raise UnreachableError(
            f"no message got from {sender.connection.target.shown} to {receiver.connection.target.shown} "
            f"within {wait_s:g}s",
            hint="both must be the same server or be connected, and both logins must be in the same account",
        ) from None
