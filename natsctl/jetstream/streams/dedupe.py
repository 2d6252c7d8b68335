"""The duplicate window: ids of messages stored lately, so that a publisher may try again.

Theory of operation. `_entries` holds (sequence, time, id) in order of storing, from `_head` on; `_seqs` finds the
sequence of an id. The time is the monotonic clock's, so that a wall clock that jumps makes no window longer or shorter;
the journal and the headers have the wall clock's. Entries leave when they are older than the window, looked at whenever
an id is stored or asked for, and by a timer while no message is published. Deleting or purging a message does not clear
its id.

Surviving a crash. Ids are in the headers of stored messages, so recovery reads the recent ones. The ids
of messages removed within the window go into the stream's journal at removal; it may not have
got to the disk when the removal has, so recovery also reads removed messages that are still in the log. A stream that
never saw an id has no mark for it in its journal, and its messages are not read but for the last ones: the first id may
have come with a commit that did not reach the mark. Source: docs/compatibility.md#duplicates.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from natsctl.jetstream.timers import Alarm
from natsctl.store.steps import STEP, Steps

if TYPE_CHECKING:
    from natsctl.jetstream.streams.stream import Stream


IN_USE: Final = 0x10
"""Journal record: ids were seen on this stream."""
GONE_IDS: Final = 0x11
"""Journal record: entries of removed messages."""

ONE_COMMIT: Final = 65_536
"""Messages that can be on the disk without the journal records of their commit; publishers are paused long before."""
PRUNE_STEP: Final = 1024
"""Entries that are forgotten, or kept for messages that go, in one step."""
COMPACT_FROM: Final = 4096
"""Entries too old that are kept before the list is cut."""

MAX_AGE_NS: Final = 1 << 63
"""More than the age of any entry."""

Entry = tuple[int, int, bytes]
_FORGOTTEN: Final[Entry] = (0, 0, b"")
"""Placeholder of entries before the head."""
_seq_of: Final = itemgetter(0)
_encode: Final = msgspec.msgpack.encode
_entries_decoder: Final = msgspec.msgpack.Decoder(list[Entry])


class Dedupe:
    __slots__ = (
        "_alarm", "_clock", "_entries", "_head", "_in_use", "_journaled", "_last", "_seqs", "_stream", "_window_ns",
    )  # fmt: skip

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._clock = stream.engine.clock
        self._alarm = Alarm(stream.engine.timers, self._look)
        self._entries: list[Entry] = []
        self._head = 0
        self._seqs: dict[bytes, int] = {}
        self._journaled: set[int] = set()
        self._last: tuple[int, bytes] = (0, b"")
        self._in_use = False
        self._window_ns = 0

    def __len__(self) -> int:
        return len(self._entries) - self._head

    def configure(self) -> None:
        self._window_ns = self._stream.config.duplicate_window

    def stop(self) -> None:
        self._alarm.cancel()

    @property
    def last_id(self) -> bytes:
        """Return the id of the very last stored message, empty when it had none."""
        return self._last[1] if self._last[0] == self._stream.store.last_seq else b""

    def find(self, msg_id: bytes) -> int:
        """Return the sequence under which `msg_id` is remembered, 0 when it is not."""
        if msg_id not in self._seqs:
            return 0
        now_ns = self._clock.monotonic_ns()
        self._prune(now_ns)
        seq = self._seqs.get(msg_id, 0)
        if seq:
            position = bisect_left(self._entries, seq, self._head, key=_seq_of)
            if self._entries[position][1] <= now_ns - self._window_ns:
                return 0  # too old, and not yet forgotten
        return seq

    def stored(self, seq: int, msg_id: bytes) -> None:
        if not msg_id or self._window_ns <= 0:
            self._last = (seq, msg_id)
            return
        if not self._in_use:
            self._mark_in_use()
        now_ns = self._clock.monotonic_ns()
        if not self._alarm.armed:
            self._alarm.no_later_than(now_ns + self._window_ns)
        self._last = (seq, msg_id)
        entries = self._entries
        if entries and entries[self._head][1] <= now_ns - self._window_ns:
            self._prune(now_ns)
        entries.append((seq, now_ns, msg_id))
        self._seqs[msg_id] = seq

    def are_new(self, ids: Sequence[bytes]) -> bool:
        """Return whether none of these ids is remembered, however old, or twice among them, and none is empty."""
        distinct = set(ids)
        return len(distinct) == len(ids) and b"" not in distinct and self._seqs.keys().isdisjoint(distinct)

    def stored_together(self, first_seq: int, ids: Sequence[bytes]) -> None:
        """Remember the ids, all new, of messages that were stored under sequences from `first_seq` on, as `stored`."""
        self.stored(first_seq, ids[0])
        if self._window_ns > 0:
            now_ns, more = self._entries[-1][1], ids[1:]
            self._entries.extend(zip(count(first_seq + 1), repeat(now_ns), more))
            self._seqs.update(zip(more, count(first_seq + 1)))
        self._last = (first_seq + len(ids) - 1, ids[-1])

    def _remember(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._seqs[entry[2]] = entry[0]

    def _mark_in_use(self) -> None:
        self._in_use = True
        if self._stream.store.storage == "file":
            self._stream.store.append_record(IN_USE, b"")
            self._stream.store.request_sync()

    def _prune(self, now_ns: int) -> bool:
        """Drop some of the entries older than the window; return whether more may be left."""
        entries, head, oldest_ns = self._entries, self._head, now_ns - self._window_ns
        end = min(head + PRUNE_STEP, len(entries))
        while head < end and entries[head][1] <= oldest_ns:
            seq, _, msg_id = entries[head]
            if self._seqs.get(msg_id) == seq:
                del self._seqs[msg_id]
            self._journaled.discard(seq)
            entries[head] = _FORGOTTEN  # many at once would take long to be freed
            head += 1
        more = head == end < len(entries)
        if head == len(entries):
            entries.clear()
            head = 0
        elif head > COMPACT_FROM and head * 2 > len(entries):
            del entries[:head]
            head = 0
        self._head = head
        return more

    def _look(self) -> None:
        self._stream.engine.ready(self)

    def run(self, budget: int) -> int:
        """Forget some of the expired entries; ask for another turn if there are more."""
        if self._prune(self._clock.monotonic_ns()):
            self._stream.engine.ready(self)
        elif self._entries and self._window_ns > 0:
            self._alarm.no_later_than(self._clock.monotonic_ns() + self._window_ns)
        return PRUNE_STEP // 4

    # Messages that go

    def message_gone(self, seq: int) -> None:
        entries = self._entries
        if not entries or seq < entries[self._head][0]:
            return
        position = bisect_left(entries, seq, self._head, key=_seq_of)
        if position < len(entries) and entries[position][0] == seq:
            self._journal([entries[position]])

    def messages_gone(self, seqs: Sequence[int]) -> None:
        entries = self._entries
        if entries and len(seqs):
            position = bisect_left(entries, seqs[0], self._head, key=_seq_of)
            end = bisect_right(entries, seqs[-1], position, key=_seq_of)
            gone = frozenset(seqs) if position < end else ()
            self._journal([entry for entry in entries[position:end] if entry[0] in gone])

    def purging(self, below_seq: int) -> Steps[None]:
        """Keep the ids of messages below `below_seq` (0: all), some or all of them about to be purged."""
        while self._prune(self._clock.monotonic_ns()):
            yield STEP
        entries, seq = self._entries, 0
        while entries:
            piece = self._piece(seq)
            if not piece or 0 < below_seq <= piece[0][0]:
                return
            seq = piece[-1][0] + 1
            self._journal([entry for entry in piece if not below_seq or entry[0] < below_seq])
            yield STEP

    def _piece(self, from_seq: int) -> list[Entry]:
        position = bisect_left(self._entries, from_seq, self._head, key=_seq_of)
        return self._entries[position : position + PRUNE_STEP]

    def _journal(self, entries: list[Entry]) -> None:
        if self._append_gone(entries):
            self._stream.consumer_set.rewrite_if_large()

    def _append_gone(self, entries: list[Entry]) -> bool:
        """Write down the ids that the journal does not have, and return whether there were any."""
        entries = [entry for entry in entries if entry[0] not in self._journaled]
        if not entries or self._stream.store.storage != "file":
            return False
        self._journaled.update(map(_seq_of, entries))
        self._stream.store.append_record(GONE_IDS, self._encoded(entries))
        return True

    def records(self) -> Iterator[list[tuple[int, bytes]]]:
        """Yield the records for a new journal, some at a time."""
        if self._in_use and self._stream.store.storage == "file":
            yield [(IN_USE, b"")]
        seq = 0
        while piece := self._piece(seq):
            seq = piece[-1][0] + 1
            kept = [entry for entry in piece if entry[0] in self._journaled]
            yield [(GONE_IDS, self._encoded(kept))] if kept else []

    def _encoded(self, entries: list[Entry]) -> bytes:
        """Return entries for the journal, with times of the wall clock as it is now."""
        apart_ns = self._clock.now_ns() - self._clock.monotonic_ns()
        return _encode([(seq, ts_ns + apart_ns, msg_id) for seq, ts_ns, msg_id in entries])

    def forget_above(self, seq: int) -> None:
        """Forget the ids of messages above `seq`: they were not kept."""
        entries = self._entries
        while len(entries) > self._head and entries[-1][0] > seq:
            gone, _, msg_id = entries.pop()
            if self._seqs.get(msg_id) == gone:
                del self._seqs[msg_id]
        if self._last[0] > seq:
            self._last = (0, b"")

    # Recovery

    def recover(self, journal: Iterable[tuple[int, bytes]]) -> None:
        found: dict[int, Entry] = {}
        for kind, body in journal:
            if kind == GONE_IDS:
                found.update((entry[0], entry) for entry in _entries_decoder.decode(body))
            self._in_use |= kind in (IN_USE, GONE_IDS)
        self._journaled = set(found)
        if self._window_ns <= 0:
            return
        last_seq = self._stream.store.last_seq
        for entry in self._read_headers(1 if self._in_use else max(last_seq - ONE_COMMIT, 1)):
            found[entry[0]] = entry
        if found and not self._in_use:
            self._mark_in_use()
        now_ns, wall_ns, newest_ns = self._clock.monotonic_ns(), self._clock.now_ns(), -MAX_AGE_NS
        for seq in sorted(found):
            _, ts_ns, msg_id = found[seq]
            newest_ns = max(newest_ns, now_ns - max(wall_ns - ts_ns, 0))  # nothing is younger than this start
            self._remember((seq, newest_ns, msg_id))
        if last_seq in found:
            self._last = (last_seq, found[last_seq][2])
        while self._prune(now_ns):
            continue
        if self._entries:
            self._alarm.no_later_than(now_ns + self._window_ns)
            self._keep_gone()

    def _keep_gone(self) -> None:
        """Journal the ids that only the bytes of removed messages hold: those disappear with a later commit."""
        store, kept = self._stream.store, self._entries[self._head :]
        if store.num_deleted or kept[0][0] < store.first_seq:
            there = set(store.present([entry[0] for entry in kept]))
            self._append_gone([entry for entry in kept if entry[0] not in there])

    def _read_headers(self, from_seq: int) -> Iterable[Entry]:
        """Yield the entries of the last message and of those from `from_seq` on in the window, removed or not."""
        store = self._stream.store
        oldest_ns = self._clock.now_ns() - self._window_ns
        for message in chain(
            store.remnants(store.last_seq, headed=True), store.remnants(from_seq, oldest_ns, headed=True)
        ):
            msg_id = _id_in(message.header) if message.header else b""
            if msg_id:
                yield message.seq, message.ts_ns, msg_id


def _id_in(header: bytes) -> bytes:
    """Return the id of a message as the publish path read it: trailing blanks belong to it."""
    for key in (b"\r\nNats-Msg-Id:", b"\r\nMsg-Id:"):
        position = header.find(key)
        if position >= 0:
            start = position + len(key)
            msg_id = header[start : header.find(b"\r\n", start)].lstrip(b" ")
            if msg_id:
                return msg_id
    return b""
