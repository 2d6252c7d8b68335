"""Model of a simulated store: what it was asked to keep, what it has promised, and what went wrong meanwhile.

A ledger knows, for each stream, every message that was attempted, how far acks went, which messages were taken out
and whether that was confirmed, and every state its journal and metadata went through. `judge` compares a recovered
stream with it. `draw_plan` draws the faults of one life of the store; a `Report` counts those of a session.
"""

import errno
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from natsctl.store.message import StoredMessage
from natsctl.store.stream import StreamStore
from tests.support.simdisk import DiskFault, Plan

Record = tuple[int, bytes]


class Violation(AssertionError):
    """A promise of the store was broken."""


@dataclass(slots=True)
class History:
    """The states a value went through; those before `confirmed` may never be seen again after a crash."""

    states: list[object]
    confirmed: int = 0

    def change(self, state: object) -> int:
        """Note a new state and return its index, to be confirmed later."""
        self.states.append(state)
        return len(self.states) - 1

    def confirm(self, index: int) -> None:
        """Note that the state of this index, or a later one, will be found after any crash."""
        self.confirmed = max(self.confirmed, index)

    def judge(self, found: object, what: str) -> None:
        """Raise Violation unless `found` is a state that may be found now; it then is the only one."""
        if found not in self.states[self.confirmed :]:
            raise Violation(f"{what}: found {found!r}, promised {self.states[self.confirmed]!r} or later")
        self.states, self.confirmed = [found], 0


@dataclass(slots=True)
class StreamLedger:
    meta: History
    journal: History = field(default_factory=lambda: History([()]))
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    acked_seq: int = 0
    taken: dict[int, bool] = field(default_factory=dict)
    """Sequence → whether its removal was confirmed."""
    timed: set[int] = field(default_factory=set)
    """Sequences of the messages that were appended as timed."""
    batches: list[range] = field(default_factory=list)
    """Sequences of each batch: all of them are found, or none."""

    @property
    def records(self) -> tuple[Record, ...]:
        latest = self.journal.states[-1]
        assert isinstance(latest, tuple)
        return latest

    def attempted(self, message: StoredMessage, timed: bool = False) -> None:
        self.messages[message.seq] = message
        self.timed.discard(message.seq)
        if timed:
            self.timed.add(message.seq)

    def refused_above(self, seq: int) -> None:
        """Note that the messages above `seq` were taken back: their sequences will be given out again."""
        self.messages = {old: message for old, message in self.messages.items() if old <= seq}
        self.taken = {old: confirmed for old, confirmed in self.taken.items() if old <= seq}
        self.timed = {old for old in self.timed if old <= seq}
        self.batches = [batch for batch in self.batches if batch[-1] <= seq]

    def take(self, seq: int) -> None:
        self.taken.setdefault(seq, False)

    def confirm_taken(self, seqs: list[int]) -> None:
        for seq in seqs:
            self.taken[seq] = True

    def judge(self, stream: StreamStore) -> None:
        """Raise Violation where the recovered stream breaks a promise; what was found is the promise from now on."""
        last_seq = max(self.messages, default=0)
        if not self.acked_seq <= stream.last_seq <= max(last_seq, self.acked_seq):
            raise Violation(f"{stream.key}: last_seq {stream.last_seq}, acked {self.acked_seq}, attempted {last_seq}")
        for seq in range(1, stream.last_seq + 1):
            self._judge_message(stream, seq)
        self._judge_flags(stream)
        self._judge_times(stream)
        self.meta.judge(stream.meta, f"{stream.key} metadata")
        self.journal.judge(tuple((kind, bytes(body)) for kind, body in stream.records()), f"{stream.key} journal")
        self._rebase(stream)

    def _judge_message(self, stream: StreamStore, seq: int) -> None:
        found, wanted = stream.get(seq), self.messages.get(seq)
        if found is None:
            if seq not in self.taken and wanted is not None:
                raise Violation(f"{stream.key}: message {seq} is lost (acked up to {self.acked_seq})")
        elif wanted is None or tuple(found) != tuple(wanted):
            raise Violation(f"{stream.key}: message {seq} is {found!r}, attempted {wanted!r}")
        elif self.taken.get(seq):
            raise Violation(f"{stream.key}: message {seq} is back after its removal was confirmed")

    def _judge_flags(self, stream: StreamStore) -> None:
        timed = [seq for seq in sorted(self.timed) if stream.get(seq) is not None]
        if list(stream.timed_seqs()) != timed:
            raise Violation(f"{stream.key}: timed messages {list(stream.timed_seqs())}, expected {timed}")
        for batch in self.batches:
            if stream.last_seq in batch[:-1]:
                raise Violation(f"{stream.key}: the batch {batch} is there up to {stream.last_seq} only")

    def _judge_times(self, stream: StreamStore) -> None:
        newest_ns = 0
        for message in filter(None, map(stream.get, range(1, stream.last_seq + 1))):
            if message.ts_ns < newest_ns:
                raise Violation(f"{stream.key}: message {message.seq} is older than the one before it")
            newest_ns = message.ts_ns
            if stream.first_seq_at(newest_ns) > message.seq:
                raise Violation(f"{stream.key}: message {message.seq} is not found by its time")

    def _rebase(self, stream: StreamStore) -> None:
        self.acked_seq = stream.last_seq
        present = {seq for seq in range(1, stream.last_seq + 1) if stream.get(seq) is not None}
        self.taken = {seq: True for seq in range(1, stream.last_seq + 1) if seq not in present}
        self.messages = {seq: message for seq, message in self.messages.items() if seq <= stream.last_seq}
        self.timed = {seq for seq in self.timed if seq <= stream.last_seq}
        self.batches = [batch for batch in self.batches if batch[-1] <= stream.last_seq]


