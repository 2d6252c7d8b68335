"""max_age: removal of messages by age, and delete markers after the last message of a subject.

One timer is set to the time of the oldest message, but never closer than `GRANULARITY_NS`, so that a steady flow
expires in batches. A few messages are removed one by one, so that consumers can keep their counts; many are purged
together. If some messages never expire, or leave delete markers, all are examined, some per turn: `_cursor` is after
those examined and spared.

Times ahead of the clock. After a clock that was ahead is corrected, messages get times in the future, because time
order equals sequence order. Such a message expires by the monotonic clock, `max_age` after the server first saw it:
`_seen` holds sequences and times. Source: docs/adr/0003.

Delete markers. When the last message of a subject expires by age or TTL, an empty message with `Nats-Marker-Reason:
MaxAge` replaces it; its own TTL is the stream's subject_delete_marker_ttl, so that it expires too, without another
marker. It is stored before the message is removed: a crash between the two leaves a message that expires again, and is
no longer the last of its subject then. Deletes, purges and limits leave no marker. Source: nats-server, filestore.go
and sdm.go.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.api.units import SECOND, format_duration
from natsctl.jetstream.consumers.redelivery import GONE
from natsctl.jetstream.streams.message_ttl import GRANULARITY_NS
from natsctl.jetstream.streams.pending_message import PendingMessage
from natsctl.jetstream.timers import Alarm
from natsctl.store.errors import StoreDamagedError, StoreError
from natsctl.store.filters import ALL
from natsctl.store.steps import Steps

if TYPE_CHECKING:
    from natsctl.jetstream.streams.stream import Stream


ONE_BY_ONE: Final = 1000
"""Maximum number of messages expiring together that consumers are informed of one by one."""
WALK: Final = 256
"""Messages that one turn of a walk examines."""
SKIPPED: Final = 512
"""Spared messages that one turn skips."""
SEEN_PER_AGE: Final = 256
"""Entries of `_seen` in one max_age: so much of it a message with a time ahead of the clock may stay too long."""


class Expiry:
    __slots__ = ("_alarm", "_cursor", "_left", "_max_age_ns", "_over", "_seen", "_stream")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._max_age_ns = 0
        self._cursor = 0
        self._left = 0
        """Spared messages that may still be skipped in this turn."""
        self._seen: deque[tuple[int, int]] = deque()
        """Sequences of messages with times ahead of the clock, and the monotonic times of their arrival."""
        self._over = 0
        """Everything below this sequence is too old, by the messages seen so far."""
        self._alarm = Alarm(stream.engine.timers, self._look)

    def configure(self) -> None:
        self._max_age_ns = self._stream.config.max_age
        self._cursor = self._over = 0
        self._alarm.cancel()
        self.arm()

    def stop(self) -> None:
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
            self._left = SKIPPED
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
        """Record the arrival of messages with times ahead of the clock."""
        clock, store = self._stream.engine.clock, self._stream.store
        if store.last_ts_ns <= clock.now_ns():
            return
        seen, now_ns = self._seen, clock.monotonic_ns()
        least_ns = max(self._max_age_ns // SEEN_PER_AGE, GRANULARITY_NS)
        if not seen or (seen[-1][0] < store.durable_seq and now_ns >= seen[-1][1] + least_ns):
            seen.append((store.durable_seq, now_ns))

    def catch_up(self) -> None:
        """Expire due messages after a restart, immediately if no advisory is needed."""
        if self._max_age_ns <= 0 or self._stream.timed.loading or not self._stream.store.healthy:
            return
        self._cursor = 0
        first_kept = self._first_kept()
        if self._is_plain(first_kept):
            self._stream.work.begin(self._stream.purging(below_seq=first_kept), lambda count: self.arm())
        else:
            self._look()

    def _first_kept(self) -> int:
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
            return stream.work.begin(self._expiring(first_kept), lambda count: self.arm())
        before = store.messages
        while store.messages and store.first_seq < first_kept:
            stream.removed(store.drop_first(), GONE)
        stream.count_bytes()
        self.arm()
        return before - store.messages

    def _expiring(self, below_seq: int) -> Steps[None]:
        """Remove messages below `below_seq`; consumers that wait for their acks publish advisories."""
        self._stream.work.shut()
        for consumer in tuple(self._stream.consumers.values()):
            state = consumer.state
            gone = sorted(seq for seq in {*state.pending, *state.redelivered} if seq < below_seq)
            yield from consumer.retry.messages_gone(gone, GONE)
        yield from self._stream.purging(below_seq=below_seq)

    def _walk(self, first_kept: int, limit: int) -> int:
        """Remove up to `limit` messages one by one, skipping messages that never expire."""
        self._left = SKIPPED
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
        """Return the oldest sequence below `first_kept` that can expire, or 0; ask for a turn to skip more."""
        store, spares = self._stream.store, self._stream.timed.ttl.spares
        seq = store.next_seq(ALL, max(self._cursor, store.first_seq))
        while seq and seq < first_kept and spares(seq):
            if not self._left:
                self._look()
                return 0
            self._left -= 1
            self._cursor = seq + 1
            seq = store.next_seq(ALL, seq + 1)
        return seq if 0 < seq < first_kept else 0


_KV_PURGE: Final = b"PURGE"


class DeleteMarkers:
    """Removal of expired messages, with markers where the stream wants them."""

    __slots__ = ("_header", "_stream", "ttl_ns")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._header = b""
        self.ttl_ns = 0
        """Lifetime of a marker; 0: the stream leaves none."""

    def configure(self) -> None:
        self.ttl_ns = max(self._stream.config.subject_delete_marker_ttl, 0) // SECOND * SECOND
        self._header = headers.encode(
            [
                (headers.MARKER_REASON, b"MaxAge"),
                (headers.TTL, format_duration(self.ttl_ns).encode()),
                (headers.ROLLUP, b"sub"),
            ]
        )

    def expire(self, seq: int, reason: str) -> None:
        """Remove one expired durable message, if it is still there; `reason` goes into consumers' advisories."""
        stream, store = self._stream, self._stream.store
        subject = store.subject_of(seq)
        if subject is None:
            return
        if self.ttl_ns and store.count_of(subject) == 1 and not self._is_marker(seq) and not self._leave(subject):
            return
        gone = store.drop_first() if seq == store.first_seq else store.remove(seq)
        if gone is not None:
            stream.removed(gone, reason)

    def _is_marker(self, seq: int) -> bool:
        """Return whether a message is a marker itself, or a KV client's marker of a purged key."""
        try:
            message = self._stream.store.get(seq)
        except StoreDamagedError:
            return False
        if message is None or not message.header:
            return False
        operation = headers.get(message.header, headers.KV_OPERATION)
        return bool(headers.get(message.header, headers.MARKER_REASON)) or operation == _KV_PURGE

    def _leave(self, subject: bytes) -> bool:
        """Store a marker; False when the store refuses it, so that the message has to wait.

        No limit refuses it: it takes the place of a message.
        """
        stream = self._stream
        if stream.config.sealed:
            return False
        if stream.retention.refuses(subject):
            return True
        message = PendingMessage(subject, b"", self._header, b"")
        message.own = message.timed = True
        message.ttl_ns = self.ttl_ns
        try:
            stream.pipeline.store(message)
        except StoreError:
            return False
        return True
