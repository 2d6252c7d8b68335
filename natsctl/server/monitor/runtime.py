"""Endpoints of the process: `/debug/vars`, `/stacksz`, `/ipqueuesz`, and its use of memory and processor."""

from __future__ import annotations

import gc
import os
import resource
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from natsctl.server.monitor.query import Query

if TYPE_CHECKING:
    from natsctl.server.view import ServerView


class IpqueueszOptions(msgspec.Struct, kw_only=True):
    """Options of `ipqueuesz`."""

    all: bool = False
    filter: str = ""


def read_ipqueuesz(query: Query) -> IpqueueszOptions:
    """Return the options of a query. Raises Refused."""
    return IpqueueszOptions(all=query.flag("all"), filter=query.text("queues"))


def ipqueuesz(server: ServerView, options: IpqueueszOptions) -> dict[str, Any]:
    """Return queues by name: one for each stream whose newest messages await their sync."""
    engine = server.engine
    if engine is None:
        return {}
    waiting = {
        f"[ACC:{js.name}] stream '{stream.name}' messages": stream.store.last_seq - stream.store.durable_seq
        for js in engine.accounts.values()
        for stream in js.streams.values()
    }
    return {
        name: {"pending": count}
        for name, count in sorted(waiting.items())
        if (count or options.all) and options.filter in name
    }


def stacksz() -> bytes:
    """Return the stack of each thread, as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = []
    for ident, frame in sys._current_frames().items():
        stacks.append(f"thread {ident} [{names.get(ident, 'unknown')}]:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(stacks).encode()


WINDOW_S: Final = 1.0
"""Least time over which the use of the CPU is measured."""

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessUsage(NamedTuple):
    """Resident memory in bytes, and CPU in percent of one core."""

    mem: int
    cpu: float


class _Meter:
    """The use of the CPU since it was last asked for."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Measure from now on, as a process that was just forked does."""
        self._at, self._used = time.monotonic(), time.process_time()
        self._percent = 0.0

    def percent(self) -> float:
        now = time.monotonic()
        if now - self._at >= WINDOW_S:
            used = time.process_time()
            self._percent = round(100 * (used - self._used) / (now - self._at), 1)
            self._at, self._used = now, used
        return self._percent


_METER: Final = _Meter()


def process_usage() -> ProcessUsage:
    """Return the use of the process now: the CPU since the last request, a second ago or more."""
    return ProcessUsage(resident_bytes(), _METER.percent())


def resident_bytes() -> int:
    """Return the memory of the process; its peak where the system does not report the current use."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def expvarz(server: ServerView) -> dict[str, Any]:
    """Return what Go programs publish of their process, as far as this one has it.

    Of the command line only the program is shown: its flags may hold passwords.
    """
    resident = resident_bytes()
    collections = [generation["collections"] for generation in gc.get_stats()]
    return {
        "cmdline": sys.argv[:1],
        "memstats": {
            "Alloc": resident,
            "Sys": resident,
            "HeapAlloc": resident,
            "HeapSys": resident,
            "NumGC": sum(collections),
            "NumForcedGC": 0,
            "EnableGC": gc.isenabled(),
        },
    }
