"""A store on a disk in memory, and the loop that a shell would run."""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable, Iterator, MutableMapping

import pytest

from natsctl.store.encrypted_disk import EncryptedDisk
from natsctl.store.file_commit import Committable
from natsctl.store.options import StoreOptions
from natsctl.store.store import Store
from natsctl.store.stream import StreamStore
from tests.support.disk_image import FileImage
from tests.support.simdisk import Crash, DiskFault, SimDisk, SimFile


class Files(MutableMapping[str, FileImage]):
    """The files of a disk by path, as the process sees them; what is put or taken here happens at rest."""

    def __init__(self, disk: StoreDisk) -> None:
        self._disk = disk

    def __getitem__(self, path: str) -> FileImage:
        if not self._disk.exists(path):
            raise KeyError(path)
        return self._disk._file(path)

    def __setitem__(self, path: str, image: FileImage) -> None:
        folder, name = self._disk._parent(path)
        folder.cache[name] = image

    def __delitem__(self, path: str) -> None:
        folder, name = self._disk._parent(path)
        del folder.cache[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._disk.files())

    def __len__(self) -> int:
        return len(self._disk.files())


class StoreFile(SimFile):
    """A file on a disk that may be full."""

    closed = property(lambda self: not self._open)

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        data, grown = bytes(data), max(offset + len(data) - self.size(), 0)
        if self._disk.room is not None and (over := grown - self._disk.room) > 0:
            if over >= len(data):
                raise OSError(errno.ENOSPC, "no space")
            data, grown = data[:-over], grown - over
        self._disk.room = self._disk.room and self._disk.room - grown
        return super().pwrite(data, offset)

    def truncate(self, size: int) -> None:
        self._disk.room = None if self._disk.room is None else self._disk.room + self.size() - size
        super().truncate(size)


class StoreDisk(SimDisk):
    """A simulated disk with what tests of the store ask for: little room, syncs that fail, a death after some calls."""

    def __init__(self) -> None:
        super().__init__(random.Random(0))
        self.names = Files(self)
        self.room: int | None = None
        self.fail_sync = 0
        self.steps_left = -1
        self.calls: list[str] = []

    def kill(self) -> None:
        """End the process; what it had open can still be read, to compare."""
        self._locks.clear()
        self.steps_left = -1

    def power(self, rng: random.Random) -> None:
        self.rng = rng
        self.power_loss()

    def _draw_stale(self) -> list[bytes]:
        return []  # old blocks of erased messages would be a fault of the machine

    def step(self, call: str) -> None:
        """Count a call that changes something; none comes after the last."""
        self.calls.append(call)
        if self.steps_left == 0:
            raise Crash(call)
        self.steps_left -= 1

    def meet(self, call: str, path: str, writes: bool = False) -> DiskFault | None:
        if call not in ("open", "open_read", "pread", "listdir", "lock"):
            self.step(call)
        if call == "sync" and self.fail_sync:
            self.fail_sync -= 1
            raise OSError(errno.EIO, "sync failed")
        return super().meet(call, path, writes)

    def open(self, path: str, create: bool = False) -> SimFile:
        super().open(path, create).close()
        return StoreFile(self, path, self._file(path), writable=True)

    def unlink(self, path: str) -> None:
        size = self.size_of(path)
        super().unlink(path)
        self.room = None if self.room is None else self.room + size

    def free_bytes(self) -> int:
        return super().free_bytes() if self.room is None else self.room

    def contains(self, data: bytes) -> bool:
        """Return whether a file holds `data`, or one does that may come back after a power loss."""
        return self.holds(data) or any(data in image.cache for image in self.names.values())


def commit(task: Committable) -> None:
    commit = task.begin_commit()
    if commit is None:
        return
    error = None
    try:
        commit.run()
    except OSError as caught:
        error = caught
    task.finish_commit(commit, error)


def pump(store: Store, only: Committable | None = None) -> None:
    """Commit until nothing is dirty, as a shell would."""
    for _ in range(100):
        tasks = [task for task in store.dirty if only is None or task is only]
        if not tasks:
            return
        for task in tasks:
            commit(task)
    raise AssertionError("the store never comes to rest")


class StoreHarness:
    """A disk, a clock and the stores opened on them one after the other."""

    def __init__(self, key: str = "") -> None:
        self.disk = StoreDisk()
        self.key = key
        """Configured key; empty: the store is not encrypted."""
        self.nonces = random.Random(0)
        self.now = 0
        self.log: list[str] = []
        self.salts = itertools.count(1)
        self.options = StoreOptions(segment_bytes=2048, reserve_bytes=0, high_water_interval_ns=0, block_bytes=1000)

    def open(self) -> Store:
        self.disk.kill()
        disk = EncryptedDisk(self.disk, self.key, self.nonces.randbytes, cost=2) if self.key else self.disk
        store = Store(disk, self.options, lambda: next(self.salts), lambda: self.now, self.log.append)
        self.report = store.open()
        return store

    pump = staticmethod(pump)

    def fill(
        self,
        store: Store,
        stream: StreamStore,
        count: int,
        subject: Callable[[int], bytes] = lambda n: b"s.%d" % (n % 3),
    ) -> None:
        for n in range(count):
            stream.append(subject(n), b"", b"payload %d" % n, 1000 + n)
        pump(store)

    def made(self, count: int, key: str = "A") -> tuple[Store, StreamStore]:
        """Open the store and make a stream with `count` messages."""
        store = self.open()
        stream = store.create(key, b"", "file")
        self.fill(store, stream, count)
        return store, stream


@pytest.fixture
def as_if_very_long(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes every stream one that is worked on by whole columns."""

    def act() -> None:
        for name in (
            "stream.BULK", "index.BULK", "index.BULK_DROP", "index.FEW", "appended.BULK", "stream.BULK_PRESENT",
            "appended.BULK_MESSAGES", "appended.BULK_SUBJECTS", "index.BULK_MESSAGES", "view.BULK_MESSAGES",
            "appended.FEW_SUBJECTS",
        ):  # fmt: skip
            monkeypatch.setattr(f"natsctl.store.{name}", 0)
        monkeypatch.setattr("natsctl.store.view.PROBE", 1)
        monkeypatch.setattr("natsctl.store.recovery.BULK_REMOVALS", 0)
        monkeypatch.setattr("natsctl.store.segment.ASKS_BEFORE_ORDER", 0)

    return act


@pytest.fixture
def lab() -> StoreHarness:
    return StoreHarness()
