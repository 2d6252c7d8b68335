"""One client of a benchmark: its connection, its commands, its progress, its latencies, and the common start.

A connection of nats-py spends some 5 µs of processor time on a message that it sends, and as much on one that it
receives; most servers are quicker. Here whole blocks of commands are written at once (below 0.5 µs a message), and
messages of registered subscriptions go from the client's parser straight to a function, without an object or a queue.
Login, TLS, PING and errors stay with nats-py.

Latencies are a histogram: counts by value, to within one part in 128. Values up to 255 ns are exact. There are at most
some 7,000 different values, however many are added, so that a run of hours needs no more memory, and histograms of
several processes are merged by adding counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api import headers
from natsctl.api.catalogue import ApiError
from natsctl.api.errors import ApiResponseError, NatsctlError, NothingReceivedError, ProtocolError, UnreachableError
from natsctl.api.headers import parse_status
from natsctl.client.bench.load import Load
from natsctl.client.message import NO_RESPONDERS
from natsctl.client.requests import api_error, parse_object
from natsctl.wire.client import encode_pub

if TYPE_CHECKING:
    from natsctl.client.connection import Connection
    from natsctl.client.manager import Manager
    from natsctl.client.nats_client import MessageHandler


_KEPT_BITS = 8


class Spread(msgspec.Struct):
    """Distribution of durations, in nanoseconds."""

    min_ns: int
    avg_ns: int
    stddev_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int


class Latencies:
    __slots__ = ("counts", "longest_ns", "number", "shortest_ns", "squares", "sum_ns")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.number = 0
        self.sum_ns = 0
        self.squares = 0
        self.shortest_ns = 0
        self.longest_ns = 0

    def add(self, ns: int) -> None:
        shift = max(0, ns.bit_length() - _KEPT_BITS)
        key = ns >> shift << shift
        self.counts[key] = self.counts.get(key, 0) + 1
        if not self.number or ns < self.shortest_ns:
            self.shortest_ns = ns
        self.longest_ns = max(self.longest_ns, ns)
        self.number += 1
        self.sum_ns += ns
        self.squares += ns * ns

    def merge(self, other: Latencies) -> None:
        if not other.number:
            return
        for key, count in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        self.shortest_ns = min(self.shortest_ns, other.shortest_ns) if self.number else other.shortest_ns
        self.longest_ns = max(self.longest_ns, other.longest_ns)
        self.number += other.number
        self.sum_ns += other.sum_ns
        self.squares += other.squares

    def percentile(self, percent: float) -> int:
        """Return the length that so many percent do not exceed; 0 when none was added."""
        wanted, seen = math.ceil(self.number * percent / 100), 0
        for key in sorted(self.counts):
            seen += self.counts[key]
            if seen >= wanted:
                return min(max(key, self.shortest_ns), self.longest_ns)
        return self.longest_ns

    def spread(self) -> Spread | None:
        """Return all of it in a few numbers, None when none was added."""
        if not self.number:
            return None
        mean = self.sum_ns / self.number
        return Spread(
            min_ns=self.shortest_ns,
            avg_ns=round(mean),
            stddev_ns=round(math.sqrt(max(0.0, self.squares / self.number - mean * mean))),
            p50_ns=self.percentile(50),
            p90_ns=self.percentile(90),
            p99_ns=self.percentile(99),
            p999_ns=self.percentile(99.9),
            max_ns=self.longest_ns,
        )

    def bins(self) -> list[tuple[int, int]]:
        """Return bins, two for each doubling: upper end in ns, and the number of values above the previous end."""
        if not self.number:
            return []
        first, last = _step(self.shortest_ns), _step(self.longest_ns)
        found = dict.fromkeys(range(first, last + 1), 0)
        for key, count in self.counts.items():
            found[min(max(_step(key), first), last)] += count
        return [(_end(step), count) for step, count in found.items()]


def _step(ns: int) -> int:
    """Return the number of the bin: two for each power of two; the second begins half-way to the next."""
    ns = max(ns, 2)
    bits = ns.bit_length()
    return 2 * bits + (ns >> (bits - 2) & 1)


def _end(step: int) -> int:
    bits, upper = divmod(step, 2)
    return 1 << bits if upper else 3 << (bits - 2)


BLOCK_BYTES = 64 * 1024
"""Bytes written at once: enough to be cheap, little enough to keep the others of the process going."""
PACED_S = 0.01
"""Seconds of messages that are sent together to keep a rate."""


def command(subject: bytes, body: bytes, reply: bytes = b"", pairs: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """Return a PUB, or with headers an HPUB."""
    return encode_pub(subject, reply, headers.encode(pairs) if pairs else b"", body)


def body_of(load: Load) -> bytes:
    """Return the payload that every message has: the one that was given, or noise that does not compress."""
    return random.Random(load.size).randbytes(load.size) if load.payload is None else load.payload


class CommandBuilder:
    """Builder of the command of a client's n-th message; equal commands are built once."""

    def __init__(self, load: Load) -> None:
        self.body = body_of(load)
        self._load = load
        self._subject = load.subject.encode()
        self._pairs = [(key.encode(), value.encode()) for key, value in load.headers.items()]
        self._run = uuid.uuid4().hex
        self._are_equal = not load.multisubject and not load.dedup
        self._built: dict[bytes, bytes] = {}

    def subject(self, number: int) -> bytes:
        """Return the subject of a message: with many subjects its number, or a random one, as last token."""
        load = self._load
        if not load.multisubject:
            return self._subject
        subjects = load.multisubjectmax
        if load.multisubjectrandomize:
            number = random.randrange(subjects or load.total)
        return b"%b.%d" % (self._subject, number % subjects if subjects else number)

    def pairs(self, number: int) -> list[tuple[bytes, bytes]]:
        if not self._load.dedup:
            return self._pairs
        return [*self._pairs, (headers.MSG_ID, f"{self._run}-{number}".encode())]

    def one(self, number: int, reply: bytes = b"") -> bytes:
        if not self._are_equal:
            return command(self.subject(number), self.body, reply, self.pairs(number))
        built = self._built.get(reply)
        if built is None:
            built = self._built[reply] = command(self._subject, self.body, reply, self._pairs)
        return built

    def many(self, first: int, count: int, reply: bytes = b"") -> bytes:
        if self._are_equal:
            return self.one(first, reply) * count
        return b"".join(self.one(number, reply) for number in range(first, first + count))

    @property
    def fitting(self) -> int:
        """Return how many messages make about one block."""
        return max(1, BLOCK_BYTES // (len(self.body) + len(self._subject) + 32))


class Pace:
    """Rate limit of a client, and its pauses between messages."""

    def __init__(self, load: Load) -> None:
        self._rate = load.throughput / load.clients
        self._sleep_s = load.sleep_ns / 1e9
        self._begin_s = time.monotonic()

    def step(self, most: int) -> int:
        """Return how many messages may go together."""
        if self._sleep_s:
            return 1
        return max(1, min(most, int(self._rate * PACED_S))) if self._rate else most

    async def rest(self, done: int) -> None:
        """Wait until more than `done` messages may be sent."""
        if self._sleep_s:
            await asyncio.sleep(self._sleep_s)
        if self._rate and (early_s := self._begin_s + done / self._rate - time.monotonic()) > 0:
            await asyncio.sleep(early_s)


class ClientProgress:
    """Messages and bytes that count, when it began and ended, and how long each operation took."""

    __slots__ = ("_failure", "_stopped", "_target", "_waiting", "begin_ns", "bytes", "end_ns", "latencies", "msgs")

    def __init__(self) -> None:
        self.msgs = 0
        self.bytes = 0
        self.begin_ns = 0
        self.end_ns = 0
        self.latencies = Latencies()
        self._target = 0
        self._waiting: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._stopped = False

    def begin(self) -> None:
        self.begin_ns = self.end_ns = time.monotonic_ns()

    def end(self) -> None:
        self.end_ns = time.monotonic_ns()

    def add(self, msgs: int, size: int) -> None:
        """Count messages that have together `size` bytes, and wake the waiter for that many."""
        self.msgs += msgs
        self.bytes += size
        if self.msgs >= self._target and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def fail(self, failure: BaseException) -> None:
        """Fail the present or next waiter with `failure`."""
        self._failure = self._failure or failure
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(self._failure)

    def stop(self) -> None:
        """End the wait for messages without the rest."""
        self._stopped = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def go_on(self) -> None:
        self._stopped = False

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def reach(self, msgs: int, idle_s: float | None, first_s: float | None = None) -> None:
        """Return once `msgs` messages are counted.

        Raises NothingReceivedError when for `idle_s` none was, or not even a first one for `first_s` (None: wait for
        ever).
        """
        while self.msgs < msgs and not self._stopped:
            self.check()
            seen = self.msgs
            self._target = msgs
            self._waiting = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(idle_s if seen else first_s):
                    await self._waiting
            if self.msgs == seen and not self._stopped:
                self.check()
                raise NothingReceivedError(
                    f"{seen:,} of {msgs:,} messages came, then none for {(idle_s if seen else first_s) or 0:g}s"
                )


FLUSH_S = 120.0
"""Seconds that a server gets for unread data at the end of a run."""


class RawConnection:
    """Commands out and messages in on one connection; taken apart with it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # Private parts of nats-py: only this package may use them.
        client: Any = connection._client
        self._client = client
        self._posted: list[bytes] = []

    # -- out

    async def write(self, block: bytes) -> None:
        """Send commands, and let other tasks run; raises UnreachableError when the connection has ended."""
        try:
            self._client._transport.write(block)
            await self._client._transport.drain()
        except (OSError, AttributeError):
            await self.connection.flush()
            raise UnreachableError(f"the connection to {self.connection.target.shown} was lost") from None
        await asyncio.sleep(0)

    def post(self, block: bytes) -> None:
        """Send a command together with the others of this turn of the loop."""
        if not self._posted:
            asyncio.get_running_loop().call_soon(self._send_posted)
        self._posted.append(block)

    def _send_posted(self) -> None:
        block, self._posted = b"".join(self._posted), []
        if self._client._transport is not None:
            self._client._transport.write(block)

    async def flush(self) -> None:
        """Return once the server has read everything; raises NotAuthorisedError for a subject that it refused."""
        await self.connection.flush(FLUSH_S)

    # -- in

    async def listen(self, subject: str, take: MessageHandler, progress: ClientProgress, queue: str = "") -> None:
        """Pass every message on a subject to `take`; the end of the subscription fails the progress."""
        await self.connection.subscribe(subject, queue=queue, handler=take, on_end=progress.fail)


@dataclass(slots=True)
class BenchClient:
    """State of one client, as its workload gets it."""

    manager: Manager
    link: RawConnection
    load: Load
    number: int
    ready: Callable[[], None]
    """Called once it only waits for the start."""
    started: asyncio.Event
    progress: ClientProgress = field(default_factory=ClientProgress)

    @property
    def first(self) -> int:
        """Return its first message, from 0."""
        return self.load.share(self.number)[0]

    @property
    def share(self) -> int:
        return self.load.share(self.number)[1]

    @property
    def idle_s(self) -> float:
        """Return how long it waits for something that should come."""
        return self.load.wait_ns / 1e9 or self.manager.connection.timeout_s

    def new_inbox(self) -> bytes:
        return self.manager.connection.new_inbox().encode()

    async def start(self) -> None:
        await self.link.flush()
        self.ready()
        await self.started.wait()
        self.progress.begin()


def answer_failure(subject: str, header: bytes, body: bytes) -> NatsctlError | None:
    """Return the error of an answer to a message, None without one: no responders, or the stream's error."""
    if header.startswith(b"NATS/1.0 "):
        return failed_status(subject, header)
    if b'"error"' not in body:
        return None
    try:
        error = parse_object(body, subject).get("error")
    except ProtocolError:
        return None
    return ApiResponseError(api_error(error), subject) if error else None


def failed_status(subject: str, header: bytes) -> NatsctlError:
    status, text = parse_status(header)
    failure: NatsctlError
    if status == NO_RESPONDERS:
        failure = UnreachableError(f"no responders on {subject}", hint="no subscriber and no stream takes it")
    else:
        failure = ApiResponseError(ApiError(code=status, description=text), subject)
    failure.subject = subject
    return failure
