"""Stress of the native module's threads, and commits of a store that they write.

`run_threads` submits jobs to `CommitThreads` with disks that refuse, files that are gone, and stops while jobs wait.
Then a store commits by such threads, while its streams are deleted, its files closed and the threads left behind.
`NativeCommits` runs commits as the server's `Committer` does, for simulations without a loop.
"""

from __future__ import annotations

import os
import random
import select
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from natsctl.server.committer import WRITE_FAILED, run
from natsctl.store.disk import PosixDisk
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import Commit, Committable, sync_error
from natsctl.store.options import StoreOptions
from natsctl.store.store import Store
from tests.support.native_cases import FaultError

PATIENCE_S: Final = 60.0
"""Time in which a job must end, on a busy machine too."""

Ended = tuple[Any, int, int, float]
"""Token, outcome, errno and seconds of a job."""
Failure = OSError | StoreError | None


class NativeThreads:
    """Threads of a build of the module, with the pipe that they wake."""

    def __init__(self, module: Any, threads: int) -> None:
        self.out, self._wake = os.pipe()
        os.set_blocking(self.out, False)
        os.set_blocking(self._wake, False)
        self.threads = module.CommitThreads(self._wake, threads)

    def submit(self, token: Any, writes: Any) -> None:
        self.threads.submit(token, writes)

    def collect(self, patience_s: float = PATIENCE_S) -> list[Ended]:
        """Return jobs that have ended, as soon as there is one within `patience_s`; an empty list after that."""
        if not select.select([self.out], [], [], patience_s)[0]:
            return []
        os.read(self.out, select.PIPE_BUF)
        ended: list[Ended] = self.threads.collect()
        return ended

    def wait_for(self, jobs: int) -> list[Ended]:
        """Return so many jobs once they have ended. Raises FaultError."""
        ended: list[Ended] = []
        while len(ended) < jobs:
            found = self.collect()
            if not found:
                raise FaultError("a job does not end")
            ended += found
        return ended

    def close(self) -> None:
        self.threads.stop(True)
        os.close(self.out)
        os.close(self._wake)


class NativeCommits:
    """Disk work of commits, done as by the server: by native threads where commits only append, else in Python."""

    def __init__(self, module: Any, threads: int = 4) -> None:
        self.native = NativeThreads(module, threads)
        self.jobs = 0
        """Commits that native threads did."""
        self.done_again = 0
        """Commits of which a write failed there, so that Python did them again."""

    def run(self, commits: Sequence[Commit]) -> list[Failure]:
        """Run commits of different streams at the same time; return the error of each."""
        failures: list[Failure] = [None] * len(commits)
        given = 0
        for at, commit in enumerate(commits):
            if appends := commit.appends:
                self.native.submit(at, appends)
                given += 1
            else:
                failures[at] = run(commit)
        self.jobs += given
        for at, outcome, number, _ in self.native.wait_for(given):
            failures[at] = self.failure(commits[at], outcome, number)
        return failures

    def failure(self, commit: Commit, outcome: int, number: int) -> Failure:
        """Return the error of a commit that a native thread has done; where a write failed, do it again."""
        if outcome == WRITE_FAILED:
            self.done_again += 1
            return run(commit)
        return sync_error(OSError(number, os.strerror(number))) if outcome else None


