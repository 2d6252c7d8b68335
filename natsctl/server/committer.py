"""Group commit: the messages of all publishers go to disk in one write and one sync per stream.

The loop thread asks every dirty stream for a commit once per turn; a stream gives at most one at a time, so whatever
is appended while a sync is in flight gathers for the next one, without any artificial delay.  A few worker threads
run the disk part (the system calls release the GIL); finished commits come back to the loop thread in one call, where
acks leave. A commit goes to the worker that was busy last: it wakes in half the time of one that has slept long. A
stream on a slow disk occupies one worker; streams on other disks continue with the rest. A fault in the work of one
stream does around its commit is reported and holds up no other stream.

With the native module and a loop, commits that only append to open files are written and synced by threads that never
hold the interpreter's lock: the loop thread and the disk do not wait for each other. A write that fails there is done
again by a worker that handles a full disk; a failed sync is final, as everywhere.

A small commit of the only stream that has one is run on the loop thread as long as the disk answers quickly: the two
hand-overs between threads would take longer than the sync. Small commits that end without a sync are run there too, of
many streams in turn, for `WRITES_S` of a turn. With the native module a turn needs one call for all. The time of small
commits is measured as they go, in either place.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from natsctl.native import lib
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import sync_error
from natsctl.store.stream import StreamStore

if TYPE_CHECKING:
    from natsctl.native._native import CommitThreads
    from natsctl.store.file_commit import Append, Commit, Committable
    from natsctl.store.store import Store

WORKERS: Final = 12
"""Threads that may wait for a disk at the same time; one new stream after the other waits for four flushes."""
IN_PLACE_S: Final = 0.0005
"""Maximum duration of a small commit for running the next one on the loop thread. Source: docs/adr/0002."""
WRITES_S: Final = 0.004
"""Time of a turn for small commits without a sync on the loop thread."""
WEIGHT: Final = 8
"""Small commits, or turns with several, over which their time is averaged."""
MAX_SAMPLE_S: Final = 2 * IN_PLACE_S
"""Maximum duration that one commit counts, so that a single slow sync among fast ones does not decide."""

WRITE_FAILED: Final = 1
"""Outcome of a native job that Python does again."""

_Job: TypeAlias = "tuple[Committable, Commit]"
_BegunJob: TypeAlias = "tuple[Committable, Commit, tuple[Append, ...]]"
_Inbox: TypeAlias = "SimpleQueue[_Job | None]"
_Fault: TypeAlias = "Callable[[str, Exception], object]"
_Ended: TypeAlias = "tuple[Committable, Commit, OSError | StoreError | None]"
_Done: TypeAlias = "tuple[Committable, Commit, OSError | StoreError | None, float]"


class Committer:
    """Runs the commits of one store; every method but the workers' runs on the loop thread."""

    def __init__(
        self,
        store: Store,
        post: Callable[[Callable[[], None]], object],
        finished: Callable[[], None],
        fault: _Fault,
        clock_s: Callable[[], float] = time.perf_counter,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Prepare to commit `store`.

        `post` runs a call on the loop thread, `finished` is called after commits ended, `fault` for faults in our code.
        With `loop` and the native module, threads outside the interpreter do nearly all of the work.
        """
        self._loop = loop if lib is not None else None
        self._native: CommitThreads | None = None
        self._wake = (-1, -1)
        """The pipe for waking the loop."""
        self._clock_s = clock_s
        self._store = store
        self._post = post
        self._finished = finished
        self._fault = fault
        self.gather: Callable[[], object] = int
        self.send: Callable[[], object] = int
        """Called before and after the ends of several commits, so that their acks leave together."""
        self._backlog: deque[_Job] = deque()
        self._idle: list[_Inbox] = []
        """Workers with nothing to do, the one that was busy last at the end."""
        self._lock = threading.Lock()
        self._done: list[_Done] = []
        self._posted = False
        self._threads: dict[threading.Thread, _Inbox] = {}
        self.in_flight: dict[Committable, None] = {}
        self.syncs = 0
        self._small_s = [0.0, 2 * IN_PLACE_S]
        """Average time of a small commit without and with a sync."""

    def start(self) -> None:
        self._idle.append(self._start_worker())
        if lib is not None and self._loop is not None:
            self._wake = os.pipe()
            os.set_blocking(self._wake[0], False)
            os.set_blocking(self._wake[1], False)
            self._native = lib.CommitThreads(self._wake[1], WORKERS)
            self._loop.add_reader(self._wake[0], self._collect)

    def stop(self) -> None:
        """End the worker threads after their current jobs; a thread that still waits for its disk is abandoned."""
        with self._lock:
            self._posted = True  # nothing is posted any more: the loop may be closed by then
        for inbox in self._threads.values():
            inbox.put(None)
        for thread in self._threads:
            thread.join(None if not self.in_flight else 0)
        self._threads.clear()
        self._idle.clear()
        if self._native is not None and self._loop is not None:
            self._loop.remove_reader(self._wake[0])
            self._native.stop(not self.in_flight)
            self._native = None
            if not self.in_flight:  # else an abandoned thread writes to it
                os.close(self._wake[0])
                os.close(self._wake[1])

    @property
    def idle(self) -> bool:
        return not self.in_flight and not self._store.dirty

    @property
    def streams(self) -> Iterable[StreamStore]:
        return (one for one in self.in_flight if isinstance(one, StreamStore))

    @property
    def shares_sync(self) -> bool:
        """Return whether the next commit is of one stream and ends with a sync that more messages could share."""
        dirty = self._store.dirty
        if len(dirty) != 1 or self.in_flight:
            return False
        (stream,) = dirty
        return isinstance(stream, StreamStore) and stream.waits_for_sync

    def start_commits(self) -> bool:
        """Begin a commit for everything that has something to write and none in flight.

        Returns whether one has ended here, so that there may be something to deliver.
        """
        dirty, natively, here, ended = self._store.dirty, list[_BegunJob](), list[_Job](), False
        if not dirty:
            return False
        alone = len(dirty) == 1 and not self.in_flight and self._small_s[True] <= IN_PLACE_S
        writes, native = self._small_s[False] <= IN_PLACE_S, self._native is not None
        for stream in tuple(dirty):
            try:
                commit = stream.begin_commit()
            except Exception as error:  # one stream's fault must not keep the others from the disk
                dirty.pop(stream, None)
                self._fault("the beginning of a commit", error)
                continue
            if commit is None:
                continue
            appends = commit.take_appends() if native else ()
            if commit.is_small and (alone if commit.syncs else writes):
                if appends:
                    natively.append((stream, commit, appends))
                else:
                    here.append((stream, commit))
            elif commit.io:
                self._hand_over(stream, commit, appends)
            else:
                self._end(stream, commit, run(commit))
                ended = True
        if natively or here:
            self._run_small(natively, here)
            return True
        return ended

    def _hand_over(self, stream: Committable, commit: Commit, appends: tuple[Append, ...]) -> None:
        """Have a thread run a commit."""
        self.in_flight[stream] = None
        if self._native is not None and appends:
            self._native.submit((stream, commit), appends)
        else:
            self._give((stream, commit))

    def _run_small(self, natively: list[_BegunJob], jobs: list[_Job]) -> None:
        """Run small commits on this thread, first those without Python; after WRITES_S hand over the others."""
        took_s, outcomes = 0.0, list[tuple[int, int, float]]()
        if self._native is not None and natively:
            outcomes = self._native.run([appends for _, _, appends in natively], WRITES_S)
            for stream, commit, appends in natively[len(outcomes) :]:
                self._hand_over(stream, commit, appends)
        ended = list[_Ended]()
        for (stream, commit, _), (outcome, number, seconds) in zip(natively, outcomes, strict=False):
            took_s += seconds
            if outcome == WRITE_FAILED:
                jobs.append((stream, commit))
            else:
                ended.append((stream, commit, failed_sync(number) if outcome else None))
        if ended:
            self._note(ended[0][1], took_s / len(outcomes), len(ended))
        for stream, commit in jobs:
            if took_s >= WRITES_S:
                self._hand_over(stream, commit, ())
                continue
            error, seconds = self._timed(commit)
            took_s += seconds
            self._note(commit, seconds)
            ended.append((stream, commit, error))
        self._end_all(ended)

    def _timed(self, commit: Commit) -> tuple[OSError | StoreError | None, float]:
        """Run the disk part of a commit; return its error and the seconds that it took."""
        began = self._clock_s()
        error = run(commit)
        return error, self._clock_s() - began

    def _note(self, commit: Commit, seconds: float, count: int = 1) -> None:
        """Note how long a commit took, or a number of commits of one turn on average."""
        self.syncs += count
        if commit.is_small:
            small_s, syncs = self._small_s, commit.syncs
            small_s[syncs] += ((seconds if seconds < MAX_SAMPLE_S else MAX_SAMPLE_S) - small_s[syncs]) / WEIGHT

    def _end_all(self, ended: list[_Ended]) -> None:
        """End commits. The acks of all that answer no request leave together, before these answers."""
        answering = ended
        if len(ended) > 1:
            answering = []
            self.gather()
            for job in ended:
                if job[1].callbacks:
                    answering.append(job)
                else:
                    self._end(*job)
            try:
                self.send()
            except Exception as fault:
                self._fault("the acks of commits", fault)
        for job in answering:
            self._end(*job)

    def _end(self, stream: Committable, commit: Commit, error: OSError | StoreError | None) -> None:
        try:
            stream.finish_commit(commit, error)
        except Exception as fault:  # the commits that ended with this one still have to be reported
            self._fault("the end of a commit", fault)

    def _give(self, job: _Job) -> None:
        with self._lock:
            if not self._idle and len(self._threads) < WORKERS:
                with suppress(RuntimeError):  # the system refuses another thread
                    self._idle.append(self._start_worker())
            if not self._idle:
                self._backlog.append(job)
                return
            inbox = self._idle.pop()
        inbox.put(job)

    def _start_worker(self) -> _Inbox:
        """Start one more worker. They start when they are needed: with the native module few are, at 20 KB each."""
        inbox: _Inbox = SimpleQueue()
        name = f"natsctl-commit-{len(self._threads)}"
        thread = threading.Thread(target=self._work, args=(inbox,), name=name, daemon=True)
        thread.start()
        self._threads[thread] = inbox
        return inbox

    def _work(self, inbox: _Inbox) -> None:
        job = inbox.get()
        while job is not None:
            stream, commit = job
            error, seconds = self._timed(commit)
            with self._lock:
                self._done.append((stream, commit, error, seconds))
                post, self._posted = not self._posted, True
                job = self._backlog.popleft() if self._backlog else None
                if job is None:
                    self._idle.append(inbox)
            if post:
                self._post(self._finish)
            job = job or inbox.get()

    def _finish(self) -> None:
        """Finish the workers' completed commits, in their order; on the loop thread."""
        with self._lock:
            done, self._done, self._posted = self._done, [], False
        self._end_all([self._leave(*job) for job in done])
        self._finished()

    def _collect(self) -> None:
        """Finish the native threads' completed jobs, on the loop thread."""
        os.read(self._wake[0], select.PIPE_BUF)
        if self._native is None:
            return
        ended = list[_Ended]()
        for job, outcome, number, seconds in self._native.collect():
            if outcome == WRITE_FAILED:
                self._give(job)
            else:
                ended.append(self._leave(job[0], job[1], failed_sync(number) if outcome else None, seconds))
        self._end_all(ended)
        self._finished()

    def _leave(self, stream: Committable, commit: Commit, error: OSError | StoreError | None, seconds: float) -> _Ended:
        del self.in_flight[stream]
        self._note(commit, seconds)
        return stream, commit, error


def failed_sync(number: int) -> OSError:
    """Return the error of a native sync."""
    return sync_error(OSError(number, os.strerror(number)))


def run(commit: Commit) -> OSError | StoreError | None:
    """Run the disk part of a commit and return its error; a fault in our own code counts as a failed write."""
    try:
        commit.run()
    except (OSError, StoreError) as error:
        return error
    except Exception as error:  # the outermost call of a worker thread: nothing may be left waiting for this commit
        return StoreError(f"internal fault in a commit: {type(error).__name__}: {error}")
    return None
