"""The bounds of a client: bytes over a socket that are not parsed; and a client without Spark: nats-py."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import nats
import pyarrow as pa
import pyarrow.parquet as pq
from nats.js.api import AckPolicy, ConsumerConfig

BATCH: Final = 10_000
WINDOW: Final = 4_000
"""Messages of which only the last asks for an acknowledgement; nats-server drops what it cannot queue."""
IN_FLIGHT: Final = 500
"""Messages that nats-py has sent without an acknowledgement."""
_RECEIVE_BYTES: Final = 1 << 20
_WITHIN_S: Final = 120.0


class Wire:
    """One connection, as bare as can be."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._socket = socket.create_connection((place.hostname or "", place.port or 4222), _WITHIN_S)
        self._socket.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB i.> 1\r\nPING\r\n')
        self.wait_for(b"PONG\r\n")

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def wait_for(self, mark: bytes) -> bytes:
        """Receive until a mark has come, and return the piece that has it; PINGs are answered."""
        return next(piece for piece, times in self.pieces(mark) if times)

    def pieces(self, mark: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield what is received, and how often a mark is in it; PINGs are answered."""
        tail = b""
        while piece := self._socket.recv(_RECEIVE_BYTES):
            tail = tail[1 - len(mark) :] + piece
            if b"PING\r\n" in tail:
                self._socket.sendall(b"PONG\r\n")
            yield tail, tail.count(mark)
        raise ConnectionError("the server has closed the connection")

    def ask(self, subject: str, body: Any = None) -> dict[str, Any]:
        """The answer of one API request; raises RuntimeError where it is an error."""
        text = b"" if body is None else json.dumps(body).encode()
        self.send(b"PUB $JS.API.%s i.ask %d\r\n%s\r\n" % (subject.encode(), len(text), text))
        answer = self.wait_for(b"}\r\n").decode()
        found: dict[str, Any] = json.JSONDecoder().raw_decode(answer, answer.index("{"))[0]
        if "error" in found:
            raise RuntimeError(f"{subject}: {found['error']}")
        return found


def publish(url: str, lines: Sequence[bytes]) -> None:
    """Publish messages given as protocol lines without a reply, `WINDOW` at once, of which the last is acknowledged."""
    wire = Wire(url)
    for at in range(0, len(lines), WINDOW):
        *some, last = lines[at : at + WINDOW]
        verb, subject, rest = last.split(b" ", 2)
        wire.send(b"".join((*some, verb, b" ", subject, b" i.ack ", rest)))
        wire.wait_for(b'"seq":')
    wire.close()


def publish_acknowledged(url: str, frames: Sequence[bytes]) -> None:
    """Publish messages whose replies come to `i.ack`, and wait for each one's, half a window ahead of them.

    That is what the source's writer asks of a server.
    """
    wire, half = Wire(url), WINDOW // 2
    parts = (b"".join(frames[at : at + half]) for at in range(0, len(frames), half))
    wire.send(next(parts))
    wire.send(next(parts, b""))
    sent, acknowledged = half, 0
    for _, times in wire.pieces(b'"seq":'):
        acknowledged += times
        if acknowledged >= len(frames):
            break
        while acknowledged >= sent:
            sent += half
            wire.send(next(parts, b""))
    wire.close()


def drain(url: str, stream: str, number: int) -> None:
    """Receive so many messages of a pull consumer, two requests on their way, and look at none of them."""
    wire = Wire(url)
    config = {"ack_policy": "none", "mem_storage": True, "inactive_threshold": 30_000_000_000, "name": "raw"}
    wire.ask(f"CONSUMER.CREATE.{stream}.raw", {"stream_name": stream, "config": config})
    body = json.dumps({"batch": BATCH, "expires": 60_000_000_000}).encode()
    ask = b"PUB $JS.API.CONSUMER.MSG.NEXT.%s.raw i.next %d\r\n%s\r\n" % (stream.encode(), len(body), body)
    wire.send(ask + ask)
    asked, received = 2, 0
    for _, times in wire.pieces(b"$JS.ACK."):
        received += times
        if received >= number:
            break
        while received > (asked - 1) * BATCH:
            wire.send(ask)
            asked += 1
    wire.close()
    wire = Wire(url)
    wire.ask(f"CONSUMER.DELETE.{stream}.raw")
    wire.close()


def fetch(url: str, stream: str, number: int, file: Path | None = None) -> None:
    """Receive so many messages as users of nats-py do, as rows of Arrow: count them by subject, or write them."""
    found: list[pa.Table] = []

    async def work() -> None:
        client = await nats.connect(url)
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        subscription = await client.jetstream().pull_subscribe("", durable="py", stream=stream, config=config)
        left = number
        while left:
            messages = await subscription.fetch(min(1000, left), timeout=_WITHIN_S)
            left -= len(messages)
            columns = [[each.metadata.sequence.stream for each in messages], [each.subject for each in messages]]
            found.append(pa.table([*columns, [each.data for each in messages]], names=["seq", "subject", "value"]))
        await subscription.unsubscribe()
        await client.jetstream().delete_consumer(stream, "py")
        await client.close()

    asyncio.run(work())
    table = pa.concat_tables(found)
    if file is None:
        table.group_by("subject").aggregate([([], "count_all")])
    else:
        pq.write_table(table, file)


def publish_nats_py(url: str, subject: str, payloads: Sequence[bytes]) -> None:
    """Publish payloads as users of nats-py do, 500 in flight, each with an id; wait for all acknowledgements."""

    async def work() -> None:
        client = await nats.connect(url)
        stream = client.jetstream(publish_async_max_pending=IN_FLIGHT)
        for number, payload in enumerate(payloads):
            await stream.publish_async(subject, payload, headers={"Nats-Msg-Id": str(number)}, wait_stall=_WITHIN_S)
        await stream.publish_async_completed()
        await client.close()

    asyncio.run(work())
