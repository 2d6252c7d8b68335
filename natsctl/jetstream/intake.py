"""Where published messages enter a stream: checks, sequence, limits, and the ack once the message is durable.

Theory of operation. `publish` is the broker's handler. A message without headers on a stream without limits only passes
through it: append, and one tuple (sequence, subject, reply) into `_waiting`. Everything else goes through `_checked`,
in the order of checks of the reference (jetstream_semantics.md part 1.3). When a commit ends, `committed` takes the
durable prefix of `_waiting`, sends all its acks in one loop, and hands the same list to the consumers. Answers that are
not plain acks but must wait as well (duplicates of messages that are not durable yet) stand in `_late`.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode
from natsctl.api.messages import PubAck
from natsctl.api.stream import DiscardPolicy, RetentionPolicy
from natsctl.jetstream import publish_checks as checks
from natsctl.jetstream.retry import GONE_BY_LIMITS
from natsctl.store.errors import StoreError, StoreFull
from natsctl.store.filters import Filters
from natsctl.store.message import file_size, memory_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from natsctl.broker.session import Session
    from natsctl.jetstream.stream import Stream
    from natsctl.wire.ops import Op

MAX_HEADER_BYTES: Final = 65535
"""Longest header block that is stored. Source: reference, error 10097."""

ONLY_ID: Final = b"NATS/1.0\r\nNats-Msg-Id:"
"""How the header block begins that most publishers with headers send."""

_UNLIMITED: Final = 1 << 62
_NOTHING: Final[checks.Wish] = {}
_seq_of = itemgetter(0)

Entry = tuple[int, bytes, bytes]


class Intake:
    """The publish path of one stream."""

    __slots__ = (
        "_account",
        "_ack",
        "_append",
        "_append_run",
        "_direct",
        "_late",
        "_max_payload",
        "_no_ack",
        "_now_ns",
        "_size",
        "_stream",
        "_trim",
        "_waiting",
    )

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._account = stream.account
        self._append = stream.store.append
        self._append_run = stream.store.append_run
        self._now_ns = stream.engine.clock.now_ns
        self._waiting: list[Entry] = []
        self._late: list[tuple[int, bytes, bytes]] = []
        self._ack = b""
        self._direct = False
        self._trim = False
        self._no_ack = False
        self._max_payload = _UNLIMITED
        self._size = file_size if stream.store.storage == "file" else memory_size

    def configure(self) -> None:
        """Derive from the configuration which path messages take."""
        config = self._stream.config
        domain = self._stream.engine.options.domain
        self._ack = encode(PubAck(stream=self._stream.name, domain=domain))[:-2]
        self._no_ack = config.no_ack
        self._trim = max(config.max_msgs, config.max_bytes, config.max_msgs_per_subject) > 0
        self._max_payload = config.max_msg_size if config.max_msg_size >= 0 else _UNLIMITED
        interest = config.retention is RetentionPolicy.INTEREST
        full = self._stream.usage.full
        self._direct = not (config.sealed or interest or full or (config.discard is DiscardPolicy.NEW and self._trim))

    # Publishing

    def publish(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Take one message; the broker's handler."""
        if header or not self._direct or len(payload) > self._max_payload:
            if header.startswith(ONLY_ID) and self._direct:
                self._identified(subject, reply, header, payload)
            else:
                self._checked(subject, reply, header, payload)
            return
        try:
            seq = self._append(subject, b"", payload, self._now_ns())
        except StoreError as fault:
            self._refuse(reply, storage_fault(fault))
            return
        self._waiting.append((seq, subject, reply))
        if self._trim:
            self._trim_to_limits(subject)

    def publish_run(self, subject: bytes, messages: Sequence[Op]) -> None:
        """Take messages without headers on one subject, in order; the broker's handler for runs."""
        payloads = [message[4] for message in messages]
        if not self._direct or self._trim or max(map(len, payloads)) > self._max_payload:
            for _, _, reply, header, payload in messages:
                self.publish(subject, reply, header, payload, None)
            return
        try:
            first_seq = self._append_run(subject, payloads, self._now_ns())
        except StoreError as fault:
            for message in messages:
                self._refuse(message[2], storage_fault(fault))
            return
        self._waiting.extend([(seq, subject, message[2]) for seq, message in enumerate(messages, first_seq)])

    def _identified(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Take a message whose header begins with an id: quickly, if the id is all that it holds."""
        size = len(header)
        if (
            header.find(b"\r\n", len(ONLY_ID)) + 4 != size
            or size > MAX_HEADER_BYTES
            or size + len(payload) > self._max_payload
        ):
            self._checked(subject, reply, header, payload)
            return
        msg_id = header[len(ONLY_ID) : -4].strip()
        known = self._stream.dedupe.find(msg_id)
        if known:
            self._answer_duplicate(reply, known)
        else:
            self._store(subject, reply, header, payload, msg_id, b"")

    def _checked(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Take one message that something may refuse."""
        stream = self._stream
        config = stream.config
        if config.sealed:
            self._refuse(reply, error(10109))
            return
        wish = checks.read_headers(header) if header else _NOTHING
        msg_id = checks.message_id(wish) if wish else b""
        demanding = len(wish) > 1 or (wish and not msg_id)
        refusal = checks.expectations(stream, wish, subject) if demanding else None
        if refusal is not None:
            self._refuse(reply, refusal)
            return
        if msg_id:
            known = stream.dedupe.find(msg_id)
            if known:
                self._answer_duplicate(reply, known)
                return
        refusal = (checks.after_dedupe(stream, wish) if demanding else None) or self._refuse_size(header, payload)
        skipped = refusal is None and stream.retention.refuses(subject)
        if refusal is None and not skipped:
            refusal = self._refuse_full(subject, header, payload)
        if refusal is not None:
            self._refuse(reply, refusal)
        elif skipped:
            self._skip(reply, msg_id)
        else:
            self._store(subject, reply, header, payload, msg_id, wish.get(checks.ROLLUP, b"").lower())

    def _skip(self, reply: bytes, msg_id: bytes) -> None:
        """Use up a sequence for a message that nobody wants; it is acknowledged like any other."""
        stream = self._stream
        seq = stream.store.last_seq + 1
        try:
            stream.store.skip_to(seq)
            stream.dedupe.stored(seq, msg_id, self._now_ns())
        except StoreError as fault:
            self._refuse(reply, storage_fault(fault))
            return
        self._waiting.append((seq, b"", reply))

    def _store(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, msg_id: bytes, rollup: bytes) -> None:
        stream = self._stream
        now_ns = self._now_ns()
        try:
            seq = self._append(subject, header, payload, now_ns)
            if rollup:
                stream.purge(Filters((subject,)) if rollup == b"sub" else None, below_seq=seq)
        except StoreError as fault:
            self._refuse(reply, storage_fault(fault))
            return
        self._waiting.append((seq, subject, reply))
        stream.dedupe.stored(seq, msg_id, now_ns)
        if self._trim:
            self._trim_to_limits(subject)

    def _refuse_size(self, header: bytes, payload: bytes) -> ApiError | None:
        if len(header) + len(payload) > self._max_payload:
            return error(10054)
        if len(header) > MAX_HEADER_BYTES:
            return error(10097)
        return error(10023) if self._stream.usage.full else None

    def _refuse_full(self, subject: bytes, header: bytes, payload: bytes) -> ApiError | None:
        """Return why discard new refuses a message, or None."""
        config, store = self._stream.config, self._stream.store
        if config.discard is not DiscardPolicy.NEW or not self._trim:
            return None
        replaces = 0 < config.max_msgs_per_subject <= store.count_of(subject)
        if replaces and config.discard_new_per_subject:
            return error(10077, err="maximum messages per subject exceeded")
        if 0 < config.max_msgs <= store.messages and not replaces:
            return error(10077, err="maximum messages exceeded")
        if config.max_bytes > 0:
            size = self._size(len(subject), len(header), len(payload))
            if replaces:
                oldest = store.get(store.first_seq_of(subject))
                if oldest is not None:
                    size -= self._size(len(oldest.subject), len(oldest.header), len(oldest.payload))
            if store.bytes + size > config.max_bytes:
                return error(10077, err="maximum bytes exceeded")
        return None

    # Limits

    def _trim_to_limits(self, subject: bytes) -> None:
        """Drop what the limits push out after a message on `subject` was stored."""
        stream, store, config = self._stream, self._stream.store, self._stream.config
        per_subject = config.max_msgs_per_subject
        if per_subject > 0:
            while store.count_of(subject) > per_subject:
                gone = store.remove(store.first_seq_of(subject))
                assert gone is not None
                stream.removed(gone, GONE_BY_LIMITS)
        max_msgs, max_bytes = config.max_msgs, config.max_bytes
        while (0 < max_msgs < store.messages) or (0 < max_bytes < store.bytes and store.messages):
            stream.removed(store.drop_first(), GONE_BY_LIMITS)

    def enforce_limits(self) -> None:
        """Drop everything that limits, perhaps tightened just now, push out."""
        if not self._trim:
            return
        if self._stream.config.max_msgs_per_subject > 0:
            for subject in self._stream.store.subjects():
                self._trim_to_limits(subject)
        else:
            self._trim_to_limits(b"")

    # Answers

    def _answer_duplicate(self, reply: bytes, seq: int) -> None:
        if not reply or self._no_ack:
            return
        body = b'%b%d,"duplicate": true}' % (self._ack, seq)
        if seq <= self._stream.store.durable_seq:
            self._account.publish(reply, b"", b"", body)
        else:
            self._late.append((seq, reply, body))

    def _refuse(self, reply: bytes, refusal: ApiError) -> None:
        if reply and not self._no_ack:
            name = self._stream.name
            self._account.publish(reply, b"", b"", encode(PubAck(error=refusal, stream=name)))

    def committed(self, durable_seq: int) -> None:
        """Send the acks of everything that became durable, and let consumers know."""
        waiting = self._waiting
        if waiting and waiting[-1][0] <= durable_seq:
            self._waiting = []
        else:
            end = bisect_right(waiting, durable_seq, key=_seq_of)
            waiting, self._waiting = waiting[:end], waiting[end:]
        if not self._no_ack:
            ack = self._ack
            self._account.answer_all([(reply, b"%b%d}" % (ack, seq)) for seq, _, reply in waiting if reply])
        if self._late:
            self._send_late(durable_seq)
        stream = self._stream
        stream.expiry.committed()
        stream.retention.committed()
        stream.count_bytes()
        if stream.consumers and waiting:
            stored = [(seq, subject) for seq, subject, _ in waiting if subject]
            for consumer in tuple(stream.consumers.values()) if stored else ():
                consumer.on_messages(stored)

    def _send_late(self, durable_seq: int) -> None:
        late, self._late = self._late, []
        for entry in late:
            if entry[0] <= durable_seq:
                self._account.publish(entry[1], b"", b"", entry[2])
            else:
                self._late.append(entry)

    def refused(self, durable_seq: int, fault: StoreError) -> None:
        """Tell the publishers of everything above `durable_seq` that it was not kept."""
        self._stream.dedupe.forget_above(durable_seq)
        lost = [entry for entry in self._waiting if entry[0] > durable_seq]
        late = [entry for entry in self._late if entry[0] > durable_seq]
        self._waiting = [entry for entry in self._waiting if entry[0] <= durable_seq]
        self._late = [entry for entry in self._late if entry[0] <= durable_seq]
        for _, _, reply in lost:
            self._refuse(reply, storage_fault(fault))
        for _, reply, _ in late:
            self._refuse(reply, storage_fault(fault))


def storage_fault(fault: StoreError) -> ApiError:
    """Return what a publisher is told when the store did not take its message."""
    return error(10023) if isinstance(fault, StoreFull) else error(10077, err=str(fault))
