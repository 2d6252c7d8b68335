"""Work of one client, by kind of benchmark.

* requests one after another, each timed until its answer arrives;
* batches of direct gets, many messages with one request;
* publishers that send a batch of messages before they wait for the acks;
* a publisher of a fast batch, its flow controlled by the stream. The reply subject of each message has its place in the
  batch: `<inbox>.<batch>.<messages between acks>.fail.<place>.<operation>.$FI`. Source: ADR-50;
* core NATS: publishers, subscribers, and a service that answers;
* consumers with pull requests: one after another, or several at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from natsctl.api import endpoints, headers
from natsctl.api.acks import ACK
from natsctl.api.errors import ApiResponseError, NatsctlError, NothingReceivedError, ProtocolError, UnreachableError
from natsctl.client.bench.client import (
    BenchClient,
    ClientProgress,
    CommandBuilder,
    Pace,
    answer_failure,
    body_of,
    command,
    failed_status,
)
from natsctl.client.requests import api_error

Answer = tuple[bytes, bytes]
"""Header block and payload."""
NOT_FOUND = b"NATS/1.0 404"


async def _requests(
    client: BenchClient, request: Callable[[int, bytes], bytes], size_of: Callable[[int, Answer], int]
) -> None:
    """Send every request with an inbox, and time it; `size_of` returns the bytes that an answer counts for."""
    inbox, progress, answered = client.new_inbox(), client.progress, asyncio.Event()
    answer: Answer = b"", b""

    def take(_subject: bytes, _reply: bytes, header: bytes, body: bytes) -> None:
        nonlocal answer
        answer = header, body
        answered.set()

    await client.link.listen(inbox.decode(), take, progress)
    await client.start()
    pace = Pace(client.load)
    for done in range(client.share):
        progress.check()
        sent = request(client.first + done, inbox)
        answered.clear()
        before = time.perf_counter_ns()
        client.link.post(sent)
        try:
            async with asyncio.timeout(client.idle_s):
                await answered.wait()
        except TimeoutError:
            progress.check()
            subject = sent.split(b" ", 2)[1].decode(errors="replace")
            raise UnreachableError(f"no answer on {subject} within {client.idle_s:g}s") from None
        progress.latencies.add(time.perf_counter_ns() - before)
        progress.add(1, size_of(client.first + done, answer))
        await pace.rest(done + 1)
    progress.end()


def _check_answer(subject: str, answer: Answer) -> None:
    if (failure := answer_failure(subject, *answer)) is not None:
        raise failure


async def service(client: BenchClient) -> None:
    make = CommandBuilder(client.load)

    def size_of(_number: int, answer: Answer) -> int:
        if answer[0].startswith(b"NATS/1.0 "):
            failure = failed_status(client.load.subject, answer[0])
            failure.hint = "start natsctl bench service serve with the same subject first"
            raise failure
        return len(make.body)

    await _requests(client, make.one, size_of)


async def stored(client: BenchClient) -> None:
    """Publish with an ack, one message at a time."""
    make = CommandBuilder(client.load)

    def size_of(_number: int, answer: Answer) -> int:
        _check_answer(client.load.subject, answer)
        return len(make.body)

    await _requests(client, make.one, size_of)


async def put(client: BenchClient) -> None:
    load, body = client.load, body_of(client.load)

    def request(number: int, inbox: bytes) -> bytes:
        return command(b"$KV.%b.%d" % (load.bucket.encode(), _key(load.randomize, number)), body, inbox)

    def size_of(_number: int, answer: Answer) -> int:
        _check_answer(f"$KV.{load.bucket}", answer)
        return len(body)

    await _requests(client, request, size_of)


def _key(randomize: int, number: int) -> int:
    return random.randrange(randomize) if randomize else number


async def value(client: BenchClient) -> None:
    load, api = client.load, client.manager.connection.target.api_prefix
    subject = f"{api}.DIRECT.GET.KV_{load.bucket}.$KV.{load.bucket}"

    def request(number: int, inbox: bytes) -> bytes:
        return command(f"{subject}.{_key(load.randomize, number)}".encode(), b"", inbox)

    def size_of(_number: int, answer: Answer) -> int:
        if answer[0].startswith(NOT_FOUND):
            raise NothingReceivedError(
                f"bucket {load.bucket} lacks a key that should be read",
                hint="put as many with natsctl bench kv put first, or give a smaller --msgs or --randomize",
            )
        _check_answer(subject, answer)
        return len(answer[1])

    await _requests(client, request, size_of)


async def get(client: BenchClient) -> None:
    """Get messages from a stream, each the next one after the last one."""
    load = client.load
    subject = f"{client.manager.connection.target.api_prefix}.DIRECT.GET.{load.stream}"
    state = (await client.manager.stream_info(load.stream)).value.state
    seq = state.first_seq + client.first

    def request(_number: int, inbox: bytes) -> bytes:
        return command(subject.encode(), json.dumps({"seq": seq, "next_by_subj": ">"}).encode(), inbox)

    def size_of(_number: int, answer: Answer) -> int:
        nonlocal seq
        if answer[0].startswith(NOT_FOUND):
            raise too_few(load.stream, state.messages, load.total)
        _check_answer(subject, answer)
        seq = int(headers.get(answer[0], headers.SEQUENCE) or 0) + 1
        return len(answer[1])

    await _requests(client, request, size_of)


def too_few(stream: str, messages: int, requested: int) -> NothingReceivedError:
    """Return the failure of reading more messages than there are."""
    return NothingReceivedError(
        f"Stream {stream} has {messages:,} messages, {requested:,} should be read",
        hint="fill it with natsctl bench js pub, or give a smaller --msgs",
    )


END_OF_BATCH = b"NATS/1.0 204"


async def get_batches(client: BenchClient) -> None:
    """Read with batched direct gets, one after another; the latency is a batch's."""
    load, progress, inbox = client.load, client.progress, client.new_inbox()
    state = (await client.manager.stream_info(load.stream)).value.state
    subject = f"{client.manager.connection.target.api_prefix}.DIRECT.GET.{load.stream}"
    place = state.first_seq + client.first

    def take(_subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        nonlocal place
        if header.startswith(END_OF_BATCH):
            place = int(headers.get(header, headers.LAST_SEQUENCE) or 0) + 1
            progress.stop()
        elif header.startswith(NOT_FOUND):
            progress.fail(too_few(load.stream, state.messages, load.total))
        elif header.startswith(b"NATS/1.0 "):
            progress.fail(failed_status(subject, header))
        else:
            progress.add(1, len(body))

    await client.link.listen(inbox.decode(), take, progress)
    await client.start()
    while progress.msgs < client.share:
        done = progress.msgs
        step = min(load.batch, client.share - done)
        wanted = {"seq": place, "batch": step, "next_by_subj": load.filter[0] if load.filter else ">"}
        before = time.perf_counter_ns()
        client.link.post(command(subject.encode(), json.dumps(wanted).encode(), inbox))
        progress.go_on()
        await progress.reach(done + step + 1, client.idle_s, client.idle_s)
        progress.latencies.add(time.perf_counter_ns() - before)
        if progress.msgs == done:
            raise too_few(load.stream, state.messages, load.total)
    progress.end()


async def _in_batches(client: BenchClient, send: Callable[[int, int], Awaitable[None]]) -> None:
    """Send a batch, of so many messages from a number on, wait for its answers, send the next; times each batch."""
    load, progress = client.load, client.progress
    await client.start()
    pace, done = Pace(load), 0
    while done < client.share:
        count = min(load.batch, client.share - done)
        before = time.perf_counter_ns()
        await send(client.first + done, count)
        done += count
        await progress.reach(done, client.idle_s, client.idle_s)
        progress.latencies.add(time.perf_counter_ns() - before)
        await pace.rest(done)
    progress.check()
    progress.end()


async def publish_async(client: BenchClient) -> None:
    """Publish batches with an ack for each message."""
    inbox, progress, subject = client.new_inbox(), client.progress, client.load.subject
    make = CommandBuilder(client.load)
    size = len(make.body)

    def take(_subject: bytes, _reply: bytes, header: bytes, body: bytes) -> None:
        failure = answer_failure(subject, header, body)
        if failure is not None:
            progress.fail(failure)
        else:
            progress.add(1, size)

    async def send(first: int, count: int) -> None:
        for part in range(0, count, make.fitting):
            await client.link.write(make.many(first + part, min(make.fitting, count - part), inbox))

    await client.link.listen(inbox.decode(), take, progress)
    await _in_batches(client, send)


async def publish_atomic(client: BenchClient) -> None:
    """Publish batches that are stored as a whole or not at all, with one ack for each."""
    inbox, progress, load = client.new_inbox(), client.progress, client.load
    make, unacknowledged = CommandBuilder(load), 0

    def take(_subject: bytes, _reply: bytes, header: bytes, body: bytes) -> None:
        failure = answer_failure(load.subject, header, body)
        if failure is not None:
            progress.fail(failure)
        elif body:
            progress.add(unacknowledged, unacknowledged * len(make.body))

    async def send(first: int, count: int) -> None:
        nonlocal unacknowledged
        unacknowledged = count
        await client.link.write(_batch(make, first, count, inbox))

    await client.link.listen(inbox.decode(), take, progress)
    await _in_batches(client, send)


def _batch(make: CommandBuilder, first: int, count: int, inbox: bytes) -> bytes:
    """Return the commands of one atomic batch; only the message that commits it asks for an answer."""
    name = uuid.uuid4().hex.encode()
    commands = []
    for place in range(1, count + 1):
        number = first + place - 1
        pairs = [*make.pairs(number), (headers.BATCH_ID, name), (headers.BATCH_SEQUENCE, b"%d" % place)]
        if place == count:
            pairs.append((headers.BATCH_COMMIT, b"1"))
        commands.append(command(make.subject(number), make.body, inbox if place == count else b"", pairs))
    return b"".join(commands)


START, APPEND, COMMIT = range(3)


class FastBatchFlow:
    """Progress of a fast batch as the stream reports it; `may_send` is the last place that may be sent."""

    def __init__(self, progress: ClientProgress, subject: str, size: int, outstanding: int, share: int) -> None:
        self._tally, self._subject, self._size = progress, subject, size
        self._outstanding, self._share = outstanding, share
        self.may_send = 1
        self.moved = asyncio.Event()

    def take(self, _subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        failure = answer_failure(self._subject, header, body)
        said = {} if failure is not None or not body else json.loads(body)
        if said.get("type") == "gap":
            failure = ProtocolError(f"the stream missed messages of the batch on {self._subject}: {said}")
        elif "batch" in said:
            self._count(self._share)
        elif said.get("type") == "ack":
            self._count(int(said.get("seq") or 0))
            self.may_send = self._tally.msgs + self._outstanding * int(said.get("msgs") or 1)
        elif failure is None:
            failure = _odd(self._subject, said)
        if failure is not None:
            self._tally.fail(failure)
        self.moved.set()

    def _count(self, stored: int) -> None:
        more = stored - self._tally.msgs
        if more > 0:
            self._tally.add(more, more * self._size)


def _odd(subject: str, said: dict[str, object]) -> NatsctlError:
    if error := said.get("error"):
        return ApiResponseError(api_error(error), subject)
    return ProtocolError(f"the stream's answer on {subject} is not an ack of a fast batch: {said}")


async def publish_fast(client: BenchClient) -> None:
    """Send all messages of the client as one batch, as quickly as the stream lets it."""
    load, progress, inbox = client.load, client.progress, client.new_inbox()
    make = CommandBuilder(load)
    head = b"%b.%b.%d.fail" % (inbox, uuid.uuid4().hex.encode(), load.batch)
    flow = FastBatchFlow(progress, load.subject, len(make.body), load.max_outstanding_acks, client.share)
    await client.link.listen(f"{inbox.decode()}.>", flow.take, progress)
    await client.start()
    pace, sent = Pace(load), 0

    def one(place: int) -> bytes:
        operation = COMMIT if place == client.share else START if place == 1 else APPEND
        number = client.first + place - 1
        reply = b"%b.%d.%d.$FI" % (head, place, operation)
        return command(make.subject(number), make.body, reply, make.pairs(number))

    while sent < client.share:
        progress.check()
        until = min(flow.may_send, client.share, sent + pace.step(make.fitting))
        if until > sent:
            await client.link.write(b"".join(map(one, range(sent + 1, until + 1))))
            sent = until
            await pace.rest(sent)
        else:
            await _moved(client, flow)
    await progress.reach(client.share, client.idle_s, client.idle_s)
    progress.end()


async def _moved(client: BenchClient, flow: FastBatchFlow) -> None:
    """Return after the next flow message of the stream; raises UnreachableError without one."""
    flow.moved.clear()
    client.progress.check()
    try:
        async with asyncio.timeout(client.idle_s):
            await flow.moved.wait()
    except TimeoutError:
        client.progress.check()
        raise UnreachableError(f"the stream said nothing about the batch for {client.idle_s:g}s") from None


SILENCE_S = 10.0
"""Seconds that a subscriber waits for each message after the first: a dropped one never comes."""
QUEUE = "natsctl-bench"


async def publish(client: BenchClient) -> None:
    """Send the messages; it ends when the server has read all of them."""
    make = CommandBuilder(client.load)
    await client.start()
    await send(client, make)
    await client.link.flush()
    client.progress.end()


async def send(client: BenchClient, make: CommandBuilder) -> None:
    pace, size = Pace(client.load), len(make.body)
    most, done = pace.step(make.fitting), 0
    while done < client.share:
        step = min(most, client.share - done)
        await client.link.write(make.many(client.first + done, step))
        done += step
        client.progress.add(step, step * size)
        await pace.rest(done)


async def subscribe(client: BenchClient) -> None:
    """Receive the messages; the clock starts with the first one."""
    load, progress = client.load, client.progress
    subject = f"{load.subject}.*" if load.multisubject else load.subject

    share = client.share

    def take(subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        if not progress.msgs:
            progress.begin()
        if progress.msgs < share:  # others may publish more than was asked for
            progress.add(1, len(body))

    await client.link.listen(subject, take, progress)
    await client.start()
    wait_s = load.wait_ns / 1e9
    await progress.reach(share, wait_s or SILENCE_S, wait_s or None)
    progress.end()


async def serve(client: BenchClient) -> None:
    """Answer requests, shared with the other clients; the clock starts with the first one.

    The clients end together after all messages, however they were distributed: waiting ones are stopped then.
    """
    load, progress, loop = client.load, client.progress, asyncio.get_running_loop()
    body = body_of(load)

    def take(subject: bytes, reply: bytes, header: bytes, asked: bytes) -> None:
        if not progress.msgs:
            progress.begin()
        answer = command(reply, body)
        if load.sleep_ns:
            loop.call_later(load.sleep_ns / 1e9, client.link.post, answer)
        else:
            client.link.post(answer)
        progress.add(1, len(body))
        progress.end_ns = time.monotonic_ns()

    await client.link.listen(load.subject, take, progress, queue=QUEUE)
    await client.start()
    wait_s = load.wait_ns / 1e9 or None
    await progress.reach(client.load.total, wait_s, wait_s)
    await client.link.flush()


ENDED = (b"NATS/1.0 404", b"NATS/1.0 408")
"""Beginnings of status messages that end a pull request without further messages."""
ORDERED_INACTIVE_NS = 60_000_000_000
"""Maximum life of an ordered consumer without its client."""


class BenchReader:
    """A reader of one client's share of a consumer's messages, with the acknowledgements that are asked for.

    With double acks a message counts once the server has confirmed its ack.
    """

    def __init__(self, client: BenchClient, consumer: str, acks: str, *, refill: bool) -> None:
        load, connection = client.load, client.manager.connection
        self._client, self._acks, self._refill = client, acks, refill
        self._subject = endpoints.CONSUMER_MSG_NEXT.subject(
            load.stream, consumer, prefix=connection.target.api_prefix
        ).encode()
        self._inbox, self._ack_inbox = client.new_inbox(), client.new_inbox()
        self._double = load.doubleack and acks != "none"
        self._unconfirmed: deque[tuple[int, int]] = deque()
        self._uncovered = [0, 0]
        self.got = 0
        self.asked = 0

    async def listen(self) -> None:
        client = self._client
        await client.link.listen(self._inbox.decode(), self._take, client.progress)
        if self._double:
            await client.link.listen(self._ack_inbox.decode(), self._confirmed, client.progress)

    def pull(self, messages: int) -> None:
        self.asked += messages
        wanted = {"batch": messages, "expires": int((self._client.idle_s + 1) * 1e9)}
        self._client.link.post(command(self._subject, json.dumps(wanted).encode(), self._inbox))

    def _take(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        client = self._client
        if header.startswith(b"NATS/1.0 "):
            self._status(header)
            return
        self.got += 1
        self.asked -= 1
        if self.got == 1 and self._refill:
            client.progress.begin()
        self._acknowledge(reply, len(body))
        if self._refill and self.asked <= client.load.batch // 2:
            more = min(client.load.batch, client.share - self.got) - self.asked
            if more > 0:
                self.pull(more)

    def _status(self, header: bytes) -> None:
        if not header.startswith(ENDED):
            self._client.progress.fail(failed_status(self._subject.decode(), header))
            return
        self.asked -= int(headers.get(header, headers.PENDING_MESSAGES) or self.asked)
        if self._refill and not self.asked and self.got < self._client.share:
            self.pull(min(self._client.load.batch, self._client.share - self.got))

    def _acknowledge(self, reply: bytes, size: int) -> None:
        """Ack a message, with `all` the last one of half a batch for all before it, and count what needs no more."""
        client = self._client
        if not self._double:
            client.progress.add(1, size)
        if self._acks == "none":
            return
        self._uncovered[0] += 1
        self._uncovered[1] += size
        every = max(1, client.load.batch // 2) if self._acks == "all" else 1
        if self._uncovered[0] < every and self.asked and self.got < client.share:
            return
        if self._double:
            self._unconfirmed.append((self._uncovered[0], self._uncovered[1]))
        self._uncovered = [0, 0]
        client.link.post(command(reply, ACK, self._ack_inbox if self._double else b""))

    def _confirmed(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        if header.startswith(b"NATS/1.0 "):
            self._client.progress.fail(failed_status("the consumer's acks", header))
        elif self._unconfirmed:
            self._client.progress.add(*self._unconfirmed.popleft())


async def consume(client: BenchClient) -> None:
    """Read from the durable consumer, with pull requests renewed when half of a batch has come."""
    await _flow(client, client.load.consumer, client.load.acks)


async def _flow(client: BenchClient, consumer: str, acks: str) -> None:
    reader = BenchReader(client, consumer, acks, refill=True)
    await reader.listen()
    await client.start()
    reader.pull(min(client.load.batch, client.share))
    await client.progress.reach(client.share, client.idle_s, client.idle_s)
    client.progress.end()
    await client.link.flush()


async def fetch(client: BenchClient) -> None:
    """Read from the durable consumer batch by batch."""
    reader = BenchReader(client, client.load.consumer, client.load.acks, refill=False)

    async def pull(_first: int, count: int) -> None:
        reader.pull(count)

    await reader.listen()
    await _in_batches(client, pull)
    await client.link.flush()


async def ordered(client: BenchClient) -> None:
    """Read everything through a consumer of its own that needs no acks, and remove it."""
    load, manager = client.load, client.manager
    config: dict[str, Any] = {
        "ack_policy": "none",
        "deliver_policy": "all",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": ORDERED_INACTIVE_NS,
    }
    if load.filter:
        config["filter_subjects"] = list(load.filter)
    consumer = str((await manager.consumer_create(load.stream, config)).raw["name"])
    try:
        await _flow(client, consumer, "none")
    finally:
        with contextlib.suppress(NatsctlError):
            await manager.consumer_delete(load.stream, consumer)
