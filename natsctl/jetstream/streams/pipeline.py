"""The publish path of a stream: checks, sequence, limits, republish, and the ack once the message is durable.

Theory of operation. `publish` and `publish_run` are the broker's handlers. A message that the stream's `PublishPlan`
lets through is only appended, and one tuple (sequence, subject, reply) goes into `_waiting`; a run of such messages is
one append and one tuple. Every other message becomes a `PendingMessage` and goes through `take`: a batch may keep it,
`check_message` runs the checks in order, `store_checked` appends and informs the parts that keep data about messages
(`_after_store`). When a commit ends, `committed` takes the durable prefix of `_waiting`, sends all its acks, and hands
the same list to the consumers. With `persist_mode` async a commit ends when the messages are written: an ack then
outlives the process, and within a second the machine.

Republish publishes stored messages again under another subject, for subscribers without a consumer. When a message is
stored and its republish subject has a subscriber, it is kept with its time and the sequence before it on its subject,
because both may be removed before the commit ends. Messages that have become durable are published then, before the
acks, in the order of the sequences. Source: docs/compatibility.md#republishing.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import IntEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.catalogue import ApiError
from natsctl.api.stream import DiscardPolicy, PersistMode, RetentionPolicy, StoreCompression
from natsctl.api.subject_transform import SubjectMapping
from natsctl.api.subjects import is_literal, is_valid_subject
from natsctl.api.times import format_time
from natsctl.jetstream.streams import publish_checks as checks
from natsctl.jetstream.streams.atomic_batch import AtomicBatches
from natsctl.jetstream.streams.counters import FreshTotals
from natsctl.jetstream.streams.fast_batch import FastBatches, control_subject
from natsctl.jetstream.streams.pending_message import PendingMessage, PublishAcks, expanded, storage_fault
from natsctl.jetstream.streams.schedules import is_timed
from natsctl.store.errors import StoreError
from natsctl.store.filters import Filters
from natsctl.wire.publish_run import CONTROL_SUFFIX, PublishRun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from natsctl.broker.session import Session
    from natsctl.broker.subscription import Entry, RunEntry
    from natsctl.jetstream.streams.limits import ContentLimits
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.message import Copy
    from natsctl.store.steps import Steps


Waiting = tuple[int, bytes, bytes, bytes]
"""(sequence, subject to publish on, header, payload)"""


class Republish:
    __slots__ = ("_headers_only", "_mapping", "_stream", "_waiting", "active")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._mapping: SubjectMapping | None = None
        self._headers_only = False
        self._waiting: list[Waiting] = []
        self.active = False
        """True if the stream republishes."""

    def configure(self) -> None:
        wanted = self._stream.config.republish
        self._mapping, self.active = None, wanted is not None and bool(wanted.dest)
        if wanted is not None and wanted.dest:
            self._mapping = SubjectMapping(wanted.src, wanted.dest, self._stream.engine.rng.getrandbits)
            self._headers_only = wanted.headers_only

    def stored(self, seq: int, previous_seq: int, subject: bytes, header: bytes, payload: bytes) -> None:
        """Keep a message that was stored just now; `previous_seq` is the one before it on its subject, 0: none."""
        to = self._mapping.apply(subject) if self._mapping is not None else None
        if not to or not self._stream.account.has_interest(to):
            return
        if not (is_valid_subject(to) and is_literal(to)):
            return  # as in nats-server, a message for an invalid subject is dropped
        lines = b"Nats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n" % (
            self._stream.name.encode(),
            subject,
            seq,
            format_time(self._stream.store.last_ts_ns).encode(),
        )
        lines += b"Nats-Last-Sequence: %d\r\n" % previous_seq
        if self._headers_only:
            lines += b"Nats-Msg-Size: %d\r\n" % len(payload)
            payload = b""
        block = b"%b%b\r\n" % (header[:-2] if header else b"NATS/1.0\r\n", lines)
        self._waiting.append((seq, to, block, payload))

    def committed(self, durable_seq: int) -> None:
        waiting, self._waiting = self._waiting, []
        account = self._stream.account
        for message in waiting:
            if message[0] <= durable_seq:
                account.publish(message[1], b"", message[2], message[3])
            else:
                self._waiting.append(message)

    def forget_above(self, seq: int) -> None:
        self._waiting = [message for message in self._waiting if message[0] <= seq]


FIRST_LINE: Final = b"NATS/1.0\r\n"
ID_LINE: Final = b"\r\nNats-Msg-Id:"
ONLY_ID: Final = b"NATS/1.0" + ID_LINE
"""The start of the header block that most publishers with headers send."""

FEW_CONSUMERS: Final = 64
"""With more, a run that removes messages has to be interrupted: each removal is reported to each consumer."""

TRIMMED_AT_ONCE: Final = 256
"""Messages of one step if their subjects are trimmed: the one before may have to be searched for, in 30 us."""

CHECK_COST: Final = 6
"""Cost of the checks of one message, as in store.steps,"""
BYTES_PER_COST: Final = 512
"""of that many bytes of it,"""
TRANSFORM_BYTES_PER_COST: Final = 32
"""and of the destination of a transform: 32 bytes are about one function call with a short result."""

_UNLIMITED: Final = 1 << 62
_seq_of = itemgetter(0)


class PublishPlan(IntEnum):
    """What decides whether a stream stores a message."""

    PLAIN = 0
    """Nothing, and no header has a meaning either."""
    DIRECT = 1
    """Its headers."""
    IF_WANTED = 2
    """Its headers, and whether a consumer takes it."""
    BOUNDED = 3
    """Its headers, and whether the limits leave room."""
    CHECKED = 4
    """All checks."""


DIRECT: Final = PublishPlan.DIRECT
CHECKED: Final = PublishPlan.CHECKED


class PublishPipeline:
    __slots__ = (
        "_after_store", "_expires", "_limits", "_max_payload", "_now_ns", "_plan", "_store", "_stream", "_transform",
        "_trims", "_waiting", "acks", "atomic", "fast", "republish", "totals",
    )  # fmt: skip

    def __init__(self, stream: Stream, limits: ContentLimits) -> None:
        self._stream = stream
        self._store = stream.store
        self._now_ns = stream.engine.now_ns
        self._waiting: list[Entry | RunEntry] = []
        self._after_store: list[Callable[[int, PendingMessage], None]] = []
        self._transform: SubjectMapping | None = None
        self._plan = PublishPlan.CHECKED
        self._expires = self._trims = False
        self._max_payload = _UNLIMITED
        self._limits = limits
        self.acks = PublishAcks(stream)
        self.republish = Republish(stream)
        self.atomic = AtomicBatches(stream)
        self.fast = FastBatches(stream)
        self.totals = FreshTotals(stream.store)

    def configure(self) -> None:
        config, storage = self._stream.config, self._stream.store.storage
        for part in (self.acks, self._limits, self.republish, self.atomic, self.fast):
            part.configure()
        self._stream.store.lazy = config.persist_mode is PersistMode.ASYNC
        self._stream.store.compress(config.compression is StoreCompression.S2)
        self._transform = None
        if config.subject_transform is not None:
            src, dest = config.subject_transform.src, config.subject_transform.dest
            self._transform = SubjectMapping(src, dest, self._stream.engine.rng.getrandbits)
        self._expires = config.max_age > 0
        self._trims = self._limits.any
        self._max_payload = checks.MAX_RECORD_BYTES // 2 if storage == "file" else _UNLIMITED
        if config.max_msg_size >= 0:
            self._max_payload = min(config.max_msg_size, self._max_payload)
        self._after_store = self._stream.timed.listeners()
        if config.allow_msg_counter:
            self._after_store.append(self.totals.stored)
        self.replan()

    def replan(self) -> None:
        """Choose again how messages are stored, because the configuration changed, or storage became full or free."""
        self._plan = self._find_plan()

    def _find_plan(self) -> PublishPlan:
        config, usage = self._stream.config, self._stream.usage
        interest = config.retention is RetentionPolicy.INTEREST
        bounded = config.discard is DiscardPolicy.NEW and self._limits.any
        rewrites = self._transform is not None or config.allow_msg_counter or self.republish.active
        if config.sealed or usage.full or usage.limited or rewrites or (interest and bounded):
            return PublishPlan.CHECKED
        if interest or bounded:
            return PublishPlan.IF_WANTED if interest else PublishPlan.BOUNDED
        if config.duplicate_window or config.allow_rollup_hdrs or config.allow_msg_ttl:
            return PublishPlan.DIRECT
        return PublishPlan.DIRECT if config.subject_delete_marker_ttl or self._after_store else PublishPlan.PLAIN

    def stop(self) -> None:
        self.atomic.stop()
        self.fast.stop()

    # Publishing

    def publish(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Handle one message; the broker's handler."""
        if (
            header
            or len(payload) > self._max_payload
            or reply[-4:] == CONTROL_SUFFIX
            or not (self._plan <= DIRECT or self._accepts((subject,), (payload,)))
        ):
            if header.startswith(ONLY_ID) and self._plan <= DIRECT and reply[-4:] != CONTROL_SUFFIX:
                self._identified(subject, reply, header, payload, origin)
            else:
                self.take(PendingMessage(subject, reply, header, payload, origin))
            return
        try:
            seq = self._store.append(subject, b"", payload, self._now_ns())
        except StoreError as fault:
            self.acks.refuse(reply, storage_fault(fault))
            return
        self._waiting.append((seq, subject, reply))
        if self._trims:
            self._limits.trim(subject)

    def publish_run(self, subject: bytes, run: PublishRun) -> int | None:
        """Handle messages in order; the broker's handler for runs. `subject` is b"" if they are on several.

        Return how many were handled if the others would take too long for one turn; 0: one by one.
        """
        fast, ids = run.reply(0)[-4:] == CONTROL_SUFFIX, list[bytes]()
        together = self._stores_together(subject, run) and bool(subject or not fast)
        if together and run.has_headers:
            ids = [_only_id(header) for header in run.headers()]
            together = self._stream.dedupe.are_new(ids)
        if not together:
            return 0
        if fast:
            return self.fast.take_run(subject, run)
        taken: int | None = None
        if len(run) > TRIMMED_AT_ONCE and self._trims and self._stream.config.max_msgs_per_subject > 0:
            run, taken = run.part(0, TRIMMED_AT_ONCE), TRIMMED_AT_ONCE
            del ids[TRIMMED_AT_ONCE:]
        if isinstance(outcome := self.store_run(subject, run), ApiError):
            for _, _, reply, _, _ in run.ops():
                self.acks.refuse(reply, outcome)
        elif ids:
            self._stream.dedupe.stored_together(outcome - len(ids) + 1, ids)
        return taken

    def _stores_together(self, subject: bytes, run: PublishRun) -> bool:
        """Return whether the messages of a run would only be stored, unless their ids are known."""
        largest = min(self._max_payload, checks.MAX_HEADER_BYTES) if run.has_headers else self._max_payload
        if run.longest > largest or not (subject or self._limits.trims_together):
            return False
        if self._trims and len(self._stream.consumers) > FEW_CONSUMERS:
            return False
        if self._plan <= DIRECT:
            return True
        return not run.has_headers and self._accepts((subject,) if subject else set(run.subjects()), run.payloads())

    def _accepts(self, subjects: Collection[bytes], payloads: Sequence[bytes]) -> bool:
        """Return whether messages without headers, on a stream with a plan above DIRECT, would only be stored."""
        if self._plan is PublishPlan.IF_WANTED:
            return not any(map(self._stream.retention.refuses, subjects))
        return self._plan is PublishPlan.BOUNDED and self._limits.has_room(max(subjects, key=len), payloads)

    def store_run(self, subject: bytes, run: PublishRun, *, acked: bool = True) -> ApiError | int:
        """Store messages that need no check, and return the last one's sequence; they get acks if `acked`."""
        try:
            first_seq = self._stream.store.append_run(run, subject, self._now_ns())
        except StoreError as fault:
            return storage_fault(fault)
        last_seq = first_seq + len(run) - 1
        if acked:
            self._waiting.append((last_seq, run, first_seq))
        else:
            self._waiting.extend([(seq, subject, b"") for seq in range(first_seq, last_seq + 1)])
        if self._trims:
            self._limits.trim_all((subject,) if subject else dict.fromkeys(run.subjects()))
        return last_seq

    def _identified(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
        """Handle a message with an id first in its header: on the fast path, if the header contains nothing else."""
        size = len(header)
        if (
            header.find(b"\r\n", len(ONLY_ID)) + 4 != size
            or size > checks.MAX_HEADER_BYTES
            or size + len(payload) > self._max_payload
        ):
            self.take(PendingMessage(subject, reply, header, payload, origin))
            return
        msg_id = header[len(ONLY_ID) : -4].lstrip(b" ")
        known = self._stream.dedupe.find(msg_id)
        if known:
            self.acks.answer_duplicate(reply, known)
            return
        try:
            seq = self._store.append(subject, header, payload, self._now_ns())
        except StoreError as fault:
            self.acks.refuse(reply, storage_fault(fault))
            return
        self._waiting.append((seq, subject, reply))
        self._stream.dedupe.stored(seq, msg_id)
        if self._trims:
            self._limits.trim(subject)

    def take(self, message: PendingMessage) -> None:
        """Handle one message that may be refused, rewritten or kept for a batch."""
        _clean(message)
        if headers.EXPECTED_LAST_SUBJECT_SEQ_SUBJECT in message.fields and headers.BATCH_ID not in message.fields:
            self._stream.work.begin_in_order(self._taking(message))
        else:
            self._take(message)

    def _take(self, message: PendingMessage) -> None:
        if control := control_subject(message):
            self.fast.take(message, control)
        elif headers.BATCH_ID in message.fields:
            self.atomic.take(message)
        else:
            self.map_subject(message)
            self._check_and_store(message)

    def _taking(self, message: PendingMessage) -> Steps[None]:
        yield from checks.preparing(self._stream, message)
        self._take(message)

    def store_sourced(self, subject: bytes, header: bytes, payload: bytes) -> bool:
        """Store a message of a source; False when something refuses it for now. A duplicate counts as stored."""
        size = len(header) + len(payload)
        if self._plan is PublishPlan.PLAIN and size <= self._max_payload and len(header) <= checks.MAX_HEADER_BYTES:
            seq = self._store.append(subject, header, payload, self._now_ns(), is_timed(header))
            self._waiting.append((seq, subject, b""))
            if self._trims:
                self._limits.trim(subject)
            return True
        message = PendingMessage(subject, b"", header, payload)
        message.own = True
        self.map_subject(message)
        return self._check_and_store(message)

    def cost_of(self, message: PendingMessage) -> int:
        """Return the cost of a message with all its checks."""
        config, size = self._stream.config, len(message.header) + len(message.payload)
        transform = 0 if config.subject_transform is None else len(config.subject_transform.dest)
        return CHECK_COST + size // BYTES_PER_COST + transform // TRANSFORM_BYTES_PER_COST

    def map_subject(self, message: PendingMessage) -> None:
        if self._transform is not None:
            message.subject = self._transform.apply(message.subject) or message.subject

    def _check_and_store(self, message: PendingMessage) -> bool:
        outcome = checks.check_message(self._stream, message)
        if outcome and not isinstance(outcome, ApiError):
            self.acks.answer_duplicate(message.reply, outcome)
            return True
        if not outcome:
            outcome = self.store_checked(message)
        if isinstance(outcome, ApiError):
            self.acks.refuse(message.reply, outcome)
            return False
        return True

    def store_mirrored(
        self, seq: int, ts_ns: int, subject: bytes, header: bytes, payload: bytes, timed: bool = False
    ) -> None:
        """Store a message of the origin under its own sequence and time; nothing is checked. Raises StoreError."""
        store = self._stream.store
        previous = store.last_seq_of(subject) if self.republish.active else 0
        timed = timed or is_timed(header)
        store.append_copies(((seq, ts_ns, subject, header, payload),), (seq,) if timed else ())
        self._waiting.append((seq, subject, b""))
        if self.republish.active:
            self.republish.stored(seq, previous, subject, header, payload)
        if self._after_store:
            message = PendingMessage(subject, b"", header, payload)
            message.own, message.timed = True, timed
            self._report_stored(seq, message)
        if self._trims:
            self._limits.trim(subject)

    @property
    def copies_plainly(self) -> bool:
        """Return whether nothing follows from a mirrored message but that it is stored."""
        return not (self.republish.active or self._after_store or self._trims)

    def store_copies(self, messages: Sequence[Copy]) -> None:
        """Store messages of the origin that have no header, where copies are plain; there must be one."""
        self._stream.store.append_copies(messages)
        self._waiting.extend([(message[0], message[2], b"") for message in messages])

    def store_checked(self, message: PendingMessage) -> ApiError | int:
        """Store a checked message, or use up a sequence if no consumer takes it; return the sequence or the error."""
        try:
            if self._stream.retention.refuses(message.subject):
                return self._skip(message)
            refusal = checks.check_account(self._stream, message) or self._limits.refuse(
                message.subject, message.header, message.payload
            )
            return refusal or self.store(message)
        except StoreError as fault:
            return storage_fault(fault)

    def _skip(self, message: PendingMessage) -> int:
        stream = self._stream
        if (traced := stream.account.broker.storing) is not None:
            traced["nointerest"] = True
        seq = stream.store.last_seq + 1
        stream.store.skip_to(seq)
        stream.dedupe.stored(seq, message.msg_id)
        self._roll_up(seq, message)
        self._waiting.append((seq, b"", message.reply))
        return seq

    def store(self, message: PendingMessage) -> int:
        """Store a message that needs no more checks, and return its sequence. Raises StoreError."""
        subject, store = message.subject, self._stream.store
        previous = store.last_seq_of(subject) if self.republish.active else 0
        seq = self._store.append(subject, message.header, message.payload, self._now_ns(), message.timed)
        self._stored(seq, message, previous)
        return seq

    def store_batch(self, messages: Sequence[PendingMessage]) -> None:
        """Store checked messages together: all of them or, after a crash, none; the last one's reply gets the ack."""
        store = self._stream.store
        previous: dict[bytes, int] = {}
        if self.republish.active:
            previous = {message.subject: store.last_seq_of(message.subject) for message in messages}
        try:
            now_ns, numbered = self._now_ns(), list(enumerate(messages, store.last_seq + 1))
            store.append_copies(
                [(seq, now_ns, message.subject, message.header, message.payload) for seq, message in numbered],
                {seq for seq, message in numbered if message.timed},
                together=True,
            )
            for seq, message in numbered:
                self._stored(seq, message, previous.get(message.subject, 0))
                previous[message.subject] = seq
        except StoreError as fault:
            self.acks.refuse(messages[-1].reply, storage_fault(fault))

    def _stored(self, seq: int, message: PendingMessage, previous_seq: int) -> None:
        """Update the other parts after a message was appended."""
        stream, subject = self._stream, message.subject
        self._roll_up(seq, message)
        wanted = not stream.retention.refuses(subject)
        self._waiting.append((seq, subject if wanted else b"", message.reply))
        if message.extra:
            self.acks.add_to_ack(seq, message.extra)
        stream.dedupe.stored(seq, message.msg_id)
        if not wanted:
            stream.store.remove(seq)  # part of a batch: its sequence is used up as if it had been stored
            return
        if self.republish.active:
            self.republish.stored(seq, previous_seq, subject, message.header, message.payload)
        self._report_stored(seq, message)
        if self._trims:
            self._limits.trim(subject)

    def _roll_up(self, seq: int, message: PendingMessage) -> None:
        if message.rollup:
            if self._trims and not self._stream.retention.refuses(message.subject):
                self._limits.trim(message.subject)  # removals by limits have advisories, a purge has none
            filters = Filters((message.subject if message.rollup == b"sub" else b">",))
            self._stream.work.begin(self._stream.purging(filters, below_seq=seq))

    def _report_stored(self, seq: int, message: PendingMessage) -> None:
        for listener in self._after_store:
            listener(seq, message)

    # Commits

    def committed(self, durable_seq: int) -> None:
        """Send the acks of everything that became durable, and inform the consumers."""
        waiting = self._waiting
        if waiting and waiting[-1][0] <= durable_seq:
            self._waiting = []
        else:
            end = bisect_right(waiting, durable_seq, key=_seq_of)
            waiting, self._waiting = waiting[:end], waiting[end:]
        if self._plan is CHECKED and self.republish.active:
            self.republish.committed(durable_seq)
        self.acks.stored(waiting, durable_seq)
        stream = self._stream
        if self._expires:
            stream.expiry.committed()
        stream.count_bytes()
        if stream.consumers and waiting:
            stored = [(seq, subject) for seq, subject, _ in expanded(waiting) if subject]
            if stored:
                stream.retention.announce(stored)

    def refused(self, durable_seq: int, fault: StoreError) -> None:
        """Answer the publishers of messages above `durable_seq` that they were not kept."""
        self._stream.dedupe.forget_above(durable_seq)
        self.republish.forget_above(durable_seq)
        lost = expanded([entry for entry in self._waiting if entry[0] > durable_seq])
        self._waiting = [entry for entry in self._waiting if entry[0] <= durable_seq]
        self.acks.lost(lost, durable_seq, fault)
        self.fast.lost(durable_seq, fault)


def _only_id(header: bytes) -> bytes:
    """Return the message id of a header without anything else that concerns a stream, else b""."""
    start = len(ONLY_ID)
    is_first = header.startswith(ONLY_ID)
    if not is_first:
        start = header.find(ID_LINE) + len(ID_LINE)
    end = header.find(b"\r\n", start)
    if not (is_first and end + 4 == len(header)):
        only = header.startswith(FIRST_LINE) and header.count(b"\r\nNats-") == 1 and b"\r\nMsg-Id:" not in header
        if not only or start < len(ID_LINE) or end < 0:
            return b""
    return header[start:end].lstrip(b" ")


def _clean(message: PendingMessage) -> None:
    """Remove the status and an import's information about the requester from a header: neither is stored."""
    header = message.header
    if header.startswith(b"NATS/1.0 "):
        header = b"NATS/1.0" + header[header.find(b"\r\n") :]
        message.header = b"" if header == b"NATS/1.0\r\n\r\n" else header
    if headers.REQUEST_INFO in message.fields:
        message.header = headers.remove(message.header, headers.REQUEST_INFO)
