"""What one consumer may do, judged from what it delivered and from the acks that it confirmed.

A `ConsumerBook` keeps which sequences were delivered, for which an ack was sent, and for which it was confirmed by an
answer. From that follows when retention may let a message go, when it must, and what must never come again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natsctl.store.filters import Filters
from natsctl.store.message import StoredMessage
from natsctl.testing.machine import Message
from tests.support.ledger import Violation

if TYPE_CHECKING:
    from natsctl.jetstream.consumers.consumer import Consumer
    from tests.support.engine_ledger import Book
    from tests.support.engine_steps import Snapshot


class ConsumerBook:
    """One durable consumer with explicit acks as its client knows it."""

    def __init__(self, name: str, book: Book, pattern: str = ">") -> None:
        self.name = name
        self.book = book
        self.pattern = pattern
        self._filters = Filters((pattern.encode(),))
        self.held: list[tuple[int, Message]] = []
        """Deliveries that wait for an ack: sequence and message."""
        self.delivered: set[int] = set()
        self.acked: set[int] = set()
        """Sequences for which an ack was sent."""
        self.confirmed: set[int] = set()
        self.at_rest: list[Any] | None = None

    @property
    def config(self) -> dict[str, Any]:
        """Return the configuration to make it with."""
        return {"durable_name": self.name, "ack_policy": "explicit", "ack_wait": 3_000_000_000} | (
            {"filter_subject": self.pattern} if self.pattern != ">" else {}
        )

    def takes(self, message: StoredMessage) -> bool:
        """Tell whether it is to deliver a message."""
        return self._filters.matches(message.subject)

    def arrived(self, message: Message) -> None:
        """Take a delivery; raises Violation."""
        if message.status:
            return
        seq = int(message.reply.split(b".")[5])
        if seq in self.confirmed:
            raise Violation(f"{self.name} delivered {seq} again, whose ack it had confirmed")
        held = self.book.history.get(seq)
        if held is not None and (held.subject, held.payload) != (message.subject, message.payload):
            raise Violation(f"{self.name} delivered {message} for {held}")
        self.delivered.add(seq)
        self.held.append((seq, message))

    def check(self, consumer: Consumer, info: dict[str, Any], snapshot: Snapshot) -> None:
        """Compare what it tells and holds with the stream; raises Violation."""
        state, last_delivered = consumer.state, info["delivered"]["stream_seq"]
        left = [m.seq for m in snapshot.messages.values() if m.seq > last_delivered and self.takes(m)]
        if info["num_pending"] != len(left):
            raise Violation(f"{self.name} has {info['num_pending']} pending, the stream {left} behind {last_delivered}")
        if info["num_ack_pending"] != len(state.pending):
            raise Violation(f"{self.name} tells {info['num_ack_pending']} of {sorted(state.pending)}")
        if again := self.confirmed & state.pending.keys():
            raise Violation(f"{self.name} waits for confirmed acks {again}")
        wanted = {m.seq for m in snapshot.messages.values() if self.takes(m)}
        if lost := wanted & set(range(1, last_delivered + 1)) - state.pending.keys() - self.acked:
            raise Violation(f"{self.name} is past {sorted(lost)}, which nobody acknowledged")
        if state.pending and not info["ack_floor"]["stream_seq"] < min(state.pending) <= last_delivered:
            raise Violation(
                f"{self.name}: floor {info['ack_floor']}, pending {sorted(state.pending)}, {last_delivered}"
            )
        if max(self.confirmed, default=0) > last_delivered:
            raise Violation(f"{self.name} stands at {last_delivered}, confirmed is {max(self.confirmed)}")


def retention_of(book: Book, consumers: list[ConsumerBook]) -> None:
    """Tell a book when the acks of its consumers let messages go, and when they must."""
    policy = book.config.get("retention", "limits")
    if policy == "limits":
        return

    def may_go(message: StoredMessage) -> bool:
        takers = [c for c in consumers if c.takes(message)]
        return all(message.seq in c.acked for c in takers) and (bool(takers) or policy == "interest")

    def must_go(message: StoredMessage) -> bool:
        takers = [c for c in consumers if c.takes(message)]
        return bool(takers) and all(message.seq in c.confirmed for c in takers)

    book.may_go, book.must_go = may_go, must_go
