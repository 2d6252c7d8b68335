"""What the clients of the engine's simulation asked of one stream, and what the stream holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from natsctl.store.message import StoredMessage
from natsctl.store.stream import StreamStore

EVERYTHING: Final = 1 << 30

Wanted = Callable[[StoredMessage], bool]


@dataclass(slots=True)
class Snapshot:
    """What a stream holds."""

    messages: dict[int, StoredMessage] = field(default_factory=dict)
    last_seq: int = 0


def snapshot_of(store: StreamStore) -> Snapshot:
    """Return what a stream at rest holds."""
    messages = {m.seq: m for m in store.read_from(1, max_msgs=EVERYTHING)} if store.messages else {}
    return Snapshot(messages, store.last_seq)


@dataclass(slots=True)
class Attempt:
    """One message that a client published; `token` stands in nobody else's."""

    token: bytes
    subject: bytes
    header: bytes
    payload: bytes
    msg_id: bytes = b""
    incr: int | None = None
    expected_last: int | None = None
    batch: int = 0
    """The atomic batch that it is part of, 0: none."""
    far: bool = False
    """Whether it was published through a link to another server."""
    answer: dict[str, Any] | None = None
    ts_ns: int = 0
    seq: int = 0
    """The sequence that is known of it, 0: none."""

    @property
    def acked_seq(self) -> int:
        """Return the sequence that its own ack named, 0 when there was none."""
        stored = self.answer is not None and "seq" in self.answer and not self.answer.get("duplicate")
        return self.answer["seq"] if stored and self.answer is not None else 0

    @property
    def refused(self) -> bool:
        """Tell whether the server said that it is not stored."""
        return self.answer is not None and ("error" in self.answer or bool(self.answer.get("duplicate")))

    def message(self, seq: int) -> StoredMessage:
        """Return it as the stream would hold it."""
        return StoredMessage(seq, self.ts_ns, self.subject, self.header, self.payload)


class Step:
    """What clients asked of one stream since it was last judged."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.removers: list[Wanted] = []
        self.confirmed: list[Wanted] = []
        """Removals that were answered: what they take must be gone, if it was there before."""
        self.configs: list[dict[str, Any]] = []
        """Configurations that may have been in force meanwhile."""
        self.crashed = False
