"""Messages that a stream produces at the times of its stored schedules, and the loading of schedules and TTLs.

Theory of operation. A schedule is a stored message, flagged TIMED; it is valid as long as only messages of schedules
were stored on its subject after it, so that replacing, deleting or purging it needs no bookkeeping here: an invalid
entry of `_deadlines` is dropped when it is due. Firing stores the produced message like one that was published, and
waits in `_fired` until that is durable. Only then a schedule that fires once is removed, or the next time of a
repeating one is added.

Exactly once. A crash between the two leaves a schedule that is due although it has fired. Its product names it in
its header and was stored when it was due or later, so the recovery looks at its target's messages from that time on:
`Nats-Schedule-Next` holds the next step. It also looks at the newest removed messages that are still in the log, for a
limit may have pushed one out with the commit that brought it. The journal keeps the next moment of schedules that
repeat: there is little to look at, and their products may already be removed.

`TimedMessages` has the TTLs as well: the publish path calls its `stored` for every message on its slow path. After a
restart, a restore or an update that turns a feature on, the messages that the store has flagged TIMED are read once,
some per turn of the ready queue, oldest first; the store names them without reading others. max_age waits until that is
done, because only then the messages to spare are known.
"""

from __future__ import annotations

from array import array
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from natsctl.api import headers
from natsctl.api.times import parse_time
from natsctl.api.units import DAY, SECOND, parse_ttl
from natsctl.jetstream.streams.message_ttl import GRANULARITY_NS, STALE_SLACK, Deadlines, MessageTtl
from natsctl.jetstream.streams.pending_message import PendingMessage
from natsctl.jetstream.streams.publish_checks import check_message
from natsctl.jetstream.streams.schedule_pattern import PURGE, Firing, ScheduleError, first_firing, next_firing
from natsctl.jetstream.timers import Alarm
from natsctl.store.errors import StoreDamagedError
from natsctl.store.filters import Filters
from natsctl.store.steps import pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from natsctl.jetstream.streams.stream import Stream
    from natsctl.store.message import StoredMessage


NEXT_FIRING: Final = 0x18
"""Journal record: a schedule's sequence and its next moment."""
BATCH: Final = 4
"""Schedules that fire in one step: each may take a millisecond."""
MAX_FIRED: Final = 4096
"""Firings that may wait for a commit; more wait until it has ended, so that no commit becomes large."""
RETRY_NS: Final = SECOND
"""Wait of a schedule after the stream refused its message."""
SOON_NS: Final = 5_000_000
"""Wait of a schedule for messages that are not durable yet."""
MAX_LOOK_BACK: Final = 65_536
"""Maximum number of messages of a target that recovery searches for a schedule's products."""
READ_BATCH: Final = 256

_NOT_PASSED_ON: Final = (b"Nats-Schedule", b"Nats-Expected-", b"Nats-Msg-Id:", b"Nats-TTL:", b"Nats-Rollup:")
_encode: Final = msgspec.msgpack.encode
_decoder: Final = msgspec.msgpack.Decoder(tuple[int, int])


class Fired(NamedTuple):
    produced_seq: int
    seq: int
    subject: bytes
    next_ns: int
    """Time of the next firing, 0: never."""


