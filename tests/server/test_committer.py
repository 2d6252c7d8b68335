from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from natsctl.native import lib
from natsctl.server.committer import IN_PLACE_S, WEIGHT, WORKERS, Committer
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import Append


class FakeCommit:
    def __init__(self, stream: FakeStream, upto: int) -> None:
        self.stream, self.upto, self.io, self.is_small = stream, upto, stream.io, stream.small
        self.appends = stream.appends

    def run(self) -> None:
        self.stream.store.clock_s += self.stream.takes_s
        self.stream.runs.append(threading.current_thread().name)
        self.stream.gate.wait(60)
        if self.stream.error is not None:
            raise self.stream.error


class FakeStream:
    """What the committer needs of a stream store: a counter that a commit makes durable, behind a gate."""

    def __init__(
        self, store: FakeStore, *, io: bool = True, error: StoreError | None = None, opened: bool = True
    ) -> None:
        self.store, self.io, self.error = store, io, error
        self.small, self.takes_s = False, 0.0
        self.appends: tuple[Append, ...] = ()
        self.gate = threading.Event()
        if opened:
            self.gate.set()
        self.last_seq = self.durable_seq = 0
        self.in_flight: FakeCommit | None = None
        self.errors: list[StoreError | None] = []
        self.runs: list[str] = []

    def append(self) -> None:
        self.last_seq += 1
        self.store.dirty[self] = None

    def begin_commit(self) -> FakeCommit | None:
        if self.in_flight is not None:
            return None
        self.store.dirty.pop(self)
        self.in_flight = FakeCommit(self, self.last_seq)
        return self.in_flight

    def finish_commit(self, commit: FakeCommit, error: StoreError | None) -> None:
        assert commit is self.in_flight
        self.in_flight = None
        self.errors.append(error)
        self.durable_seq = commit.upto
        if self.last_seq > commit.upto:
            self.store.dirty[self] = None


class FakeStore:
    def __init__(self) -> None:
        self.dirty: dict[FakeStream, None] = {}
        self.clock_s = 0.0


class Rig:
    """A store, a committer on the running loop, and a count of its calls back."""

    def __init__(self, *, native: bool = False) -> None:
        self.store = FakeStore()
        self.calls = 0
        self.changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.faults: list[Exception] = []
        self.committer = Committer(
            cast(Any, self.store),
            loop.call_soon_threadsafe,
            self._finished,
            lambda _, error: self.faults.append(error),
            lambda: self.store.clock_s,
            loop if native else None,
        )
        self.committer.start()

    def _finished(self) -> None:
        self.calls += 1
        self.changed.set()

    async def commit(self, stream: FakeStream, times: int = 1) -> None:
        for _ in range(times):
            stream.append()
            self.committer.start_commits()
            await self.until(stream, stream.last_seq)

    async def until(self, stream: FakeStream, seq: int) -> None:
        async with asyncio.timeout(60):
            while stream.durable_seq < seq:
                await self.changed.wait()
                self.changed.clear()
                self.committer.start_commits()


async def test_what_gathers_during_a_sync_is_covered_by_the_next_one() -> None:
    rig = Rig()
    stream = FakeStream(rig.store, opened=False)
    stream.append()
    rig.committer.start_commits()
    for _ in range(100):
        stream.append()
        rig.committer.start_commits()
    assert len(rig.committer.in_flight) == 1
    stream.gate.set()
    await rig.until(stream, 101)
    assert len(stream.runs) == 2
    assert rig.committer.idle
    rig.committer.stop()


async def test_a_slow_sync_of_one_stream_does_not_delay_another() -> None:
    rig = Rig()
    slow, quick = FakeStream(rig.store, opened=False), FakeStream(rig.store)
    slow.append()
    quick.append()
    rig.committer.start_commits()
    await rig.until(quick, 1)
    assert slow.durable_seq == 0
    assert not rig.committer.idle
    slow.gate.set()
    await rig.until(slow, 1)
    rig.committer.stop()


async def test_one_commit_after_the_other_goes_to_the_worker_that_is_awake() -> None:
    rig = Rig()
    stream = FakeStream(rig.store)
    for seq in range(1, 31):
        stream.append()
        rig.committer.start_commits()
        await rig.until(stream, seq)
    assert len(stream.runs) == 30
    assert len(set(stream.runs)) == 1
    rig.committer.stop()


async def test_commits_beyond_the_number_of_workers_wait_for_one() -> None:
    rig = Rig()
    slow = [FakeStream(rig.store, opened=False) for _ in range(WORKERS)]
    for stream in slow:
        stream.append()
    rig.committer.start_commits()
    late = [FakeStream(rig.store) for _ in range(3)]
    for stream in late:
        stream.append()
    rig.committer.start_commits()
    slow[0].gate.set()
    for stream in late:
        await rig.until(stream, 1)
    assert [stream.runs for stream in late] == [slow[0].runs] * 3
    for stream in slow:
        stream.gate.set()
        await rig.until(stream, 1)
    assert rig.committer.idle
    rig.committer.stop()