class _Stream:
    """A file of the stress, with the bytes that it must hold."""

    def __init__(self, folder: Path, number: int, chance: random.Random) -> None:
        self.kind = chance.choice(("file", "file", "file", "full", "gone", "read-only"))
        path = folder / str(number)
        path.touch()
        if self.kind == "full" and Path("/dev/full").exists():
            self.fd = os.open("/dev/full", os.O_WRONLY)
        else:
            self.fd = os.open(path, os.O_RDONLY if self.kind == "read-only" else os.O_RDWR)
        if self.kind == "gone":
            path.unlink()
        self.expected = bytearray()
        self.waits = False

    def submit(self, native: NativeThreads, chance: random.Random) -> None:
        """Submit one or two writes at the end; their bytes are the job's alone."""
        writes, what = [], []
        for _ in range(chance.randrange(1, 3)):
            data = chance.randbytes(chance.choice((0, 1, 100, 9000)))
            synced = bool(chance.randrange(2))
            writes.append((self.fd, data, len(self.expected), synced))
            what.append((len(data), synced))
            self.expected += data
        self.waits = True
        native.submit((self, what), tuple(writes))

    def take(self, writes: list[tuple[int, bool]], outcome: int, number: int) -> None:
        """Check how a job ended of which the sizes are given, and whether they were to be synced."""
        self.waits = False
        refused = self.kind in ("full", "read-only") and any(size for size, _ in writes)
        lost = self.kind == "gone" and any(synced for _, synced in writes)
        # The special file takes no sync, and a write without bytes succeeds on any.
        special = self.kind == "full" and any(synced for _, synced in writes)
        expected = {1} if refused and not special else {1, 2} if refused else {2} if lost or special else {0}
        if outcome not in expected or bool(number) != bool(outcome):
            raise FaultError(f"a {self.kind} file: outcome {outcome}, errno {number}, for {writes!r}")

    def close(self) -> None:
        if self.kind == "file" and os.pread(self.fd, len(self.expected) + 1, 0) != self.expected:
            raise FaultError("a file does not hold what was written")
        os.close(self.fd)


def run_threads(module: Any, rounds: int, seed: str) -> None:
    """Submit jobs of many streams, stop while some wait, and collect every one once. Raises FaultError."""
    for number in range(rounds):
        chance = random.Random(f"{seed}:{number}")
        with tempfile.TemporaryDirectory(prefix="native-fuzz-") as folder:
            _one_round(module, Path(folder), chance)
        with tempfile.TemporaryDirectory(prefix="native-fuzz-") as folder:
            _StoreRound(module, Path(folder), chance).run()


def _one_round(module: Any, folder: Path, chance: random.Random) -> None:
    streams = [_Stream(folder, number, chance) for number in range(chance.randrange(1, 24))]
    native = NativeThreads(module, chance.choice((1, 2, 12, 64)))
    left, stopped = chance.choice((0, 10, 100)), False
    _refuse(native, WRONG_JOBS, (TypeError, ValueError, OverflowError))
    while left or any(stream.waits for stream in streams):
        for stream in streams:
            if left and not stream.waits and chance.randrange(3):
                stream.submit(native, chance)
                left -= 1
        if left == 0 and chance.randrange(2):
            native.threads.stop(True)  # with jobs that wait
            stopped = True
        blocked = all(stream.waits for stream in streams) or not left
        ended = native.collect(PATIENCE_S if blocked else 0)
        if blocked and not ended and any(stream.waits for stream in streams):
            raise FaultError("a job does not end")
        _take(ended)
    if stopped:
        _refuse(native, (((-1, b"x", 0, True),),), (RuntimeError,))
    elif chance.randrange(3):
        for stream in streams:  # whose ends are not collected, or only after the threads were left behind
            stream.submit(native, chance)
        if chance.randrange(2):
            native.threads.stop(False)
            _take(native.wait_for(len(streams)))
            _refuse(native, (((-1, b"x", 0, True),),), (RuntimeError,))
    native.close()
    for stream in streams:
        stream.close()


def _take(ended: list[Ended]) -> None:
    for (stream, writes), outcome, failure, seconds in ended:
        if seconds < 0:
            raise FaultError(f"a job took {seconds} s")
        stream.take(writes, outcome, failure)


WRONG_JOBS: Final[tuple[Any, ...]] = (
    (), None, [(-1, b"", 0, True)], ((-1, b"", 0, True),) * 3, (None,), ((-1, b"", 0),), ((-1, "", 0, True),),
    ((-1, bytearray(b"x"), 0, True),), ((-1, b"", 2**63, True),), ((-1, b"", None, True),), ((2**64, b"", 0, True),),
    ((-1, b"", 0, True), (-1, None, 0, True)),
)  # fmt: skip
"""Jobs that are none."""


def _refuse(native: NativeThreads, jobs: tuple[Any, ...], errors: tuple[type[Exception], ...]) -> None:
    """Raise FaultError unless each of the jobs is refused with one of the errors."""
    for job in jobs:
        try:
            native.submit(None, job)
        except errors:
            continue
        raise FaultError(f"a job is taken: {job!r}")


