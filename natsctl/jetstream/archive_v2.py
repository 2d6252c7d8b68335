"""Version 2 archives: `NATSARC1`, then records until one of zeros only.

A record is: name length, time (zigzag), sequence, header length, payload length, all as varints; then name, header and
payload. First come `state.json` and, as often as that says, `consumers/<name>`; everything after is a message, whose
name is its subject. Source: probes of nats-server 2.15.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from natsctl.api.codec import InvalidJSON, decode, encode
from natsctl.api.consumer import ConsumerConfig, SequenceInfo
from natsctl.api.model import Model
from natsctl.api.stream import StreamState
from natsctl.jetstream.archive import (
    ArchivedConsumer,
    ArchivedStream,
    ArchiveFault,
    Feed,
    Item,
    Progress,
    unzigzag,
    uvarint,
    zigzag,
)
from natsctl.store.message import StoredMessage

MAGIC: Final = b"NATSARC1"
_STATE: Final = b"state.json"
_CONSUMERS: Final = b"consumers/"
_END: Final = bytes(5)

Record = tuple[bytes, int, int, bytes, bytes]
T = TypeVar("T", bound=Model)


class _Pending(Model):
    """When an unacknowledged message was delivered, and under which consumer sequence."""

    Sequence: int = msgspec.field(default_factory=lambda: 0)
    Timestamp: int = msgspec.field(default_factory=lambda: 0)


class _State(Model):
    """A consumer's state in JSON."""

    delivered: SequenceInfo = msgspec.field(default_factory=lambda: SequenceInfo())
    ack_floor: SequenceInfo = msgspec.field(default_factory=lambda: SequenceInfo())
    pending: dict[int, _Pending] | None = None
    redelivered: dict[int, int] | None = None


class _Consumer(Model):
    """The record of one consumer."""

    config: ConsumerConfig = msgspec.field(default_factory=lambda: ConsumerConfig())
    state: _State | None = None


def _record(name: bytes, ts_ns: int, seq: int, header: bytes, payload: bytes) -> bytes:
    numbers = (len(name), zigzag(ts_ns), seq, len(header), len(payload))
    return b"".join([*map(uvarint, numbers), name, header, payload])


class WriterV2:
    """Writes version 2."""

    def begin(self, stream: ArchivedStream, consumers: Sequence[ArchivedConsumer]) -> bytes:
        """Return magic, state and consumers."""
        state = msgspec.structs.replace(stream.state or StreamState(), consumer_count=len(consumers))
        parts = [MAGIC, _record(_STATE, stream.created_ns, 0, b"", encode(state))]
        for consumer in consumers:
            body = encode(_Consumer(config=consumer.config, state=_state_of(consumer.progress)))
            parts.append(_record(_CONSUMERS + consumer.name.encode(), consumer.created_ns, 0, b"", body))
        return b"".join(parts)

    def messages(self, messages: Sequence[StoredMessage]) -> bytes:
        """Return one record per message."""
        return b"".join([_record(m.subject, m.ts_ns, m.seq, m.header, m.payload) for m in messages])

    def end(self, last_seq: int, last_ts_ns: int) -> bytes:
        """Return the record of zeros; the state has told the last sequence."""
        return _END


def _state_of(progress: Progress) -> _State:
    pending = {sseq: _Pending(Sequence=cseq, Timestamp=ts_ns) for sseq, (cseq, ts_ns) in progress.pending.items()}
    return _State(
        delivered=SequenceInfo(consumer_seq=progress.delivered_cseq, stream_seq=progress.delivered_sseq),
        ack_floor=SequenceInfo(consumer_seq=progress.floor_cseq, stream_seq=progress.floor_sseq),
        pending=pending or None,
        redelivered=dict(progress.redelivered) or None,
    )


def read_v2(feed: Feed) -> Iterator[Item | None]:
    """Yield the items of an archive whose magic was read, None when bytes are missing. Raises ArchiveFault."""
    consumers = -1
    for record in _records(feed):
        if record is None:
            yield None
            continue
        name, ts_ns, seq, header, payload = record
        if consumers < 0:
            state = _json(payload, StreamState, "state.json") if name == _STATE else None
            if state is None:
                raise ArchiveFault("the archive does not begin with its state")
            consumers = state.consumer_count
            yield ArchivedStream(state=state)
        elif consumers:
            consumers -= 1
            yield _consumer(name, ts_ns, payload)
        elif seq:
            yield StoredMessage(seq, ts_ns, name, header, payload)
        else:
            raise ArchiveFault("a message has no sequence")
    if consumers:
        raise ArchiveFault("the archive ends before its consumers")


def _records(feed: Feed) -> Iterator[Record | None]:
    """Yield records until the one of zeros."""
    while True:
        numbers: list[int] = []
        while len(numbers) < 5:
            number = feed.uvarint()
            if number is None:
                yield None
            else:
                numbers.append(number)
        names, ts, seq, headers, payloads = numbers
        if not any(numbers):
            return
        while (body := feed.take(names + headers + payloads)) is None:
            yield None
        yield body[:names], unzigzag(ts), seq, body[names : names + headers], body[names + headers :]


def _consumer(name: bytes, created_ns: int, payload: bytes) -> ArchivedConsumer:
    if not name.startswith(_CONSUMERS):
        raise ArchiveFault("a consumer of the state is missing")
    text = name[len(_CONSUMERS) :].decode("utf-8", "replace")
    record = _json(payload, _Consumer, text)
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


def _json(raw: bytes, wanted: type[T], what: str) -> T:
    try:
        return decode(raw, wanted)
    except InvalidJSON as fault:
        raise ArchiveFault(f"{what} can not be read: {fault}") from fault
