"""Fast batches: a publisher gets an ack of its progress from time to time, instead of one per message.

Theory of operation. The reply subject of a message holds all fields: `<inbox>.<id>.<flow>.<gap mode>.<place>.<op>.$FI`.
A batch counts the highest place it has seen (`last`) and the highest that is durable (`persisted`); messages between
stay in `_waiting` until their commit ends. That sends `{"type":"ack"}` every `every` messages and, after the message
that commits, the ack of the batch. A gap ends a batch, unless its publisher declared gaps `ok`. `every` doubles or
halves towards the batch's share of `MAX_FLOW`. `_open` has batches in the order of their last message. Acks of very
many messages that become durable together are sent in several turns. Source: server/jetstream_batching.go and
server/stream.go of nats-server, ADR-50.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode
from natsctl.api.errors import ErrCode
from natsctl.api.requests import BatchFlowAck, BatchFlowErr, BatchFlowGap, PubAck
from natsctl.api.stream import DiscardPolicy
from natsctl.api.versions import is_level_met
from natsctl.jetstream.streams import publish_checks as checks
from natsctl.jetstream.streams.atomic_batch import MAX_ID_BYTES, Ahead, Outcome, batch_of_ack, check
from natsctl.jetstream.streams.pending_message import PendingMessage, storage_fault
from natsctl.jetstream.timers import Alarm
from natsctl.wire.publish_run import CONTROL_SUFFIX, PublishRun

if TYPE_CHECKING:
    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.errors import StoreError


"""The end of the reply subject of every message of a fast batch."""
SERVICE_REPLY: Final = b"_R_."
"""The start of reply subjects of requests through a service of another account."""

DEFAULT_FLOW: Final = 10
"""Default number of messages between two flow acks."""
LARGEST_FLOW: Final = 2**16 - 1
"""The largest number that a publisher may give; it is 16 bits in nats-server."""

START, APPEND, COMMIT, COMMIT_END, PING = range(5)
APPEND_END: Final = b"%d.1" + CONTROL_SUFFIX
"""The end of a reply subject that appends, after its gap mode and the dot."""


class Control(NamedTuple):
    batch_id: bytes
    flow: int
    """Messages that the publisher wants between two flow acks, at most."""
    gap_ok: bool
    seq: int
    """Place of the message in its batch, from 1."""
    op: int

    @property
    def commits(self) -> bool:
        return self.op in (COMMIT, COMMIT_END)


def parse_control(reply: bytes) -> Control | None:
    """Return the fields of a reply subject, None if it is malformed."""
    tokens = reply.rsplit(b".", 6)
    if len(tokens) < 7:
        return None
    _, batch_id, flow, gap_mode, place, ops, _ = tokens
    op = int(ops) if ops.isdigit() and len(ops) < 20 else -1
    seq = int(place) if place.isdigit() and len(place) < 21 else 0
    if not START <= op <= PING or not 0 < seq < 2**64 - 1 or gap_mode not in (b"fail", b"ok"):
        return None
    if (op == START and seq != 1) or (op in (APPEND, COMMIT_END) and seq == 1):
        return None
    every = int(flow) if flow.isdigit() and len(flow) < 20 else 0
    return Control(batch_id, min(every, LARGEST_FLOW) or DEFAULT_FLOW, gap_mode == b"ok", seq, op)


class _RequestInfo(msgspec.Struct):
    """The field read from the header `Nats-Request-Info` that service imports add."""

    reply: str = ""


def control_subject(message: PendingMessage) -> bytes:
    """Return the reply subject that places a message in a fast batch, or b"".

    The reply subject of a message from another account belongs to the service that was imported; the publisher's is in
    a header.
    """
    reply = message.reply
    if reply.startswith(SERVICE_REPLY) and headers.REQUEST_INFO in message.fields:
        try:
            reply = msgspec.json.decode(message.fields[headers.REQUEST_INFO], type=_RequestInfo).reply.encode()
        except msgspec.DecodeError:
            return b""
    return reply if reply[-len(CONTROL_SUFFIX) :] == CONTROL_SUFFIX else b""


MAX_FLOW: Final = 500
"""Messages between two acks of all batches of a stream together."""

MAX_PARTS: Final = 256
"""Parts of one run that are stored or refused within a turn, each in 5 to 10 µs."""
ACKS_AT_ONCE: Final = 256
"""Flow acks and stored parts that one turn handles, of 5 to 10 µs too."""


class StoredRun(NamedTuple):
    """Messages of a batch, consecutive in it and in the stream, that are not durable yet."""

    seq: int
    """Sequence of the last one."""
    batch: FastBatch
    first: int
    """Place of the first one."""
    last: int
    reply: bytes
    """Reply subject of the last one."""
    head: bytes
    """The common start of their reply subjects, if there are several."""


class FastBatch:
    __slots__ = (
        "acked", "batch_id", "commit_reply", "commits", "due_ns", "every", "gap_ok", "last", "max_every", "open",
        "pending", "persisted", "stream_seq",
    )  # fmt: skip

    def __init__(self, control: Control) -> None:
        self.batch_id = control.batch_id
        self.gap_ok = control.gap_ok
        self.max_every = control.flow
        self.every = 0
        """Messages between two flow acks."""
        self.last = 0
        """Highest place that was seen."""
        self.persisted = 0
        """Highest place that is durable."""
        self.stream_seq = 0
        """Sequence of the last durable message."""
        self.acked = 0
        """Place in the latest flow ack."""
        self.pending = 0
        """Messages that are stored and not durable yet."""
        self.commits = False
        """Whether the batch ends with the messages so far."""
        self.commit_reply = b""
        """Reply subject for the ack of the batch: that of the message that ended it."""
        self.open = True
        self.due_ns = 0


class FastBatches:
    __slots__ = ("_account", "_alarm", "_now_ns", "_open", "_plain", "_stream", "_total", "_waiting")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._account = stream.account
        self._open: dict[bytes, FastBatch] = {}
        self._alarm = Alarm(stream.engine.timers, self._close_silent)
        self._now_ns = stream.engine.clock.monotonic_ns
        self._plain = False
        self._total = stream.engine.open_batches
        self._waiting: deque[StoredRun] = deque()

    def __len__(self) -> int:
        return len(self._open)

    def configure(self) -> None:
        config = self._stream.config
        self._plain = not (config.allow_msg_counter or config.discard is DiscardPolicy.NEW)
        if self._open and not config.allow_batched:
            self.stop()

    def stop(self) -> None:
        for batch in tuple(self._open.values()):
            self._close(batch)
        self._waiting.clear()
        self._alarm.cancel()

    # Messages

    def take(self, message: PendingMessage, subject: bytes) -> None:
        """Take one message of a batch; the reply `subject` that it was sent with holds its place."""
        control = parse_control(subject)
        refusal = self._refuse(message, control)
        if refusal is None:
            assert control is not None
            batch = self._open.get(control.batch_id) or self._begin(control)
            if isinstance(batch, ApiError):
                refusal = batch
            else:
                refusal = self._refuse_level(batch, message)
                if refusal is None:
                    self._take(batch, control, message)
        if refusal is not None:
            self._stream.pipeline.acks.refuse(message.reply, refusal)

    def _refuse(self, message: PendingMessage, control: Control | None) -> ApiError | None:
        stream = self._stream
        if (refusal := checks.check_batched(stream, message)) is not None:
            return refusal
        if not stream.config.allow_batched:
            return error(ErrCode.BATCH_PUBLISH_DISABLED)
        if control is None:
            return error(ErrCode.BATCH_PUBLISH_INVALID_PATTERN)
        return error(ErrCode.BATCH_PUBLISH_INVALID_BATCH_ID) if len(control.batch_id) > MAX_ID_BYTES else None

    def _begin(self, control: Control) -> FastBatch | ApiError:
        if control.seq != 1 or control.op == PING:
            return error(ErrCode.BATCH_PUBLISH_UNKNOWN_BATCH_ID)
        limits = self._total.limits
        if len(self._open) >= limits.fast_of_stream or self._total.fast >= limits.fast_of_server:
            return error(ErrCode.BATCH_PUBLISH_TOO_MANY_INFLIGHT)
        batch = self._open[control.batch_id] = FastBatch(control)
        self._total.fast += 1
        batch.every = min(MAX_FLOW, control.flow) if len(self._open) == 1 else 1
        return batch

    def _refuse_level(self, batch: FastBatch, message: PendingMessage) -> ApiError | None:
        level = message.fields.get(headers.REQUIRED_API_LEVEL)
        if level is None:
            return None
        if not is_level_met(level):
            self._close(batch)
            return error(ErrCode.REQUIRED_API_LEVEL)
        message.header = headers.remove(message.header, headers.REQUIRED_API_LEVEL)
        return None

    def _take(self, batch: FastBatch, control: Control, message: PendingMessage) -> None:
        reply = message.reply
        self._touch(batch)
        if control.op == PING:
            self._ping(batch, control, reply)
            return
        if batch.commits:
            return  # the publisher is waiting for the ack of the batch
        batch.last += 1
        if batch.last != control.seq and not self._over_gap(batch, control, reply):
            return
        if control.commits:
            if control.op == COMMIT_END:
                batch.last -= 1
                self._catch_up(batch)
            self._commit(batch, reply)
            if control.op == COMMIT_END:
                return
        elif control.seq == 1:
            self._stream.pipeline.acks.answer(reply, encode(BatchFlowAck(msgs=batch.every)))
        self._stream.pipeline.map_subject(message)
        outcome: Outcome = 0
        if message.header or not self._plain:
            outcome = check(self._stream, Ahead(), message)
        if outcome:
            self._refused(batch, control, reply, outcome)
        else:
            self._store(batch, control, message)

    def _store(self, batch: FastBatch, control: Control, message: PendingMessage) -> None:
        """Store a checked message; an error at this point is answered as for any other message."""
        reply, message.reply, message.extra = message.reply, b"", b""
        pipeline = self._stream.pipeline
        outcome = checks.check_expected_id(self._stream, message) or pipeline.store_checked(message)
        if isinstance(outcome, ApiError):
            pipeline.acks.refuse(reply, outcome)
        else:
            batch.pending += 1
            self._wait_for(StoredRun(outcome, batch, control.seq, control.seq, reply, b""))

    def take_run(self, subject: bytes, run: PublishRun) -> int | None:
        """Accept messages without headers on one subject; consecutive plain appends are batched.

        Return how many were accepted if the others have to wait, perhaps for another turn.
        """
        messages = run.ops()
        replies = [message[2] for message in messages]
        at, parts, end = 0, 0, len(replies)
        while at < end:
            if parts == MAX_PARTS:
                return at
            parts += 1
            control = parse_control(replies[at])
            batch = self._open.get(control.batch_id) if control is not None and control.op == APPEND else None
            if control is None or batch is None or batch.commits or control.seq != batch.last + 1:
                self._stream.pipeline.take(PendingMessage(subject, replies[at], b"", messages[at][4]))
                at += 1
                continue
            head, place, start = replies[at][: -len(APPEND_END % control.seq)], control.seq, at
            at += 1
            while at < end and replies[at] == head + APPEND_END % (place + 1):
                place += 1
                at += 1
            self._append(batch, subject, run.part(start, at), place, head)
        return None

    def _append(self, batch: FastBatch, subject: bytes, run: PublishRun, last: int, head: bytes) -> None:
        """Store messages that continue a batch up to place `last`; their reply subjects begin with `head`."""
        reply = run.reply(len(run) - 1)
        seq = self._stream.pipeline.store_run(subject, run, acked=False)
        if isinstance(seq, ApiError):
            self._stream.pipeline.acks.refuse(reply, seq)
            return
        batch.last = last
        batch.pending += len(run)
        self._wait_for(StoredRun(seq, batch, last - len(run) + 1, last, reply, head))
        self._touch(batch)

    def _over_gap(self, batch: FastBatch, control: Control, reply: bytes) -> bool:
        """Report a gap, and return whether the batch continues after it."""
        self._publish(reply, BatchFlowGap(last_seq=batch.last, seq=control.seq))
        if batch.gap_ok and control.seq > batch.last:
            batch.last = control.seq
            return True
        batch.last -= 1
        self._commit(batch, reply)
        return False

    def _ping(self, batch: FastBatch, control: Control, reply: bytes) -> None:
        if control.seq > batch.last:
            self._publish(reply, BatchFlowGap(last_seq=batch.last + 1, seq=control.seq + 1))
            if batch.gap_ok:
                batch.last = control.seq
                self._catch_up(batch)
                if self._flow(batch, reply):
                    return
            elif self._commit(batch, reply):
                return
        self._send_flow(batch, reply)

    def _refused(self, batch: FastBatch, control: Control, reply: bytes, outcome: Outcome) -> None:
        """Report a refused message or a duplicate; the last message ends the batch, as does a refusal without gaps."""
        known = 0 if isinstance(outcome, ApiError) else outcome
        if known:
            if not batch.pending:
                batch.persisted = control.seq
                self._flow(batch, reply)
            if not control.commits:
                return
        if not control.gap_ok and batch.last == 1:
            self._close(batch)
            if isinstance(outcome, ApiError):
                self._publish(reply, PubAck(error=outcome, stream=self._stream.name))
            else:
                self._stream.pipeline.acks.answer_duplicate(reply, known, batch_of_ack(batch.batch_id, control.seq))
            return
        if isinstance(outcome, ApiError):
            self._publish(reply, BatchFlowErr(seq=control.seq, error=outcome))
        if control.gap_ok and not control.commits:
            return
        if not known:
            batch.last -= 1
            self._catch_up(batch)
        self._commit(batch, reply)

    # Progress

    def _wait_for(self, stored: StoredRun) -> None:
        if not self._waiting:
            self._stream.store.on_settled(self._go_on)
        self._waiting.append(stored)

    def _go_on(self, fault: StoreError | None) -> None:
        """Continue with messages that have become durable; `lost` has removed the others after a fault."""
        self.run(ACKS_AT_ONCE)

    def run(self, budget: int) -> int:
        """Handle durable messages in up to `budget` acks and parts; ask for another turn if there are more."""
        waiting, store = self._waiting, self._stream.store
        left = budget = min(budget, ACKS_AT_ONCE)
        while waiting and waiting[0].seq <= store.durable_seq:
            stored = waiting[0]
            if stored.batch.open:
                left = self._send_due(stored, left)
            if left <= 0:
                self._stream.engine.ready(self)
                return budget
            left -= 1
            waiting.popleft()
            if stored.batch.open:
                self._persisted(stored)
        if waiting:
            store.on_settled(self._go_on)
        return budget - left

    def _send_due(self, stored: StoredRun, limit: int) -> int:
        """Send flow acks that are due within a part, up to `limit`; return how many more may be sent."""
        batch = stored.batch
        while limit > 0 and (due := max(batch.acked + batch.every, stored.first)) < stored.last:
            batch.persisted = due
            self._flow(batch, stored.head + APPEND_END % due)
            limit -= 1
        return limit

    def _persisted(self, stored: StoredRun) -> None:
        """Send the flow ack that is due after a part, and the batch's ack after its last."""
        batch = stored.batch
        batch.pending -= stored.last - stored.first + 1
        batch.stream_seq = stored.seq
        batch.persisted = stored.last if batch.pending else batch.last
        if batch.commits and batch.persisted == batch.last:
            self._finish(batch)
        else:
            self._flow(batch, stored.reply)

    def lost(self, durable_seq: int, fault: StoreError) -> None:
        """Answer that messages above `durable_seq` were not kept; their batches end."""
        waiting = self._waiting
        while waiting and waiting[-1].seq > durable_seq:
            stored = waiting.pop()
            if stored.batch.open:
                self._close(stored.batch)
                self._stream.pipeline.acks.refuse(stored.reply, storage_fault(fault))

    def _catch_up(self, batch: FastBatch) -> None:
        if not batch.pending:
            batch.persisted = batch.last

    def _commit(self, batch: FastBatch, reply: bytes) -> bool:
        """End a batch now, or once everything of it is durable; return whether it has ended."""
        batch.commits, batch.commit_reply = True, reply
        if batch.last != batch.persisted:
            return False
        self._finish(batch)
        return True

    def _finish(self, batch: FastBatch) -> None:
        self._close(batch)
        extra = batch_of_ack(batch.batch_id, batch.last)
        ack = b"%b%d%b}" % (self._stream.pipeline.acks.opening, batch.stream_seq, extra)
        self._account.publish(batch.commit_reply, b"", b"", ack)

    def _flow(self, batch: FastBatch, reply: bytes) -> bool:
        """Send a flow ack if due, and return whether it was."""
        steps = (batch.persisted - batch.acked) // batch.every
        if steps < 1:
            return False
        batch.acked += steps * batch.every
        most = min(max(MAX_FLOW // max(len(self._open), 1), 1), batch.max_every)
        if batch.every < most:
            batch.every = min(batch.every * 2, most)
        elif batch.every > most:
            batch.every = max(batch.every // 2, most)
        self._send_flow(batch, reply)
        return True

    def _send_flow(self, batch: FastBatch, reply: bytes) -> None:
        self._publish(reply, BatchFlowAck(seq=batch.acked, msgs=batch.every))

    def _publish(self, reply: bytes, body: BatchFlowAck | BatchFlowGap | BatchFlowErr | PubAck) -> None:
        self._account.publish(reply, b"", b"", encode(body))

    # Life

    def _touch(self, batch: FastBatch) -> None:
        if not batch.commits:
            del self._open[batch.batch_id]
            self._open[batch.batch_id] = batch
            batch.due_ns = self._now_ns() + self._total.limits.timeout_ns
            self._alarm.no_later_than(batch.due_ns)

    def _close(self, batch: FastBatch) -> None:
        if batch.open:
            batch.open = False
            del self._open[batch.batch_id]
            self._total.fast -= 1

    def _close_silent(self) -> None:
        now_ns = self._now_ns()
        for batch in tuple(self._open.values()):
            if batch.commits:
                continue  # it ends once its messages are durable
            if batch.due_ns > now_ns:
                self._alarm.no_later_than(batch.due_ns)
                return
            self._close(batch)