class Schedules:
    __slots__ = ("_alarm", "_deadlines", "_fired", "_moved", "_remnants", "_stream", "active", "produces")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._alarm = Alarm(stream.engine.timers, self._look)
        self._deadlines = Deadlines()
        self._fired: deque[Fired] = deque()
        self._moved: dict[int, int] = {}
        self._remnants: dict[bytes, tuple[int, int, bytes]] | None = None
        self.active = False
        """True if schedules fire in this stream."""
        self.produces = False
        """True while a message of a schedule is being stored."""

    def stop(self) -> None:
        self.active = False
        self._alarm.cancel()

    def clear(self) -> None:
        self._alarm.cancel()
        self._deadlines, self._remnants = Deadlines(), None

    # Schedules that come

    def note(self, seq: int, ts_ns: int, header: bytes) -> None:
        """Add a schedule that was stored just now; one in the past fires a moment later."""
        now_ns = self._stream.engine.clock.now_ns()
        try:
            firing = next_firing(header, min(ts_ns, now_ns), now_ns)
        except ScheduleError:
            return
        if firing is not None:
            self._enter(firing.due_ns if firing.due_ns > now_ns else now_ns + GRANULARITY_NS, seq)

    def load(self, message: StoredMessage) -> None:
        """Add a schedule that was stored before the start: one missed firing is made up for."""
        now_ns = self._stream.engine.clock.now_ns()
        try:
            firing = first_firing(message.header, min(message.ts_ns, now_ns))
        except ScheduleError:
            return
        if firing is None or not self._counts(message.seq, message.subject):
            return
        due_ns = max(firing.due_ns, self._moved.get(message.seq, 0))
        if due_ns <= now_ns:
            step = self._last_step(message, due_ns)
            if step == PURGE:
                self._end(message.seq, message.subject)
                return
            due_ns = _time_of(step) or due_ns
        self._enter(max(due_ns, now_ns + GRANULARITY_NS), message.seq)

    def _last_step(self, schedule: StoredMessage, from_ns: int) -> bytes:
        """Return the next step in the last message that a schedule produced since `from_ns`, b"" without one."""
        store = self._stream.store
        target = PendingMessage(headers.get(schedule.header, headers.SCHEDULE_TARGET) or b"", b"", b"", b"")
        self._stream.pipeline.map_subject(target)
        filters = Filters((target.subject,))
        step, looked = self._last_step_in_log(schedule, from_ns), 0
        seq = max(store.first_seq_at(from_ns), schedule.seq + 1)
        with suppress(StoreDamagedError):
            while looked < MAX_LOOK_BACK and (messages := store.read_from(seq, filters, READ_BATCH)):
                for message in messages:
                    if headers.get(message.header, headers.SCHEDULER) == schedule.subject:
                        step = headers.get(message.header, headers.SCHEDULE_NEXT) or step
                seq, looked = messages[-1].seq + 1, looked + len(messages)
        return step

    def _last_step_in_log(self, schedule: StoredMessage, from_ns: int) -> bytes:
        """Return the next step in the newest removed messages of a schedule; they are read once for all schedules."""
        if self._remnants is None:
            store, self._remnants = self._stream.store, {}
            with suppress(StoreDamagedError):
                for message in store.remnants(max(store.last_seq - MAX_LOOK_BACK, 1), headed=True):
                    scheduler = headers.get(message.header, headers.SCHEDULER)
                    if scheduler is not None:
                        step = headers.get(message.header, headers.SCHEDULE_NEXT) or b""
                        self._remnants[scheduler] = (message.seq, message.ts_ns, step)
        seq, ts_ns, step = self._remnants.get(schedule.subject, (0, 0, b""))
        return step if seq > schedule.seq and ts_ns >= from_ns else b""

    def _enter(self, due_ns: int, seq: int) -> None:
        if self.active:
            self._deadlines.add(due_ns, seq)
            self.arm()
            if self._is_stale():
                self._look()

    def _is_stale(self) -> bool:
        return len(self._deadlines) > 2 * self._stream.store.messages + STALE_SLACK

    def _counts(self, seq: int, subject: bytes) -> bool:
        """Return whether no message has replaced a schedule; messages that schedules produce do not count."""
        store = self._stream.store
        if store.last_seq_of(subject) == seq:
            return True
        later = store.read_from(seq + 1, Filters((subject,)), READ_BATCH)
        return all(
            headers.get(message.header, headers.SCHEDULER) and not headers.get(message.header, headers.SCHEDULE)
            for message in later
        )

    # Schedules that fire

    def arm(self) -> None:
        due_ns = self._deadlines.next_ns()
        if due_ns is not None:
            clock = self._stream.engine.clock
            self._alarm.no_later_than(clock.monotonic_ns() + min(max(due_ns - clock.now_ns(), 0), DAY))

    def _look(self) -> None:
        self._stream.engine.ready(self)

    def run(self, budget: int) -> int:
        store, engine = self._stream.store, self._stream.engine
        limit = min(budget, BATCH)
        settled = self._settle(limit)
        if not store.healthy or not self.active or self._stream.work.defers(self):
            return settled
        if held_until_ns := engine.clock_watch.held_until_ns():
            self._alarm.no_later_than(held_until_ns)
            return settled
        now_ns, limit = engine.clock.now_ns(), min(limit - settled, MAX_FIRED - len(self._fired))
        due = self._deadlines.take_due(now_ns, limit)
        for seq, due_ns in due:
            if seq > store.durable_seq:
                self._deadlines.add(now_ns + SOON_NS, seq)
            else:
                with suppress(StoreDamagedError):  # the store has reported it; what cannot be read is not passed on
                    self._fire(seq, due_ns, now_ns)
        if len(self._fired) < MAX_FIRED:
            if len(due) == limit or (self._is_stale() and self._deadlines.sweep(store.holds)):
                engine.ready(self)
            else:
                self.arm()
        return settled + len(due)

    def _fire(self, seq: int, due_ns: int, now_ns: int) -> None:
        schedule = self._stream.store.get(seq)
        if schedule is None or not self._counts(seq, schedule.subject):
            return
        try:
            following = next_firing(schedule.header, due_ns, now_ns)
        except ScheduleError:
            return
        if following is None:
            return
        content = self._content(schedule)
        if content is None:
            self._deadlines.add(now_ns + SOON_NS, seq)
            return
        next_ns = following.due_ns if following.repeats else 0
        produced_seq = self._store(_produced(schedule, content, following))
        if produced_seq:
            if not self._fired:
                self._await_commit()
            self._fired.append(Fired(produced_seq, seq, schedule.subject, next_ns))
            if next_ns:
                self._journal(seq, next_ns)
        else:
            self._deadlines.add(now_ns + RETRY_NS, seq)

    def _content(self, schedule: StoredMessage) -> StoredMessage | None:
        """Return the message to pass on: the last one of the source, or the schedule itself; None: not durable yet."""
        store = self._stream.store
        source_seq = store.last_seq_of(headers.get(schedule.header, headers.SCHEDULE_SOURCE) or b"")
        return store.get(source_seq) if source_seq else schedule

    def _store(self, message: PendingMessage) -> int:
        """Store a produced message and return its sequence, 0 where the stream cannot take it now."""
        pipeline = self._stream.pipeline
        pipeline.map_subject(message)
        self.produces = True
        try:
            outcome = check_message(self._stream, message) or pipeline.store_checked(message)
        finally:
            self.produces = False
        return outcome if isinstance(outcome, int) else 0

    def _settle(self, limit: int) -> int:
        """Continue after firings that have become durable; return how many there were, at most `limit`."""
        durable_seq, settled = self._stream.store.durable_seq, 0
        while self._fired and self._fired[0].produced_seq <= durable_seq:
            if settled == limit:
                self._stream.engine.ready(self)
                return settled
            self._settled(self._fired.popleft())
            settled += 1
        if settled and self._fired:
            self._await_commit()
        return settled

    def _settled(self, fired: Fired) -> None:
        """Continue after a firing: set the next time, or end the schedule."""
        if fired.next_ns:
            self._deadlines.add(fired.next_ns, fired.seq)
        else:
            self._end(fired.seq, fired.subject)

    def _end(self, seq: int, subject: bytes) -> None:
        stream = self._stream
        if stream.store.count_of(subject) == 1:
            stream.remove(seq)
        else:
            stream.work.begin(stream.purging(Filters((subject,)), below_seq=seq + 1))

    # Commits

    def _await_commit(self) -> None:
        self._stream.store.on_settled(lambda fault: self._look())

    def refused(self, durable_seq: int) -> None:
        """Fire schedules again if the store could not keep their messages."""
        lost = [fired for fired in self._fired if fired.produced_seq > durable_seq]
        self._fired = deque(fired for fired in self._fired if fired.produced_seq <= durable_seq)
        now_ns = self._stream.engine.clock.now_ns()
        for fired in lost:
            self._deadlines.add(now_ns + RETRY_NS, fired.seq)
        self.arm()

    # The journal

    def _journal(self, seq: int, next_ns: int) -> None:
        stream = self._stream
        self._moved[seq] = next_ns
        if stream.store.storage == "file":
            stream.store.append_record(NEXT_FIRING, _encode((seq, next_ns)))
            stream.consumer_set.rewrite_if_large()

    def read_journal(self, records: list[tuple[int, bytes]]) -> None:
        for kind, body in records:
            if kind == NEXT_FIRING:
                seq, next_ns = _decoder.decode(body)
                self._moved[seq] = next_ns

    def records(self) -> Iterator[list[tuple[int, bytes]]]:
        """Yield the records for a new journal, some at a time."""
        holds, moved = self._stream.store.holds, self._moved
        for piece in pieces([*moved]):
            for seq in piece:
                if not holds(seq):
                    moved.pop(seq, None)
            if self._stream.store.storage == "file":
                yield [(NEXT_FIRING, _encode((seq, moved[seq]))) for seq in piece if seq in moved]


