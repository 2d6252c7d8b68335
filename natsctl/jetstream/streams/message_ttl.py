"""Messages with a lifetime of their own: the header `Nats-TTL`, and the removal of expired messages.

Theory of operation. A message that carries the header is stored with the flag TIMED. Where the stream allows TTLs its
deadline goes into `_deadlines`, 16 bytes a message; one alarm is set to the earliest, never closer than the granularity
that nats-server has. Messages with `never` are listed in `_never`, because max_age spares them. Due messages are
removed some messages per turn. After a restart both are filled again from the flagged messages (schedules.py); a
message that was removed leaves stale entries; they are skipped, and swept once they are the majority.

`Deadlines` (also used by schedules) keeps runs of some entries, each two arrays, sequences and times, in the order of
their arrival until the run is full and sorted once. A heap has the full runs by their earliest time. So no call sorts
or moves more than one run, however many entries are due together. Nothing is removed when a message is removed: the
caller checks whether a due sequence is still stored, and `sweep` drops stale entries in small steps, so that they do
not outnumber messages.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.catalogue import ApiError, error
from natsctl.api.errors import ErrCode
from natsctl.api.units import DAY, NEVER, SECOND, parse_ttl
from natsctl.jetstream.consumers.redelivery import GONE
from natsctl.jetstream.timers import Alarm

if TYPE_CHECKING:
    from natsctl.jetstream.streams.pending_message import PendingMessage
    from natsctl.jetstream.streams.stream import Stream


RUN_ENTRIES: Final = 1024
"""Entries of a run: sorted in less than half a millisecond."""
SWEEP_RUNS: Final = 4
"""Runs that one step of a sweep examines."""
MAX_NS: Final = (1 << 63) - 1
"""Latest time that is kept, ns since the epoch."""


class DeadlineRun:
    __slots__ = ("dues", "in_order", "lowest", "seqs")

    def __init__(self) -> None:
        self.seqs = array("Q")
        self.dues = array("Q")
        self.lowest = MAX_NS
        self.in_order = False

    def add(self, due_ns: int, seq: int) -> None:
        self.seqs.append(seq)
        self.dues.append(due_ns)
        self.in_order = False
        if due_ns < self.lowest:
            self.lowest = due_ns

    def sort(self) -> None:
        """Put the earliest entry last."""
        if not self.in_order:
            order = sorted(range(len(self.dues)), key=self.dues.__getitem__, reverse=True)
            self.seqs = array("Q", map(self.seqs.__getitem__, order))
            self.dues = array("Q", map(self.dues.__getitem__, order))
            self.in_order = True

    def take(self, until_ns: int, limit: int) -> list[tuple[int, int]]:
        """Remove and return up to `limit` (sequence, time) pairs due by `until_ns`, the earliest first."""
        self.sort()
        seqs, dues = self.seqs, self.dues
        taken: list[tuple[int, int]] = []
        while dues and dues[-1] <= until_ns and len(taken) < limit:
            taken.append((seqs.pop(), dues.pop()))
        self.lowest = dues[-1] if dues else MAX_NS
        return taken

    def sweep(self, lives: Callable[[int], bool]) -> int:
        """Drop the entries of removed messages and return their number."""
        kept = [at for at, seq in enumerate(self.seqs) if lives(seq)]
        dropped = len(self.seqs) - len(kept)
        if dropped:
            self.seqs, self.dues = (array("Q", [column[at] for at in kept]) for column in (self.seqs, self.dues))
            self.lowest = min(self.dues, default=MAX_NS)
        return dropped


class Deadlines:
    __slots__ = ("_count", "_new", "_number", "_runs", "_sweep")

    def __init__(self) -> None:
        self._new = DeadlineRun()
        self._runs: list[tuple[int, int, DeadlineRun]] = []
        """A heap of full runs by their earliest time; after a sweep of a run it may be too early."""
        self._number = 0
        self._count = 0
        self._sweep: list[DeadlineRun] = []

    def __len__(self) -> int:
        """Return how many entries there are, stale ones included."""
        return self._count

    def add(self, due_ns: int, seq: int) -> None:
        """Add the deadline of `seq`, `due_ns` since the epoch; a past one is due at once."""
        run = self._new
        run.add(min(max(due_ns, 0), MAX_NS), seq)
        self._count += 1
        if len(run.seqs) >= RUN_ENTRIES:
            run.sort()
            self._number += 1
            heappush(self._runs, (run.lowest, self._number, run))
            self._new = DeadlineRun()

    def next_ns(self) -> int | None:
        """Return the earliest deadline, of stale entries included, or None."""
        return min(self._runs[0][0], self._new.lowest) if self._runs else self._new.lowest if self._new.seqs else None

    def take_due(self, now_ns: int, limit: int) -> list[tuple[int, int]]:
        due: list[tuple[int, int]] = []
        runs, new, now_ns = self._runs, self._new, min(now_ns, MAX_NS)
        while len(due) < limit:
            if new.seqs and (not runs or new.lowest < runs[0][0]):
                if new.lowest > now_ns:
                    break
                due += new.take(min(now_ns, runs[0][0]) if runs else now_ns, limit - len(due))
                continue
            if not runs or runs[0][0] > now_ns:
                break
            _, number, run = heappop(runs)
            until_ns = min(now_ns, new.lowest, runs[0][0] if runs else now_ns)
            due += run.take(until_ns, limit - len(due))
            if run.seqs:
                heappush(runs, (run.lowest, number, run))
        self._count -= len(due)
        due.sort()
        return due

    def sweep(self, lives: Callable[[int], bool]) -> bool:
        """Drop stale entries in one step; return whether the sweep continues."""
        if not self._sweep:
            self._sweep = [*(run for _, _, run in self._runs), self._new]
        for _ in range(min(SWEEP_RUNS, len(self._sweep))):
            self._count -= self._sweep.pop().sweep(lives)
        return bool(self._sweep)


GRANULARITY_NS: Final = 250_000_000
"""Least time between two checks. Source: docs/compatibility.md#expiry."""
BATCH: Final = 256
"""Messages that one turn removes."""
STALE_SLACK: Final = 65_536
"""Entries without a message that are kept before they are swept; so many are not worth the work."""
SWEEP_STEPS: Final = 4
"""Steps of a sweep that one turn makes."""


