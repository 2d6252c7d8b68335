"""max_age: messages leave when their time has come.

One timer stands at the time of the oldest message, but never closer than `GRANULARITY_NS`, so that a steady flow
expires in batches. Few messages go one by one, so that consumers can keep their counts; many go as one purge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from natsctl.jetstream.alarm import Alarm
from natsctl.jetstream.retry import GONE_BY_LIMITS

if TYPE_CHECKING:
    from natsctl.jetstream.stream import Stream

GRANULARITY_NS: Final = 250_000_000
"""Least time between two looks. Source: jetstream_semantics.md part 1.5."""

ONE_BY_ONE: Final = 1000
"""Messages that expire at once up to which consumers are told of each."""


class Expiry:
    """The max_age of one stream."""

    __slots__ = ("_alarm", "_max_age_ns", "_stream")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._max_age_ns = 0
        self._alarm = Alarm(stream.engine.timers, self._look)

    def configure(self) -> None:
        """Take max_age from the configuration."""
        self._max_age_ns = self._stream.config.max_age
        self._alarm.cancel()
        self.arm()

    def stop(self) -> None:
        """Expire nothing more."""
        self._alarm.cancel()

    def arm(self) -> None:
        """Look again when the oldest message is due."""
        store = self._stream.store
        if self._max_age_ns <= 0 or not store.messages:
            return
        clock = self._stream.engine.clock
        left_ns = store.first_ts_ns + self._max_age_ns - clock.now_ns()
        self._alarm.no_later_than(clock.monotonic_ns() + max(left_ns, GRANULARITY_NS))

    def committed(self) -> None:
        """Take note of new messages: the first one starts the timer."""
        if self._max_age_ns > 0 and not self._alarm.armed:
            self.arm()

    def catch_up(self) -> None:
        """Expire at once what is due after a restart; nobody has to be told."""
        if self._max_age_ns > 0 and self._stream.store.healthy:
            self._stream.purge(below_seq=self._first_kept())
            self.arm()

    def _first_kept(self) -> int:
        """Return the first sequence that is young enough."""
        oldest_ns = self._stream.engine.clock.now_ns() - self._max_age_ns
        return self._stream.store.first_seq_at(oldest_ns + 1)

    def _look(self) -> None:
        stream, store = self._stream, self._stream.store
        if not store.messages or not store.healthy:
            return
        if held_until_ns := stream.engine.clock_watch.held_until_ns():
            self._alarm.no_later_than(held_until_ns)
            return
        first_kept = self._first_kept()
        if first_kept - store.first_seq > ONE_BY_ONE or not stream.consumers:
            stream.purge(below_seq=first_kept)
        else:
            while store.messages and store.first_seq < first_kept:
                stream.removed(store.drop_first(), GONE_BY_LIMITS)
            stream.count_bytes()
        self.arm()
