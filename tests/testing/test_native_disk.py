"""Commits that native threads write on the simulated disk keep every promise, and a fault of theirs is noticed."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from natsctl.native.build import BuildError
from natsctl.server.committer import WRITE_FAILED, Committer
from natsctl.store.encrypted_disk import LogFile
from natsctl.store.errors import StoreError, StoreFullError
from natsctl.store.options import StoreOptions
from natsctl.store.store import Store
from natsctl.store.stream import StreamStore
from natsctl.testing.simdisk import Fault, no_faults
from tests.support import native_disk
from tests.support.native_disk import (
    LINKS,
    SYNC,
    WRITE,
    Call,
    EncryptedNativeSession,
    NativeDisk,
    NativeSession,
    NumberedDisk,
    NumberedFile,
    simulate_natively,
    simulate_natively_encrypted,
)
from tests.support.store_model import Violation

SEEDS = 12
pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module", autouse=True)
def built() -> NativeDisk:
    """The build of the module on simulated calls."""
    try:
        return native_disk.native_disk()
    except BuildError as failure:
        pytest.skip(f"the native module cannot be built: {failure}")


def test_no_promise_is_broken_by_native_threads() -> None:
    total = Counter[str]()
    for seed in range(SEEDS):
        session = NativeSession(seed)
        session.run()
        total.update(session.calls)
    assert total["written"] > 10 * SEEDS
    assert all(total[name] > SEEDS for name in ("short", "synced", "interrupted", "abandoned", "again")), total


def test_no_promise_is_broken_by_native_threads_on_a_disk_that_encrypts() -> None:
    total = Counter[str]()
    for seed in range(SEEDS):
        session = EncryptedNativeSession(seed)
        session.run()
        total.update(session.calls)
    assert total["written"] > 10 * SEEDS
    assert all(total[name] > SEEDS // 2 for name in ("short", "synced", "interrupted", "abandoned", "again")), total


def gives_plain_bytes(log: LogFile, data: bytes, offset: int) -> tuple[int, bytes, int]:
    fd, _, place = placed(log, data, offset)
    return fd, data, place


placed = LogFile.placed


def test_plain_bytes_for_native_threads_are_noticed() -> None:
    with mock.patch.object(LogFile, "placed", gives_plain_bytes), pytest.raises((Violation, StoreError, LookupError)):
        for seed in range(100):
            simulate_natively_encrypted(seed)


def test_a_seed_reproduces_its_session_with_native_threads() -> None:
    sessions = [NativeSession(7) for _ in range(2)]
    reports = [asdict(session.run()) for session in sessions]
    assert reports[0] == reports[1]
    assert sessions[0].calls == sessions[1].calls


done, error_of = NativeSession._do, NativeSession.error_of


def leaves_syncs_out(self: NativeSession, call: Call, file: NumberedFile) -> int:
    return 0 if call.kind == SYNC else done(self, call, file)


def takes_a_part_for_the_whole(self: NativeSession, call: Call, file: NumberedFile) -> int:
    wrote = done(self, call, file)
    return len(call.data) if call.kind == WRITE else wrote


def does_failed_syncs_again(self: NativeSession, call: Call, file: NumberedFile) -> int:
    try:
        return done(self, call, file)
    except OSError:
        return done(self, call, file)


def overlooks_failed_writes(self: NativeSession, flight: Any, outcome: int, number: int) -> Any:
    return None if outcome == WRITE_FAILED else error_of(self, flight, outcome, number)


@pytest.mark.parametrize(
    ("name", "planted", "seed"),
    [
        ("_do", leaves_syncs_out, 0),
        ("_do", takes_a_part_for_the_whole, 0),
        ("_do", does_failed_syncs_again, 0),
        ("error_of", overlooks_failed_writes, 0),
    ],
)
def test_a_planted_fault_of_native_threads_is_noticed(name: str, planted: Callable[..., Any], seed: int) -> None:
    with mock.patch.object(NativeSession, name, planted), pytest.raises((Violation, StoreError, LookupError)):
        simulate_natively(seed)


# The server's committer on the simulated disk.


class Rig:
    """A store with two streams of one message, whose committer's native threads wait for the test at each call."""

    def __init__(self, native: NativeDisk) -> None:
        self.native = native
        self.disk = native.disk = NumberedDisk(random.Random(1))
        native.refuses = False
        self.store = self._open()
        self.acked: dict[str, int] = {}
        self.refused: dict[str, StoreError] = {}
        self.a, self.b = (self._stream(f"$G/{name}") for name in "AB")
        self._keys: dict[int, str] = {}
        for stream in (self.a, self.b):  # the first message makes a file, which is Python's to do
            stream.append(b"a", b"", b"", 1)
        for owner in [*self.store.dirty]:
            commit = owner.begin_commit()
            assert commit is not None
            commit.run()
            owner.finish_commit(commit)
        loop = asyncio.get_running_loop()
        self.committer = Committer(self.store, loop.call_soon_threadsafe, lambda: None, self._fault, loop=loop)
        self.committer.start()

    def _open(self) -> Store:
        options = StoreOptions(reserve_bytes=4096)
        store = Store(self.disk, options, lambda: 7, lambda: 1_700_000_000_000_000_000, lambda text: None)
        store.open()
        return store

    def _stream(self, key: str) -> StreamStore:
        stream = self.store.create(key, b"{}", "file")
        stream.listener = lambda durable_seq: self.acked.update({key: durable_seq})
        stream.refused = lambda durable_seq, error: self.refused.update({key: error})
        return stream

    def _fault(self, where: str, error: Exception) -> None:
        raise error

    def publish(self, *streams: StreamStore) -> None:
        """Append a message to each stream and begin their commits."""
        for stream in streams:
            stream.append(b"a", b"", b"payload of " + stream.key.encode(), 1)
        self.committer.start_commits()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.001)

    async def calls(self, count: int) -> list[Call]:
        """Return so many calls, as soon as threads have made them."""
        await self.until(lambda: len(self.native.calls) >= count)
        found = [self.native.take() for _ in range(len(self.native.calls))]
        for call in found:
            if call.kind == WRITE:
                self._keys[call.number] = next(key for key in self.store.streams if key.encode() in call.data)
        return found

    async def until_calls(self, kind: int, *streams: StreamStore) -> list[Call]:
        """Answer what the streams' threads call for until each waits in a call of this kind; return these calls."""
        waiting = await self.calls(len(streams))
        while others := [call for call in waiting if call.kind != kind]:
            for call in others:
                self.do(call)
            waiting = [call for call in waiting if call.kind == kind] + await self.calls(len(others))
        return [next(call for call in waiting if self._keys[call.number] == stream.key) for stream in streams]

    def do(self, call: Call) -> None:
        file = self.disk.numbered[call.number]
        try:
            if call.kind == WRITE:
                call.answer(file.pwrite(call.data, call.offset))
            elif call.kind == LINKS:
                call.answer(file.links())
            else:
                file.sync()
                call.answer(0)
        except OSError as error:
            call.answer(-(error.errno or errno.EIO))

    async def commit(self, stream: StreamStore) -> None:
        """Publish to a stream, and see the message acknowledged."""
        self.publish(stream)
        (sync,) = await self.until_calls(SYNC, stream)
        self.do(sync)
        await self.until(lambda: self.acked[stream.key] == stream.last_seq)

    def end(self) -> None:
        """Fail the power: what was acknowledged is there."""
        self.committer.stop()
        self.disk.power_loss()
        store = self._open()
        assert not store.damaged
        assert {key: stream.last_seq for key, stream in store.streams.items()} == self.acked
        store.close()


