"""Fast batches: a publisher that is told from time to time how far it has come, instead of once per message.

Theory of operation. The reply subject of a message says everything: `<inbox>.<id>.<flow>.<gap mode>.<place>.<op>.$FI`.
A batch counts the highest place it has seen (`last`) and the highest that is durable (`persisted`); messages between
stand in `waiting` until their commit ends, which sends `{"type":"ack"}` every `every` messages and, after the message
that commits, the ack of the batch. A gap ends a batch, unless its publisher said that gaps are `ok`. How many messages
go between two acks doubles or halves towards what the batches of a stream may have together. Batches stand in `_open`
in the order of their last message. Source: server/jetstream_batching.go, ADR-50.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.codec import encode
from natsctl.api.messages import BatchFlowAck, BatchFlowErr, BatchFlowGap, PubAck
from natsctl.api.stream import DiscardPolicy
from natsctl.api.versions import is_level_met
from natsctl.jetstream import publish_checks as checks
from natsctl.jetstream.alarm import Alarm
from natsctl.jetstream.atomic_batch import MAX_ID_BYTES, batch_of_ack
from natsctl.jetstream.batch_checks import Ahead, Outcome, check
from natsctl.jetstream.publish_acks import storage_fault

if TYPE_CHECKING:
    from natsctl.jetstream.incoming import Incoming
    from natsctl.jetstream.stream import Stream
    from natsctl.store.errors import StoreError

CONTROL_SUFFIX: Final = b".$FI"
"""How the reply subject of every message of a fast batch ends."""

MAX_FLOW: Final = 500
"""Messages between two acks of all batches of a stream together."""

DEFAULT_FLOW: Final = 10
LARGEST_FLOW: Final = 2**16 - 1

START, APPEND, COMMIT, COMMIT_END, PING = range(5)


class Control(NamedTuple):
    """What a reply subject says."""

    batch_id: bytes
    flow: int
    gap_ok: bool
    seq: int
    op: int

    @property
    def commits(self) -> bool:
        """Whether the batch ends here."""
        return self.op in (COMMIT, COMMIT_END)


class Batch:
    """One open batch."""

    __slots__ = (
        "acked", "batch_id", "commits", "due_ns", "every", "gap_ok", "last", "max_every", "open", "pending",
        "persisted", "reply", "stream_seq",
    )  # fmt: skip

    def __init__(self, control: Control) -> None:
        self.batch_id = control.batch_id
        self.gap_ok = control.gap_ok
        self.max_every = control.flow
        self.every = 0
        self.last = 0
        self.persisted = 0
        self.stream_seq = 0
        self.acked = 0
        """Place that the latest flow ack told."""
        self.pending = 0
        self.reply = b""
        self.commits = False
        self.open = True
        self.due_ns = 0


class FastBatches:
    """The open fast batches of one stream."""

    __slots__ = ("_account", "_alarm", "_now_ns", "_open", "_plain", "_stream", "_total", "waiting")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._account = stream.account
        self._open: dict[bytes, Batch] = {}
        self._alarm = Alarm(stream.engine.timers, self._look)
        self._now_ns = stream.engine.clock.monotonic_ns
        self._plain = False
        self._total = stream.engine.open_batches
        self.waiting: deque[tuple[int, Batch, int, bytes]] = deque()
        """(sequence, batch, place, reply) of messages that are not durable yet."""

    def __len__(self) -> int:
        return len(self._open)

    def configure(self) -> None:
        """Forget what is open where batches are allowed no more."""
        config = self._stream.config
        self._plain = not (config.allow_msg_counter or config.discard is DiscardPolicy.NEW)
        if self._open and not config.allow_batched:
            self.stop()

    def stop(self) -> None:
        """Forget every open batch."""
        for batch in tuple(self._open.values()):
            self._close(batch)
        self._alarm.cancel()

    # Messages

    def take(self, message: Incoming) -> None:
        """Take one message of a batch."""
        control = parse_control(message.reply)
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
            self._stream.intake.acks.refuse(message.reply, refusal)

    def _refuse(self, message: Incoming, control: Control | None) -> ApiError | None:
        """Return what speaks against a message of any batch, or None."""
        stream = self._stream
        for ask in (checks.check_sealed, checks.check_resources, checks.check_account, checks.check_max_size):
            refusal = ask(stream, message)
            if refusal is not None:
                return refusal
        if not stream.config.allow_batched:
            return error(10205)
        if control is None:
            return error(10206)
        return error(10207) if len(control.batch_id) > MAX_ID_BYTES else None

    def _begin(self, control: Control) -> Batch | ApiError:
        if control.seq != 1 or control.op == PING:
            return error(10208)
        limits = self._total.limits
        if len(self._open) >= limits.fast_of_stream or self._total.fast >= limits.fast_of_server:
            return error(10211)
        batch = self._open[control.batch_id] = Batch(control)
        self._total.fast += 1
        batch.every = min(MAX_FLOW, control.flow) if len(self._open) == 1 else 1
        return batch

    def _refuse_level(self, batch: Batch, message: Incoming) -> ApiError | None:
        level = message.wish.get(headers.REQUIRED_API_LEVEL)
        if level is None:
            return None
        if not is_level_met(level):
            self._close(batch)
            return error(10185)
        message.header = headers.remove(message.header, headers.REQUIRED_API_LEVEL)
        return None

    def _take(self, batch: Batch, control: Control, message: Incoming) -> None:
        """Take one message of an open batch."""
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
            self._stream.intake.acks.tell(reply, encode(BatchFlowAck(msgs=batch.every)))
        self._stream.intake.map_subject(message)
        outcome: Outcome = 0
        if message.header or not self._plain:
            outcome = check(self._stream, Ahead(), message)
        if outcome:
            self._refused(batch, control, reply, outcome)
        else:
            self._store(batch, control, message)

    def _store(self, batch: Batch, control: Control, message: Incoming) -> None:
        """Store a message that was judged; what speaks against it only now is told as for any other message."""
        reply, message.reply, message.extra = message.reply, b"", b""
        intake = self._stream.intake
        outcome = checks.check_expected_id(self._stream, message) or intake.place(message)
        if isinstance(outcome, ApiError):
            intake.acks.refuse(reply, outcome)
        else:
            batch.pending += 1
            self.waiting.append((outcome, batch, control.seq, reply))

    def _over_gap(self, batch: Batch, control: Control, reply: bytes) -> bool:
        """Tell of a gap, and return whether the batch goes on behind it."""
        self._publish(reply, BatchFlowGap(last_seq=batch.last, seq=control.seq))
        if batch.gap_ok and control.seq > batch.last:
            batch.last = control.seq
            return True
        batch.last -= 1
        self._commit(batch, reply)
        return False

    def _ping(self, batch: Batch, control: Control, reply: bytes) -> None:
        """Tell again how far the batch is."""
        if control.seq > batch.last:
            self._publish(reply, BatchFlowGap(last_seq=batch.last + 1, seq=control.seq + 1))
            if batch.gap_ok:
                batch.last = control.seq
                self._catch_up(batch)
                if self._flow(batch, reply):
                    return
            elif self._commit(batch, reply):
                return
        self._tell_flow(batch, reply)

    def _refused(self, batch: Batch, control: Control, reply: bytes, outcome: Outcome) -> None:
        """Tell of a message that is refused or a duplicate, and end the batch where that is its end."""
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
                self._stream.intake.acks.known(reply, known, batch_of_ack(batch.batch_id, control.seq))
            return
        if isinstance(outcome, ApiError):
            self._publish(reply, BatchFlowErr(seq=control.seq, error=outcome))
        if control.gap_ok and not control.commits:
            return
        if not known:
            batch.last -= 1
            self._catch_up(batch)
        self._commit(batch, reply)

    # How far a batch is

    def committed(self, durable_seq: int) -> None:
        """Take note of what became durable."""
        waiting = self.waiting
        while waiting and waiting[0][0] <= durable_seq:
            seq, batch, place, reply = waiting.popleft()
            if batch.open:
                self._persisted(batch, seq, place, reply)

    def _persisted(self, batch: Batch, seq: int, place: int, reply: bytes) -> None:
        batch.reply = reply
        batch.pending -= 1
        batch.stream_seq = seq
        batch.persisted = place if batch.pending else batch.last
        if batch.commits and batch.persisted == batch.last:
            self._finish(batch, reply)
        else:
            self._flow(batch, reply)

    def lost(self, durable_seq: int, fault: StoreError) -> None:
        """Tell of messages above `durable_seq` that they were not kept; their batches end."""
        waiting = self.waiting
        while waiting and waiting[-1][0] > durable_seq:
            _, batch, _, reply = waiting.pop()
            if batch.open:
                self._close(batch)
                self._stream.intake.acks.refuse(reply, storage_fault(fault))

    def _catch_up(self, batch: Batch) -> None:
        if not batch.pending:
            batch.persisted = batch.last

    def _commit(self, batch: Batch, reply: bytes) -> bool:
        """End a batch now, or once everything of it is durable; return whether it has ended."""
        batch.commits = True
        if batch.last != batch.persisted:
            return False
        self._finish(batch, reply)
        return True

    def _finish(self, batch: Batch, reply: bytes) -> None:
        self._close(batch)
        extra = batch_of_ack(batch.batch_id, batch.last)
        ack = b"%b%d%b}" % (self._stream.intake.acks.opening, batch.stream_seq, extra)
        self._account.publish(reply, b"", b"", ack)

    def _flow(self, batch: Batch, reply: bytes) -> bool:
        """Send a flow ack where one is due, and return whether it was."""
        steps = (batch.persisted - batch.acked) // batch.every
        if steps < 1:
            return False
        batch.acked += steps * batch.every
        most = min(max(MAX_FLOW // max(len(self._open), 1), 1), batch.max_every)
        if batch.every < most:
            batch.every = min(batch.every * 2, most)
        elif batch.every > most:
            batch.every = max(batch.every // 2, most)
        self._tell_flow(batch, reply)
        return True

    def _tell_flow(self, batch: Batch, reply: bytes) -> None:
        self._publish(reply, BatchFlowAck(seq=batch.acked, msgs=batch.every))

    def _publish(self, reply: bytes, body: BatchFlowAck | BatchFlowGap | BatchFlowErr | PubAck) -> None:
        self._account.publish(reply, b"", b"", encode(body))

    # Life

    def _touch(self, batch: Batch) -> None:
        """Let a batch stay open for some time more."""
        if not batch.commits:
            del self._open[batch.batch_id]
            self._open[batch.batch_id] = batch
            batch.due_ns = self._now_ns() + self._total.limits.timeout_ns
            self._alarm.no_later_than(batch.due_ns)

    def _close(self, batch: Batch) -> None:
        if batch.open:
            batch.open = False
            del self._open[batch.batch_id]
            self._total.fast -= 1

    def _look(self) -> None:
        """Forget what was silent for too long."""
        now_ns = self._now_ns()
        for batch in tuple(self._open.values()):
            if batch.commits:
                continue  # it ends with its commit
            if batch.due_ns > now_ns:
                self._alarm.no_later_than(batch.due_ns)
                return
            self._close(batch)


def parse_control(reply: bytes) -> Control | None:
    """Return what a reply subject says, None when it is not written as it should."""
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
