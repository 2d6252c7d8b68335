"""Where published messages enter a stream: checks, sequence, limits, and the ack once the message is durable.

Theory of operation. `publish` is the broker's handler. A message without headers on a stream without limits only
passes through it: append, and one tuple (sequence, subject, reply) into `_waiting`. Everything else becomes an
`Incoming` and goes through `take`: a batch may keep it (`_front`), `judge` asks the checks in their order, `store`
appends and tells those who keep something beside the message (`_after_store`). When a commit ends, `committed` takes
the durable prefix of `_waiting`, sends all its acks in one loop, and hands the same list to the consumers. Answers
that are not plain acks but must wait as well (duplicates of messages that are not durable yet) stand in `_late`.
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
from natsctl.jetstream.incoming import Incoming
from natsctl.store.errors import StoreError, StoreFull
from natsctl.store.filters import Filters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from natsctl.broker.session import Session
    from natsctl.jetstream.stream import Stream
    from natsctl.wire.ops import Op

ONLY_ID: Final = b"NATS/1.0\r\nNats-Msg-Id:"
"""How the header block begins that most publishers with headers send."""

_UNLIMITED: Final = 1 << 62
_seq_of = itemgetter(0)

Entry = tuple[int, bytes, bytes]


class Intake:
    """The publish path of one stream."""

    __slots__ = (
        "_account",
        "_ack",
        "_after_store",
        "_append",
        "_append_run",
        "_direct",
        "_extras",
        "_front",
        "_late",
        "_limits",
        "_max_payload",
        "_no_ack",
        "_now_ns",
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
        self._extras: dict[int, bytes] = {}
        self._front: Callable[[Incoming], bool] | None = None
        self._after_store: list[Callable[[int, Incoming], None]] = []
        self._ack = b""
        self._direct = False
        self._trim = False
        self._no_ack = False
        self._max_payload = _UNLIMITED
        self._limits = stream.limits

    def configure(self) -> None:
        """Derive from the configuration which path messages take."""
        config = self._stream.config
        domain = self._stream.engine.options.domain
        self._ack = encode(PubAck(stream=self._stream.name, domain=domain))[:-2]
        self._no_ack = config.no_ack
        self._limits.configure()
        self._trim = self._limits.any
        self._max_payload = config.max_msg_size if config.max_msg_size >= 0 else _UNLIMITED
        interest = config.retention is RetentionPolicy.INTEREST
        full = self._stream.usage.full
        self._direct = not (config.sealed or interest or full or (config.discard is DiscardPolicy.NEW and self._trim))

    # Publishing

    def publish(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Take one message; the broker's handler."""
        if header or not self._direct or len(payload) > self._max_payload:
            if header.startswith(ONLY_ID) and self._direct:
                self._identified(subject, reply, header, payload, origin)
            else:
                self.take(Incoming(subject, reply, header, payload, origin))
            return
        try:
            seq = self._append(subject, b"", payload, self._now_ns())
        except StoreError as fault:
            self.refuse(reply, storage_fault(fault))
            return
        self._waiting.append((seq, subject, reply))
        if self._trim:
            self._limits.trim(subject)

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
                self.refuse(message[2], storage_fault(fault))
            return
        self._waiting.extend([(seq, subject, message[2]) for seq, message in enumerate(messages, first_seq)])

    def _identified(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Take a message whose header begins with an id: quickly, if the id is all that it holds."""
        size = len(header)
        if (
            header.find(b"\r\n", len(ONLY_ID)) + 4 != size
            or size > checks.MAX_HEADER_BYTES
            or size + len(payload) > self._max_payload
        ):
            self.take(Incoming(subject, reply, header, payload, origin))
            return
        msg_id = header[len(ONLY_ID) : -4].strip()
        known = self._stream.dedupe.find(msg_id)
        if known:
            self._answer_duplicate(reply, known)
            return
        now_ns = self._now_ns()
        try:
            seq = self._append(subject, header, payload, now_ns)
        except StoreError as fault:
            self.refuse(reply, storage_fault(fault))
            return
        self._waiting.append((seq, subject, reply))
        self._stream.dedupe.stored(seq, msg_id, now_ns)
        if self._trim:
            self._limits.trim(subject)

    def take(self, message: Incoming) -> None:
        """Take one message that something may refuse, rewrite or keep for later."""
        if self._front is not None and self._front(message):
            return
        outcome = self.judge(message)
        if isinstance(outcome, ApiError):
            self.refuse(message.reply, outcome)
        elif outcome:
            self._answer_duplicate(message.reply, outcome)
        elif self._stream.retention.refuses(message.subject):
            self._skip(message)
        else:
            refusal = self._limits.refuse(message.subject, message.header, message.payload)
            if refusal is None:
                self.store(message)
            else:
                self.refuse(message.reply, refusal)

    def take_own(
        self, subject: bytes, header: bytes, payload: bytes, rollup: bytes = b"", ttl_ns: int = 0, timed: bool = False
    ) -> int:
        """Store a message that the server made and return its sequence; 0 when limits or missing interest refuse it."""
        message = Incoming(subject, b"", header, payload)
        message.own, message.rollup, message.ttl_ns, message.timed = True, rollup, ttl_ns, timed
        if self._stream.retention.refuses(subject) or self._limits.refuse(subject, header, payload) is not None:
            return 0
        return self.store(message)

    def store_mirrored(
        self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes, timed: bool = False
    ) -> None:
        """Store a message of the origin under its own sequence and time; nothing is checked. Raises StoreError."""
        self._stream.store.append_at(seq, ts_ns, subject, header, payload)
        self._waiting.append((seq, subject, b""))
        if self._after_store:
            message = Incoming(subject, b"", header, payload)
            message.own, message.timed = True, timed
            self._tell_stored(seq, message)
        if self._trim:
            self._limits.trim(subject)

    def judge(self, message: Incoming) -> ApiError | int:
        """Return why a message is refused, the sequence that it is a duplicate of, or 0: it may be stored."""
        stream = self._stream
        if stream.config.sealed:
            return error(10109)
        for check in checks.BEFORE_DEDUPE:
            refusal = check(stream, message)
            if refusal is not None:
                return refusal
        if message.msg_id:
            known = stream.dedupe.find(message.msg_id)
            if known:
                return known
        for check in checks.AFTER_DEDUPE:
            refusal = check(stream, message)
            if refusal is not None:
                return refusal
        return 0

    def _skip(self, message: Incoming) -> None:
        """Use up a sequence for a message that nobody wants; it is acknowledged like any other."""
        stream = self._stream
        seq = stream.store.last_seq + 1
        try:
            stream.store.skip_to(seq)
            stream.dedupe.stored(seq, message.msg_id, self._now_ns())
        except StoreError as fault:
            self.refuse(message.reply, storage_fault(fault))
            return
        self._wait(seq, b"", message)

    def store(self, message: Incoming) -> int:
        """Store a message that was judged and return its sequence; 0 when the store refuses, which is answered."""
        stream, subject = self._stream, message.subject
        now_ns = self._now_ns()
        try:
            seq = self._append(subject, message.header, message.payload, now_ns)
            if message.rollup:
                stream.purge(Filters((subject,)) if message.rollup == b"sub" else None, below_seq=seq)
        except StoreError as fault:
            self.refuse(message.reply, storage_fault(fault))
            return 0
        self._wait(seq, subject, message)
        stream.dedupe.stored(seq, message.msg_id, now_ns)
        self._tell_stored(seq, message)
        if self._trim:
            self._limits.trim(subject)
        return seq

    def _tell_stored(self, seq: int, message: Incoming) -> None:
        for listener in self._after_store:
            listener(seq, message)

    def _wait(self, seq: int, subject: bytes, message: Incoming) -> None:
        """Have a message acknowledged and shown once it is durable."""
        self._waiting.append((seq, subject, message.reply))
        if message.extra:
            self._extras[seq] = message.extra

    # Answers

    def _answer_duplicate(self, reply: bytes, seq: int) -> None:
        if not reply or self._no_ack:
            return
        body = b'%b%d,"duplicate": true}' % (self._ack, seq)
        if seq <= self._stream.store.durable_seq:
            self._account.publish(reply, b"", b"", body)
        else:
            self._late.append((seq, reply, body))

    def refuse(self, reply: bytes, refusal: ApiError) -> None:
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
            if self._extras:
                self._answer_with_extras(waiting)
            else:
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

    def _answer_with_extras(self, waiting: Sequence[Entry]) -> None:
        ack, extras = self._ack, self._extras
        self._account.answer_all(
            [(reply, b"%b%d%b}" % (ack, seq, extras.pop(seq, b""))) for seq, _, reply in waiting if reply]
        )

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
        self._extras = {seq: extra for seq, extra in self._extras.items() if seq <= durable_seq}
        lost = [entry for entry in self._waiting if entry[0] > durable_seq]
        late = [entry for entry in self._late if entry[0] > durable_seq]
        self._waiting = [entry for entry in self._waiting if entry[0] <= durable_seq]
        self._late = [entry for entry in self._late if entry[0] <= durable_seq]
        for _, _, reply in lost:
            self.refuse(reply, storage_fault(fault))
        for _, reply, _ in late:
            self.refuse(reply, storage_fault(fault))


def storage_fault(fault: StoreError) -> ApiError:
    """Return what a publisher is told when the store did not take its message."""
    return error(10023) if isinstance(fault, StoreFull) else error(10077, err=str(fault))