async def test_disk_work_leaves_the_loop_thread_and_memory_work_does_not() -> None:
    rig = Rig()
    disk, memory = FakeStream(rig.store), FakeStream(rig.store, io=False)
    disk.append()
    memory.append()
    rig.committer.start_commits()
    assert memory.durable_seq == 1
    await rig.until(disk, 1)
    assert disk.runs[0].startswith("natsctl-commit")
    assert memory.runs == [threading.current_thread().name]
    rig.committer.stop()


async def test_a_failed_sync_is_told_to_its_stream_once() -> None:
    rig = Rig()
    stream = FakeStream(rig.store, error=StoreError("Input/output error"))
    stream.append()
    rig.committer.start_commits()
    await rig.until(stream, 1)
    assert [type(error) for error in stream.errors] == [StoreError]
    rig.committer.stop()


async def test_many_streams_finish_whatever_the_workers_race_does() -> None:
    rig = Rig()
    streams = [FakeStream(rig.store) for _ in range(200)]
    for round_number in range(1, 6):
        for stream in streams:
            stream.append()
        rig.committer.start_commits()
        for stream in streams:
            await rig.until(stream, round_number)
    assert rig.committer.syncs == 1000
    assert rig.committer.idle
    rig.committer.stop()


async def test_a_fault_in_a_commit_fails_its_stream_and_leaves_the_worker_alive() -> None:
    rig = Rig()
    stream, other = FakeStream(rig.store, error=cast(Any, ValueError("a bug"))), FakeStream(rig.store)
    for _ in range(8):
        stream.append()
        rig.committer.start_commits()
        await rig.until(stream, stream.last_seq)
    other.append()
    rig.committer.start_commits()
    await rig.until(other, 1)
    assert all("a bug" in str(error) for error in stream.errors)
    rig.committer.stop()


