"""Native threads on the simulated disk: the sessions of `store_simulation`, with commits written by `CommitThreads`.

Theory of operation. The module is built once more, with the calls of committer.c that reach a disk (pwrite, fdatasync,
fstat, fcntl, close) replaced by one function pointer (disk_calls.h), which leads here. Files of a `NumberedDisk` have
numbers in the place of descriptors. A call from a native thread waits until the session lets it go on, between any two
of its steps: calls of several commits, and the work of the loop thread beside them, come in an order that the seed
chooses, one at a time. The simulated disk answers in its own way: with errors, short writes, a crash in the middle, and
a power failure while threads wait. Besides, a call may be interrupted (EINTR), a write take a part, a sync fail, and a
descriptor be refused (EMFILE). What a job's outcome means for its commit is decided as the server's `Committer` does.
"""

import contextlib
import ctypes
import errno
import os
import random
import select
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from natsctl.native import build
from natsctl.server.committer import WRITE_FAILED
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import sync_error
from tests.support.disk_image import FileImage, FolderImage
from tests.support.encrypted_simulation import EncryptedSession
from tests.support.native_cases import FaultError
from tests.support.native_fuzz import load
from tests.support.native_threads import PATIENCE_S, NativeThreads
from tests.support.simdisk import DiskFault, SimDisk, SimFile, no_faults
from tests.support.store_model import Report, Violation, simulating
from tests.support.store_simulation import Session, _Flight, error_of

COPY, CLOSE, WRITE, LINKS, SYNC = range(5)
"""Calls, as in disk_calls.h."""
FIRST_NUMBER: Final = 1 << 20
"""The number of the first file; no descriptor has it."""
THREADS: Final = 16
"""More than there are streams, so that every commit that is begun has a thread."""

_Answer = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)


COMMITTED: Final = 0.3
"""Probability that a step is followed by a few messages and a commit, which then most often only appends."""