def check_ttl(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Refuse a TTL if the stream allows none; flag a message that has one."""
    text = message.fields.get(headers.TTL)
    if text is None:
        return None
    ttl_ns = parse_ttl(text)
    if ttl_ns and not message.own and not stream.config.allow_msg_ttl:
        return error(ErrCode.MESSAGE_TTL_DISABLED)
    message.ttl_ns = ttl_ns or 0
    message.timed = message.timed or bool(ttl_ns)
    return None


def read_ttl(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Refuse an invalid TTL; raise it to the TTL of delete markers. This is the last check before storing."""
    text = message.fields.get(headers.TTL)
    if text is None or stream.retention.refuses(message.subject):
        return None
    if parse_ttl(text) is None:
        return error(ErrCode.MESSAGE_TTL_INVALID)
    raise_to_marker(stream, message)
    return None


def check_batch_ttl(stream: Stream, message: PendingMessage) -> ApiError | None:
    """Refuse a disabled or invalid TTL in a batch; a valid one is handled by `check_ttl` and `read_ttl`."""
    text = message.fields.get(headers.TTL)
    if text is not None and not message.own and parse_ttl(text) != 0:
        if not stream.config.allow_msg_ttl:
            return error(ErrCode.MESSAGE_TTL_DISABLED)
        if parse_ttl(text) is None:
            return error(ErrCode.MESSAGE_TTL_INVALID)
    return check_ttl(stream, message) or read_ttl(stream, message)


def raise_to_marker(stream: Stream, message: PendingMessage) -> None:
    """Raise a message's TTL to the TTL of delete markers: an earlier expiry could be hidden by an older marker.

    With at most one message per subject nothing can be hidden. Source: nats-server, stream.go.
    """
    least_ns = stream.config.subject_delete_marker_ttl // SECOND * SECOND
    if 0 < message.ttl_ns < least_ns and stream.config.max_msgs_per_subject != 1:
        message.ttl_ns = least_ns
        message.header = headers.remove(message.header, headers.TTL)
        message.header = headers.append(message.header, [(headers.TTL, b"%d" % (least_ns // SECOND))])


class MessageTtl:
    __slots__ = ("_ahead", "_alarm", "_deadlines", "_never", "_stream", "_swept", "active")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._alarm = Alarm(stream.engine.timers, self._look)
        self._deadlines = Deadlines()
        self._ahead = Deadlines()
        """Deadlines by the monotonic clock, of messages with times ahead of the wall clock; see expiry.py."""
        self._never = array("Q")
        self._swept = 0
        """Entries of `_never` that a sweep has kept so far."""
        self.active = False
        """True if messages expire by their TTL; otherwise the header is only stored."""

    def __len__(self) -> int:
        return len(self._deadlines) + len(self._ahead)

    def stop(self) -> None:
        self.active = False
        self._alarm.cancel()

    def clear(self) -> None:
        self._alarm.cancel()
        self._deadlines, self._ahead, self._never, self._swept = Deadlines(), Deadlines(), array("Q"), 0

    def note(self, seq: int, ts_ns: int, ttl_ns: int) -> None:
        if ttl_ns == NEVER:
            insort(self._never, seq)
        elif ttl_ns > 0 and self.active:
            clock = self._stream.engine.clock
            if ts_ns > clock.now_ns():
                self._ahead.add(clock.monotonic_ns() + ttl_ns, seq)
            else:
                self._deadlines.add(ts_ns + ttl_ns, seq)
            if len(self) > STALE_SLACK and self._prevails():
                self._stream.engine.ready(self)

    def arm(self) -> None:
        clock = self._stream.engine.clock
        dues = ((self._deadlines.next_ns(), clock.now_ns()), (self._ahead.next_ns(), clock.monotonic_ns()))
        left = [due_ns - now_ns for due_ns, now_ns in dues if due_ns is not None]
        if left:
            self._alarm.no_later_than(clock.monotonic_ns() + max(min(*left, DAY), GRANULARITY_NS))

    def tidy(self) -> bool:
        """Drop some entries of removed messages if they prevail; return whether more are left."""
        if (self._swept or len(self._never) > 2 * self._stream.store.messages + STALE_SLACK) and self._sweep_never():
            return True
        larger = max(self._deadlines, self._ahead, key=len)
        return self._prevails() and any(larger.sweep(self._stream.store.holds) for _ in range(SWEEP_STEPS))

    def _sweep_never(self) -> bool:
        """Drop stale entries of messages without an end in one step; return whether the sweep continues."""
        start, step = self._swept, SWEEP_RUNS * RUN_ENTRIES
        kept = array("Q", filter(self._stream.store.holds, self._never[start : start + step]))
        self._never[start : start + step] = kept
        more = start + len(kept) < len(self._never)
        self._swept = start + len(kept) if more else 0
        return more

    def _prevails(self) -> bool:
        """Return whether a majority of entries belongs to removed messages."""
        return len(self) > 2 * self._stream.store.messages + STALE_SLACK

    # Messages without an end

    def spares(self, seq: int) -> bool:
        position = bisect_left(self._never, seq)
        return position < len(self._never) and self._never[position] == seq

    def spared_below(self, seq: int) -> bool:
        """Return whether max_age spares a message below `seq` (or one removed since)."""
        return bool(self._never) and self._never[0] < seq

    # Removal

    def _look(self) -> None:
        self._stream.engine.ready(self)

    def run(self, budget: int) -> int:
        """Remove the next expired messages, or sweep, and schedule another call if more are left."""
        stream, store, engine = self._stream, self._stream.store, self._stream.engine
        if not store.healthy or not self.active or self._stream.work.defers(self):
            return 0
        if held_until_ns := engine.clock_watch.held_until_ns():
            self._alarm.no_later_than(held_until_ns)
            return 0
        now_ns, limit = engine.clock.now_ns(), min(budget, BATCH)
        due = self._ahead.take_due(engine.clock.monotonic_ns(), limit)
        due += self._deadlines.take_due(now_ns, limit - len(due))
        for seq, _ in due:
            if seq > store.durable_seq:
                self._deadlines.add(now_ns + GRANULARITY_NS, seq)
            else:
                stream.markers.expire(seq, GONE)
        stream.count_bytes()
        if len(due) == limit or self.tidy():
            engine.ready(self)
        else:
            self.arm()
        return len(due)