def _produced(schedule: StoredMessage, content: StoredMessage, following: Firing) -> PendingMessage:
    """Return the message that a schedule produces; `following` is when it does so again."""
    lines = [line for line in content.header.split(b"\r\n")[1:-2] if not line.startswith(_NOT_PASSED_ON)]
    kept = b"NATS/1.0\r\n%b\r\n" % b"".join(b"%b\r\n" % line for line in lines)
    step = following.text.encode() if following.repeats else PURGE
    pairs = [(headers.SCHEDULER, schedule.subject), (headers.SCHEDULE_NEXT, step)]
    for name, key in ((headers.SCHEDULE_TTL, headers.TTL), (headers.SCHEDULE_ROLLUP, headers.ROLLUP)):
        if value := headers.get(schedule.header, name):
            pairs.append((key, value))
    target = headers.get(schedule.header, headers.SCHEDULE_TARGET) or b""
    message = PendingMessage(target, b"", headers.append(kept, pairs), content.payload)
    message.own = True
    return message


def _time_of(step: bytes) -> int:
    """Return the moment that a produced message names, 0 when it names none."""
    try:
        return parse_time(step.decode())
    except ValueError:
        return 0


LOAD_BATCH: Final = 256
"""Messages that one turn of loading reads."""


def is_timed(header: bytes) -> bool:
    """Return whether a message has a TTL or a schedule, so that the store has to flag it."""
    return b"\r\nNats-TTL:" in header or b"\r\nNats-Schedule:" in header


