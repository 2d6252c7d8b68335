"""Work of one client, by kind of benchmark.

* requests one after the other, each of which waits for its answer and measures it;
* batches of direct gets, many messages with one request;
* publishers that send a batch of messages before they wait for the acks;
* a publisher of a fast batch, whose flow the stream controls. The reply subject of each message has its place in the
  batch: `<inbox>.<batch>.<messages between acks>.fail.<place>.<operation>.$FI`. Source: ADR-50;
* core NATS: publishers, subscribers, and a service that answers;
* consumers with pull requests: one after the other, or several at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

from natsctl.api import endpoints, headers
from natsctl.api.acks import ACK
from natsctl.api.errors import ApiResponseError, NatsctlError, NothingReceivedError, ProtocolError, UnreachableError
from natsctl.client.bench.client import (
    Client,
    ClientProgress,
    CommandBuilder,
    Pace,
    body_of,
    command,
    failed_status,
    refusal,
)
from natsctl.client.requests import api_error

Answer = tuple[bytes, bytes]
"""Header block and payload."""
NOT_FOUND = b"NATS/1.0 404"


class Requester:
    """Requests on one inbox, one at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._future: asyncio.Future[Answer] | None = None
        self.inbox = client.new_inbox()

    async def listen(self) -> None:
        """Subscribe to the answers."""
        await self._client.link.listen(self.inbox.decode(), self._take, self._client.progress)

    def _take(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result((header, body))

    async def ask(self, request: bytes) -> Answer:
        """Return the answer to a request, which names the inbox; raises UnreachableError."""
        client = self._client
        client.progress.check()
        self._future = asyncio.get_running_loop().create_future()
        client.link.post(request)
        try:
            async with asyncio.timeout(client.idle_s):
                return await self._future
        except TimeoutError:
            client.progress.check()
            words = request.split(b" ", 2)
            subject = words[1].decode(errors="replace")
            raise UnreachableError(f"no answer on {subject} within {client.idle_s:g}s") from None


async def _each(
    client: Client, asker: Requester, request: Callable[[int], bytes], judge: Callable[[int, Answer], int]
) -> None:
    """Ask for every message, time it, and count the bytes that `judge` finds in it or its answer."""
    await asker.listen()
    await client.start()
    pace = Pace(client.load)
    for done in range(client.share):
        number = client.first + done
        words = request(number)
        before = time.perf_counter_ns()
        answer = await asker.ask(words)
        client.progress.latencies.add(time.perf_counter_ns() - before)
        client.progress.add(1, judge(number, answer))
        await pace.rest(done + 1)
    client.progress.end()


def _refused(subject: str, answer: Answer) -> None:
    if (failure := refusal(subject, *answer)) is not None:
        raise failure


async def service(client: Client) -> None:
    """Send requests to the service on the subject."""
    asker = Requester(client)
    make = CommandBuilder(client.load, asker.inbox)

    def judge(number: int, answer: Answer) -> int:
        if answer[0].startswith(b"NATS/1.0 "):
            raise _without_service(failed_status(client.load.subject, answer[0]))
        return len(make.body)

    await _each(client, asker, make.one, judge)


def _without_service(failure: NatsctlError) -> NatsctlError:
    failure.hint = "start natsctl bench service serve with the same subject first"
    return failure


async def stored(client: Client) -> None:
    """Publish with an ack, one message at a time."""
    asker = Requester(client)
    make = CommandBuilder(client.load, asker.inbox)

    def judge(number: int, answer: Answer) -> int:
        _refused(client.load.subject, answer)
        return len(make.body)

    await _each(client, asker, make.one, judge)


async def put(client: Client) -> None:
    """Put values into a bucket."""
    asker, load = Requester(client), client.load
    body = body_of(load)

    def request(number: int) -> bytes:
        return command(b"$KV.%b.%d" % (load.bucket.encode(), _key(load.randomize, number)), body, asker.inbox)

    def judge(number: int, answer: Answer) -> int:
        _refused(f"$KV.{load.bucket}", answer)
        return len(body)

    await _each(client, asker, request, judge)


def _key(randomize: int, number: int) -> int:
    return random.randrange(randomize) if randomize else number


async def value(client: Client) -> None:
    """Get values from a bucket."""
    asker, load = Requester(client), client.load
    api = client.manager.connection.target.api_prefix
    subject = f"{api}.DIRECT.GET.KV_{load.bucket}.$KV.{load.bucket}"

    def request(number: int) -> bytes:
        return command(f"{subject}.{_key(load.randomize, number)}".encode(), b"", asker.inbox)

    def judge(number: int, answer: Answer) -> int:
        if answer[0].startswith(NOT_FOUND):
            raise NothingReceivedError(
                f"bucket {load.bucket} lacks a key that should be read",
                hint="put as many with natsctl bench kv put first, or give a smaller --msgs or --randomize",
            )
        _refused(subject, answer)
        return len(answer[1])

    await _each(client, asker, request, judge)


async def get(client: Client) -> None:
    """Get messages from a stream, each the next one there is behind the last one."""
    asker, load = Requester(client), client.load
    api = client.manager.connection.target.api_prefix
    subject = f"{api}.DIRECT.GET.{load.stream}"
    state = (await client.manager.stream_info(load.stream)).value.state
    place = state.first_seq + client.first

    def request(number: int) -> bytes:
        wanted = json.dumps({"seq": place, "next_by_subj": ">"}).encode()
        return command(subject.encode(), wanted, asker.inbox)

    def judge(number: int, answer: Answer) -> int:
        nonlocal place
        if answer[0].startswith(NOT_FOUND):
            raise too_few(load.stream, state.messages, load.total)
        _refused(subject, answer)
        place = int(headers.get(answer[0], headers.SEQUENCE) or 0) + 1
        return len(answer[1])

    await _each(client, asker, request, judge)


def too_few(stream: str, there: int, wanted: int) -> NothingReceivedError:
    """Return the failure of reading more messages than there are."""
    return NothingReceivedError(
        f"Stream {stream} has {there:,} messages, {wanted:,} should be read",
        hint="fill it with natsctl bench js pub, or give a smaller --msgs",
    )


END_OF_BATCH = b"NATS/1.0 204"


async def get_batches(client: Client) -> None:
    """Read with batched direct gets, one after the other; the latency is that of a batch."""
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


async def publish_async(client: Client) -> None:
    """Send a batch, wait for all its acks, send the next; the latency is that of a batch."""
    inbox, progress, subject = client.new_inbox(), client.progress, client.load.subject
    make = CommandBuilder(client.load, inbox)
    size = len(make.body)

    def take(_subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        failure = refusal(subject, header, body)
        if failure is not None:
            progress.fail(failure)
        else:
            progress.add(1, size)

    await client.link.listen(inbox.decode(), take, progress)
    await client.start()
    pace, done = Pace(client.load), 0
    while done < client.share:
        step = min(client.load.batch, client.share - done)
        before = time.perf_counter_ns()
        for part in range(0, step, make.fitting):
            await client.link.write(make.many(client.first + done + part, min(make.fitting, step - part)))
        done += step
        await progress.reach(done, client.idle_s, client.idle_s)
        progress.latencies.add(time.perf_counter_ns() - before)
        await pace.rest(done)
    progress.check()
    progress.end()


async def publish_atomic(client: Client) -> None:
    """Send a batch that is stored as a whole or not at all, wait for its ack, send the next."""
    inbox, progress, load = client.new_inbox(), client.progress, client.load
    make, last = CommandBuilder(load, inbox), 0
    size = len(make.body)

    def take(_subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        failure = refusal(load.subject, header, body)
        if failure is not None:
            progress.fail(failure)
        elif body:
            progress.add(last, last * size)

    await client.link.listen(inbox.decode(), take, progress)
    await client.start()
    pace, done = Pace(load), 0
    while done < client.share:
        last = min(load.batch, client.share - done)
        before = time.perf_counter_ns()
        await client.link.write(_batch(make, client.first + done, last, inbox))
        done += last
        await progress.reach(done, client.idle_s, client.idle_s)
        progress.latencies.add(time.perf_counter_ns() - before)
        await pace.rest(done)
    progress.end()


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


class Flow:
    """Progress of a fast batch as the stream reports it; `may_send` is the last place that may be sent."""

    def __init__(self, progress: ClientProgress, subject: str, size: int, outstanding: int, share: int) -> None:
        self._tally, self._subject, self._size = progress, subject, size
        self._outstanding, self._share = outstanding, share
        self.may_send = 1
        self.moved = asyncio.Event()

    def take(self, _subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        """Handle a flow message of the stream."""
        failure = refusal(self._subject, header, body)
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
    return ProtocolError(f"the stream answered on {subject} what is not an ack of a fast batch: {said}")


async def publish_fast(client: Client) -> None:
    """Send all messages of the client as one batch, as quickly as the stream lets it."""
    load, progress, inbox = client.load, client.progress, client.new_inbox()
    make = CommandBuilder(load)
    head = b"%b.%b.%d.fail" % (inbox, uuid.uuid4().hex.encode(), load.batch)
    flow = Flow(progress, load.subject, len(make.body), load.max_outstanding_acks, client.share)
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


async def _moved(client: Client, flow: Flow) -> None:
    """Return after the next flow message of the stream; raises UnreachableError without one."""
    from natsctl.api.errors import UnreachableError

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


async def publish(client: Client) -> None:
    """Send the messages; it ends when the server has read all of them."""
    make = CommandBuilder(client.load)
    await client.start()
    await send(client, make)
    await client.link.flush()
    client.progress.end()


async def send(client: Client, make: CommandBuilder) -> None:
    """Send the messages in blocks, and count them."""
    pace, size = Pace(client.load), len(make.body)
    most, done = pace.step(make.fitting), 0
    while done < client.share:
        step = min(most, client.share - done)
        await client.link.write(make.many(client.first + done, step))
        done += step
        client.progress.add(step, step * size)
        await pace.rest(done)


async def subscribe(client: Client) -> None:
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


async def serve(client: Client) -> None:
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
"""Longest life of an ordered consumer whose client has vanished."""


class Reader:
    """A reader of one client's share of a consumer's messages, with the acknowledgements that are asked for.

    With double acks a message counts once the server has confirmed its ack.
    """

    def __init__(self, client: Client, consumer: str, acks: str, *, refill: bool) -> None:
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
        """Subscribe to the messages."""
        client = self._client
        await client.link.listen(self._inbox.decode(), self._take, client.progress)
        if self._double:
            await client.link.listen(self._ack_inbox.decode(), self._confirmed, client.progress)

    def pull(self, messages: int) -> None:
        """Ask for so many."""
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


async def consume(client: Client) -> None:
    """Read from the durable consumer, with pull requests renewed when half of a batch has come."""
    await _flow(client, client.load.consumer, client.load.acks)


async def _flow(client: Client, consumer: str, acks: str) -> None:
    reader = Reader(client, consumer, acks, refill=True)
    await reader.listen()
    await client.start()
    reader.pull(min(client.load.batch, client.share))
    await client.progress.reach(client.share, client.idle_s, client.idle_s)
    client.progress.end()
    await client.link.flush()


async def fetch(client: Client) -> None:
    """Read from the durable consumer batch by batch; the latency is that of a batch."""
    reader, progress = Reader(client, client.load.consumer, client.load.acks, refill=False), client.progress
    await reader.listen()
    await client.start()
    done = 0
    while done < client.share:
        step = min(client.load.batch, client.share - done)
        before = time.perf_counter_ns()
        reader.pull(step)
        done += step
        await progress.reach(done, client.idle_s, client.idle_s)
        progress.latencies.add(time.perf_counter_ns() - before)
    progress.end()
    await client.link.flush()


async def ordered(client: Client) -> None:
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
