"""Requests to one stream of the simulated engine, and the reasons for which its messages may be removed.

An `Attempt` is one publish, a `Step` what clients asked of a stream between two checks, a `Snapshot` what it holds.
Reasons follow from a message's header and the stream's configuration.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from natsctl.api import headers
from natsctl.api.units import parse_ttl
from natsctl.store import frame
from natsctl.store.filters import Filters
from natsctl.store.message import StoredMessage, file_size
from natsctl.store.stream import StreamStore
from tests.support.machine import Message

EVERYTHING: Final = 1 << 30

Wanted = Callable[[StoredMessage], bool]


@dataclass(slots=True)
class Snapshot:
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    last_seq: int = 0


def snapshot_of(store: StreamStore) -> Snapshot:
    messages = {m.seq: m for m in store.read_from(1, max_msgs=EVERYTHING)} if store.messages else {}
    return Snapshot(messages, store.last_seq)


@dataclass(slots=True)
class Attempt:
    """One message that a client published; `token` is unique to it."""

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
        return self.answer is not None and ("error" in self.answer or bool(self.answer.get("duplicate")))

    def message(self, seq: int) -> StoredMessage:
        return StoredMessage(seq, self.ts_ns, self.subject, self.header, self.payload)


@dataclass(slots=True)
class BlocksRead:
    """An answer to STREAM.BLOCKS: the range that it covers, and its messages by sequence."""

    wish: dict[str, Any]
    first: int
    last: int
    messages: dict[int, StoredMessage]

    @classmethod
    def of(cls, wish: dict[str, Any], answer: Message) -> BlocksRead:
        (count,) = struct.unpack_from("<I", answer.payload)
        sizes = struct.unpack_from(f"<{count}I", answer.payload, 4)
        frames = answer.payload[4 + 4 * count :]
        *begins, _ = accumulate((size + frame.FRAME_OVER_SIZE for size in sizes), initial=0)
        found = [frame.parse_message(frames, at) for at in begins]
        first, last = (int(headers.get(answer.header, name) or 0) for name in (headers.SEQUENCE, headers.LAST_SEQUENCE))
        return cls(wish, first, last, {message.seq: message for message in found})

    def fault(self, before: Snapshot, after: Snapshot) -> str:
        """Return what contradicts the stream as it was before the step and after it; "" for nothing."""
        filters = Filters(each.encode() for each in self.wish["filters"])
        for seq, message in self.messages.items():
            held = before.messages.get(seq) or after.messages.get(seq)
            if not self.first <= seq <= self.last or not filters.matches(message.subject):
                return f"{message} was not asked for"
            if (held is None and seq <= before.last_seq) or (held is not None and held != message):
                return f"{message} was read, and {held} is stored"
        stayed = [m for seq, m in before.messages.items() if seq in after.messages and filters.matches(m.subject)]
        for message in stayed:
            if self.first <= message.seq <= self.last and message.seq not in self.messages:
                return f"{message} is missing"
        end = min(self.wish["last_seq"] or before.last_seq, before.last_seq)
        full = self.wish["max_bytes"] and self.messages
        return "" if self.last >= end or full else f"the answer ends at {self.last} instead of {end}"


class Step:
    """Requests of clients to one stream since its last check."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.removers: list[Wanted] = []
        self.confirmed: list[Wanted] = []
        """Removals that were answered: what they take must be gone, if it was there before."""
        self.configs: list[dict[str, Any]] = []
        """Configurations that may have been in force meanwhile."""
        self.blocks: list[BlocksRead] = []
        self.crashed = False


def passed_on(header: bytes) -> bytes:
    lines = header.split(b"\r\n")
    kept = [line for line in lines if not line.startswith((b"Nats-Expected-", b"Nats-Batch-"))]
    return b"\r\n".join(kept) if len(kept) > 3 else b""


def expired(message: StoredMessage, config: dict[str, Any], now_ns: int) -> bool:
    return end_of(message, config) <= now_ns


def end_of(message: StoredMessage, config: dict[str, Any]) -> int:
    ttl_ns = parse_ttl(headers.get(message.header, headers.TTL) or b"") or 0
    if ttl_ns > 0 and not config.get("allow_msg_ttl"):
        ttl_ns = 0  # a foreign message's; only "never" is obeyed
    ends = [message.ts_ns + ttl_ns] if ttl_ns > 0 else []
    if config.get("max_age", 0) > 0 and ttl_ns >= 0:
        ends.append(message.ts_ns + config["max_age"])
    return min(ends, default=1 << 63)


def due_of(schedule: StoredMessage) -> int:
    """Return when a schedule of this simulation fires; its moment stands in a header of its own."""
    return int(headers.get(schedule.header, b"X-Due") or b"0")


def total_of(message: StoredMessage | None) -> int:
    return int(message.payload.split(b'"')[3]) if message is not None else 0


def size_of(message: StoredMessage) -> int:
    return file_size(len(message.subject), len(message.header), len(message.payload))


def pushed_out(message: StoredMessage, later: list[StoredMessage], config: dict[str, Any], unseen: int) -> bool:
    """Return whether the messages behind it, and as many unseen ones, reach a limit."""
    if 0 < config.get("max_msgs", 0) <= len(later) + unseen:
        return True
    if 0 < config.get("max_msgs_per_subject", 0) <= sum(m.subject == message.subject for m in later) + unseen:
        return True
    if unseen and config.get("max_bytes", 0) > 0:
        return True
    max_bytes: int = config.get("max_bytes", 0)
    return 0 < max_bytes < sum(map(size_of, later)) + size_of(message)


def rolls_up(later: StoredMessage | Attempt, message: StoredMessage) -> bool:
    """Return whether a message, or a published one, is a rollup that replaces an earlier message."""
    rollup = (headers.get(later.header, headers.ROLLUP) or b"").lower()
    return rollup == b"all" or (rollup == b"sub" and later.subject == message.subject)


def ends_schedule(later: StoredMessage, message: StoredMessage) -> bool:
    scheduler = headers.get(later.header, headers.SCHEDULER)
    return scheduler is not None and scheduler == message.subject


def takes(pattern: str) -> Wanted:
    filters = Filters((pattern.encode(),))
    return lambda message: filters.matches(message.subject)