@dataclass(slots=True)
class Ledger:
    """Every stream that was ever asked for, by key; None is "does not exist"."""

    streams: dict[str, StreamLedger] = field(default_factory=dict)
    creation_confirmed: set[str] = field(default_factory=set)
    provisional: set[str] = field(default_factory=set)
    """Streams that no crash leaves, because they were not completed."""
    deletion_asked: set[str] = field(default_factory=set)
    deletion_confirmed: set[str] = field(default_factory=set)

    def create(self, key: str, meta: bytes) -> StreamLedger:
        ledger = self.streams[key] = StreamLedger(History([meta]))
        return ledger

    def judge(self, found: dict[str, StreamStore], damaged: dict[str, str]) -> None:
        """Raise Violation where the recovered streams break a promise."""
        if damaged:
            raise Violation(f"streams reported as damaged although nothing was: {damaged}")
        for key in sorted(self.streams):
            if key in found and key in self.deletion_confirmed:
                raise Violation(f"{key} is back after its deletion was confirmed")
            if key in found and key in self.provisional:
                raise Violation(f"{key} is there and was never completed")
            if key not in found and key in self.creation_confirmed and key not in self.deletion_asked:
                raise Violation(f"{key} is lost")
        for key in sorted(found):
            if key not in self.streams:
                raise Violation(f"{key} was never asked for")
            self.streams[key].judge(found[key])
        self.streams = {key: ledger for key, ledger in self.streams.items() if key in found}
        self.creation_confirmed = set(found)
        self.provisional.clear()
        self.deletion_asked.clear()
        self.deletion_confirmed.clear()


ERRORS: Final = (errno.EIO, errno.ENOSPC)
"""Errors of a failing disk; every other error of a commit is the store's own fault."""


class Report(Counter[str]):
    """Counts of one session, so that a run can show that it was not idle."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed


class Session(Protocol):
    def run(self) -> Report: ...


def simulating(session: Callable[[int], Session], how: str = "") -> Callable[[int], Report]:
    """Return a function that runs the session of a seed; raises Violation, whose text names the seed."""

    def simulate(seed: int) -> Report:
        try:
            return session(seed).run()
        except Violation as violation:
            raise Violation(f"seed {seed}{how}: {violation}") from violation

    return simulate


def draw_plan(rng: random.Random) -> Plan:
    """One disaster for a life, at one call, or none.

    A crash anywhere or in a write (torn), a failing sync, write or folder sync, a full disk.
    """
    kind = rng.choice((
        "none", "none", "crash", "crash", "torn", "torn", "torn", "sync", "sync", "pwrite", "full", "full", "full",
        "full", "short", "fsync_dir", "unlink", "rename", "create",
    ))  # fmt: skip
    at = rng.randint(1, 150 if kind == "crash" else 40)
    until = at + (rng.randint(0, 20) if kind == "full" else 5)
    seen = 0

    def plan(call: str, path: str) -> DiskFault | None:
        nonlocal seen
        seen += kind in ("crash", call) or (kind in ("full", "short", "torn") and call == "pwrite")
        if seen < at or kind == "none" or (seen > at and kind != "full") or seen > until:
            return None
        if kind == "crash" or (kind == "torn" and call == "pwrite"):
            return DiskFault(crash=True)
        if kind in ("full", "short"):
            return (
                None
                if call != "pwrite"
                else DiskFault(short=True)
                if kind == "short"
                else DiskFault(error=errno.ENOSPC)
            )
        if call != kind:
            return None
        return DiskFault(error=errno.EIO)

    return plan
