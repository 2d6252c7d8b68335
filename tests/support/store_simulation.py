"""A store under random work and random disasters, judged by a ledger kept outside: one seed is one reproducible
session.

Theory of operation. A session is several *lives* of one simulated disk. In a life a random program publishes, removes,
erases, purges, keeps a few messages of each subject, writes journals and metadata, creates and deletes streams, some of
them provisional, and drives commits through begin, run and finish with other work between them, as the server's worker
threads do. A life ends by kill, by power loss, by a crash inside a disk call, or cleanly; then the store is opened
again and the ledger checks what it finds. At random acks the synced image alone (nothing that was not synced) is opened
as well: an ack that is not on the disk is a violation even if no crash happens to show it. A last life without faults
must settle everything.

A commit may fail only where the disk met a fault; its owner gets the error, as from the server, and the life goes on.
What was erased is looked for in every file that is there or could come back, when it is confirmed and at each start.

The real store runs unmodified; only the disk and the clock are simulated. The clock jumps ahead and back: the times of
the messages that a stream holds always ascend, and those of an empty stream begin with the clock's.
"""

import contextlib
import errno
import random
from collections.abc import Callable, Sequence

from natsctl.store.disk import Disk
from natsctl.store.errors import StoreDamagedError, StoreError, StoreFullError
from natsctl.store.file_commit import Commit, Committable
from natsctl.store.file_stream import FileStream
from natsctl.store.filters import Filters
from natsctl.store.message import StoredMessage
from natsctl.store.options import StoreOptions
from natsctl.store.packed import MAGIC as PACKED
from natsctl.store.packed import PackedFile, open_segment
from natsctl.store.store import Store
from natsctl.store.stream import StreamStore
from tests.support.simdisk import Crash, Journalling, Plan, SimDisk, no_faults
from tests.support.store_batches import append_together
from tests.support.store_model import ERRORS, History, Ledger, Report, StreamLedger, Violation, draw_plan, simulating

STREAMS_MAX = 4
PROVISIONAL_SHARE = 0.25
DISK_IMAGE_SHARE = 0.08
SUBJECTS = (b"a", b"a.b", b"a.c", b"x.y.z")
SETTLE_ROUNDS = 200
DAY_NS = 86_400_000_000_000


