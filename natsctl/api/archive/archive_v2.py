"""Version 2 archives: `NATSARC1`, then records until one of zeros only.

A record is: name length, time (zigzag), sequence, header length, payload length, all as varints; then name, header and
payload. First come `state.json` and, as often as that says, `consumers/<name>`; everything after is a message; its
name is its subject. Source: probes of nats-server 2.15.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Final, cast

import msgspec

from natsctl.api.archive.archive import (
    MAX_RECORD_BYTES,
    ArchivedConsumer,
    ArchivedMessage,
    ArchivedStream,
    ArchiveError,
    ArchiveFeed,
    CountedRecords,
    Item,
    MessageFields,
    Progress,
    read_json,
    unzigzag,
    uvarint,
    zigzag,
)
from natsctl.api.archive.consumer_file import STEP
from natsctl.api.codec import encode
from natsctl.api.consumer import ConsumerConfig, SequenceInfo
from natsctl.api.model import Model
from natsctl.api.stream import StreamState
from natsctl.native import lib

MAGIC: Final = b"NATSARC1"
_STATE: Final = b"state.json"
_CONSUMERS: Final = b"consumers/"
_END: Final = bytes(5)

_SMALL: Final = 4096
_TEXTS: Final = tuple(map(uvarint, range(_SMALL)))
_PAIR_BITS: Final = 14
_PAIR_MASK: Final = (1 << _PAIR_BITS) - 1
_LOW_BITS: Final = 2 * _PAIR_BITS
_LOW_MASK: Final = (1 << _LOW_BITS) - 1
_READ_BYTES: Final = 1 << 18
"""Records that are looked for at once."""
_MAX_NAME_BYTES: Final = 1 << 20
_seq_of: Final = itemgetter(0)
_new: Final = tuple.__new__

Parsed = tuple[list[ArchivedMessage], int, int, bool]
"""The complete records at the beginning of some bytes, their end, the size of the next, and whether all arrived."""


class _Pending(Model):
    """Time of delivery of an unacknowledged message, and its consumer sequence."""

    Sequence: int = msgspec.field(default_factory=lambda: 0)
    Timestamp: int = msgspec.field(default_factory=lambda: 0)


class _State(Model):
    """A consumer's state in JSON."""

    delivered: SequenceInfo = msgspec.field(default_factory=lambda: SequenceInfo())
    ack_floor: SequenceInfo = msgspec.field(default_factory=lambda: SequenceInfo())
    pending: dict[int, _Pending] | None = None
    redelivered: dict[int, int] | None = None


class _Consumer(Model):
    config: ConsumerConfig = msgspec.field(default_factory=lambda: ConsumerConfig())
    state: _State | None = None


@cache
def _pairs() -> tuple[bytes, ...]:
    """Return each two bytes of a varint that continues; the native module does without these 16,384 objects."""
    return tuple(bytes((low & 0x7F | 0x80, low >> 7 | 0x80)) for low in range(1 << _PAIR_BITS))


def _record(name: bytes, ts_ns: int, seq: int, header: bytes, payload: bytes) -> bytes:
    numbers = (len(name), zigzag(ts_ns), seq, len(header), len(payload))
    return b"".join([*map(uvarint, numbers), name, header, payload])


class _Varints:
    """An encoder of varints, optimized for archives: most are small or close to their predecessor."""

    def __init__(self) -> None:
        self._high, self._high_text = 0, b""

    def text(self, value: int) -> bytes:
        """Return what `uvarint` does; the upper bits are put together only when they change."""
        if value < _SMALL:
            return _TEXTS[value]
        low, high = value & _LOW_MASK, value >> _LOW_BITS
        if not high:
            return uvarint(value)
        if high != self._high:
            self._high, self._high_text = high, uvarint(high)
        pairs = _pairs()
        return pairs[low & _PAIR_MASK] + pairs[low >> _PAIR_BITS] + self._high_text


class WriterV2:
    """The writer of version 2."""

    def __init__(self) -> None:
        self._times = _Varints()
        self._seqs = _Varints()

    def beginning(self, stream: ArchivedStream, consumers: Sequence[ArchivedConsumer]) -> Iterator[bytes]:
        """Yield magic, state and consumers, b"" between pieces of a consumer with many pending messages."""
        state = msgspec.structs.replace(stream.state or StreamState(), consumer_count=len(consumers))
        yield MAGIC + _record(_STATE, stream.created_ns, 0, b"", encode(state))
        for consumer in consumers:
            pending: list[bytes] = []
            entries = iter(consumer.progress.pending.items())
            while piece := {sseq: _Pending(Sequence=c, Timestamp=ts_ns) for sseq, (c, ts_ns) in islice(entries, STEP)}:
                pending.append(encode(piece)[1:-1])
                yield b""
            shown = msgspec.Raw(b"{%b}" % b",".join(pending)) if pending else None
            body = encode(_Consumer(config=consumer.config, state=_state_of(consumer.progress, shown)))
            yield _record(_CONSUMERS + consumer.name.encode(), consumer.created_ns, 0, b"", body)

    def messages(self, messages: Sequence[MessageFields]) -> Iterator[bytes]:
        """Yield one record per message."""
        if lib is not None:
            yield lib.write_v2(messages)
            return
        times, seqs = self._times.text, self._seqs.text
        parts: list[bytes] = []
        for seq, ts_ns, subject, header, payload in messages:
            names, headers, payloads = len(subject), len(header), len(payload)
            parts += (
                _TEXTS[names] if names < _SMALL else uvarint(names),
                times(ts_ns << 1) if ts_ns >= 0 else uvarint(zigzag(ts_ns)),
                seqs(seq),
                _TEXTS[headers] if headers < _SMALL else uvarint(headers),
                _TEXTS[payloads] if payloads < _SMALL else uvarint(payloads),
                subject,
                header,
                payload,
            )
        yield b"".join(parts)

    def end(self, last_seq: int, last_ts_ns: int) -> Iterator[bytes]:
        """Yield the record of zeros; the last sequence is in the state."""
        yield _END