class TimedMessages:
    __slots__ = ("_loaded_for", "_loading", "_place", "_stream", "schedules", "ttl")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._loading = array("Q")
        self._place = 0
        self._loaded_for: tuple[bool, bool] | None = None
        self.ttl = MessageTtl(stream)
        self.schedules = Schedules(stream)

    def configure(self) -> None:
        """Read from the configuration whether messages may have TTLs and schedules; load them again after a change."""
        config = self._stream.config
        wanted = (config.allow_msg_ttl, config.allow_msg_schedules)
        self.ttl.active, self.schedules.active = wanted
        if self._loaded_for is not None and wanted != self._loaded_for:
            self._load()
        self._loaded_for = wanted

    def recover(self, records: Iterable[tuple[int, bytes]]) -> None:
        self.schedules.read_journal(list(records))
        self._load()

    def stop(self) -> None:
        self._loading = array("Q")
        self.ttl.stop()
        self.schedules.stop()

    def listeners(self) -> list[Callable[[int, PendingMessage], None]]:
        config = self._stream.config
        wanted = config.allow_msg_ttl or config.allow_msg_schedules
        if config.sources or config.mirror is not None:  # messages from elsewhere were not checked here
            wanted = wanted or config.max_age > 0 or config.allow_rollup_hdrs
        return [self.stored] if wanted else []

    def stored(self, seq: int, message: PendingMessage) -> None:
        header = message.header
        if b"\r\nNats-" not in header:
            return
        ts_ns = self._stream.store.last_ts_ns
        ttl_ns = message.ttl_ns or parse_ttl(message.fields.get(headers.TTL, b"")) or 0
        if ttl_ns:
            self.ttl.note(seq, ts_ns, ttl_ns)
            self.ttl.arm()
        if self.schedules.active and headers.SCHEDULE in message.fields:
            self.schedules.note(seq, ts_ns, header)
        step = message.fields.get(headers.SCHEDULE_NEXT)
        if step == PURGE and not self.schedules.produces:
            self._end_schedule(message.fields.get(headers.SCHEDULER, b""))

    def _end_schedule(self, subject: bytes) -> None:
        config = self._stream.config
        if subject and config.allow_rollup_hdrs and not config.deny_purge and self._stream.store.count_of(subject):
            self._stream.work.begin(self._stream.purging(Filters((subject,))))

    # Loading

    @property
    def loading(self) -> bool:
        """Return whether messages stored before the start are still to be read."""
        return bool(self._loading)

    def _load(self) -> None:
        self.ttl.clear()
        self.schedules.clear()
        self._loading, self._place = array("Q", self._stream.store.timed_seqs()), 0
        if self._loading:
            self._stream.engine.ready(self)

    def run(self, budget: int) -> int:
        """Read the next flagged messages; schedule another call if there are more."""
        if self._stream.work.defers(self):
            return 0
        store, end = self._stream.store, self._place + min(budget, LOAD_BATCH)
        if not self._loading or not store.healthy:
            return 0
        wanted = self._loading[self._place : end]
        if wanted and wanted[-1] > store.durable_seq:
            store.on_settled(lambda fault: self._stream.engine.ready(self))
            return 0
        for message in self._read(wanted):
            with suppress(StoreDamagedError):
                self._take(message)
        self._place = end
        if end < len(self._loading):
            self._stream.engine.ready(self)
        else:
            self._loading = array("Q")
            self._stream.expiry.catch_up()
        self.ttl.arm()
        return len(wanted)

    def _read(self, wanted: array[int]) -> Iterable[StoredMessage]:
        """Return messages, adjacent ones in one read; damaged ones were reported by the store and are skipped."""
        store = self._stream.store
        if wanted[-1] - wanted[0] < 2 * len(wanted):
            flagged = frozenset(wanted)
            with suppress(StoreDamagedError):
                return [m for m in store.read_from(wanted[0], max_msgs=2 * len(wanted)) if m.seq in flagged]
        found: list[StoredMessage] = []
        for seq in wanted:
            with suppress(StoreDamagedError):
                message = store.get(seq)
                if message is not None:
                    found.append(message)
        return found

    def _take(self, message: StoredMessage) -> None:
        ttl_ns = parse_ttl(headers.get(message.header, headers.TTL) or b"")
        if ttl_ns:
            self.ttl.note(message.seq, message.ts_ns, ttl_ns)
        if self.schedules.active and headers.get(message.header, headers.SCHEDULE):
            self.schedules.load(message)

    # Commits

    def refused(self, durable_seq: int) -> None:
        """Return to `durable_seq`: the store could not keep later messages."""
        self._loading = array("Q", [seq for seq in self._loading if seq <= durable_seq])
        self.schedules.refused(durable_seq)

    def records(self) -> Iterator[list[tuple[int, bytes]]]:
        return self.schedules.records()