class AppendingSession(Session):
    """The program of a session with many commits that do nothing but append, as native threads can do them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._appends = random.Random(f"{seed}/appends")
        segment_bytes = self._appends.choice((4096, 65536, 1 << 20))
        self._options = msgspec.structs.replace(self._options, segment_bytes=segment_bytes)

    def _step(self) -> None:
        super()._step()
        if self._appends.random() < COMMITTED:
            for step in (self._publish, self._begin, self._run_commit, self._finish):
                with contextlib.suppress(StoreError):
                    step()


class NumberedFile(SimFile):
    """A file that native code knows by a number."""

    number = -1

    def fileno(self) -> int:
        return self.number

    def close(self) -> None:
        super().close()
        if isinstance(self._disk, NumberedDisk):
            self._disk.numbered.pop(self.number, None)

    def copy(self) -> int:
        assert isinstance(self._disk, NumberedDisk)
        return self._disk.number(NumberedFile(self._disk, self._path, self._node, self._writable)).number

    def links(self) -> int:
        assert isinstance(self._disk, NumberedDisk)
        return self._disk.links(self._node)


class NumberedDisk(SimDisk):
    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.numbered: dict[int, NumberedFile] = {}
        self._next = FIRST_NUMBER

    def open(self, path: str, create: bool = False) -> NumberedFile:
        """Open for reading and writing; with `create` the file must not exist yet."""
        super().open(path, create).close()
        return self.number(NumberedFile(self, path, self._file(path), writable=True))

    def number(self, file: NumberedFile) -> NumberedFile:
        self._next += 1
        file.number = self._next
        self.numbered[file.number] = file
        return file

    def links(self, node: FileImage) -> int:
        return _names(self._root, node)


def _names(folder: FolderImage, node: FileImage) -> int:
    return sum(
        _names(child, node) if isinstance(child, FolderImage) else child is node for child in folder.cache.values()
    )


class Call:
    """A call of a native thread, which waits for its answer."""

    def __init__(self, kind: int, number: int, data: bytes, offset: int) -> None:
        self.kind, self.number, self.data, self.offset = kind, number, data, offset
        self._read, self._write = os.pipe()

    def wait(self) -> int:
        answer = int(os.read(self._read, 32))
        os.close(self._read)
        os.close(self._write)
        return answer

    def answer(self, value: int) -> None:
        os.write(self._write, b"%d" % value)


class NativeDisk:
    """The build of the module, its threads, and the disk of the session that they serve."""

    def __init__(self) -> None:
        header = Path(__file__).with_name("disk_calls.h")
        with tempfile.TemporaryDirectory(prefix="native-disk-") as folder:  # loaded, the module needs no file
            path = build.build(Path(folder, build.NAME), ("-O0", "-include", str(header)))
            module, library = load(path), ctypes.CDLL(str(path))
        self._called = _Answer(self._on_call)  # referenced for as long as threads may call it
        pointer = ctypes.c_void_p.in_dll(library, "simulated_disk")
        pointer.value = ctypes.cast(self._called, ctypes.c_void_p).value
        self.module = module
        self.native = NativeThreads(module, THREADS)
        self._arrivals, self._arrived = os.pipe()
        self.calls: list[Call] = []
        """Calls that wait and were not looked at."""
        self.disk: NumberedDisk | None = None
        self.refuses = False
        """Whether descriptors are refused."""

    def _on_call(self, kind: int, number: int, data: int | None, size: int, offset: int) -> int:
        """Answer a call that touches no data; keep any other for the session, and wait. In whatever thread calls."""
        assert self.disk is not None
        file = self.disk.numbered.get(number)
        if kind == COPY:
            return -errno.EMFILE if self.refuses else -errno.EBADF if file is None else file.copy()
        if kind == CLOSE:
            self.disk.numbered.pop(number, None)
            return 0
        call = Call(kind, number, ctypes.string_at(data, size) if data else b"", offset)
        self.calls.append(call)
        os.write(self._arrived, b"x")
        return call.wait()

    def take(self) -> Call:
        """Return the next call, which may be about to arrive."""
        os.read(self._arrivals, 1)
        return self.calls.pop(0)

    def next_event(self) -> Call | tuple[Any, int, int]:
        """Return the next call, or the token, outcome and errno of a job that has ended. Raises FaultError."""
        ready = select.select([self._arrivals, self.native.out], [], [], PATIENCE_S)[0]
        if self._arrivals in ready:
            return self.take()
        if not ready:
            raise FaultError("a native thread does not go on")
        ((token, outcome, number, _),) = self.native.collect()
        return token, outcome, number


@lru_cache(1)
def native_disk() -> NativeDisk:
    return NativeDisk()


class _Job:
    """A commit that a native thread is about to go on with."""

    def __init__(self, faults_before: int, is_refused: bool) -> None:
        self.faults_before = faults_before
        self.is_refused = is_refused
        """Whether it gets no descriptors."""
        self.call: Call | None = None
        """The call that waits."""


class NativeSession(AppendingSession):
    """One seed's session, whose commits native threads write wherever they only append."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._numbered = NumberedDisk(random.Random(f"{seed}/disk"), self._disk.journalling)
        self._disk = self._numbered
        self._threads = random.Random(f"{seed}/threads")
        self._interrupted = self._threads.choice((0, 0.1, 0.5))
        """Probability that a call is interrupted."""
        self._short = self._threads.choice((0, 0, 0.3))
        """Probability that a write takes a part, beside those that the disk cuts short."""
        self._failing = self._threads.choice((0, 0, 0.05))
        """Probability that a sync fails, beside those that the life's plan fails."""
        self._without_room = self._threads.choice((0, 0, 0.2))
        """Probability that there are no descriptors for a commit."""
        self._native = native_disk()
        self._jobs: dict[_Flight, _Job] = {}
        self.calls = dict.fromkeys(("written", "short", "synced", "interrupted", "abandoned", "again", "final"), 0)
        """How often each of these happened to a native thread."""

    def run(self) -> Report:
        self._native.disk = self._numbered
        return super().run()

    def _run_commit(self) -> None:
        waiting = [flight for flight in self._flights if not flight.ran]
        if not waiting:
            return
        flight = self._work.choice(waiting)
        if flight in self._jobs:
            for _ in range(self._threads.choice((1, 1, 2, 9))):
                if flight in self._jobs:
                    self._go_on(flight)
        elif appends := flight.commit.take_appends():
            self._native.refuses = self._threads.random() < self._without_room
            self._jobs[flight] = _Job(self._disk.faults, self._native.refuses)
            self._native.native.submit(flight, appends)
            self._await(flight)
        else:
            self._run_flights([flight])

    def _go_on(self, flight: _Flight) -> None:
        """Answer the call that a native thread waits for, and wait for its next one or the end of its job."""
        job = self._jobs[flight]
        assert job.call is not None
        answer = self.answer(job.call)
        job.call.answer(answer)
        job.call = None
        self._await(flight)

    def answer(self, call: Call) -> int:
        """Do what a native thread calls for on the simulated disk; return the answer. Raises Crash."""
        if call.kind != LINKS and self._threads.random() < self._interrupted:
            self.calls["interrupted"] += 1
            return -errno.EINTR
        file = self._numbered.numbered.get(call.number)
        if file is None:
            return -errno.EBADF
        try:
            return self._do(call, file)
        except OSError as error:
            return -(error.errno or errno.EIO)

    def _do(self, call: Call, file: NumberedFile) -> int:
        if call.kind == WRITE:
            size = len(call.data)
            if self._threads.random() < self._short:
                size = self._threads.randrange(size) + 1
            wrote = file.pwrite(call.data[:size], call.offset)
            self.calls["short" if wrote < len(call.data) else "written"] += 1
            return wrote
        if call.kind == LINKS:
            return file.links()
        plan = self._disk.plan
        if plan is not no_faults and self._threads.random() < self._failing:
            self._disk.plan = lambda call, path: DiskFault(error=errno.EIO)
        try:
            file.sync()
        finally:
            self._disk.plan = plan
        self.calls["synced"] += 1
        return 0

    def _await(self, flight: _Flight) -> None:
        """Wait for the next call of a job, or its end; all others wait for their answers."""
        event = self._native.next_event()
        if isinstance(event, Call):
            self._jobs[flight].call = event
            return
        token, outcome, number = event
        if token is not flight:
            raise Violation("a job of another commit has ended")
        self._settle_job(flight, outcome, number)

    def _settle_job(self, flight: _Flight, outcome: int, number: int) -> None:
        """End a commit as the server does: what was not written is done again, a sync that failed is final."""
        job = self._jobs.pop(flight)
        if outcome == WRITE_FAILED:
            if self._disk.faults == job.faults_before and not job.is_refused:
                raise Violation(f"a write failed on a disk that did nothing wrong: {os.strerror(number)}")
            self.calls["again"] += 1
        self.calls["final"] += bool(outcome) and outcome != WRITE_FAILED
        flight.ran = True
        self._ended(flight, self.error_of(flight, outcome, number), job.faults_before)

    def error_of(self, flight: _Flight, outcome: int, number: int) -> Any:
        """Return the error of a commit whose job has ended. Raises Crash."""
        if outcome == WRITE_FAILED:
            return error_of(flight.commit)
        return sync_error(OSError(number, os.strerror(number))) if outcome else None

    def _end_life(self) -> None:
        """Stop the threads in the middle of what they do: nothing more of it reaches the disk."""
        for job in self._jobs.values():
            self.calls["abandoned"] += 1
            assert job.call is not None
            job.call.answer(-errno.EIO)
            while isinstance(event := self._native.next_event(), Call):
                event.answer(-errno.EIO)
        self._jobs.clear()
        super()._end_life()


class EncryptedNativeSession(EncryptedSession, NativeSession):
    """The same on a disk that encrypts, so that native threads are given encrypted bytes."""


simulate_natively_encrypted = simulating(EncryptedNativeSession, " with native threads and encryption")
simulate_natively = simulating(NativeSession, " with native threads")
