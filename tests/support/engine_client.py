"""The clients of the engine's simulation: they ask without waiting, and note what they were told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from natsctl.testing.machine import Machine, Message
from tests.support.engine_consumers import ConsumerBook
from tests.support.engine_ledger import Book
from tests.support.engine_steps import Attempt, Wanted

Heard = Callable[[Message], None]


class Client:
    """One connection of one life."""

    def __init__(self, machine: Machine, name: str = "c", api: str = "$JS.API") -> None:
        """Connect; `name` tells its inboxes from those of others, `api` is where the streams are that it works with."""
        self.machine = machine
        self.wire = machine.connect()
        self._name = name
        self._api = api
        self.wire.subscribe(f"_INBOX.{name}.>")
        self._pulls: dict[bytes, ConsumerBook] = {}
        self._asked: dict[bytes, Heard] = {}
        self._number = 0

    def ask(self, subject: str, body: object, heard: Heard, header: bytes = b"", tail: str = "") -> None:
        """Send a request; `heard` is called with each answer once `collect` finds it. `tail` ends the reply subject."""
        self._number += 1
        inbox = f"_INBOX.{self._name}.{self._number}"
        self._asked[inbox.encode()] = heard
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.wire.publish(subject, payload, inbox + tail, header)

    def collect(self) -> None:
        """Hand out the answers that arrived; raises Violation where one breaks a promise."""
        for message in self.wire.take():
            consumer = self._pulls.get(message.sid)
            if consumer is not None:
                consumer.arrived(message)
            elif not message.status:  # nobody took it
                self._asked[b".".join(message.subject.split(b".")[:3])](message)

    # What it asks

    def publish(self, attempt: Attempt, book: Book, tail: str = "") -> None:
        """Publish a message and note that in the stream's book."""
        attempt.ts_ns = self.machine.clock.now_ns()
        attempt.far = self._api != "$JS.API"
        book.step.attempts.append(attempt)

        def heard(message: Message) -> None:
            answer = message.json() if message.payload else {}
            if "seq" in answer or "error" in answer:
                attempt.answer = answer

        subject = attempt.subject.decode()
        if subject.startswith("$KV.") and attempt.far:
            subject = f"{self._api}.{subject}"
        self.ask(subject, attempt.payload, heard, attempt.header, tail)

    def send_fast(self, attempt: Attempt, batch: str, tail: str, size: int) -> None:
        """Publish one message of a fast batch; the batch's ack is that of its last one."""

        def heard(message: Message) -> None:
            answer = message.json()
            if "type" not in answer and answer.get("count") == size:
                attempt.answer = answer

        inbox = f"_INBOX.{self._name}.{batch}"
        self._asked[inbox.encode()] = heard
        self.wire.publish(attempt.subject.decode(), attempt.payload, inbox + tail, attempt.header)

    def remove(self, book: Book, verb: str, body: dict[str, Any], wanted: Wanted, *, surely: bool = True) -> None:
        """Ask for a deletion or a purge of what `wanted` takes; `surely`: of all of that."""
        step = book.step
        step.removers.append(wanted)

        def heard(message: Message) -> None:
            if "error" in message.json():
                step.removers.remove(wanted)
            elif surely:
                step.confirmed.append(wanted)

        self.ask(f"{self._api}.STREAM.{verb}.{book.name}", body, heard)

    def update(self, book: Book, config: dict[str, Any]) -> None:
        """Ask for another configuration; which one holds after a crash is looked up."""
        book.step.configs.append(book.config)
        book.step.configs.append(config)

        def heard(message: Message) -> None:
            if "error" not in message.json():
                book.config = config

        self.ask(f"{self._api}.STREAM.UPDATE.{book.name}", config, heard)

    def fetch(self, consumer: ConsumerBook, batch: int) -> None:
        """Ask a consumer for messages."""
        subject = f"{self._api}.CONSUMER.MSG.NEXT.{consumer.book.name}.{consumer.name}"
        inbox = f"_INBOX.p{self._name}.{consumer.name}"
        if consumer not in self._pulls.values():
            self._pulls[self.wire.subscribe(inbox)] = consumer
        self.wire.publish(subject, msgspec.json.encode({"batch": batch, "no_wait": True}), inbox)

    def ack(self, consumer: ConsumerBook, seq: int, message: Message, payload: bytes, *, confirm: bool) -> None:
        """Answer a delivery, and wait for the answer to that."""
        final = payload in (b"", b"+ACK", b"+TERM")
        if final:
            consumer.acked.add(seq)

        def heard(answer: Message) -> None:
            if final:
                consumer.confirmed.add(seq)

        if confirm:
            self.ask(message.reply.decode(), payload, heard)
        else:
            self.wire.publish(message.reply.decode(), payload)
