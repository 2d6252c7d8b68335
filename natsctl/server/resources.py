"""Event loop, clocks and garbage collection of the process, and the memory, disk and file descriptors it may use.

Without limits of its own, JetStream may use three quarters of the machine's memory and free disk.

The number of clients is not bounded by the store's needs, so a part of the limit on descriptors is kept from clients:
a commit that finds no descriptor would fence its stream off. The store closes the files of idle streams before it needs
more than that.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.native import lib

if TYPE_CHECKING:
    from pathlib import Path

    from natsctl.api.times import Clock


_SHARE: Final = 0.75
"""Part of memory and of free disk space that streams may use; nats-server's choice."""

_BLOCK_BYTES: Final = 512
"""Unit of st_blocks."""

_DISK_FALLBACK_BYTES: Final = 1 << 40
"""Max Storage where free space cannot be asked: 1 TiB, nats-server's figure."""

_MEMORY_FALLBACK_BYTES: Final = 256 << 20
"""Max Memory where memory cannot be asked: nats-server's figure."""


def default_max_memory() -> int:
    try:
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _SHARE)
    except (ValueError, OSError):
        return _MEMORY_FALLBACK_BYTES


def default_max_storage(folder: Path) -> int:
    """Return bytes that file streams may use in `folder` or in its nearest existing parent.

    The store's present size counts as room: a restart must not lower the limit below the data stored under it.
    """
    own = _used_bytes(folder)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        stat = os.statvfs(folder)
    except OSError:
        return _DISK_FALLBACK_BYTES
    return int((stat.f_bavail * stat.f_frsize + own) * _SHARE)


def _used_bytes(folder: Path) -> int:
    used, folders = 0, [str(folder)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with suppress(OSError):
                        used += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    return used


MAX_CLIENTS: Final = 65_536
"""Clients at the same time; nats-server's max_connections."""

MAX_OPEN_STREAMS: Final = 256
"""Maximum streams with files open between commits, two descriptors each."""

MAX_KEPT_DESCRIPTORS: Final = 640
"""Descriptors kept from clients: two for each open stream, and the listener, locks, logs and files that are read."""


class DescriptorShares(NamedTuple):
    clients: int
    open_streams: int


def descriptor_shares() -> DescriptorShares:
    """Return how many clients and how many open streams the process's present limit leaves room for."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return DescriptorShares(MAX_CLIENTS, MAX_OPEN_STREAMS)
    kept = min(MAX_KEPT_DESCRIPTORS, limit // 2)
    return DescriptorShares(min(MAX_CLIENTS, limit - kept), min(MAX_OPEN_STREAMS, kept // 4))


def raise_descriptor_limit() -> None:
    """Raise this process's limit on descriptors to the system's maximum, as Go does for its servers."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):  # some systems name a limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


SWITCH_INTERVAL_S: Final = 0.0005
"""Time that a commit worker may wait for the interpreter after its sync (Python's default is 5 ms)."""

GC_THRESHOLD: Final = (2_000, 4, 100_000)
"""Allocations between collections, younger collections between middle ones, and middle ones between full ones."""
YOUNG_NS: Final = 5_000_000
"""Time between collections of the young generation while the server takes turns.

Python counts allocations less deallocations: while new objects replace old ones, it collects nothing, and finally a
hundred thousand objects at once.
"""


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def let_garbage_wait() -> None:
    """Disable collection until `tune_interpreter`: objects of the start stay, and scanning them took half the time."""
    gc.disable()


def tune_interpreter() -> None:
    """Set thread switching and garbage collection for a process that serves; affects the whole process.

    Objects from the start are never scanned again. They are not collected first: that takes a tenth of the
    start, while the first clients wait, and frees some hundred objects. Free memory goes back to the system: after
    recovery it lies between columns that stay.
    """
    if lib is not None:
        lib.trim_memory()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
    gc.enable()
    gc.set_threshold(*GC_THRESHOLD)


class FrequentCollection:
    """Garbage collection between turns, of so few objects at once that no client waits for it."""

    __slots__ = ("_clock", "_due_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_ns = 0

    def collect_if_due(self) -> None:
        if self._clock.monotonic_ns() >= self._due_ns:
            gc.collect(gc.get_count()[1] > GC_THRESHOLD[1])
            self._due_ns = self._clock.monotonic_ns() + YOUNG_NS


class SystemClock:
    __slots__ = ()

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()
