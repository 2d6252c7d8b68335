"""What the clients of the engine's simulation do: one random request of every kind that a stream allows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from natsctl.api import headers
from natsctl.api.times import format_time
from natsctl.store.message import StoredMessage
from tests.support.engine_client import Client
from tests.support.engine_consumers import ConsumerBook
from tests.support.engine_ledger import Book
from tests.support.engine_reasons import takes
from tests.support.engine_steps import Attempt

SECOND: Final = 1_000_000_000
ACKS: Final = (b"", b"+ACK", b"+ACK", b"-NAK", b"+WPI", b"+TERM")
START, APPEND, COMMIT = range(3)


class Program:
    """The random choices of one session, over all of its lives."""

    def __init__(self, rng: random.Random, books: dict[str, Book], consumers: list[ConsumerBook]) -> None:
        self._rng = rng
        self._books = books
        self._consumers = consumers
        self._made = 0
        self._ids: list[bytes] = []

    def act(self, client: Client) -> None:
        """Send one request, or a few that belong together."""
        kinds: tuple[tuple[Callable[[Client, Book], None], int], ...] = (
            (self._publish, 30),
            (self._batch, 6),
            (self._fast_batch, 5),
            (self._schedule, 5),
            (self._delete, 4),
            (self._purge, 3),
            (self._update, 1),
            (self._fetch, 12),
            (self._ack, 24),
        )
        kind = self._rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        kind(client, self._books[self._rng.choice(sorted(self._books))])

    # Publishing

    def _attempt(self, book: Book, pairs: list[tuple[bytes, bytes]] | None = None, tail: str = "") -> Attempt:
        self._made += 1
        token = b"t%d" % self._made
        subject = f"{book.prefix}.{tail or self._rng.choice(book.tails)}".encode()
        pairs = pairs or []
        if book.config.get("allow_msg_counter"):
            incr = self._rng.randint(-9, 99)
            header = headers.encode([*pairs, (headers.INCR, b"%d" % incr), (b"X-Token", token)])
            return Attempt(token, subject, header, b"", incr=incr)
        size = self._rng.choice((0, 0, 0, 30, 300))
        if size:
            pairs = [*pairs, (b"X-Pad", b"x" * size)]
        return Attempt(token, subject, headers.encode(pairs) if pairs else b"", token)

    def _publish(self, client: Client, book: Book) -> None:
        if book.origin is not None:
            return
        for _ in range(self._rng.choice((1, 1, 2, 5))):
            pairs: list[tuple[bytes, bytes]] = []
            wish = self._rng.choice(("", "", "id", "id", "last", "rollup", "ttl", "ttl"))
            counter = book.config.get("allow_msg_counter")
            msg_id, expected = b"", None
            if wish == "id":
                msg_id = self._draw_id(book)
                pairs.append((headers.MSG_ID, msg_id))
            elif wish == "last" and not counter:
                expected = book.before.last_seq + self._rng.choice((0, 0, 1))
                pairs.append((headers.EXPECTED_LAST_SEQ, b"%d" % expected))
            elif wish == "rollup" and book.config.get("allow_rollup_hdrs") and self._rng.random() < 0.5:
                pairs.append((headers.ROLLUP, self._rng.choice((b"sub", b"sub", b"all"))))
            elif wish == "ttl" and book.config.get("allow_msg_ttl"):
                pairs.append((headers.TTL, self._rng.choice((b"1", b"2s", b"5s", b"never"))))
            attempt = self._attempt(book, pairs)
            attempt.msg_id, attempt.expected_last = msg_id, expected
            client.publish(attempt, book)

    def _draw_id(self, book: Book) -> bytes:
        """Return an id that is new, or one that was used before."""
        if not self._ids or self._rng.random() < 0.5:
            self._ids.append(b"id%d" % len(self._ids))
            return self._ids[-1]
        return self._rng.choice(self._ids[-8:])

    def _batch(self, client: Client, book: Book) -> None:
        if not book.config.get("allow_atomic"):
            return
        size, number = self._rng.randint(2, 6), self._made + 1
        for place in range(1, size + 1):
            pairs = [(headers.BATCH_ID, b"b%d" % number), (headers.BATCH_SEQUENCE, b"%d" % place)]
            if place == size:
                pairs.append((headers.BATCH_COMMIT, b"1"))
            attempt = self._attempt(book, pairs)
            attempt.batch = number
            client.publish(attempt, book)

    def _fast_batch(self, client: Client, book: Book) -> None:
        if not book.config.get("allow_batched"):
            return
        size = self._rng.randint(2, 6)
        attempts = [self._attempt(book) for _ in range(size)]

        for place, attempt in enumerate(attempts, 1):
            op = COMMIT if place == size else START if place == 1 else APPEND
            attempt.ts_ns = client.machine.clock.now_ns()
            book.step.attempts.append(attempt)
            tail = f".2.fail.{place}.{op}.$FI"
            client.send_fast(attempt, attempts[0].token.decode(), tail, size)

    def _schedule(self, client: Client, book: Book) -> None:
        if not book.config.get("allow_msg_schedules"):
            return
        due_ns = client.machine.clock.now_ns() + self._rng.randint(1, 5) * SECOND
        pairs = [
            (headers.SCHEDULE, f"@at {format_time(due_ns)}".encode()),
            (headers.SCHEDULE_TARGET, f"{book.prefix}.{self._rng.choice(book.tails)}".encode()),
            (b"X-Due", b"%d" % due_ns),
        ]
        client.publish(self._attempt(book, pairs, tail=f"plan.{self._rng.randint(1, 3)}"), book)

    # Removing and changing

    def _delete(self, client: Client, book: Book) -> None:
        if not book.before.messages:
            return
        seq = self._rng.choice(sorted(book.before.messages))
        erase = {"no_erase": self._rng.random() < 0.5}
        client.remove(book, "MSG.DELETE", {"seq": seq, **erase}, lambda message: message.seq == seq)

    def _purge(self, client: Client, book: Book) -> None:
        kind = self._rng.choice(("all", "filter", "filter", "seq", "keep", "both"))
        pattern = f"{book.prefix}.{self._rng.choice(book.tails)}" if kind in ("filter", "both") else ">"
        below = self._rng.randint(1, book.before.last_seq + 1) if kind in ("seq", "both") else 0
        body: dict[str, Any] = {"filter": pattern} if pattern != ">" else {}
        body |= {"seq": below} if below else {"keep": self._rng.randint(1, 4)} if kind == "keep" else {}
        match = takes(pattern)

        def wanted(message: StoredMessage) -> bool:
            return match(message) and (not below or message.seq < below)

        client.remove(book, "PURGE", body, wanted, surely=kind != "keep")

    def _update(self, client: Client, book: Book) -> None:
        if book.mirrors:
            return
        change = self._rng.choice(
            (
                {"max_msgs": 12},
                {"max_msgs": 4},
                {"max_msgs": -1},
                {"max_msgs_per_subject": 2},
                {"max_msgs_per_subject": 1},
                {"max_age": 0},
            )
        )
        client.update(book, {**book.config, **change})

    # Consuming

    def _fetch(self, client: Client, book: Book) -> None:
        consumer = self._rng.choice(self._consumers)
        client.fetch(consumer, self._rng.randint(1, 8))

    def _ack(self, client: Client, book: Book) -> None:
        consumer = self._rng.choice(self._consumers)
        for _ in range(self._rng.choice((1, 1, 4))):
            if consumer.held:
                seq, message = consumer.held.pop(self._rng.randrange(len(consumer.held)))
                client.ack(consumer, seq, message, self._rng.choice(ACKS), confirm=self._rng.random() < 0.6)
