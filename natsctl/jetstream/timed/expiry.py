"""max_age: removal of messages by age.

One timer is set to the time of the oldest message, but never closer than `GRANULARITY_NS`, so that a steady flow
expires in batches. A few messages are removed one by one, so that consumers can keep their counts; many are purged
together. If some messages never expire, or leave delete markers, all are examined, some per turn: `_cursor` is after
those examined and spared.

Times ahead of the clock. After a clock that was ahead is corrected, messages get times in the future, because time
order equals sequence order. Such a message expires by the monotonic clock, `max_age` after the server first saw it:
`_seen` holds sequences and times. Source: docs/adr/0003.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from natsctl.jetstream.alarm import Alarm
from natsctl.jetstream.consumers.retry import GONE
from natsctl.jetstream.timed.message_ttl import GRANULARITY_NS
from natsctl.store.filters import ALL
from natsctl.store.steps import Steps

if TYPE_CHECKING:
    from natsctl.jetstream.stream_context import StreamContext

ONE_BY_ONE: Final = 1000
"""Messages that expire together, up to which consumers are informed of each."""
WALK: Final = 256
"""Messages that one turn of a walk looks at."""
SEEN_PER_AGE: Final = 256
"""Entries of `_seen` in one max_age: so much of it a message with a time ahead of the clock may stay too long."""


class Expiry:
    """The max_age of one stream."""

    __slots__ = ("_alarm", "_cursor", "_max_age_ns", "_over", "_seen", "_stream")

    def __init__(self, stream: StreamContext) -> None:
        self._stream = stream
        self._max_age_ns = 0
        self._cursor = 0
        self._seen: deque[tuple[int, int]] = deque()
        """Sequences, and the monotonic times at which they had come, of messages with times ahead of the clock."""
        self._over = 0
        """Everything below this sequence is too old by what was seen."""
        self._alarm = Alarm(stream.engine.timers, self._look)

    def configure(self) -> None:
        """Read max_age from the configuration."""
        self._max_age_ns = self._stream.config.max_age
        self._cursor = self._over = 0
        self._alarm.cancel()
        self.arm()

    def stop(self) -> None:
        """Stop expiring messages."""
        self._max_age_ns = 0
        self._alarm.cancel()

    def arm(self) -> None:
        """Look again when the oldest message that can expire is due."""
        store = self._stream.store
        if self._max_age_ns <= 0 or not store.messages or self._stream.timed.loading:
            return
        self._note_seen()
        oldest_ns = store.first_ts_ns
        if self._stream.timed.ttl.spared_below(store.last_seq + 1):
            oldest_ns = store.ts_of(self._next(store.last_seq + 1))
        if oldest_ns:
            clock = self._stream.engine.clock
            left_ns = oldest_ns + self._max_age_ns - clock.now_ns()
            if self._seen:
                left_ns = min(left_ns, self._seen[0][1] + self._max_age_ns - clock.monotonic_ns())
            self._alarm.no_later_than(clock.monotonic_ns() + max(left_ns, GRANULARITY_NS))

    def committed(self) -> None:
        """Handle new messages: the first one starts the timer."""
        if self._max_age_ns > 0:
            if self._alarm.armed:
                self._note_seen()
            else:
                self.arm()

    def _note_seen(self) -> None:
        """Record the arrival of messages whose times are ahead of the clock."""
        clock, store = self._stream.engine.clock, self._stream.store
        if store.last_ts_ns <= clock.now_ns():
            return
        seen, now_ns = self._seen, clock.monotonic_ns()
        least_ns = max(self._max_age_ns // SEEN_PER_AGE, GRANULARITY_NS)
        if not seen or (seen[-1][0] < store.durable_seq and now_ns >= seen[-1][1] + least_ns):
            seen.append((store.durable_seq, now_ns))

    def catch_up(self) -> None:
        """Expire due messages after a restart, at once where no advisory is needed."""
        if self._max_age_ns <= 0 or self._stream.timed.loading or not self._stream.store.healthy:
            return
        self._cursor = 0
        first_kept = self._first_kept()
        if self._is_plain(first_kept):
            self._stream.work.begin(self._stream.purging(below_seq=first_kept), lambda count: self.arm())
        else:
            self._look()

    def _first_kept(self) -> int:
        """Return the first sequence that is young enough."""
        clock = self._stream.engine.clock
        seen, oldest_ns = self._seen, clock.monotonic_ns() - self._max_age_ns
        while seen and seen[0][1] <= oldest_ns:
            self._over = seen.popleft()[0] + 1
        return max(self._stream.store.first_seq_at(clock.now_ns() - self._max_age_ns + 1), self._over)

    def _is_plain(self, first_kept: int) -> bool:
        """Return whether everything below `first_kept` can be purged."""
        return not self._stream.markers.ttl_ns and not self._stream.timed.ttl.spared_below(first_kept)

    def _look(self) -> None:
        self._stream.engine.ready(self)

    def run(self, budget: int) -> int:
        """Remove due messages, up to `budget` of a walk; ask for another turn if there are more."""
        stream, store = self._stream, self._stream.store
        if stream.work.defers(self):
            return 0
        if self._max_age_ns <= 0 or not store.messages or not store.healthy or stream.timed.loading:
            return 0
        if held_until_ns := stream.engine.clock_watch.held_until_ns():
            self._alarm.no_later_than(held_until_ns)
            return 0
        first_kept = self._first_kept()
        if not self._is_plain(first_kept):
            return self._walk(first_kept, min(budget, WALK))
        if first_kept - store.first_seq > ONE_BY_ONE or not stream.consumers:
            stream.work.begin(self._expiring(first_kept), lambda count: self.arm())
            return 1
        while store.messages and store.first_seq < first_kept:
            stream.removed(store.drop_first(), GONE)
        stream.count_bytes()
        self.arm()
        return 1

    def _expiring(self, below_seq: int) -> Steps[None]:
        """Remove messages below `below_seq`; consumers that wait for their acks publish advisories."""
        self._stream.work.shut()
        for consumer in tuple(self._stream.consumers.values()):
            state = consumer.state
            gone = sorted(seq for seq in {*state.pending, *state.redelivered} if seq < below_seq)
            yield from consumer.retry.messages_gone(gone, GONE)
        yield from self._stream.purging(below_seq=below_seq)

    def _walk(self, first_kept: int, limit: int) -> int:
        """Remove up to `limit` messages one by one, except those that never expire."""
        for done in range(limit):
            seq = self._next(first_kept)
            if not seq:
                self._stream.count_bytes()
                self.arm()
                return done
            self._cursor = seq + 1
            self._stream.markers.expire(seq, GONE)
        self._stream.count_bytes()
        self._stream.engine.ready(self)
        return limit

    def _next(self, first_kept: int) -> int:
        """Return the oldest durable sequence below `first_kept` that can expire, 0 when there is none."""
        store, spares = self._stream.store, self._stream.timed.ttl.spares
        seq = store.next_seq(ALL, max(self._cursor, store.first_seq))
        while seq and seq < first_kept and spares(seq):
            self._cursor = seq + 1
            seq = store.next_seq(ALL, seq + 1)
        return seq if 0 < seq < first_kept else 0
