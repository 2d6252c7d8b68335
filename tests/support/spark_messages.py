"""The messages that are copied by Spark and judged afterwards: what is published, what has to come out of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.support.rawclient import RawClient

SOURCE: Final = "SPARK_IN"
SINK: Final = "SPARK_OUT"
SUBJECTS: Final = 16
PUBLISHED_AT_ONCE: Final = 5000
READ_AT_ONCE: Final = 10_000
EXAMPLES: Final = 5
_TEXT: Final = b"the quick brown fox jumps over the lazy dog and then goes home to sleep until the next morning comes"
_LOUD: Final = _TEXT.upper()
_NUMBER: Final = re.compile(rb'\{"n":(\d+),')
WAIT_S: Final = 120.0


def published(number: int) -> tuple[bytes, bytes]:
    """Subject and payload of a message, the first is 1."""
    text = b"%s %d" % (_TEXT, number * 7919 % 1_000_003)
    return b"in.%d" % (number % SUBJECTS), b'{"n": %d, "amount": %d, "text": "%s"}' % (number, number % 1000, text)


def copied(number: int) -> tuple[bytes, bytes, bytes]:
    """Subject, message id and payload that Spark has to make of it."""
    text = b"%s %d" % (_LOUD, number * 7919 % 1_000_003)
    payload = b'{"n":%d,"amount":%d,"text":"%s"}' % (number, 2 * (number % 1000), text)
    return b"out.%d" % (number % SUBJECTS), b"%s:%d" % (SOURCE.encode(), number), payload


@dataclass
class Judge:
    """Compares what is in the sink with what has to be there, message by message."""

    messages: int
    explicit: bool = True
    """Whether ids were given to the sink; else the sink makes them."""
    stored: int = 0
    distinct: int = 0
    duplicates: int = 0
    missing: int = 0
    wrong: int = 0
    out_of_order: int = 0
    sum_of_numbers: int = 0
    sum_of_amounts: int = 0
    examples: list[str] = field(default_factory=list)
    _seen: bytearray = field(init=False, repr=False)
    _last: dict[bytes, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._seen = bytearray(self.messages + 1)

    def take(self, subject: bytes, header: bytes, payload: bytes) -> None:
        """Judge the next message of the sink."""
        self.stored += 1
        found = _NUMBER.match(payload)
        number = int(found[1]) if found else 0
        expected = copied(number)
        if not 0 < number <= self.messages or (subject, payload) != (expected[0], expected[2]):
            self._fault("wrong", f"{subject!r} {payload[:120]!r}")
            return
        if self.explicit and b"Nats-Msg-Id:" in header and b"Nats-Msg-Id: " + expected[1] + b"\r\n" not in header:
            self._fault("wrong", f"message {number} has the header {header[:120]!r}")
        self.sum_of_numbers += number
        self.sum_of_amounts += 2 * (number % 1000)
        if self._seen[number]:
            self._fault("duplicates", f"message {number} is there again")
        elif number < self._last.get(subject, 0):
            self._fault("out_of_order", f"message {number} comes after {self._last[subject]} on {subject!r}")
        self._seen[number] = 1
        self._last[subject] = max(number, self._last.get(subject, 0))

    def finish(self) -> None:
        """Count what is missing."""
        self.distinct = sum(self._seen)
        self.missing = self.messages - self.distinct
        if self.missing:
            first = self._seen.index(0, 1)
            self.examples.append(f"message {first} is missing")

    @property
    def lost(self) -> bool:
        """Whether anything is missing or wrong; copies of the same message are none of that."""
        return bool(self.missing or self.wrong)

    @property
    def broken(self) -> bool:
        """Whether anything is not as it has to be."""
        sums = (self.messages * (self.messages + 1) // 2, sum(2 * (n % 1000) for n in range(1, self.messages + 1)))
        faults = self.duplicates or self.missing or self.wrong or self.out_of_order
        return bool(faults) or self.stored != self.messages or (self.sum_of_numbers, self.sum_of_amounts) != sums

    def _fault(self, kind: str, example: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{kind}: {example}")


async def request(client: RawClient, verb: str, body: object = None) -> dict[str, object]:
    """The answer of the JetStream API; raises RuntimeError when it is an error."""
    _, answer = await client.request(f"$JS.API.{verb}".encode(), json.dumps(body).encode() if body else b"", WAIT_S)
    said: dict[str, object] = json.loads(answer)
    if "error" in said:
        raise RuntimeError(f"{verb}: {said['error']}")
    return said


async def prepare(client: RawClient, messages: int, retention: str = "limits") -> None:
    """Make both streams and fill the source, which keeps its messages as `retention` says."""
    day_ns = 86_400_000_000_000
    for name, subject, window_ns in ((SOURCE, "in.>", 120_000_000_000), (SINK, "out.>", day_ns)):
        config = {"name": name, "subjects": [subject], "storage": "file", "num_replicas": 1}
        config["retention"] = retention if name == SOURCE else "limits"
        await request(client, f"STREAM.CREATE.{name}", config | {"max_age": 0, "duplicate_window": window_ns})
    for first in range(1, messages + 1, PUBLISHED_AT_ONCE):
        last = min(first + PUBLISHED_AT_ONCE - 1, messages)
        for number in range(first, last):
            client.publish(*published(number))
        await client.request(*published(last), WAIT_S)  # acknowledged, so all before it are stored


async def stored(client: RawClient, stream: str) -> int:
    """How many messages a stream has."""
    state = (await request(client, f"STREAM.INFO.{stream}"))["state"]
    assert isinstance(state, dict)
    return int(state["messages"])


async def read_all(client: RawClient, stream: str, take: Callable[[bytes, bytes, bytes], None]) -> None:
    """Hand every message to `take(subject, header, payload)`, in the order of the stream."""

    left = await stored(client, stream)
    made = await request(client, f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": {"ack_policy": "none"}})
    arrived = asyncio.Event()
    waiting = 0

    def on_delivery(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        nonlocal left, waiting
        if reply:
            take(subject, header, payload)
            left -= 1
            waiting -= 1
        if not reply or waiting == 0:
            arrived.set()

    client.subscribe(b"_INBOX.sparkread", on_delivery)
    while left:
        waiting = min(READ_AT_ONCE, left)
        arrived.clear()
        body = json.dumps({"batch": waiting, "expires": int(WAIT_S * 1e9)}).encode()
        client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{made['name']}".encode(), body, b"_INBOX.sparkread")
        async with asyncio.timeout(WAIT_S):
            await arrived.wait()
