"""Counters: messages of such a stream add to the number of their subject instead of replacing it.

A publisher sends `Nats-Incr: +5` without a body; the stream stores the new total, `{"val":"17"}`. A message that comes
from a source has its own total: the increase since its last message is added, and the totals of all sources are in
`Nats-Counter-Sources`. Numbers have any size. Source: docs/compatibility.md#counters.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode
from natsctl.api.errors import ErrCode

if TYPE_CHECKING:
    from natsctl.jetstream.streams.pending_message import PendingMessage
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.stream import StreamStore


Sources = dict[str, dict[str, str]]
"""Total by subject by stream."""

EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Adds decimal digits: converting a number of very many digits to binary and back takes more than linear time."""

ZERO: Final = Decimal(0)
_INCOMPATIBLE: Final = (
    headers.ROLLUP,
    headers.EXPECTED_STREAM,
    headers.EXPECTED_LAST_MSG_ID,
    headers.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT,
    headers.EXPECTED_LAST_SEQ,
    headers.EXPECTED_LAST_SUBJECT_SEQ,
)
_NUMBER: Final = re.compile(rb"[+-]?[0-9]+")
_sources_decoder: Final = msgspec.json.Decoder(Sources | None)


class CounterValue(msgspec.Struct):
    val: str | None = ""


_value_decoder: Final = msgspec.json.Decoder(CounterValue | None)


class Total:
    __slots__ = ("sources", "value")

    def __init__(self, value: Decimal = ZERO, sources: Sources | None = None) -> None:
        self.value = value
        self.sources: Sources = sources or {}

    def copy(self) -> Total:
        return Total(self.value, {stream: dict(subjects) for stream, subjects in self.sources.items()})


def check_increment(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Refuse an increment that is no number, is disabled here, or has incompatible headers."""
    increment = message.fields.get(headers.INCR)
    if increment is None:
        return None
    if not _NUMBER.fullmatch(increment):
        return error(ErrCode.MESSAGE_INCR_INVALID)
    if message.own:
        return None
    if not stream.config.allow_msg_counter:
        return error(ErrCode.MESSAGE_INCR_DISABLED)
    if message.payload:
        return error(ErrCode.MESSAGE_INCR_PAYLOAD)
    return error(ErrCode.MESSAGE_INCR_INVALID) if any(header in message.fields for header in _INCOMPATIBLE) else None


def count(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Turn an increment into the new total, or return the error."""
    if not stream.config.allow_msg_counter:
        return None
    if headers.INCR not in message.fields:
        return error(ErrCode.MESSAGE_INCR_MISSING)
    total = last_total(stream, message.subject)
    return error(ErrCode.MESSAGE_COUNTER_BROKEN) if total is None else add(stream, message, total)


class FreshTotals:
    """The counters' messages that the store does not show yet: the next increments add to them."""

    __slots__ = ("_fresh", "_store")

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self._fresh: dict[int, tuple[bytes, bytes]] = {}

    def stored(self, seq: int, message: PendingMessage) -> None:
        """Keep a message that was stored just now until it is durable."""
        fresh, durable_seq = self._fresh, self._store.durable_seq
        while fresh and (oldest := next(iter(fresh))) <= durable_seq:
            del fresh[oldest]
        fresh[seq] = (message.header, message.payload)

    def last(self, subject: bytes) -> tuple[bytes, bytes] | None:
        """Return header and payload of a counter's last message, durable or not, or None."""
        seq = self._store.last_seq_of(subject)
        if seq > self._store.durable_seq:
            return self._fresh.get(seq)
        stored = self._store.get(seq) if seq else None
        return (stored.header, stored.payload) if stored is not None else None


def last_total(stream: Stream, subject: bytes) -> Total | None:
    """Return the stored total of a counter, zero without a message, None for an invalid one."""
    last = stream.pipeline.totals.last(subject)
    if last is None:
        return Total()
    header, payload = last
    try:
        value = _value_decoder.decode(payload)
        listed = headers.get(header, headers.COUNTER_SOURCES)
        sources = _sources_decoder.decode(listed) if listed else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return Total(_number_in(value), sources)


def add(stream: Stream, message: PendingMessage, total: Total) -> ApiError | None:
    """Add a message to `total`, and make the new total its body; on an error `total` is as it was."""
    increment = read_number(message.fields[headers.INCR])
    header, sources = message.header, total.sources
    source = message.fields.get(headers.STREAM_SOURCE)
    if source is not None:
        try:
            total_of_source = _number_in(_value_decoder.decode(message.payload))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return error(ErrCode.MESSAGE_COUNTER_BROKEN)
        sources = {stream_name: dict(subjects) for stream_name, subjects in sources.items()}
        increment = _increase_of_source(sources, source, message.subject, total_of_source)
        header = headers.replace(header, headers.INCR, write_number(increment))
    value = EXACT.add(total.value, increment)
    text = write_number(value)
    if sources:
        listed = encode({name: dict(sorted(totals.items())) for name, totals in sorted(sources.items())})
        header = headers.replace(header, headers.COUNTER_SOURCES, listed)
    body = b'{"val":"%b"}' % text
    if len(header) + len(body) > stream.engine.broker.options.limits.max_payload:
        return error(ErrCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
    total.value = value
    total.sources = sources
    message.header, message.payload = header, body
    message.extra = b',"val":"%b"' % text
    return None


def _increase_of_source(sources: Sources, source: bytes, subject: bytes, total_of_source: Decimal) -> Decimal:
    """Record the total of a source, and return its increase; `source` is `Nats-Stream-Source`."""
    fields = source.decode("utf-8", "replace").split(" ")
    origin = fields[4] if len(fields) >= 5 else subject.decode("utf-8", "replace")
    totals = sources.setdefault(fields[0], {})
    before = read_number(totals.get(origin, "").encode())
    totals[origin] = write_number(total_of_source).decode()
    return EXACT.subtract(total_of_source, before)


def _number_in(value: CounterValue | None) -> Decimal:
    return read_number((value.val or "").encode()) if value is not None else ZERO


def read_number(text: bytes) -> Decimal:
    """Return the number that a text begins with, 0 when it begins with none."""
    match = _NUMBER.match(text)
    return Decimal(0 if match is None else match[0].decode())


def write_number(number: Decimal) -> bytes:
    return str(number or 0).encode()  # there is a negative zero
