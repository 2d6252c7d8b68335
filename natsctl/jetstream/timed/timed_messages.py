"""The TTLs and schedules of one stream's messages, recorded when they are stored and loaded after a restart.

Theory of operation. The publish path calls `stored` for every message on its slow path. After a restart, a restore or
an update that turns a feature on, the messages that the store has flagged TIMED are read once, some per turn of the
ready queue, oldest first; the store names them without reading others. max_age waits until that is done, because only
then it is known what it must spare.
"""

from __future__ import annotations

from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from natsctl.api import headers
from natsctl.jetstream.timed.message_ttl import MessageTtl, parse_ttl
from natsctl.jetstream.timed.schedule_checks import PURGE
from natsctl.jetstream.timed.schedules import Schedules
from natsctl.store.errors import StoreDamagedError
from natsctl.store.filters import Filters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from natsctl.jetstream.publish.pending_message import PendingMessage
    from natsctl.jetstream.stream_context import StreamContext
    from natsctl.store.message import StoredMessage

BATCH: Final = 256
"""Messages that one turn of loading reads."""


def is_timed(header: bytes) -> bool:
    """Return whether a message has a TTL or a schedule, so that the store has to flag it."""
    return b"\r\nNats-TTL:" in header or b"\r\nNats-Schedule:" in header


class TimedMessages:
    """The TTLs and the schedules of one stream."""

    __slots__ = ("_loaded_for", "_loading", "_place", "_stream", "schedules", "ttl")

    def __init__(self, stream: StreamContext) -> None:
        self._stream = stream
        self._loading = array("Q")
        self._place = 0
        self._loaded_for: tuple[bool, bool] | None = None
        self.ttl = MessageTtl(stream)
        self.schedules = Schedules(stream)

    def configure(self) -> None:
        """Take from the configuration what messages may ask for; what was stored before is looked at once more."""
        config = self._stream.config
        wanted = (config.allow_msg_ttl, config.allow_msg_schedules)
        self.ttl.active, self.schedules.active = wanted
        if self._loaded_for is not None and wanted != self._loaded_for:
            self._load()
        self._loaded_for = wanted

    def recover(self, records: Iterable[tuple[int, bytes]]) -> None:
        """Start loading messages stored before the start."""
        self.schedules.read_journal(list(records))
        self._load()

    def stop(self) -> None:
        """Stop loading, TTLs and schedules."""
        self._loading = array("Q")
        self.ttl.stop()
        self.schedules.stop()

    def listeners(self) -> list[Callable[[int, PendingMessage], None]]:
        """Return the callbacks for stored messages."""
        config = self._stream.config
        wanted = config.allow_msg_ttl or config.allow_msg_schedules
        if config.sources or config.mirror is not None:  # what is foreign was not refused here
            wanted = wanted or config.max_age > 0 or config.allow_rollup_hdrs
        return [self.stored] if wanted else []

    def stored(self, seq: int, message: PendingMessage) -> None:
        """Record a message that was stored just now."""
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
        """End the schedule that a message names."""
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
        """Read the next flagged messages; ask again where there are more."""
        if self._stream.work.defers(self):
            return 0
        store, end = self._stream.store, self._place + min(budget, BATCH)
        if not self._loading or not store.healthy:
            return 0
        wanted = self._loading[self._place : end]
        if wanted and wanted[-1] > store.durable_seq:
            return 0  # the next commit asks again
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

    def committed(self, durable_seq: int) -> None:
        """Continue work that waited for messages to become durable."""
        if self.schedules.waiting:
            self.schedules.committed(durable_seq)
        if self._loading:
            self._stream.engine.ready(self)

    def refused(self, durable_seq: int) -> None:
        """Return to `durable_seq`: the store could not keep later messages."""
        self.schedules.refused(durable_seq)

    def records(self) -> list[tuple[int, bytes]]:
        """Return the records for a rewritten journal."""
        return self.schedules.records()
