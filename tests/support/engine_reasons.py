"""Why a message may leave a stream, read from its header and the stream's configuration."""

from __future__ import annotations

from typing import Any

from natsctl.api import headers
from natsctl.jetstream.timed.message_ttl import parse_ttl
from natsctl.store.filters import Filters
from natsctl.store.message import StoredMessage, file_size
from tests.support.engine_steps import Attempt, Wanted


def passed_on(header: bytes) -> bytes:
    """Return what a mirror keeps of a header."""
    lines = header.split(b"\r\n")
    kept = [line for line in lines if not line.startswith((b"Nats-Expected-", b"Nats-Batch-"))]
    return b"\r\n".join(kept) if len(kept) > 3 else b""


def expired(message: StoredMessage, config: dict[str, Any], now_ns: int) -> bool:
    """Tell whether the time of a message is over."""
    return end_of(message, config) <= now_ns


def end_of(message: StoredMessage, config: dict[str, Any]) -> int:
    """Return when a message expires."""
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
    """Return what a counter's message counts."""
    return int(message.payload.split(b'"')[3]) if message is not None else 0


def size_of(message: StoredMessage) -> int:
    """Return what a message counts for."""
    return file_size(len(message.subject), len(message.header), len(message.payload))


def pushed_out(message: StoredMessage, later: list[StoredMessage], config: dict[str, Any], unseen: int) -> bool:
    """Tell whether the messages behind it, and as many that nobody saw, are as many as a limit allows."""
    if 0 < config.get("max_msgs", 0) <= len(later) + unseen:
        return True
    if 0 < config.get("max_msgs_per_subject", 0) <= sum(m.subject == message.subject for m in later) + unseen:
        return True
    if unseen and config.get("max_bytes", 0) > 0:
        return True
    max_bytes: int = config.get("max_bytes", 0)
    return 0 < max_bytes < sum(map(size_of, later)) + size_of(message)


def rolls_up(later: StoredMessage | Attempt, message: StoredMessage) -> bool:
    """Tell whether a message, or what somebody published, is a rollup that stands for an earlier message."""
    rollup = (headers.get(later.header, headers.ROLLUP) or b"").lower()
    return rollup == b"all" or (rollup == b"sub" and later.subject == message.subject)


def ends_schedule(later: StoredMessage, message: StoredMessage) -> bool:
    """Tell whether a message says that a schedule has come to its end."""
    scheduler = headers.get(later.header, headers.SCHEDULER)
    return scheduler is not None and scheduler == message.subject


def takes(pattern: str) -> Wanted:
    """Return whether a message's subject matches a pattern."""
    filters = Filters((pattern.encode(),))
    return lambda message: filters.matches(message.subject)