def _kind(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[2]


def _stem(path: str) -> str:
    return path.rpartition("-")[0] + _kind(path) if "-" in path else path


ERASED_MAX = 40
"""Erased payloads that are looked for again at each start."""


class _Flight:
    __slots__ = ("commit", "error", "owner", "ran")

    def __init__(self, owner: Committable, commit: Commit) -> None:
        self.owner = owner
        self.commit = commit
        self.ran = False
        self.error: OSError | StoreError | None = None


class Session:
    def __init__(self, seed: int) -> None:
        self.report = Report(seed)
        self._work = random.Random(f"{seed}/work")
        self._faults = random.Random(f"{seed}/faults")
        journalling = self._faults.choice(list(Journalling))
        self._disk = SimDisk(random.Random(f"{seed}/disk"), journalling)
        self._packs = random.Random(f"{seed}/packs")
        self._options = StoreOptions(
            segment_bytes=self._work.choice((1024, 2048, 4096, 16384)),
            reserve_bytes=4096,
            tail_index_bytes=512,
            block_bytes=self._packs.choice((200, 1000, 65536)),
            page_bytes=random.Random(f"{seed}/pages").choice((16, 64, 512, 4096)),
        )
        self._ledger = Ledger()
        self._now_ns = 1_700_000_000_000_000_000
        self._jumps = random.Random(f"{seed}/jumps")
        self._jump_share = self._jumps.choice((0, 0.02, 0.3))
        """Probability that the wall clock jumps, or is corrected, before a message."""
        self._ahead_ns = 0
        """Time by which the wall clock is ahead, until it is corrected."""
        self._completions = random.Random(f"{seed}/completions")
        self._salt = random.Random(f"{seed}/salt")
        self._created = 0
        self._notes: list[str] = []
        self._early: dict[str, bytes] = {}
        """Contents of files when they were first seen, to be put back later."""
        self._flights: list[_Flight] = []
        self._erased: list[tuple[str, bytes]] = []
        """Stream and payload of erasures that were confirmed."""
        self._store: Store

    # -- a session and its lives

    def run(self) -> Report:
        for _ in range(self._work.randint(2, 5)):
            self._live(draw_plan(self._faults))
        self._disk.plan = no_faults
        self._open()
        self.report["packed_files"] += len(self._unpacked())
        self._settle()
        self._ledger.judge(self._store.streams, {})
        self._store.close()
        self._disk.kill()
        self.report["disk_faults"] = self._disk.faults
        self._misplace_at_rest()
        self._repair_at_rest(self._damage_at_rest())
        return self.report

    def _live(self, plan: Plan) -> None:
        self.report["lives"] += 1
        try:
            self._disk.plan = plan if self._faults.random() < 0.3 else no_faults
            self._open()
            self.report["packed_files"] += len(self._unpacked())
            self._disk.plan = plan
            for _ in range(self._work.randint(10, 200)):
                self.report["operations"] += 1
                self._step()
        except (Crash, OSError):  # the machine stopped, or the start failed and the store is as it was
            pass
        self._end_life()

    def _open(self) -> None:
        self._flights.clear()
        self._look_for_erased()
        self._store = self._store_on(self._disk)
        faults_before = self._disk.faults
        found = self._store.open()
        if found.damaged and self._disk.faults > faults_before:
            raise OSError(errno.EIO, "the disk failed while the store was opened")
        plan, self._disk.plan = self._disk.plan, no_faults
        self._ledger.judge(self._store.streams, found.damaged)
        self._disk.plan = plan
        for key, stream in self._store.streams.items():
            self._listen(stream, self._ledger.streams[key])
        self._keep_early_files()

    def _disk_of_store(self, disk: SimDisk) -> Disk:
        return disk

    def _store_on(self, disk: SimDisk) -> Store:
        over = self._disk_of_store(disk)
        return Store(over, self._options, self._draw_salt, lambda: self._now_ns, lambda text: None)

    def _keep_early_files(self) -> None:
        """Keep what each file held when it was first seen, to be put back later."""
        for path in self._disk.files():
            if path not in self._early and path.startswith("streams/s"):
                self._early[path] = self._disk.content(path)

    def _end_life(self) -> None:
        self._disk.plan = no_faults
        draw = self._faults.random()
        if draw < 0.45:
            self.report["kills"] += 1
            self._disk.kill()
        else:
            self.report["power_losses"] += 1
            self._disk.power_loss()

    def _draw_salt(self) -> int:
        return self._salt.getrandbits(31) | 1

    # -- one step of the program

    def _step(self) -> None:
        steps: tuple[tuple[Callable[[], None], int], ...] = (
            (self._publish, 30),
            (self._publish_batch, 12),
            (self._begin, 30),
            (self._run_commit, 30),
            (self._finish, 30),
            (self._remove, 6),
            (self._overwrite, 6),
            (self._erase_old, 8),
            (self._switch_compression, 1),
            (self._drop, 2),
            (self._purge, 3),
            (self._thin_out, 3),
            (self._journal, 10),
            (self._meta, 3),
            (self._create, 4),
            (self._delete, 1),
            (self._complete, 4),
            (self._pass_time, 6),
        )
        step = self._work.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
        with contextlib.suppress(StoreError):  # refused: nothing may have changed, which the next judgement checks
            step()

    def _pick(self) -> tuple[StreamStore, StreamLedger] | None:
        if not self._store.streams:
            return None
        key = self._work.choice(sorted(self._store.streams))
        return self._store.streams[key], self._ledger.streams[key]

    def _create(self) -> None:
        if len(self._store.streams) >= STREAMS_MAX:
            return
        self._created += 1
        key, meta = f"$G/S{self._created}", self._work.randbytes(self._work.randint(1, 60)).hex().encode()
        ledger = self._ledger.create(key, meta)
        provisional = self._completions.random() < PROVISIONAL_SHARE
        stream = self._store.create(key, meta, "file", provisional=provisional)
        self._listen(stream, ledger)
        if provisional:
            self._ledger.provisional.add(key)
        else:
            self._confirm(stream, lambda: self._ledger.creation_confirmed.add(key))

    def _complete(self) -> None:
        waiting = sorted(self._ledger.provisional & self._store.streams.keys())
        if waiting and self._completions.random() < 0.5:
            key = self._completions.choice(waiting)
            self._ledger.provisional.discard(key)
            self.report["completed"] += 1
            confirmed = self._ledger.creation_confirmed
            self._store.streams[key].complete(lambda error: confirmed.add(key) if error is None else None)

    def _delete(self) -> None:
        if picked := self._pick():
            key = picked[0].key
            self._ledger.deletion_asked.add(key)
            gone = self._store.delete(key)
            gone.on_durable(lambda error: self._ledger.deletion_confirmed.add(key) if error is None else None)

    def _publish(self) -> None:
        picked = self._pick()
        if picked is None:
            self._create()
            return
        stream, ledger = picked
        if self._ahead_ns and self._jumps.random() < self._jump_share:
            self._start_over(stream, ledger)
        for _ in range(self._work.choice((1, 1, 3, 12, 24))):
            subject = self._work.choice(SUBJECTS)
            header = b"NATS/1.0\r\nK: v\r\n\r\n" if self._work.random() < 0.2 else b""
            payload = self._work.randbytes(self._work.choice((0, 8, 24, 200)))
            self._now_ns += self._work.randint(0, 1000)
            timed = self._work.random() < 0.1
            wall_ns, ts_ns = self._read_clock(stream)
            seq = stream.append(subject, header, payload, wall_ns, timed)
            ledger.attempted(StoredMessage(seq, ts_ns, subject, header, payload), timed)

    def _start_over(self, stream: StreamStore, ledger: StreamLedger) -> None:
        """Correct the clock and purge, so that the next messages are older than those that go with their commit."""
        self._ahead_ns = 0
        before = self._live_seqs(stream)
        stream.purge()
        self._taken(stream, ledger, sorted(before))

    def _read_clock(self, stream: StreamStore) -> tuple[int, int]:
        """Return the wall clock, which may just have jumped, and the time that the stream's next message must get."""
        if self._jumps.random() < self._jump_share:
            self._ahead_ns = self._jumps.choice((0, 0, 5_000_000_000, DAY_NS))
        wall_ns = self._now_ns + self._ahead_ns
        return wall_ns, max(wall_ns, stream.last_ts_ns) if stream.messages else wall_ns

    def _publish_batch(self) -> None:
        if picked := self._pick():
            stream, ledger = picked
            batch = [
                (self._work.choice(SUBJECTS), b"", self._work.randbytes(self._work.choice((0, 200, 700))), bool(at % 3))
                for at in range(self._work.randint(1, 6))
            ]
            self._now_ns += self._work.randint(0, 1000)
            wall_ns, ts_ns = self._read_clock(stream)
            first_seq = append_together(stream, batch, wall_ns)
            for seq, (subject, header, payload, timed) in enumerate(batch, first_seq):
                ledger.attempted(StoredMessage(seq, ts_ns, subject, header, payload), timed)
            ledger.batches.append(range(first_seq, first_seq + len(batch)))

    def _listen(self, stream: StreamStore, ledger: StreamLedger) -> None:
        def acked(durable_seq: int) -> None:
            self.report["acks"] += durable_seq - ledger.acked_seq
            ledger.acked_seq = durable_seq

        def refused(durable_seq: int, error: StoreError) -> None:
            if isinstance(error, StoreFullError):  # taken back; otherwise it is unknown what the disk holds
                ledger.refused_above(durable_seq)

        stream.listener, stream.refused = acked, refused
        stream.compress(self.report.seed % 2 == 1 and self._packs.random() < 0.8)

    def _remove(self) -> None:
        if picked := self._pick():
            stream, ledger = picked
            if not stream.last_seq:
                return
            seq = self._work.randint(1, stream.last_seq)
            erase = self._work.random() < 0.5
            payload = ledger.messages[seq].payload if seq in ledger.messages else b""
            if stream.remove(seq, erase) is not None:
                self._taken(stream, ledger, [seq], payload if erase else b"")

    def _overwrite(self) -> None:
        """Publish, and keep one or two messages of the subject, as limits per subject do."""
        if picked := self._pick():
            stream, ledger = picked
            keep, removed = self._work.randint(1, 2), []
            for _ in range(self._work.choice((2, 8, 24))):
                subject, payload = self._work.choice(SUBJECTS), self._work.randbytes(self._work.choice((24, 120)))
                self._now_ns += self._work.randint(0, 1000)
                wall_ns, ts_ns = self._read_clock(stream)
                seq = stream.append(subject, b"", payload, wall_ns)
                ledger.attempted(StoredMessage(seq, ts_ns, subject, b"", payload))
                while stream.count_of(subject) > keep:
                    removed.append(stream.first_seq_of(subject))
                    stream.remove(removed[-1])
            self._taken(stream, ledger, removed)

    def _erase_old(self) -> None:
        """Erase a few neighbours, most often in what is sealed and may be written anew at this moment."""
        if picked := self._pick():
            stream, ledger = picked
            live = sorted(self._live_seqs(stream))
            if not live:
                return
            at = self._work.randrange(len(live)) // self._work.choice((1, 2, 4))
            for seq in live[at : at + self._work.choice((1, 1, 2, 6))]:
                payload = ledger.messages[seq].payload
                if stream.remove(seq, erase=True) is not None:
                    self._taken(stream, ledger, [seq], payload)

    def _switch_compression(self) -> None:
        if picked := self._pick():
            picked[0].compress(self._packs.random() < 0.5)

    def _drop(self) -> None:
        if picked := self._pick():
            stream, ledger = picked
            count = min(self._work.randint(1, 8), stream.messages)
            self._taken(stream, ledger, [stream.drop_first().seq for _ in range(count)])

    def _purge(self) -> None:
        if picked := self._pick():
            stream, ledger = picked
            before = self._live_seqs(stream)
            filters = self._work.choice((None, None, Filters((b"a.*",)), Filters((b"x.>", b"a"))))
            below, keep = self._work.choice(((0, 0), (self._work.randint(1, stream.last_seq + 1), 0), (0, 3)))
            stream.purge(filters, below, keep)
            self._taken(stream, ledger, sorted(before - self._live_seqs(stream)))

    def _thin_out(self) -> None:
        """Remove most messages behind the first one, so that segments in the middle become small."""
        if picked := self._pick():
            stream, ledger = picked
            doomed = [seq for seq in sorted(self._live_seqs(stream))[1:] if self._work.random() < 0.7]
            self._taken(stream, ledger, [seq for seq in doomed if stream.remove(seq) is not None])

    def _live_seqs(self, stream: StreamStore) -> set[int]:
        return set(range(stream.first_seq, stream.last_seq + 1)) - set(stream.deleted()) if stream.messages else set()

    def _taken(self, stream: StreamStore, ledger: StreamLedger, seqs: list[int], erased: bytes = b"") -> None:
        for seq in seqs:
            ledger.take(seq)

        def settled(error: StoreError | None) -> None:
            if error is None:
                ledger.confirm_taken(seqs)
                if len(erased) >= 24 and stream.key not in self._ledger.deletion_asked:
                    self.report["erasures"] += 1
                    self._erased.append((stream.key, erased))
                    self._disk.forget(erased)
                    self._look_for([erased])

        if seqs:
            stream.on_durable(settled)

    def _look_for_erased(self) -> None:
        """Check that erased messages stay erased, whatever happened to the machine."""
        self._erased = [(key, payload) for key, payload in self._erased if key in self._ledger.streams][-ERASED_MAX:]
        self._look_for([payload for _, payload in self._erased])

    def _look_for(self, payloads: list[bytes]) -> None:
        look_for(payloads, self._disk.contents() if payloads else [])

    def _unpacked(self) -> list[bytes]:
        opened = [open_segment(self._disk, path) for path in self._disk.files() if path.endswith(".seg")]
        return [file.pread(file.size(), 0) for file in opened if isinstance(file, PackedFile)]

    def _journal(self) -> None:
        if picked := self._pick():
            stream, ledger = picked
            if self._work.random() < 0.08:
                records = [(1, self._work.randbytes(10))]
                stream.rewrite(records)
                index = ledger.journal.change(tuple(records))
            else:
                record = (self._work.randint(1, 5), self._work.randbytes(self._work.choice((0, 10, 40, 200))))
                stream.append_record(*record)
                index = ledger.journal.change((*ledger.records, record))
            if self._work.random() < 0.5:
                self._confirm(stream, lambda: ledger.journal.confirm(index))

    def _meta(self) -> None:
        if picked := self._pick():
            stream, ledger = picked
            meta = self._work.randbytes(self._work.randint(1, 400)).hex().encode()
            stream.set_meta(meta)
            index = ledger.meta.change(meta)
            self._confirm(stream, lambda: ledger.meta.confirm(index))

    def _confirm(self, stream: StreamStore, then: Callable[[], object]) -> None:
        def settled(error: StoreError | None) -> None:
            if error is None:
                then()

        stream.on_durable(settled)

    def _pass_time(self) -> None:
        self._now_ns += self._work.choice((1_000_000, 100_000_000, 3_000_000_000))
        deadline = self._store.next_deadline_ns()
        if deadline is not None and deadline <= self._now_ns:
            self._store.run_timers()

    # -- commits, driven as the server does, one phase at a time

    def _begin(self) -> None:
        if self._store.dirty:
            owner = self._work.choice(list(self._store.dirty))
            commit = owner.begin_commit()
            if commit is not None:
                self._flights.append(_Flight(owner, commit))

    def _run_commit(self) -> None:
        waiting = [flight for flight in self._flights if not flight.ran]
        if waiting:
            self._run_flights([self._work.choice(waiting)])

    def _run_flights(self, flights: Sequence[_Flight]) -> None:
        before = self._disk.faults
        for flight in flights:
            flight.ran = True
        errors = self._run_all([flight.commit for flight in flights])
        for flight, error in zip(flights, errors, strict=True):
            self._ended(flight, error, before)

    def _run_all(self, commits: Sequence[Commit]) -> list[OSError | StoreError | None]:
        """Do the disk work of commits; return the error of each."""
        return [error_of(commit) for commit in commits]

    def _ended(self, flight: _Flight, error: OSError | StoreError | None, faults_before: int) -> None:
        """Keep the error of a commit. Raises Violation where the disk is not its cause."""
        if error is not None and not (isinstance(error, OSError) and self._is_of_disk(error, faults_before)):
            raise Violation(f"a commit failed on a disk that did nothing wrong: {error}") from error
        flight.error = error

    def _is_of_disk(self, error: OSError, faults_before: int) -> bool:
        """Return whether a commit failed because the disk did."""
        return self._disk.faults > faults_before and error.errno in ERRORS

    def _finish(self) -> None:
        done = [flight for flight in self._flights if flight.ran]
        if done:
            flight = self._work.choice(done)
            self._flights.remove(flight)
            flight.owner.finish_commit(flight.commit, flight.error)
            if flight.error is None and self._faults.random() < DISK_IMAGE_SHARE:
                self._check_disk_image()

    def _check_disk_image(self) -> None:
        """Open what is durable now and nothing else: every confirmed promise must already be there."""
        self.report["disk_image_checks"] += 1
        twin = self._disk.synced_image(self.report.seed)
        store = self._store_on(twin)
        report = store.open()
        if report.damaged:
            raise Violation(f"the synced image alone is damaged: {report.damaged}")
        for key, ledger in self._ledger.streams.items():
            if key in self._ledger.creation_confirmed and key not in self._ledger.deletion_asked:
                stream = store.streams.get(key)
                if stream is None or stream.last_seq < ledger.acked_seq:
                    raise Violation(f"{key} was acked up to {ledger.acked_seq}, the synced image lacks it")

    def _settle(self) -> None:
        """Without faults everything that is pending must become durable."""
        for _ in range(SETTLE_ROUNDS):
            self._begin()
            self._run_commit()
            self._finish()
            if not self._store.dirty and not self._flights:
                return
        raise Violation("the store does not settle")

    # -- damage at rest

    def _misplace_at_rest(self) -> None:
        """Put a file of another stream, or of an earlier time, into a cleanly closed store, and take it out again."""
        rng = random.Random(f"{self.report.seed}/misplaced")
        paths = [path for path in self._disk.files() if path.startswith("streams/s") and _kind(path) != "torn"]
        files = {path: self._disk.content(path) for path in paths}
        swaps = [
            (here, here, files[there])
            for here in files
            for there in files
            if _kind(here) == _kind(there) and here.partition("/s")[2][:6] != there.partition("/s")[2][:6]
        ]
        returns = [
            (here, there, data)
            for there, data in self._early.items()
            for here in files
            if _stem(here) == _stem(there) and files[here] != data
        ]
        choices = [each for each in (swaps, returns) if each]
        if not choices:
            return
        chosen = rng.choice(choices)
        here, there, data = rng.choice(chosen)
        self.report["misplaced_at_rest"] += 1
        self._disk.lose(here)
        self._disk.put(there, data)
        self._judge_misplaced(there, of_another=chosen is swaps, renamed=here != there)
        for path in {here, there}.intersection(self._disk.files()):  # an index file may have been removed, or made anew
            self._disk.lose(path)
        self._disk.put(here, files[here])
        found = self._reopen()
        self._ledger.judge(found.streams, found.damaged)
        found.close()
        self._disk.kill()

    def _judge_misplaced(self, path: str, of_another: bool, renamed: bool) -> None:
        """Raise Violation unless the stream is refused for `path`, or whole where the file says nothing untrue.

        An index file is never needed, a segment of before an erasure holds what records remove again, and one below
        the floor is not used: it is removed, or reported where it is not the stream's.
        """
        found = self._reopen()
        unused = path.endswith(".seg") and any(
            f"s{stream.backing.stream_id:06d}/" in path and int(path.rpartition("/")[2][:20]) < stream.first_seq
            for stream in found.streams.values()
            if isinstance(stream.backing, FileStream)
        )
        if of_another and unused:
            unused = any(path in note and "not changed" in note for note in self._notes)
        if any(path in reason for reason in found.damaged.values()):
            pass
        elif found.damaged and not path.endswith(".idx"):
            raise Violation(f"{path} is not named among the reasons: {found.damaged}")
        elif path.endswith(".idx") or unused or (path.endswith(".seg") and not (of_another or renamed)):
            self._ledger.judge(found.streams, found.damaged)
        else:
            raise Violation(f"{path} is accepted, though it is another stream's or of an earlier time")
        self._disk.kill()

    def _reopen(self) -> Store:
        store = self._store_on(self._disk)
        self._notes = store.open().notes
        return store

    def _damage_at_rest(self) -> str:
        """Alter one place of a cleanly closed store: its streams must be refused or whole, never silently less.

        Returns the path of the file, "" where there is none.
        """
        paths = [path for path in self._disk.files() if path.endswith((".seg", "/meta", ".idx"))]
        if not paths:
            return ""
        path = self._faults.choice(sorted(paths))
        size = self._disk.size_of(path)
        kind = self._faults.choice(("flip", "cut", "lose"))
        if kind == "flip" and size:
            offset = self._faults.randrange(size)
            self._disk.alter(path, offset, bytes([self._disk.byte_at(path, offset) ^ (1 << self._faults.randrange(8))]))
        elif kind == "cut" and size:
            self._disk.cut(path, self._faults.randrange(size))
        else:
            self._disk.lose(path)
        self.report["damaged_at_rest"] += 1
        store = self._store_on(self._disk)
        report = store.open()
        intact = [key for key in self._ledger.streams if key in store.streams]
        missing = [key for key in self._ledger.streams if key not in store.streams]
        if missing and not report.damaged:
            raise Violation(f"{missing} vanished silently after {kind} of {path}")
        served = contextlib.suppress(StoreDamagedError) if path.endswith(".seg") else contextlib.nullcontext()
        for key in intact:
            with served:  # damage that the start does not see is noticed by a reader
                self._ledger.streams[key].judge(store.streams[key])
        if kind != "flip" and path.endswith(".seg") and not report.damaged:
            raise Violation(f"{kind} of {path} went unnoticed")
        if report.damaged and path.endswith(".idx"):
            raise Violation(f"a stream is refused for its index file: {report.damaged}")
        return path

    def _repair_at_rest(self, damaged: str) -> None:
        """Repair what is refused for a damaged file, and for a damaged `meta` or a missing folder of one more stream.

        What can be read must be there, durably, and nothing else; a missing folder is all that cannot be repaired.
        """
        rng = random.Random(f"{self.report.seed}/repair")
        self._disk.kill()
        kept = [path for path in self._disk.files() if path.endswith("/meta") and _folder(path) != _folder(damaged)]
        if kept:
            path, draw = rng.choice(kept), rng.random()
            if draw < 0.15:
                for each in [each for each in self._disk.files() if _folder(each) == _folder(path)]:
                    self._disk.lose(each)
                self._disk.lose(_folder(path))
            elif draw < 0.4:
                self._disk.lose(path)
            else:
                self._disk.cut(path, rng.randrange(self._disk.size_of(path)))
        store = self._reopen()
        numbers = {key: ids[0] for key, ids in store._refused_ids.items()}
        lost = [key for key in store.damaged if not self._disk.exists(f"streams/s{numbers[key]:06d}")]
        partial = {key for key, number in numbers.items() if f"/s{number:06d}/" in damaged and damaged.endswith(".seg")}
        repaired = [key for key in store.damaged if key not in lost]
        for key in repaired:
            store.salvage(key, _latest(self._ledger.streams[key].meta))
            self.report["repaired"] += 1
        allowed = set(lost)  # and what is damaged where an index file saved reading, until a start reads it
        allowed |= {key for key, each in store.streams.items() if _number(each) == damaged.partition("/s")[2][:6]}
        if rng.random() < 0.5:
            store.close()
        else:  # the folders that were moved aside may be missed, under their own names
            allowed |= {f"s{numbers[key]:06d}" for key in repaired}
        self._disk.power_loss()
        store = self._reopen()
        if missed := store.damaged.keys() - allowed:
            raise Violation(f"{missed} are refused after their repair: {store.damaged}")
        for key in repaired:
            ledger, stream = self._ledger.streams[key], store.streams[key]
            if key in partial:
                _judge_remains(stream, ledger, damaged)
            else:
                ledger.judge(stream)


def error_of(commit: Commit) -> OSError | StoreError | None:
    """Do the disk work of a commit; return its error."""
    try:
        commit.run()
    except (OSError, StoreError) as error:
        return error
    return None


def _number(stream: StreamStore) -> str:
    return f"{stream.backing.stream_id:06d}" if isinstance(stream.backing, FileStream) else ""


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _latest(history: History) -> bytes:
    meta = history.states[-1]
    assert isinstance(meta, bytes)
    return meta


def _judge_remains(stream: StreamStore, ledger: StreamLedger, damaged: str) -> None:
    """Raise Violation unless a stream that lost part of a segment holds what was outside of it, and nothing untrue."""
    begins = int(damaged.rpartition("/")[2][:20])
    for seq, wanted in ledger.messages.items():
        found = stream.get(seq)
        if found is not None and tuple(found) != tuple(wanted):
            raise Violation(f"{stream.key}: the repair made {found!r} of {wanted!r}")
        if found is None and seq < begins and seq not in ledger.taken:
            raise Violation(f"{stream.key}: message {seq} was before the damage, and is lost by the repair")
    if stream.last_seq > ledger.acked_seq:
        raise Violation(f"{stream.key}: the repair made {stream.last_seq} of {ledger.acked_seq} the last sequence")


def look_for(payloads: list[bytes], files: list[bytes]) -> None:
    """Raise Violation where a file holds one of some erased payloads, plain or compressed."""
    plain = [*files, *(_plain(data) for data in files if data.startswith(PACKED))]
    if any(payload in data for payload in payloads for data in plain):
        raise Violation("an erased payload is still on the disk")


def _plain(data: bytes) -> bytes:
    disk = SimDisk(random.Random(0))
    disk.open("packed", create=True).pwrite(data, 0)
    file = open_segment(disk, "packed")
    return file.pread(file.size(), 0)


simulate = simulating(Session)
