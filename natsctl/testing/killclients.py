"""The clients of the kill loop: publishers with a window of unacked messages, and a worker that double-acks."""

from __future__ import annotations

import asyncio
from typing import Final

import orjson

from natsctl.testing.killjournal import Journal, expected_payload
from natsctl.testing.rawclient import RawClient

STREAM: Final = b"KILL"
WORKER: Final = b"WORK"
WINDOW: Final = 32
"""Unacked messages of one publisher."""

FETCH: Final = 200
"""Messages of one request of the worker."""


class Publisher:
    """Publishes numbered messages over one connection after another and journals their acks."""

    def __init__(self, number: int, journal: Journal, subject: bytes = b"", repeats: bool | None = None) -> None:
        """Prepare publisher `number`; the odd ones send with message ids and repeat what was not acked."""
        self.number = number
        self.subject = subject or b"%s.%d" % (STREAM, number)
        self.repeats = number % 2 == 1 if repeats is None else repeats
        self.next_number = 0
        self.errors: list[bytes] = []
        self._journal = journal
        self._outstanding: dict[int, None] = {}
        self._client: RawClient | None = None
        self._filling = False

    @property
    def outstanding(self) -> int:
        """Return how many messages await their ack."""
        return len(self._outstanding)

    def start(self, client: RawClient, *, fill: bool = True) -> None:
        """Go on over a new connection; without `fill` only what is repeated is sent."""
        self._client = client
        self._filling = fill
        client.subscribe(b"_INBOX.kill.%d.*" % self.number, self._acked)
        if self.repeats:
            for number in self._outstanding:
                self._send(number)
        else:
            self._outstanding.clear()
        while fill and len(self._outstanding) < WINDOW:
            self._send_next()

    def _send_next(self) -> None:
        number = self.next_number
        self.next_number += 1
        self._outstanding[number] = None
        self._send(number)

    def _send(self, number: int) -> None:
        assert self._client is not None
        header = b"NATS/1.0\r\nNats-Msg-Id: %d-%d\r\n\r\n" % (self.number, number) if self.repeats else b""
        reply = b"_INBOX.kill.%d.%d" % (self.number, number)
        self._client.publish(self.subject, expected_payload(self.number, number), reply, header)

    def _acked(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        number = int(subject.rpartition(b".")[2])
        self._outstanding.pop(number, None)
        answer = orjson.loads(payload) if payload else {}
        if "seq" in answer and "error" not in answer:
            self._journal.acked(self.number, number, answer["seq"])
        else:
            self.errors.append(payload or header)
        if self._filling and len(self._outstanding) < WINDOW:
            self._send_next()


class Worker:
    """Takes messages from a durable pull consumer, double-acks each, and watches for the return of confirmed ones."""

    def __init__(self, journal: Journal, stream: bytes = STREAM, consumer: bytes = WORKER) -> None:
        """Prepare; `returned` gathers confirmed sequences that were delivered again."""
        self.returned: list[int] = []
        self.delivered: dict[int, bytes] = {}
        """Payload by sequence of everything that came; an ack was sent for each."""
        self._next = b"$JS.API.CONSUMER.MSG.NEXT.%s.%s" % (stream, consumer)
        self._inbox = b"_INBOX.work.%s.%s" % (stream, consumer)
        self._journal = journal
        self._client: RawClient | None = None
        self._missing = 0

    def start(self, client: RawClient) -> None:
        """Go on over a new connection."""
        self._client = client
        client.subscribe(self._inbox + b".next", self._delivered)
        client.subscribe(self._inbox + b".ack.*", self._confirmed)
        self._fetch()

    def _fetch(self) -> None:
        assert self._client is not None
        self._missing = FETCH
        body = orjson.dumps({"batch": FETCH, "expires": 500_000_000})
        self._client.publish(self._next, body, self._inbox + b".next")

    def _delivered(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        assert self._client is not None
        if not reply:
            asyncio.get_running_loop().call_later(0.02, self._fetch)  # a status: this request has ended
            return
        seq = int(reply.split(b".")[5])
        if seq in self._journal.confirmed:
            self.returned.append(seq)
        self.delivered[seq] = payload
        self._client.publish(reply, b"+ACK", b"%s.ack.%d" % (self._inbox, seq))
        self._missing -= 1
        if not self._missing:
            self._fetch()

    def _confirmed(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        if not header:  # a 503 has one: nobody took the ack
            self._journal.confirm(int(subject.rpartition(b".")[2]))