async def test_a_fault_at_the_end_of_one_commit_leaves_the_others_their_ends() -> None:
    rig = Rig()
    broken, whole = FakeStream(rig.store), FakeStream(rig.store)
    broken.finish_commit = cast(Any, lambda commit, error: 1 // 0)
    for stream in (broken, whole):
        stream.append()
    rig.committer.start_commits()
    await rig.until(whole, 1)
    while not rig.committer.idle:
        await asyncio.sleep(0)
    assert [type(fault) for fault in rig.faults] == [ZeroDivisionError]
    rig.committer.stop()


async def test_a_fault_at_the_beginning_of_one_commit_keeps_no_other_from_the_disk() -> None:
    rig = Rig()
    broken, whole = FakeStream(rig.store), FakeStream(rig.store)
    broken.begin_commit = cast(Any, lambda: 1 // 0)
    for stream in (broken, whole):
        stream.append()
    rig.committer.start_commits()
    await rig.until(whole, 1)
    assert rig.committer.idle and len(rig.faults) == 1
    rig.committer.stop()


def small(rig: Rig, takes_s: float) -> FakeStream:
    stream = FakeStream(rig.store)
    stream.small, stream.takes_s = True, takes_s
    return stream


def in_place(stream: FakeStream) -> bool:
    return stream.runs[-1] == threading.current_thread().name


async def test_small_commits_of_a_quick_disk_run_on_the_loop_thread() -> None:
    rig = Rig()
    stream = small(rig, IN_PLACE_S / 4)
    await rig.commit(stream)
    assert not in_place(stream)  # nothing is known of the disk
    await rig.commit(stream, WEIGHT)
    assert in_place(stream)
    stream.append()
    assert rig.committer.start_commits()
    assert stream.durable_seq == stream.last_seq and rig.committer.syncs == WEIGHT + 2
    rig.committer.stop()


async def test_a_slow_disk_sends_the_next_commits_to_the_workers_until_it_is_quick_again() -> None:
    rig = Rig()
    stream = small(rig, IN_PLACE_S / 4)
    await rig.commit(stream, 4 * WEIGHT)
    stream.takes_s = 100 * IN_PLACE_S
    await rig.commit(stream)
    assert in_place(stream)
    stream.takes_s = IN_PLACE_S / 4
    await rig.commit(stream)
    assert in_place(stream)  # one slow sync decides nothing
    stream.takes_s = 100 * IN_PLACE_S
    await rig.commit(stream, 4)
    assert not in_place(stream)
    stream.takes_s = IN_PLACE_S / 4
    await rig.commit(stream, 4 * WEIGHT)
    assert in_place(stream)
    rig.committer.stop()


async def test_a_disk_that_is_never_quick_is_left_to_the_workers() -> None:
    rig = Rig()
    stream = small(rig, IN_PLACE_S * 1.1)
    await rig.commit(stream, 10 * WEIGHT)
    assert threading.current_thread().name not in stream.runs
    rig.committer.stop()


async def test_large_commits_and_those_of_several_streams_go_to_the_workers() -> None:
    rig = Rig()
    stream, other = small(rig, 0), small(rig, 0)
    await rig.commit(stream, 2 * WEIGHT)
    stream.small = False
    await rig.commit(stream)
    assert not in_place(stream)
    stream.small = True
    other.append()
    await rig.commit(stream)
    await rig.until(other, 1)
    assert not in_place(stream) and not in_place(other)
    other.gate.clear()
    other.small = False
    other.append()
    rig.committer.start_commits()
    await rig.commit(stream)
    assert not in_place(stream)  # the disk is busy
    other.gate.set()
    await rig.until(other, 2)
    rig.committer.stop()


async def test_an_error_of_a_commit_on_the_loop_thread_reaches_its_stream() -> None:
    rig = Rig()
    stream = small(rig, 0)
    await rig.commit(stream, 2 * WEIGHT)
    stream.error = StoreError("Input/output error")
    await rig.commit(stream)
    assert in_place(stream) and isinstance(stream.errors[-1], StoreError)
    rig.committer.stop()


native = pytest.mark.skipif(lib is None, reason="the native module is not built, or NATSCTL_PURE is set")


@native
async def test_appends_are_written_and_synced_by_native_threads(tmp_path: Path) -> None:
    rig = Rig(native=True)
    streams, expected = [FakeStream(rig.store) for _ in range(3 * WORKERS)], dict[int, bytes]()
    files = [(tmp_path / str(number)).open("wb") for number in range(2 * len(streams))]
    for round_number in range(20):
        for stream, log, journal in zip(streams, files[::2], files[1::2], strict=True):
            line = b"%d of %d," % (round_number, log.fileno())
            place = len(expected.get(log.fileno(), b""))
            expected[log.fileno()] = expected.get(log.fileno(), b"") + line
            expected[journal.fileno()] = expected.get(journal.fileno(), b"") + line
            stream.appends = (log.fileno(), line, place, True), (journal.fileno(), line, place, False)
            stream.append()
        rig.committer.start_commits()
        for stream in streams:
            await rig.until(stream, round_number + 1)
    assert rig.committer.idle and rig.committer.syncs == 20 * len(streams)
    assert all(stream.runs == [] for stream in streams)
    rig.committer.stop()
    for file in files:
        file.close()
        assert Path(file.name).read_bytes() in expected.values()
    assert {Path(file.name).read_bytes() for file in files} == set(expected.values())


@native
async def test_a_write_that_fails_in_a_native_thread_is_done_again_in_python() -> None:
    rig = Rig(native=True)
    stream = FakeStream(rig.store)
    full = os.open("/dev/full", os.O_RDWR)
    stream.appends = ((full, b"data", 0, True),)
    await rig.commit(stream)
    assert len(stream.runs) == 1 and stream.errors == [None]
    os.close(full)
    rig.committer.stop()


@native
async def test_a_write_for_which_there_is_no_descriptor_left_is_done_again_in_python() -> None:
    rig = Rig(native=True)
    for data in (b"data", b""):  # none where bytes of before are to be synced
        stream = FakeStream(rig.store)
        stream.appends = ((-1, data, 0, True),)
        await rig.commit(stream)
        assert len(stream.runs) == 1 and stream.errors == [None]
    rig.committer.stop()


@native
async def test_a_sync_that_fails_in_a_native_thread_is_final(tmp_path: Path) -> None:
    rig = Rig(native=True)
    stream = FakeStream(rig.store)
    with (tmp_path / "file").open("wb") as removed:
        (tmp_path / "file").unlink()
        stream.appends = ((removed.fileno(), b"data", 0, True), (-1, b"never", 0, True))
        await rig.commit(stream)
    assert stream.runs == []
    (error,) = stream.errors
    assert isinstance(error, OSError) and error.errno == errno.EIO and "sync failed" in str(error)
    rig.committer.stop()


@native
async def test_a_committer_that_stops_ends_the_jobs_of_its_native_threads(tmp_path: Path) -> None:
    rig = Rig(native=True)
    streams = [FakeStream(rig.store) for _ in range(3 * WORKERS)]
    for number, stream in enumerate(streams):
        fd = os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT)
        stream.appends = ((fd, b"data", 0, True),)
        stream.append()
    rig.committer.start_commits()
    rig.committer.stop()  # commits in flight: their threads are left behind, and do all the same what they have
    for number, stream in enumerate(streams):
        while (tmp_path / str(number)).read_bytes() != b"data":
            await asyncio.sleep(0.001)
        os.close(stream.appends[0][0])


@native
async def test_a_thread_that_is_left_behind_writes_to_no_other_file(tmp_path: Path) -> None:
    rig = Rig(native=True)
    streams, pipes = [FakeStream(rig.store) for _ in range(WORKERS + 1)], [os.pipe() for _ in range(WORKERS)]
    path = tmp_path / "log"
    log = os.open(path, os.O_RDWR | os.O_CREAT)
    for stream, (_, full) in zip(streams, pipes, strict=False):
        stream.appends = ((full, bytes(1 << 20), 0, True),)  # no seeking in a pipe: fails, and Python would do it again
    streams[-1].appends = ((log, b"data", 0, True),)
    for stream in streams:
        stream.append()
    rig.committer.start_commits()
    rig.committer.stop()
    os.close(log)
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    assert other == log
    while path.read_bytes() != b"data":
        await asyncio.sleep(0.001)
    assert (tmp_path / "other").read_bytes() == b""
    for fd in (other, *(end for ends in pipes for end in ends)):
        os.close(fd)
