"""Messages of a stream: published with an ack, singly or in atomic batches, acknowledged, and read one at a time.

Headers of a published message make the stream check, expire, replace or schedule it.

Of an atomic batch a stream stores all messages or none. Its first and last messages are requests: the first has an
empty answer, or the reason why the stream refuses the batch; the last one commits and is answered by the ack. The
messages between have no answer. A batch that is not committed within the server's time is abandoned there, and nothing
of it is stored.

A stored message is read by direct get where the stream allows it, else by the API's MSG.GET. A direct get may be
answered by a replica that lags; `direct=False` asks the leader, for a state that must be current.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping

from natsctl.api import endpoints
from natsctl.api import headers as blocks
from natsctl.api.errors import ApiResponseError, ProtocolError, UnreachableError, UsageError
from natsctl.api.units import SECOND, format_duration, parse_duration
from natsctl.client.message import (
    NO_HEADERS,
    NO_RESPONDERS,
    DryRunError,
    HeaderLike,
    Headers,
    Message,
    Planned,
    as_text,
)
from natsctl.client.requests import PAUSE_S, Answer, ListedFields, api_error, election_s, parse_object, patiently
from natsctl.hints import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from natsctl.api.requests import PubAck
    from natsctl.client.manager import Manager


_NOT_FOUND = 404
_ADDED = frozenset(("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"))
"""Headers of a direct get's answer that describe the message and are no part of it."""


class StoredResult(NamedTuple):
    """A message of a stream; `time` is RFC 3339."""

    subject: str
    seq: int
    time: str
    body: bytes
    headers: Headers = NO_HEADERS


async def last_on(manager: Manager, stream: str, subject: str, *, direct: bool) -> StoredResult | None:
    """Return the last message on a subject, or None."""
    if direct:
        target = endpoints.DIRECT_GET.subject(stream, subject, prefix=manager.connection.target.api_prefix)
        answered, found = await _direct(manager, target, b"")
        if answered:
            return found
    return await _by_api(manager, stream, last_by_subj=subject)


async def at(manager: Manager, stream: str, seq: int, *, direct: bool) -> StoredResult | None:
    """Return the message with that sequence, or None."""
    if direct:
        target = endpoints.DIRECT_GET.subject(stream, prefix=manager.connection.target.api_prefix)
        answered, found = await _direct(manager, target, json.dumps({"seq": seq}, separators=(",", ":")).encode())
        if answered:
            return found
    return await _by_api(manager, stream, seq=seq)


async def _direct(manager: Manager, target: str, body: bytes) -> tuple[bool, StoredResult | None]:
    """Return whether direct gets have a responder, and the message. Raises ProtocolError."""
    manager.connection.trace(target, body)
    message = await patiently(manager.connection, lambda: manager.connection.request(target, body))
    manager.connection.trace_answer(target, message)
    if message.status == NO_RESPONDERS:
        return False, None
    if message.status == _NOT_FOUND:
        return True, None
    if message.status:
        raise ProtocolError(f"the answer on {target} is {message.status} {message.description}")
    return True, _from_direct(message, target)


def _from_direct(message: Message, target: str) -> StoredResult:
    headers = message.headers
    try:
        subject, seq, time = headers["Nats-Subject"], int(headers["Nats-Sequence"]), headers["Nats-Time-Stamp"]
    except (KeyError, ValueError) as failure:
        raise ProtocolError(f"the answer on {target} does not say which message it is") from failure
    own = Headers([pair for pair in headers.pairs if pair[0] not in _ADDED])
    return StoredResult(subject, seq, time, message.body, own)


async def _by_api(manager: Manager, stream: str, **which: Any) -> StoredResult | None:
    answer = await manager.find_message(stream, **which)
    if answer is None:
        return None
    message = answer.value.message
    pairs = [(as_text(name), as_text(value)) for name, value in blocks.parse(message.hdrs or b"")]
    return StoredResult(message.subject, message.seq, message.time, message.data or b"", Headers(pairs))


async def _pause() -> None:
    import asyncio

    await asyncio.sleep(PAUSE_S)


class Outgoing(NamedTuple):
    """A message to be published."""

    subject: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


PLAIN_HEADERS = {
    "msg_id": "Nats-Msg-Id",
    "expect_stream": "Nats-Expected-Stream",
    "expect_last_seq": "Nats-Expected-Last-Sequence",
    "expect_last_subject_seq": "Nats-Expected-Last-Subject-Sequence",
    "expect_last_msg_id": "Nats-Expected-Last-Msg-Id",
    "rollup": "Nats-Rollup",
}
"""Options of a message for its stream, and the header of each."""
_WHEN = ("schedule_after", "schedule_at", "schedule_every", "schedule_cron")
_SCHEDULED = {"schedule_dest": "Nats-Schedule-Target", "schedule_source": "Nats-Schedule-Source"}


