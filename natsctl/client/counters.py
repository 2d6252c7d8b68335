"""Counters: the last message of a subject has the sum, and each message its increment.

A sum may have any number of digits, and is therefore a string in JSON. Source: nats-architecture-and-design, ADR-49.
"""

from __future__ import annotations

import json
import re

import msgspec

from natsctl.api.errors import ApiResponseError, ErrCode, ExitCode, NatsctlError, UsageError
from natsctl.api.requests import PubAck
from natsctl.api.times import format_time
from natsctl.client.manager import Manager
from natsctl.client.message import DryRunError, Planned
from natsctl.client.messaging import messages
from natsctl.client.messaging.consumers import OrderedReader
from natsctl.client.messaging.messages import StoredResult, last_on
from natsctl.client.requests import Answer

INCREMENT = "Nats-Incr"
SOURCES = "Nats-Counter-Sources"
_NUMBER = re.compile(r"[+-]?[0-9]{1,4000}")
"""Fewer digits than the 4300 that int() reads."""


class Counter(msgspec.Struct):
    """A counter by its last message; `sources` has the sums of each stream that it is sourced from, by subject."""

    stream: str
    subject: str
    val: str
    incr: str
    seq: int
    time: str
    sources: dict[str, dict[str, str]] = {}


class CounterNotFoundError(NatsctlError):
    """No stream counts on a subject, or nothing was counted there yet."""

    exit_code = ExitCode.NOT_FOUND


async def counter(manager: Manager, subject: str, stream: str = "") -> Counter:
    """Return the counter on a subject; raises CounterNotFoundError, UsageError for a stream that does not count."""
    stream = stream or await stream_of(manager, subject)
    # Asked of the leader: a replica that lags would return an old sum.
    found = await last_on(manager, stream, subject, direct=False)
    if found is None:
        failure = CounterNotFoundError(
            f"nothing has been counted on {subject} in Stream {stream} yet",
            hint=f"natsctl counter ls --stream {stream} shows its counters",
        )
        failure.subject = subject
        raise failure
    return _read(stream, found)


async def counters(manager: Manager, subject: str = "", stream: str = "") -> list[Counter]:
    """Return the counters on a subject (possibly with wildcards) in one stream or in all, sorted by subject."""
    if stream:
        streams = [stream]
    elif subject:
        streams = [await stream_of(manager, subject)]
    else:
        streams = await _counter_streams(manager)
    found = [one for name in streams for one in await _counters_of(manager, name, subject or ">")]
    return sorted(found, key=lambda one: (one.subject, one.stream))


async def _counters_of(manager: Manager, stream: str, subject: str) -> list[Counter]:
    found: list[Counter] = []
    async with OrderedReader(manager, stream, subject, deliver="last_per_subject") as reader:
        async for delivered in reader.stored():
            message, at = delivered.message, delivered.at
            stored = StoredResult(message.subject, at.stream_seq, format_time(at.ts_ns), message.body, message.headers)
            found.append(_read(stream, stored))
    return found


async def stream_of(manager: Manager, subject: str) -> str:
    """Return the stream that stores a subject; raises CounterNotFoundError, and UsageError if several do."""
    names = await manager.stream_names(subject=subject)
    if not names:
        failure = CounterNotFoundError(
            f"no Stream stores messages on {subject}", hint="natsctl stream add NAME --subjects … --allow-counter"
        )
        failure.subject = subject
        raise failure
    if len(names) > 1:
        raise UsageError(f"several Streams store {subject}", hint=f"give --stream: {', '.join(names)}")
    return str(names[0])


async def _counter_streams(manager: Manager) -> list[str]:
    listed = await manager.stream_list()
    return [one.value.config.name for one in listed if one.value.config.allow_msg_counter]


def _read(stream: str, last: StoredResult) -> Counter:
    """Return the counter with the last message `last`; raises UsageError for another kind of message."""
    try:
        value = json.loads(last.body)["val"]
        sources = json.loads(last.headers.get(SOURCES) or "{}")
        if not isinstance(value, str) or not _NUMBER.fullmatch(value):
            raise ValueError(value)
        shown = msgspec.convert(sources, dict[str, dict[str, str]])
    except (ValueError, KeyError, TypeError, msgspec.ValidationError):
        raise UsageError(
            f"the last message on {last.subject} in Stream {stream} is not a counter's",
            hint="counters are in streams made with --allow-counter",
        ) from None
    return Counter(stream, last.subject, value, last.headers.get(INCREMENT) or "", last.seq, last.time, shown)


def read_number(text: str) -> int:
    """Return a whole number of any size; raises UsageError."""
    if not _NUMBER.fullmatch(text):
        raise UsageError(f"VALUE: {text!r} is not a whole number")
    return int(text)


async def add(manager: Manager, subject: str, number: int) -> Answer[PubAck]:
    """Add `number` (possibly negative) to a counter; the answer has the new sum as `val`.

    In a dry run raises DryRunError with the sum before and after. Raises UsageError for a stream that does not count.
    """
    increment = f"{number:+d}"
    if manager.connection.dry_run:
        raise await _preview(manager, subject, number, increment)
    try:
        return await messages.publish(manager, subject, headers={INCREMENT: increment})
    except ApiResponseError as failure:
        if failure.err_code == ErrCode.MESSAGE_INCR_DISABLED:
            failure.hint = "counters are in streams made with --allow-counter"
        raise


async def _preview(manager: Manager, subject: str, number: int, increment: str) -> Exception:
    stream = await stream_of(manager, subject)
    try:
        before = int((await counter(manager, subject, stream)).val)
    except CounterNotFoundError:
        before = 0
    effect = {"stream": stream, "before": str(before), "after": str(before + number)}
    return DryRunError(Planned(subject, b"", {INCREMENT: increment}), effect=effect)