def _state_of(progress: Progress, pending: msgspec.Raw | None) -> _State:
    """Return the state of a consumer, with pending messages as JSON."""
    return _State(
        delivered=SequenceInfo(consumer_seq=progress.delivered_cseq, stream_seq=progress.delivered_sseq),
        ack_floor=SequenceInfo(consumer_seq=progress.floor_cseq, stream_seq=progress.floor_sseq),
        pending=cast("dict[int, _Pending] | None", pending),
        redelivered=dict(progress.redelivered) or None,
    )


def read_v2(feed: ArchiveFeed, counting: bool = False) -> Iterator[Item | None]:
    """Yield the items of an archive after its magic, None if more bytes are needed. Raises ArchiveError.

    With `counting`, messages are counted by the native module.
    """
    consumers, wanted, last = -1, 1, False
    while not last:
        while len(feed) < wanted:
            yield None
        counts = lib.count_v2(feed.view(wanted)) if counting and not consumers and lib is not None else None
        if counts is not None:
            found, end, wanted, last = counts
            feed.skip(end)
            if found[0]:
                yield CountedRecords(*found)
            continue
        data = feed.peek(min(len(feed), max(_READ_BYTES, wanted)))
        assert data is not None
        records, end, wanted, last = _read(data)
        feed.skip(end)
        at = 0
        while consumers and at < len(records):
            _, ts_ns, name, _, payload = records[at]
            if consumers < 0:
                state = _state(name, payload)
                consumers = state.consumer_count
                yield ArchivedStream(state=state)
            else:
                consumers -= 1
                yield _consumer(name, ts_ns, payload)
            at += 1
        if at < len(records):
            yield _messages(records[at:] if at else records)
    if consumers:
        raise ArchiveError("the archive ends before its consumers")


def _state(name: bytes, payload: bytes) -> StreamState:
    """Return the plausible state at the beginning of an archive. Raises ArchiveError."""
    if name != _STATE:
        raise ArchiveError("expected state.json first")
    state = read_json(payload, StreamState, "state.json")
    first_seq, last_seq, messages = state.first_seq, state.last_seq, state.messages
    if state.consumer_count < 0:
        raise ArchiveError("invalid stream state: negative consumer count")
    if (first_seq > last_seq + 1 or (first_seq > last_seq and messages)) or (not first_seq and (last_seq or messages)):
        raise ArchiveError("invalid stream state: inconsistent message count or sequence range")
    if first_seq <= last_seq and messages > last_seq - first_seq + 1:
        raise ArchiveError("invalid stream state: message count exceeds sequence range")
    return state


def _messages(records: list[ArchivedMessage]) -> list[ArchivedMessage]:
    if not all(map(_seq_of, records)):
        raise ArchiveError("expected message sequence")
    return records


def _read(data: bytes) -> Parsed:
    """Return the whole records at the beginning of `data`. Raises ArchiveError."""
    native = None if lib is None else lib.read_v2(data, ArchivedMessage)
    return native or _parsed(data)


def read_records(data: bytes) -> list[ArchivedMessage]:
    """Return the records in bytes that begin and end with whole ones. Raises ArchiveError."""
    found: list[ArchivedMessage] = []
    at = 0
    while at < len(data):
        piece = data[at:] if at else data
        records, end, _, last = _read(piece)
        if not end or last:
            raise ArchiveError("a record is cut")
        found += records
        at += end
    return found


def _parsed(data: bytes) -> Parsed:
    """Return the records of `data`, those before the messages in the same form. Raises ArchiveError.

    One loop, because a call per number costs more than reading it.
    """
    records: list[ArchivedMessage] = []
    at, size = 0, len(data)
    while True:
        numbers: list[int] = []
        place = at
        for _ in range(5):
            value = shift = 0
            while place < size:
                byte = data[place]
                place += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 63:
                    raise ArchiveError("a number is longer than 64 bits")
            else:
                return records, at, size - at + 1, False
            if value >> 64:
                raise ArchiveError("a number is longer than 64 bits")
            numbers.append(value)
        names, ts, seq, headers, payloads = numbers
        if names > _MAX_NAME_BYTES or headers + payloads > MAX_RECORD_BYTES - _MAX_NAME_BYTES:
            raise ArchiveError("a record is over the limit")
        end = place + names + headers + payloads
        if end > size:
            return records, at, end - at, False
        if not any(numbers):
            return records, end, 0, True
        name_end = place + names
        header_end = name_end + headers
        parts = (seq, unzigzag(ts), data[place:name_end], data[name_end:header_end], data[header_end:end])
        records.append(_new(ArchivedMessage, parts))
        at = end


def _consumer(name: bytes, created_ns: int, payload: bytes) -> ArchivedConsumer:
    if not name.startswith(_CONSUMERS):
        raise ArchiveError("a consumer of the state is missing")
    text = name[len(_CONSUMERS) :].decode("utf-8", "replace")
    record = read_json(payload, _Consumer, text)
    state = record.state or _State()
    progress = Progress(
        state.delivered.consumer_seq,
        state.delivered.stream_seq,
        state.ack_floor.consumer_seq,
        state.ack_floor.stream_seq,
        {sseq: (entry.Sequence, entry.Timestamp) for sseq, entry in (state.pending or {}).items()},
        state.redelivered or {},
    )
    return ArchivedConsumer(text, record.config, progress, max(created_ns, 0))
