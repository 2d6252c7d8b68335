"""Stress of the native module's threads, and commits of a store that they write.

`run_threads` submits jobs to `CommitThreads` with disks that refuse, files that are gone, and stops while jobs wait.
Then a store commits by such threads, while its streams are deleted, its files closed and the threads left behind.
`NativeCommits` runs commits as the server's `Committer` does, for simulations without a loop.
"""

import os
import random
import select
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from natsctl.server.committer import WRITE_FAILED, run
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import Commit, sync_error
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

    def run(self, commits: Sequence[Commit]) -> list[Failure]:
        """Run commits of different streams at the same time; return the error of each."""
        failures: list[Failure] = [None] * len(commits)
        given = 0
        for at, commit in enumerate(commits):
            if appends := commit.take_appends():
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
        """Submit one or two writes at the end, or run them in this thread; their bytes are the job's alone."""
        writes, what = [], []
        for _ in range(chance.randrange(1, 3)):
            data = chance.randbytes(chance.choice((0, 1, 100, 9000)))
            synced = bool(chance.randrange(2))
            writes.append((self.fd, data, len(self.expected), synced))
            what.append((len(data), synced))
            self.expected += data
        self.waits = bool(chance.randrange(4))
        if self.waits:
            native.submit((self, what), tuple(writes))
        else:
            (outcome,) = native.threads.run([tuple(writes)], 1.0)
            _take([((self, what), *outcome)])

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


def _one_round(module: Any, folder: Path, chance: random.Random) -> None:
    streams = [_Stream(folder, number, chance) for number in range(chance.randrange(1, 24))]
    native = NativeThreads(module, chance.choice((1, 2, 12, 64)))
    left, stopped = chance.choice((0, 10, 100)), False
    for call in (partial(native.submit, None), native.threads.run):
        _refuse(call, WRONG_JOBS, (TypeError, ValueError, OverflowError))
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
        _refuse(partial(native.submit, None), (((-1, b"x", 0, True),),), (RuntimeError,))
    elif chance.randrange(3):
        for stream in streams:  # whose ends are not collected, or only after the threads were left behind
            stream.submit(native, chance)
        if chance.randrange(2):
            native.threads.stop(False)
            _take(native.wait_for(sum(stream.waits for stream in streams)))
            _refuse(partial(native.submit, None), (((-1, b"x", 0, True),),), (RuntimeError,))
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


def _refuse(call: Callable[..., Any], jobs: tuple[Any, ...], errors: tuple[type[Exception], ...]) -> None:
    """Raise FaultError unless a call refuses each of the jobs with one of the errors."""
    for job in jobs:
        try:
            call(job)
        except errors:
            continue
        raise FaultError(f"a job is taken: {job!r}")
