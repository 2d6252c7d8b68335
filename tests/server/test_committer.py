from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from natsctl.native import lib
from natsctl.server.committer import IN_PLACE_S, WEIGHT, WORKERS, WRITES_S, Committer
from natsctl.store.errors import StoreError
from natsctl.store.file_commit import Append


class FakeCommit:
    def __init__(self, stream: FakeStream, upto: int) -> None:
        self.stream, self.upto, self.io, self.is_small = stream, upto, stream.io, stream.small
        self.syncs = stream.syncs
        self.callbacks = ["answer a request"] if stream.is_asked else []

    def take_appends(self) -> tuple[Append, ...]:
        return self.stream.appends

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
        self.small, self.syncs, self.takes_s = False, True, 0.0
        self.appends: tuple[Append, ...] = ()
        self.gate = threading.Event()
        if opened:
            self.gate.set()
        self.last_seq = self.durable_seq = 0
        self.in_flight: FakeCommit | None = None
        self.errors: list[StoreError | None] = []
        self.is_asked = False
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
        self.store.ended.append(self)
        if self.last_seq > commit.upto:
            self.store.dirty[self] = None


class FakeStore:
    def __init__(self) -> None:
        self.dirty: dict[FakeStream, None] = {}
        self.clock_s = 0.0
        self.ended: list[FakeStream | str] = []


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

    def begin(self, stream: FakeStream) -> None:
        stream.append()
        self.committer.start_commits()

    async def commit(self, stream: FakeStream, times: int = 1) -> None:
        for _ in range(times):
            self.begin(stream)
            await self.until(stream, stream.last_seq)

    async def until(self, stream: FakeStream, seq: int) -> None:
        async with asyncio.timeout(60):
            while stream.durable_seq < seq:
                await self.changed.wait()
                self.changed.clear()
                self.committer.start_commits()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    found = Rig()
    yield found
    found.committer.stop()


@pytest.fixture
async def native_rig() -> AsyncIterator[Rig]:
    if lib is None:
        pytest.skip("the native module is not built, or NATSCTL_PURE is set")
    found = Rig(native=True)
    yield found
    found.committer.stop()


async def test_what_gathers_during_a_sync_is_covered_by_the_next_one(rig: Rig) -> None:
    stream = FakeStream(rig.store, opened=False)
    rig.begin(stream)
    for _ in range(100):
        rig.begin(stream)
    assert len(rig.committer.in_flight) == 1
    stream.gate.set()
    await rig.until(stream, 101)
    assert len(stream.runs) == 2
    assert rig.committer.idle


async def test_one_commit_after_the_other_goes_to_the_worker_that_is_awake(rig: Rig) -> None:
    stream = FakeStream(rig.store)
    await rig.commit(stream, 30)
    assert len(stream.runs) == 30
    assert len(set(stream.runs)) == 1


async def test_commits_beyond_the_number_of_workers_wait_for_one(rig: Rig) -> None:
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


async def test_workers_start_with_the_commits_that_need_them(rig: Rig) -> None:
    slow = [FakeStream(rig.store, opened=False) for _ in range(3)]
    for number, stream in enumerate(slow, 1):
        rig.begin(stream)
        assert len(rig.committer._threads) == number
    for stream in slow:
        stream.gate.set()
        await rig.until(stream, 1)


async def test_a_commit_waits_for_a_running_worker_if_the_system_refuses_another(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse_thread)
    slow, late = FakeStream(rig.store, opened=False), FakeStream(rig.store)
    for stream in (slow, late):
        rig.begin(stream)
    slow.gate.set()
    await rig.until(late, 1)
    assert late.runs == slow.runs


def refuse_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_disk_work_leaves_the_loop_thread_and_memory_work_does_not(rig: Rig) -> None:
    disk, memory = FakeStream(rig.store), FakeStream(rig.store, io=False)
    disk.append()
    rig.begin(memory)
    assert memory.durable_seq == 1
    await rig.until(disk, 1)
    assert disk.runs[0].startswith("natsctl-commit")
    assert memory.runs == [threading.current_thread().name]


