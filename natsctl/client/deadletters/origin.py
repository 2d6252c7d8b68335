"""Headers of copies and replays: where the message came from, and its own headers without their effect.

A header that makes a stream check, expire, replace, count or schedule a message must not do so again. Both forms carry
such a header under another name, `Dead-Letter-Header-NAME`, so that nothing of the message is lost. `REPLAYED` decides
on each header of the server; the table in docs/how-to/handle-messages-that-fail.md is the same one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from natsctl.api.times import format_time, parse_time

Pair = tuple[str, str]

STREAM: Final = "Dead-Letter-Stream"
SEQUENCE: Final = "Dead-Letter-Sequence"
SUBJECT: Final = "Dead-Letter-Subject"
TIME: Final = "Dead-Letter-Time"
"""Time when the message was stored first."""
CONSUMER: Final = "Dead-Letter-Consumer"
REASON: Final = "Dead-Letter-Reason"
DELIVERIES: Final = "Dead-Letter-Deliveries"
REPLAYS: Final = "Dead-Letter-Replays"
"""How often the message was replayed, of replays only."""
CARRIED: Final = "Dead-Letter-Header-"
MSG_ID: Final = "Nats-Msg-Id"
TTL: Final = "Nats-TTL"
COUNTER: Final = "Nats-Incr"

REPLAYED: Final = {
    MSG_ID: "replaced by one made of stream, sequence, time and subject, so that a repeated replay is recognized",
    "Msg-Id": "carried: the old name of Nats-Msg-Id",
    "Nats-Expected-Stream": "carried: it was about the first publish",
    "Nats-Expected-Last-Sequence": "carried: the stream has moved on, and the check would fail",
    "Nats-Expected-Last-Subject-Sequence": "carried: the subject has moved on, and the check would fail",
    "Nats-Expected-Last-Subject-Sequence-Subject": "carried, as it belongs to the header above",
    "Nats-Expected-Last-Msg-Id": "carried: the stream has moved on, and the check would fail",
    TTL: "kept on the message's own subject, and its time starts again; carried with --to: the message must wait there",
    "Nats-Rollup": "carried: it would remove newer messages of the subject, or of the stream",
    "Nats-Schedule": "carried: the schedule would start a second time",
    "Nats-Schedule-Target": "carried with the schedule",
    "Nats-Schedule-Source": "carried with the schedule",
    "Nats-Schedule-TTL": "carried with the schedule",
    "Nats-Schedule-Time-Zone": "carried with the schedule",
    "Nats-Schedule-Rollup": "carried with the schedule",
    "Nats-Scheduler": "carried: the server wrote it when the schedule was due",
    "Nats-Schedule-Next": "carried: the server wrote it when the schedule was due",
    COUNTER: "not replayed at all: the counter would count the message twice",
    "Nats-Counter-Sources": "carried: the server wrote it",
    "Nats-Batch-Id": "carried: the batch was committed",
    "Nats-Batch-Sequence": "carried: the batch was committed",
    "Nats-Batch-Commit": "carried: the batch was committed",
    "Nats-Stream-Source": "carried: the server wrote it when it copied the message from another stream",
    "Nats-Marker-Reason": "carried: the server wrote it when it removed a message",
    "Nats-Trace-Dest": "carried: the trace has ended",
}
"""Headers that act on a stream, and the decision of a replay on each. Other `Nats-` headers are carried."""

_VALID_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class FailedMessage(NamedTuple):
    """A message that failed: as it was stored, from its stream or from a copy."""

    stream: str
    seq: int
    subject: str
    time_ns: int
    body: bytes
    headers: Sequence[Pair]


class DeliveryFailure(NamedTuple):
    """The last advisory about a message."""

    consumer: str
    reason: str
    deliveries: int


def _acts(name: str) -> bool:
    """Return whether a header acts on a stream, or describes an earlier origin."""
    return name.lower().startswith(("nats-", "dead-letter-")) or name == "Msg-Id"


def _origin(message: FailedMessage, failure: DeliveryFailure) -> list[Pair]:
    return [
        (STREAM, message.stream),
        (SEQUENCE, str(message.seq)),
        (SUBJECT, message.subject),
        (TIME, format_time(message.time_ns)),
        (CONSUMER, failure.consumer),
        (REASON, " ".join(failure.reason.split())),
        (DELIVERIES, str(failure.deliveries)),
    ]


def _sendable(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the headers that a client may send; names outside the protocol's characters are left out."""
    return [(name, value) for name, value in pairs if _VALID_NAME.fullmatch(name)]


def copy_headers(message: FailedMessage, failure: DeliveryFailure) -> list[Pair]:
    """Return the headers of the copy that keeps a message."""
    own = [(CARRIED + name if _acts(name) else name, value) for name, value in message.headers]
    return _sendable([*_origin(message, failure), *own])


def message_of_copy(headers: Sequence[Pair], body: bytes) -> FailedMessage:
    """Return the message that a copy keeps. Raises ValueError if the headers are not a copy's."""
    first = dict(reversed(headers))
    own = [
        (name.removeprefix(CARRIED), value) for name, value in headers if name.startswith(CARRIED) or not _acts(name)
    ]
    try:
        place = (first[STREAM], int(first[SEQUENCE]), first[SUBJECT], parse_time(first[TIME]))
    except KeyError as missing:
        raise ValueError(f"the copy has no header {missing}") from missing
    return FailedMessage(*place, body, own)


def replay_headers(message: FailedMessage, failure: DeliveryFailure, subject: str) -> list[Pair]:
    """Return the headers of a replay on a subject; each replay of a message to a subject has the same Nats-Msg-Id."""
    replays = next((int(value) for name, value in message.headers if name == REPLAYS and value.isdigit()), 0)
    msg_id = f"dead-letter.{message.stream}.{message.seq}.{message.time_ns}.{subject}"
    own: list[Pair] = []
    for name, value in message.headers:
        if not _acts(name) or (name == TTL and subject == message.subject):
            own.append((name, value))
        elif not name.startswith("Dead-Letter-"):
            own.append((CARRIED + name, value))
    return _sendable([(MSG_ID, msg_id), *_origin(message, failure), (REPLAYS, str(replays + 1)), *own])


def is_counter(message: FailedMessage) -> bool:
    """Return whether a message changed a counter."""
    return any(name == COUNTER for name, _ in message.headers)