_EXCLUSIVE = ("--schedule-cron", "--schedule-every", "--schedule-at", "--schedule-after")
_EXCLUDED = {
    "--schedule-cron": "--schedule-at, --schedule-every or --schedule-after",
    "--schedule-every": "--schedule-at or --schedule-after",
}
"""The flags for a time, each with the flags it excludes: a schedule has one time."""


def stream_headers(asked: Mapping[str, Any], now_ns: int) -> tuple[tuple[str, str], ...]:
    """Return the headers of the publish options, by field. Raises UsageError for options that exclude each other."""
    pairs = [(name, str(asked[field])) for field, name in PLAIN_HEADERS.items() if asked.get(field) is not None]
    if asked.get("ttl") is not None:
        pairs.append(("Nats-TTL", ttl("--ttl", asked["ttl"])))
    return (*pairs, *_schedule(asked, now_ns))


def _schedule(asked: Mapping[str, Any], now_ns: int) -> list[tuple[str, str]]:
    when = [field for field in _WHEN if asked.get(field)]
    flags = [_flag(field) for field in when]
    if len(when) > 1:
        one, *others = sorted(flags, key=_EXCLUSIVE.index)
        raise UsageError(f"{one} may not be used with {_EXCLUDED.get(one, ' or '.join(others))}")
    given = [field for field in (*_SCHEDULED, "schedule_ttl") if asked.get(field)]
    if not when and not given:
        return []
    if not asked.get("schedule_dest"):
        named = flags[0] if flags else _flag(given[0])
        raise UsageError(f"{named} needs --schedule-dest: the subject that the message goes to when it is time")
    pairs = [("Nats-Schedule", _pattern(when[0], asked[when[0]], now_ns))] if when else []
    pairs += [(header, asked[field]) for field, header in _SCHEDULED.items() if asked.get(field)]
    if asked.get("schedule_ttl"):
        pairs.append(("Nats-Schedule-TTL", ttl("--schedule-ttl", asked["schedule_ttl"])))
    return pairs


