"""Clients that send one request after the other: each waits for its answer, which is what they measure."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable

from natsctl.api import headers
from natsctl.api.errors import NatsctlError, NothingReceivedError, UnreachableError
from natsctl.client.bench.client import Client, failed_status, refusal
from natsctl.client.bench.messages import Maker, Pace, body_of, command

Answer = tuple[bytes, bytes]
"""Header block and payload."""
NOT_FOUND = b"NATS/1.0 404"


class Asker:
    """Requests on one inbox, one at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._future: asyncio.Future[Answer] | None = None
        self.inbox = client.new_inbox()

    async def listen(self) -> None:
        """Be ready for answers."""
        await self._client.link.listen(self.inbox.decode(), self._take, self._client.tally)

    def _take(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result((header, body))

    async def ask(self, request: bytes) -> Answer:
        """The answer to a request, which names the inbox; raises UnreachableError."""
        client = self._client
        client.tally.check()
        self._future = asyncio.get_running_loop().create_future()
        client.link.post(request)
        try:
            async with asyncio.timeout(client.idle_s):
                return await self._future
        except TimeoutError:
            client.tally.check()
            words = request.split(b" ", 2)
            subject = words[1].decode(errors="replace")
            raise UnreachableError(f"no answer on {subject} within {client.idle_s:g}s") from None


async def _each(
    client: Client, asker: Asker, request: Callable[[int], bytes], judge: Callable[[int, Answer], int]
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
        client.tally.latencies.add(time.perf_counter_ns() - before)
        client.tally.add(1, judge(number, answer))
        await pace.rest(done + 1)
    client.tally.end()


def _refused(subject: str, answer: Answer) -> None:
    if (failure := refusal(subject, *answer)) is not None:
        raise failure


async def service(client: Client) -> None:
    """Ask whoever serves the subject."""
    asker = Asker(client)
    make = Maker(client.load, asker.inbox)

    def judge(number: int, answer: Answer) -> int:
        if answer[0].startswith(b"NATS/1.0 "):
            raise _nobody_serves(failed_status(client.load.subject, answer[0]))
        return len(make.body)

    await _each(client, asker, make.one, judge)


def _nobody_serves(failure: NatsctlError) -> NatsctlError:
    failure.hint = "start natsctl bench service serve with the same subject first"
    return failure


async def stored(client: Client) -> None:
    """Publish with an ack, one message at a time."""
    asker = Asker(client)
    make = Maker(client.load, asker.inbox)

    def judge(number: int, answer: Answer) -> int:
        _refused(client.load.subject, answer)
        return len(make.body)

    await _each(client, asker, make.one, judge)


async def put(client: Client) -> None:
    """Put values into a bucket."""
    asker, load = Asker(client), client.load
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
    asker, load = Asker(client), client.load
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
    asker, load = Asker(client), client.load
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
    """The failure of reading more messages than there are."""
    return NothingReceivedError(
        f"Stream {stream} has {there:,} messages, {wanted:,} should be read",
        hint="fill it with natsctl bench js pub, or give a smaller --msgs",
    )