async def test_a_fault_in_a_commit_fails_its_stream_and_leaves_the_worker_alive(rig: Rig) -> None:
    stream, other = FakeStream(rig.store, error=cast(Any, ValueError("a bug"))), FakeStream(rig.store)
    await rig.commit(stream, 8)
    await rig.commit(other)
    assert all("a bug" in str(error) for error in stream.errors)


@pytest.mark.parametrize("step", ["begin_commit", "finish_commit"])
async def test_a_fault_at_one_end_of_a_commit_leaves_the_others_theirs(rig: Rig, step: str) -> None:
    broken, whole = FakeStream(rig.store), FakeStream(rig.store)
    setattr(broken, step, lambda *_: 1 // 0)
    for stream in (broken, whole):
        stream.append()
    rig.committer.start_commits()
    await rig.until(whole, 1)
    while not rig.committer.idle:
        await asyncio.sleep(0)
    assert [type(fault) for fault in rig.faults] == [ZeroDivisionError]


def small(rig: Rig, takes_s: float) -> FakeStream:
    stream = FakeStream(rig.store)
    stream.small, stream.takes_s = True, takes_s
    return stream


def in_place(stream: FakeStream) -> bool:
    return stream.runs[-1] == threading.current_thread().name


async def test_small_commits_of_a_quick_disk_run_on_the_loop_thread(rig: Rig) -> None:
    stream = small(rig, IN_PLACE_S / 4)
    await rig.commit(stream)
    assert not in_place(stream)  # nothing is known of the disk
    await rig.commit(stream, WEIGHT)
    assert in_place(stream)
    stream.append()
    assert rig.committer.start_commits()
    assert stream.durable_seq == stream.last_seq and rig.committer.syncs == WEIGHT + 2


async def test_a_slow_disk_sends_the_next_commits_to_the_workers_until_it_is_quick_again(rig: Rig) -> None:
    stream = small(rig, IN_PLACE_S / 4)
    await rig.commit(stream, 4 * WEIGHT)
    stream.takes_s = 100 * IN_PLACE_S
    await rig.commit(stream)
    assert in_place(stream)
    stream.takes_s = IN_PLACE_S / 4
    await rig.commit(stream)
    assert in_place(stream)
    stream.takes_s = 100 * IN_PLACE_S
    await rig.commit(stream, 2)
    stream.takes_s = IN_PLACE_S / 4
    await rig.commit(stream)
    assert in_place(stream)  # a few slow syncs decide nothing
    stream.takes_s = 100 * IN_PLACE_S
    await rig.commit(stream, WEIGHT)
    assert not in_place(stream)
    stream.takes_s = IN_PLACE_S / 4
    await rig.commit(stream, 4 * WEIGHT)
    assert in_place(stream)


async def test_a_disk_that_is_never_quick_is_left_to_the_workers(rig: Rig) -> None:
    stream = small(rig, IN_PLACE_S * 1.1)
    await rig.commit(stream, 10 * WEIGHT)
    assert threading.current_thread().name not in stream.runs


async def test_small_writes_of_many_streams_run_on_the_loop_thread_for_a_part_of_a_turn(rig: Rig) -> None:
    streams = [small(rig, 0.4 * WRITES_S) for _ in range(5)]
    for round_number in range(1, 4 * WEIGHT):
        for stream in streams:
            stream.syncs = False
            stream.append()
        rig.committer.start_commits()
        places = [in_place(stream) for stream in streams if len(stream.runs) == round_number]
        if round_number == 1:
            assert places[:3] == [True] * 3 and not rig.committer.idle
        for stream in streams:
            await rig.until(stream, round_number)
    assert not any(map(in_place, streams))  # the disk is slow


async def test_acks_of_commits_that_end_together_leave_before_requests_are_answered(rig: Rig) -> None:
    asked, *streams = [small(rig, 0) for _ in range(4)]
    asked.is_asked = True
    ended = rig.store.ended
    rig.committer.gather, rig.committer.send = lambda: ended.append("gather"), lambda: ended.append("send")
    for stream in (asked, *streams):
        stream.syncs = False
        stream.append()
    rig.committer.start_commits()
    assert ended == ["gather", *streams, "send", asked]
    rig.committer.send = lambda: 1 // 0
    for stream in (asked, *streams):
        stream.append()
    rig.committer.start_commits()
    assert ended[-4:] == [*streams, asked] and [type(fault) for fault in rig.faults] == [ZeroDivisionError]


async def test_large_commits_and_those_of_several_streams_go_to_the_workers(rig: Rig) -> None:
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
    rig.begin(other)
    await rig.commit(stream)
    assert not in_place(stream)  # the disk is busy
    other.gate.set()
    await rig.until(other, 2)


async def test_an_error_of_a_commit_on_the_loop_thread_reaches_its_stream(rig: Rig) -> None:
    stream = small(rig, 0)
    await rig.commit(stream, 2 * WEIGHT)
    stream.error = StoreError("Input/output error")
    await rig.commit(stream)
    assert in_place(stream) and isinstance(stream.errors[-1], StoreError)


async def test_appends_are_written_and_synced_by_native_threads(native_rig: Rig, tmp_path: Path) -> None:
    streams, expected = [FakeStream(native_rig.store) for _ in range(3 * WORKERS)], dict[int, bytes]()
    files = [(tmp_path / str(number)).open("wb") for number in range(2 * len(streams))]
    for round_number in range(20):
        for stream, log, journal in zip(streams, files[::2], files[1::2], strict=True):
            line = b"%d of %d," % (round_number, log.fileno())
            place = len(expected.get(log.fileno(), b""))
            expected[log.fileno()] = expected.get(log.fileno(), b"") + line
            expected[journal.fileno()] = expected.get(journal.fileno(), b"") + line
            stream.appends = (log.fileno(), line, place, True), (journal.fileno(), line, place, False)
            stream.append()
        native_rig.committer.start_commits()
        for stream in streams:
            await native_rig.until(stream, round_number + 1)
    assert native_rig.committer.idle and native_rig.committer.syncs == 20 * len(streams)
    assert all(stream.runs == [] for stream in streams)
    native_rig.committer.stop()
    for file in files:
        file.close()
        assert Path(file.name).read_bytes() in expected.values()
    assert {Path(file.name).read_bytes() for file in files} == set(expected.values())


@pytest.mark.parametrize("limit_s", [WRITES_S, 0.0])
async def test_small_writes_of_a_turn_are_one_native_call_and_late_ones_go_to_threads(
    native_rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_s: float
) -> None:
    monkeypatch.setattr("natsctl.server.committer.WRITES_S", limit_s)
    streams = [small(native_rig, 0) for _ in range(20)]
    with (tmp_path / "log").open("wb") as file:
        for number, stream in enumerate(streams):
            stream.syncs = False
            stream.appends = ((file.fileno(), b"%04d" % number, 4 * number, False),)
            stream.append()
        streams[7].appends, streams[9].appends = ((-1, b"none", 0, False),), ()  # Python does these
        native_rig.committer.start_commits()
        assert streams[0].durable_seq == 1
        assert limit_s or streams[1] in native_rig.committer.in_flight
        for stream in streams:
            await native_rig.until(stream, 1)
    assert [at for at, stream in enumerate(streams) if stream.runs] == [7, 9]
    assert native_rig.committer.idle and native_rig.committer.syncs == 20
    expected = b"".join(bytes(4) if number in (7, 9) else b"%04d" % number for number in range(20))
    assert (tmp_path / "log").read_bytes() == expected


async def test_a_batch_that_native_code_cannot_read_changes_nothing(native_rig: Rig, tmp_path: Path) -> None:
    threads = native_rig.committer._native
    assert threads is not None
    with (tmp_path / "log").open("wb") as file:
        good = ((file.fileno(), b"data", 0, False),)
        for bad in ([good], "text", (), ((file.fileno(), "text", 0, False),), (good[0],) * 3):
            with pytest.raises((TypeError, ValueError)):
                threads.run(cast(Any, [good, bad]), 1.0)
        with pytest.raises(TypeError):
            threads.run(cast(Any, 5), 1.0)
        assert threads.run([], 1.0) == [] and os.fstat(file.fileno()).st_size == 0
        assert [outcome for outcome, _, _ in threads.run([good, good], 0.0)] == [0]


@pytest.fixture(params=["thread", "in place"])
async def native_stream(request: pytest.FixtureRequest, native_rig: Rig, tmp_path: Path) -> FakeStream:
    """A stream with commits that native threads do, or the loop thread natively."""
    stream = small(native_rig, 0)
    if request.param == "in place":
        with (tmp_path / "quick").open("wb") as file:
            while native_rig.committer.syncs < 1 or not native_rig.committer._small_s[True] < IN_PLACE_S:
                stream.appends = ((file.fileno(), b"", 0, False),)
                await native_rig.commit(stream)
    stream.small = request.param == "in place"
    stream.runs, stream.errors = [], []
    return stream


async def test_a_write_that_fails_natively_is_done_again_in_python(native_rig: Rig, native_stream: FakeStream) -> None:
    stream = native_stream
    full = os.open("/dev/full", os.O_RDWR)
    stream.appends = ((full, b"data", 0, True),)
    await native_rig.commit(stream)
    assert len(stream.runs) == 1 and stream.errors == [None] and in_place(stream) is stream.small
    os.close(full)


async def test_a_write_for_which_there_is_no_descriptor_left_is_done_again_in_python(native_rig: Rig) -> None:
    for data in (b"data", b""):  # none where bytes of before are to be synced
        stream = FakeStream(native_rig.store)
        stream.appends = ((-1, data, 0, True),)
        await native_rig.commit(stream)
        assert len(stream.runs) == 1 and stream.errors == [None]


async def test_a_native_sync_that_fails_is_final(native_rig: Rig, native_stream: FakeStream, tmp_path: Path) -> None:
    stream = native_stream
    with (tmp_path / "file").open("wb") as removed:
        (tmp_path / "file").unlink()
        stream.appends = ((removed.fileno(), b"data", 0, True), (-1, b"never", 0, True))
        await native_rig.commit(stream)
    assert stream.runs == []
    (error,) = stream.errors
    assert isinstance(error, OSError) and error.errno == errno.EIO and "sync failed" in str(error)


async def test_a_committer_that_stops_ends_the_jobs_of_its_native_threads(native_rig: Rig, tmp_path: Path) -> None:
    streams = [FakeStream(native_rig.store) for _ in range(3 * WORKERS)]
    for number, stream in enumerate(streams):
        fd = os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT)
        stream.appends = ((fd, b"data", 0, True),)
        stream.append()
    native_rig.committer.start_commits()
    native_rig.committer.stop()  # commits in flight: their threads are left behind, and do all the same what they have
    for number, stream in enumerate(streams):
        while (tmp_path / str(number)).read_bytes() != b"data":
            await asyncio.sleep(0.001)
        os.close(stream.appends[0][0])


async def test_a_thread_that_is_left_behind_writes_to_no_other_file(native_rig: Rig, tmp_path: Path) -> None:
    streams, pipes = [FakeStream(native_rig.store) for _ in range(WORKERS + 1)], [os.pipe() for _ in range(WORKERS)]
    path = tmp_path / "log"
    log = os.open(path, os.O_RDWR | os.O_CREAT)
    for stream, (_, full) in zip(streams, pipes, strict=False):
        stream.appends = ((full, bytes(1 << 20), 0, True),)  # no seeking in a pipe: fails, and Python would do it again
    streams[-1].appends = ((log, b"data", 0, True),)
    for stream in streams:
        stream.append()
    native_rig.committer.start_commits()
    native_rig.committer.stop()
    os.close(log)
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    assert other == log
    while path.read_bytes() != b"data":
        await asyncio.sleep(0.001)
    assert (tmp_path / "other").read_bytes() == b""
    for fd in (other, *(end for ends in pipes for end in ends)):
        os.close(fd)
