"""A store on a disk in memory, and the loop that a shell would run."""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from natsctl.store.encrypted_disk import EncryptedDisk
from natsctl.store.file_commit import Committable
from natsctl.store.options import StoreOptions
from natsctl.store.store import Store
from natsctl.store.stream import StreamStore


def _load(name: str) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


CrashDisk = _load("crash_disk").CrashDisk


def pump(store: Store, only: Committable | None = None) -> None:
    """Commit until nothing is dirty, as a shell would."""
    for _ in range(100):
        tasks = [task for task in store.dirty if only is None or task is only]
        if not tasks:
            return
        for task in tasks:
            commit = task.begin_commit()
            if commit is None:
                continue
            error = None
            try:
                commit.run()
            except OSError as caught:
                error = caught
            task.finish_commit(commit, error)
    raise AssertionError("the store never comes to rest")


class StoreHarness:
    """A disk, a clock and the stores opened on them one after the other."""

    def __init__(self, key: str = "") -> None:
        self.disk = CrashDisk()
        self.key = key
        """Configured key; empty: the store is not encrypted."""
        self.nonces = random.Random(0)
        self.now = 0
        self.log: list[str] = []
        self.salts = itertools.count(1)
        self.options = StoreOptions(segment_bytes=2048, reserve_bytes=0, high_water_interval_ns=0, block_bytes=1000)

    def open(self) -> Store:
        """Open a store, as after the end of the process before."""
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
        """Append `count` messages and commit them."""
        for n in range(count):
            stream.append(subject(n), b"", b"payload %d" % n, 1000 + n)
        pump(store)


@pytest.fixture
def as_if_very_long(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes every stream one that is worked on by whole columns."""

    def act() -> None:
        for name in (
            "stream.BULK",
            "index.BULK",
            "index.BULK_DROP",
            "index.FEW",
            "appended.BULK",
            "stream.BULK_PRESENT",
            "appended.BULK_MESSAGES",
            "appended.BULK_SUBJECTS",
            "index.BULK_MESSAGES",
            "view.BULK_MESSAGES",
        ):
            monkeypatch.setattr(f"natsctl.store.{name}", 0)
        monkeypatch.setattr("natsctl.store.view.PROBE", 1)
        monkeypatch.setattr("natsctl.store.recovery.BULK_REMOVALS", 0)
        monkeypatch.setattr("natsctl.store.segment.ASKS_BEFORE_ORDER", 0)

    return act


@pytest.fixture
def lab() -> StoreHarness:
    """Return a fresh disk."""
    return StoreHarness()