def _pattern(field: str, words: str, now_ns: int) -> str:
    """Return the schedule as the server writes it: `@at TIME`, `@every DURATION` or a cron line."""
    from natsctl.api.times import format_time, parse_time

    flag = _flag(field)
    try:
        if field == "schedule_at":
            return f"@at {format_time(parse_time(words))}"
        if field == "schedule_cron":
            return words
        ns = parse_duration(words)
    except ValueError as failure:
        raise UsageError(f"{flag}: {failure}") from failure
    if ns <= 0:
        raise UsageError(f"{flag} must be greater than 0")
    if ns < SECOND:
        raise UsageError(f"{flag}: at least a second, not {words}")
    # A second is the finest step of schedules: rounded up, a message never comes before its time.
    seconds = -(-ns // SECOND)
    if field == "schedule_every":
        return f"@every {format_duration(seconds * SECOND)}"
    return f"@at {format_time(-(-(now_ns + ns) // SECOND) * SECOND)}"


def ttl(flag: str, words: str) -> str:
    """Return how long a message lives, as the header has it: a duration of whole seconds, or `never`."""
    if words == "never":
        return words
    try:
        ns = parse_duration(words)
    except ValueError as failure:
        raise UsageError(f"{flag}: {failure}") from failure
    if ns < SECOND or ns % SECOND:
        raise UsageError(f"{flag}: expected whole seconds such as 90s or 1h, or never, not {words}")
    return format_duration(ns)


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


async def publish(
    manager: Manager,
    subject: str,
    body: bytes = b"",
    *,
    headers: HeaderLike | None = None,
    timeout_s: float | None = None,
) -> Answer[PubAck]:
    """Publish and wait for the stream's ack; on a cluster also for the election of the stream's leader.

    Raises UnreachableError if the subject has no subscriber, ApiResponseError if the message is refused.
    """
    if manager.connection.dry_run:
        raise DryRunError(Planned(subject, body, headers))
    connection = manager.connection
    until_s = time.monotonic() + election_s(connection, timeout_s)
    while True:
        message = await connection.request(subject, body, headers=headers, timeout_s=timeout_s)
        leaderless = message.status == NO_RESPONDERS and connection.reconnects and time.monotonic() < until_s
        if not leaderless or not await manager.stream_names(subject=subject):
            return ack_of(message, subject)
        await _pause()


_ACK: ListedFields = {
    "stream": "", "domain": "", "seq": 0, "duplicate": False, "val": "", "batch": "", "count": 0
}  # fmt: skip
"""Fields of an acknowledgement, read without its model."""


def ack_of(message: Message, subject: str) -> Answer[PubAck]:
    """Return the publish acknowledgement in a message; raises as `publish`."""
    raw = refused_by(message, subject)
    if "stream" not in raw:
        raise ProtocolError(f"the answer on {subject} is not a publish ack: {message.body[:64]!r}")
    return Answer("requests.PubAck", subject, raw=raw, fields=_ACK)


def refused_by(message: Message, subject: str) -> dict[str, Any]:
    """Return the object in a stream's answer to a message.

    Raises UnreachableError, or ApiResponseError for a refused message.
    """
    if message.status == NO_RESPONDERS:
        failure = UnreachableError(
            f"no responders on {subject}: no stream takes it", hint="natsctl str ls shows the streams"
        )
        failure.subject = subject
        raise failure
    raw = parse_object(message.body.removeprefix(b"+OK"), subject)
    if error := raw.get("error"):
        raise ApiResponseError(api_error(error), subject)
    return raw


async def acknowledge(manager: Manager, message: Message, kind: bytes = b"+ACK", *, wait: bool = True) -> None:
    """Acknowledge a delivered message, or answer with another `kind` of `natsctl.api.acks`; with `wait` await storage.

    Raises UnreachableError if the consumer was removed meanwhile.
    """
    from natsctl.client.connection import ConnectionLostError

    connection = manager.connection
    remembers = connection.patient and kind == b"+ACK"
    if remembers:
        manager.acked.add(message.reply)
        # A server that was killed may have forgotten the delivery, and answers no ack of it then.
        wait = wait and not connection.lost and manager.acked.opening == connection.openings
    if not wait:
        await connection.publish(message.reply, kind)
        return

    async def send() -> Message | None:
        try:
            return await connection.request(message.reply, kind)
        except ConnectionLostError:
            if not remembers:
                raise
            return None

    until_s = time.monotonic() + election_s(connection)
    while True:
        answer = await patiently(connection, send)
        if answer is None:
            return
        leaderless = answer.status == NO_RESPONDERS and connection.reconnects and time.monotonic() < until_s
        if not leaderless or not await _is_there(manager, message):
            break
        await _pause()
    if answer.status == NO_RESPONDERS:
        raise UnreachableError("the acknowledgement has no responder: the consumer was removed")


async def _is_there(manager: Manager, delivered: Message) -> bool:
    from natsctl.api.acks import parse

    at = parse(delivered.reply.encode())
    if at is None:
        return False
    try:
        await manager.consumer_info(at.stream.decode(), at.consumer.decode())
    except ApiResponseError:
        return False
    return True


MAX_MESSAGES = 1000
"""Messages in one batch that servers take."""


def numbered(messages: Iterable[Outgoing]) -> list[Outgoing]:
    """Return the messages with the headers that make them one batch. Raises UsageError for none, or too many."""
    from uuid import uuid4  # slow to import

    batch, parts = uuid4().hex, list(messages)
    if not 0 < len(parts) <= MAX_MESSAGES:
        raise UsageError(f"a batch has 1 to {MAX_MESSAGES} messages, not {len(parts)}")
    last = len(parts)
    return [
        part._replace(
            headers=(
                *part.headers,
                ("Nats-Batch-Id", batch),
                ("Nats-Batch-Sequence", str(number)),
                *((("Nats-Batch-Commit", "1"),) if number == last else ()),
            )
        )
        for number, part in enumerate(parts, 1)
    ]


async def publish_batch(manager: Manager, messages: Iterable[Outgoing]) -> Answer[PubAck]:
    """Return the ack of the whole batch.

    Raises UnreachableError without a responder, ApiResponseError when the batch is refused: nothing was stored
    then.
    """
    parts = numbered(messages)
    connection = manager.connection
    if connection.dry_run:
        raise DryRunError(*(Planned(part.subject, part.body, part.headers) for part in parts))
    for number, part in enumerate(parts[:-1]):
        if number:
            await connection.publish(part.subject, part.body, headers=part.headers)
            continue
        answer = await connection.request(part.subject, part.body, headers=part.headers)
        if answer.status or answer.body:
            refused_by(answer, part.subject)
    end = parts[-1]
    return ack_of(await connection.request(end.subject, end.body, headers=end.headers), end.subject)
