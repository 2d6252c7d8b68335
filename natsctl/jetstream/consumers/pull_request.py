"""One pull request: parsing, refusal, and its remaining messages while it is open.

A body is nothing, a whole number or a JSON object; anything else asks for one message, as in nats-server. A number
below 1 is served one message, and the status of its end counts from the number that was sent. Source: nats-server,
consumer.go nextReqFromMsg and processNextMsgRequest.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from natsctl.api.consumer import ConsumerConfig, PriorityPolicy
from natsctl.api.messages import PullRequest
from natsctl.api.strict import DecodeError, read_strict
from natsctl.api.units import format_duration

API_LEVEL_TOO_LOW: Final = b"NATS/1.0 412 Required Api Level\r\n\r\n"
NO_MESSAGES: Final = b"NATS/1.0 404 No Messages\r\n\r\n"
REQUESTS_PENDING: Final = b"NATS/1.0 408 Requests Pending\r\n\r\n"
MAX_WAITING: Final = b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
CONSUMER_DELETED: Final = b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
PUSH_BASED: Final = b"NATS/1.0 409 Consumer is push based\r\n\r\n"
_BAD_REQUEST: Final = b"NATS/1.0 400 Bad Request - %b\r\n\r\n"
_WITH_PENDING: Final = b"NATS/1.0 %b\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n"

MAX_PRIORITY: Final = 9
UNRANKED: Final = 1 << 31
"""The priority of a request that cannot name one: behind all others."""

INT64: Final = 1 << 63
"""Sizes at and above this are refused."""

_EMBEDDED: Final = r"(GetNextRequest\.)((group|min_pending|min_ack_pending|id|priority) )"
"""Fields that nats-server keeps in a struct of its own, which its texts name."""

_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,18}")
_decode: Final = msgspec.json.Decoder(PullRequest).decode


class PullRequestError(Exception):
    """A request that cannot be read; `block` is the status to send."""

    def __init__(self, block: bytes) -> None:
        super().__init__(block)
        self.block = block


class OpenRequest:
    """One pull request that still wants messages; times are monotonic ns, 0 = none."""

    __slots__ = (
        "bytes_left",
        "debt",
        "delivered",
        "expires_ns",
        "group",
        "heartbeat_ns",
        "last_ns",
        "left",
        "min_ack_pending",
        "min_pending",
        "no_wait",
        "pin_id",
        "priority",
        "reply",
        "seen_seq",
    )

    def __init__(self, reply: bytes, asked: PullRequest, now_ns: int, formal: bool, seen_seq: int) -> None:
        """Store a request; `formal`: it came as JSON, which alone can name a group, a pin or a priority.

        `seen_seq` is the stream's last sequence on arrival: before it can be read, nothing ends for want of messages.
        """
        self.reply = reply
        self.seen_seq = seen_seq
        self.left = max(asked.batch, 1)
        self.debt = min(asked.batch - 1, 0)
        self.bytes_left = asked.max_bytes
        self.expires_ns = now_ns + asked.expires if asked.expires else 0
        self.heartbeat_ns = max(asked.idle_heartbeat, 0)
        self.no_wait = asked.no_wait
        self.last_ns = now_ns
        self.delivered = 0
        self.group = asked.group
        self.pin_id = asked.id
        self.min_pending = asked.min_pending
        self.min_ack_pending = asked.min_ack_pending
        self.priority = asked.priority if formal else UNRANKED

    def ends_without_messages(self) -> bool:
        """Return whether there being nothing (more) to deliver ends this request."""
        return self.no_wait and (self.delivered > 0 or not self.expires_ns)

    def next_event_ns(self) -> int:
        """Return when this request must be looked at, 0 for never."""
        if not self.heartbeat_ns:
            return self.expires_ns
        beat = self.last_ns + self.heartbeat_ns
        return min(beat, self.expires_ns) if self.expires_ns else beat

    def ended(self, status: bytes) -> bytes:
        """Return the status block of an end, with the messages and bytes still missing."""
        return _WITH_PENDING % (status, self.left + self.debt, self.bytes_left)


def parse(body: bytes) -> tuple[PullRequest, bool]:
    """Return the parsed request, and whether it came as JSON. Raises PullRequestError."""
    text = body.strip()
    if text[:1] != b"{":
        return PullRequest(batch=int(text) if _NUMBER.fullmatch(text) else 1), False
    try:
        asked = _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        asked = _decode_exactly(text)
    if not -INT64 <= min(asked.batch, asked.max_bytes) <= max(asked.batch, asked.max_bytes) < INT64:
        asked = _decode_exactly(text)
    if asked.idle_heartbeat > 0 and asked.idle_heartbeat * 2 > asked.expires:
        raise PullRequestError(_BAD_REQUEST % b"heartbeat value too large")
    return asked, True


def _decode_exactly(text: bytes) -> PullRequest:
    """Parse a body that the quick decoder rejects; raises PullRequestError with nats-server's text."""
    try:
        return msgspec.convert(read_strict(text, PullRequest, unknown=True), PullRequest)
    except (DecodeError, msgspec.MsgspecError) as fault:
        words = re.sub(_EMBEDDED, r"\1PriorityGroup.\2", str(fault))
        raise PullRequestError(_BAD_REQUEST % words.encode()) from fault


def refusal(config: ConsumerConfig, asked: PullRequest, formal: bool) -> bytes:
    """Return the status that refuses a request to this consumer, b"" when it may be served."""
    if 0 < config.max_batch < asked.batch:
        return b"NATS/1.0 409 Exceeded MaxRequestBatch of %d\r\n\r\n" % config.max_batch
    if 0 < config.max_expires < asked.expires:
        text = format_duration(config.max_expires).encode()
        return b"NATS/1.0 409 Exceeded MaxRequestExpires of %b\r\n\r\n" % text
    if 0 < config.max_bytes < asked.max_bytes:
        return b"NATS/1.0 409 Exceeded MaxRequestMaxBytes of %d\r\n\r\n" % config.max_bytes
    misuse = _misuse(config, asked) if formal else b""
    return _BAD_REQUEST % misuse if misuse else b""


def _misuse(config: ConsumerConfig, asked: PullRequest) -> bytes:
    """Return the fault in the priority keys of a request, b"" for none."""
    policy = config.priority_policy or PriorityPolicy.NONE
    if (asked.min_pending or asked.min_ack_pending) and policy is not PriorityPolicy.OVERFLOW:
        return b"Not a Overflow Priority consumer"
    if asked.id and policy is not PriorityPolicy.PINNED_CLIENT:
        return b"Not a Pinned Client Priority consumer"
    if not 0 <= asked.priority <= MAX_PRIORITY:
        return b"Priority must be between 0 and 9"
    if policy is PriorityPolicy.NONE:
        return b""
    if not asked.group:
        return b"Priority Group missing"
    return b"" if asked.group in config.priority_groups else b"Invalid Priority Group"
