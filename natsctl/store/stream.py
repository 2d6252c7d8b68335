"""One stream: its appended view, its durable messages, what takes messages out, and its commits.

Two views exist. The *appended* view (sequences, counters, subject questions, removals) changes at once. What may be
shown to anyone is bounded by `durable_seq`; this moves only when a commit ends. A commit takes everything that is
buffered; while one is in flight the next gathers. The loop thread owns every method except `Commit.run`.

A `StreamStore` owns the index and the order of commits. Its storage, a `FileStream` or a `MemoryStream`, owns the
bytes: the log of messages, the metadata and the journal.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from natsctl.store import bulk
from natsctl.store.appended import AppendedView, Blob
from natsctl.store.errors import RecordsKeptError, StoreError, StoreFullError, StorePoisonedError
from natsctl.store.file_commit import NO_SPACE, Commit, Settled
from natsctl.store.file_log import FileLog, FrameRun
from natsctl.store.filters import ALL, Filters
from natsctl.store.frame import MORE, TIMED
from natsctl.store.index import BULK, StreamIndex
from natsctl.store.message import Copy, MessageRun, RemovedMessage, StoredMessage
from natsctl.store.segment import Segment
from natsctl.store.steps import BULK_STEP, STEP, Steps, finish, pieces
from natsctl.store.view import fitting, live_run

if TYPE_CHECKING:
    from natsctl.store.bulk import Positions
    from natsctl.store.file_stream import FileStream
    from natsctl.store.memory_stream import MemoryStream
    from natsctl.store.store import Store

BULK_PRESENT = 100_000
"""Min number of requested sequences to look them up by whole columns."""
FRONT_STEP = 1024
"""Messages that one step drops from the front of a stream that is not so long: they cost less than others."""
RECORD_COST = 16
"""Cost of a record of a new journal, in messages examined,"""
RECORD_BYTES_PER_COST = 512
"""and of that many bytes of it."""


class RecordsCallback:
    """A callback that waits for removals, metadata and journal records only.

    It gets None if they are durable, even if messages of the same commit found no room or bytes wait to be erased.
    """

    def __init__(self, callback: Settled) -> None:
        self._callback = callback

    def __call__(self, fault: StoreError | None) -> None:
        self._callback(None if isinstance(fault, RecordsKeptError) else fault)


class StreamStore(AppendedView):
    __slots__ = (
        "_callbacks", "_clean", "_draft", "_host", "_in_flight", "awaits_sync", "backing", "fault", "full", "held",
        "held_bytes", "key", "lazy", "listener", "log", "refused", "storage",
    )  # fmt: skip

    def __init__(self, host: Store, key: str, index: StreamIndex, storage: FileStream | MemoryStream) -> None:
        super().__init__(index, storage.log)
        self.key = key
        self.backing = storage
        self.log = storage.log
        self.storage = storage.kind
        self.fault: str | None = None
        self.full = False
        """Whether the last commit found no room on the disk."""
        self.lazy = False
        """Whether a commit of messages ends with their write, and their sync follows within `journal_sync_ns`."""
        self.listener: Callable[[int], None] = lambda durable_seq: None
        self.refused: Callable[[int, StoreError], None] = lambda durable_seq, error: None
        self.awaits_sync = False
        """Whether the store will sync it in a while."""
        self.held = self.held_bytes = 0
        """Messages that wait to be appended, and their bytes; kept by the stream's owner."""
        self._host = host
        self._callbacks: list[Settled] = []
        self._draft: list[tuple[int, Blob]] | None = None
        """Records of a new journal that is being made."""
        self._in_flight: Commit | None = None
        self._clean = True

    # -- appended view

    def append(self, subject: Blob, header: Blob, payload: Blob, ts_ns: int, timed: bool = False) -> int:
        """Buffer one message and return its sequence; it is not durable until a commit ends.

        `ts_ns` is raised to the newest message's if lower and the stream holds any, so that time order equals sequence
        order. `timed` flags a message that carries a time of its own: `timed_seqs` finds it without reading messages,
        after a restart too. Raises StorePoisonedError (nothing changed). Source: docs/adr/0003.
        """
        if self.fault is not None:
            raise StorePoisonedError(self.fault)
        index = self._index
        seq = index.last_seq + 1
        if ts_ns < index.last_ts_ns:
            ts_ns = self._in_order(ts_ns, seq)
        self.log.append(seq, ts_ns, subject, header, payload, TIMED if timed else 0)
        if self._clean:
            self._clean = False
            if self._in_flight is None:
                self._host.dirty[self] = None
        return seq

    def append_run(self, run: MessageRun, subject: Blob, ts_ns: int) -> int:
        """Buffer a run of messages of one time, and return the first one's sequence.

        `subject` is the subject of all messages, or b"" if they differ. Raises as `append` (nothing changed).
        """
        self._check_writable()
        first_seq = self._index.last_seq + 1
        self.log.append_run(run, first_seq, self._in_order(ts_ns, first_seq), subject)
        self.mark_dirty()
        return first_seq

    def append_copies(self, messages: Sequence[Copy], timed: Collection[int] = (), *, together: bool = False) -> None:
        """Buffer messages under their own times and ascending sequences above last_seq; the others count as deleted.

        There must be one. `timed` has the sequences of messages with a time of their own. With `together`, all of
        them are there after a crash or none; they become durable in one step: the frames of all but the last say that
        more follows, and messages buffered between two commits are in one segment, so that a batch can only end early
        at the tail. Raises as `append` (nothing changed).
        """
        first_seq, ts_ns = messages[0][:2]
        self._check_free(first_seq)
        self._in_order(ts_ns, first_seq)
        if timed or together:
            last_seq = messages[-1][0]
            for seq, ts_ns, subject, header, payload in messages:
                flags = (TIMED if seq in timed else 0) | (MORE if together and seq < last_seq else 0)
                self.log.append(seq, self._in_order(ts_ns, seq), subject, header, payload, flags)
        else:
            self.log.append_copies(messages)
        self.mark_dirty()

    def _check_free(self, seq: int) -> None:
        self._check_writable()
        if seq <= self._index.last_seq:
            raise ValueError(f"sequence {seq} is not above {self._index.last_seq}")

    def compress(self, on: bool) -> None:
        """Switch compression for later writes; older data stays readable."""
        self.log.compress(on)

    def skip_to(self, last_seq: int) -> None:
        """Raise last_seq over empty sequences (restore of a stream with deleted newest messages)."""
        self._check_writable()
        if last_seq > self._index.last_seq:
            self.log.skipping()
            self._index.skip_to(last_seq)
            self.mark_dirty()

    def preparing(self, filters: Filters) -> Steps[None]:
        """Get ready, in steps, to answer questions about `filters`: they cost little then, however many subjects."""
        return self._index.preparing(filters)

    @property
    def waiting_bytes(self) -> int:
        """Return how much is buffered for the commit after the one in flight, or held before it is appended.

        The shell pauses publishers by it.
        """
        return self.held_bytes + self.log.buffered_bytes

    # -- reading, never above durable_seq

    @property
    def unsettled(self) -> bool:
        """Return whether messages were received that cannot be read yet; a stream that failed settles nothing more."""
        return self.durable_seq < self._index.last_seq and self.fault is None

    def get(self, seq: int) -> StoredMessage | None:
        """Return message `seq`, or None if it was removed or is not durable. Raises StoreDamagedError."""
        place = self._index.locate(seq) if seq <= self.durable_seq else None
        return self.log.message_at(*place) if place else None

    def has(self, seq: int) -> bool:
        """Return whether `get` would find message `seq`, without reading it."""
        return seq <= self.durable_seq and self._index.locate(seq) is not None

    def present(self, seqs: Sequence[int]) -> list[int]:
        """Return the ascending sequences that `get` would find."""
        return finish(self.finding_present(array("Q", seqs))).tolist()

    def finding_present(self, seqs: array[int]) -> Steps[array[int]]:
        """Return what `present` does, in steps between which nothing is removed."""
        if len(seqs) < BULK_PRESENT or self._index.messages < BULK_PRESENT:
            found = array("Q")
            for piece in pieces(seqs):
                found.extend([seq for seq in piece if self.has(seq)])
                yield len(piece)
            return found
        found = array("Q")
        for piece in pieces(seqs, 4 * BULK_STEP):
            found += bulk.present(self._index, array("Q", piece), self.durable_seq)
            yield STEP
        return found

    def next_match(self, filters: Filters, from_seq: int) -> StoredMessage | None:
        """Return the first durable message at or above `from_seq` that matches. Raises StoreDamagedError."""
        place = self._index.next_place(filters, from_seq)
        if place is None or place[0].seq_at(place[1]) > self.durable_seq:
            return None
        return self.log.message_at(*place)

    def next_seq(self, filters: Filters, from_seq: int) -> int:
        """Return the sequence `next_match` would give, without reading the message; 0 when none."""
        place = self._index.next_place(filters, from_seq)
        seq = place[0].seq_at(place[1]) if place else 0
        return seq if seq <= self.durable_seq else 0

    def read_from(
        self, from_seq: int, filters: Filters = ALL, max_msgs: int = 256, max_bytes: int = 0, *, keep: bool = True
    ) -> list[StoredMessage]:
        """Return up to `max_msgs` durable matches at or above `from_seq`, in order. Raises StoreDamagedError.

        With `max_bytes` it stops before exceeding that accounted size; the first message always comes.
        Without `keep`, bytes that are read from the disk do not stay in memory.
        """
        if max_msgs == 1:
            message = self.next_match(filters, from_seq)
            return [] if message is None else [message]
        index, out = self._index, list[StoredMessage]()
        while len(out) < max_msgs and from_seq <= self.durable_seq:
            place = index.next_place(filters, from_seq)
            if place is None:
                break
            segment, start = place
            stop = segment.position_from(self.durable_seq + 1)
            if start >= stop:
                break
            view = None if filters.everything else index.view(filters)
            positions = live_run(segment, view, start, stop, max_msgs - len(out))
            if max_bytes:
                positions, max_bytes = fitting(segment, positions, max_bytes, bool(out))
                if not positions:
                    break
            out.extend(self.log.messages_at(segment, positions, keep))
            from_seq = segment.seq_at(positions[-1]) + 1
        return out

    def reading_frames(self, from_seq: int, to_seq: int, filters: Filters, max_bytes: int) -> Steps[FrameRun]:
        """Return the frames of the durable matches of a file stream, from a sequence to another, both included.

        In steps. They end before sizes and frames exceed `max_bytes`; the first always comes. Raises StoreDamagedError.
        """
        assert isinstance(self.log, FileLog)
        return self.log.reading_frames(from_seq, min(to_seq, self.durable_seq), filters, max_bytes)

    def remnants(self, from_seq: int, from_ts_ns: int = 0, *, headed: bool = False) -> Iterator[StoredMessage]:
        """Yield messages that are still readable at or above a sequence and a time, removed or not, in order.

        With `headed`, messages without a header are left out, and their bytes are not kept in memory.

        After a restart all messages removed by a commit with possibly missing journal records are readable: bytes go
        only when those are synced. Erased and damaged messages that were removed are left out. Raises
        StoreDamagedError.
        """
        for segment in self.log.remaining():
            start, stop = segment.position_from(from_seq), segment.position_from(self.durable_seq + 1)
            if headed and segment.body is not None:
                start = bisect_left(segment.offsets, segment.body.bare_end, start, max(start, stop))
            if start < stop and segment.last_ts >= from_ts_ns:
                start = self._position_at(segment, start, from_ts_ns) if from_ts_ns else start
                positions: Sequence[int] = range(start, stop)
                if headed and positions and isinstance(self.log, FileLog):
                    positions = self.log.headed_at(segment, positions)
                if positions:
                    yield from self.log.remnants_at(segment, positions)

    # -- taking out: a record is buffered first, the space comes back after a commit

    def remove(self, seq: int, erase: bool = False) -> RemovedMessage | None:
        """Take message `seq` out (appended view) and return it; None when it is not there.

        With `erase` its bytes on disk are overwritten before the commit ends. Raises StorePoisonedError.
        """
        self._check_writable()
        place = self._index.locate(seq)
        if place is None:
            return None
        self.log.removing(*place, seq, erase)
        removed = self._index.remove(*place)
        self.mark_dirty()
        return removed

    def drop_first(self) -> RemovedMessage:
        """Take the oldest message out for a limit; one record per commit covers all drops. There must be one."""
        self._check_writable()
        self.log.dropping_first(self._index.first_seq)
        removed = self._index.drop_first()
        self.mark_dirty()
        return removed

    def purge(self, filters: Filters | None = None, below_seq: int = 0, keep: int = 0) -> int:
        """Take matching messages out and return how many: those below `below_seq` (0: all), all but the newest `keep`.

        Raises StorePoisonedError.
        """
        return finish(self.purging(filters, below_seq, keep))

    def purging(self, filters: Filters | None = None, below_seq: int = 0, keep: int = 0) -> Steps[int]:
        """Purge in steps, the oldest messages first; nothing else may be appended or removed meanwhile."""
        self._check_writable()
        below = min(below_seq or self.last_seq + 1, self.last_seq + 1)
        before = self._index.messages
        if filters is None or filters.everything:
            if keep:
                below = min(below, self._index.seq_from_end(keep))
            step = BULK_STEP if before >= BULK else FRONT_STEP
            while self._index.first_seq < below:
                self._drop_below(min(below, self._index.seq_after(self._index.first_seq, step)))
                yield STEP
            return before - self._index.messages
        yield from self._index.preparing(filters)
        spare = before
        if keep:
            spare = max(self._index.count(filters, 0, self.last_seq) - keep, 0)
        yield from self._purging_matches(filters, below, spare)
        return before - self._index.messages

    def _drop_below(self, seq: int) -> None:
        self._check_writable()
        self.log.dropping_below(seq)
        self._index.drop_below(seq)
        self.mark_dirty()

    def _purging_matches(self, filters: Filters, below: int, spare: int) -> Steps[None]:
        """Take up to `spare` matches below a sequence out."""
        if self._index.messages >= BULK and min(self._index.count_all(filters), spare) > STEP:
            yield from self._purging_bulk(filters, below, spare)
            return
        for done, (segment, position) in enumerate(self._index.places(filters, self._index.first_seq, below), 1):
            if done > spare:
                break
            self._check_writable()
            self.log.removing(segment, position, segment.seq_at(position), False)
            self._index.remove(segment, position)
            self.mark_dirty()
            if not done % STEP:
                yield STEP

    def _purging_bulk(self, filters: Filters, below: int, spare: int) -> Steps[None]:
        index, seq = self._index, self._index.first_seq
        mask = bulk.mask_of(index.view(filters), index)
        while spare and seq < below:
            end = min(below, index.seq_after(seq, BULK_STEP))
            for segment, found in bulk.places(index, mask, seq, end):
                positions = found[:spare]
                spare -= len(positions)
                if len(positions):
                    self._remove_at(segment, positions)
            seq = end
            yield STEP

    def _remove_at(self, segment: Segment, positions: Positions) -> array[int]:
        """Take the live messages at ascending positions of one segment out and return their sequences."""
        self._check_writable()
        index = self._index
        seqs = bulk.sequences(segment, positions)
        self.log.removing_many(segment, positions, seqs, bulk.remove(index, segment, positions))
        index.advance(index.first_seq)
        self.mark_dirty()
        return seqs

    # -- limits: in steps; each yields the removed sequences

    def drop_oldest(self, max_msgs: int, max_bytes: int) -> array[int]:
        """Take out some of the oldest messages while there are more than a limit allows; return their sequences.

        A limit of 0 or less means no limit. An empty answer: nothing more has to be removed.
        """
        self._check_writable()
        index = self._index
        many = index.messages - max_msgs if max_msgs > 0 else 0
        heavy = index.bytes - max_bytes if max_bytes > 0 else 0
        if not index.messages or (many <= 0 and heavy <= 0):
            return array("Q")
        gone = index.oldest(many, heavy, STEP if index.messages < BULK else BULK_STEP)
        self._drop_below(gone[-1] + 1)
        return gone

    def thin_out(self, per_subject: int, from_seq: int) -> tuple[array[int], int]:
        """Remove messages beyond the newest `per_subject` of their subject among the next messages from `from_seq` on.

        Returns the removed sequences and where to continue, 0 at the end. Oldest first, so that the rest at the
        end is the same as after removing the oldest message of each subject, as often as needed.
        """
        index = self._index
        from_seq = max(from_seq, index.first_seq)
        if not index.messages or from_seq > index.last_seq:
            return array("Q"), 0
        end, gone = index.seq_after(from_seq, BULK_STEP), array("Q")
        for segment, positions in bulk.places(index, None, from_seq, end):
            surplus = bulk.surplus(index, segment, positions, per_subject)
            if len(surplus):
                gone += self._remove_at(segment, surplus)
        return gone, end if end <= index.last_seq else 0

    def crowded_subjects(self, per_subject: int) -> list[Blob]:
        """Return the subjects that have more messages than that (appended view)."""
        table = self._index.table
        if len(table.names) >= BULK:
            return [table.names[sid] for sid in bulk.above(table.count, per_subject)]
        return [table.names[sid] for sid, count in enumerate(table.count) if count > per_subject]

    # -- metadata and journal

    @property
    def meta(self) -> Blob:
        return self.backing.meta

    def set_meta(self, meta: Blob) -> None:
        self._check_writable()
        self.backing.set_meta(meta)
        self.mark_dirty()

    def append_record(self, kind: int, body: Blob) -> None:
        """Buffer one journal record; it is written with the next commit, synced within a second or on request_sync.

        Raises StorePoisonedError.
        """
        self._check_writable()
        self.backing.append_record(kind, body)
        if self._draft is not None:
            self._draft.append((kind, body))
        self.mark_dirty()

    def records(self) -> list[tuple[int, Blob]]:
        return self.backing.records()

    def rewrite(self, records: Sequence[tuple[int, Blob]]) -> None:
        self._check_writable()
        self.backing.rewrite(records)
        self.mark_dirty()

    def rewriting(self, parts: Iterable[Sequence[tuple[int, Blob]]]) -> Steps[int]:
        """Replace all journal records by `parts`, each made when its turn comes, and return their size.

        Records that are appended meanwhile stay: they follow the parts that were made before them. No other rewrite may
        begin. Raises StorePoisonedError.
        """
        draft = self._draft = list[tuple[int, Blob]]()
        try:
            for part in parts:
                draft += part
                yield RECORD_COST * len(part) + sum(len(body) for _, body in part) // RECORD_BYTES_PER_COST
            self.rewrite(draft)
        finally:
            self._draft = None
        return sum(len(body) for _, body in draft)

    @property
    def journal_bytes(self) -> int:
        """Return how large the journal is, so that its owner knows when a rewrite pays."""
        return self.backing.journal_bytes

    def flush(self) -> None:
        """Request a sync of everything by the next commit, whatever the policy says."""
        self.backing.request_sync(force=True)
        self.mark_dirty()

    def request_sync(self) -> None:
        """Request a sync of everything, the journal too, by the next commit."""
        self.backing.request_sync(force=False)
        self.mark_dirty()

    # -- commit

    @property
    def waits_for_sync(self) -> bool:
        """Return whether messages become durable by a sync, not already by a write."""
        return self.storage == "file" and not self.lazy and self._host.options.sync == "always"

    def on_durable(self, callback: Settled) -> None:
        """Call `callback(None)` once everything buffered now is durable, or with the error that prevents it.

        See RecordsCallback for callers that do not wait for messages.
        """
        self._callbacks.append(callback)
        self.request_sync()

    def on_settled(self, callback: Settled) -> None:
        """Call back once the messages buffered now can be read, or with an error; no sync is added to the policy's."""
        self._callbacks.append(callback)
        self.mark_dirty()

    def complete(self, callback: Settled) -> None:
        """Make a provisional stream with everything buffered now permanent, and call back as `on_durable`."""
        self.backing.complete()
        self.on_durable(callback)

    def begin_commit(self) -> Commit | None:
        if self._in_flight is not None:
            return None
        self._host.dirty.pop(self, None)
        if self.fault is not None and not self.backing.leaving:
            outcome = None if self.backing.left else StorePoisonedError(self.fault)
            for callback in self._take_callbacks():
                callback(outcome)
            self._clean = True
            return None
        if self._clean:
            return None
        self._clean = True
        callbacks, self._callbacks = self._callbacks, []
        commit = self._in_flight = self.backing.take(callbacks, self.durable_seq, self.lazy)
        return commit

    def _take_callbacks(self) -> list[Settled]:
        callbacks, self._callbacks = self._callbacks, []
        return callbacks

    def finish_commit(self, commit: Commit, error: OSError | StoreError | None = None) -> None:
        self._in_flight = None
        only_messages = error is None and commit.only_messages and not commit.full
        try:
            if only_messages:
                self.full = False
                outcome = self.backing.settle(commit, self.durable_seq)
            else:
                outcome = self._poison(commit, error) if error is not None else self._settle(commit)
            if only_messages or (error is None and commit.kept):
                last_seq = commit.last_seq
                moved = last_seq > self.durable_seq
                if moved:
                    self.durable_seq = last_seq
                self._host.committed(self, waits=only_messages and not commit.syncs)
                if moved:
                    self.listener(last_seq)
            for callback in commit.callbacks:
                callback(outcome)
        finally:  # a fault in a listener or callback must not leave messages appended meanwhile uncommitted
            if not self._clean:
                self._host.dirty[self] = None

    def _settle(self, commit: Commit) -> StoreError | None:
        """Apply the outcome of a commit without an error; return the argument of its callbacks."""
        outcome = self.backing.settle(commit, self.durable_seq)
        self.full = commit.found_no_room
        if outcome is not None and not commit.kept:
            self.refused(self.durable_seq, outcome)
            for callback in self._take_callbacks():  # messages appended meanwhile were reverted, removals were not
                waits = isinstance(callback, RecordsCallback)
                (self._callbacks if waits else commit.callbacks).append(callback)
        if commit.lacks_room:
            self._host.lacks_room(self)
        elif self.backing.has_work:
            self._clean = False
        return outcome

    def _poison(self, commit: Commit, error: OSError | StoreError) -> StoreError:
        """Refuse everything from here on after a failed commit; return the argument of its callbacks.

        A stream that there was no room to create is forgotten, and the store stays healthy.
        """
        self.backing.keep_files(commit)
        if commit.creates:
            self.backing.close_files()
            self._host.creation_failed(self.key, self)
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                self.fault = "the stream could not be created: no space left"
                return StoreFullError(self.fault)
        if self.fault is None or commit.removes:
            self.fault = f"stream {self.key}: write or sync failed: {error}"
            self._host.report_fault(self.fault)
        poisoned = StorePoisonedError(self.fault)
        self.refused(self.durable_seq, poisoned)
        if self.backing.leaving and not commit.removes:
            return poisoned  # the deletion was asked for meanwhile, and comes next
        commit.callbacks.extend(self._take_callbacks())
        self._clean = True
        return poisoned

    def delete(self) -> None:
        """Refuse everything from here on; the next commit takes the files away."""
        self.fault = "the stream was deleted"
        self.mark_dirty()

    @property
    def healthy(self) -> bool:
        return self.fault is None

    @property
    def all_durable(self) -> bool:
        """Return whether nothing is buffered, being committed or left for a later sync."""
        return self._clean and self._in_flight is None and not self.backing.unsynced

    @property
    def idle(self) -> bool:
        """Return whether no commit is in flight and nothing written waits for a sync."""
        return self._in_flight is None and not self.backing.unsynced

    def mark_dirty(self) -> None:
        self._clean = False
        if self._in_flight is None:
            self._host.dirty[self] = None

    def _check_writable(self) -> None:
        if self.fault is not None:
            raise StorePoisonedError(self.fault)

    def _in_order(self, ts_ns: int, seq: int) -> int:
        """Return the time of the next message `seq`: the newest message's if its own is lower.

        An empty stream has no order to keep: there an error of the clock ends with the clock's return.
        """
        index = self._index
        if ts_ns < index.last_ts_ns and not index.messages:
            self.log.emptied(seq)
            index.last_ts_ns = ts_ns
        return max(ts_ns, index.last_ts_ns)