# A store that commits by the threads.

SUBJECTS: Final = (b"a", b"a.b", b"c")


class _StoreRound:
    """A store on a folder, whose commits native threads do while its streams change and go."""

    def __init__(self, module: Any, folder: Path, chance: random.Random) -> None:
        self._folder, self._chance = folder, chance
        self._commits = NativeCommits(module, chance.choice((1, 3, 12)))
        self._acked: dict[str, int] = {}
        self._deleted: set[str] = set()
        self._notes: list[str] = []
        self._flights: dict[int, tuple[Committable, Commit]] = {}
        self._options = StoreOptions(segment_bytes=chance.choice((2048, 1 << 20)), reserve_bytes=4096)
        self._store = self._open()
        for number in range(chance.randrange(1, 6)):
            key = f"$G/S{number}"
            self._store.create(key, b"{}", "file").listener = self._listener(key)

    def _open(self) -> Store:
        store = Store(
            PosixDisk(self._folder), self._options, lambda: 7, lambda: 1_700_000_000_000_000_000, self._notes.append
        )
        store.open()
        return store

    def _listener(self, key: str) -> Callable[[int], None]:
        def acked(durable_seq: int) -> None:
            self._acked[key] = durable_seq

        return acked

    def run(self) -> None:
        """Publish, commit and delete, stop in good order or leave the threads behind; raises FaultError."""
        for _ in range(self._chance.choice((20, 60))):
            self._change()
            self._begin()
            if self._chance.randrange(2):
                self._finish(self._commits.native.collect(0))
        if self._chance.randrange(2):
            self._leave()
        else:
            while self._flights or self._store.dirty:
                self._begin()
                self._finish(self._commits.native.wait_for(1) if self._flights else [])
        self._commits.native.close()
        self._store.close()
        self._check()

    def _change(self) -> None:
        for key, stream in [*self._store.streams.items()]:
            draw = self._chance.random()
            if draw < 0.01:
                self._store.delete(key)
                self._deleted.add(key)
            for _ in range(self._chance.choice((0, 1, 40)) if draw >= 0.01 else 0):
                stream.append(self._chance.choice(SUBJECTS), b"", bytes(self._chance.choice((0, 10, 300))), 1)
            if draw > 0.7:
                stream.append_record(1, b"progress")

    def _begin(self) -> None:
        """Begin all commits: those that append go to the threads, others are run while these write."""
        inline: deque[tuple[Committable, Commit]] = deque()
        for owner in [*self._store.dirty]:
            commit = owner.begin_commit()
            if commit is None:
                continue
            if appends := commit.appends:
                self._flights[id(commit)] = owner, commit
                self._commits.native.submit(id(commit), appends)
            else:
                inline.append((owner, commit))
        for owner, commit in inline:
            owner.finish_commit(commit, run(commit))

    def _finish(self, ended: list[Ended]) -> None:
        for token, outcome, number, _ in ended:
            owner, commit = self._flights.pop(token)
            failure = self._commits.failure(commit, outcome, number)
            if failure is not None:
                raise FaultError(f"a commit failed: {failure}")
            owner.finish_commit(commit, None)

    def _leave(self) -> None:
        """Leave the threads behind and close the files under them; each writes to its own all the same."""
        native = self._commits.native
        native.threads.stop(False)
        for stream in self._store.streams.values():
            stream.backing.close_files()
        others = [os.open(self._folder / "other", os.O_RDWR | os.O_CREAT) for _ in range(20)]
        self._finish(native.wait_for(len(self._flights)))
        if os.fstat(others[0]).st_size:
            raise FaultError("a thread that was left behind wrote to another file")
        for fd in others:
            os.close(fd)

    def _check(self) -> None:
        """Open the store again: what was confirmed is there."""
        store = self._open()
        found = {key: stream.last_seq for key, stream in store.streams.items()}
        store.close()
        kept = self._acked.keys() - self._deleted
        if store.damaged or any(found.get(key, 0) < self._acked[key] for key in kept):
            raise FaultError(f"{found!r} is found of {self._acked!r}; damaged: {store.damaged!r}")