@pytest.fixture
def rig(built: NativeDisk) -> Iterator[Callable[[], Rig]]:
    """A maker of rigs within the loop."""
    with mock.patch("natsctl.server.committer.lib", SimpleNamespace(CommitThreads=built.module.CommitThreads)):
        yield lambda: Rig(built)


async def test_a_slow_sync_delays_the_acks_of_its_stream_alone(rig: Callable[[], Rig]) -> None:
    here = rig()
    here.publish(here.a, here.b)
    slow, quick = await here.until_calls(SYNC, here.a, here.b)
    assert here.acked == {"$G/A": 1, "$G/B": 1}
    here.do(quick)
    await here.until(lambda: here.acked["$G/B"] == 2)
    for _ in range(3):
        await here.commit(here.b)
    assert here.acked == {"$G/A": 1, "$G/B": 5}
    here.do(slow)
    await here.until(lambda: here.acked["$G/A"] == 2)
    here.end()


async def test_a_sync_that_fails_in_a_native_thread_refuses_its_stream_for_good(rig: Callable[[], Rig]) -> None:
    here = rig()
    here.publish(here.a, here.b)
    broken, whole = await here.until_calls(SYNC, here.a, here.b)
    here.disk.plan = lambda call, path: Fault(error=errno.EIO) if call == "sync" else None
    here.do(broken)
    await here.until(lambda: "$G/A" in here.refused)
    here.disk.plan = no_faults
    assert not isinstance(here.refused["$G/A"], StoreFullError)
    with pytest.raises(StoreError):
        here.a.append(b"a", b"", b"more", 1)
    here.do(whole)
    await here.until(lambda: here.acked["$G/B"] == 2)
    await here.commit(here.b)
    assert here.native.calls == [] and here.acked["$G/A"] == 1
    here.end()


async def test_a_disk_that_is_full_for_a_native_thread_takes_messages_back_until_there_is_room(
    rig: Callable[[], Rig],
) -> None:
    here = rig()
    here.publish(here.a, here.b)
    full, whole = await here.until_calls(WRITE, here.a, here.b)
    writes = iter(range(2))  # the native thread's and Python's

    here.disk.plan = lambda call, path: (
        Fault(error=errno.ENOSPC) if call == "pwrite" and next(writes, None) is not None else None
    )
    here.do(full)
    await here.until(lambda: "$G/A" in here.refused)
    assert isinstance(here.refused["$G/A"], StoreFullError) and here.a.last_seq == 1
    here.disk.plan = no_faults
    here.do(whole)
    (sync,) = await here.until_calls(SYNC, here.b)
    here.do(sync)
    await here.until(lambda: here.acked["$G/B"] == 2)
    for stream in (here.a, here.b):
        await here.commit(stream)
    here.end()
